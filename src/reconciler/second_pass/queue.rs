//! Queue of second passes: which Workloads are due, when, and results whose write has not landed.
//!
//! Invariants: the queue stores only UID and due time, never an object. Eligibility is checked on the newest object
//! when the pass is due, and a second time right before the write, which carries the resourceVersion of that object
//! (I12, I13). A result counts in the ledger only while the object is unchanged since the decision.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::Admission;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::workload::{Transition, WorkloadStep, plan};
use crate::lifecycle::{backoff, conditions, eviction, pods_ready};
use crate::reconciler::events::workload_event;
use crate::reconciler::nodes::topology_status::with_new_topologies;
use crate::reconciler::second_pass::eligibility;
use crate::reconciler::second_pass::failpoints::{Failpoint, SecondPassGuard};
use crate::reconciler::workload::decision_status::{node_failure_status, second_pass_status};
use crate::reconciler::writes::in_flight::WritePurpose;
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::scheduler::{Assignment, Charge, PodSetPlacement, SecondPassRequest};
use crate::topology::decode;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First and maximum wait before a pass.
const MIN_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(30);

/// Interval at which a pass that a test halts is polled.
pub(crate) const FAILPOINT_POLL_INTERVAL: SignedDuration = SignedDuration::from_millis(20);

/// Due time and failures of the pass of a Workload.
#[derive(Clone, Copy, Debug)]
struct SecondPassBackoff {
    /// Number of consecutive passes without a result.
    failures: u32,
    /// Time of the next pass; `None` while the pass is in progress.
    due_at: Option<Timestamp>,
}

/// Result of a second pass.
#[derive(Clone, Debug)]
pub(crate) enum SecondPassResult {
    /// Topology assignments for the pods.
    Assigned(Assignment),
    /// No replacement for failed nodes, with the reason: the Workload is evicted.
    NoReplacement(Arc<str>),
}

/// A result whose write has not landed.
#[derive(Clone, Debug)]
struct PendingResult {
    uid: Arc<str>,
    /// The resourceVersion of the object that the result was decided on.
    version: String,
    result: SecondPassResult,
}

impl PendingResult {
    fn is_current_for(&self, record: &WorkloadRecord) -> bool {
        self.uid == record.meta.uid && self.version == record.meta.resource_version
    }
}

/// Second passes that are scheduled or in progress, and results that are not written yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecondPassQueue {
    backoffs: BTreeMap<Arc<str>, SecondPassBackoff>,
    /// Workloads whose pass is due.
    ready: BTreeSet<ObjectKey>,
    /// Requests that a test halts before the scheduler gets them.
    halted: BTreeMap<ObjectKey, SecondPassRequest>,
    pending_results: BTreeMap<ObjectKey, PendingResult>,
    #[cfg(feature = "failpoints")]
    pub(super) stale_objects: super::unguarded::StaleObjects,
}

impl SecondPassQueue {
    /// Drops the state of a Workload that was deleted or no longer holds quota.
    pub(crate) fn forget(&mut self, key: &ObjectKey, uid: &str) {
        self.backoffs.remove(uid);
        self.halted.remove(key);
        self.pending_results.remove(key);
    }

    /// Drops all state. Returns the Workloads whose results were dropped.
    pub(crate) fn clear(&mut self) -> Vec<ObjectKey> {
        self.backoffs.clear();
        self.ready.clear();
        self.halted.clear();
        std::mem::take(&mut self.pending_results).into_keys().collect()
    }

    /// Schedules the next pass after a number of failures, with exponential backoff. Returns its due time.
    fn schedule(&mut self, uid: &Arc<str>, failures: u32, now: Timestamp) -> Timestamp {
        let wait = backoff::exponential(MIN_BACKOFF, MAX_BACKOFF, failures.saturating_add(1));
        let at = backoff::after(now, wait);
        self.backoffs.insert(Arc::clone(uid), SecondPassBackoff { failures, due_at: Some(at) });
        at
    }
}

impl Reconciler {
    /// Schedules a pass for a Workload that holds quota and needs one, or marks its pass as due.
    pub(crate) fn schedule_second_pass(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(record) = self.cache.workload(key).filter(|_| self.leading) else { return };
        if self.settings.failpoints.is_unguarded(key) {
            return;
        }
        let uid = Arc::clone(&record.meta.uid);
        let (needed, known) =
            (eligibility::needs_second_pass(record), self.second_passes.backoffs.get(&uid).copied());
        if self.second_passes.pending_results.contains_key(key) {
            return;
        }
        let at = match known {
            None if needed => self.second_passes.schedule(&uid, 0, now),
            None | Some(SecondPassBackoff { due_at: None, .. }) => return,
            Some(SecondPassBackoff { due_at: Some(at), .. }) if at <= now => {
                if !self.halts_at_failpoint(key, Failpoint::Armed, now) {
                    self.second_passes.ready.insert(key.clone());
                }
                return;
            }
            // A pass that is not needed now and has failed before starts at the first backoff when it is needed again.
            // A first wait continues.
            Some(SecondPassBackoff { failures: 1.., .. }) if !needed => {
                self.second_passes.backoffs.remove(&uid);
                return;
            }
            Some(SecondPassBackoff { due_at: Some(at), .. }) => at,
        };
        self.work_queue.add_at(ReconcileKey::Workload(key.clone()), at);
    }

    /// Returns the charge of a Workload with the topology assignments of its pending result, if that was decided on the
    /// current resourceVersion; otherwise drops the result. Domains that the pods would leave stay charged, because the
    /// pods stay there if the write fails.
    pub(crate) fn with_pending_result(&mut self, key: &ObjectKey, charge: Charge) -> Charge {
        let (Some(pending), Some(record)) =
            (self.second_passes.pending_results.get(key), self.cache.workload(key))
        else {
            return charge;
        };
        if !pending.is_current_for(record) {
            let uid = Arc::clone(&record.meta.uid);
            self.second_passes.forget(key, &uid);
            return charge;
        }
        match (&pending.result, &record.status.admission) {
            (SecondPassResult::Assigned(assignment), Some(admission)) => {
                let both = merge_topologies(admission, assignment);
                Charge {
                    topology: self
                        .scheduler_input()
                        .occupancies(record, &with_new_topologies(admission, &both)),
                    ..charge
                }
            }
            _ => charge,
        }
    }

    /// Passes the due Workloads to the scheduler, as their objects are now. Returns the Workloads passed.
    pub(crate) fn dequeue_second_passes(&mut self, now: Timestamp) -> BTreeSet<ObjectKey> {
        let mut requested = BTreeSet::new();
        for key in std::mem::take(&mut self.second_passes.ready) {
            let Some(uid) = self.cache.workload(&key).map(|record| Arc::clone(&record.meta.uid)) else {
                continue;
            };
            if self.halts_at_failpoint(&key, Failpoint::Due, now) {
                continue;
            }
            match self.second_passes.halted.remove(&key).or_else(|| self.read_for_second_pass(&key, now)) {
                Some(request) if self.halts_at_failpoint(&key, Failpoint::ObjectRead, now) => {
                    self.second_passes.halted.insert(key, request);
                }
                Some(request) => {
                    let failures = self.second_passes.backoffs.get(&uid).map_or(0, |due| due.failures);
                    self.second_passes.backoffs.insert(uid, SecondPassBackoff { failures, due_at: None });
                    self.engine.request_second_pass(request);
                    requested.insert(key);
                }
                None => drop(self.second_passes.backoffs.remove(&uid)),
            }
        }
        requested
    }

    /// Returns the request for a pass that is due, if the Workload is still eligible.
    fn read_for_second_pass(&self, key: &ObjectKey, now: Timestamp) -> Option<SecondPassRequest> {
        if self.settings.failpoints.lacks(key, SecondPassGuard::Dequeue) {
            return self.to_second_pass_request(key);
        }
        self.eligible_second_pass(key, now)
    }

    /// Returns the request for a pass if the object is eligible and the Workload is not a preemption victim, is not
    /// about to end, and has no recovered node.
    fn eligible_second_pass(&self, key: &ObjectKey, now: Timestamp) -> Option<SecondPassRequest> {
        let record = self.cache.workload(key)?;
        // A recovered node is removed from `unhealthyNodes` instead of being replaced.
        let recovers = || !self.host_health().report(record, now).recovered.is_empty();
        if self.engine.preemption_of(key).is_some() || self.is_ending(key, record, now) || recovers() {
            return None;
        }
        self.due_second_pass(key)
    }

    /// Returns whether the next lifecycle step ends the Workload or its reservation.
    fn is_ending(&self, key: &ObjectKey, record: &WorkloadRecord, now: Timestamp) -> bool {
        let facts = self.workload_facts(key, record, now);
        match plan(&self.workload_input(record), &facts, &self.settings.lifecycle, now).step {
            WorkloadStep::NoWrite => false,
            WorkloadStep::WriteStatus(status) => {
                use ConditionType::{DeactivationTarget, Evicted, Finished, QuotaReserved};
                let ends = [Finished, Evicted, DeactivationTarget];
                ends.iter().any(|kind| conditions::is_true(&status, *kind))
                    || !conditions::is_true(&status, QuotaReserved)
            }
            WorkloadStep::Deactivate | WorkloadStep::RemoveFinalizer | WorkloadStep::Delete => true,
        }
    }

    /// Stores the result of a pass until its write has landed or the object has changed, and charges it.
    pub(crate) fn record_second_pass_result(
        &mut self,
        key: &ObjectKey,
        uid: &Arc<str>,
        result: SecondPassResult,
    ) {
        let Some(record) = self.cache.workload(key) else { return };
        let (uid, version) = (Arc::clone(uid), record.meta.resource_version.clone());
        let charge = self.scheduler_input().charge_from_admission(record);
        self.second_passes.pending_results.insert(key.clone(), PendingResult { uid, version, result });
        if let Some(charge) = charge {
            let charge = self.with_pending_result(key, charge);
            self.engine.charge(key, charge);
        }
    }

    /// Schedules the next pass after one without a result, and emits the reason. The reservation stays.
    pub(crate) fn requeue_second_pass(&mut self, key: &ObjectKey, reason: Option<&str>, now: Timestamp) {
        let Some(record) = self.cache.workload(key) else { return };
        let uid = Arc::clone(&record.meta.uid);
        if let Some(reason) = reason {
            self.writes.emit(workload_event(record, true, "SecondPassFailed", reason.to_owned()));
        }
        let failures = self.second_passes.backoffs.get(&uid).map_or(0, |due| due.failures).saturating_add(1);
        let at = self.second_passes.schedule(&uid, failures, now);
        self.work_queue.add_at(ReconcileKey::Workload(key.clone()), at);
    }

    /// Writes the pending result of a Workload, or drops it if it is outdated or the Workload is no longer eligible.
    /// Returns whether the result is the next write of the Workload (a test may halt it).
    pub(crate) fn write_second_pass_result(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let (Some(pending), Some(record)) =
            (self.second_passes.pending_results.get(key), self.cache.workload(key))
        else {
            return false;
        };
        let eligible = || {
            self.settings.failpoints.lacks(key, SecondPassGuard::Recheck)
                || self.eligible_second_pass(key, now).is_some()
        };
        if !pending.is_current_for(record) || !eligible() {
            self.discard_second_pass_result(key);
            return false;
        }
        if self.halts_at_failpoint(key, Failpoint::Decided, now) {
            return true;
        }
        let Some((pending, record)) =
            self.second_passes.pending_results.get(key).zip(self.cache.workload(key))
        else {
            return false;
        };
        let (status, transition) = match &pending.result {
            SecondPassResult::Assigned(assignment) => {
                let mut status = second_pass_status(record, assignment, now);
                let admitted = !conditions::is_true(&record.status, ConditionType::Admitted)
                    && conditions::is_true(&status, ConditionType::Admitted);
                if admitted && self.settings.lifecycle.pods_ready.is_some() {
                    pods_ready::observe(&mut status, false, record.meta.generation, now);
                }
                (status, admitted.then_some(Transition::Admitted))
            }
            SecondPassResult::NoReplacement(reason) => {
                let cause = eviction::EvictionCause::new(eviction::NODE_FAILURES, &**reason);
                let first = eviction::eviction_count(&record.status, &cause) == 0;
                (node_failure_status(record, reason, now), Some(Transition::Evicted(cause, first)))
            }
        };
        let effects = transition.iter().flat_map(|change| self.effects_of(record, change, now)).collect();
        let request = self.status_write(record, Box::new(status), WritePurpose::SecondPass);
        self.writes.start(request.with_effects(effects), now);
        true
    }

    /// Returns whether a test halts a pass at a failpoint. If so, the Workload is polled.
    fn halts_at_failpoint(&mut self, key: &ObjectKey, at: Failpoint, now: Timestamp) -> bool {
        let halts = self.settings.failpoints.halts(key, at);
        if halts {
            self.work_queue
                .add_at(ReconcileKey::Workload(key.clone()), backoff::after(now, FAILPOINT_POLL_INTERVAL));
        }
        halts
    }

    /// Drops the pending result of a Workload and restores the charge of its object.
    pub(crate) fn discard_second_pass_result(&mut self, key: &ObjectKey) {
        if self.second_passes.pending_results.remove(key).is_none() {
            return;
        }
        let Some(record) = self.cache.workload(key) else { return };
        self.second_passes.backoffs.remove(&record.meta.uid);
        if let Some(charge) = self.scheduler_input().charge_from_admission(record) {
            self.engine.charge(key, charge);
        }
    }

    /// Lets a write that ends a Workload supersede the in-flight write of a pass. Both carry the same resourceVersion,
    /// so only one of them lands. Returns whether the write is superseded.
    pub(crate) fn supersede_second_pass_write(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.cache.workload(key) else { return false };
        let keeps_write = !self.writes.is_second_pass_in_flight(key)
            || self.settings.failpoints.lacks(key, SecondPassGuard::SupersedeWrite);
        if keeps_write || !self.is_ending(key, record, now) {
            return false;
        }
        self.writes.supersede(key);
        self.discard_second_pass_result(key);
        true
    }
}

/// Returns the assignment with the domains of the admission merged in: each domain with the larger of its two pod
/// counts.
fn merge_topologies(admission: &Admission, assignment: &Assignment) -> Assignment {
    let mut assignment = assignment.clone();
    for (set, granted) in admission.pod_set_assignments.iter().zip(&mut assignment.pod_sets) {
        let old = set.topology_assignment.as_ref().and_then(decode);
        if let (PodSetPlacement::Assigned(new), Some(old)) = (&mut granted.topology, old) {
            let mut domains: BTreeMap<_, i32> = std::mem::take(&mut new.domains).into_iter().collect();
            for (path, pods) in old.domains {
                let count = domains.entry(path).or_default();
                *count = pods.max(*count);
            }
            new.domains = domains.into_iter().collect();
        }
    }
    assignment
}
