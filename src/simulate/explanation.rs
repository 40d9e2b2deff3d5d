//! Verdicts as data: the content of the condition message, field by field, with the currently available quota.
//!
//! Invariant: `reason` and `message` are those that the scheduler's verdict renders for the condition.

use crate::quota::NodeRef;
use crate::resources::{Amount, format_quantity};
use crate::scheduler::{Blocker, BlockerKind, Engine, FlavorResource, Verdict};
use serde::Serialize;

/// Why a workload is pending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
    /// Whether the workload cannot fit until quota or the workload changes, even if all other workloads finish.
    pub never_fits: bool,
    /// Blockers in the order in which the scheduler found them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<BlockerRow>,
}

/// Why a pod set cannot get a resource from a flavor. Amounts are quantities.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerRow {
    /// `neverFits`, `inUse`, `undeclared` (no resource group covers the resource) or `mismatch` (the flavor does not
    /// match the pods).
    pub kind: &'static str,
    /// Names of the pod sets.
    pub pod_set: String,
    /// Name of the flavor.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flavor: String,
    /// Name of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The bottleneck: `ClusterQueue/name` or `Cohort/name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Requested amount.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested: String,
    /// Amount that is available to the ClusterQueue now.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub available: String,
    /// Maximum usage of the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub limit: String,
    /// The blocker as text, as in the message.
    pub text: String,
}

/// Converts the verdict on a workload of this ClusterQueue.
pub(super) fn explain(verdict: &Verdict, cluster_queue: &str, engine: &Engine) -> Explanation {
    let row = |blocker: &Blocker| blocker_row(blocker, cluster_queue, engine);
    // A pod set can fit later if at least one of its flavors is only in use.
    let never_fits = |group: &[Blocker]| !group.iter().any(|blocker| blocker.kind == BlockerKind::InUse);
    Explanation {
        reason: verdict.reason.as_str().to_owned(),
        message: verdict.to_string(),
        never_fits: verdict.blockers.chunk_by(|a, b| a.pod_set == b.pod_set).any(never_fits),
        blockers: verdict.blockers.iter().map(row).collect(),
    }
}

fn blocker_row(blocker: &Blocker, cluster_queue: &str, engine: &Engine) -> BlockerRow {
    let concerns_quota = matches!(blocker.kind, BlockerKind::NeverFits | BlockerKind::InUse);
    let shown = |amount: Amount| {
        if concerns_quota { format_amount(&blocker.resource, amount) } else { String::new() }
    };
    let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
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
        available: shown(engine.available(cluster_queue, &fr)),
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

/// Formats an amount as a quantity, or as `unlimited`.
pub(super) fn format_amount(resource: &str, amount: Amount) -> String {
    if amount == Amount::UNLIMITED { "unlimited".to_owned() } else { format_quantity(resource, amount) }
}
