//! Comparison of two pending Workloads, factor by factor.
//!
//! Invariant: the factors come in the order in which the engine compares them, and at most one decides.

use super::answer::is_false;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The comparison of a Workload with another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// `namespace/name` of the Workload that was asked about.
    pub workload: String,
    /// `namespace/name` of the other one.
    pub other: String,
    /// Whether the other one is before it.
    pub other_is_before: bool,
    /// Why, as a sentence without a full stop: `its priority is higher`.
    pub because: String,
    /// What the order holds for.
    pub scope: Scope,
    /// The factors.
    pub factors: Vec<Factor>,
    /// What the order does not say: `In BestEffortFIFO a later workload may still be admitted first if it fits`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// What an order holds for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// One ClusterQueue.
    #[default]
    Queue,
    /// The heads of one scheduling cycle.
    Cycle,
}

/// A factor of an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Factor {
    /// Name of the factor.
    pub name: String,
    /// Value of the Workload that was asked about.
    pub workload: String,
    /// Value of the other Workload.
    pub other: String,
    /// What it means.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Whether it is the first difference.
    #[serde(default, skip_serializing_if = "is_false")]
    pub decides: bool,
    /// Whether it is a part of the factor before it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub part: bool,
}
