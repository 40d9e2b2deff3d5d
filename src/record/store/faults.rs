//! Disks that refuse writes, for tests.

use std::collections::BTreeSet;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Files whose disk is full.
static FULL: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Sets whether the disk of a file is full.
pub(in crate::record) fn set_full(path: &Path, full: bool) {
    let mut all = FULL.lock().unwrap_or_else(PoisonError::into_inner);
    if full {
        all.insert(path.to_owned());
    } else {
        all.remove(path);
    }
}

/// Refuses a write to a disk that is full.
pub(super) fn check(path: &Path) -> Result<(), Error> {
    let full = FULL.lock().unwrap_or_else(PoisonError::into_inner).contains(path);
    if full { Err(Error::from(ErrorKind::StorageFull)) } else { Ok(()) }
}
