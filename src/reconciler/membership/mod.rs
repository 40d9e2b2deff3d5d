//! Which Workload is charged, queued, or neither.

pub(super) mod assumed;
mod pods_ready;
