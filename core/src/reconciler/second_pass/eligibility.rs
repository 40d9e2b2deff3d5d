//! Eligibility of Workloads for a second pass of scheduling, decided on their current objects.

use crate::api::reason::ConditionType;
use crate::api::v1beta2::{Admission, CheckState, WorkloadStatus};
use crate::cache::Cache;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Framework, framework};
use crate::lifecycle::workload::{WorkloadStep, plan};
use crate::lifecycle::{checks, conditions};
use crate::reconciler::nodes::health::HostHealth;
use crate::reconciler::nodes::topology_status::granted_topology;
use crate::reconciler::scheduler_input::SchedulerInput;
use crate::reconciler::workload::WorkloadFacts;
use crate::scheduler::{Assignment, PodSet, PodSetAssignment, SecondPassRequest};
use crate::topology::{PodRequirements, decode};
use jiff::Timestamp;
use std::sync::Arc;

/// Returns the request for a second pass if the Workload can use one now: it keeps its reservation, and either lacks a
/// topology assignment that can be computed now or is assigned to failed nodes.
pub(crate) fn due_second_pass(
    input: SchedulerInput<'_>,
    record: &WorkloadRecord,
) -> Option<SecondPassRequest> {
    let admission = record.status.admission.as_ref()?;
    if !is_second_pass_eligible(record)
        || is_draining(input.cache, record)
        || !has_topology_to_assign(record, admission)
    {
        return None;
    }
    to_second_pass_request(input, record)
}

/// Returns the request for a second pass, whether or not the Workload needs one.
pub(super) fn to_second_pass_request(
    input: SchedulerInput<'_>,
    record: &WorkloadRecord,
) -> Option<SecondPassRequest> {
    let admission = record.status.admission.as_ref()?;
    let mut workload = input.to_pending_workload(record)?;
    workload.cluster_queue = Arc::from(admission.cluster_queue.as_str());
    workload.pod_sets = workload.pod_sets.iter().map(|set| with_check_updates(set, &record.status)).collect();
    let unhealthy = record.status.unhealthy_nodes.iter().map(|node| node.name.clone()).collect();
    Some(SecondPassRequest {
        workload,
        granted: granted_assignment(admission, record),
        unhealthy_nodes: unhealthy,
    })
}

/// Returns the request for a pass if the object is eligible and the Workload is not a preemption victim, is not about to
/// end, and has no recovered node.
pub(super) fn eligible_second_pass(
    facts: WorkloadFacts<'_>,
    record: &WorkloadRecord,
    now: Timestamp,
) -> Option<SecondPassRequest> {
    let (cache, settings) = (facts.cache, facts.settings);
    let hosts = HostHealth { cache, gates: settings.gates.node_failures };
    // A recovered node is removed from `unhealthyNodes` instead of being replaced.
    let recovers = || !hosts.report(record, now).recovered.is_empty();
    if facts.engine.preemption_of(&record.meta.key).is_some() || is_ending(facts, record, now) || recovers() {
        return None;
    }
    due_second_pass(SchedulerInput { cache, settings }, record)
}

/// Returns whether the next lifecycle step ends the Workload or its reservation.
pub(super) fn is_ending(facts: WorkloadFacts<'_>, record: &WorkloadRecord, now: Timestamp) -> bool {
    let (input, around) = (facts.input(record), facts.of(record, now));
    match plan(&input, &around, &facts.settings.lifecycle, now).step {
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

/// Returns whether the LocalQueue or the ClusterQueue of a Workload evicts its reserving workloads (`HoldAndDrain`).
pub(super) fn is_draining(cache: &Cache, record: &WorkloadRecord) -> bool {
    use crate::api::v1beta2::StopPolicy::HoldAndDrain;
    let local = record.local_queue().and_then(|key| cache.local_queue(&key));
    let cluster = cache.cluster_queue_name(record).and_then(|name| cache.cluster_queue(name));
    let policies = [
        local.and_then(|queue| queue.object.spec.stop_policy),
        cluster.and_then(|queue| queue.object.spec.stop_policy),
    ];
    policies.contains(&Some(HoldAndDrain))
}

/// Returns whether a Workload needs a second pass and is eligible for one. Stop policies of queues are not checked.
pub(super) fn needs_second_pass(record: &WorkloadRecord) -> bool {
    let status = &record.status;
    let admission = status.admission.as_ref();
    let cause =
        |admission: &Admission| !status.unhealthy_nodes.is_empty() || checks::awaits_topology(admission);
    admission.is_some_and(|admission| {
        cause(admission) && is_second_pass_eligible(record) && has_topology_to_assign(record, admission)
    })
}

/// Returns whether a Workload holds a quota reservation that neither its own state nor an admission check ends.
pub(super) fn is_second_pass_eligible(record: &WorkloadRecord) -> bool {
    let status = &record.status;
    let holds = |kind| conditions::is_true(status, kind);
    holds(ConditionType::QuotaReserved)
        && !holds(ConditionType::Finished)
        && !holds(ConditionType::Evicted)
        && !holds(ConditionType::DeactivationTarget)
        && record.active
        && !record.meta.is_deleting()
        && checks::required_action(status).is_none()
}

/// Returns whether a second pass can compute a topology assignment: before admission a delayed one, once all checks are
/// ready; after admission one that replaces failed nodes. Failed nodes do not matter before admission, since no pod
/// runs yet. A single pod cannot move to another node: its node stays listed as failed.
fn has_topology_to_assign(record: &WorkloadRecord, admission: &Admission) -> bool {
    let status = &record.status;
    if !conditions::is_true(status, ConditionType::Admitted) {
        let checks = &status.admission_checks;
        return !checks.is_empty()
            && checks.iter().all(|check| check.state == CheckState::Ready)
            && checks::awaits_topology(admission);
    }
    let placements = admission.pod_set_assignments.iter().filter_map(|set| set.topology_assignment.as_ref());
    let failed = |placement: &crate::topology::Placement| {
        status.unhealthy_nodes.iter().any(|node| placement.contains_host(&node.name))
    };
    !is_single_pod(record) && placements.filter_map(decode).any(|placement| failed(&placement))
}

fn is_single_pod(record: &WorkloadRecord) -> bool {
    let owner = record.owner.as_ref().and_then(|owner| framework(owner.group(), &owner.kind));
    owner.is_some_and(Framework::is_pod) && record.other_owners.is_empty() && !record.annotations.is_pod_group
}

/// Returns the pod set with the node selectors and tolerations that ready checks add.
fn with_check_updates(set: &PodSet, status: &WorkloadStatus) -> PodSet {
    let ready = status.admission_checks.iter().filter(|check| check.state == CheckState::Ready);
    let updates = ready.flat_map(|check| &check.pod_set_updates).filter(|update| update.name == *set.name);
    let mut pods = PodRequirements::clone(&set.pod_requirements);
    for update in updates {
        pods.node_selector.extend(update.node_selector.clone());
        pods.tolerations.extend(update.tolerations.iter().cloned());
    }
    PodSet { pod_requirements: Arc::new(pods), ..set.clone() }
}

fn granted_assignment(admission: &Admission, record: &WorkloadRecord) -> Assignment {
    let to_pod_set = |set: &crate::api::v1beta2::PodSetAssignment| {
        let spec = record.pod_sets().iter().find(|known| *known.name == *set.name);
        let amount = |resource: &str, quantity: &_| crate::cache::kinds::to_amount(resource, quantity);
        PodSetAssignment {
            name: Arc::from(set.name.as_str()),
            count: set.count.or_else(|| spec.map(|spec| spec.count)).unwrap_or(0),
            flavors: set
                .flavors
                .iter()
                .map(|(r, f)| (Arc::from(r.as_str()), Arc::from(f.as_str())))
                .collect(),
            usage: set.resource_usage.iter().map(|(r, q)| (Arc::from(r.as_str()), amount(r, q))).collect(),
            topology: granted_topology(set),
        }
    };
    Assignment {
        cluster_queue: Arc::from(admission.cluster_queue.as_str()),
        pod_sets: admission.pod_set_assignments.iter().map(to_pod_set).collect(),
    }
}
