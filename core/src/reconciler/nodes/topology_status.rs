//! Conversion of topology assignments between the scheduler and the API.

use crate::api::v1beta2::{Admission, DelayedTopologyRequestState, PodSetAssignment, TopologyAssignment};
use crate::cache::nodes::placement_of;
use crate::scheduler::{Assignment, PodSetPlacement};
use crate::topology::encode;

/// Returns the topology assignment of a pod set in an admission.
pub(crate) fn granted_topology(set: &PodSetAssignment) -> PodSetPlacement {
    match placement_of(set) {
        Some(placement) => PodSetPlacement::Assigned(placement),
        None if set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending) => {
            PodSetPlacement::Delayed
        }
        None => PodSetPlacement::Unconstrained,
    }
}

/// Returns the API fields for the topology assignment of a pod set: the assignment and the state of the delayed
/// request.
pub(crate) fn to_topology_status(
    topology: &PodSetPlacement,
) -> (Option<TopologyAssignment>, Option<DelayedTopologyRequestState>) {
    match topology {
        PodSetPlacement::Unconstrained => (None, None),
        PodSetPlacement::Delayed => (None, Some(DelayedTopologyRequestState::Pending)),
        PodSetPlacement::Assigned(placement) => (Some(encode(placement)), None),
    }
}

/// Returns the admission with the topology assignments of a second pass, their delayed requests marked as ready.
/// Nothing else changes.
pub(crate) fn with_new_topologies(admission: &Admission, assignment: &Assignment) -> Admission {
    let mut admission = admission.clone();
    for (set, granted) in admission.pod_set_assignments.iter_mut().zip(&assignment.pod_sets) {
        let PodSetPlacement::Assigned(placement) = &granted.topology else { continue };
        if placement_of(set).as_ref() != Some(placement) {
            set.topology_assignment = Some(encode(placement));
        }
        if set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending) {
            set.delayed_topology_request = Some(DelayedTopologyRequestState::Ready);
        }
    }
    admission
}
