//! The file of a record on its disk, which one process owns from its start to its end.
//!
//! Invariants: the lock is held while the database is closed after a failed write, so that no other process writes meanwhile;
//! what another process has written nevertheless, such as on another node while this one hung, is never overwritten.

use super::CACHE_BYTES;
#[cfg(test)]
use super::faults;
use redb::backends::FileBackend;
use redb::{Database, DatabaseError, StorageBackend};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of bytes at the start of the file that change with each commit: the header of the database.
const HEADER_BYTES: usize = 512;

/// A locked file.
#[derive(Debug)]
pub(super) struct LockedFile {
    file: File,
    path: PathBuf,
    /// Whether the file belongs to another process now.
    lost: Arc<AtomicBool>,
    /// Header of the file after the last commit of this process.
    header: Option<Box<[u8]>>,
}

impl LockedFile {
    /// Opens a file, or creates it, and locks it until the end.
    ///
    /// # Errors
    /// If another process has the lock, or the file cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, DatabaseError> {
        let failed = |error: Error| DatabaseError::Storage(redb::StorageError::Io(error));
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = options.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(DatabaseError::DatabaseAlreadyOpen),
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        Ok(Self { file, path: path.to_owned(), lost: Arc::default(), header: None })
    }

    /// Opens the database in the file.
    pub(super) fn database(&self) -> Result<Database, DatabaseError> {
        let file =
            self.file.try_clone().map_err(|error| DatabaseError::Storage(redb::StorageError::Io(error)))?;
        let disk = Disk {
            file: FileBackend::new(file)?,
            lost: Arc::clone(&self.lost),
            #[cfg(test)]
            path: self.path.clone(),
        };
        Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk)
    }

    /// Records that this process knows the whole content of the file.
    pub(super) fn note_known(&mut self) {
        self.header = self.read_header().ok();
    }

    /// Returns whether the file is the one at its path and, if the header is compared, has the content that this process knows.
    /// If not, nothing more is written to the file.
    ///
    /// # Errors
    /// If the file cannot be read now.
    pub(super) fn is_own(&self, looks: bool) -> Result<bool, Error> {
        let at_path = match std::fs::metadata(&self.path) {
            Ok(found) => Some((found.dev(), found.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let locked = self.file.metadata()?;
        let is_known = match &self.header {
            Some(header) if looks => match self.read_header() {
                Ok(found) => found == *header,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => false,
                Err(error) => return Err(error),
            },
            _ => true,
        };
        let lost = self.lost.load(Ordering::Relaxed);
        let own = !lost && at_path == Some((locked.dev(), locked.ino())) && is_known;
        if !own {
            self.give_up();
        }
        Ok(own)
    }

    /// Writes nothing more: closing the database would write its last state over the state of another process.
    pub(super) fn give_up(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    fn read_header(&self) -> Result<Box<[u8]>, Error> {
        let mut header = vec![0; HEADER_BYTES];
        self.file.read_exact_at(&mut header, 0)?;
        Ok(header.into())
    }
}

/// The disk for the database. It takes no lock, because the file is locked already.
#[derive(Debug)]
struct Disk {
    file: FileBackend,
    lost: Arc<AtomicBool>,
    #[cfg(test)]
    path: PathBuf,
}

impl Disk {
    fn check(&self) -> Result<(), Error> {
        #[cfg(test)]
        faults::check(&self.path)?;
        if self.lost.load(Ordering::Relaxed) {
            return Err(Error::other("the file is another process's"));
        }
        Ok(())
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
}
