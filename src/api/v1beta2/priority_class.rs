//! WorkloadPriorityClass: a priority in the queue that is independent of the pods' priority.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A named priority of workloads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadPriorityClass {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// The priority; higher goes first.
    pub value: i32,
    /// When to use this class.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}
