//! Workloads: the facts around each, the next step of its life cycle, and the events that follow.

pub(super) mod decision_status;
pub(super) mod events;
mod facts;
pub(super) mod step;
