//! Access for simulation, which computes the statuses that decisions lead to instead of writing them (replay of
//! recorded scenarios).

use super::Reconciler;
use super::second_pass::eligibility::due_second_pass;
use super::workload::decision_status::{node_failure_status, preemption_message, second_pass_status};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::WorkloadStatus;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::{conditions, eviction, reservation, workload};
use crate::scheduler::{Decision, Engine, Outcome, Verdict, Victim};
use jiff::Timestamp;

impl Reconciler {
    /// Returns the scheduler.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Returns the scheduler, so that the caller can run single cycles.
    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns whether a Workload exists and was decoded.
    pub(crate) fn knows_workload(&self, key: &ObjectKey) -> bool {
        self.cache.workload(key).is_some()
    }

    /// Returns the Workloads that count as pending without being queued, with their ClusterQueues.
    pub(crate) fn waiting_workloads(&self, now: Timestamp) -> impl Iterator<Item = (&str, &ObjectKey)> {
        self.cache.workloads().filter_map(move |(key, record)| {
            let facts = self.workload_facts().of(record, now);
            let plan =
                workload::plan(&self.workload_facts().input(record), &facts, &self.settings.lifecycle, now);
            let waits =
                plan.membership == workload::QueueMembership::Waiting && self.engine.workload(key).is_none();
            self.cache.cluster_queue_name(record).filter(|_| waits).map(|queue| (queue, key))
        })
    }

    /// Queues Workloads with invalid requests, so that nominating them reports why.
    pub(crate) fn enqueue_invalid(&mut self) {
        let invalid =
            self.cache.workloads().filter(|(_, record)| record.effective_requests.misconfiguration.is_some());
        let input = self.scheduler_input();
        let workloads: Vec<_> = invalid.filter_map(|(_, record)| input.to_pending_workload(record)).collect();
        for workload in workloads {
            self.engine.enqueue(workload);
        }
    }

    /// Requests all due second passes from the scheduler.
    pub(crate) fn enqueue_second_passes(&mut self) {
        let input = self.scheduler_input();
        let requests = self.cache.workloads().filter_map(|(_, record)| due_second_pass(input, record));
        for request in requests.collect::<Vec<_>>() {
            self.engine.request_second_pass(request);
        }
    }

    /// Returns the objects that cannot be decoded, and why.
    pub(crate) fn unreadable_objects(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        self.warnings.unreadable_objects()
    }

    /// Returns the statuses that a decision leads to; the status of the nominated workload comes first.
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
                status_before_check_sync(
                    self.workload_facts().admitted_status(record, assignment, now),
                    record,
                )
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

    /// Returns the status of the workload slice that an admitted Workload replaces.
    fn replaced_slice_status(
        &self,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> Option<(ObjectKey, WorkloadStatus)> {
        let old = self.cache.workload(self.scheduler_input().replaced_slice(record)?)?;
        let mut status = (*old.status).clone();
        let update = conditions::ConditionUpdate {
            kind: ConditionType::Finished,
            holds: true,
            reason: eviction::SLICE_REPLACED,
            message: &eviction::slice_replaced_message(
                &record.meta.uid,
                record.job_uid.as_deref().unwrap_or_default(),
            ),
        };
        conditions::set(&mut status, &update, old.meta.generation, now);
        Some((old.meta.key.clone(), status))
    }

    /// Returns the status of a victim.
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

/// Returns the status that the write of the cycle sets. If admission checks are not listed in the status yet, a later
/// step adds them, and the condition `Admitted` stays as it is until then.
fn status_before_check_sync(mut status: WorkloadStatus, record: &WorkloadRecord) -> WorkloadStatus {
    let listed = |name: &str| record.status.admission_checks.iter().any(|check| check.name == name);
    if !status.admission_checks.iter().all(|check| listed(&check.name)) {
        let kind = ConditionType::Admitted.as_str();
        status.conditions.retain(|condition| condition.type_ != kind);
        status.conditions.extend(conditions::find(&record.status, ConditionType::Admitted).cloned());
    }
    status
}

/// Returns the status of a workload that stays pending.
fn pending_status(record: &WorkloadRecord, verdict: &Verdict, now: Timestamp) -> WorkloadStatus {
    let mut status = (*record.status).clone();
    reservation::set_pending(&mut status, verdict.reason, &verdict.to_string(), record.meta.generation, now);
    status
}
