//! What one transaction changes.
//!
//! Invariant: numbers that a record adds to sums are added if the record is new, and only then.

use super::periods::{Exact, Sums};
use super::rows::{OpenRow, RecordRow};
use crate::history::{Gap, QueueHour};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one transaction changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Records, in the order in which they were made.
    pub(super) records: Vec<NewRecord>,
    /// Runs that began or changed, by UID, and those that ended.
    pub(super) runs: BTreeMap<Arc<str>, Option<OpenRow>>,
    /// What is added to the sums of hours and of their days, by hour and group.
    pub(super) sums: BTreeMap<(i64, String), Sums>,
    /// Hours that ended.
    pub(super) hours: Vec<(i64, Vec<QueueHour>)>,
    /// Whether the first lists are complete with it.
    pub(super) began: bool,
    /// A time in which nothing was recorded.
    pub(super) gap: Option<Gap>,
}

/// A record, and what it adds to the sums of its hour if it is new.
#[derive(Clone, Debug)]
pub(super) struct NewRecord {
    pub(super) row: RecordRow,
    pub(super) adds: Vec<((i64, String), Sums)>,
}

impl Changes {
    /// Adds to the sums of a group in an hour.
    pub(super) fn add(&mut self, hour: i64, group: String, change: impl FnOnce(&mut Sums)) {
        change(self.sums.entry((hour, group)).or_default());
    }
}

impl Exact {
    /// Adds an amount × a time.
    pub(super) fn add_product(&mut self, amount: i64, time: i64) {
        self.add(i128::from(amount).saturating_mul(i128::from(time)));
    }
}
