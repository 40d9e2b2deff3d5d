//! Reference material that lies beside the repository on some machines.

use std::path::{Path, PathBuf};

/// A path below the reference directory, or `None`, with a printed line, if it does not exist.
#[expect(clippy::disallowed_methods, reason = "it names the reference directory")]
pub(crate) fn path(relative: &str) -> Option<PathBuf> {
    let base = std::env::var("SLUICE_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(base).join(relative);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} not found", path.display());
    None
}
