//! The changes of one transaction.
//!
//! Invariant: the numbers of a record are added to sums exactly once, when the record is new.

use super::periods::{Exact, Sums};
use super::rows::{OpenRow, RecordRow};
use crate::history::{Gap, QueueHour};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The changes of one transaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// Records, in the order in which they were made.
    pub(super) records: Vec<NewRecord>,
    /// Runs by UID: the row of a run that began or changed, `None` for a run that ended.
    pub(super) runs: BTreeMap<Arc<str>, Option<OpenRow>>,
    /// Additions to the sums of hours and of their days, by hour and group.
    pub(super) sums: BTreeMap<(i64, String), Sums>,
    /// Hours that ended.
    pub(super) hours: Vec<(i64, Vec<QueueHour>)>,
    /// Whether the first lists are complete with this transaction.
    pub(super) began: bool,
    /// A time in which nothing was recorded.
    pub(super) gap: Option<Gap>,
    /// Namespace whose names are removed.
    pub(super) purge: Option<Arc<str>>,
}

/// A record with its additions to the sums of its hour, which count only if the record is new.
#[derive(Clone, Debug, Default)]
pub(super) struct NewRecord {
    pub(super) row: RecordRow,
    pub(super) adds: Vec<((i64, String), Sums)>,
    /// Whether it belongs to the record before it, and is written only if that one is new.
    pub(super) with_previous: bool,
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
