//! ProvisioningRequestConfig: how requests to a cluster autoscaler are created for workloads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of a ProvisioningRequest admission check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestConfig {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Settings of the ProvisioningRequests.
    pub spec: ProvisioningRequestConfigSpec,
}

/// Settings of ProvisioningRequests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestConfigSpec {
    /// Provisioning class of the requests.
    pub provisioning_class_name: String,
    /// Parameters of the provisioning class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Resources that need a ProvisioningRequest; pod sets that request none of them need none. All when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<String>,
    /// How failed ProvisioningRequests are retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    /// Fields of the response that are copied to pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets are merged into one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// How failed ProvisioningRequests are retried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestRetryStrategy {
    /// Maximum number of retries; 3 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit_count: Option<i32>,
    /// Backoff before the first retry, in seconds; 60 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_base_seconds: Option<i32>,
    /// Maximum backoff, in seconds; 1800 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_max_seconds: Option<i32>,
}

/// Fields of a ProvisioningRequest's response that are copied to pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestPodSetUpdates {
    /// Entries added to the node selector.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_selector: Vec<ProvisioningRequestNodeSelector>,
}

/// A node selector entry whose value comes from the response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestNodeSelector {
    /// Key of the node label.
    pub key: String,
    /// Name of the provisioning class detail in the response that contains the value.
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are merged into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PodSetMergePolicy {
    /// Pod sets with equal pod templates.
    IdenticalPodTemplates,
    /// Pod sets with equal scheduling requirements.
    IdenticalWorkloadSchedulingRequirements,
}
