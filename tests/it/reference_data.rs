//! Reference material that lies beside the repository on some machines.

use std::path::{Path, PathBuf};

/// A path under the reference directory; none, with a printed line, where it is not there.
#[expect(clippy::disallowed_methods, reason = "says where the reference lies")]
pub(crate) fn path(below: &str) -> Option<PathBuf> {
    let base = std::env::var("SLUICE_SHARED").unwrap_or_else(|_| "../shared".to_owned());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(base).join(below);
    if path.exists() {
        return Some(path);
    }
    println!("skipped: {} is not there", path.display());
    None
}
