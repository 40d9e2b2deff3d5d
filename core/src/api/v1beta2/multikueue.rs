//! MultiKueueConfig and MultiKueueCluster: the worker clusters to which jobs may be dispatched.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The worker clusters of a MultiKueue admission check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueConfig {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The worker clusters.
    pub spec: MultiKueueConfigSpec,
}

/// Worker clusters of a MultiKueueConfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters, in the order in which they are nominated.
    pub clusters: Vec<String>,
    /// How the quota of the manager cluster's queues is set; default: Manual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

/// How the quota of the manager cluster's queues is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QuotaManagement {
    /// By the administrator.
    Manual,
    /// As the sum of the worker clusters' quotas.
    Automated,
}

/// A worker cluster to which jobs may be dispatched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueCluster {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// How to connect to the cluster.
    pub spec: MultiKueueClusterSpec,
    /// State of the connection.
    pub status: MultiKueueClusterStatus,
}

/// How to connect to a worker cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueClusterSpec {
    /// Exactly one source of credentials.
    pub cluster_source: ClusterSource,
}

/// Source of the credentials of a worker cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSource {
    /// A kubeconfig.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// A ClusterProfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Location of a kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeConfig {
    /// Name of a Secret, or path of a file, depending on `locationType`.
    pub location: String,
    /// Whether the location is a Secret or a file.
    pub location_type: LocationType,
}

/// Kind of location of a kubeconfig.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum LocationType {
    /// A Secret in the manager's namespace, key `kubeconfig`.
    #[default]
    Secret,
    /// A file.
    Path,
}

/// Reference to a ClusterProfile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProfileReference {
    /// Name of the ClusterProfile.
    pub name: String,
}

/// State of the connection to a worker cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueClusterStatus {
    /// Conditions; `Active` tells whether the cluster is connected.
    pub conditions: Vec<Condition>,
}
