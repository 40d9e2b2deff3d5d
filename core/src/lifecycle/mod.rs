//! Lifecycles as small state machines: compute the next status of a Workload from its state and the facts around it.
//!
//! Invariants: time is an argument. The transition time of a condition changes only with its status. Only a new quota
//! reservation clears `Evicted`, and a reservation is cleared only after its pods have stopped (I14, I15).

pub mod backoff;
pub mod carried;
pub mod certificates;
pub mod checks;
pub mod clock;
pub mod conditions;
pub mod eviction;
pub mod execution_time;
pub mod facts;
mod job_status;
pub mod lease;
pub mod node_failure;
mod pending;
pub mod pod_blocker;
pub mod pods_ready;
pub mod provisioning;
pub mod reservation;
pub mod skew;
pub mod token_bucket;
pub mod ungate;
pub mod workload;
