//! Locates the binaries of the control plane: in `KUBEBUILDER_ASSETS`, or built from their Go modules and cached in the
//! target folder until version, flags or module files change. `SLUICE_KUBERNETES` selects another version of Kubernetes
//! than the default one; its binaries are cached beside the others. Also builds sluice.

use crate::paths;
use anyhow::{Context as _, Result, bail};
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Selects the minor version of Kubernetes, such as 1.33, among those that have a module below `e2e/controlplane`.
const VERSION_VARIABLE: &str = "SLUICE_KUBERNETES";
/// Folder of the module of the default Kubernetes version; those of the others have the version as suffix.
const KUBERNETES: &str = "kubernetes";

/// A Go module below `e2e/controlplane` and the programs built from it.
#[derive(Clone)]
struct GoModule {
    folder: Cow<'static, str>,
    /// Module path whose version in go.mod is the component's version.
    module_path: &'static str,
    /// (binary name, package).
    programs: &'static [(&'static str, &'static str)],
    /// Link-time strings; `{v}`, `{major}` and `{minor}` are substituted.
    link_strings: &'static [&'static str],
}

const MODULES: [GoModule; 13] = [
    GoModule {
        folder: Cow::Borrowed(KUBERNETES),
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
        folder: Cow::Borrowed("etcd"),
        module_path: "go.etcd.io/etcd/server/v3",
        programs: &[("etcd", "go.etcd.io/etcd/server/v3")],
        link_strings: &[],
    },
    GoModule {
        folder: Cow::Borrowed("kwok"),
        module_path: "sigs.k8s.io/kwok",
        programs: &[("kwok", "sigs.k8s.io/kwok/cmd/kwok")],
        link_strings: &["sigs.k8s.io/kwok/pkg/consts.Version={v}"],
    },
    // Charts read the version of helm.
    GoModule {
        folder: Cow::Borrowed("helm"),
        module_path: "helm.sh/helm/v4",
        programs: &[("helm", "helm.sh/helm/v4/cmd/helm")],
        link_strings: &["helm.sh/helm/v4/internal/version.version={v}"],
    },
    GoModule {
        folder: Cow::Borrowed("helm3"),
        module_path: "helm.sh/helm/v3",
        programs: &[("helm3", "helm.sh/helm/v3/cmd/helm")],
        link_strings: &["helm.sh/helm/v3/internal/version.version={v}"],
    },
    // Takes recorded clusters back from Sluice; its manifests are read from the same module.
    operator("kueue", "sigs.k8s.io/kueue", &[("kueue", "sigs.k8s.io/kueue/cmd/kueue")]),
    operator("frameworks/jobset", "sigs.k8s.io/jobset", &[("jobset", "sigs.k8s.io/jobset")]),
    operator("frameworks/lws", "sigs.k8s.io/lws", &[("lws", "sigs.k8s.io/lws/cmd")]),
    operator(
        "frameworks/mpi-operator",
        "github.com/kubeflow/mpi-operator",
        &[("mpi-operator", "github.com/kubeflow/mpi-operator/cmd/mpi-operator")],
    ),
    operator(
        "frameworks/training-operator",
        "github.com/kubeflow/training-operator",
        &[("training-operator", "github.com/kubeflow/training-operator/cmd/training-operator.v1")],
    ),
    operator(
        "frameworks/kuberay",
        "github.com/ray-project/kuberay/ray-operator",
        &[("kuberay", "github.com/ray-project/kuberay/ray-operator")],
    ),
    operator(
        "frameworks/trainer",
        "github.com/kubeflow/trainer/v2",
        &[("trainer", "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager")],
    ),
    operator(
        "frameworks/appwrapper",
        "github.com/project-codeflare/appwrapper",
        &[("appwrapper", "github.com/project-codeflare/appwrapper/cmd")],
    ),
];

/// Controllers of job kinds, for `make e2e-operators`; definitions of the kinds are read from the same modules.
const fn operator(
    folder: &'static str,
    module_path: &'static str,
    programs: &'static [(&'static str, &'static str)],
) -> GoModule {
    GoModule { folder: Cow::Borrowed(folder), module_path, programs, link_strings: &[] }
}

/// Locates each binary.
pub struct Binaries {
    modules: Vec<GoModule>,
    assets: Option<PathBuf>,
}

impl Binaries {
    /// Locates the `wanted` binaries and builds missing or outdated ones.
    pub fn ensure(wanted: &[&str]) -> Result<Self> {
        // Control planes that start at the same time build in the same folder.
        static BUILDING: Mutex<()> = Mutex::new(());
        let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        let selected = std::env::var(VERSION_VARIABLE).ok();
        let binaries = Self {
            modules: modules(selected.as_deref())?,
            // Their version is not known.
            assets: std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from).filter(|_| selected.is_none()),
        };
        let mut builds = Vec::new();
        for module in &binaries.modules {
            let stamp = module.stamp()?;
            let missing: Vec<_> = module
                .programs
                .iter()
                .filter(|(name, _)| {
                    wanted.contains(name)
                        && binaries.asset(name).is_none()
                        && !Self::is_fresh(&module.output(), name, &stamp)
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
            Self::build(module, &stamp, &missing)?;
        }
        Ok(binaries)
    }

    /// Returns the path of a binary.
    pub fn path(&self, name: &str) -> PathBuf {
        self.asset(name).unwrap_or_else(|| {
            let module = self.modules.iter().find(|module| module.builds(name));
            module.map(GoModule::output).unwrap_or_default().join(name)
        })
    }

    /// Returns the version that the API server must report; `None` if the server is from `KUBEBUILDER_ASSETS`.
    pub fn kubernetes_version(&self) -> Result<Option<String>> {
        let server = "kube-apiserver";
        let module = self.modules.iter().find(|module| module.builds(server));
        module.filter(|_| self.asset(server).is_none()).map(GoModule::version).transpose()
    }

    fn asset(&self, name: &str) -> Option<PathBuf> {
        self.assets.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file())
    }

    fn is_fresh(folder: &Path, name: &str, stamp: &str) -> bool {
        folder.join(name).is_file()
            && fs::read_to_string(folder.join(format!("{name}.stamp"))).is_ok_and(|cached| cached == stamp)
    }

    fn build(module: &GoModule, stamp: &str, missing: &[&(&str, &str)]) -> Result<()> {
        let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
        let title = format!("{} {}", names.join(", "), module.version()?);
        println!("building {title} (once; takes minutes with a cold cache)");
        let folder = module.output();
        let out_folder = folder.join(format!(".building-{}", std::process::id()));
        fs::create_dir_all(&out_folder)?;
        let mut command = Command::new("go");
        command
            .current_dir(module.folder())
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .args(["build", "-v", "-trimpath", "-ldflags", &module.link_flags()?, "-o"])
            .arg(&out_folder);
        command.args(missing.iter().map(|(_, package)| *package));
        let outcome = watch_build(&mut command, &module.folder);
        for (name, package) in missing {
            // go names a binary after the last element of its package path that is not a version.
            let built = [*name, package.rsplit('/').find(|part| !part.starts_with('v')).unwrap_or(name)];
            if outcome.is_ok()
                && let Some(built) = built.iter().map(|n| out_folder.join(n)).find(|path| path.is_file())
            {
                fs::rename(built, folder.join(name))?;
                fs::write(folder.join(format!("{name}.stamp")), stamp)?;
            }
        }
        fs::remove_dir_all(&out_folder)?;
        outcome.with_context(|| format!("cannot build {title}"))
    }
}

/// Returns all modules, with the one of this minor version of Kubernetes; `None` is the default version.
fn modules(kubernetes: Option<&str>) -> Result<Vec<GoModule>> {
    let mut all = MODULES.to_vec();
    let module = all.first_mut().filter(|module| module.folder == KUBERNETES);
    let (Some(module), Some(wanted)) = (module, kubernetes) else { return Ok(all) };
    let default = module.minor_version()?;
    if wanted == default {
        return Ok(all);
    }
    module.folder = format!("{KUBERNETES}-{wanted}").into();
    if !module.folder().join("go.mod").is_file() {
        let mut known = vec![default];
        for entry in fs::read_dir(paths::root().join("e2e/controlplane"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            known.extend(name.strip_prefix(&format!("{KUBERNETES}-")).map(str::to_owned));
        }
        known.sort();
        bail!(
            "Kubernetes {wanted} has no module in e2e/controlplane; those that have are {}",
            known.join(", ")
        );
    }
    Ok(all)
}

impl GoModule {
    fn folder(&self) -> PathBuf {
        paths::root().join("e2e/controlplane").join(&*self.folder)
    }

    fn builds(&self, name: &str) -> bool {
        self.programs.iter().any(|(program, _)| *program == name)
    }

    /// Returns the folder of its binaries. Versions other than the default have their own, so that none replaces another.
    fn output(&self) -> PathBuf {
        let folder = paths::controlplane().join("bin");
        let is_default = MODULES.iter().any(|module| module.folder == self.folder);
        if is_default { folder } else { folder.join(&*self.folder) }
    }

    fn go_mod(&self) -> Result<String> {
        let path = self.folder().join("go.mod");
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    fn version(&self) -> Result<String> {
        let text = self.go_mod()?;
        let line = text.lines().find_map(|line| {
            let requirement = line.trim().trim_start_matches("require ");
            requirement.strip_prefix(self.module_path)?.strip_prefix(' ')
        });
        let version = line.and_then(|rest| rest.split_whitespace().next());
        Ok(version
            .with_context(|| format!("{} is not in {}/go.mod", self.module_path, self.folder))?
            .to_owned())
    }

    /// Returns the first two numbers of the version.
    fn minor_version(&self) -> Result<String> {
        let version = self.version()?;
        let numbers: Vec<&str> = version.trim_start_matches('v').split('.').take(2).collect();
        Ok(numbers.join("."))
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

/// A build of sluice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The development profile, which tests share.
    Dev,
    /// The development profile, whatever `SLUICE_BIN` names: a released build knows no failpoints.
    Failpoints,
    /// What is released: for measurements.
    Release,
}

/// How a build is made.
struct Recipe {
    /// No package is selected where tests share the build: features are then those of the whole workspace, and no dependency is
    /// built a second time.
    arguments: &'static [&'static str],
    folder: &'static str,
    /// Whether this process has made it; held while it is built, so that lanes that want the same build wait for it.
    built: &'static Mutex<bool>,
}

impl Build {
    const fn recipe(self) -> Recipe {
        static DEV: Mutex<bool> = Mutex::new(false);
        static RELEASE: Mutex<bool> = Mutex::new(false);
        match self {
            Self::Dev | Self::Failpoints => Recipe { arguments: &[], folder: "debug", built: &DEV },
            Self::Release => Recipe {
                arguments: &["--release", "--package", "sluice"],
                folder: "release",
                built: &RELEASE,
            },
        }
    }
}

/// Builds sluice, once in this process, and returns its path; `SLUICE_BIN` names a different binary for all builds but that
/// with failpoints.
pub fn sluice(build: Build) -> Result<PathBuf> {
    if build != Build::Failpoints
        && let Some(path) = std::env::var_os("SLUICE_BIN")
    {
        return Ok(PathBuf::from(path));
    }
    let recipe = build.recipe();
    let mut built = recipe.built.lock().unwrap_or_else(PoisonError::into_inner);
    if !*built {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // `cargo run` sets these variables. ring's build script would see them as a change and rebuild many crates.
        let is_cargo_variable = |name: &OsString| {
            ["CARGO_MANIFEST_", "CARGO_PKG_"].iter().any(|word| name.to_string_lossy().starts_with(word))
        };
        for name in std::env::vars_os().map(|(name, _)| name).filter(is_cargo_variable) {
            cargo.env_remove(name);
        }
        cargo.current_dir(paths::root());
        cargo.args(["build", "--quiet", "--locked", "--bin", "sluice"]).args(recipe.arguments);
        if !cargo.status().context("building sluice requires cargo (Rust 1.95)")?.success() {
            bail!("cannot build sluice");
        }
        *built = true;
    }
    Ok(paths::target().join(recipe.folder).join("sluice"))
}

/// Returns `PATH` with a folder prepended, for programs that run kubectl.
pub fn search_path(folder: &Path) -> OsString {
    let mut all = vec![folder.to_owned()];
    if let Some(path) = std::env::var_os("PATH") {
        all.extend(std::env::split_paths(&path));
    }
    std::env::join_paths(all).unwrap_or_else(|_| folder.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_version_has_its_own_module_and_folder() {
        let kubernetes = |wanted| modules(wanted).map(|mut all| all.swap_remove(0));
        let default = kubernetes(None).unwrap();
        let minor = default.minor_version().unwrap();
        assert_eq!(kubernetes(Some(&minor)).unwrap().output(), default.output());
        for wanted in ["1.33", "1.37"] {
            let module = kubernetes(Some(wanted)).unwrap();
            assert!(module.version().unwrap().starts_with(&format!("v{wanted}.")), "{wanted}");
            assert!(module.output() != default.output(), "{wanted}");
        }
        let error = kubernetes(Some("1.2")).err().unwrap().to_string();
        assert!(
            error.contains("1.2 has no module") && error.ends_with(&format!("1.33, {minor}, 1.37")),
            "{error}"
        );
    }
}
