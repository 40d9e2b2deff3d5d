//! Records that fill a time in which nothing was recorded, each with its whole run.
//!
//! Invariants: a run counts only with a record that is new, so that an end that the earlier process committed last does not count
//! again; the run and its sums have the same bounds as one that was observed.

use super::{DELETED, EVICTED, FINISHED, Planned, RELEASED};
use crate::history::{NamedAmounts, Record, RecordEvent};
use crate::record::changes::NewRecord;
use crate::record::periods::{Group, Sums, split};
use crate::record::rows::{AmountRow, RecordOrigin, RecordRow, WorkloadRow, amount_rows, timestamp};
use std::sync::Arc;

impl Planned<'_> {
    /// Adds a record with its run, if it has one that has ended.
    pub(super) fn add_filled(&mut self, record: &Record, amounts: &NamedAmounts) {
        let segment = segment(record, amounts);
        let mut adds = segment.as_ref().map(|segment| self.sums_of(record, segment)).unwrap_or_default();
        let event = RecordRow::of(record, amounts).map(|row| {
            let mut event = self.new_record(row);
            event.adds.append(&mut adds);
            event
        });
        let with_previous = event.is_some();
        self.changes.records.extend(event);
        self.changes.records.extend(segment.map(|row| NewRecord { row, adds, with_previous }));
    }

    /// Returns what a run adds to the sums.
    fn sums_of(&self, record: &Record, segment: &RecordRow) -> Vec<((i64, String), Sums)> {
        let end = segment.time.as_millisecond();
        let start = segment.start.unwrap_or(segment.time).as_millisecond().max(self.floor);
        let lost_until = match &record.event {
            RecordEvent::Eviction(eviction) if eviction.preemption.is_some() => eviction.at.min(end),
            _ => start,
        };
        let mut adds = Vec::new();
        for AmountRow { flavor, resource, amount } in segment.amounts.iter().filter(|row| row.amount != 0) {
            let key = Group { flavor, resource, ..Group::of(&segment.workload) }.key();
            split(start, end, |hour, time| {
                let mut sums = Sums::default();
                sums.used.add_product(*amount, time);
                adds.push(((hour, key.clone()), sums));
            });
            let mut sums = Sums::default();
            sums.lost.add_product(*amount, lost_until.saturating_sub(start).max(0));
            adds.push(((self.hour_of(end), key), sums));
        }
        if matches!(record.event, RecordEvent::Finish(_)) {
            let key = Group::of(&segment.workload).key();
            adds.push(((self.hour_of(end), key), Sums { ended: 1, ..Sums::default() }));
        }
        adds
    }
}

/// Returns the segment of the run of a record; `None` if it has none, or the quota is still held.
fn segment(record: &Record, amounts: &NamedAmounts) -> Option<RecordRow> {
    let (run, end) = (record.event.run()?, record.ended()?);
    let result: Arc<str> = match &record.event {
        RecordEvent::Eviction(eviction) => Arc::from(format!("{EVICTED}{}", eviction.reason)),
        RecordEvent::Finish(finish) if *finish.result == *DELETED => Arc::from(DELETED),
        RecordEvent::Finish(_) => Arc::from(FINISHED),
        RecordEvent::Segment { .. } | RecordEvent::Wait(_) => Arc::from(RELEASED),
    };
    Some(RecordRow {
        record: Arc::from("segment"),
        time: timestamp(end.max(run.start)),
        start: Some(timestamp(run.start)),
        workload: WorkloadRow::of(&record.key.uid, &record.workload),
        attempt: record.key.attempt,
        result,
        amounts: amount_rows(amounts),
        origin: RecordOrigin { filled: true, ..RecordOrigin::default() },
        ..RecordRow::default()
    })
}
