//! Fills the time without a recorder when the next process of the recorder begins: from the memory of another process that had
//! watched the same objects, and from the conditions of Workloads that ended in that time and still exist.
//!
//! Invariants: nothing is filled that the earlier process may have recorded, so that no run counts twice; a run that was open counts
//! with the lesser amounts of its last record and of the earlier process; where neither memory nor conditions show an end, the run
//! counts until the earlier process recorded last, and the end is counted as unknown.

use super::observe::DELETED;
use super::outbox::{Entry, RunEnd, RunState, amounts_of, least};
use super::record::{
    Amounts, EvictionEvent, FinishEvent, Record, RecordEvent, RecordKey, RecordKind, Run, Subject, WaitEvent,
    WaitResult,
};
use super::remembered::Remembered;
use super::ring::Ring;
use super::seen::{SeenWorkload, millis};
use super::series::Millis;
use super::tracked::Tracked;
use crate::quota::FlavorResource;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

/// State of the filling, until the first lists are complete.
#[derive(Clone, Debug, Default)]
pub(super) struct Filling {
    /// Memory of another process, until the first observation.
    remembered: Option<Remembered>,
    /// Start and end of the time that the memory covers.
    span: Option<(Millis, Millis)>,
    /// What was filled of each Workload.
    lives: BTreeMap<Arc<str>, FilledLife>,
    /// Number of runs that ended at an unknown time.
    unknown_ends: u64,
}

/// What was filled of the life of a Workload.
#[derive(Clone, Copy, Debug)]
struct FilledLife {
    /// End of the last wait.
    waited_until: Millis,
    /// Whether the Workload has ended.
    ended: bool,
}

impl Filling {
    /// Counts a run that ended at an unknown time.
    pub(super) const fn count_unknown_end(&mut self) {
        self.unknown_ends = self.unknown_ends.saturating_add(1);
    }

    /// Returns the time that the memory covered, and the number of runs that ended at an unknown time.
    pub(super) const fn result(&self) -> (Option<(Millis, Millis)>, u64) {
        (self.span, self.unknown_ends)
    }
}

impl Ring {
    /// Fills the time since the earlier process ended from the memory of another one. It must be called after `record` and before
    /// anything is observed.
    pub fn fill(&mut self, remembered: Remembered) {
        self.outbox.filling.remembered = Some(remembered);
    }

    /// Returns whether a time without a recorder is being filled: there was an earlier process, and the first lists are not complete.
    pub const fn fills(&self) -> bool {
        self.outbox.on && self.from.is_none() && self.outbox.until != Millis::MIN
    }

    /// Fills from the memory of the other process, once.
    pub(super) fn fill_from_memory(&mut self) {
        let Some(memory) = self.outbox.filling.remembered.take().filter(|_| self.fills()) else { return };
        let span = (millis(memory.from).max(self.outbox.until), millis(memory.until).min(self.now));
        if span.0 >= span.1 {
            return;
        }
        self.outbox.filling.span = Some(span);
        let left = mem::take(&mut self.outbox.left).into_iter();
        let mut left: BTreeMap<Arc<str>, RunState> = left.map(|run| (Arc::clone(&run.uid), run)).collect();
        let now = self.now;
        for record in memory.records.iter().filter(|record| record.at() <= now) {
            let mut record = Record { filled: true, ..Record::clone(record) };
            if let Some(run) = record.event.run_mut() {
                run.amounts = self.own_numbers(&run.amounts, &memory.flavor_resources);
            }
            self.fill_record(record, &mut left);
        }
        self.outbox.left = left.into_values().collect();
    }

    /// Returns amounts of another process with the numbers of this one.
    fn own_numbers(&mut self, amounts: &[(u32, i64)], names: &[FlavorResource]) -> Amounts {
        let named = |(fr, amount): &(u32, i64)| Some((names.get(usize::try_from(*fr).ok()?)?, *amount));
        let named: Vec<(&FlavorResource, i64)> = amounts.iter().filter_map(named).collect();
        self.numbered(named)
    }

    fn fill_record(&mut self, record: Record, left: &mut BTreeMap<Arc<str>, RunState>) {
        let until = self.outbox.until;
        let open = left.get(&record.key.uid).map(|open| open.start);
        let began = record.event.run().map(|run| run.start);
        // The last observations of the earlier process may be later than the time until which it recorded all.
        let known_until = open.map_or(until, |start| start.max(until));
        match (open, began) {
            // A run before the one that was open.
            (Some(open), Some(began)) if record.at() <= open && began < open => return,
            (Some(_), Some(began)) if began <= known_until => return self.continue_open(record, left),
            _ if record.at() <= known_until => return,
            // The quota is held, or was released when the memory was read: the object shows it.
            (None, Some(_)) if record.ended().is_none() => return,
            _ => {}
        }
        // What is later than the open run proves that it has ended. The record of an eviction before the memory began has no run.
        let proves_end = began.is_some() || record.key.kind != RecordKind::Eviction;
        if proves_end && let Some(open) = left.remove(&record.key.uid) {
            self.end_at_unknown_time(&open);
        }
        self.note_filled(&record);
        if record.ended().is_some() || began.is_none() {
            self.add_filled(record);
        }
    }

    /// Ends a run that was open, as its record shows it. An evicted Workload that still held its quota stays open.
    fn continue_open(&mut self, record: Record, left: &mut BTreeMap<Arc<str>, RunState>) {
        let Some(mut open) = left.remove(&record.key.uid) else { return };
        self.note_filled(&record);
        let uid = Arc::clone(&open.uid);
        let end = match &record.event {
            RecordEvent::Eviction(eviction) => {
                if open.evicted_at.is_none() {
                    self.evict_open(&mut open, &record.key, eviction);
                }
                if eviction.released.is_none() {
                    left.insert(uid, open);
                    // As one of the first lists: it is completed when the quota is released.
                    self.seeds.insert(record.key.clone(), record);
                    return;
                }
                RunEnd::Released
            }
            RecordEvent::Finish(finish) if *finish.result == *DELETED => RunEnd::Deleted,
            RecordEvent::Finish(_) => RunEnd::Finished,
            RecordEvent::Segment { .. } | RecordEvent::Wait(_) => RunEnd::Other,
        };
        let before = self.numbered(open.amounts.iter().map(|(fr, amount)| (fr, *amount)));
        let lesser = least(&before, amounts_of(&record));
        if *lesser != *before {
            let (at, amounts) = (self.outbox.until, self.names.named(&lesser));
            self.outbox.add(|| Entry::Resized { uid: Arc::clone(&uid), at, amounts });
        }
        let at = record.ended().unwrap_or(self.outbox.until);
        self.outbox.add(|| Entry::Ended { uid, at, end, filled: true });
        let amounts = self.names.named(amounts_of(&record));
        self.outbox.add(|| Entry::Record(Arc::new(record), amounts));
    }

    /// Records that the Workload of an open run was evicted.
    fn evict_open(&mut self, open: &mut RunState, key: &RecordKey, eviction: &EvictionEvent) {
        let (uid, reason) = (Arc::clone(&open.uid), Arc::clone(&eviction.reason));
        let (at, preempted) = (eviction.at, eviction.preemption.is_some());
        open.evicted_at = Some(at);
        (open.evictions, open.waits) = (key.attempt.saturating_add(1), 0);
        if preempted {
            open.sums.lost = open.sums.lost.saturating_add(at.saturating_sub(open.start).max(0));
        }
        self.outbox.add(|| Entry::Evicted { uid, at, reason, preempted });
    }

    /// Ends an open run of an earlier process where nothing shows when it ended.
    fn end_at_unknown_time(&mut self, open: &RunState) {
        let (uid, at) = (Arc::clone(&open.uid), self.outbox.until.max(open.start));
        self.outbox.filling.count_unknown_end();
        self.outbox.add(|| Entry::Ended { uid, at, end: RunEnd::Other, filled: false });
    }

    fn note_filled(&mut self, record: &Record) {
        let unknown = FilledLife { waited_until: Millis::MIN, ended: false };
        let life = self.outbox.filling.lives.entry(Arc::clone(&record.key.uid)).or_insert(unknown);
        match record.key.kind {
            RecordKind::Wait => life.waited_until = life.waited_until.max(record.at()),
            RecordKind::Finish => life.ended = true,
            RecordKind::Eviction | RecordKind::Segment => {}
        }
    }

    /// Adds an entry for a record whose run, if it has one, the earlier process did not leave open: it began after that.
    fn add_filled(&mut self, mut record: Record) {
        if let Some(run) = record.event.run_mut() {
            run.start = run.start.max(self.outbox.until);
        }
        let amounts = self.names.named(amounts_of(&record));
        self.outbox.add(|| Entry::Filled(Arc::new(record), amounts));
    }

    /// Fills the end of a Workload that the first lists show as finished at `at`, with its last wait and run. It is not known to have
    /// been open before.
    pub(super) fn fill_finished(
        &mut self,
        seen: &SeenWorkload<'_>,
        tracked: &Tracked,
        (at, result): (Millis, &str),
    ) {
        let uid = &seen.record.meta.uid;
        let has_ended = self.outbox.filling.lives.get(uid).is_some_and(|life| life.ended);
        if !self.fills() || at <= self.outbox.until || has_ended {
            return;
        }
        let (Some(charge), Some(start)) = (&seen.last_charge, seen.reservation()) else { return };
        let start = start.min(at);
        let waited = self.fill_wait(seen, tracked, start);
        let event = RecordEvent::Finish(FinishEvent {
            at,
            result: self.names.text(result),
            attempts: tracked.evictions.saturating_add(1),
            waited,
            ran: at.saturating_sub(start),
            lost: 0,
            run: Some(Run { start, amounts: self.names.amounts(charge) }),
        });
        let key = (RecordKind::Finish, tracked.evictions);
        self.add_filled_of(seen, tracked, key, event);
    }

    /// Fills the wait that ended with the reservation of a run that the first lists show. Returns its milliseconds, 0 if it is known
    /// or was before the earlier process ended.
    pub(super) fn fill_wait(&mut self, seen: &SeenWorkload<'_>, tracked: &Tracked, end: Millis) -> Millis {
        let life = self.outbox.filling.lives.get(&seen.record.meta.uid);
        let is_known = life.is_some_and(|life| life.waited_until >= end);
        if !self.fills() || end <= self.outbox.until || is_known {
            return 0;
        }
        let start = seen.waiting_since().min(end);
        let event = RecordEvent::Wait(WaitEvent {
            start,
            end,
            result: WaitResult::Reserved,
            by_reason: Box::new([]),
        });
        self.add_filled_of(seen, tracked, (RecordKind::Wait, tracked.evictions), event);
        end.saturating_sub(start)
    }

    fn add_filled_of(
        &mut self,
        seen: &SeenWorkload<'_>,
        tracked: &Tracked,
        (kind, attempt): (RecordKind, u32),
        event: RecordEvent,
    ) {
        let workload: Subject = self.subject(seen.record, tracked.queue);
        let key = RecordKey { uid: Arc::clone(&seen.record.meta.uid), kind, attempt, part: 0 };
        self.add_filled(Record { key, seeded: false, filled: true, workload, event });
    }
}
