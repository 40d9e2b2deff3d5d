//! Reasons why a file cannot be opened, and their handling.
//!
//! Invariants: a damaged file does not end one process after another, and is moved, never deleted; an intact file stays where it
//! is.

use super::StoreError;
use jiff::Timestamp;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the file open.
    #[error("another process has {0} open")]
    Locked(PathBuf),
    /// The file was written by a later version.
    #[error("{path} has format {found}, this version reads another one: use the version that wrote it")]
    Later {
        /// The file.
        path: PathBuf,
        /// Format of the file.
        found: i64,
    },
    /// The content of the file is damaged.
    #[error("{path}: {reason}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Error of the database.
        reason: String,
    },
    /// The file cannot be read or written.
    #[error("{path}: {reason}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// Error message.
        reason: String,
    },
}

/// Calls the database. A damaged file must not end the process, even if the database panics.
pub(super) fn guarded<T>(path: &Path, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, OpenError> {
    let error = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error,
        Err(_) => redb::Error::Corrupted("the file cannot be read".to_owned()),
    };
    let (path, reason) = (path.to_owned(), error.to_string());
    Err(match error {
        redb::Error::DatabaseAlreadyOpen => OpenError::Locked(path),
        // A file of a later version of the database is intact.
        redb::Error::UpgradeRequired(_) => OpenError::Failed { path, reason },
        error if is_damage(&error) => OpenError::Damaged { path, reason },
        _ => OpenError::Failed { path, reason },
    })
}

/// Returns whether a failure is due to damaged content. A full or read-only disk is no damage: the file stays where it is.
pub(in crate::record) fn is_damage(error: &StoreError) -> bool {
    match error {
        redb::Error::Corrupted(reason) => !reason.contains("format version"),
        redb::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// Moves a damaged file aside.
pub(super) fn set_aside(path: &Path, now: Timestamp, reason: &str) -> Result<(), OpenError> {
    let aside = path.with_extension(format!("redb.damaged-{}", now.as_second()));
    tracing::error!(file = %path.display(), moved = %aside.display(), reason, "the history is damaged");
    let failed =
        |error: std::io::Error| OpenError::Failed { path: path.to_owned(), reason: error.to_string() };
    std::fs::rename(path, &aside).map_err(failed)
}
