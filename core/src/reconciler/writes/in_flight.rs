//! Writes in flight, at most one per object, and backoff after failed writes.

use super::completing::CompletingWorkloads;
use super::confirmed::ConfirmedWorkloads;
use super::repeated::{Replacements, WriteSeries};
use super::request::{WritePurpose, WriteRequest};
use super::restarts::RestartedWorkloads;
use super::running_children::RunningChildren;
use crate::api::ObjectKey;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::{JobId, Kind};
use crate::lifecycle::backoff;
use crate::reconciler::WriteLimits;
use crate::reconciler::messages::{Effect, Verb, Write};
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use crate::snapshot::FailureCounts;
use indexmap::IndexMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First and longest backoff after a write that failed for another reason than a conflict.
const MIN_BACKOFF: SignedDuration = SignedDuration::from_millis(500);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(60);
/// Number of consecutive conflicts after which the object is decided on again immediately, from its newest version.
/// More conflicts are normal if other clients write the object all the time; the backoff after that keeps an object
/// whose every write conflicts from using up all calls.
const MAX_IMMEDIATE_CONFLICT_RETRIES: u32 = 2;
/// Maximum number of pending reasons in flight, so that they never delay admissions.
const MAX_IN_FLIGHT_EXPLANATIONS: usize = 64;
/// First and longest backoff after further conflicts.
const MIN_CONFLICT_BACKOFF: SignedDuration = SignedDuration::from_millis(50);
const MAX_CONFLICT_BACKOFF: SignedDuration = SignedDuration::from_secs(5);

/// A write that was sent and has no result yet.
#[derive(Clone, Debug)]
pub(crate) struct InFlightWrite {
    pub(crate) id: u64,
    pub(crate) purpose: WritePurpose,
    pub(crate) verb: Verb,
    pub(crate) subresource: Option<&'static str>,
    /// When it was decided.
    pub(crate) since: Timestamp,
    /// Effects to emit once the write has landed.
    pub(crate) effects: Vec<Effect>,
    /// The status that a Workload has once the write has landed.
    pub(crate) expected_status: Option<Arc<WorkloadStatus>>,
    /// Another object that gets a step when the write ends.
    pub(crate) on_behalf_of: Option<ReconcileKey>,
    /// Version of the object that an update was decided on.
    decided_on: Option<String>,
    /// Number of writes of its series before it.
    preceding: u32,
    /// Version of the object that the API server returned.
    returned: Option<String>,
}

impl InFlightWrite {
    /// Returns whether the write, whose response is `object`, has changed nothing: the API server drops fields that its
    /// definition does not have, and an apply does not remove fields that another field manager owns.
    fn had_no_effect(&self, object: &Value) -> bool {
        let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        version.is_some() && version == self.decided_on.as_deref()
    }

    /// Returns whether it has landed, and the API server returned this version of the object.
    pub(crate) fn returned(&self, version: &str) -> bool {
        self.returned.as_deref() == Some(version)
    }

    /// Returns whether it applies the status of a Workload.
    pub(crate) fn applies_status(&self) -> bool {
        self.verb == Verb::Apply && self.expected_status.is_some()
    }
}

/// Failures of an object's writes since the last landed write.
#[derive(Clone, Copy, Debug)]
struct Failures {
    conflicts: u32,
    errors: u32,
    /// The object is not written before this time.
    backoff_until: Timestamp,
}

/// Writes in flight and backoff after failures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    last_id: u64,
    explanation_count: usize,
    /// Number of Workload status writes in flight.
    status_write_count: usize,
    in_flight: IndexMap<(Kind, ObjectKey), InFlightWrite>,
    failures: BTreeMap<(Kind, ObjectKey), Failures>,
    series: WriteSeries,
    /// Workloads from whose status the last apply could not remove something.
    merge_patched: BTreeSet<ObjectKey>,
    /// Workloads whose next write does not wait for the previous one, which was superseded.
    bypassing: BTreeSet<ObjectKey>,
    /// Workloads that this leader has written or read.
    pub(super) confirmed: ConfirmedWorkloads,
    /// Workloads that were replaced because they did not match their job.
    pub(crate) replacements: Replacements<ObjectKey>,
    /// Number of times that the additions of a start were restored in a job.
    pub(crate) restored_marks: Replacements<(Kind, ObjectKey)>,
    /// Workloads that wait before they report that some of their pods have succeeded.
    pub(crate) completing: CompletingWorkloads,
    /// Workloads whose pods run again after they had succeeded.
    pub(crate) restarts: RestartedWorkloads,
    /// Jobs that are left to the operators above them.
    pub(crate) running_children: RunningChildren,
    /// Effects of the deltas being handled.
    effects: Vec<Effect>,
}

impl Writes {
    /// Returns the writes in flight.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (&(Kind, ObjectKey), &InFlightWrite)> {
        self.in_flight.iter()
    }

    /// Returns the objects whose last write failed, with the end of their backoff.
    pub(crate) fn backoffs(&self) -> impl Iterator<Item = (&(Kind, ObjectKey), Timestamp)> {
        self.failures.iter().map(|(object, failures)| (object, failures.backoff_until))
    }

    /// Returns the failures of an object's writes since the last landed one.
    pub(crate) fn failures(&self, kind: Kind, key: &ObjectKey) -> FailureCounts {
        let known = self.failures.get(&(kind, key.clone()));
        known.map_or_else(FailureCounts::default, |failures| FailureCounts {
            conflicts: failures.conflicts,
            errors: failures.errors,
        })
    }

    /// Returns whether the object may be written now: no write is in flight, and no backoff is running.
    pub(crate) fn may_write(&self, kind: Kind, key: &ObjectKey, now: Timestamp) -> bool {
        let id = (kind, key.clone());
        !self.in_flight.contains_key(&id)
            && self.failures.get(&id).is_none_or(|failures| failures.backoff_until <= now)
    }

    /// Returns whether a write of the object is in flight.
    pub(crate) fn is_in_flight(&self, kind: Kind, key: &ObjectKey) -> bool {
        self.in_flight.contains_key(&(kind, key.clone()))
    }

    /// Returns whether an object is being created for another one.
    pub(crate) fn creates_for(&self, item: &ReconcileKey) -> bool {
        let creates =
            |write: &InFlightWrite| write.verb == Verb::Create && write.on_behalf_of.as_ref() == Some(item);
        self.in_flight.values().any(creates)
    }

    /// Returns whether the result of a Workload's second pass is being written.
    pub(crate) fn is_second_pass_in_flight(&self, key: &ObjectKey) -> bool {
        let write = self.in_flight.get(&(Kind::Workload, key.clone()));
        write.is_some_and(|write| write.purpose == WritePurpose::SecondPass)
    }

    /// Drops the Workload's write in flight: its result will be ignored, and the next write does not wait for it.
    pub(crate) fn supersede(&mut self, key: &ObjectKey) {
        self.remove_in_flight(&(Kind::Workload, key.clone()));
        self.bypassing.insert(key.clone());
    }

    /// Returns the number of pending reasons in flight.
    pub(crate) fn explanation_count(&self) -> usize {
        self.explanation_count
    }

    /// Returns the number of free slots for Workload status writes.
    pub(crate) fn available_slots(&self, limits: &WriteLimits) -> usize {
        let limit = limits.max_in_flight_status_writes;
        limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.status_write_count))
    }

    /// Returns the number of free slots for pending reasons: at most an eighth of the slots, because most are for admissions.
    pub(crate) fn explanation_budget(&self, limits: &WriteLimits) -> usize {
        let share = limits.max_in_flight_status_writes.map_or(usize::MAX, |limit| (limit / 8).max(1));
        MAX_IN_FLIGHT_EXPLANATIONS.min(share).saturating_sub(self.explanation_count)
    }

    /// Returns the end of the backoff after a failure of the object.
    pub(crate) fn backoff_until(&self, kind: Kind, key: &ObjectKey) -> Option<Timestamp> {
        self.failures.get(&(kind, key.clone())).map(|failures| failures.backoff_until)
    }

    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn emit_all(&mut self, effects: impl IntoIterator<Item = Effect>) {
        self.effects.extend(effects);
    }

    /// Has jobs read again: what the cache has of them no longer says which pod sets they have.
    pub(crate) fn read_again(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        let read = |(kind, key): JobId| Effect::Refetch { kind: Kind::Job(kind), key };
        self.emit_all(jobs.into_iter().map(read));
    }

    /// Removes and returns all effects.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Starts a write: it is in flight until its result arrives. The caller has asked `may_write`.
    pub(crate) fn start(&mut self, request: WriteRequest, now: Timestamp) {
        self.last_id = self.last_id.saturating_add(1);
        let (kind, purpose) = (request.kind, request.purpose);
        if purpose == WritePurpose::Explain {
            self.explanation_count = self.explanation_count.saturating_add(1);
        }
        let has_status = usize::from(request.status.is_some());
        self.status_write_count = self.status_write_count.saturating_add(has_status);
        let bypasses_in_flight = kind == Kind::Workload && self.bypassing.remove(&request.key);
        let object = (kind, request.key.clone());
        let version = request.decided_on();
        // What the scheduler decides starts a new series. Statuses of queues have a rate limit of their own.
        let preceding = match purpose {
            WritePurpose::SecondPass | WritePurpose::Other => self.series.preceding(&object, version, now),
            WritePurpose::Admit | WritePurpose::Explain | WritePurpose::QueueStatus => 0,
        };
        let decided_on = version.map(str::to_owned);
        let write = InFlightWrite {
            id: self.last_id,
            purpose,
            verb: request.verb,
            subresource: request.subresource,
            since: now,
            effects: request.effects,
            expected_status: request.status.clone(),
            on_behalf_of: request.on_behalf_of,
            decided_on,
            preceding,
            returned: None,
        };
        self.in_flight.insert(object, write);
        self.effects.push(Effect::Write(Write {
            id: self.last_id,
            kind,
            key: request.key,
            verb: request.verb,
            subresource: request.subresource,
            body: request.body,
            // A merge patch contains only what differs.
            status: request.status.filter(|_| request.verb != Verb::Merge),
            response_metadata_only: request.response_metadata_only,
            class: request.class,
            bypasses_in_flight,
        }));
    }

    /// Adds a step of `item` when the object's write ends, if one is in flight.
    pub(crate) fn requeue_at_end(&mut self, kind: Kind, key: &ObjectKey, item: ReconcileKey) {
        if let Some(write) = self.in_flight.get_mut(&(kind, key.clone())) {
            write.on_behalf_of = Some(item);
        }
    }

    /// Starts a write that another object needs. During a backoff, adds that object to the work queue for its end
    /// instead.
    pub(crate) fn write_for(
        &mut self,
        item: ReconcileKey,
        request: WriteRequest,
        queue: &mut WorkQueue,
        now: Timestamp,
    ) {
        if self.may_write(request.kind, &request.key, now) {
            self.start(request.on_behalf_of(item), now);
        } else {
            self.retry_after_backoff((request.kind, &request.key), item, queue, now);
        }
    }

    /// Adds an object to the work queue for the end of a failed write's backoff. No time is needed while a write is in
    /// flight: its end adds the object anyway.
    pub(crate) fn retry_after_backoff(
        &self,
        (kind, key): (Kind, &ObjectKey),
        item: ReconcileKey,
        queue: &mut WorkQueue,
        now: Timestamp,
    ) {
        if let Some(until) = self.backoff_until(kind, key).filter(|until| *until > now) {
            queue.add_at(item, until);
        }
    }

    /// Removes and returns the write with this number; `None` if it is not the one in flight.
    pub(crate) fn finish(&mut self, kind: Kind, key: &ObjectKey, id: u64) -> Option<InFlightWrite> {
        let object = (kind, key.clone());
        if self.in_flight.get(&object)?.id != id {
            return None;
        }
        self.remove_in_flight(&object)
    }

    fn remove_in_flight(&mut self, object: &(Kind, ObjectKey)) -> Option<InFlightWrite> {
        let write = self.in_flight.swap_remove(object)?;
        let explains = usize::from(write.purpose == WritePurpose::Explain);
        self.explanation_count = self.explanation_count.saturating_sub(explains);
        self.status_write_count =
            self.status_write_count.saturating_sub(usize::from(write.expected_status.is_some()));
        Some(write)
    }

    /// Records that a write has landed, with the object that the API server returned. Returns false if it had no effect,
    /// or if it ends a series of writes that follow one another; then a backoff of the object starts.
    pub(crate) fn record_landed(
        &mut self,
        id: &(Kind, ObjectKey),
        write: &mut InFlightWrite,
        object: &Value,
        now: Timestamp,
    ) -> bool {
        let (kind, key) = (id.0, &id.1);
        let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        write.returned = version.map(str::to_owned);
        let repeated = match version.filter(|_| write.decided_on.is_some()) {
            Some(version) => self.series.record(id.clone(), version, write.preceding, now),
            None => false,
        };
        if kind == Kind::Workload && write.verb == Verb::Merge && write.expected_status.is_some() {
            self.merge_patched.remove(key);
        }
        if !repeated && !write.had_no_effect(object) {
            self.clear_failures(kind, key);
            return true;
        }
        self.record_failure(kind, key, now);
        self.series.extend(id, self.backoff_until(kind, key).unwrap_or(now));
        false
    }

    /// Makes the next write of a Workload's status a merge patch. Returns false if it would be one already.
    pub(crate) fn use_merge_patch(&mut self, key: &ObjectKey) -> bool {
        self.merge_patched.insert(key.clone())
    }

    /// Returns whether the next write of a Workload's status is a merge patch.
    pub(crate) fn needs_merge_patch(&self, key: &ObjectKey) -> bool {
        self.merge_patched.contains(key)
    }

    /// Removes what is known about the writes of an object that was deleted.
    pub(crate) fn forget(&mut self, kind: Kind, key: &ObjectKey) {
        self.clear_failures(kind, key);
        self.series.remove(&(kind, key.clone()));
        if kind == Kind::Workload {
            self.merge_patched.remove(key);
            self.confirmed.forget(key);
        }
    }

    /// Counts a failure and starts a backoff of the object.
    pub(crate) fn record_failure(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) {
        let failures = self.failures_of(kind, key, now);
        failures.errors = failures.errors.saturating_add(1);
        let wait = backoff::exponential(MIN_BACKOFF, MAX_BACKOFF, failures.errors);
        failures.backoff_until = backoff::after(now, wait);
    }

    /// Counts a conflict. Starts a backoff of the object if it had too many consecutive ones.
    pub(crate) fn record_conflict(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) {
        let failures = self.failures_of(kind, key, now);
        failures.conflicts = failures.conflicts.saturating_add(1);
        let excess = failures.conflicts.saturating_sub(MAX_IMMEDIATE_CONFLICT_RETRIES);
        let wait = backoff::exponential(MIN_CONFLICT_BACKOFF, MAX_CONFLICT_BACKOFF, excess);
        failures.backoff_until = failures.backoff_until.max(backoff::after(now, wait));
    }

    fn failures_of(&mut self, kind: Kind, key: &ObjectKey, now: Timestamp) -> &mut Failures {
        let none = Failures { conflicts: 0, errors: 0, backoff_until: now };
        self.failures.entry((kind, key.clone())).or_insert(none)
    }

    /// Removes the failures of an object.
    fn clear_failures(&mut self, kind: Kind, key: &ObjectKey) {
        self.failures.remove(&(kind, key.clone()));
    }

    /// Removes all writes and failures: results of earlier writes will be ignored.
    pub(crate) fn clear(&mut self) {
        self.in_flight.clear();
        self.explanation_count = 0;
        self.status_write_count = 0;
        self.failures.clear();
        self.series.clear();
        self.merge_patched.clear();
        self.bypassing.clear();
        self.confirmed = ConfirmedWorkloads::default();
        self.replacements = Replacements::default();
        self.restored_marks = Replacements::default();
        self.completing = CompletingWorkloads::default();
        self.restarts = RestartedWorkloads::default();
    }
}
