//! Pods of admitted workloads: their gates, and the health of the nodes that they are assigned to.

pub(super) mod blocked_pods;
mod elastic_gates;
pub(super) mod health;
pub(super) mod pod_change;
pub(super) mod shrunk_slices;
pub(super) mod topology_status;
pub(super) mod ungating;
