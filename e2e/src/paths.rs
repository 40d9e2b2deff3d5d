//! Where things stand in the repository.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |dir| root().join(dir))
}

/// What belongs to the control plane: binaries and the folders of running planes.
pub fn controlplane() -> PathBuf {
    target().join("controlplane")
}

/// The material that is shared beside the repository, where it exists.
pub fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("SLUICE_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    folder.canonicalize().ok()
}
