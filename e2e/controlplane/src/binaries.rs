//! Locates the programs, and builds those that are missing or out of date.
//!
//! Invariant: in one target folder one process builds at a time, so that what another one builds is awaited and not built twice.

use crate::assets::Assets;
use crate::builds::Builds;
use crate::modules::{GoModule, modules};
use crate::{go, paths};
use anyhow::{Context as _, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Selects the minor version of Kubernetes, such as 1.33, among those that have a module below `e2e/controlplane`.
const VERSION_VARIABLE: &str = "SLUICE_KUBERNETES";

/// The programs of a whole control plane.
pub const CONTROL_PLANE: [&str; 6] =
    ["etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kwok"];

/// Locates each binary.
pub struct Binaries {
    modules: Vec<GoModule>,
    assets: Assets,
}

/// Programs of a module that are missing or outdated, each as (name, package).
struct Outdated<'a> {
    module: &'a GoModule,
    stamp: String,
    programs: Vec<&'static (&'static str, &'static str)>,
}

impl Binaries {
    /// Locates the `wanted` binaries and builds missing or outdated ones.
    pub fn ensure(wanted: &[&str]) -> Result<Self> {
        let binaries = Self::locate(wanted)?;
        binaries.build(wanted, &Builds::default())?;
        Ok(binaries)
    }

    /// Locates the `wanted` binaries. Fails if the folder of `KUBEBUILDER_ASSETS` has one of another version, or if one must be
    /// built and Go is missing.
    pub fn locate(wanted: &[&str]) -> Result<Self> {
        let binaries = Self::checked(wanted)?;
        if !binaries.outdated(wanted)?.is_empty() {
            go::require()?;
        }
        Ok(binaries)
    }

    /// Returns the path of a binary, or `None` if it must be built first. Builds nothing. Fails if the folder of
    /// `KUBEBUILDER_ASSETS` has one of another version.
    pub fn find(name: &str) -> Result<Option<PathBuf>> {
        let binaries = Self::checked(&[name])?;
        let is_ready = binaries.outdated(&[name])?.is_empty();
        Ok(is_ready.then(|| binaries.path(name)))
    }

    /// Refuses those of the `wanted` binaries that are given in another version than the selected one.
    fn checked(wanted: &[&str]) -> Result<Self> {
        let selected = std::env::var(VERSION_VARIABLE).ok();
        let binaries = Self { modules: modules(selected.as_deref())?, assets: Assets::from_environment()? };
        let mut versions = Vec::new();
        for module in &binaries.modules {
            for (name, _) in module.programs.iter().filter(|(name, _)| wanted.contains(name)) {
                versions.push((*name, module.version()?));
            }
        }
        binaries.assets.check(&versions)?;
        Ok(binaries)
    }

    /// Builds missing or outdated ones of the `wanted` binaries.
    pub fn build(&self, wanted: &[&str], builds: &Builds) -> Result<()> {
        // Control planes that start at the same time build in the same folder, and so do programs that run at the same time.
        static BUILDING: Mutex<()> = Mutex::new(());
        let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outdated(wanted)?.is_empty() {
            return Ok(());
        }
        let _lock = lock()?;
        // The module with the most programs is the last: linking them keeps all cores busy.
        for Outdated { module, stamp, programs } in self.outdated(wanted)?.into_iter().rev() {
            go::build(module, &stamp, &programs, builds)?;
        }
        Ok(())
    }

    /// Returns the path of a binary.
    pub fn path(&self, name: &str) -> PathBuf {
        self.assets.path(name).unwrap_or_else(|| {
            let module = self.modules.iter().find(|module| module.builds(name));
            module.map(GoModule::output).unwrap_or_default().join(name)
        })
    }

    /// Returns those of the `wanted` binaries that are not built, with their paths.
    pub fn given<'a>(&self, wanted: &[&'a str]) -> Vec<(&'a str, PathBuf)> {
        wanted.iter().filter_map(|name| Some((*name, self.assets.path(name)?))).collect()
    }

    /// Returns the version that the API server must report.
    pub fn kubernetes_version(&self) -> Result<String> {
        let module = self.modules.iter().find(|module| module.builds("kube-apiserver"));
        module.context("no module builds kube-apiserver")?.version()
    }

    /// Returns the `wanted` programs that must be built, by module.
    fn outdated(&self, wanted: &[&str]) -> Result<Vec<Outdated<'_>>> {
        let mut found = Vec::new();
        for module in &self.modules {
            let stamp = module.stamp()?;
            let is_missing = |name: &&'static str| {
                wanted.contains(name)
                    && self.assets.path(name).is_none()
                    && !is_fresh(&module.output(), name, &stamp)
            };
            let programs: Vec<_> = module.programs.iter().filter(|(name, _)| is_missing(name)).collect();
            if !programs.is_empty() {
                found.push(Outdated { module, stamp, programs });
            }
        }
        Ok(found)
    }
}

fn is_fresh(folder: &Path, name: &str, stamp: &str) -> bool {
    folder.join(name).is_file()
        && fs::read_to_string(folder.join(format!("{name}.stamp"))).is_ok_and(|cached| cached == stamp)
}

/// Waits until no other process builds; until the returned file is dropped, others wait.
fn lock() -> Result<File> {
    let folder = paths::controlplane().join("bin");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let file = File::create(folder.join("lock")).with_context(|| folder.display().to_string())?;
    if file.try_lock().is_err() {
        println!("Go: another process builds the control plane; waiting for it");
        // Where files cannot be locked, both build.
        let _ = file.lock();
    }
    Ok(file)
}
