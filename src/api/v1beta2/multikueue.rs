//! MultiKueueConfig and MultiKueueCluster: the clusters that jobs may be sent to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clusters of a MultiKueue admission check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueConfig {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The clusters.
    pub spec: MultiKueueConfigSpec,
}

/// Clusters of a MultiKueueConfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters, in the order in which they are nominated.
    pub clusters: Vec<String>,
    /// Whether quota follows the workers; Manual when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

/// Who sets the quota of a manager's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum QuotaManagement {
    /// The administrator.
    Manual,
    /// The sum of the workers' quotas.
    Automated,
}

/// A cluster that jobs may be sent to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueCluster {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// How to reach it.
    pub spec: MultiKueueClusterSpec,
    /// Whether it is reached.
    pub status: MultiKueueClusterStatus,
}

/// How a cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueClusterSpec {
    /// Exactly one source of credentials.
    pub cluster_source: ClusterSource,
}

/// Source of a cluster's credentials.
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

/// Where a kubeconfig is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeConfig {
    /// Name of a Secret, or a path.
    pub location: String,
    /// Which of both.
    pub location_type: LocationType,
}

/// Kind of place of a kubeconfig.
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
    /// Its name.
    pub name: String,
}

/// Whether a cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct MultiKueueClusterStatus {
    /// `Active` says whether the connection stands.
    pub conditions: Vec<Condition>,
}
