//! Paths in the repository.

use std::path::{Path, PathBuf};

/// Returns the repository's root.
pub fn root() -> &'static Path {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).unwrap_or(crate_folder)
}

/// Returns Cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// Returns the folder for control plane binaries and the folders of running planes.
pub fn controlplane() -> PathBuf {
    target().join("controlplane")
}
