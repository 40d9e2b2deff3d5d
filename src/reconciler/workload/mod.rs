//! Workloads: gathers the facts for their lifecycle, and sends the next write with the events that follow it.

pub(super) mod decision_status;
pub(super) mod events;
mod facts;
pub(super) mod status_write;
pub(super) mod step;
