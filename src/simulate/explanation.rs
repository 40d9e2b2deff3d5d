//! A verdict as data: what the condition's sentence says, field by field, with what is free now beside it.
//!
//! Invariant: `reason` and `message` are those that the scheduler's verdict renders for the condition; nothing is worded here.

use crate::quota::NodeRef;
use crate::resources::{Amount, format_quantity};
use crate::scheduler::{Blocker, BlockerKind, Engine, FlavorResource, Verdict};
use serde::Serialize;

/// Why a workload waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
    /// Whether it cannot fit, whoever ends, until quota or the workload changes.
    pub never_fits: bool,
    /// What stands in the way, in the order in which it was met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "obstacles")]
    pub blockers: Vec<BlockerRow>,
}

/// What keeps one pod set from one flavor or resource. Amounts are quantities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerRow {
    /// `neverFits`, `inUse`, `undeclared` (no resource group has the resource) or `mismatch` (the flavor does not suit the pods).
    pub kind: &'static str,
    /// Names of the pod sets.
    pub pod_set: String,
    /// The flavor.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flavor: String,
    /// The resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The ClusterQueue or Cohort whose limit binds: `ClusterQueue/name` or `Cohort/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// What is asked for.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[serde(rename = "need")]
    pub requested: String,
    /// What the ClusterQueue could take now.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[serde(rename = "have")]
    pub available: String,
    /// Most that the node can have in use.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub limit: String,
    /// The obstacle in words, as in the message.
    pub text: String,
}

/// The verdict on a workload of this ClusterQueue.
pub(super) fn explain(verdict: &Verdict, cluster_queue: &str, engine: &Engine) -> Explanation {
    let in_the_way = |blocker: &Blocker| blocker_row(blocker, cluster_queue, engine);
    // One flavor that may come free is enough for a pod set.
    let hopeless = |group: &[Blocker]| !group.iter().any(|blocker| blocker.kind == BlockerKind::InUse);
    Explanation {
        reason: verdict.reason.as_str().to_owned(),
        message: verdict.to_string(),
        never_fits: verdict.blockers.chunk_by(|a, b| a.pod_set == b.pod_set).any(hopeless),
        blockers: verdict.blockers.iter().map(in_the_way).collect(),
    }
}

fn blocker_row(blocker: &Blocker, cluster_queue: &str, engine: &Engine) -> BlockerRow {
    let of_quota = matches!(blocker.kind, BlockerKind::NeverFits | BlockerKind::InUse);
    let shown =
        |amount: Amount| if of_quota { format_amount(&blocker.resource, amount) } else { String::new() };
    let pair = FlavorResource::new(&blocker.flavor, &blocker.resource);
    BlockerRow {
        kind: match blocker.kind {
            BlockerKind::NeverFits => "neverFits",
            BlockerKind::InUse => "inUse",
            BlockerKind::Undeclared => "undeclared",
            BlockerKind::Mismatch(_) => "mismatch",
        },
        pod_set: blocker.pod_set.to_string(),
        flavor: blocker.flavor.to_string(),
        resource: blocker.resource.to_string(),
        node: blocker.node.as_ref().map(node_name).unwrap_or_default(),
        requested: shown(blocker.requested),
        available: shown(engine.available(cluster_queue, &pair)),
        limit: if blocker.node.is_some() { shown(blocker.limit) } else { String::new() },
        text: blocker.to_string(),
    }
}

fn node_name(node: &NodeRef) -> String {
    match node {
        NodeRef::ClusterQueue(name) => format!("ClusterQueue/{name}"),
        NodeRef::Cohort(name) => format!("Cohort/{name}"),
    }
}

/// The amount as users write it.
pub(super) fn format_amount(resource: &str, amount: Amount) -> String {
    if amount == Amount::UNLIMITED { "unlimited".to_owned() } else { format_quantity(resource, amount) }
}
