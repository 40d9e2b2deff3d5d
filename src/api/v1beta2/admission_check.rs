//! AdmissionCheck: a condition, judged by another controller, that workloads must meet after quota is reserved.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A check that gates admission.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheck {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Who judges.
    pub spec: AdmissionCheckSpec,
    /// Whether its controller is ready.
    pub status: AdmissionCheckStatus,
}

/// Who judges a check, and by which parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckSpec {
    /// Name of the controller; it does not change.
    pub controller_name: String,
    /// An object with more settings for that controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParametersReference>,
}

/// Reference to an object with settings of a check.
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

/// Whether the controller of a check is ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionCheckStatus {
    /// `Active` says whether the check can be used.
    pub conditions: Vec<Condition>,
}
