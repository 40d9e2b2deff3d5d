//! WorkloadPriorityClass: a priority of workloads, independent of the priority of their pods.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named priority of workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadPriorityClass {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The priority; workloads with a higher value are admitted first.
    pub value: i32,
    /// When to use this class.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}
