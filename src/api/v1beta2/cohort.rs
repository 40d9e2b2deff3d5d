//! Cohort: an inner node of the quota tree.

use super::{FairSharing, FairSharingStatus, ResourceGroup};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A group of ClusterQueues and Cohorts that share unused quota.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Cohort {
    /// Standard object metadata.
    pub metadata: ObjectMeta,
    /// Parent, own quota and limits.
    pub spec: CohortSpec,
    /// Share as last computed.
    pub status: CohortStatus,
}

/// Place of a Cohort in the tree, its own quota and its limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortSpec {
    /// The parent Cohort; a root when absent. It need not exist as an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    /// Quota that belongs to the Cohort itself, and limits towards the parent.
    pub resource_groups: Vec<ResourceGroup>,
    /// Weight in fair sharing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// Share of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortStatus {
    /// Share as last computed, while fair sharing is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
