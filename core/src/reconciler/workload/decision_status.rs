//! Maps scheduler decisions to statuses of Workloads.

use super::WorkloadFacts;
use crate::api::v1beta2::{Admission, PodSetAssignment, WorkloadStatus};
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::{carried, checks, eviction, pods_ready, reservation, workload};
use crate::reconciler::nodes::topology_status::with_new_topologies;
use crate::resources;
use crate::scheduler::{Assignment, Victim};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Replaces an unknown UID in messages.
const UNKNOWN_UID: &str = "UNKNOWN";

impl WorkloadFacts<'_> {
    /// Returns the status with a quota reservation, and with the Admitted condition if no check or topology is pending.
    pub(crate) fn admitted_status(
        self,
        record: &WorkloadRecord,
        assignment: &Assignment,
        now: Timestamp,
    ) -> WorkloadStatus {
        let queue = self.cache.cluster_queue(&assignment.cluster_queue);
        let admission = to_admission(assignment);
        let names = queue.map(|q| checks::applicable(&q.object, Some(&admission))).unwrap_or_default();
        let facts = self.of(record, now);
        let mut status = workload::status_for_admission(&self.input(record), &facts, now);
        // The job keeps running on the former slice until this one has its quota.
        let former = record.annotations.replaces.as_ref().and_then(|slice| self.cache.workload(slice));
        let former = former.filter(|slice| slice.owner_uids().next() == record.owner_uids().next());
        let former = former.filter(|_| carried::takes_over(&record.status));
        if let Some(carried) = former.and_then(|slice| slice.carried(now)) {
            carried.apply(&mut status);
        }
        let generation = record.meta.generation;
        reservation::reserve(&mut status, admission, generation, now);
        checks::add(&mut status, &names, now);
        reservation::sync_admitted(&mut status, generation, now);
        if self.settings.lifecycle.pods_ready.is_some() && facts.owner.has_pods() {
            pods_ready::observe(&mut status, false, generation, now);
        }
        status
    }
}

/// Returns the message for the conditions of a preemption victim.
pub(crate) fn preemption_message(preemptor: &WorkloadRecord, victim: &Victim) -> String {
    let uid = if preemptor.meta.uid.is_empty() { UNKNOWN_UID } else { &preemptor.meta.uid };
    format!(
        "Preempted to accommodate a workload (UID: {uid}, JobUID: {}) due to {}; preemptor path: {}; \
         preemptee path: {}",
        preemptor.job_uid.as_deref().unwrap_or(UNKNOWN_UID),
        victim.reason.text(),
        victim.preemptor_path,
        victim.preemptee_path,
    )
}

/// Returns the status of a reserving Workload with the topology assignments of a second pass.
pub(crate) fn second_pass_status(
    record: &WorkloadRecord,
    assignment: &Assignment,
    now: Timestamp,
) -> WorkloadStatus {
    let mut status = (*record.status).clone();
    status.admission = status.admission.as_ref().map(|known| with_new_topologies(known, assignment));
    status.unhealthy_nodes.clear();
    reservation::sync_admitted(&mut status, record.meta.generation, now);
    reservation::confirm(&mut status, record.meta.generation, now);
    status
}

/// Returns the status of a Workload that is evicted because nodes have failed.
pub(crate) fn node_failure_status(record: &WorkloadRecord, message: &str, now: Timestamp) -> WorkloadStatus {
    let mut status = (*record.status).clone();
    let cause = eviction::EvictionCause::new(eviction::NODE_FAILURES, message);
    eviction::evict(&mut status, &cause, record.meta.generation, now);
    status
}

/// Returns the API admission for an assignment.
pub(crate) fn to_admission(assignment: &Assignment) -> Admission {
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
