//! Life cycles as small state machines: what a Workload's status says next, given the facts around it.
//!
//! Invariants: time is an argument; a condition changes its transition time only with its status; `Evicted` is cleared by
//! a new reservation alone, and a reservation is cleared only when nothing runs on it (I14, I15).

pub mod backoff;
pub mod certificates;
pub mod checks;
pub mod clock;
pub mod conditions;
pub mod eviction;
pub mod facts;
pub mod lease;
pub mod node_failure;
mod pending;
pub mod pods_ready;
pub mod provisioning;
pub mod reservation;
pub mod skew;
pub mod ungate;
pub mod workload;
