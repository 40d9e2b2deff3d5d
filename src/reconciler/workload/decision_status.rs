//! What decisions make of Workloads: the one place for the writes that follow, and for whoever looks ahead without writing.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{Admission, PodSetAssignment, WorkloadStatus};
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::{checks, conditions, eviction, pods_ready, reservation, workload};
use crate::reconciler::Reconciler;
use crate::reconciler::second_pass::eligibility as second_pass;
use crate::resources;
use crate::scheduler::{Assignment, Decision, Engine, Outcome, Verdict, Victim};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What stands for a UID that is not known.
const UNKNOWN_UID: &str = "UNKNOWN";

impl Reconciler {
    /// The scheduler, for a replica that looks ahead instead of acting.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The same, to be driven by hand.
    pub(crate) fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Whether there is such a Workload, and it could be read.
    pub(crate) fn knows_workload(&self, key: &ObjectKey) -> bool {
        self.workloads.contains_key(key)
    }

    /// Workloads that count as pending without a place in the queue.
    pub(crate) fn waiting_workloads(&self, now: Timestamp) -> impl Iterator<Item = (&str, &ObjectKey)> {
        self.workloads.iter().filter_map(move |(key, record)| {
            let facts = self.workload_facts(key, record, now);
            let place = workload::plan(&self.workload_input(record), &facts, &self.settings.lifecycle, now)
                .membership;
            let waits = place == workload::QueueMembership::Waiting && self.engine.workload(key).is_none();
            self.cluster_queue_name(record).filter(|_| waits).map(|queue| (queue, key))
        })
    }

    /// Queues those whose requests are not valid, so that their turn comes and says so.
    pub(crate) fn enqueue_invalid(&mut self) {
        let obstructed =
            self.workloads.iter().filter(|(_, record)| record.effective_requests.misconfiguration.is_some());
        let keys: Vec<ObjectKey> = obstructed.map(|(key, _)| key.clone()).collect();
        for workload in keys.iter().filter_map(|key| self.to_pending_workload(key)).collect::<Vec<_>>() {
            self.engine.enqueue(workload);
        }
    }

    /// Has all judged again that are due for it.
    pub(crate) fn enqueue_second_passes(&mut self) {
        let keys: Vec<ObjectKey> = self.workloads.keys().cloned().collect();
        for again in keys.iter().filter_map(|key| self.due_second_pass(key)).collect::<Vec<_>>() {
            self.engine.request_second_pass(again);
        }
    }

    /// Objects that cannot be read, and why.
    pub(crate) fn unreadable_objects(&self) -> impl Iterator<Item = (&ObjectKey, &str)> {
        self.unreadable.iter().map(|((_, key), unreadable)| (key, unreadable.problem.as_str()))
    }

    /// The statuses that a decision leads to, first that of the workload that was judged.
    pub(crate) fn statuses_after(
        &self,
        decision: &Decision,
        now: Timestamp,
    ) -> Vec<(ObjectKey, WorkloadStatus)> {
        let Some(record) = self.workloads.get(&decision.key) else {
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

    /// The status with a reservation, and with the admission if nothing else is waited for.
    pub(in crate::reconciler) fn admitted_status(
        &self,
        record: &WorkloadRecord,
        assignment: &Assignment,
        now: Timestamp,
    ) -> WorkloadStatus {
        let queue = self.cluster_queues.get(&assignment.cluster_queue);
        let admission = to_admission(assignment);
        let names = queue.map(|q| checks::applicable(&q.object, Some(&admission))).unwrap_or_default();
        let facts = self.workload_facts(&record.meta.key, record, now);
        let mut status = workload::status_for_admission(&self.workload_input(record), &facts, now);
        let generation = record.meta.generation;
        reservation::reserve(&mut status, admission, generation, now);
        checks::add(&mut status, &names, now);
        reservation::sync_admitted(&mut status, generation, now);
        if self.settings.lifecycle.pods_ready.is_some() {
            pods_ready::observe(&mut status, false, generation, now);
        }
        status
    }

    /// The slice that an admitted one takes over from is over.
    fn replaced_slice_status(
        &self,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> Option<(ObjectKey, WorkloadStatus)> {
        let old = self.workloads.get(self.replaced_slice(record)?)?;
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

    /// The status of one that must go for another.
    fn preempted_status(
        &self,
        preemptor: &WorkloadRecord,
        victim: &Victim,
        now: Timestamp,
    ) -> Option<(ObjectKey, WorkloadStatus)> {
        let record = self.workloads.get(&victim.key)?;
        let mut status = (*record.status).clone();
        let message = preemption_message(preemptor, victim);
        eviction::preempt(&mut status, victim.reason, &message, record.meta.generation, now);
        Some((victim.key.clone(), status))
    }
}

/// The words for a preemption, in the conditions of the victim.
pub(in crate::reconciler) fn preemption_message(preemptor: &WorkloadRecord, victim: &Victim) -> String {
    let uid = if preemptor.meta.uid.is_empty() { UNKNOWN_UID } else { &preemptor.meta.uid };
    format!(
        "Preempted to accommodate a workload (UID: {uid}, JobUID: {}) due to {}; preemptor path: {}; preemptee path: {}",
        preemptor.job_uid.as_deref().unwrap_or(UNKNOWN_UID),
        victim.reason.text(),
        victim.preemptor_path,
        victim.preemptee_path,
    )
}

/// What the cycle itself makes of a status: where checks are not listed yet, the step that follows lists them and says
/// that they are not ready.
fn status_before_check_sync(mut status: WorkloadStatus, record: &WorkloadRecord) -> WorkloadStatus {
    let listed = |name: &str| record.status.admission_checks.iter().any(|check| check.name == name);
    if !status.admission_checks.iter().all(|check| listed(&check.name)) {
        let kind = ConditionType::Admitted.as_str();
        status.conditions.retain(|condition| condition.type_ != kind);
        status.conditions.extend(conditions::find(&record.status, ConditionType::Admitted).cloned());
    }
    status
}

/// The status of one that holds its reservation and was given places for its pods.
pub(in crate::reconciler) fn second_pass_status(
    record: &WorkloadRecord,
    assignment: &Assignment,
    now: Timestamp,
) -> WorkloadStatus {
    let mut status = (*record.status).clone();
    status.admission =
        status.admission.as_ref().map(|known| second_pass::with_new_topologies(known, assignment));
    status.unhealthy_nodes.clear();
    reservation::sync_admitted(&mut status, record.meta.generation, now);
    reservation::confirm(&mut status, record.meta.generation, now);
    status
}

/// The status of one that must go because nodes have failed.
pub(in crate::reconciler) fn node_failure_status(
    record: &WorkloadRecord,
    message: &str,
    now: Timestamp,
) -> WorkloadStatus {
    let mut status = (*record.status).clone();
    let cause = eviction::EvictionCause::new(eviction::NODE_FAILURES, message);
    eviction::evict(&mut status, &cause, record.meta.generation, now);
    status
}

/// The status of one that waits on.
fn pending_status(record: &WorkloadRecord, verdict: &Verdict, now: Timestamp) -> WorkloadStatus {
    let mut status = (*record.status).clone();
    reservation::set_pending(&mut status, verdict.reason, &verdict.to_string(), record.meta.generation, now);
    status
}

/// What a decision grants, as the object states it.
pub(in crate::reconciler) fn to_admission(assignment: &Assignment) -> Admission {
    let pod_set_assignments = assignment
        .pod_sets
        .iter()
        .map(|set| (set, crate::reconciler::nodes::topology_status::to_topology_status(&set.topology)))
        .map(|(set, (topology_assignment, delayed_topology_request))| PodSetAssignment {
            name: set.name.to_string(),
            flavors: set.flavors.iter().map(|(r, f)| (r.to_string(), f.to_string())).collect(),
            resource_usage: set
                .usage
                .iter()
                .map(|(r, a)| (r.to_string(), Quantity(resources::format_quantity(r, *a))))
                .collect(),
            count: Some(set.count),
            topology_assignment,
            delayed_topology_request,
        })
        .collect();
    Admission { cluster_queue: assignment.cluster_queue.to_string(), pod_set_assignments }
}
