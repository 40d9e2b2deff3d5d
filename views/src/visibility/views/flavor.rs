//! Flavors: nodes, quota, usage, and pods that still fit.

use super::answer::{AmountView, ViewMetadata, is_false, is_zero};
use super::queues::LocalQuotaView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorView {
    /// Metadata of the ResourceFlavor.
    pub metadata: ViewMetadata,
    /// Name of the Topology; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub topology: String,
    /// Numbers of nodes that match the flavor.
    pub nodes: NodeCount,
    /// Capacity, quota and usage by resource, the scarcest first.
    #[serde(default)]
    pub resources: Vec<FlavorResourceView>,
    /// What one pod asks for in `largestGang`, by resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod: Vec<super::workload::Need>,
    /// What fits within one domain of each level, and anywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<LevelView>,
    /// Whether `levels` is counted by node, without a topology.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approximate: bool,
    /// The ClusterQueue whose quota bounds `levels` too; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// Hosts, or the narrowest domains, in the order of their levels, then the ones that are not schedulable; only of a flavor
    /// that is asked for by its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainView>,
    /// How often all pods of the Workload that was asked for fit, all pod sets together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobFitView>,
}

/// How often all pods of a Workload would be placed on a flavor, as the scheduler places one such job after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobFitView {
    /// The Workload, as namespace/name.
    pub workload: String,
    /// Pod sets of the Workload.
    pub pod_sets: Vec<PodSetShape>,
    /// Number of such jobs that fit one beside the other now; 0 if the job does not fit.
    pub copies: u64,
    /// Whether counting ended at this number, so that more may fit.
    #[serde(default, skip_serializing_if = "is_false")]
    pub at_least: bool,
    /// Why no further one fits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub limited_by: String,
}

/// A pod set of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetShape {
    /// Name of the pod set.
    pub name: String,
    /// Number of pods.
    pub count: u64,
    /// What one pod asks for, by resource.
    pub pod: Vec<super::workload::Need>,
}

/// A workload on a host, or in a narrowest domain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OccupantView {
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// What its pods there use, of the first resource of the flavor.
    pub amount: AmountView,
}

/// A host, or a narrowest domain, of a topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainView {
    /// Values of its levels, the widest first.
    pub values: Vec<String>,
    /// What is free, of the first resource of the flavor.
    pub free: AmountView,
    /// Allocatable amount of it, less what pods outside of topology assignments use.
    pub capacity: AmountView,
    /// Whether it is ready and not cordoned.
    pub schedulable: bool,
}

/// Number of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCount {
    /// Number of nodes that match the flavor.
    pub total: u64,
    /// Number of these nodes that are ready, not cordoned and in all levels of the topology.
    pub schedulable: u64,
    /// Number of nodes that match the flavor and lack a label of the topology.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub without_level: u64,
}

/// Capacity, quota and usage of a resource of a flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorResourceView {
    /// The resource.
    pub resource: String,
    /// Allocatable amount of the schedulable nodes.
    pub schedulable: AmountView,
    /// Sum of the nominal quotas.
    pub quota: AmountView,
    /// Schedulable less quota; negative if quotas exceed the capacity.
    pub slack: AmountView,
    /// What workloads are charged.
    pub charged: AmountView,
    /// What pods outside of any quota use.
    pub others: AmountView,
    /// What is free on the schedulable nodes.
    pub free: AmountView,
}

/// What fits within one domain of a topology level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LevelView {
    /// Name of the level's label; empty for anywhere.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub level: String,
    /// Number of its domains.
    pub domains: u64,
    /// The most that is free in one of them, of the first resource of the flavor.
    pub most_free: AmountView,
    /// The first domain with that much, its levels joined by `/`.
    #[serde(rename = "where", default, skip_serializing_if = "String::is_empty")]
    pub location: String,
    /// Number of further domains with that much.
    #[serde(default)]
    pub more: u64,
    /// Most pods that fit within one domain now.
    pub largest_gang: u64,
    /// The resource that limits it, or `quota`, `taints` or `nodes` if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub limited_by: String,
}

/// What the workloads of a LocalQueue may use now: bounded by the quota of its ClusterQueue and by free nodes, without names of
/// nodes and sums of other tenants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCapacityView {
    /// Metadata of the LocalQueue.
    pub metadata: ViewMetadata,
    /// The ClusterQueue that it names.
    pub cluster_queue: String,
    /// Whether its workloads may be admitted; if not, no pod fits.
    pub active: bool,
    /// Why not, as in a `LocalQueueView`; empty if they may.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The flavors of the ClusterQueue, in the order of its spec.
    #[serde(default)]
    pub flavors: Vec<QueueFlavorView>,
}

/// What the workloads of a LocalQueue may use of a flavor now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueFlavorView {
    /// The ResourceFlavor.
    pub flavor: String,
    /// Own usage and available quota, by resource.
    #[serde(default)]
    pub quota: Vec<LocalQuotaView>,
    /// The pods that fit within one domain of each level of the flavor's topology, and anywhere; only of a pod that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<QueueLevelView>,
    /// Whether `levels` is counted by node, without a topology.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approximate: bool,
}

/// How many pods of a LocalQueue fit within one domain of a topology level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueLevelView {
    /// Name of the level's label; empty for anywhere.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub level: String,
    /// Most pods that fit within one domain now.
    pub largest_gang: u64,
    /// What limits it: a resource, `quota`, `taints`, `nodes`, or why the queue is not active.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub limited_by: String,
}
