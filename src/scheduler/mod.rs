//! Who is admitted, with which flavors, and why everyone else waits.
//!
//! `Engine` is the one door: configuration, pending workloads and held quota go in, `cycle` answers with decisions. A
//! cycle takes one head of every ClusterQueue, assigns flavors against the quota as it stands, orders the heads, and
//! admits each that still fits; what is admitted is charged at once, before anybody has confirmed it.
//!
//! Invariants: judging has no side effects, charging happens once all have agreed (I5); the same state gives the same
//! decisions (I10); a cycle judges each head once, and nothing that one head does ends the turn of another; every pending
//! workload has a verdict (I25).
//! The choice of victims has its own folder, with one file for each set of rules.

mod again;
mod assign;
mod compiled;
mod config;
mod cycle;
mod decision;
mod earmarks;
mod engine;
mod fit;
mod ledger;
mod lineup;
mod matching;
mod nominate;
mod observed;
mod preemption;
mod readiness;
mod report;
mod taken;
mod topology;
mod usage_order;
mod usage_share;
mod variants;

pub use crate::queue::{Blocker, BlockerKind, PendingCounts, PodSet, Variant, Verdict, Workload};
pub use crate::quota::{FlavorResource, NodeRef};
pub use again::Again;
pub use config::{
    AdmissionFairSharing, Charge, ClusterQueue, Cohort, EngineGates, EngineSettings, FairStrategy, Flavor,
    Inactive, LocalQueue, Undeclared,
};
pub use decision::{Assignment, Decision, Outcome, PodSetAssignment, PreemptionReason, Topology, Victim};
pub use earmarks::Preemption;
pub use engine::Engine;
pub use observed::Recomputation;
