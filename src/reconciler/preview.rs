//! What decisions would lead to, for a replica that looks ahead instead of writing (replay of recorded scenarios).

use super::Reconciler;
use super::workload::decision_status::{node_failure_status, preemption_message, second_pass_status};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::{conditions, eviction, reservation, workload};
use crate::scheduler::{Decision, Engine, Outcome, Verdict, Victim};
use jiff::Timestamp;

impl Reconciler {
    /// The scheduler.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The scheduler, to be driven by hand.
    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Whether a Workload exists and could be read.
    pub(crate) fn knows_workload(&self, key: &ObjectKey) -> bool {
        self.cache.workload(key).is_some()
    }

    /// Workloads that count as pending without being queued, with their ClusterQueues.
    pub(crate) fn waiting_workloads(&self, now: Timestamp) -> impl Iterator<Item = (&str, &ObjectKey)> {
        self.cache.workloads().filter_map(move |(key, record)| {
            let facts = self.workload_facts(key, record, now);
            let place = workload::plan(&self.workload_input(record), &facts, &self.settings.lifecycle, now)
                .membership;
            let waits = place == workload::QueueMembership::Waiting && self.engine.workload(key).is_none();
            self.cache.cluster_queue_name(record).filter(|_| waits).map(|queue| (queue, key))
        })
    }

    /// Queues Workloads with invalid requests, so that nominating them reports why.
    pub(crate) fn enqueue_invalid(&mut self) {
        let invalid =
            self.cache.workloads().filter(|(_, record)| record.effective_requests.misconfiguration.is_some());
        let keys: Vec<ObjectKey> = invalid.map(|(key, _)| key.clone()).collect();
        for workload in keys.iter().filter_map(|key| self.to_pending_workload(key)).collect::<Vec<_>>() {
            self.engine.enqueue(workload);
        }
    }

    /// Requests the second passes that are due.
    pub(crate) fn enqueue_second_passes(&mut self) {
        let keys: Vec<ObjectKey> = self.cache.workloads().map(|(key, _)| key.clone()).collect();
        for request in keys.iter().filter_map(|key| self.due_second_pass(key)).collect::<Vec<_>>() {
            self.engine.request_second_pass(request);
        }
    }

    /// Objects that cannot be read, and why.
    pub(crate) fn unreadable_objects(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        self.warnings.unreadable_objects()
    }

    /// The statuses that a decision leads to, first the one of the nominated workload.
    pub(crate) fn statuses_after(
        &self,
        decision: &Decision,
        now: Timestamp,
    ) -> Vec<(ObjectKey, WorkloadStatus)> {
        let Some(record) = self.cache.workload(&decision.key) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        let own = match &decision.outcome {
            Outcome::Admitted(assignment) => {
                all.extend(self.replaced_slice_status(record, now));
                status_before_check_sync(self.admitted_status(record, assignment, now), record)
            }
            Outcome::Pending(verdict) | Outcome::Skipped(verdict) | Outcome::PreemptionGated(verdict) => {
                pending_status(record, verdict, now)
            }
            Outcome::Preempting(verdict, victims) => {
                all.extend(victims.iter().filter_map(|victim| self.preempted_status(record, victim, now)));
                if reservation::holds_quota(&record.status) {
                    return all;
                }
                pending_status(record, verdict, now)
            }
            Outcome::TopologyAssigned(assignment) => second_pass_status(record, assignment, now),
            Outcome::TopologyPending(_) => return all,
            Outcome::ReplacementFailed(message) => node_failure_status(record, message, now),
        };
        all.insert(0, (decision.key.clone(), own));
        all
    }

    /// The status of the slice that an admitted Workload replaces.
    fn replaced_slice_status(
        &self,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> Option<(ObjectKey, WorkloadStatus)> {
        let old = self.cache.workload(self.replaced_slice(record)?)?;
        let mut status = (*old.status).clone();
        let statement = conditions::ConditionUpdate {
            kind: ConditionType::Finished,
            holds: true,
            reason: eviction::SLICE_REPLACED,
            message: &eviction::slice_replaced_message(
                &record.meta.uid,
                record.job_uid.as_deref().unwrap_or_default(),
            ),
        };
        conditions::set(&mut status, &statement, old.meta.generation, now);
        Some((old.meta.key.clone(), status))
    }

    /// The status of a victim.
    fn preempted_status(
        &self,
        preemptor: &WorkloadRecord,
        victim: &Victim,
        now: Timestamp,
    ) -> Option<(ObjectKey, WorkloadStatus)> {
        let record = self.cache.workload(&victim.key)?;
        let mut status = (*record.status).clone();
        let message = preemption_message(preemptor, victim);
        eviction::preempt(&mut status, victim.reason, &message, record.meta.generation, now);
        Some((victim.key.clone(), status))
    }
}

/// The status that the cycle itself writes: checks that are not listed yet are added by the step that follows.
fn status_before_check_sync(mut status: WorkloadStatus, record: &WorkloadRecord) -> WorkloadStatus {
    let listed = |name: &str| record.status.admission_checks.iter().any(|check| check.name == name);
    if !status.admission_checks.iter().all(|check| listed(&check.name)) {
        let kind = ConditionType::Admitted.as_str();
        status.conditions.retain(|condition| condition.type_ != kind);
        status.conditions.extend(conditions::find(&record.status, ConditionType::Admitted).cloned());
    }
    status
}

/// The status of a workload that stays pending.
fn pending_status(record: &WorkloadRecord, verdict: &Verdict, now: Timestamp) -> WorkloadStatus {
    let mut status = (*record.status).clone();
    reservation::set_pending(&mut status, verdict.reason, &verdict.to_string(), record.meta.generation, now);
    status
}
