//! Results of a scheduling cycle: decisions, assignments and victims.
//!
//! Neighbours: `Engine::run_cycle` returns them, `state` writes them to Workload statuses.

use crate::api::ObjectKey;
use crate::queue::Verdict;
use crate::resources::Requests;
use crate::topology::Placement;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decision on one head or second pass in one cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Key of the workload.
    pub key: ObjectKey,
    /// UID of the workload.
    pub uid: Arc<str>,
    /// The result.
    pub outcome: Outcome,
}

/// Result for one workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It holds the quota from now on.
    Admitted(Assignment),
    /// It does not fit; the verdict holds for every workload of its class.
    Pending(Arc<Verdict>),
    /// It lost to another workload or its reservation was dropped; it is nominated again in the next cycle, so
    /// nothing is written.
    Skipped(Arc<Verdict>),
    /// It would have to preempt, but its preemption gate is closed.
    PreemptionGated(Arc<Verdict>),
    /// It keeps its quota, and its pods have this topology assignment.
    TopologyAssigned(Assignment),
    /// It keeps its quota; there are no nodes for its pods now.
    TopologyPending(Arc<Verdict>),
    /// It must be evicted: assigned nodes have failed, and there are no replacements.
    ReplacementFailed(Arc<str>),
    /// The victims must be evicted; what they free is reserved for the workload.
    Preempting(Arc<Verdict>, Vec<Victim>),
}

impl Outcome {
    /// Returns the verdict on a head that stays pending.
    pub const fn verdict_on_head(&self) -> Option<&Arc<Verdict>> {
        match self {
            Self::Pending(verdict)
            | Self::Skipped(verdict)
            | Self::PreemptionGated(verdict)
            | Self::Preempting(verdict, _) => Some(verdict),
            Self::Admitted(_)
            | Self::TopologyAssigned(_)
            | Self::TopologyPending(_)
            | Self::ReplacementFailed(_) => None,
        }
    }
}

/// Why a victim is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionReason {
    /// Preemptor and victim belong to one ClusterQueue.
    InClusterQueue,
    /// The preemptor's ClusterQueue reclaims quota that it lent.
    InCohortReclamation,
    /// The preemptor's ClusterQueue reclaims while it borrows.
    InCohortReclaimWhileBorrowing,
    /// Shares become fairer.
    InCohortFairSharing,
    /// A variant on a better flavor replaces another variant of the same workload.
    FlavorMigration,
}

impl PreemptionReason {
    /// Reason of the `Preempted` condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InClusterQueue => "InClusterQueue",
            Self::InCohortReclamation => "InCohortReclamation",
            Self::InCohortReclaimWhileBorrowing => "InCohortReclaimWhileBorrowing",
            Self::InCohortFairSharing => "InCohortFairSharing",
            Self::FlavorMigration => "FlavorMigration",
        }
    }

    /// Text for the message of the condition.
    pub const fn text(self) -> &'static str {
        match self {
            Self::InClusterQueue => "prioritization in the ClusterQueue",
            Self::InCohortReclamation => "reclamation within the cohort",
            Self::InCohortReclaimWhileBorrowing => "reclamation within the cohort while borrowing",
            Self::InCohortFairSharing => "Fair Sharing within the cohort",
            Self::FlavorMigration => "migration to a preferred flavor",
        }
    }
}

/// A workload that is preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Key of the workload.
    pub key: ObjectKey,
    /// UID of the workload.
    pub uid: Arc<str>,
    /// Reason of the preemption.
    pub reason: PreemptionReason,
    /// Path from the root to the preemptor's ClusterQueue, as `/root/cohort/queue`.
    pub preemptor_path: Arc<str>,
    /// Path from the root to the victim's ClusterQueue.
    pub preemptee_path: Arc<str>,
}

/// The quota granted to a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// ClusterQueue that grants it.
    pub cluster_queue: Arc<str>,
    /// Assignments by pod set, in the workload's order.
    pub pod_sets: Vec<PodSetAssignment>,
}

/// Topology assignment of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodSetPlacement {
    /// Any nodes of the flavors.
    #[default]
    Unconstrained,
    /// Assigned in a second pass, when the nodes exist.
    Delayed,
    /// These domains.
    Assigned(Placement),
}

/// The quota granted to one pod set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Name of the pod set.
    pub name: Arc<str>,
    /// Number of pods.
    pub count: i32,
    /// Flavor by resource.
    pub flavors: BTreeMap<Arc<str>, Arc<str>>,
    /// Total by resource.
    pub usage: Requests,
    /// Topology assignment of the pods.
    pub topology: PodSetPlacement,
}
