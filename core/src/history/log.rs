//! The records in memory, in the order in which they were made.
//!
//! Invariants: a key occurs once; the oldest record is dropped first; the number of bytes covers exactly the records in memory.

use super::record::{Record, RecordKey, RecordKind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Maximum number of records.
const MAX_RECORDS: usize = 20_000;

/// Records, with an index by key.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordLog {
    records: VecDeque<Arc<Record>>,
    /// Number of each record since the start, by key.
    numbers: BTreeMap<RecordKey, u64>,
    /// Number of the oldest record in memory.
    first: u64,
    bytes: usize,
    /// Number of records that were ever made, by kind.
    made: BTreeMap<RecordKind, u64>,
    /// Number of added records whose key was known with other content.
    conflicts: u64,
}

impl RecordLog {
    /// Adds a record. A record with a known key changes nothing; it is counted if its content differs.
    pub(super) fn add(&mut self, record: Record) {
        if let Some(known) = self.get(&record.key) {
            if (&known.workload.key, &known.event) != (&record.workload.key, &record.event) {
                self.conflicts = self.conflicts.saturating_add(1);
            }
            return;
        }
        let made = self.made.entry(record.key.kind).or_default();
        *made = made.saturating_add(1);
        self.bytes = self.bytes.saturating_add(record.bytes());
        let length = u64::try_from(self.records.len()).unwrap_or(u64::MAX);
        self.numbers.insert(record.key.clone(), self.first.saturating_add(length));
        self.records.push_back(Arc::new(record));
        if self.records.len() > MAX_RECORDS {
            self.drop_oldest();
        }
    }

    /// Returns the record with a key.
    pub(super) fn get(&self, key: &RecordKey) -> Option<&Record> {
        self.records.get(self.position(key)?).map(AsRef::as_ref)
    }

    /// Completes the record with a key, if it is still in memory.
    pub(super) fn complete(&mut self, key: &RecordKey, change: impl FnOnce(&mut Record)) {
        let position = self.position(key);
        if let Some(record) = position.and_then(|position| self.records.get_mut(position)) {
            change(Arc::make_mut(record));
        }
    }

    fn position(&self, key: &RecordKey) -> Option<usize> {
        let number = self.numbers.get(key)?.checked_sub(self.first)?;
        usize::try_from(number).ok()
    }

    /// Drops the oldest record. Returns whether there was one.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let Some(record) = self.records.pop_front() else { return false };
        self.first = self.first.saturating_add(1);
        self.numbers.remove(&record.key);
        self.bytes = self.bytes.saturating_sub(record.bytes());
        true
    }

    /// Returns whether records were dropped.
    pub(super) const fn has_dropped(&self) -> bool {
        self.first > 0
    }

    /// Returns the records, the oldest first.
    pub(super) const fn records(&self) -> &VecDeque<Arc<Record>> {
        &self.records
    }

    /// Returns the bytes that the records take.
    pub(super) fn bytes(&self) -> usize {
        let slot = size_of::<Arc<Record>>().saturating_add(size_of::<u64>());
        self.bytes.saturating_add(self.records.len().saturating_mul(slot))
    }

    /// Returns how many records were made, by kind.
    pub(super) fn made(&self, kind: RecordKind) -> u64 {
        self.made.get(&kind).copied().unwrap_or_default()
    }

    /// Returns the number of added records whose key was known with other content.
    pub(super) const fn conflicts(&self) -> u64 {
        self.conflicts
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{RecordEvent, Run, Subject};
    use super::*;
    use crate::api::ObjectKey;

    fn record(uid: &str, end: i64) -> Record {
        let none: Arc<str> = Arc::from("");
        Record {
            key: RecordKey { uid: Arc::from(uid), kind: RecordKind::Segment, attempt: 0, part: 0 },
            seeded: false,
            filled: false,
            workload: Subject {
                key: ObjectKey::new("ns", uid),
                job: None,
                local_queue: Arc::clone(&none),
                cluster_queue: Arc::clone(&none),
                priority_class: none,
                priority: 0,
                submitter: None,
            },
            event: RecordEvent::Segment { run: Run { start: 0, amounts: Arc::from([]) }, end },
        }
    }

    #[test]
    fn the_same_record_twice_changes_nothing_and_another_one_is_counted() {
        let mut log = RecordLog::default();
        log.add(record("a", 1));
        let bytes = log.bytes();
        log.add(record("a", 1));
        assert_eq!((log.records().len(), log.bytes(), log.conflicts()), (1, bytes, 0));
        log.add(record("a", 2));
        assert_eq!((log.records().len(), log.conflicts(), log.made(RecordKind::Segment)), (1, 1, 1));
        assert_eq!(log.get(&record("a", 1).key).map(Record::at), Some(1), "the first one is kept");
    }

    #[test]
    fn the_oldest_record_goes_first() {
        let mut log = RecordLog::default();
        for number in 0..MAX_RECORDS + 2 {
            log.add(record(&number.to_string(), 0));
        }
        assert_eq!((log.records().len(), log.has_dropped()), (MAX_RECORDS, true));
        assert!(log.get(&record("1", 0).key).is_none());
        log.complete(&record("2", 0).key, |record| record.seeded = true);
        assert!(log.get(&record("2", 0).key).unwrap().seeded);
        while log.drop_oldest() {}
        assert_eq!((log.bytes(), log.numbers.len()), (0, 0));
    }
}
