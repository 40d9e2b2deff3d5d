//! The handle on a row of the table of frameworks, by which a kind of job is named everywhere.
//!
//! Invariant: a row of the table has one address, so two handles are equal if they point to the same row. The order of handles
//! is that of the API resources: the position of a row has no meaning.

use super::row::Framework;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::ptr;

/// A kind of job: a row of the table.
#[derive(Clone, Copy)]
pub struct JobKind(&'static Framework);

impl JobKind {
    /// Creates the handle of a row of the table.
    pub const fn new(row: &'static Framework) -> Self {
        Self(row)
    }

    /// Returns the row.
    pub const fn row(self) -> &'static Framework {
        self.0
    }
}

impl Deref for JobKind {
    type Target = Framework;

    fn deref(&self) -> &Framework {
        self.0
    }
}

impl PartialEq for JobKind {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for JobKind {}

impl PartialOrd for JobKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for JobKind {
    fn cmp(&self, other: &Self) -> Ordering {
        // Almost all comparisons are of the same row.
        if self == other { Ordering::Equal } else { self.0.gvk.cmp(&other.0.gvk) }
    }
}

impl Hash for JobKind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.gvk.hash(state);
    }
}

impl fmt::Debug for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0.gvk.api_version(), self.0.gvk.kind)
    }
}
