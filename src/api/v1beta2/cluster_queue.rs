//! ClusterQueue: a pool of quota, the rules by which it is given, and what of it is in use.

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
    /// Quota and rules.
    pub spec: ClusterQueueSpec,
    /// What is pending, reserved and admitted.
    pub status: ClusterQueueStatus,
}

/// Quota of a ClusterQueue and the rules by which it is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueueSpec {
    /// Resources and the flavors that provide them.
    pub resource_groups: Vec<ResourceGroup>,
    /// The Cohort whose unused quota this queue may borrow; it need not exist as an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort_name: Option<String>,
    /// How the head of the queue treats those behind it.
    pub queueing_strategy: QueueingStrategy,
    /// Namespaces that may use this queue: absent selects none, empty selects all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    /// When the search over flavors stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Who may be evicted to make room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemption: Option<ClusterQueuePreemption>,
    /// Admission checks and the flavors that they apply to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Whether the queue is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// Weight in fair sharing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Whether past usage orders the LocalQueues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// Whether one workload is tried on several flavors at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrent_admission_policy: Option<ConcurrentAdmissionPolicy>,
}

/// Order of admission within a ClusterQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QueueingStrategy {
    /// A head that does not fit blocks those behind it.
    StrictFIFO,
    /// Those behind a head that does not fit may be admitted.
    #[default]
    BestEffortFIFO,
}

/// When the search over flavors stops.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorFungibility {
    /// What to do when a flavor fits by borrowing; MayStopSearch when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_can_borrow: Option<FungibilityPolicy>,
    /// What to do when a flavor fits after preemption; TryNextFlavor when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when_can_preempt: Option<FungibilityPolicy>,
    /// Which of borrowing and preemption is better when both policies try the next flavor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preference: Option<FungibilityPreference>,
}

/// Whether the search may stop at a flavor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FungibilityPolicy {
    /// Take this flavor.
    MayStopSearch,
    /// Look whether a later flavor is better.
    TryNextFlavor,
}

/// What is better among flavors that do not simply fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum FungibilityPreference {
    /// Borrow rather than preempt.
    BorrowingOverPreemption,
    /// Preempt rather than borrow.
    PreemptionOverBorrowing,
}

/// Who may be evicted to make room.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueuePreemption {
    /// Workloads of other queues that use quota of this one; Never when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim_within_cohort: Option<ReclaimPolicy>,
    /// Workloads of other queues while this one borrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// Workloads of the same queue; Never when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_cluster_queue: Option<WithinClusterQueuePolicy>,
}

/// Which workloads of other queues may be evicted to reclaim lent quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ReclaimPolicy {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Any.
    Any,
}

/// Which workloads of the same queue may be evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum WithinClusterQueuePolicy {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Those of lower priority, and newer ones of equal priority.
    LowerOrNewerEqualPriority,
}

/// Preemption in other queues while the preemptor borrows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BorrowWithinCohort {
    /// Which workloads; Never when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<BorrowPolicy>,
    /// Highest priority that a victim may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

/// Which workloads may be evicted by one that borrows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum BorrowPolicy {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
}

/// Admission checks of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionChecksStrategy {
    /// The checks, by name.
    pub admission_checks: Vec<AdmissionCheckStrategyRule>,
}

/// One admission check and the flavors that it applies to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckStrategyRule {
    /// Name of the AdmissionCheck.
    pub name: String,
    /// Flavors that need the check; all when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_flavors: Vec<String>,
}

/// Whether past usage orders the LocalQueues of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionScope {
    /// The mode.
    pub admission_mode: AdmissionMode,
}

/// Mode of admission fair sharing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum AdmissionMode {
    /// LocalQueues that used less come first.
    UsageBasedAdmissionFairSharing,
    /// Past usage does not count.
    #[default]
    NoAdmissionFairSharing,
}

/// How one workload is tried on several flavors at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConcurrentAdmissionPolicy {
    /// Whether an admitted workload moves to a better flavor.
    pub migration: ConcurrentAdmissionMigration,
}

/// Rules of migration between flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConcurrentAdmissionMigration {
    /// The mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<ConcurrentAdmissionMode>,
    /// Limits on migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<ConcurrentAdmissionConstraints>,
}

/// Mode of migration between flavors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrentAdmissionMode {
    /// Better flavors are tried while the workload runs.
    TryPreferredFlavors,
    /// The first flavor that admits is kept.
    RetainFirstAdmission,
}

/// Limits on migration between flavors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConcurrentAdmissionConstraints {
    /// The least preferred flavor that a workload may migrate to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_acceptable_flavor_name: Option<String>,
}

/// What a ClusterQueue holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueueStatus {
    /// `Active` says whether the queue admits, and if not, why.
    pub conditions: Vec<Condition>,
    /// Usage by workloads that hold a reservation.
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Usage by admitted workloads.
    pub flavors_usage: Vec<FlavorUsage>,
    /// Workloads that wait.
    pub pending_workloads: i32,
    /// Workloads that hold a reservation.
    pub reserving_workloads: i32,
    /// Workloads that are admitted and not finished.
    pub admitted_workloads: i32,
    /// Share as last computed, while fair sharing is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
