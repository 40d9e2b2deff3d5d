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

mod afs_usage;
mod capacity_reservations;
mod compiled;
mod concurrent_admission;
mod config;
mod cycle;
mod cycle_metrics;
mod decision;
mod engine;
mod entry_iterator;
mod fair_sharing;
mod flavor_assigner;
mod granular_mode;
mod matching;
mod nominate;
mod pods_ready_gate;
mod preemption;
mod preemption_history;
mod process_preemption;
mod queries;
mod requests;
mod reserving_workloads;
mod second_pass;
mod topology;

pub use crate::queue::{Blocker, BlockerKind, PendingCounts, PodSet, Variant, Verdict, Workload};
pub use crate::quota::{FlavorResource, NodeRef};
pub use capacity_reservations::Preemption;
pub use config::{
    AdmissionFairSharing, Charge, ClusterQueue, Cohort, EngineGates, EngineSettings, FairStrategy, Flavor,
    Inactive, LocalQueue, UndeclaredResources,
};
pub use cycle_metrics::Recomputation;
pub use decision::{
    Assignment, Decision, Outcome, PodSetAssignment, PodSetPlacement, PreemptionReason, Victim,
};
pub use engine::Engine;
pub use second_pass::SecondPassRequest;
