//! ClusterQueues, cohorts and LocalQueues with quota, usage and counts.
//!
//! Invariant: for each cohort and flavor-resource, *borrowed(children) + lent(cohort) = lent(children) + lent(own quota) +
//! borrowed(cohort)*.

use super::answer::{AmountView, ViewMetadata, is_false};
use super::past_usage::PastUsage;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueView {
    /// Metadata of the ClusterQueue.
    pub metadata: ViewMetadata,
    /// Name of the parent cohort; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cohort: String,
    /// Whether it admits workloads.
    pub active: bool,
    /// Why it is inactive: reason of its condition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Message of that condition.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// `StrictFIFO` or `BestEffortFIFO`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub queueing_strategy: String,
    /// Numbers of pending workloads.
    pub pending: PendingView,
    /// Number of its workloads with quota.
    pub reserving: u64,
    /// Number of its admitted workloads.
    pub admitted: u64,
    /// Quota and usage, by flavor-resource in the order of its spec.
    #[serde(default)]
    pub quota: Vec<QuotaView>,
    /// Dominant resource share, if fair sharing is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareView>,
    /// Numbers of workloads that are not admitted, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ReasonCount>,
}

/// Pending workloads of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingView {
    /// Number of all pending workloads.
    pub total: u64,
    /// Number of workloads that the next cycles evaluate.
    pub active: u64,
    /// Number of workloads that are parked until their blocker changes.
    pub inadmissible: u64,
}

/// Quota and usage of a flavor-resource at a node of the quota tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuotaView {
    /// The ResourceFlavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
    /// Nominal quota of the node; of a cohort, the sum over the cohort and its subtree.
    pub nominal: AmountView,
    /// Current usage; of a cohort, the sum of its ClusterQueues.
    pub used: AmountView,
    /// Usage beyond the quota that the node has: what its parent provides.
    pub borrowed: AmountView,
    /// What others use of its unused quota; absent for a node without a parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent: Option<AmountView>,
    /// The borrowing limit; absent if there is none, or no cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<AmountView>,
    /// The lending limit; absent if there is none, or no cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<AmountView>,
    /// The most that it can ever use: with nothing else in use.
    pub limit: AmountView,
    /// What it could use beside its usage now.
    pub available: AmountView,
}

/// Quota that a ClusterQueue borrows from another node: one assignment of lent to borrowed quota that adds up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LendingPair {
    /// The ResourceFlavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
    /// The ClusterQueue that borrows.
    pub borrower: String,
    /// `ClusterQueue/NAME`, or `Cohort/NAME` for quota that a cohort has beside its children.
    pub lender: String,
    /// The amount, in the unit of the borrower's quota.
    pub amount: AmountView,
}

/// Dominant resource share of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShareView {
    /// The value that the engine compares: borrowed quota in thousandths of the lendable quota, divided by the weight.
    pub value: i64,
    /// The fair weight, as a quantity.
    pub weight: String,
    /// The flavor and resource that make the share; absent if nothing is borrowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant_resource: Option<String>,
    /// The node's place among its siblings in the next cycle if all heads fit, by the shares as they are now; 1 is the first, absent
    /// without a head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// The preemption strategies, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strategies: Vec<String>,
}

/// Number of workloads with one reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasonCount {
    /// The reason: of `QuotaReserved=False` if that is why, else of `Admitted=False`.
    pub reason: String,
    /// Number of workloads.
    pub count: u64,
}

/// A cohort with its subtree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortView {
    /// Metadata of the Cohort; without a UID if the cohort exists only because others name it.
    pub metadata: ViewMetadata,
    /// Name of the parent; empty for a root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub parent: String,
    /// Names of the cohorts right below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cohorts: Vec<String>,
    /// Names of the ClusterQueues right below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_queues: Vec<String>,
    /// Number of pending workloads of its subtree.
    pub pending: u64,
    /// Number of workloads with quota of its subtree.
    pub reserving: u64,
    /// Number of admitted workloads of its subtree.
    pub admitted: u64,
    /// Quota and usage by flavor-resource.
    #[serde(default)]
    pub quota: Vec<QuotaView>,
    /// Dominant resource share, if fair sharing is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<ShareView>,
    /// Whether its parents form a cycle, so that nothing below it is admitted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cycle: bool,
}

/// A LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueView {
    /// Metadata of the LocalQueue.
    pub metadata: ViewMetadata,
    /// The ClusterQueue that it names.
    pub cluster_queue: String,
    /// Whether its workloads may be admitted.
    pub active: bool,
    /// Why not: `Stopped`, `ClusterQueueDoesNotExist`, `ClusterQueue` with the reason of its ClusterQueue, `NamespaceNotSelected` if the
    /// namespaceSelector of its ClusterQueue excludes its namespace, or `BlockedByWorkload` if a new workload of priority 0 would be
    /// behind one that can never be admitted; empty if they may.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Numbers of pending workloads.
    pub pending: PendingView,
    /// Number of its workloads with quota.
    pub reserving: u64,
    /// Number of its admitted workloads.
    pub admitted: u64,
    /// Own usage and available amounts, by flavor-resource.
    #[serde(default)]
    pub quota: Vec<LocalQuotaView>,
    /// Numbers of workloads that are not admitted, by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<ReasonCount>,
    /// Past usage divided by the weight, if admission fair sharing is on and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past_usage: Option<PastUsage>,
    /// Whether its ClusterQueue orders the workloads of its LocalQueues by their past usage.
    #[serde(default, skip_serializing_if = "is_false")]
    pub by_past_usage: bool,
}

/// Usage of a flavor-resource by the workloads of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalQuotaView {
    /// The ResourceFlavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
    /// What its own workloads use.
    pub used: AmountView,
    /// What its ClusterQueue could use beside its usage now.
    pub available: AmountView,
    /// Sums of the ClusterQueue, without names; absent if the manager's `visibility.tenantDetail` is `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<QuotaView>,
}

/// Returns the state of a LocalQueue in words for its reason; `None` if the reason has none.
pub fn state_in_words(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "Stopped" => "stopped",
        "ClusterQueueDoesNotExist" => "its ClusterQueue does not exist",
        "ClusterQueueStopped" => "its ClusterQueue is stopped",
        "NamespaceNotSelected" => "its ClusterQueue does not select this namespace",
        "BlockedByWorkload" => "behind a workload that can never be admitted",
        _ => return None,
    })
}
