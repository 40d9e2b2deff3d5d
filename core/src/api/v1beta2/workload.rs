//! Workload: the unit of admission. The spec contains the requests of a job, the status the state of its admission.

use super::super::names;
use super::topology_assignment::TopologyAssignment;
use k8s_openapi::api::core::v1::{PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The requests of a job and the state of its admission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Pods, queue and priority of the workload.
    pub spec: WorkloadSpec,
    /// Admission state.
    pub status: WorkloadStatus,
}

/// Pods, queue and priority of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    /// Groups of pods with the same template.
    pub pod_sets: Vec<PodSet>,
    /// Name of the LocalQueue, in the namespace of the Workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_name: Option<String>,
    /// Priority class that defines the priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// Priority; workloads with a higher value are admitted first. 0 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Whether the workload may be admitted; if false it is evicted and not queued. True when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Maximum time in seconds that the workload may be admitted; it is deactivated when the time is exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that prevent the workload from preempting other workloads until they are opened.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGate>,
}

/// A gate that prevents a workload from preempting other workloads until it is opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PreemptionGate {
    /// Name of the gate.
    pub name: String,
}

/// Reference to the priority class of a workload.
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

/// A group of pods with the same template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Name of the pod set; `main` when absent.
    #[serde(default = "main_pod_set")]
    pub name: String,
    /// Template of the pods.
    #[serde(default)]
    pub template: PodTemplateSpec,
    /// Number of pods.
    #[serde(default = "one")]
    pub count: i32,
    /// Minimum number of pods for partial admission; partial admission is disabled when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_count: Option<i32>,
    /// Topology request of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_request: Option<PodSetTopologyRequest>,
}

fn main_pod_set() -> String {
    "main".to_owned()
}

const fn one() -> i32 {
    1
}

/// How the pods of a pod set are placed relative to each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetTopologyRequest {
    /// Node label of the level at which all pods must be in the same domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<String>,
    /// Node label of the level at which all pods should be in the same domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preferred: Option<String>,
    /// Unconstrained: any domain with capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unconstrained: Option<bool>,
    /// Pod label that contains the index of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_index_label: Option<String>,
    /// Pod label that contains the index of the replicated job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_index_label: Option<String>,
    /// Number of replicated jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_group_count: Option<i32>,
    /// Group name; pod sets with the same group name are placed in the same domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_group_name: Option<String>,
    /// Node label of the level at which all pods of a slice must be in the same domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_required_topology: Option<String>,
    /// Number of pods in each slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_slice_size: Option<i32>,
    /// Constraints of nested slices, from the widest to the narrowest level.
    #[serde(rename = "podsetSliceRequiredTopologyConstraints", skip_serializing_if = "Vec::is_empty")]
    pub pod_set_slice_required_topology_constraints: Vec<PodSetSliceTopologyConstraint>,
}

impl PodSetTopologyRequest {
    /// Returns whether the request is required, preferred or unconstrained. A request with only index labels is none of
    /// these.
    pub const fn names_topology(&self) -> bool {
        self.required.is_some() || self.preferred.is_some() || self.unconstrained.is_some()
    }

    /// Returns whether only a flavor with a topology can satisfy the request.
    pub const fn is_explicit(&self) -> bool {
        self.names_topology()
            || self.pod_set_slice_required_topology.is_some()
            || !self.pod_set_slice_required_topology_constraints.is_empty()
    }
}

/// Constraint of one layer of nested slices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetSliceTopologyConstraint {
    /// Node label of the level at which all pods of a slice must be in the same domain.
    pub topology: String,
    /// Number of pods in each slice.
    pub size: i32,
}

/// Admission state of a Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    /// Conditions of the workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Granted ClusterQueue, flavors and topology.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// Number of requeues and earliest time of the next requeue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods that no longer need their quota.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// States of the admission checks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// Effective requests of each pod set; set only while the workload is pending.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    #[schemars(with = "Vec<PodSetRequest>")]
    pub resource_requests: Arc<[PodSetRequest]>,
    /// Time in seconds that the workload was admitted in earlier admissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Scheduling statistics; never reset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Names of the worker clusters to which the workload may be dispatched.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nominated_cluster_names: Vec<String>,
    /// Name of the worker cluster to which the workload was dispatched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Assigned nodes that are unhealthy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// States of the preemption gates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// Granted ClusterQueue, flavors and topology.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Admission {
    /// Name of the ClusterQueue that admitted the workload.
    pub cluster_queue: String,
    /// Assignment of each pod set.
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// Flavors, count and topology granted to a pod set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// Name of the pod set.
    #[serde(default = "main_pod_set")]
    pub name: String,
    /// Assigned flavor by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// Total usage of the pod set by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// Number of admitted pods; the count of the pod set when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Domains assigned to the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// State of a topology assignment that is computed after the quota reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}

/// State of a topology assignment that is computed after the quota reservation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum DelayedTopologyRequestState {
    /// The topology is not assigned yet.
    Pending,
    /// The topology is assigned.
    Ready,
    /// A state that this version does not know, as it was written.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

/// Number of requeues and earliest time of the next requeue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RequeueState {
    /// Number of requeues after a PodsReady timeout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i32>,
    /// Earliest time of the next requeue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeue_at: Option<Time>,
}

/// Pods of a pod set that no longer need their quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReclaimablePod {
    /// Name of the pod set.
    pub name: String,
    /// Number of pods.
    pub count: i32,
}

/// State of an admission check for a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// Name of the check.
    pub name: String,
    /// State of the check.
    pub state: CheckState,
    /// Time of the last change of the state.
    pub last_transition_time: Time,
    /// Explanation of the state.
    #[serde(default)]
    pub message: String,
    /// Time in seconds to wait before the workload is requeued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_after_seconds: Option<i32>,
    /// Number of retries that the check requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_count: Option<i32>,
    /// Labels, annotations, node selectors and tolerations to add to the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set_updates: Vec<PodSetUpdate>,
}

/// State of an admission check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum CheckState {
    /// The check has no result yet.
    Pending,
    /// The check passed.
    Ready,
    /// The check failed; the workload is evicted and requeued.
    Retry,
    /// The check failed permanently; the workload is deactivated.
    Rejected,
    /// A state that this version does not know, as it was written: the check is not ready.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

impl CheckState {
    /// Returns whether the workload waits for the check.
    pub const fn is_waiting(&self) -> bool {
        matches!(self, Self::Pending | Self::Other(_))
    }
}

impl fmt::Display for CheckState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Retry => "Retry",
            Self::Rejected => "Rejected",
            Self::Other(text) => text,
        })
    }
}

/// Labels, annotations, node selector and tolerations that an admission check adds to the pods of a pod set.
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
    /// Node selector entries to add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
}

/// Effective requests of a pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSetRequest {
    /// Name of the pod set.
    pub name: String,
    /// Total request by resource.
    pub resources: BTreeMap<String, Quantity>,
}

/// Scheduling statistics; never reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingStats {
    /// Number of evictions by reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<EvictionCount>,
}

/// Number of evictions for a reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EvictionCount {
    /// Reason of the evictions.
    pub reason: String,
    /// Underlying cause of the evictions; empty if there is none.
    pub underlying_cause: String,
    /// Number of evictions.
    pub count: i32,
}

/// An assigned node that is unhealthy.
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
    /// Position of the gate.
    pub position: GatePosition,
    /// Time of the last change of the position.
    pub last_transition_time: Time,
}

/// Position of a preemption gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GatePosition {
    /// The workload may not preempt other workloads.
    Closed,
    /// The gate does not prevent preemption.
    Open,
    /// A position that this version does not know, as it was written: the gate is not open.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

impl WorkloadSpec {
    /// Returns whether the workload may be queued; true if the field is absent.
    pub fn is_active(&self) -> bool {
        self.active.unwrap_or(true)
    }
}

impl Workload {
    /// Returns the condition of type `kind`, if present.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|c| c.type_ == kind)
    }

    /// Returns whether the condition of type `kind` has status True.
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c.status == "True")
    }

    /// Returns the UID of the job of this Workload, from the label.
    pub fn job_uid(&self) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(names::JOB_UID_LABEL).map(String::as_str)
    }
}
