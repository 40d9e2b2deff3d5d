//! Writes in flight, the queue of Workloads that wait for a write slot, the status rate limit, and timers.

pub(super) mod assumed;
pub(super) mod bodies;
pub(super) mod confirmed;
pub(super) mod in_flight;
mod repeated;
mod retry;
pub(super) mod round_queue;
pub(super) mod status_rate_limit;
pub(super) mod timers;
pub(super) mod workload_queue;
