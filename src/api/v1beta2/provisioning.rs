//! ProvisioningRequestConfig: how workloads are turned into requests to a cluster autoscaler.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Settings of the ProvisioningRequest admission check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestConfig {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The settings.
    pub spec: ProvisioningRequestConfigSpec,
}

/// Settings of ProvisioningRequests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestConfigSpec {
    /// Class of the requests.
    pub provisioning_class_name: String,
    /// Parameters of the class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Resources that need a request; pod sets that ask for none of them need none. All when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<String>,
    /// How failed requests are repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_strategy: Option<ProvisioningRequestRetryStrategy>,
    /// What pods are given of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets are merged into one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<PodSetMergePolicy>,
}

/// How failed requests are repeated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestRetryStrategy {
    /// Most retries; 3 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit_count: Option<i32>,
    /// First wait in seconds; 60 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_base_seconds: Option<i32>,
    /// Longest wait in seconds; 1800 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_max_seconds: Option<i32>,
}

/// What pods are given of a ProvisioningRequest's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selector entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub node_selector: Vec<ProvisioningRequestNodeSelector>,
}

/// A node selector entry whose value comes from the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvisioningRequestNodeSelector {
    /// The node label.
    pub key: String,
    /// The detail of the answer that holds the value.
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are merged into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum PodSetMergePolicy {
    /// Those with equal pod templates.
    IdenticalPodTemplates,
    /// Those that the scheduler cannot tell apart.
    IdenticalWorkloadSchedulingRequirements,
}
