//! LocalQueue: maps a queue name in a namespace to a ClusterQueue.

use super::{FairSharing, FlavorUsage, StopPolicy};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A queue of a namespace that submits workloads to a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueue {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// ClusterQueue and policies.
    pub spec: LocalQueueSpec,
    /// Usage and number of pending, reserving and admitted workloads.
    pub status: LocalQueueStatus,
}

/// ClusterQueue and policies of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueSpec {
    /// Name of the ClusterQueue; immutable once set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    /// Whether the queue is stopped, and whether its running workloads are evicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// Weight in admission fair sharing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// Usage and number of workloads of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueStatus {
    /// Conditions; `Active` tells whether the queue admits workloads, and why not.
    pub conditions: Vec<Condition>,
    /// Number of pending workloads.
    pub pending_workloads: i32,
    /// Number of workloads with a quota reservation.
    pub reserving_workloads: i32,
    /// Number of workloads that are admitted and not finished.
    pub admitted_workloads: i32,
    /// Usage by workloads with a quota reservation.
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Usage by admitted workloads.
    pub flavors_usage: Vec<FlavorUsage>,
    /// Past usage; set only while admission fair sharing is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// Past usage of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueFairSharingStatus {
    /// Share at the last computation.
    pub weighted_share: i64,
    /// Past usage with exponential decay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Past usage of a LocalQueue with exponential decay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Decayed usage by resource.
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// Time of the last computation.
    pub last_update: Time,
}
