//! What came of a scenario.

use crate::api::v1beta2::{DelayedTopologyRequestState, TopologyAssignment};
use serde::Serialize;
use std::collections::BTreeMap;

/// One line of output. Keys of objects are `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// What was granted.
    pub admitted: BTreeMap<String, Grant>,
    /// Who was evicted to make room, and the reason of the condition.
    pub preempted: BTreeMap<String, String>,
    /// Who is judged again in the next cycle or a later one, by ClusterQueue.
    pub pending: BTreeMap<String, Vec<String>>,
    /// Who waits for a change, by ClusterQueue.
    pub inadmissible: BTreeMap<String, Vec<String>>,
    /// Status and reason of every condition of every workload.
    pub conditions: BTreeMap<String, BTreeMap<String, (String, String)>>,
    /// Objects that cannot be read, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unreadable: BTreeMap<String, String>,
}

/// The quota that a workload was granted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Whose quota it is.
    pub cluster_queue: String,
    /// By pod set.
    pub pod_sets: Vec<PodSetGrant>,
}

/// The quota that a pod set was granted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetGrant {
    /// Name of the pod set.
    pub name: String,
    /// Number of pods.
    pub count: Option<i32>,
    /// Flavor by resource.
    pub flavors: BTreeMap<String, String>,
    /// Total by resource, as quantities.
    pub resource_usage: BTreeMap<String, String>,
    /// Where the pods go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// Whether the topology is assigned later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}
