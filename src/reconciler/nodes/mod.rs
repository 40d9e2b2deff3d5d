//! Nodes assigned to admitted workloads: their health, and the ungating of pods onto them.

pub(super) mod health;
pub(super) mod topology_status;
pub(super) mod ungating;
