//! Topology assignments between the scheduler and the API.

use crate::api::v1beta2::{DelayedTopologyRequestState, PodSetAssignment, TopologyAssignment};
use crate::cache::nodes::placement_of;
use crate::scheduler::PodSetPlacement;
use crate::topology::encode;

/// The topology that an assignment carries.
pub(crate) fn granted_topology(set: &PodSetAssignment) -> PodSetPlacement {
    match placement_of(set) {
        Some(placement) => PodSetPlacement::Assigned(placement),
        None if set.delayed_topology_request == Some(DelayedTopologyRequestState::Pending) => {
            PodSetPlacement::Delayed
        }
        None => PodSetPlacement::Unconstrained,
    }
}

/// The topology of a pod set as its assignment carries it.
pub(crate) fn to_topology_status(
    topology: &PodSetPlacement,
) -> (Option<TopologyAssignment>, Option<DelayedTopologyRequestState>) {
    match topology {
        PodSetPlacement::Unconstrained => (None, None),
        PodSetPlacement::Delayed => (None, Some(DelayedTopologyRequestState::Pending)),
        PodSetPlacement::Assigned(placement) => (Some(encode(placement)), None),
    }
}
