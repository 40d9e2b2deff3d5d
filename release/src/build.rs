//! Builds the program so that its bytes depend neither on the folders in which it is built nor on the environment.

use crate::command;
use crate::source::Source;
use anyhow::{Context as _, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What separates flags in `CARGO_ENCODED_RUSTFLAGS`; flags may contain spaces.
const FLAG_SEPARATOR: &str = "\u{1f}";
/// The time that a C compiler gives for "now". Not that of the commit, because each new value rebuilds the C libraries.
const C_DATE: &str = "0";
/// Variables that a build gets: by them it finds programs, crates and the network. Any other one could change the program
/// (`RUSTFLAGS`, `CC`, `CARGO_PROFILE_RELEASE_LTO`, `JEMALLOC_SYS_WITH_LG_PAGE`) without being part of the commit.
const KEPT: [&str; 11] = [
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "TERM",
    "CARGO_HOME",
    "CARGO_BUILD_JOBS",
    "RUSTUP_HOME",
    "RUSTUP_DIST_SERVER",
    "RUSTUP_UPDATE_ROOT",
    "RUSTUP_AUTO_INSTALL",
];
/// Beginnings of the names of further variables that it gets.
const KEPT_PREFIXES: [&str; 9] = [
    "CARGO_CREDENTIAL_",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_TERM_",
    "GIT_",
    "SSH_",
    "SSL_CERT_",
];
/// Proxies, in lower case; programs read both cases.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

/// Builds a release of the program in a target folder and returns its path. The commit and its date go in through the
/// environment.
pub fn program(source: &Source, target: &Path) -> Result<PathBuf> {
    let home = cargo_home()?;
    let mut command = cargo(&source.root);
    command
        .args(["build", "--release", "--locked", "--package", "sluice", "--bin", "sluice", "--target-dir"])
        .arg(target)
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(&home, &source.root, target))
        .env("CFLAGS", c_flags(&home, target)?)
        .env("CARGO_INCREMENTAL", "0")
        .env("SOURCE_DATE_EPOCH", C_DATE)
        .env("SLUICE_GIT_COMMIT", &source.commit)
        .env("SLUICE_BUILD_DATE", source.date.to_string());
    command::run(&mut command).context("cannot build sluice")?;
    Ok(target.join("release/sluice"))
}

/// Returns a command for cargo in a checkout.
pub(crate) fn cargo(root: &Path) -> Command {
    tool(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root)
}

/// Returns a command for a program of the toolchain in a checkout, which gets only the variables that are kept.
pub(crate) fn tool(program: impl AsRef<OsStr>, root: &Path) -> Command {
    let kept = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_kept));
    let mut command = Command::new(program);
    command.current_dir(root).env_clear().envs(kept);
    command
}

/// Returns whether a build gets the variable of this name.
fn is_kept(name: &str) -> bool {
    KEPT.contains(&name)
        || KEPT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || PROXIES.contains(&name.to_ascii_lowercase().as_str())
}

/// Returns the folders for two builds: below `CARGO_TARGET_DIR` if it is set, otherwise below `target`.
pub fn targets(root: &Path) -> [PathBuf; 2] {
    let folder = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    ["image", "image-check"].map(|name| root.join(&folder).join(name))
}

fn cargo_home() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    home.context("neither CARGO_HOME nor HOME is set")
}

/// Replaces the paths of folders in what rustc writes. The last flag that matches counts, so the target folder, which may be
/// inside the checkout, comes after it.
fn rust_flags(home: &Path, root: &Path, target: &Path) -> String {
    let renamed = [(home, "/cargo"), (root, "/sluice"), (target, "/target")];
    let flags = renamed.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    flags.join(FLAG_SEPARATOR)
}

/// Does the same for C. The checkout contains no C; its path, unlike these two, may contain spaces.
fn c_flags(home: &Path, target: &Path) -> Result<String> {
    for (folder, variable) in [(home, "CARGO_HOME"), (target, "CARGO_TARGET_DIR")] {
        let path = folder.display().to_string();
        ensure!(
            !path.contains(char::is_whitespace),
            "the path {path:?} contains a space, with which jemalloc cannot be built; set {variable} to a folder without"
        );
    }
    let renamed = [(home, "/cargo"), (target, "/target")];
    let flags = renamed.map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
    Ok(flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_checkout_may_contain_spaces() {
        let (home, root, target) = (Path::new("/c"), Path::new("/my work/s"), Path::new("/my work/s/target"));
        let flags = rust_flags(home, root, target);
        let flags: Vec<&str> = flags.split(FLAG_SEPARATOR).collect();
        assert_eq!(
            flags,
            [
                "--remap-path-prefix=/c=/cargo",
                "--remap-path-prefix=/my work/s=/sluice",
                "--remap-path-prefix=/my work/s/target=/target",
            ]
        );
        let c = c_flags(home, Path::new("/t")).unwrap();
        assert_eq!(c, "-ffile-prefix-map=/c=/cargo -ffile-prefix-map=/t=/target");
        for (home, target, variable) in [(home, target, "CARGO_TARGET_DIR"), (root, home, "CARGO_HOME")] {
            let error = c_flags(home, target).unwrap_err().to_string();
            assert!(error.contains("/my work/s") && error.contains(variable), "{error}");
        }
    }

    #[test]
    fn build_gets_only_what_finds_programs_and_crates() {
        for name in [
            "PATH",
            "HOME",
            "CARGO_HOME",
            "CARGO_BUILD_JOBS",
            "CARGO_NET_OFFLINE",
            "CARGO_HTTP_CAINFO",
            "CARGO_REGISTRIES_TEAM_TOKEN",
            "CARGO_REGISTRIES_CRATES_IO_PROTOCOL",
            "CARGO_REGISTRY_TOKEN",
            "GIT_SSL_CAINFO",
            "SSH_AUTH_SOCK",
            "SSL_CERT_FILE",
            "RUSTUP_HOME",
            "http_proxy",
            "HTTPS_PROXY",
            "no_proxy",
        ] {
            assert!(is_kept(name), "{name} is needed");
        }
        for name in [
            "RUSTC",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTC_BOOTSTRAP",
            "RUSTFLAGS",
            "RUSTUP_TOOLCHAIN",
            "CARGO_ENCODED_RUSTFLAGS",
            "CARGO_BUILD_RUSTFLAGS",
            "CARGO_BUILD_RUSTC_WRAPPER",
            "CARGO_BUILD_TARGET",
            "CARGO_BUILD_TARGET_DIR",
            "CARGO_TARGET_DIR",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER",
            "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS",
            "CARGO_PROFILE_RELEASE_LTO",
            "CARGO_MANIFEST_DIR",
            "CARGO_PKG_VERSION",
            "CARGO_UNSTABLE_BUILD_STD",
            "CC",
            "CC_x86_64_unknown_linux_gnu",
            "TARGET_CC",
            "CFLAGS",
            "TARGET_CFLAGS",
            "CFLAGS_x86_64_unknown_linux_gnu",
            "CPPFLAGS",
            "LDFLAGS",
            "AR",
            "CPATH",
            "LIBRARY_PATH",
            "MAKEFLAGS",
            "JEMALLOC_SYS_WITH_LG_PAGE",
            "SLUICE_GIT_COMMIT",
        ] {
            assert!(!is_kept(name), "{name} can change the program");
        }
    }
}
