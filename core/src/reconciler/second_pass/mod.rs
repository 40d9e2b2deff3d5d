//! Second passes of scheduling: which Workloads need one, when it runs, and how its result is written.

pub(super) mod eligibility;
pub(super) mod passes;
pub(super) mod queue;
mod scripted;
pub(super) mod unguarded;
