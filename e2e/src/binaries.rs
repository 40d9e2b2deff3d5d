//! Locates the binaries of the control plane: in `KUBEBUILDER_ASSETS`, or built from their Go modules and cached in the
//! target folder until version, flags or module files change. Also builds sluice.

use crate::paths;
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A Go module below `e2e/controlplane` and the programs built from it.
struct GoModule {
    folder: &'static str,
    /// Module path whose version in go.mod is the component's version.
    module_path: &'static str,
    /// (binary name, package).
    programs: &'static [(&'static str, &'static str)],
    /// Link-time strings; `{v}`, `{major}` and `{minor}` are substituted.
    link_strings: &'static [&'static str],
}

const MODULES: [GoModule; 5] = [
    GoModule {
        folder: "kubernetes",
        module_path: "k8s.io/kubernetes",
        programs: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
        ],
        // Without these the server reports version v0.0.0, which clients read.
        link_strings: &[
            "k8s.io/component-base/version.gitVersion={v}",
            "k8s.io/component-base/version.gitMajor={major}",
            "k8s.io/component-base/version.gitMinor={minor}",
            "k8s.io/client-go/pkg/version.gitVersion={v}",
            "k8s.io/client-go/pkg/version.gitMajor={major}",
            "k8s.io/client-go/pkg/version.gitMinor={minor}",
        ],
    },
    GoModule {
        folder: "etcd",
        module_path: "go.etcd.io/etcd/server/v3",
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
        link_strings: &[],
    },
    GoModule {
        folder: "kwok",
        module_path: "sigs.k8s.io/kwok",
        programs: &[("kwok", "sigs.k8s.io/kwok/cmd/kwok")],
        link_strings: &["sigs.k8s.io/kwok/pkg/consts.Version={v}"],
    },
    // Charts read the version of helm.
    GoModule {
        folder: "helm",
        module_path: "helm.sh/helm/v4",
        programs: &[("helm", "helm.sh/helm/v4/cmd/helm")],
        link_strings: &["helm.sh/helm/v4/internal/version.version={v}"],
    },
    GoModule {
        folder: "helm3",
        module_path: "helm.sh/helm/v3",
        programs: &[("helm3", "helm.sh/helm/v3/cmd/helm")],
        link_strings: &["helm.sh/helm/v3/internal/version.version={v}"],
    },
];

/// Locates each binary.
pub struct Binaries {
    folder: PathBuf,
    assets: Option<PathBuf>,
}

impl Binaries {
    /// Locates the `wanted` binaries and builds missing or outdated ones.
    pub fn ensure(wanted: &[&str]) -> Result<Self> {
        let binaries = Self {
            folder: paths::controlplane().join("bin"),
            assets: std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from),
        };
        fs::create_dir_all(&binaries.folder)?;
        let mut builds = Vec::new();
        for module in &MODULES {
            let stamp = module.stamp()?;
            let missing: Vec<_> = module
                .programs
                .iter()
                .filter(|(name, _)| {
                    wanted.contains(name)
                        && binaries.asset(name).is_none()
                        && !binaries.is_fresh(name, &stamp)
                })
                .collect();
            if !missing.is_empty() {
                builds.push((module, stamp, missing));
            }
        }
        if !builds.is_empty() {
            require_go()?;
        }
        for (module, stamp, missing) in builds {
            binaries.build(module, &stamp, &missing)?;
        }
        Ok(binaries)
    }

    /// Returns the path of a binary.
    pub fn path(&self, name: &str) -> PathBuf {
        self.asset(name).unwrap_or_else(|| self.folder.join(name))
    }

    fn asset(&self, name: &str) -> Option<PathBuf> {
        self.assets.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file())
    }

    fn is_fresh(&self, name: &str, stamp: &str) -> bool {
        self.folder.join(name).is_file()
            && fs::read_to_string(self.folder.join(format!("{name}.stamp")))
                .is_ok_and(|cached| cached == stamp)
    }

    fn build(&self, module: &GoModule, stamp: &str, missing: &[&(&str, &str)]) -> Result<()> {
        let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
        let title = format!("{} {}", names.join(", "), module.version()?);
        println!("building {title} (once; takes minutes with a cold cache)");
        let out_folder = self.folder.join(format!(".building-{}", std::process::id()));
        fs::create_dir_all(&out_folder)?;
        let mut command = Command::new("go");
        command
            .current_dir(module.folder())
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .args(["build", "-v", "-trimpath", "-ldflags", &module.link_flags()?, "-o"])
            .arg(&out_folder);
        command.args(missing.iter().map(|(_, package)| *package));
        let outcome = watch_build(&mut command, module.folder);
        for (name, package) in missing {
            // go names a binary after the last element of its package path that is not a version.
            let built = [*name, package.rsplit('/').find(|part| !part.starts_with('v')).unwrap_or(name)];
            if outcome.is_ok()
                && let Some(built) = built.iter().map(|n| out_folder.join(n)).find(|path| path.is_file())
            {
                fs::rename(built, self.folder.join(name))?;
                fs::write(self.folder.join(format!("{name}.stamp")), stamp)?;
            }
        }
        fs::remove_dir_all(&out_folder)?;
        outcome.with_context(|| format!("cannot build {title}"))
    }
}

impl GoModule {
    fn folder(&self) -> PathBuf {
        paths::root().join("e2e/controlplane").join(self.folder)
    }

    fn go_mod(&self) -> Result<String> {
        let path = self.folder().join("go.mod");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    fn version(&self) -> Result<String> {
        let text = self.go_mod()?;
        let line =
            text.lines().find_map(|line| line.trim().strip_prefix(self.module_path)?.strip_prefix(' '));
        let version = line.and_then(|rest| rest.split_whitespace().next());
        Ok(version
            .with_context(|| format!("{} is not in {}/go.mod", self.module_path, self.folder))?
            .to_owned())
    }

    fn link_flags(&self) -> Result<String> {
        let version = self.version()?;
        let mut numbers = version.trim_start_matches('v').split('.');
        let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let mut flags = "-s -w".to_owned();
        for string in self.link_strings {
            let value = string.replace("{v}", &version).replace("{major}", major).replace("{minor}", minor);
            write!(flags, " -X {value}")?;
        }
        Ok(flags)
    }

    /// Returns what determines a binary: link flags and go.mod. A change triggers a rebuild.
    fn stamp(&self) -> Result<String> {
        Ok(format!("{}\n{}", self.link_flags()?, self.go_mod()?))
    }
}

fn require_go() -> Result<()> {
    let requirement = "building the control plane requires Go 1.26 or newer (https://go.dev/dl)";
    let Ok(output) = Command::new("go").args(["env", "GOVERSION"]).current_dir(paths::root()).output() else {
        bail!("{requirement}; no `go` found on PATH");
    };
    let version = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("go").to_owned();
    let mut numbers = version.split(['.', '-', 'r', 'b']).map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) < (Some(1), Some(26)) {
        bail!("{requirement}; PATH has Go {version}");
    }
    Ok(())
}

/// Runs `go build -v` and prints its progress every 10 s.
fn watch_build(command: &mut Command, what: &str) -> Result<()> {
    let begun = Instant::now();
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().context("cannot run go")?;
    let (mut last_print, mut count, mut last_lines) = (begun, 0_u32, Vec::new());
    for line in BufReader::new(child.stderr.take().context("no stderr")?).lines() {
        let line = line?;
        count += 1;
        if last_lines.len() == 20 {
            last_lines.remove(0);
        }
        last_lines.push(line);
        if last_print.elapsed() > Duration::from_secs(10) {
            last_print = Instant::now();
            println!("  {what}: {count} packages, {} s", begun.elapsed().as_secs());
        }
    }
    if !child.wait()?.success() {
        bail!("go build failed:\n{}", last_lines.join("\n"));
    }
    println!("  {what}: built in {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Builds `sluice` and returns its path; `SLUICE_BIN` names a different binary instead.
pub fn sluice(release: bool) -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SLUICE_BIN") {
        return Ok(PathBuf::from(path));
    }
    build("sluice", if release { &["--release"] } else { &[] })?;
    Ok(profile_folder(release).join("sluice"))
}

/// Builds sluice with the feature that stops second passes at the failpoints of a test.
pub fn sluice_with_failpoints() -> Result<PathBuf> {
    build("sluice-failpoints", &["--features", "failpoints"])?;
    Ok(profile_folder(false).join("sluice-failpoints"))
}

fn build(program: &str, how: &[&str]) -> Result<()> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let what = ["build", "--quiet", "--locked", "--package", "sluice", "--bin", program];
    // `cargo run` sets these variables. ring's build script would see them as a change and rebuild many crates.
    let is_cargo_variable = |name: &OsString| {
        ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|word| name.to_string_lossy().starts_with(word))
    };
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_cargo_variable) {
        command.env_remove(name);
    }
    command.current_dir(paths::root()).args(what).args(how);
    if !command.status().context("building sluice requires cargo (Rust 1.95)")?.success() {
        bail!("cannot build {program}");
    }
    Ok(())
}

fn profile_folder(release: bool) -> PathBuf {
    paths::target().join(if release { "release" } else { "debug" })
}

/// Returns `PATH` with a folder prepended, for programs that run kubectl.
pub fn search_path(folder: &Path) -> OsString {
    let mut all = vec![folder.to_owned()];
    if let Some(path) = std::env::var_os("PATH") {
        all.extend(std::env::split_paths(&path));
    }
    std::env::join_paths(all).unwrap_or_else(|_| folder.into())
}
