//! LocalQueue: the way from a namespace to a ClusterQueue.

use super::{FairSharing, FlavorUsage, StopPolicy};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A namespace's entry to a ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueue {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Where the queue leads.
    pub spec: LocalQueueSpec,
    /// What it holds.
    pub status: LocalQueueStatus,
}

/// Where a LocalQueue leads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueSpec {
    /// The ClusterQueue; it does not change once set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    /// Whether the queue is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// Weight in admission fair sharing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What a LocalQueue holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueStatus {
    /// `Active` says whether the queue admits, and if not, why.
    pub conditions: Vec<Condition>,
    /// Workloads that wait.
    pub pending_workloads: i32,
    /// Workloads that hold a reservation.
    pub reserving_workloads: i32,
    /// Workloads that are admitted and not finished.
    pub admitted_workloads: i32,
    /// Usage by workloads that hold a reservation.
    pub flavors_reservation: Vec<FlavorUsage>,
    /// Usage by admitted workloads.
    pub flavors_usage: Vec<FlavorUsage>,
    /// Past usage, while admission fair sharing is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<LocalQueueFairSharingStatus>,
}

/// Past usage of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueFairSharingStatus {
    /// Share as last computed.
    pub weighted_share: i64,
    /// Decayed usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admission_fair_sharing_status: Option<AdmissionFairSharingStatus>,
}

/// Decayed usage of a LocalQueue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionFairSharingStatus {
    /// Usage by resource.
    pub consumed_resources: BTreeMap<String, Quantity>,
    /// When it was computed.
    pub last_update: Time,
}
