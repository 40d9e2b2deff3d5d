//! Values of pages, made of the objects of `visibility.sluice.dev`. The JSON form of a page is its value.
//!
//! Invariants: a value is built for one viewer, and holds only what that viewer may see; each number of a page is in its value.

use crate::visibility::views::{
    ClusterQueueView, CohortView, Finding, FindingCounts, LendingPair, LineReport, ListMetadata,
    LocalQueueView, ManagerView, QuotaView, ReasonCount, Source, WorkloadView,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parameters of the start page, or of the page of a cohort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverviewQuery {
    /// The cohort whose subtree is meant; empty for the whole tree.
    pub cohort: String,
    /// The flavor-resource `FLAVOR:RESOURCE` of the tree; empty for the one of which most is borrowed, or most is pending.
    pub fr: String,
}

/// The start page: all queues, or the queues below a cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The cohort whose subtree is shown; empty for the whole tree.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cohort: String,
    /// The flavor-resource of the tree that was asked for.
    #[serde(skip)]
    pub fr: String,
    /// Number of pending workloads.
    pub pending: u64,
    /// Number of pending workloads that only a change can admit.
    pub needs_change: u64,
    /// Number of workloads that are not admitted, by reason; the most frequent first.
    pub reasons: Vec<ReasonCount>,
    /// Number of admitted workloads.
    pub admitted: u64,
    /// Numbers of objects below the cohort.
    #[serde(flatten)]
    pub numbers: OverviewNumbers,
    /// Cohorts.
    pub cohorts: Vec<CohortView>,
    /// ClusterQueues.
    pub cluster_queues: Vec<ClusterQueueView>,
    /// The manager, if the viewer may see it and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<ManagerView>,
    /// Number of findings, if an audit has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding_counts: Option<FindingCounts>,
    /// The first findings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Lines of the last 24 hours, of the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trend: Option<LineReport>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default)]
    pub partial: bool,
}

/// Numbers of the start page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OverviewNumbers {
    /// Number of ClusterQueues.
    pub cluster_queue_count: u64,
    /// Number of cohorts.
    pub cohort_count: u64,
    /// Number of heads that fit and are not admitted.
    pub waiting_heads: u64,
    /// When the longest pending workload of each reason became pending; only for the whole tree.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub oldest: BTreeMap<String, Timestamp>,
    /// Number of ClusterQueues with a quota of each flavor-resource `FLAVOR:RESOURCE`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cluster_queues_by_flavor_resource: BTreeMap<String, u64>,
    /// Which ClusterQueues borrow from which nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lending: Vec<LendingPair>,
}

/// The page of a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueuePage {
    /// The ClusterQueue.
    pub cluster_queue: ClusterQueueView,
    /// The nodes from the ClusterQueue to the root, for the flavor-resource with the highest usage.
    pub path: Vec<PathNode>,
    /// The first pending workloads.
    pub next: Vec<WorkloadView>,
    /// LocalQueues that point to the ClusterQueue.
    pub local_queues: Vec<LocalQueueView>,
    /// The reserving workloads that use most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub largest: Vec<WorkloadView>,
    /// Lines of the last 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trend: Option<LineReport>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default)]
    pub partial: bool,
}

/// A node on the path from a ClusterQueue to its root.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PathNode {
    /// `ClusterQueue` or `Cohort`.
    pub kind: String,
    /// Name of the ClusterQueue or cohort.
    pub name: String,
    /// Quota of the node for the flavor-resource of the path.
    pub quota: QuotaView,
    /// Whether it is the node that limits the ClusterQueue.
    pub binds: bool,
}

/// Parameters of a page of pending workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingQuery {
    /// Name of the ClusterQueue; empty for all.
    #[serde(rename = "cq")]
    pub cluster_queue: String,
    /// The namespace; empty for all.
    #[serde(rename = "ns")]
    pub namespace: String,
    /// Name of the LocalQueue, which needs a namespace; empty for all.
    #[serde(rename = "lq")]
    pub local_queue: String,
    /// Name of the cohort above the ClusterQueue; empty for all. It needs the view of the cluster.
    pub cohort: String,
    /// A pending reason, `waiting` or `stuck`; empty for all.
    pub reason: String,
    /// The least that a workload needs: `RESOURCE=AMOUNT`; empty for all.
    pub min: String,
    /// A part of the name, or a label as `KEY=VALUE`; empty for all.
    pub q: String,
    /// The order: `position`, `priority`, `wait` or `size`; empty for `position`.
    pub sort: String,
    /// The order key of the last row of the page before; empty for the first page.
    pub after: String,
    /// Most rows.
    pub limit: u64,
}

/// A page of pending workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingPage {
    /// What was asked for.
    pub query: PendingQuery,
    /// Continue token, and number of the remaining rows.
    pub metadata: ListMetadata,
    /// The rows.
    pub items: Vec<WorkloadView>,
    /// Number of pending workloads of the queue and namespace, whatever their reason; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Number of pending workloads that time alone can admit.
    pub waiting: u64,
    /// Number of pending workloads that only a change can admit.
    pub needs_change: u64,
    /// Number of pending workloads by reason, the most frequent first.
    pub reasons: Vec<ReasonCount>,
    /// Names of ClusterQueues to choose from.
    pub cluster_queues: Vec<String>,
    /// Names of namespaces to choose from.
    pub namespaces: Vec<String>,
    /// Names of LocalQueues of the namespace to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_queues: Vec<String>,
    /// Names of cohorts to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cohorts: Vec<String>,
    /// Number of ClusterQueues with such workloads, if the viewer sees all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_count: Option<u64>,
    /// Number of workloads that were searched, if not all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched: Option<u64>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default)]
    pub partial: bool,
}

/// The page of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespacePage {
    /// The namespace.
    pub namespace: String,
    /// Number of its pending workloads.
    pub pending: u64,
    /// Number of pending workloads that only a change can admit.
    pub needs_change: u64,
    /// Number of its admitted workloads.
    pub admitted: u64,
    /// LocalQueues of the namespace.
    pub local_queues: Vec<LocalQueueView>,
    /// The first pending workloads of the namespace.
    pub workloads: Vec<WorkloadView>,
    /// Replica, time and state that the page was made from.
    pub source: Source,
    /// Whether a part is missing or may differ from the leader's.
    #[serde(default)]
    pub partial: bool,
}
