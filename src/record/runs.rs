//! The open runs, and the changes that entries of the history make in a record.
//!
//! Invariants: a run counts in the sums of each hour for exactly the time that it had quota, also if its end is observed after
//! its hour was counted. Time before the record began does not count, and after a long absence of the recorder only the last
//! month of a run counts: this bounds the work that an object can cause, whatever times it has. The open runs equal the runs of
//! the history, entry by entry.

mod filled;

use super::changes::{Changes, NewRecord};
use super::periods::{DAY, Group, HOUR, Sums, hour_of, split};
use super::rows::{AmountRow, OpenRow, RecordOrigin, RecordRow, amount_rows, timestamp};
use crate::history::{Entry, FilledPart, Gap, RunEnd};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum time of a run, in milliseconds, that one commit counts.
const MAX_COUNTED: i64 = 31 * DAY;
/// Result of a segment whose amounts changed.
const RESIZED: &str = "Resized";
/// Result of a segment that ended with neither the Workload nor an eviction.
const RELEASED: &str = "Released";
/// Result of a segment that ended with its Workload, as in the conditions of finished Workloads.
const FINISHED: &str = "Finished";
/// Result of a segment that ended with the deletion of its Workload.
const DELETED: &str = "Deleted";
/// Start of the result of a segment that an eviction ended.
const EVICTED: &str = "evicted:";

/// The open runs by UID of their Workload.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenRuns {
    runs: BTreeMap<Arc<str>, Arc<OpenRow>>,
    /// Since when the file records; none before its first commit.
    from: Option<i64>,
    /// Time until which an earlier process recorded.
    left_at: Option<i64>,
}

/// Changes of the committed open runs.
struct Planned<'a> {
    committed: &'a BTreeMap<Arc<str>, Arc<OpenRow>>,
    left_at: Option<i64>,
    now: i64,
    /// When the record began.
    from: i64,
    /// Time since which runs count at all.
    floor: i64,
    changes: Changes,
}

impl OpenRuns {
    /// Returns the runs of a store, and the times from and until which it recorded.
    pub(super) fn new(
        runs: impl IntoIterator<Item = OpenRow>,
        from: Option<i64>,
        left_at: Option<i64>,
    ) -> Self {
        let runs = runs.into_iter().map(|run| (Arc::clone(&run.workload.uid), Arc::new(run))).collect();
        Self { runs, from, left_at }
    }

    /// Returns the runs.
    pub(super) fn runs(&self) -> Vec<Arc<OpenRow>> {
        self.runs.values().map(Arc::clone).collect()
    }

    /// Returns the changes that entries make in a commit at `now`. The runs themselves change when it has landed.
    pub(super) fn plan(&self, entries: &[Entry], now: i64) -> Changes {
        let from = self.from.unwrap_or(now).min(now);
        let mut planned = Planned {
            committed: &self.runs,
            left_at: self.left_at,
            now,
            from,
            floor: counted_since(from, now),
            changes: Changes::default(),
        };
        for entry in entries {
            planned.apply(entry);
        }
        planned.changes
    }

    /// Takes over changes that were committed at `now`.
    pub(super) fn commit(&mut self, changes: Changes, now: i64) {
        // The beginning of the file does not lie ahead, either.
        self.from = Some(self.from.unwrap_or(now).min(now));
        for (uid, run) in changes.runs {
            match run {
                Some(run) => drop(self.runs.insert(uid, Arc::new(run))),
                None => drop(self.runs.remove(&uid)),
            }
        }
    }
}

/// Returns from when on runs count, in a record that began at `from`, for a commit that counts until `now`.
pub(super) fn counted_since(from: i64, now: i64) -> i64 {
    from.max(now.saturating_sub(MAX_COUNTED))
}

impl Planned<'_> {
    fn run(&self, uid: &Arc<str>) -> Option<OpenRow> {
        let known = match self.changes.runs.get(uid) {
            Some(run) => run.clone(),
            None => self.committed.get(uid).map(|run| OpenRow::clone(run)),
        };
        // It may have been written by a process whose clock was ahead.
        let past = |at: i64| at.min(self.now);
        known.map(|run| OpenRow { start: past(run.start), since: past(run.since), ..run })
    }

    /// Returns the hour in which an event counts, not before the record began.
    fn hour_of(&self, at: i64) -> i64 {
        hour_of(at.max(self.from))
    }

    fn put(&mut self, run: OpenRow) {
        self.changes.runs.insert(Arc::clone(&run.workload.uid), Some(run));
    }

    fn apply(&mut self, entry: &Entry) {
        match entry {
            Entry::Began { at, unknown_ends, filled } => {
                self.changes.began = true;
                let part = |(from, until)| FilledPart { from: timestamp(from), until: timestamp(until) };
                let gap = self.left_at.map(|left| Gap {
                    start: timestamp(left.min(*at)),
                    end: timestamp(*at),
                    unknown_ends: *unknown_ends,
                    filled: filled.map(part),
                });
                self.changes.gap = gap.filter(|gap| gap.start < gap.end || gap.unknown_ends > 0);
            }
            Entry::Opened(run) => {
                // The end of an earlier run of the Workload came before.
                self.put(OpenRow::of(run));
            }
            Entry::Resized { uid, at, amounts } => {
                if let Some(mut run) = self.run(uid) {
                    self.end_segment(&mut run, *at, RESIZED, false);
                    run.amounts = amount_rows(amounts);
                    run.resizes = run.resizes.saturating_add(1);
                    self.put(run);
                }
            }
            Entry::Evicted { uid, at, reason, preempted } => {
                if let Some(mut run) = self.run(uid) {
                    run.evicted_at = Some(*at);
                    run.eviction = Arc::clone(reason);
                    run.preempted = *preempted;
                    self.put(run);
                }
            }
            Entry::Ended { uid, at, end, filled } => {
                if let Some(mut run) = self.run(uid) {
                    self.end(&mut run, *at, *end, *filled);
                    self.changes.runs.insert(Arc::clone(uid), None);
                }
            }
            Entry::Record(record, amounts) => {
                if let Some(row) = RecordRow::of(record, amounts) {
                    let record = self.new_record(row);
                    self.changes.records.push(record);
                }
            }
            Entry::Filled(record, amounts) => self.add_filled(record, amounts),
            Entry::Hour { start, queues } => {
                self.count_all(start.saturating_add(HOUR));
                self.changes.hours.push((*start, queues.clone()));
            }
        }
    }

    /// Counts all runs until the end of an hour.
    fn count_all(&mut self, until: i64) {
        let mut uids: Vec<Arc<str>> = self.committed.keys().map(Arc::clone).collect();
        uids.extend(
            self.changes.runs.keys().filter(|uid| !self.committed.contains_key(*uid)).map(Arc::clone),
        );
        for uid in uids {
            if let Some(mut run) = self.run(&uid).filter(|run| run.counted_until < until && run.start < until)
            {
                self.count_until(&mut run, until);
                self.put(run);
            }
        }
    }

    /// Counts a run until a time: a later time than before adds to the sums, an earlier one subtracts.
    fn count_until(&mut self, run: &mut OpenRow, until: i64) {
        if run.counted_until < self.floor {
            run.counted_from = self.floor;
            run.counted_until = self.floor;
        }
        let until = until.max(run.since).max(run.counted_from);
        let (from, to, sign) = if until >= run.counted_until {
            (run.counted_until, until, 1)
        } else {
            (until, run.counted_until, -1)
        };
        for AmountRow { flavor, resource, amount } in run.amounts.iter().filter(|row| row.amount != 0) {
            let key = Group { flavor, resource, ..Group::of(&run.workload) }.key();
            split(from, to, |hour, time| {
                let time = time.saturating_mul(sign);
                self.changes.add(hour, key.clone(), |sums| sums.used.add_product(*amount, time));
            });
        }
        run.counted_until = until;
    }

    /// Ends the time in which a run had the same amounts. `filled`: the end fills a time in which nothing was recorded.
    fn end_segment(&mut self, run: &mut OpenRow, at: i64, result: &str, filled: bool) {
        let at = at.max(run.since);
        self.count_until(run, at);
        let row = RecordRow {
            record: Arc::from("segment"),
            time: timestamp(at),
            start: Some(timestamp(run.since)),
            workload: run.workload.clone(),
            attempt: run.evictions,
            part: run.resizes,
            result: Arc::from(result),
            amounts: run.amounts.clone(),
            origin: RecordOrigin { filled, ..RecordOrigin::default() },
            ..RecordRow::default()
        };
        self.changes.records.push(NewRecord { row, ..NewRecord::default() });
        if run.preempted {
            for AmountRow { flavor, resource, amount } in &run.amounts {
                let key = Group { flavor, resource, ..Group::of(&run.workload) }.key();
                // Neither the time after the eviction nor the time before it counted is lost.
                let since = run.since.max(run.counted_from);
                let time = run.evicted_at.map_or(at, |evicted| evicted.min(at)).saturating_sub(since).max(0);
                self.changes.add(self.hour_of(at), key, |sums| sums.lost.add_product(*amount, time));
            }
        }
        run.since = at;
    }

    fn end(&mut self, run: &mut OpenRow, at: i64, end: RunEnd, filled: bool) {
        let evicted = format!("{EVICTED}{}", run.eviction);
        let result = match end {
            _ if run.evicted_at.is_some() => &evicted,
            RunEnd::Finished => FINISHED,
            RunEnd::Deleted => DELETED,
            RunEnd::Released | RunEnd::Other => RELEASED,
        };
        self.end_segment(run, at, result, filled);
        if matches!(end, RunEnd::Finished | RunEnd::Deleted) {
            let key = Group::of(&run.workload).key();
            self.changes.add(self.hour_of(at), key, |sums| sums.ended = sums.ended.saturating_add(1));
        }
    }

    /// Returns the record of a row, with what it adds to the sums.
    fn new_record(&self, row: RecordRow) -> NewRecord {
        let time = row.time.as_millisecond();
        let sums = match (&*row.record, row.start) {
            ("wait", Some(start)) if &*row.result == "reserved" => {
                Sums::of_wait(time.saturating_sub(start.as_millisecond()))
            }
            ("eviction", _) if !row.origin.seeded => Sums { evicted: 1, ..Sums::default() },
            _ => Sums::default(),
        };
        let mut adds = Vec::new();
        if sums != Sums::default() {
            adds.push(((self.hour_of(time), Group::of(&row.workload).key()), sums));
        }
        NewRecord { row, adds, with_previous: false }
    }
}
