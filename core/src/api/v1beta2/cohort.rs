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
    /// Share at the last computation.
    pub status: CohortStatus,
}

impl Cohort {
    /// Returns the quota that counts; see `ClusterQueue::quota_groups`.
    pub fn quota_groups(&self) -> &[ResourceGroup] {
        &self.spec.resource_groups
    }
}

/// Parent, own quota and limits of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortSpec {
    /// Name of the parent Cohort; the Cohort is a root when absent. The parent object need not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_name: Option<String>,
    /// Quota of the Cohort itself, and limits on borrowing from and lending to the parent.
    pub resource_groups: Vec<ResourceGroup>,
    /// Weight in fair sharing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// Share of a Cohort.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortStatus {
    /// Share at the last computation; set only while fair sharing is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
