//! ClusterQueue: a pool of quota, its admission and preemption policies, and its usage.

use super::{FairSharing, FairSharingStatus, FlavorUsage, ResourceGroup, StopPolicy};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A cluster-wide pool of quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueue {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Quota and policies.
    pub spec: ClusterQueueSpec,
    /// Usage and number of pending, reserving and admitted workloads.
    pub status: ClusterQueueStatus,
}

impl ClusterQueue {
    /// Returns the quota that counts. All code outside `api` reads quota through this function, because Kueue is moving
    /// the quota that counts from the spec to `status.effectiveQuotas`: then only this function changes.
    pub fn quota_groups(&self) -> &[ResourceGroup] {
        &self.spec.resource_groups
    }

    /// Returns the names of the flavors with quota, in order.
    pub fn quota_flavors(&self) -> impl Iterator<Item = &str> {
        self.quota_groups().iter().flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str())
    }
}

/// Quota and policies of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueueSpec {
    /// Resources, the flavors that provide them, and the quota of each.
    pub resource_groups: Vec<ResourceGroup>,
    /// Name of the Cohort whose unused quota this queue may borrow; the Cohort object need not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort_name: Option<String>,
    /// Whether a head that does not fit blocks the workloads behind it.
    pub queueing_strategy: QueueingStrategy,
    /// Namespaces whose workloads may use this queue: absent selects none, empty selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// When the search for a flavor stops at a flavor that needs borrowing or preemption.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Workloads that this queue may preempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Admission checks and the flavors to which they apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether the queue is stopped, and whether its running workloads are evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// Weight in fair sharing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Whether past usage decides the order of the LocalQueues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Whether a workload is queued for several flavors at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// Queueing strategy of a ClusterQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QueueingStrategy {
    /// A head that does not fit blocks the workloads behind it.
    StrictFIFO,
    /// Workloads behind a head that does not fit may be admitted.
    #[default]
    BestEffortFIFO,
}

/// When the search for a flavor stops at a flavor that needs borrowing or preemption.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorFungibility {
    /// Whether to stop at a flavor that fits by borrowing; default: MayStopSearch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_can_borrow: Option<FungibilityPolicy>,
    /// Whether to stop at a flavor that fits after preemption; default: TryNextFlavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_can_preempt: Option<FungibilityPolicy>,
    /// Whether borrowing or preemption is preferred when both policies are TryNextFlavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<FungibilityPreference>,
}

/// Whether the search for a flavor may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FungibilityPolicy {
    /// Use this flavor.
    MayStopSearch,
    /// Evaluate later flavors, which may be better.
    TryNextFlavor,
}

/// Preference among flavors that fit only by borrowing or preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FungibilityPreference {
    /// Prefer borrowing.
    BorrowingOverPreemption,
    /// Prefer preemption.
    PreemptionOverBorrowing,
}

/// Workloads that a ClusterQueue may preempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueuePreemption {
    /// Workloads of other queues that may be preempted to reclaim this queue's nominal quota; default: Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_within_cohort: Option<ReclaimPolicy>,
    /// Workloads of other queues that may be preempted while this queue borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// Workloads of the same queue that may be preempted; default: Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_cluster_queue: Option<WithinClusterQueuePolicy>,
}

/// Workloads of other queues that may be preempted to reclaim nominal quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// No workload.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of any priority.
    Any,
}

/// Workloads of the same queue that may be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WithinClusterQueuePolicy {
    /// No workload.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, and newer workloads of equal priority.
    LowerOrNewerEqualPriority,
}

/// Preemption of workloads of other queues while the preemptor borrows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BorrowWithinCohort {
    /// Workloads that may be preempted; default: Never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<BorrowPolicy>,
    /// Highest priority of workloads that may be preempted; default: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Workloads that a borrowing preemptor may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum BorrowPolicy {
    /// No workload.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
}

/// Admission checks of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionChecksStrategy {
    /// The checks and the flavors to which they apply.
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// An admission check and the flavors to which it applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    pub name: String,
    /// Flavors that need the check; all flavors when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_flavors: Vec<String>,
}

/// Whether past usage decides the order of the LocalQueues of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionScope {
    /// Mode of admission fair sharing.
    pub admission_mode: AdmissionMode,
}

/// Mode of admission fair sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionMode {
    /// Workloads of LocalQueues with lower past usage come first.
    UsageBasedAdmissionFairSharing,
    /// Past usage has no effect.
    #[default]
    NoAdmissionFairSharing,
}

/// How a workload is queued for several flavors at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConcurrentAdmissionPolicy {
    /// Whether an admitted workload migrates to a more preferred flavor.
    pub migration: ConcurrentAdmissionMigration,
}

/// Migration between flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConcurrentAdmissionMigration {
    /// Mode of migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ConcurrentAdmissionMode>,
    /// Limits on migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Mode of migration between flavors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrentAdmissionMode {
    /// More preferred flavors are tried while the workload runs.
    TryPreferredFlavors,
    /// The workload stays on the first flavor that admits it.
    RetainFirstAdmission,
}

/// Limits on migration between flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConcurrentAdmissionConstraints {
    /// Least preferred flavor to which a workload may migrate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_acceptable_flavor_name: Option<String>,
}

/// Usage and number of workloads of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueueStatus {
    /// Conditions; `Active` tells whether the queue admits workloads, and why not.
    pub conditions: Vec<Condition>,
    /// Usage by workloads with a quota reservation.
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Usage by admitted workloads.
    pub flavors_usage: Vec<FlavorUsage>,
    /// Number of pending workloads.
    pub pending_workloads: i32,
    /// Number of workloads with a quota reservation.
    pub reserving_workloads: i32,
    /// Number of workloads that are admitted and not finished.
    pub admitted_workloads: i32,
    /// Share at the last computation; set only while fair sharing is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
