//! Locates the binaries of the control plane, and builds sluice.

use crate::paths;
use anyhow::{Context as _, Result, bail};
pub use sluice_controlplane::Binaries;
use sluice_controlplane::builds::without_cargo_run;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

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
        without_cargo_run(&mut cargo);
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
