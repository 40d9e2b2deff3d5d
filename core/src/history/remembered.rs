//! What one process remembers of a time in which another one recorded nothing.
//!
//! Invariant: records keep the order in which they were made, so that the records of a Workload are in the order of its life.

use super::record::{Record, RecordKey};
use super::seen::millis;
use super::view::HistoryView;
use crate::quota::FlavorResource;
use jiff::Timestamp;
use std::sync::Arc;

/// Records of the memory of another process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remembered {
    /// Time from which on that process has all records.
    pub from: Timestamp,
    /// Time until which it has them.
    pub until: Timestamp,
    /// Names of the flavor-resources; the index is the number in the amounts of the records.
    pub flavor_resources: Vec<FlavorResource>,
    /// The records, in the order in which they were made.
    pub records: Vec<Arc<Record>>,
}

impl HistoryView {
    /// Returns at most `limit` records of events after a time, of evictions also where the quota was released after it, and whether
    /// more follow. `after` is the key of the last record of the page before: if the history has dropped that record, the page begins
    /// with the first one that is left.
    pub fn records_since(
        &self,
        since: Timestamp,
        after: Option<&RecordKey>,
        limit: usize,
    ) -> (Vec<Arc<Record>>, bool) {
        let since = millis(since);
        let known = after.and_then(|after| self.records.iter().position(|record| record.key == *after));
        let skipped = known.map_or(0, |position| position.saturating_add(1));
        let is_later = |record: &&Arc<Record>| record.at().max(record.ended().unwrap_or(i64::MIN)) > since;
        let mut found = self.records.iter().skip(skipped).filter(is_later);
        let records: Vec<Arc<Record>> = found.by_ref().take(limit).map(Arc::clone).collect();
        let more = found.next().is_some();
        (records, more)
    }
}
