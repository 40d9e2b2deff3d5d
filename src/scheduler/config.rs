//! What goes into the engine. What comes out of it stands in `decision`.

use crate::api::reason::PendingReason;
use crate::api::v1beta2::{ClusterQueuePreemption, FlavorFungibility, QueueingStrategy};
use crate::queue::{Variant, Verdict};
use crate::quota::{FlavorResource, NodeRef, ResourceGroup};
use crate::resources::Amount;
use crate::topology::{Occupancy, TasGates};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What becomes of resources that a ClusterQueue does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UndeclaredResources {
    /// A workload that asks for one is not admitted.
    #[default]
    Refuse,
    /// They do not count.
    Ignore,
}

/// Settings that hold for every queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineSettings {
    /// Resources that a ClusterQueue does not name.
    pub undeclared_resources: UndeclaredResources,
    /// Preemption-based fair sharing with its strategies in order; none when it is off.
    pub fair_sharing: Option<Vec<FairStrategy>>,
    /// Order of LocalQueues by past usage; none when it is off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Whether an admission waits until the pods of all who are admitted are ready.
    pub block_admission: bool,
    /// Feature gates that change decisions.
    pub gates: EngineGates,
}

/// When one queue may take from another under fair sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairStrategy {
    /// The preemptor's share with the newcomer is at most the victim's without the victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share with the newcomer is below the victim's as it is.
    LessThanInitialShare,
}

/// How past usage is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionFairSharing {
    /// Time after which past usage counts half; zero forgets at once.
    pub half_life: SignedDuration,
    /// Least time between two samples.
    pub sampling_interval: SignedDuration,
    /// Weights of resources; 1 for others.
    pub resource_weights: BTreeMap<Arc<str>, f64>,
}

/// Feature gates of Kueue that change decisions, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineGates {
    /// `PartialAdmission`
    pub partial_admission: bool,
    /// `FlavorFungibility`
    pub flavor_fungibility: bool,
    /// `FlavorFungibilityPreserveScanProgress`
    pub preserve_scan_progress: bool,
    /// `PrioritySortingWithinCohort`
    pub priority_sorting_within_cohort: bool,
    /// `FairSharingPreemptWithinNominal`
    pub preempt_within_nominal: bool,
    /// `FairSharingPrioritizeNonBorrowing`
    pub prioritize_non_borrowing: bool,
    /// `RecomputeAssignmentUponPreemptionTargetsOverlap`
    pub recompute_on_overlap: bool,
    /// `ConcurrentAdmission`
    pub concurrent_admission: bool,
    /// `MultiKueueOrchestratedPreemption`
    pub orchestrated_preemption: bool,
    /// `ElasticJobsViaWorkloadSlices`
    pub elastic_slices: bool,
    /// `TopologyAwareScheduling`
    pub topology: bool,
    /// `TASFailedNodeReplacementFailFast`
    pub fail_fast: bool,
    /// `TASRecomputeAssignmentWithinSchedulingCycle`
    pub recompute_topology: bool,
    /// Gates that change placements.
    pub placement: TasGates,
}

impl Default for EngineGates {
    fn default() -> Self {
        Self {
            partial_admission: true,
            flavor_fungibility: true,
            preserve_scan_progress: true,
            priority_sorting_within_cohort: true,
            preempt_within_nominal: true,
            prioritize_non_borrowing: true,
            recompute_on_overlap: true,
            concurrent_admission: false,
            orchestrated_preemption: false,
            elastic_slices: true,
            topology: true,
            fail_fast: true,
            recompute_topology: true,
            placement: TasGates::default(),
        }
    }
}

impl EngineGates {
    /// Whether a closed gate of a Workload keeps it from preempting; as with Kueue, that is a part of either feature.
    pub const fn respects_preemption_gates(&self) -> bool {
        self.concurrent_admission || self.orchestrated_preemption
    }
}

/// A class of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flavor {
    /// Labels of the nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    pub node_taints: Vec<Taint>,
    /// Tolerations that admitted pods are given.
    pub tolerations: Vec<Toleration>,
    /// Topology of the nodes.
    pub topology_name: Option<Arc<str>>,
}

/// An inner node of the quota tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cohort {
    /// The cohort above.
    pub parent: Option<Arc<str>>,
    /// Quota of its own.
    pub groups: Vec<ResourceGroup>,
    /// Weight in fair sharing; 1 when absent.
    pub weight: Option<f64>,
}

/// Why a queue admits nothing, in the words of its `Active` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// Reason of the condition.
    pub reason: Arc<str>,
    /// Message of the condition.
    pub message: Arc<str>,
}

/// A pool of quota and its rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterQueue {
    /// The cohort above.
    pub cohort: Option<Arc<str>>,
    /// Whether a blocked head blocks the queue.
    pub strategy: QueueingStrategy,
    /// Resources, flavors and limits.
    pub groups: Vec<ResourceGroup>,
    /// Namespaces that may use the queue; absent selects none.
    pub namespace_selector: Option<LabelSelector>,
    /// When the search over flavors stops.
    pub fungibility: FlavorFungibility,
    /// Who may be evicted to make room.
    pub preemption: ClusterQueuePreemption,
    /// Set while the queue is stopped or misses something.
    pub inactive: Option<Inactive>,
    /// Weight in fair sharing; 1 when absent.
    pub weight: Option<f64>,
    /// Whether past usage orders its LocalQueues.
    pub orders_by_past_usage: bool,
    /// With concurrent admission: the least preferred flavor that a workload may migrate to, if there is a limit.
    pub last_acceptable_flavor: Option<Arc<str>>,
    /// Flavors whose nodes are made only after the reservation: their topology is assigned in a second pass.
    pub provisioned_flavors: BTreeSet<Arc<str>>,
    /// Whether another cluster assigns the topology.
    pub topology_by_worker_cluster: bool,
}

/// The entry of a namespace, as admission fair sharing sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalQueue {
    /// Where it leads.
    pub cluster_queue: Arc<str>,
    /// Weight; 1 when absent.
    pub weight: Option<f64>,
    /// Decayed usage by resource in whole units (cores, bytes), and when it was computed.
    pub consumed: BTreeMap<Arc<str>, f64>,
    /// When it was computed.
    pub sampled_at: Option<Timestamp>,
}

/// What a workload holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// The queue whose quota it is.
    pub cluster_queue: Arc<str>,
    /// How much, by flavor and resource.
    pub usage: BTreeMap<FlavorResource, Amount>,
    /// Identity of the workload.
    pub uid: Arc<str>,
    /// Its LocalQueue.
    pub local_queue: Arc<str>,
    /// Its effective priority.
    pub priority: i64,
    /// Since when it holds the quota; absent until confirmed.
    pub reserved_at: Option<Timestamp>,
    /// Whether it is being evicted.
    pub evicted: bool,
    /// Whether it is deactivated: it leaves without being asked, so that the plan counts it as gone and nothing evicts it.
    pub deactivated: bool,
    /// The time that counts for its place in the queue.
    pub queued_since: Timestamp,
    /// What it is one of several alternatives of.
    pub variant: Option<Arc<Variant>>,
    /// Where its pods stand.
    pub topology: Vec<Occupancy>,
}

impl Inactive {
    /// A queue whose cohorts are each other's ancestors.
    pub(super) fn cohort_cycle(cohort: &NodeRef) -> Self {
        Self {
            reason: Arc::from("CohortCycle"),
            message: Arc::from(format!("the parents of {cohort} form a cycle")),
        }
    }

    /// What is said of workloads that wait in the queue meanwhile.
    pub(super) fn verdict(&self, queue: &str) -> Verdict {
        let text = format!("ClusterQueue {queue} is inactive: {}", self.message);
        Verdict::without_blockers(PendingReason::Suspended, &text)
    }
}
