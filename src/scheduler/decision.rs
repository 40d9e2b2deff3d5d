//! What comes out of the engine.

use crate::api::ObjectKey;
use crate::queue::Verdict;
use crate::resources::Requests;
use crate::topology::Placement;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What became of one head in one cycle.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The workload.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Arc<str>,
    /// What became of it.
    pub outcome: Outcome,
}

/// Result of judging one head.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It holds the quota from now on.
    Admitted(Assignment),
    /// It waits, and so does every workload like it.
    Pending(Arc<Verdict>),
    /// Another head of this cycle took the quota; it is judged again in the next cycle, so nothing needs to be written.
    Skipped(Arc<Verdict>),
    /// It would have to preempt, but a closed gate keeps it from that.
    PreemptionGated(Arc<Verdict>),
    /// It holds what it held, and its pods have these places.
    TopologyAssigned(Assignment),
    /// It holds what it held; there is no place for its pods now.
    TopologyPending(Arc<Verdict>),
    /// It must go: nodes that it stands on have failed, and there are no others for it.
    ReplacementFailed(Arc<str>),
    /// The victims must go; what they free is kept for it.
    Preempting(Arc<Verdict>, Vec<Victim>),
}

/// Why somebody is evicted for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionReason {
    /// Both are of one ClusterQueue.
    InClusterQueue,
    /// The preemptor's queue takes back what it lent.
    InCohortReclamation,
    /// The preemptor's queue borrows itself.
    InCohortReclaimWhileBorrowing,
    /// Shares become fairer.
    InCohortFairSharing,
    /// A better flavor takes another variant of the same workload.
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

    /// The same in the message of the condition.
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

/// One that must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The workload.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Arc<str>,
    /// Why.
    pub reason: PreemptionReason,
    /// Way from the root to the preemptor's queue, as `/root/cohort/queue`.
    pub preemptor_path: Arc<str>,
    /// Way from the root to the victim's queue.
    pub preemptee_path: Arc<str>,
}

/// The quota that a workload is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// From this queue.
    pub cluster_queue: Arc<str>,
    /// By pod set, in the workload's order.
    pub pod_sets: Vec<PodSetAssignment>,
}

/// Where the pods of a pod set go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodSetPlacement {
    /// Wherever the nodes of the flavors are.
    #[default]
    Unconstrained,
    /// To be assigned when the nodes are there.
    Delayed,
    /// To these domains.
    Assigned(Placement),
}

/// The quota that one pod set is given.
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
    /// Where the pods go, if their topology matters.
    pub topology: PodSetPlacement,
}
