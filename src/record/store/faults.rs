//! Disks of tests, which refuse writes while a test says so.

use super::CACHE_BYTES;
use redb::backends::FileBackend;
use redb::{Database, DatabaseError, StorageBackend};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
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

#[derive(Debug)]
struct Disk {
    file: FileBackend,
    path: PathBuf,
}

impl Disk {
    fn check(&self) -> Result<(), Error> {
        let full = FULL.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.path);
        if full { Err(Error::from(ErrorKind::StorageFull)) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64, Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        self.check()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), Error> {
        self.check()?;
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> Result<(), Error> {
        self.file.close()
    }
}

pub(super) fn open_cached(path: &Path) -> Result<Database, DatabaseError> {
    let failed = |error: Error| DatabaseError::Storage(redb::StorageError::Io(error));
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    // The database takes no lock of a backend of ours.
    file.try_lock().map_err(|_| DatabaseError::DatabaseAlreadyOpen)?;
    let disk = Disk { file: FileBackend::new(file)?, path: path.to_owned() };
    Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk)
}
