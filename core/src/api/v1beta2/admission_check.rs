//! AdmissionCheck: a condition evaluated by another controller, which workloads must meet after quota is reserved.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A check that a controller must pass before a workload with reserved quota is admitted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheck {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Controller that evaluates the check, and its parameters.
    pub spec: AdmissionCheckSpec,
    /// Whether the check can be used.
    pub status: AdmissionCheckStatus,
}

/// Controller that evaluates the check, and its parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckSpec {
    /// Name of the controller; immutable.
    pub controller_name: String,
    /// Reference to an object with further settings for the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

/// Reference to an object with settings for the controller of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckParametersReference {
    /// API group of the object.
    pub api_group: String,
    /// Kind of the object.
    pub kind: String,
    /// Name of the object.
    pub name: String,
}

/// Observed state of an AdmissionCheck.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckStatus {
    /// Conditions; `Active` tells whether the check can be used.
    pub conditions: Vec<Condition>,
}
