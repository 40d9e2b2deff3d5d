//! The domains that the pods of a pod set are assigned to, in the compressed form of the status of a Workload.
//!
//! Invariant: these are Kueue's types; `topology` encodes and decodes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Assigned domains and their pod counts, in compressed form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignment {
    /// Node labels of the levels for which the slices contain values.
    pub levels: Vec<String>,
    /// Slices of domains.
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// A slice of the assigned domains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentSlice {
    /// Number of domains in the slice.
    pub domain_count: i32,
    /// Values of the domains for each level.
    pub values_per_level: Vec<TopologyAssignmentValues>,
    /// Number of pods in each domain.
    pub pod_counts: TopologyAssignmentPodCounts,
}

/// Values of one level: one for all domains of the slice, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentValues {
    /// Value shared by all domains of the slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// Values of the individual domains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub individual: Option<TopologyAssignmentIndividualValues>,
}

/// A value for each domain, split into common prefix, root and common suffix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentIndividualValues {
    /// Common prefix of all values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Common suffix of all values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// Values without the common prefix and suffix.
    pub roots: Vec<String>,
}

/// Number of pods in each domain of a slice: one for all, or one for each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyAssignmentPodCounts {
    /// Number of pods in every domain of the slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub universal: Option<i32>,
    /// Number of pods in each domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub individual: Vec<i32>,
}
