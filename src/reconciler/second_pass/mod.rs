//! Second passes: which Workloads need one, when, and what becomes of the results.

pub(super) mod eligibility;
pub mod failpoints;
pub(super) mod queue;
#[cfg(feature = "failpoints")]
pub(super) mod unguarded;
