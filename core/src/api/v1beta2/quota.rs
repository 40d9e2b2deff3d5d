//! Types shared by ClusterQueue, LocalQueue and Cohort: resource groups, quotas, fair sharing, stop policy.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Resources that a pod set always gets from the same flavor, and the flavors in order of preference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceGroup {
    /// Names of the resources that the flavors of this group provide.
    pub covered_resources: Vec<String>,
    /// Flavors in the order in which they are evaluated.
    pub flavors: Vec<FlavorQuotas>,
}

/// Quotas of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorQuotas {
    /// Name of the ResourceFlavor.
    pub name: String,
    /// One quota for each covered resource, in the order of the covered resources.
    pub resources: Vec<ResourceQuota>,
}

/// Quota of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// Name of the resource.
    pub name: String,
    /// Quota that this ClusterQueue or Cohort owns.
    pub nominal_quota: Quantity,
    /// Maximum that may be borrowed from the cohort beyond the nominal quota; unlimited when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<Quantity>,
    /// Maximum of the nominal quota that may be lent to the cohort; all of it when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<Quantity>,
}

/// Weight of a ClusterQueue, LocalQueue or Cohort in fair sharing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FairSharing {
    /// Relative weight; 1 when absent. 0 always comes last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Quantity>,
}

impl FairSharing {
    /// Returns the weight as a number, or `None` if it is absent or invalid.
    pub fn number(&self) -> Option<f64> {
        crate::resources::Quantity::parse(&self.weight.as_ref()?.0).ok().map(|weight| weight.to_f64())
    }
}

/// How a queue is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    /// Not stopped: workloads are admitted.
    #[default]
    None,
    /// No workload is admitted; admitted workloads continue to run.
    Hold,
    /// No workload is admitted, and admitted workloads are evicted.
    HoldAndDrain,
}

/// Share of a ClusterQueue or Cohort at the last computation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FairSharingStatus {
    /// Usage above the nominal quota, as a fraction of the lendable quota in thousandths, divided by the weight.
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
    /// Total usage, including borrowed quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Quantity>,
    /// Usage above the nominal quota; not set for LocalQueues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub borrowed: Option<Quantity>,
}
