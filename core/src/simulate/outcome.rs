//! The outcome of a scenario.

use crate::api::v1beta2::{DelayedTopologyRequestState, TopologyAssignment};
use serde::Serialize;
use std::collections::BTreeMap;

/// Outcome of one scenario, one line of output. Keys of objects are `namespace/name`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Admissions granted in this replay.
    pub admitted: BTreeMap<String, Grant>,
    /// Preempted workloads with the reason of the condition.
    pub preempted: BTreeMap<String, String>,
    /// Pending workloads that a later cycle nominates again, by ClusterQueue.
    pub pending: BTreeMap<String, Vec<String>>,
    /// Parked workloads, by ClusterQueue.
    pub inadmissible: BTreeMap<String, Vec<String>>,
    /// Status and reason of every condition of every workload.
    pub conditions: BTreeMap<String, BTreeMap<String, (String, String)>>,
    /// Objects that cannot be decoded, with the error.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unreadable: BTreeMap<String, String>,
}

/// Quota granted to a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// ClusterQueue that granted the quota.
    pub cluster_queue: String,
    /// Grants by pod set.
    pub pod_sets: Vec<PodSetGrant>,
}

/// Quota granted to a pod set.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetGrant {
    /// Name of the pod set.
    pub name: String,
    /// Number of pods.
    pub count: Option<i32>,
    /// Assigned flavor by resource.
    pub flavors: BTreeMap<String, String>,
    /// Total usage by resource, as quantities.
    pub resource_usage: BTreeMap<String, String>,
    /// Domains assigned to the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology_assignment: Option<TopologyAssignment>,
    /// State of a topology assignment that is computed after the quota reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_topology_request: Option<DelayedTopologyRequestState>,
}
