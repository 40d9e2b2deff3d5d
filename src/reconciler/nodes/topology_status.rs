//! Places of pods on nodes, between objects and the scheduler.

use crate::api::names::{MULTIKUEUE_CONTROLLER, PROVISIONING_REQUEST_CONTROLLER};
use crate::api::v1beta2::{
    Admission, ClusterQueue, DelayedTopologyRequestState, PodSetAssignment, TopologyAssignment,
};
use crate::cache::records::WorkloadRecord;
use crate::reconciler::Reconciler;
use crate::scheduler::PodSetPlacement;
use crate::topology::{Occupancy, decode, encode};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Reconciler {
    /// What an admission takes of nodes; an assignment that cannot be read takes nothing.
    pub(in crate::reconciler) fn occupancies(
        &self,
        record: &WorkloadRecord,
        admission: &Admission,
    ) -> Vec<Occupancy> {
        let mut all = Vec::new();
        for set in &admission.pod_set_assignments {
            let placement = set.topology_assignment.as_ref().and_then(decode);
            let sets = record.effective_requests.pod_sets.as_deref().unwrap_or_default();
            let pods =
                sets.iter().find(|known| *known.name == *set.name).map(|known| &known.pod_requirements);
            let (Some(placement), Some(pods)) = (placement, pods) else {
                continue;
            };
            all.extend(self.topology_flavors(set).into_iter().map(|flavor| Occupancy {
                flavor: Arc::from(flavor),
                placement: placement.clone(),
                requests_per_pod: pods.requests.clone(),
            }));
        }
        all
    }

    /// Flavors of an assignment that have a topology.
    pub(in crate::reconciler) fn topology_flavors<'a>(&self, set: &'a PodSetAssignment) -> BTreeSet<&'a str> {
        let has_topology = |flavor: &&str| {
            self.flavors.get(*flavor).is_some_and(|known| known.object.spec.topology_name.is_some())
        };
        set.flavors.values().map(String::as_str).filter(has_topology).collect()
    }

    /// Flavors of a ClusterQueue whose nodes are made after the reservation, and whether another cluster assigns the
    /// topology.
    pub(in crate::reconciler) fn delayed_topology(&self, queue: &ClusterQueue) -> (BTreeSet<Arc<str>>, bool) {
        let mut flavors = BTreeSet::new();
        let mut elsewhere = false;
        for rule in
            queue.spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks)
        {
            let controller =
                self.admission_checks.get(&*rule.name).map(|check| &*check.object.spec.controller_name);
            elsewhere |= controller == Some(MULTIKUEUE_CONTROLLER);
            if controller != Some(PROVISIONING_REQUEST_CONTROLLER) {
                continue;
            }
            let on = if rule.on_flavors.is_empty() {
                queue.quota_flavors().collect::<Vec<_>>()
            } else {
                rule.on_flavors.iter().map(String::as_str).collect()
            };
            flavors.extend(on.into_iter().map(Arc::from));
        }
        (flavors, elsewhere)
    }
}

/// The topology that an assignment carries.
pub(in crate::reconciler) fn granted_topology(set: &PodSetAssignment) -> PodSetPlacement {
    match set.topology_assignment.as_ref().and_then(decode) {
        Some(placement) => PodSetPlacement::Assigned(placement),
        None if set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending) => {
            PodSetPlacement::Delayed
        }
        None => PodSetPlacement::Unconstrained,
    }
}

/// The topology of a pod set as its assignment carries it.
pub(in crate::reconciler) fn to_topology_status(
    topology: &PodSetPlacement,
) -> (Option<TopologyAssignment>, Option<DelayedTopologyRequestState>) {
    match topology {
        PodSetPlacement::Unconstrained => (None, None),
        PodSetPlacement::Delayed => (None, Some(DelayedTopologyRequestState::Pending)),
        PodSetPlacement::Assigned(placement) => (Some(encode(placement)), None),
    }
}
