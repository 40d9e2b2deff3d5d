//! Follows each Workload by its object: opens and ends pending episodes and runs, and makes the records.
//!
//! Invariants: a Workload has at most one open episode; an ended episode is in exactly one record; a run counts in the usage of
//! its ClusterQueue from its first to its last observation; no length is negative; no time is later than its observation,
//! whatever time a condition has.

use super::outbox::{Entry, RunEnd};
use super::record::{
    EvictionEvent, FinishEvent, Preemption, Record, RecordEvent, RecordKey, RecordKind, Run, Subject,
    WaitEvent, WaitResult,
};
use super::ring::Ring;
use super::seen::{SeenEviction, SeenWorkload};
use super::series::Millis;
use super::series_set::Measure;
use super::tracked::{OpenRun, Pending, Phase, Tracked};
use crate::api::reason::PendingReason;
use crate::cache::records::WorkloadRecord;
use std::mem;
use std::sync::Arc;

/// Result of the record of a Workload that was deleted before it finished.
pub(super) const DELETED: &str = "Deleted";

impl Ring {
    /// Follows a stored Workload. The caller leaves out a Workload that had finished before.
    pub fn observe(&mut self, seen: &SeenWorkload<'_>) {
        if !self.is_enabled() {
            return;
        }
        let uid = &seen.record.meta.uid;
        self.outbox.see(uid);
        let known = self.take(uid);
        let first = known.is_none();
        let mut tracked = known.unwrap_or_else(|| self.begin_tracking(seen));
        if let Some((at, result)) = seen.finished() {
            let at = self.past(at);
            if first && self.from.is_none() {
                self.record_eviction_of(seen, &mut tracked);
                self.fill_finished(seen, &tracked, (at, result));
            } else {
                self.end_missed_run(seen, &mut tracked);
                self.end(seen.record, tracked, at, result);
            }
            return;
        }
        self.follow(seen, &mut tracked, first);
        self.put(uid, tracked);
    }

    /// Follows the deletion of a Workload.
    pub fn delete(&mut self, record: &WorkloadRecord) {
        if let Some(tracked) = self.take(&record.meta.uid) {
            let now = self.now;
            self.end(record, tracked, now, DELETED);
        }
    }

    /// Returns whether a Workload is followed in this ClusterQueue and with this state of its charge. If so, no change of another
    /// object concerns it.
    pub(crate) fn is_current(&self, uid: &str, cluster_queue: &str, charged: bool) -> bool {
        self.workloads.get(uid).is_some_and(|tracked| {
            let runs = matches!(tracked.phase, Phase::Running(_));
            runs == charged && *self.names.queue_name(tracked.queue) == *cluster_queue
        })
    }

    /// Returns a time of a condition, bounded by the time of its observation.
    fn past(&self, at: Millis) -> Millis {
        at.min(self.now)
    }

    pub(super) fn take(&mut self, uid: &str) -> Option<Tracked> {
        let tracked = self.workloads.remove(uid)?;
        self.tracked_bytes = self.tracked_bytes.saturating_sub(tracked.bytes());
        Some(tracked)
    }

    pub(super) fn put(&mut self, uid: &Arc<str>, tracked: Tracked) {
        self.tracked_bytes = self.tracked_bytes.saturating_add(tracked.bytes());
        self.workloads.insert(Arc::clone(uid), tracked);
    }

    fn begin_tracking(&mut self, seen: &SeenWorkload<'_>) -> Tracked {
        let evicted = seen.eviction().or_else(|| seen.earlier_eviction()).is_some();
        Tracked {
            key: seen.record.meta.key.clone(),
            queue: self.names.queue(&seen.cluster_queue),
            priority: seen.record.effective_priority(),
            evictions: seen.evictions().saturating_sub(u32::from(evicted)),
            waits: 0,
            evicted_at: Millis::MIN,
            reserved_at: Millis::MIN,
            phase: Phase::Idle,
            sums: None,
        }
    }

    fn follow(&mut self, seen: &SeenWorkload<'_>, tracked: &mut Tracked, first: bool) {
        tracked.priority = seen.record.effective_priority();
        if first && let Some(eviction) = seen.earlier_eviction() {
            self.record_eviction(seen.record, tracked, &eviction, Some(eviction.at));
        }
        let queue = self.names.queue(&seen.cluster_queue);
        if let Some((start, charge)) = seen.reserved() {
            let amounts = self.names.amounts(charge);
            self.follow_run(seen, tracked, queue, Run { start, amounts });
            self.record_eviction_of(seen, tracked);
        } else {
            self.record_eviction_of(seen, tracked);
            let end = self.past(seen.released().unwrap_or(self.now));
            let end = self.known_end(seen, tracked, end);
            self.end_run(seen.record, tracked, end, RunEnd::Other);
            self.follow_wait(seen, tracked, queue);
            if let Some(since) = seen.reservation() {
                tracked.reserved_at = since;
            }
        }
    }

    /// Follows a Workload that is charged.
    fn follow_run(&mut self, seen: &SeenWorkload<'_>, tracked: &mut Tracked, queue: u32, new: Run) {
        let began = self.past(new.start);
        let resumed = tracked.reserved_at == new.start;
        if let Phase::Running(run) = &mut tracked.phase {
            if resumed && tracked.queue == queue {
                if run.amounts != new.amounts {
                    self.usage.add(queue, &run.amounts, -1, (&mut self.series, self.now));
                    self.usage.add(queue, &new.amounts, 1, (&mut self.series, self.now));
                    self.add_resized(&seen.record.meta.uid, &run.amounts, &new.amounts);
                    Arc::make_mut(run).amounts = new.amounts;
                }
                return;
            }
            self.end_earlier_run(seen, tracked, (!resumed).then_some(began));
        }
        if matches!(tracked.phase, Phase::Idle) && !resumed && self.from.is_none() {
            let waited = self.fill_wait(seen, tracked, began);
            tracked.add_wait(waited);
        }
        if matches!(tracked.phase, Phase::Idle) && !resumed && self.from.is_some() {
            // The pending reason was not observed.
            let since = self.past(seen.waiting_since());
            let pending = Pending::unobserved(since, began);
            tracked.queue = queue;
            self.count_pending(queue, pending.reason, 1);
            tracked.phase = Phase::Pending(pending);
        }
        self.end_wait(seen.record, tracked, began, WaitResult::Reserved);
        if !resumed && self.from.is_some() {
            self.series.count(queue, Measure::Admissions, self.now);
        }
        tracked.queue = queue;
        tracked.reserved_at = new.start;
        self.usage.add(queue, &new.amounts, 1, (&mut self.series, self.now));
        let workload = self.subject(seen.record, queue);
        // While a slice is charged to the slice that replaces it, neither of the two runs for itself.
        let start = if resumed { self.now } else { self.outbox.counted_from(&seen.record.meta.uid, began) };
        let amounts = new.amounts;
        let run = OpenRun { workload, start, amounts, evicted: false };
        self.add_opened(&seen.record.meta.uid, tracked, &run);
        tracked.phase = Phase::Running(Arc::new(run));
    }

    /// Ends a run before the present one: another ClusterQueue took over the reservation, or, if that `began` later, the versions
    /// between two reservations were not delivered.
    fn end_earlier_run(&mut self, seen: &SeenWorkload<'_>, tracked: &mut Tracked, began: Option<Millis>) {
        let Phase::Running(run) = &tracked.phase else { return };
        let was_evicted = run.evicted;
        let missed = seen.earlier_eviction().filter(|_| began.is_some());
        let mut end = began.unwrap_or(self.now);
        if let Some(eviction) = missed {
            end = eviction.at.min(end);
            if !was_evicted {
                self.record_eviction(seen.record, tracked, &eviction, None);
            }
            end = self.known_end(seen, tracked, end);
        } else if began.is_some() && self.is_left(seen) {
            end = self.unknown_end(tracked, end);
        }
        self.end_run(seen.record, tracked, end, RunEnd::Other);
    }

    /// Ends the run of a Workload that has finished in another run or without quota, if the versions in between were not delivered.
    fn end_missed_run(&mut self, seen: &SeenWorkload<'_>, tracked: &mut Tracked) {
        if !matches!(tracked.phase, Phase::Running(_)) {
            return;
        }
        match (seen.reservation(), seen.released()) {
            (Some(start), _) if start != tracked.reserved_at => {
                self.end_earlier_run(seen, tracked, Some(self.past(start)));
                if let Some(charge) = &seen.last_charge {
                    let (queue, amounts) = (tracked.queue, self.names.amounts(charge));
                    self.follow_run(seen, tracked, queue, Run { start, amounts });
                }
            }
            (None, Some(released)) => {
                self.record_eviction_of(seen, tracked);
                let end = self.past(released);
                let end = self.known_end(seen, tracked, end);
                self.end_run(seen.record, tracked, end, RunEnd::Other);
            }
            _ => {}
        }
    }

    /// Returns whether an earlier process left a run of this Workload, and the first lists are not complete.
    fn is_left(&self, seen: &SeenWorkload<'_>) -> bool {
        self.from.is_none() && self.outbox.follows(&seen.record.meta.uid)
    }

    /// Returns the end of a run that an earlier process left, or an earlier time if the Workload counts more evictions than are
    /// recorded: `end` is that of a later run then.
    fn known_end(&mut self, seen: &SeenWorkload<'_>, tracked: &Tracked, end: Millis) -> Millis {
        let runs = matches!(tracked.phase, Phase::Running(_));
        if runs && self.is_left(seen) && seen.evictions() > tracked.evictions {
            return self.unknown_end(tracked, end);
        }
        end
    }

    /// Returns until when a run that an earlier process left counts if nothing shows its end, not later than `latest`.
    fn unknown_end(&mut self, tracked: &Tracked, latest: Millis) -> Millis {
        let Phase::Running(run) = &tracked.phase else { return latest };
        self.outbox.filling.count_unknown_end();
        self.outbox.until.max(run.start).min(latest)
    }

    /// Follows a Workload that is not charged.
    fn follow_wait(&mut self, seen: &SeenWorkload<'_>, tracked: &mut Tracked, queue: u32) {
        let reason = seen.pending_reason();
        match (&mut tracked.phase, reason) {
            (Phase::Pending(pending), Some(reason)) => {
                let earlier = pending.reason;
                if reason != earlier {
                    pending.set_reason(reason, self.now);
                }
                if (queue, reason) != (tracked.queue, earlier) {
                    self.count_pending(tracked.queue, earlier, -1);
                    self.count_pending(queue, reason, 1);
                }
            }
            (Phase::Pending(_), None) => {
                let deleted = seen.record.meta.is_deleting();
                let result = if deleted { WaitResult::Deleted } else { WaitResult::Deactivated };
                self.end_wait(seen.record, tracked, self.now, result);
            }
            (Phase::Idle, Some(reason)) => {
                let since = if tracked.waits == 0 { self.past(seen.waiting_since()) } else { self.now };
                tracked.phase = Phase::Pending(Pending::new(since, reason));
                self.count_pending(queue, reason, 1);
            }
            (Phase::Idle, None) | (Phase::Running(_), _) => {}
        }
        tracked.queue = queue;
    }

    fn count_pending(&mut self, queue: u32, reason: PendingReason, change: i128) {
        if !self.names.queue_name(queue).is_empty() {
            self.series.add_level(queue, Measure::Pending(reason), change, self.now);
        }
    }

    /// Returns the time between two points, 0 if the end is before the start.
    fn length(&mut self, start: Millis, end: Millis) -> Millis {
        if end < start {
            self.cut = self.cut.saturating_add(1);
        }
        end.saturating_sub(start).max(0)
    }

    /// Ends the pending episode, if there is one.
    fn end_wait(&mut self, record: &WorkloadRecord, tracked: &mut Tracked, end: Millis, result: WaitResult) {
        if !matches!(tracked.phase, Phase::Pending(_)) {
            return;
        }
        let Phase::Pending(pending) = mem::take(&mut tracked.phase) else { return };
        self.count_pending(tracked.queue, pending.reason, -1);
        let waited = self.length(pending.since, end);
        tracked.add_wait(waited);
        if result == WaitResult::Reserved {
            self.series.add_wait(tracked.queue, waited, self.now);
        }
        let event = RecordEvent::Wait(WaitEvent {
            start: pending.since,
            end: pending.since.saturating_add(waited),
            result,
            by_reason: pending.by_reason(end),
        });
        let part = tracked.waits;
        tracked.waits = part.saturating_add(1);
        self.add_record(record, tracked, (RecordKind::Wait, tracked.evictions, part), event);
    }

    /// Ends the run, if there is one. Returns it unless the record of an eviction has it.
    fn end_run(
        &mut self,
        record: &WorkloadRecord,
        tracked: &mut Tracked,
        end: Millis,
        cause: RunEnd,
    ) -> Option<Run> {
        if !matches!(tracked.phase, Phase::Running(_)) {
            return None;
        }
        let Phase::Running(run) = mem::take(&mut tracked.phase) else { return None };
        self.usage.add(tracked.queue, &run.amounts, -1, (&mut self.series, self.now));
        let ran = self.length(run.start, end);
        let end = run.start.saturating_add(ran);
        let part = tracked.sums.as_ref().map_or(0, |sums| sums.runs);
        tracked.add(|sums| {
            sums.ran = sums.ran.saturating_add(ran);
            sums.runs = sums.runs.saturating_add(1);
        });
        let cause = if run.evicted { RunEnd::Released } else { cause };
        let uid = &record.meta.uid;
        self.outbox.add(|| Entry::Ended { uid: Arc::clone(uid), at: end, end: cause, filled: false });
        let run = Run { start: run.start, amounts: Arc::clone(&run.amounts) };
        match cause {
            RunEnd::Finished | RunEnd::Deleted => return Some(run),
            RunEnd::Released => self.complete_eviction(record, tracked, end),
            RunEnd::Other => {
                let key = (RecordKind::Segment, tracked.evictions, part);
                self.add_record(record, tracked, key, RecordEvent::Segment { run, end });
            }
        }
        None
    }

    fn record_eviction_of(&mut self, seen: &SeenWorkload<'_>, tracked: &mut Tracked) {
        if let Some(eviction) = seen.eviction().filter(|eviction| eviction.at != tracked.evicted_at) {
            let released = seen.released().filter(|_| !matches!(tracked.phase, Phase::Running(_)));
            self.record_eviction(seen.record, tracked, &eviction, released);
        }
    }

    fn record_eviction(
        &mut self,
        record: &WorkloadRecord,
        tracked: &mut Tracked,
        eviction: &SeenEviction<'_>,
        released: Option<Millis>,
    ) {
        let attempt = tracked.evictions;
        let at = self.past(eviction.at);
        tracked.evictions = attempt.saturating_add(1);
        tracked.evicted_at = eviction.at;
        tracked.waits = 0;
        let mut run = None;
        if let Phase::Running(open) = &mut tracked.phase {
            Arc::make_mut(open).evicted = true;
            run = Some(Run { start: open.start, amounts: Arc::clone(&open.amounts) });
            let reason = self.names.text(eviction.reason);
            self.outbox.add(|| Entry::Evicted {
                uid: Arc::clone(&record.meta.uid),
                at,
                reason,
                preempted: eviction.preemption.is_some(),
            });
        }
        if let Some(run) = run.as_ref().filter(|_| eviction.preemption.is_some()) {
            let lost = self.length(run.start, at);
            tracked.add(|sums| sums.lost = sums.lost.saturating_add(lost));
        }
        if self.from.is_some_and(|from| at >= from) {
            self.series.count(tracked.queue, Measure::Evictions, self.now);
        }
        let preemption = eviction.preemption.map(|reason| {
            Box::new(Preemption {
                reason: self.names.text(reason),
                preemptor_uid: Arc::from(eviction.preemptor),
                preemptor: self.preemptor(eviction.preemptor),
            })
        });
        let amounts: &[(u32, i64)] = run.as_ref().map_or(&[], |run| &run.amounts);
        let borrowed = self.usage.borrows(tracked.queue, amounts);
        let reason = self.names.text(eviction.reason);
        let released = released.map(|released| self.past(released));
        let event = EvictionEvent { at, reason, preemption, run, borrowed, released };
        self.add_record(record, tracked, (RecordKind::Eviction, attempt, 0), RecordEvent::Eviction(event));
    }

    /// Returns the Workload with a UID as a preemptor.
    pub(super) fn preemptor(&self, uid: &str) -> Option<super::record::Preemptor> {
        let tracked = self.workloads.get(uid)?;
        Some(tracked.as_preemptor(self.names.queue_name(tracked.queue)))
    }

    /// Adds the time of the release to the record of the last eviction.
    fn complete_eviction(&mut self, record: &WorkloadRecord, tracked: &Tracked, end: Millis) {
        let uid = Arc::clone(&record.meta.uid);
        let attempt = tracked.evictions.saturating_sub(1);
        let key = RecordKey { uid, kind: RecordKind::Eviction, attempt, part: 0 };
        let complete = |record: &mut Record| {
            if let RecordEvent::Eviction(eviction) = &mut record.event {
                eviction.released = Some(end.max(eviction.at));
            }
        };
        if let Some(seed) = self.seeds.get_mut(&key) {
            complete(seed);
        } else {
            self.log.complete(&key, complete);
            self.add_completed(&key);
        }
    }

    /// Ends the episode of a Workload, and makes its last record.
    fn end(&mut self, record: &WorkloadRecord, mut tracked: Tracked, at: Millis, result: &str) {
        self.end_wait(record, &mut tracked, at, WaitResult::Deleted);
        let end = if result == DELETED { RunEnd::Deleted } else { RunEnd::Finished };
        let run = self.end_run(record, &mut tracked, at, end);
        let sums = tracked.sums.as_deref().copied().unwrap_or_default();
        let event = FinishEvent {
            at,
            result: self.names.text(result),
            attempts: sums.runs.max(tracked.evictions),
            waited: sums.waited,
            ran: sums.ran,
            lost: sums.lost,
            run,
        };
        self.add_record(
            record,
            &tracked,
            (RecordKind::Finish, tracked.evictions, 0),
            RecordEvent::Finish(event),
        );
    }

    fn add_record(
        &mut self,
        record: &WorkloadRecord,
        tracked: &Tracked,
        (kind, attempt, part): (RecordKind, u32, u32),
        event: RecordEvent,
    ) {
        let workload = self.subject(record, tracked.queue);
        let key = RecordKey { uid: Arc::clone(&record.meta.uid), kind, attempt, part };
        let mut record = Record { key, seeded: false, filled: false, workload, event };
        match self.from {
            Some(from) => {
                record.seeded = kind == RecordKind::Eviction && record.at() < from;
                record.forget_present();
                self.keep(record);
            }
            // Before the first lists are complete, only evictions become records: all else began earlier. The exception is what
            // continues a run of an earlier process.
            None if kind == RecordKind::Eviction || self.outbox.follows(&record.key.uid) => {
                record.seeded = kind == RecordKind::Eviction;
                self.seeds.insert(record.key.clone(), record);
            }
            None => {}
        }
    }

    pub(super) fn subject(&mut self, record: &WorkloadRecord, queue: u32) -> Subject {
        let class = record.priority_class.as_ref().map_or("", |class| class.name.as_str());
        let job = |owner: &Arc<crate::api::OwnerRecord>| (Arc::clone(&owner.kind), Arc::clone(&owner.name));
        Subject {
            key: record.meta.key.clone(),
            job: record.owner.as_ref().map(job),
            local_queue: record.queue_name.clone().unwrap_or_default(),
            cluster_queue: self.names.queue_name(queue),
            priority_class: self.names.text(class),
            priority: record.effective_priority(),
            submitter: record.annotations.submitter.clone(),
        }
    }
}
