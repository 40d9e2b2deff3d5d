//! Second passes: who is due, when, and what was found for them and has not landed.
//!
//! Invariants: what is due is a UID and a time, never an object; whether a pass is needed is asked of the newest object when
//! its time has come, and again right before the write, which carries the version of that object (I12, I13); what was found
//! counts in the ledger as long as the object stays as it was decided on, and not longer.

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

/// First and longest wait before a pass.
const MIN_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(30);

/// How often one that a test halts is looked at.
pub(crate) const FAILPOINT_POLL_INTERVAL: SignedDuration = SignedDuration::from_millis(20);

/// When one is due.
#[derive(Clone, Copy, Debug)]
struct SecondPassBackoff {
    /// Passes so far that found nothing.
    failures: u32,
    /// The time of the next; none while it is under way.
    due_at: Option<Timestamp>,
}

/// What a pass has led to.
#[derive(Clone, Debug)]
pub(crate) enum SecondPassResult {
    /// Places for its pods.
    Assigned(Assignment),
    /// Nothing in place of nodes that have failed: it must go.
    NoReplacement(Arc<str>),
}

/// A decision that has not landed.
#[derive(Clone, Debug)]
struct PendingResult {
    uid: Arc<str>,
    /// Version of the object that it was decided on.
    version: String,
    result: SecondPassResult,
}

impl PendingResult {
    fn is_current_for(&self, record: &WorkloadRecord) -> bool {
        self.uid == record.meta.uid && self.version == record.meta.resource_version
    }
}

/// Passes that are due or under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecondPassQueue {
    backoffs: BTreeMap<Arc<str>, SecondPassBackoff>,
    /// Those whose time has come.
    ready: BTreeSet<ObjectKey>,
    /// Those that a test halts on their way to the scheduler.
    halted: BTreeMap<ObjectKey, SecondPassRequest>,
    pending_results: BTreeMap<ObjectKey, PendingResult>,
    #[cfg(feature = "failpoints")]
    pub(super) stale_objects: super::unguarded::StaleObjects,
}

impl SecondPassQueue {
    /// The object is gone, or holds nothing any more.
    pub(crate) fn forget(&mut self, key: &ObjectKey, uid: &str) {
        self.backoffs.remove(uid);
        self.halted.remove(key);
        self.pending_results.remove(key);
    }

    /// Forgets all; answers whose decisions were forgotten.
    pub(crate) fn clear(&mut self) -> Vec<ObjectKey> {
        self.backoffs.clear();
        self.ready.clear();
        self.halted.clear();
        std::mem::take(&mut self.pending_results).into_keys().collect()
    }

    /// When the next pass is due after so many that found nothing.
    fn schedule(&mut self, uid: &Arc<str>, failures: u32, now: Timestamp) -> Timestamp {
        let wait = backoff::exponential(MIN_BACKOFF, MAX_BACKOFF, failures.saturating_add(1));
        let at = backoff::after(now, wait);
        self.backoffs.insert(Arc::clone(uid), SecondPassBackoff { failures, due_at: Some(at) });
        at
    }
}

impl Reconciler {
    /// Arms a pass for a workload that holds quota, or takes note that its time has come.
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
            // One that had to wait for longer begins anew when it is needed again; the first wait goes on.
            Some(SecondPassBackoff { failures: 1.., .. }) if !needed => {
                self.second_passes.backoffs.remove(&uid);
                return;
            }
            Some(SecondPassBackoff { due_at: Some(at), .. }) => at,
        };
        self.work_queue.add_at(ReconcileKey::Workload(key.clone()), at);
    }

    /// What a workload holds, with places that were found for it on this very version. Those that it leaves count on: it may
    /// have to stay.
    pub(crate) fn with_pending_result(&mut self, key: &ObjectKey, charge: Charge) -> Charge {
        let (Some(standing), Some(record)) =
            (self.second_passes.pending_results.get(key), self.cache.workload(key))
        else {
            return charge;
        };
        if !standing.is_current_for(record) {
            let uid = Arc::clone(&record.meta.uid);
            self.second_passes.forget(key, &uid);
            return charge;
        }
        match (&standing.result, &record.status.admission) {
            (SecondPassResult::Assigned(assignment), Some(admission)) => {
                let both = merge_topologies(admission, assignment);
                Charge {
                    topology: self.occupancies(record, &with_new_topologies(admission, &both)),
                    ..charge
                }
            }
            _ => charge,
        }
    }

    /// Hands those whose time has come to the scheduler, as their objects are now.
    pub(crate) fn dequeue_second_passes(&mut self, now: Timestamp) -> BTreeSet<ObjectKey> {
        let mut taken = BTreeSet::new();
        for key in std::mem::take(&mut self.second_passes.ready) {
            let Some(uid) = self.cache.workload(&key).map(|record| Arc::clone(&record.meta.uid)) else {
                continue;
            };
            if self.halts_at_failpoint(&key, Failpoint::Due, now) {
                continue;
            }
            match self.second_passes.halted.remove(&key).or_else(|| self.read_for_second_pass(&key, now)) {
                Some(again) if self.halts_at_failpoint(&key, Failpoint::ObjectRead, now) => {
                    self.second_passes.halted.insert(key, again);
                }
                Some(again) => {
                    let failures = self.second_passes.backoffs.get(&uid).map_or(0, |due| due.failures);
                    self.second_passes.backoffs.insert(uid, SecondPassBackoff { failures, due_at: None });
                    self.engine.request_second_pass(again);
                    taken.insert(key);
                }
                None => drop(self.second_passes.backoffs.remove(&uid)),
            }
        }
        taken
    }

    /// The workload as the scheduler gets it, if it still wants a pass and may have one.
    fn read_for_second_pass(&self, key: &ObjectKey, now: Timestamp) -> Option<SecondPassRequest> {
        if self.settings.failpoints.lacks(key, SecondPassGuard::Dequeue) {
            return self.to_second_pass_request(key);
        }
        self.eligible_second_pass(key, now)
    }

    /// The workload as a pass takes it: its object wants one, and nothing that was decided or is known speaks against it.
    fn eligible_second_pass(&self, key: &ObjectKey, now: Timestamp) -> Option<SecondPassRequest> {
        let record = self.cache.workload(key)?;
        // Nodes that are well again are taken off the list instead.
        let recovers = || !self.node_health_report(key, record, now).recovered.is_empty();
        if self.engine.preemption_of(key).is_some() || self.is_ending(key, record, now) || recovers() {
            return None;
        }
        self.due_second_pass(key)
    }

    /// Whether the next step of its life is its end, or that of its reservation.
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

    /// A pass has found something: it stands until it has landed, or the object has moved.
    pub(crate) fn record_second_pass_result(
        &mut self,
        key: &ObjectKey,
        uid: &Arc<str>,
        found: SecondPassResult,
    ) {
        let Some(record) = self.cache.workload(key) else { return };
        let (uid, version) = (Arc::clone(uid), record.meta.resource_version.clone());
        let charge = self.charge_from_admission(record);
        self.second_passes.pending_results.insert(key.clone(), PendingResult { uid, version, result: found });
        if let Some(charge) = charge {
            let charge = self.with_pending_result(key, charge);
            self.engine.charge(key, charge);
        }
    }

    /// A pass has found nothing: the reservation stays, and the next one comes later.
    pub(crate) fn requeue_second_pass(&mut self, key: &ObjectKey, why: Option<&str>, now: Timestamp) {
        let Some(record) = self.cache.workload(key) else { return };
        let uid = Arc::clone(&record.meta.uid);
        if let Some(why) = why {
            self.writes.emit(workload_event(record, true, "SecondPassFailed", why.to_owned()));
        }
        let failures = self.second_passes.backoffs.get(&uid).map_or(0, |due| due.failures).saturating_add(1);
        let at = self.second_passes.schedule(&uid, failures, now);
        self.work_queue.add_at(ReconcileKey::Workload(key.clone()), at);
    }

    /// Writes what a pass has found, if it still may; whether that is what comes next for the workload.
    pub(crate) fn write_second_pass_result(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let (Some(standing), Some(record)) =
            (self.second_passes.pending_results.get(key), self.cache.workload(key))
        else {
            return false;
        };
        let may = || {
            self.settings.failpoints.lacks(key, SecondPassGuard::Recheck)
                || self.eligible_second_pass(key, now).is_some()
        };
        if !standing.is_current_for(record) || !may() {
            self.discard_second_pass_result(key);
            return false;
        }
        if self.halts_at_failpoint(key, Failpoint::Decided, now) {
            return true;
        }
        let Some((standing, record)) =
            self.second_passes.pending_results.get(key).zip(self.cache.workload(key))
        else {
            return false;
        };
        let (status, notice) = match &standing.result {
            SecondPassResult::Assigned(assignment) => {
                let mut status = second_pass_status(record, assignment, now);
                let admitted = !conditions::is_true(&record.status, ConditionType::Admitted)
                    && conditions::is_true(&status, ConditionType::Admitted);
                if admitted && self.settings.lifecycle.pods_ready.is_some() {
                    pods_ready::observe(&mut status, false, record.meta.generation, now);
                }
                (status, admitted.then_some(Transition::Admitted))
            }
            SecondPassResult::NoReplacement(why) => {
                let cause = eviction::EvictionCause::new(eviction::NODE_FAILURES, &**why);
                let first = eviction::eviction_count(&record.status, &cause) == 0;
                (node_failure_status(record, why, now), Some(Transition::Evicted(cause, first)))
            }
        };
        let tell = notice.iter().flat_map(|notice| self.effects_of(record, notice, now)).collect();
        self.send_status(key, Box::new(status), WritePurpose::SecondPass, tell);
        true
    }

    /// Whether a test halts a pass here; it is looked at again soon.
    fn halts_at_failpoint(&mut self, key: &ObjectKey, at: Failpoint, now: Timestamp) -> bool {
        let halts = self.settings.failpoints.halts(key, at);
        if halts {
            self.work_queue
                .add_at(ReconcileKey::Workload(key.clone()), backoff::after(now, FAILPOINT_POLL_INTERVAL));
        }
        halts
    }

    /// What was found does not stand any more: the ledger says again what the object says.
    pub(crate) fn discard_second_pass_result(&mut self, key: &ObjectKey) {
        if self.second_passes.pending_results.remove(key).is_none() {
            return;
        }
        let Some(record) = self.cache.workload(key) else { return };
        self.second_passes.backoffs.remove(&record.meta.uid);
        if let Some(charge) = self.charge_from_admission(record) {
            self.engine.charge(key, charge);
        }
    }

    /// Lets the end of a workload overtake the write of a pass that is under way: both carry the same version, so that one
    /// of them lands.
    pub(crate) fn supersede_second_pass_write(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.cache.workload(key) else { return false };
        let waits = !self.writes.is_second_pass_in_flight(key)
            || self.settings.failpoints.lacks(key, SecondPassGuard::SupersedeWrite);
        if waits || !self.is_ending(key, record, now) {
            return false;
        }
        self.writes.supersede(key);
        self.discard_second_pass_result(key);
        true
    }
}

/// The places that were found, and those of the admission that are left for them.
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
