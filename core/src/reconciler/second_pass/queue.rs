//! Queue of second passes: which Workloads are due, when, and results whose write has not landed.
//!
//! Invariants: the queue stores only UID and due time, never an object. A result counts in the ledger only while the object
//! is unchanged since the decision.

use super::eligibility::needs_second_pass;
use crate::api::ObjectKey;
use crate::api::v1beta2::Admission;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::backoff;
use crate::reconciler::nodes::topology_status::with_new_topologies;
use crate::reconciler::scheduler_input::SchedulerInput;
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use crate::scheduler::{Assignment, Charge, PodSetPlacement};
use crate::topology::decode;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// First and maximum wait before a pass.
const MIN_BACKOFF: SignedDuration = SignedDuration::from_secs(1);
const MAX_BACKOFF: SignedDuration = SignedDuration::from_secs(30);

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
pub(super) struct PendingResult {
    uid: Arc<str>,
    /// The resourceVersion of the object that the result was decided on.
    version: String,
    pub(super) result: SecondPassResult,
}

impl PendingResult {
    pub(super) fn is_current_for(&self, record: &WorkloadRecord) -> bool {
        self.uid == record.meta.uid && self.version == record.meta.resource_version
    }
}

/// Second passes that are scheduled or in progress, and results that are not written yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecondPassQueue {
    backoffs: BTreeMap<Arc<str>, SecondPassBackoff>,
    /// Workloads whose pass is due.
    ready: BTreeSet<ObjectKey>,
    pending_results: BTreeMap<ObjectKey, PendingResult>,
    /// Passes that a test changes.
    pub(super) scripted: super::scripted::ScriptedPasses,
}

impl SecondPassQueue {
    /// Drops the state of a Workload that was deleted or no longer holds quota.
    pub(crate) fn forget(&mut self, key: &ObjectKey, uid: &str) {
        self.backoffs.remove(uid);
        self.pending_results.remove(key);
    }

    /// Drops all state. Returns the Workloads whose results were dropped.
    pub(crate) fn clear(&mut self) -> Vec<ObjectKey> {
        self.backoffs.clear();
        self.ready.clear();
        std::mem::take(&mut self.pending_results).into_keys().collect()
    }

    /// Schedules the next pass after a number of failures, with exponential backoff. Returns its due time.
    fn schedule(&mut self, uid: &Arc<str>, failures: u32, now: Timestamp) -> Timestamp {
        let wait = backoff::exponential(MIN_BACKOFF, MAX_BACKOFF, failures.saturating_add(1));
        let at = backoff::after(now, wait);
        self.backoffs.insert(Arc::clone(uid), SecondPassBackoff { failures, due_at: Some(at) });
        at
    }

    /// Schedules a pass for a Workload that holds quota and needs one, or marks its pass as due.
    pub(crate) fn plan(&mut self, record: &WorkloadRecord, work_queue: &mut WorkQueue, now: Timestamp) {
        let (key, uid) = (&record.meta.key, &record.meta.uid);
        let (needed, known) = (needs_second_pass(record), self.backoffs.get(uid).copied());
        if self.pending_results.contains_key(key) {
            return;
        }
        let at = match known {
            None if needed => self.schedule(uid, 0, now),
            None | Some(SecondPassBackoff { due_at: None, .. }) => return,
            Some(SecondPassBackoff { due_at: Some(at), .. }) if at <= now => {
                self.ready.insert(key.clone());
                return;
            }
            // A pass that is not needed now and has failed before starts at the first backoff when it is needed again.
            // A first wait continues.
            Some(SecondPassBackoff { failures: 1.., .. }) if !needed => {
                self.backoffs.remove(uid);
                return;
            }
            Some(SecondPassBackoff { due_at: Some(at), .. }) => at,
        };
        work_queue.add_at(ReconcileKey::workload(key.clone()), at);
    }

    /// Removes and returns the Workloads whose pass is due.
    pub(super) fn take_ready(&mut self) -> BTreeSet<ObjectKey> {
        std::mem::take(&mut self.ready)
    }

    /// Records that the scheduler has the request for a pass.
    pub(super) fn start(&mut self, uid: &Arc<str>) {
        let failures = self.failures(uid);
        self.backoffs.insert(Arc::clone(uid), SecondPassBackoff { failures, due_at: None });
    }

    /// Drops the pass of a Workload that is not eligible.
    pub(super) fn cancel(&mut self, uid: &str) {
        self.backoffs.remove(uid);
    }

    /// Schedules the next pass after one without a result. Returns its due time.
    pub(super) fn requeue(&mut self, uid: &Arc<str>, now: Timestamp) -> Timestamp {
        self.schedule(uid, self.failures(uid).saturating_add(1), now)
    }

    fn failures(&self, uid: &str) -> u32 {
        self.backoffs.get(uid).map_or(0, |backoff| backoff.failures)
    }

    /// Stores the result of a pass until its write has landed or the object has changed.
    pub(super) fn record(&mut self, record: &WorkloadRecord, uid: &Arc<str>, result: SecondPassResult) {
        let (uid, version) = (Arc::clone(uid), record.meta.resource_version.clone());
        self.pending_results.insert(record.meta.key.clone(), PendingResult { uid, version, result });
    }

    /// Returns the pending result of a Workload.
    pub(super) fn pending(&self, key: &ObjectKey) -> Option<&PendingResult> {
        self.pending_results.get(key)
    }

    /// Drops the pending result of a Workload. Returns whether there was one.
    pub(super) fn discard(&mut self, key: &ObjectKey) -> bool {
        self.pending_results.remove(key).is_some()
    }

    /// Returns the charge of a Workload with the topology assignments of its pending result, if that was decided on the
    /// current resourceVersion; otherwise drops the result. Domains that the pods would leave stay charged, because the
    /// pods stay there if the write fails.
    pub(crate) fn with_pending_result(
        &mut self,
        record: &WorkloadRecord,
        charge: Charge,
        input: SchedulerInput<'_>,
    ) -> Charge {
        let Some(pending) = self.pending_results.get(&record.meta.key) else { return charge };
        if !pending.is_current_for(record) {
            self.forget(&record.meta.key, &record.meta.uid);
            return charge;
        }
        match (&pending.result, &record.status.admission) {
            (SecondPassResult::Assigned(assignment), Some(admission)) => {
                let both = merge_topologies(admission, assignment);
                let topology = input.occupancies(record, &with_new_topologies(admission, &both));
                Charge { topology, ..charge }
            }
            _ => charge,
        }
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
