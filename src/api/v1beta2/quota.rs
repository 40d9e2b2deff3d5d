//! Parts shared by ClusterQueue, LocalQueue and Cohort: resource groups, quotas, fair sharing, stop policy.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resources that are always given by the same flavor, and the flavors in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceGroup {
    /// Names of the resources that this group's flavors provide.
    pub covered_resources: Vec<String>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// Quotas of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorQuotas {
    /// Name of the ResourceFlavor.
    pub name: String,
    /// One quota per covered resource, in the order of the covered resources.
    pub resources: Vec<ResourceQuota>,
}

/// Quota of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// Name of the resource.
    pub name: String,
    /// What this queue or cohort owns.
    pub nominal_quota: Quantity,
    /// Most that may be borrowed from the cohort beyond the nominal quota; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<Quantity>,
    /// Most of the nominal quota that may be lent to the cohort; all of it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<Quantity>,
}

/// Weight of a queue or cohort in fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FairSharing {
    /// Relative weight, 1 when absent; 0 means that it always comes last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Quantity>,
}

impl FairSharing {
    /// The weight as a number; none if it is absent or cannot be read.
    pub fn number(&self) -> Option<f64> {
        crate::resources::Quantity::parse(&self.weight.as_ref()?.0).ok().map(|weight| weight.to_f64())
    }
}

/// What a stopped queue does with its workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    /// The queue admits.
    #[default]
    None,
    /// Nothing more is admitted; what runs goes on.
    Hold,
    /// Nothing more is admitted and what runs is evicted.
    HoldAndDrain,
}

/// Fair sharing of a ClusterQueue or Cohort as last computed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FairSharingStatus {
    /// Borrowed part of what may be lent, in thousandths, divided by the weight.
    pub weighted_share: i64,
}

/// Usage of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorUsage {
    /// Name of the ResourceFlavor.
    pub name: String,
    /// Usage by resource.
    pub resources: Vec<ResourceUsage>,
}

/// Usage of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceUsage {
    /// Name of the resource.
    pub name: String,
    /// Total in use, borrowed part included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Quantity>,
    /// Part of the total above the nominal quota; LocalQueues have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<Quantity>,
}
