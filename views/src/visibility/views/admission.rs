//! What a Workload with quota has: its pod sets with their pods, flavors and places, and how long it may keep them.
//!
//! Invariant: what is not known is absent; names of workloads of other tenants are not in it.

use super::answer::is_false;
use super::workload::Need;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a Workload has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionView {
    /// The pod sets.
    #[serde(default)]
    pub pod_sets: Vec<PodSetAdmission>,
    /// When it must end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub ends_by: Option<Timestamp>,
    /// Whether it uses borrowed quota.
    #[serde(default, skip_serializing_if = "is_false")]
    pub borrows: bool,
    /// What may preempt it, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preemptible_by: Vec<String>,
}

/// What a pod set has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAdmission {
    /// Name of the pod set.
    pub name: String,
    /// Number of its pods.
    pub count: u64,
    /// Amounts with their flavors.
    #[serde(default)]
    pub resources: Vec<Need>,
    /// Number of pods by topology domain (its levels joined by `/`, the widest first). A host is below its domains where its node is
    /// known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, u64>,
    /// States of its pods; absent if they are not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<PodStatesView>,
    /// Number of pods by node, of a pod set without a topology assignment: pods that are bound.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u64>,
}

/// Numbers of pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatesView {
    /// Pods whose containers run.
    pub running: u64,
    /// Pods that exist and do not run yet: held by a gate, without a node, or starting.
    pub pending: u64,
    /// Pods that have ended and are not replaced, if the kind of the job reports them.
    pub ended: u64,
}

impl PodStatesView {
    /// Returns the numbers that are not 0 in words: `3 running, 1 pending`; `none yet` if no pod exists.
    pub fn words(&self) -> String {
        let counts = [(self.running, "running"), (self.pending, "pending"), (self.ended, "ended")];
        let words: Vec<String> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, state)| format!("{count} {state}"))
            .collect();
        if words.is_empty() { "none yet".to_owned() } else { words.join(", ") }
    }
}
