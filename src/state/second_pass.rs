//! Who is due for a second pass of scheduling, as the objects stand.

use super::State;
use super::records::WorkloadRecord;
use super::topology::granted_topology;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{Admission, CheckState, DelayedTopologyRequestState, WorkloadStatus};
use crate::lifecycle::checks::{self, Demand};
use crate::lifecycle::conditions;
use crate::scheduler::{Again, Assignment, PodSet, PodSetAssignment, Topology};
use crate::topology::{Pods, decode};
use std::sync::Arc;

/// The label key of the topology gate in lists of owners.
const POD: &str = "Pod";

impl State {
    /// The workload as a second pass would take it, if it is due: it holds its reservation, runs on, and lacks a topology
    /// that can be had now, or stands on nodes that have failed.
    pub(crate) fn second_pass_of(&self, key: &ObjectKey) -> Option<Again> {
        let record = self.workloads.get(key)?;
        let admission = record.status.admission.as_ref()?;
        if !may_be_taken(record) || self.is_draining(record) || !needs_pass(&record.status, admission) {
            return None;
        }
        self.as_again(key)
    }

    /// The workload as a second pass would take it, whether it is due or not.
    pub(super) fn as_again(&self, key: &ObjectKey) -> Option<Again> {
        let record = self.workloads.get(key)?;
        let admission = record.status.admission.as_ref()?;
        let mut workload = self.queued(key)?;
        workload.cluster_queue = Arc::from(admission.cluster_queue.as_str());
        workload.pod_sets = workload.pod_sets.iter().map(|set| updated(set, &record.status)).collect();
        let pinned =
            record.owner.as_ref().is_some_and(|owner| *owner.kind == *POD && owner.group().is_empty());
        let unhealthy = record.status.unhealthy_nodes.iter().map(|node| node.name.clone()).collect();
        Some(Again { workload, granted: granted(admission, record), unhealthy, pinned })
    }

    /// Whether a queue on the way is stopped and takes the reservation back.
    pub(super) fn is_draining(&self, record: &WorkloadRecord) -> bool {
        use crate::api::v1beta2::StopPolicy::HoldAndDrain;
        let local = record.local_queue().and_then(|key| self.local_queues.get(&key));
        let cluster = self.cluster_queue_name(record).and_then(|name| self.cluster_queues.get(name));
        let policies = [
            local.and_then(|queue| queue.object.spec.stop_policy),
            cluster.and_then(|queue| queue.object.spec.stop_policy),
        ];
        policies.contains(&Some(HoldAndDrain))
    }
}

/// Whether the object says that it needs a pass and may have one.
pub(super) fn wants(record: &WorkloadRecord) -> bool {
    let status = &record.status;
    let admission = status.admission.as_ref();
    let cause =
        |admission: &Admission| !status.unhealthy_nodes.is_empty() || checks::awaits_topology(admission);
    admission
        .is_some_and(|admission| cause(admission) && may_be_taken(record) && needs_pass(status, admission))
}

/// Whether the workload holds its reservation and nothing ends it.
pub(super) fn may_be_taken(record: &WorkloadRecord) -> bool {
    let status = &record.status;
    let holds = |kind| conditions::is_true(status, kind);
    holds(ConditionType::QuotaReserved)
        && !holds(ConditionType::Finished)
        && !holds(ConditionType::Evicted)
        && !holds(ConditionType::DeactivationTarget)
        && record.active
        && !record.meta.deleting
        && checks::demand(status) == Demand::None
}

/// Whether a topology is to be had that is not there, or another one. Before it is admitted nothing of a Workload can be on a
/// node that fails.
fn needs_pass(status: &WorkloadStatus, admission: &Admission) -> bool {
    if !conditions::is_true(status, ConditionType::Admitted) {
        let checks = &status.admission_checks;
        return !checks.is_empty()
            && checks.iter().all(|check| check.state == CheckState::Ready)
            && checks::awaits_topology(admission);
    }
    let placements = admission.pod_set_assignments.iter().filter_map(|set| set.topology_assignment.as_ref());
    let failed = |placement: &crate::topology::Placement| {
        status.unhealthy_nodes.iter().any(|node| placement.names_host(&node.name))
    };
    placements.filter_map(decode).any(|placement| failed(&placement))
}

/// The pods with what ready checks add to them.
fn updated(set: &PodSet, status: &WorkloadStatus) -> PodSet {
    let ready = status.admission_checks.iter().filter(|check| check.state == CheckState::Ready);
    let updates = ready.flat_map(|check| &check.pod_set_updates).filter(|update| update.name == *set.name);
    let mut pods = Pods::clone(&set.pods);
    for update in updates {
        pods.node_selector.extend(update.node_selector.clone());
        pods.tolerations.extend(update.tolerations.iter().cloned());
    }
    PodSet { pods: Arc::new(pods), ..set.clone() }
}

fn granted(admission: &Admission, record: &WorkloadRecord) -> Assignment {
    let set = |set: &crate::api::v1beta2::PodSetAssignment| {
        let spec = record.pod_sets().iter().find(|known| *known.name == *set.name);
        let amount = |resource: &str, quantity: &_| super::decode::amount_of(resource, quantity);
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

/// What a second pass makes of an admission: topologies that it found, and nothing else.
pub(super) fn rewritten(admission: &Admission, assignment: &Assignment) -> Admission {
    let mut admission = admission.clone();
    for (set, granted) in admission.pod_set_assignments.iter_mut().zip(&assignment.pod_sets) {
        let Topology::Placed(placement) = &granted.topology else { continue };
        if set.topology_assignment.as_ref().and_then(decode).as_ref() != Some(placement) {
            set.topology_assignment = Some(crate::topology::encode(placement));
        }
        if set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending) {
            set.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
        }
    }
    admission
}
