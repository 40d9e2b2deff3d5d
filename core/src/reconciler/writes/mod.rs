//! Writes in flight, the queue of Workloads that wait for a write slot, and the status rate limit.

pub(super) mod assumed;
mod completing;
pub(super) mod confirmed;
pub(super) mod in_flight;
mod repeated;
pub(super) mod request;
mod restarts;
pub(super) mod round_queue;
mod running_children;
pub(super) mod status_rate_limit;
pub(super) mod workload_queue;
