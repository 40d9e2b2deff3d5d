//! Who is due for a second pass of scheduling, as the objects stand.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{Admission, CheckState, WorkloadStatus};
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::checks::{self, CheckAction};
use crate::lifecycle::conditions;
use crate::reconciler::Reconciler;
use crate::reconciler::nodes::topology_status::granted_topology;
use crate::scheduler::{Assignment, PodSet, PodSetAssignment, SecondPassRequest};
use crate::topology::{PodRequirements, decode};
use std::sync::Arc;

/// The label key of the topology gate in lists of owners.
const POD_KIND: &str = "Pod";

impl Reconciler {
    /// The workload as a second pass would take it, if it is due: it holds its reservation, runs on, and lacks a topology
    /// that can be had now, or stands on nodes that have failed.
    pub(crate) fn due_second_pass(&self, key: &ObjectKey) -> Option<SecondPassRequest> {
        let record = self.cache.workload(key)?;
        let admission = record.status.admission.as_ref()?;
        if !is_second_pass_eligible(record)
            || self.is_draining(record)
            || !has_topology_to_assign(&record.status, admission)
        {
            return None;
        }
        self.to_second_pass_request(key)
    }

    /// The workload as a second pass would take it, whether it is due or not.
    pub(crate) fn to_second_pass_request(&self, key: &ObjectKey) -> Option<SecondPassRequest> {
        let record = self.cache.workload(key)?;
        let admission = record.status.admission.as_ref()?;
        let mut workload = self.to_pending_workload(key)?;
        workload.cluster_queue = Arc::from(admission.cluster_queue.as_str());
        workload.pod_sets =
            workload.pod_sets.iter().map(|set| with_check_updates(set, &record.status)).collect();
        let pinned =
            record.owner.as_ref().is_some_and(|owner| *owner.kind == *POD_KIND && owner.group().is_empty());
        let unhealthy = record.status.unhealthy_nodes.iter().map(|node| node.name.clone()).collect();
        Some(SecondPassRequest {
            workload,
            granted: granted_assignment(admission, record),
            unhealthy_nodes: unhealthy,
            immovable: pinned,
        })
    }

    /// Whether a queue on the way is stopped and takes the reservation back.
    pub(crate) fn is_draining(&self, record: &WorkloadRecord) -> bool {
        use crate::api::v1beta2::StopPolicy::HoldAndDrain;
        let local = record.local_queue().and_then(|key| self.cache.local_queue(&key));
        let cluster = self.cache.cluster_queue_name(record).and_then(|name| self.cache.cluster_queue(name));
        let policies = [
            local.and_then(|queue| queue.object.spec.stop_policy),
            cluster.and_then(|queue| queue.object.spec.stop_policy),
        ];
        policies.contains(&Some(HoldAndDrain))
    }
}

/// Whether the object says that it needs a pass and may have one.
pub(crate) fn needs_second_pass(record: &WorkloadRecord) -> bool {
    let status = &record.status;
    let admission = status.admission.as_ref();
    let cause =
        |admission: &Admission| !status.unhealthy_nodes.is_empty() || checks::awaits_topology(admission);
    admission.is_some_and(|admission| {
        cause(admission) && is_second_pass_eligible(record) && has_topology_to_assign(status, admission)
    })
}

/// Whether the workload holds its reservation and nothing ends it.
pub(crate) fn is_second_pass_eligible(record: &WorkloadRecord) -> bool {
    let status = &record.status;
    let holds = |kind| conditions::is_true(status, kind);
    holds(ConditionType::QuotaReserved)
        && !holds(ConditionType::Finished)
        && !holds(ConditionType::Evicted)
        && !holds(ConditionType::DeactivationTarget)
        && record.active
        && !record.meta.deleting
        && checks::required_action(status) == CheckAction::None
}

/// Whether a topology is to be had that is not there, or another one. Before it is admitted nothing of a Workload can be on a
/// node that fails.
fn has_topology_to_assign(status: &WorkloadStatus, admission: &Admission) -> bool {
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
    placements.filter_map(decode).any(|placement| failed(&placement))
}

/// The pods with what ready checks add to them.
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
    let set = |set: &crate::api::v1beta2::PodSetAssignment| {
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
        pod_sets: admission.pod_set_assignments.iter().map(set).collect(),
    }
}
