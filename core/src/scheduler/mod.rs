//! Admission scheduling: which pending workloads are admitted, with which flavors, and why the others stay pending.
//!
//! Callers use `Engine`: configuration, pending workloads and charges go in, `run_cycle` returns decisions. A cycle
//! takes one head of every ClusterQueue, assigns flavors against projected usage, orders the heads, and admits each
//! that still fits. An admission is charged at once, before the API server confirms it.
//!
//! Invariants: nomination has no side effects; quota is charged only after every check has passed (I5). The same
//! state gives the same decisions (I10). A cycle nominates each head once, and no head ends the cycle for another.
//! Every pending workload has a verdict (I25).
//! Neighbours: `queue` supplies heads, `quota` and `topology` answer what fits. `preemption` selects targets, with
//! one file for each set of rules.

mod afs_usage;
mod alone;
mod capacity_reservations;
mod compiled;
mod concurrent_admission;
mod config;
mod configured_objects;
mod cycle;
mod cycle_metrics;
mod decision;
mod engine;
mod entry_iterator;
mod explanation;
mod fair_sharing;
mod fitting_heads;
mod flavor_assigner;
mod flavor_capacity;
mod granular_mode;
mod head_state;
mod job_capacity;
mod matching;
mod nominate;
mod obstacle;
mod obstacle_text;
mod pods_ready_gate;
mod preemption;
mod preemption_history;
mod process_preemption;
mod queries;
mod quota_needs;
mod requests;
mod reserving_workloads;
mod second_pass;
mod shortfall;
mod standing;
mod tentative_assignment;
mod topology;

pub use crate::queue::{
    Alone, Blocker, BlockerKind, FlavorMismatch, ListedFields, NeverFits, PendingCounts, PendingOrder,
    PendingPosition, PodSet, QueueStanding, Variant, Verdict, Workload, WrongFlavor,
};
pub use crate::quota::{FlavorResource, NodeRef};
pub use capacity_reservations::Preemption;
pub use config::{
    AdmissionFairSharing, Charge, ClusterQueue, Cohort, EngineGates, EngineSettings, FairStrategy, Flavor,
    Inactive, LocalQueue, RequeueOrder, UndeclaredResources,
};
pub use cycle_metrics::Recomputation;
pub use decision::{
    Assignment, Decision, Outcome, PodSetAssignment, PodSetPlacement, PreemptionReason, Victim,
};
pub use engine::Engine;
pub use explanation::{
    Explanation, MAX_EVALUATIONS, PodStates, PodsExplanation, PreemptionChances, SmallerFit, Supposition,
};
pub use flavor_capacity::{CapacityQuestion, CapacityReport, FlavorCapacity};
pub use job_capacity::{JobCapacity, JobPodSet, JobPods};
pub use obstacle::{BehindHead, Obstacle};
pub use obstacle_text::ObstacleReader;
pub use preemption::{Attempt, EvictionRank, EvictionRule, EvictionScope, PreemptionPolicy, VictimPriority};
pub use quota_needs::{PathLimit, QuotaNeed};
pub use second_pass::SecondPassRequest;
