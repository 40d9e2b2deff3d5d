//! Workload: the unit of admission. The spec says what is asked for; the status says how far admission is.

use super::super::names;
use k8s_openapi::api::core::v1::{PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a job asks of the queues, and what it was granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// What is asked for.
    pub spec: WorkloadSpec,
    /// How far admission is.
    pub status: WorkloadStatus,
}

/// What a Workload asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// Groups of equal pods.
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue, in the same namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_name: Option<String>,
    /// The class that the priority came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Higher goes first; 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// False keeps the workload out of the queue and evicts it; true when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Seconds that the workload may run; when they are over it is deactivated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that keep the workload from preempting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGate>,
}

/// A gate that keeps a workload from preempting.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionGate {
    /// Its name.
    pub name: String,
}

/// Reference to the class of a priority.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClassRef {
    /// API group of the class.
    pub group: String,
    /// Kind of the class.
    pub kind: String,
    /// Name of the class.
    pub name: String,
}

/// A group of equal pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Its name, `main` when absent.
    #[serde(default = "main_pod_set")]
    pub name: String,
    /// The pods.
    #[serde(default)]
    pub template: PodTemplateSpec,
    /// How many.
    #[serde(default = "one")]
    pub count: i32,
    /// How few would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i32>,
    /// Where they should be placed relative to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

fn main_pod_set() -> String {
    "main".to_owned()
}

const fn one() -> i32 {
    1
}

/// Where the pods of a pod set should be placed relative to each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetTopologyRequest {
    /// Level at which all pods must share one domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// Level at which all pods should share one domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Only capacity matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Pod label with the rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// Pod label with the index of the replicated job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// Number of replicated jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Pod sets with the same value are placed together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// Level of each slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Pods of each slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_size: Option<i32>,
    /// Slices in several layers, widest first.
    #[serde(rename = "podsetSliceRequiredTopologyConstraints", skip_serializing_if = "Vec::is_empty")]
    pub pod_set_slice_required_topology_constraints: Vec<PodSetSliceTopologyConstraint>,
}

impl PodSetTopologyRequest {
    /// Whether the pods ask for a topology or say that they need none. A request that only names the labels of ranks does
    /// neither.
    pub const fn names_topology(&self) -> bool {
        self.required.is_some() || self.preferred.is_some() || self.unconstrained.is_some()
    }

    /// Whether a flavor without a topology would not do.
    pub const fn is_explicit(&self) -> bool {
        self.names_topology()
            || self.pod_set_slice_required_topology.is_some()
            || !self.pod_set_slice_required_topology_constraints.is_empty()
    }
}

/// One layer of slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetSliceTopologyConstraint {
    /// Level of the layer.
    pub topology: String,
    /// Pods of each slice.
    pub size: i32,
}

/// How far admission is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// The story of the workload; the types and reasons are Kueue's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// What was granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// When and how often the workload was queued again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods that will not run again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// State of the admission checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// Effective requests while pending: alike for all Workloads of one template.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(with = "Vec<PodSetRequest>")]
    pub resource_requests: Arc<[PodSetRequest]>,
    /// Seconds admitted in earlier admissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Counters that are never reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Clusters that the workload may be sent to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nominated_cluster_names: Vec<String>,
    /// The cluster that it was sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Assigned nodes that have failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// State of the preemption gates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// What was granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// The ClusterQueue that granted it.
    pub cluster_queue: String,
    /// One assignment for each pod set.
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What a pod set was granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[serde(default = "main_pod_set")]
    pub name: String,
    /// Flavor by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// Total of the pod set by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// Pods granted; the count of the pod set when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Where the pods go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Whether the topology is assigned later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}

/// State of a topology that is assigned after the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DelayedTopologyRequestState {
    /// Not assigned yet.
    Pending,
    /// Assigned.
    Ready,
}

/// Domains and pod counts, compressed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignment {
    /// Node labels of the levels that values are given for.
    pub levels: Vec<String>,
    /// Runs of domains.
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A run of domains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentSlice {
    /// Domains in the run.
    pub domain_count: i32,
    /// Values for each level.
    pub values_per_level: Vec<TopologyAssignmentValues>,
    /// Pods of each domain.
    pub pod_counts: TopologyAssignmentPodCounts,
}

/// Values of one level: one for all domains of the run, or one each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentValues {
    /// The value of all domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// A value for each domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub individual: Option<TopologyAssignmentIndividualValues>,
}

/// A value for each domain, without a common prefix and suffix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentIndividualValues {
    /// Put before each root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Put after each root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// What differs.
    pub roots: Vec<String>,
}

/// Pods of each domain of a run: one count for all, or one each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentPodCounts {
    /// The count of all domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub universal: Option<i32>,
    /// A count for each domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub individual: Vec<i32>,
}

/// When and how often a workload was queued again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RequeueState {
    /// Times that it was queued again after a pods-ready timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Not before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods of a pod set that will not run again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReclaimablePod {
    /// Name of the pod set.
    pub name: String,
    /// How many.
    pub count: i32,
}

/// State of one admission check for one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// Name of the check.
    pub name: String,
    /// The state.
    pub state: CheckState,
    /// When the state last changed.
    pub last_transition_time: Time,
    /// Why.
    #[serde(default)]
    pub message: String,
    /// Seconds to wait before the workload is queued again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i32>,
    /// Times that the check asked for a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// What pods are given on the check's behalf.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// State of an admission check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    /// Not judged yet.
    Pending,
    /// Passed.
    Ready,
    /// Failed now; the workload is queued again.
    Retry,
    /// Failed for good; the workload is deactivated.
    Rejected,
}

/// What the pods of a pod set are given on a check's behalf.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetUpdate {
    /// Name of the pod set.
    pub name: String,
    /// Labels to add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations to add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Node selector to add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// Effective requests of a pod set while pending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetRequest {
    /// Name of the pod set.
    pub name: String,
    /// Total by resource.
    pub resources: BTreeMap<String, Quantity>,
}

/// Counters that are never reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingStats {
    /// Evictions by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<EvictionCount>,
}

/// Evictions for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionCount {
    /// The reason.
    pub reason: String,
    /// What was behind it, or empty.
    pub underlying_cause: String,
    /// How many.
    pub count: i32,
}

/// An assigned node that has failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UnhealthyNode {
    /// Name of the node.
    pub name: String,
}

/// State of a preemption gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGateState {
    /// Name of the gate.
    pub name: String,
    /// Open or closed.
    pub position: GatePosition,
    /// When it last changed.
    pub last_transition_time: Time,
}

/// Position of a preemption gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GatePosition {
    /// The workload may not preempt.
    Closed,
    /// It may.
    Open,
}

impl WorkloadSpec {
    /// Whether the workload may be queued; a missing field means yes.
    pub fn is_active(&self) -> bool {
        self.active.unwrap_or(true)
    }
}

impl Workload {
    /// The condition of a type, if it is there.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|c| c.type_ == kind)
    }

    /// Whether the condition of a type is there with status True.
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c.status == "True")
    }

    /// UID of the job that the Workload was made for, from its label.
    pub fn job_uid(&self) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(names::JOB_UID_LABEL).map(String::as_str)
    }
}
