//! Writes in flight, the queue of Workloads that wait for a slot, rate limit and timers.

pub(super) mod in_flight;
pub(super) mod status_rate_limit;
pub(super) mod timers;
pub(super) mod workload_queue;
