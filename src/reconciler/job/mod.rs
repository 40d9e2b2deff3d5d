//! Jobs: their Workloads are created, and they are started, stopped and restored.

pub(super) mod events;
mod owner;
pub(super) mod start;
pub(super) mod step;
