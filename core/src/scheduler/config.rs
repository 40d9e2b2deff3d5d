//! Input of the engine: settings, queues, flavors and charges. `decision` holds the output.

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

/// Handling of resources that a ClusterQueue does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UndeclaredResources {
    /// A workload that requests one is not admitted.
    #[default]
    Refuse,
    /// They are ignored.
    Ignore,
}

/// Settings for all ClusterQueues.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineSettings {
    /// Handling of resources that a ClusterQueue does not declare.
    pub undeclared_resources: UndeclaredResources,
    /// Strategies of preemption-based fair sharing, in order; `None` when it is off.
    pub fair_sharing: Option<Vec<FairStrategy>>,
    /// Ordering of LocalQueues by past usage; `None` when it is off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Whether an admission waits until the pods of all admitted workloads are ready.
    pub block_admission: bool,
    /// Feature gates that change decisions.
    pub gates: EngineGates,
}

/// When one ClusterQueue may evict from another under fair sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairStrategy {
    /// The preemptor's share with its workload is at most the victim's share without the victim.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share with its workload is below the victim's current share.
    LessThanInitialShare,
}

/// Settings of admission fair sharing.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionFairSharing {
    /// Time in which past usage decays by half; zero means past usage is forgotten at once.
    pub half_life: SignedDuration,
    /// Minimum time between two samples.
    pub sampling_interval: SignedDuration,
    /// Weights of resources; 1 for resources without an entry.
    pub resource_weights: BTreeMap<Arc<str>, f64>,
}

/// Kueue's feature gates that change decisions, by their names.
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
    /// `ElasticJobsViaWorkloadSlicesWithTAS`
    pub elastic_topology: bool,
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
            elastic_topology: false,
            topology: true,
            fail_fast: true,
            recompute_topology: true,
            placement: TasGates::default(),
        }
    }
}

impl EngineGates {
    /// Whether a closed preemption gate of a Workload prevents preemption; as in Kueue, part of either feature.
    pub const fn respects_preemption_gates(&self) -> bool {
        self.concurrent_admission || self.orchestrated_preemption
    }
}

/// A ResourceFlavor: a class of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flavor {
    /// Labels of the nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes.
    pub node_taints: Vec<Taint>,
    /// Tolerations added to admitted pods.
    pub tolerations: Vec<Toleration>,
    /// Topology of the nodes.
    pub topology_name: Option<Arc<str>>,
}

/// A Cohort: an inner node of the quota tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cohort {
    /// Parent Cohort.
    pub parent: Option<Arc<str>>,
    /// Quota of its own.
    pub groups: Vec<ResourceGroup>,
    /// Weight in fair sharing; 1 when absent.
    pub weight: Option<f64>,
}

/// Why a ClusterQueue admits nothing, as in its `Active` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inactive {
    /// Reason of the condition.
    pub reason: Arc<str>,
    /// Message of the condition.
    pub message: Arc<str>,
}

/// Configuration of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterQueue {
    /// Parent Cohort.
    pub cohort: Option<Arc<str>>,
    /// Whether a blocked head blocks the ClusterQueue.
    pub strategy: QueueingStrategy,
    /// Resources, flavors and limits.
    pub groups: Vec<ResourceGroup>,
    /// Namespaces that may use the ClusterQueue; absent selects none.
    pub namespace_selector: Option<LabelSelector>,
    /// When the scan over flavors stops.
    pub fungibility: FlavorFungibility,
    /// Which workloads may be evicted.
    pub preemption: ClusterQueuePreemption,
    /// Set while the ClusterQueue is stopped or misses a dependency.
    pub inactive: Option<Inactive>,
    /// Weight in fair sharing; 1 when absent.
    pub weight: Option<f64>,
    /// Whether its LocalQueues are ordered by past usage.
    pub orders_by_past_usage: bool,
    /// With concurrent admission: the least preferred flavor that a workload may migrate to, if limited.
    pub last_acceptable_flavor: Option<Arc<str>>,
    /// Flavors whose nodes are created only after the reservation; a second pass assigns their topology.
    pub provisioned_flavors: BTreeSet<Arc<str>>,
    /// Whether a worker cluster assigns the topology.
    pub topology_by_worker_cluster: bool,
}

/// What an evicted workload is ordered by in its queue, instead of its creation. An eviction by an admission check always is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequeueOrder {
    /// A timeout of its pods is not (`requeuingStrategy.timestamp: Creation`).
    pub by_creation: bool,
    /// A preemption for a workload that borrows is (without `PrioritySortingWithinCohort`): otherwise the victim would come before
    /// its preemptor again.
    pub behind_borrowing_preemptor: bool,
}

/// A LocalQueue as admission fair sharing needs it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalQueue {
    /// ClusterQueue that it points to.
    pub cluster_queue: Arc<str>,
    /// Weight; 1 when absent.
    pub weight: Option<f64>,
    /// Decayed usage by resource in whole units (cores, bytes), as of `sampled_at`.
    pub consumed: BTreeMap<Arc<str>, f64>,
    /// When `consumed` was computed.
    pub sampled_at: Option<Timestamp>,
    /// When the past usage in the status of the LocalQueue was computed, in whole seconds.
    pub stored_at: Option<Timestamp>,
}

/// The quota and leaf capacity that a workload holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// ClusterQueue that provides the quota.
    pub cluster_queue: Arc<str>,
    /// Amounts by flavor-resource.
    pub usage: BTreeMap<FlavorResource, Amount>,
    /// UID of the workload.
    pub uid: Arc<str>,
    /// Its LocalQueue.
    pub local_queue: Arc<str>,
    /// Its effective priority.
    pub priority: i64,
    /// Time of the quota reservation; absent until confirmed.
    pub reserved_at: Option<Timestamp>,
    /// Whether it is being evicted.
    pub evicted: bool,
    /// Whether it is deactivated: it leaves without preemption, so projected usage excludes it and no workload evicts
    /// it.
    pub deactivated: bool,
    /// Timestamp that determines its queue position.
    pub queued_since: Timestamp,
    /// The set of variants that it belongs to.
    pub variant: Option<Arc<Variant>>,
    /// Leaf capacity that its pods occupy.
    pub topology: Vec<Occupancy>,
}

impl Inactive {
    /// Reason of a ClusterQueue whose ancestor Cohorts form a cycle.
    pub(super) fn cohort_cycle(cohort: &NodeRef) -> Self {
        Self {
            reason: Arc::from("CohortCycle"),
            message: Arc::from(format!("the parents of {cohort} form a cycle")),
        }
    }

    /// Verdict of workloads that wait in the inactive ClusterQueue.
    pub(super) fn verdict(&self, queue: &str) -> Verdict {
        let text = format!("ClusterQueue {queue} is inactive: {}", self.message);
        Verdict::without_blockers(PendingReason::Suspended, &text)
    }
}
