//! Nodes under admitted workloads: their health, and pods that are ungated onto them.

mod health;
pub(super) mod topology_status;
mod ungating;
