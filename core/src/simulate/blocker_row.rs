//! The scheduler's blockers as rows of the report.
//!
//! Invariant: a row has the content of the scheduler's `Blocker`; only the available amount is read again.

use crate::api::ObjectKey;
use crate::quota::{NodeRef, QuotaUnits};
use crate::resources::Amount;
use crate::scheduler::{Blocker, BlockerKind, Engine, FlavorResource, ObstacleReader};
use serde::Serialize;

/// A `Blocker` as an output row: why a pod set cannot get a resource from a flavor. Amounts are quantities in the unit of
/// the quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockerRow {
    /// `neverFits`, `inUse`, `undeclared` (no resource group covers the resource), `nodesInUse` (the topology has no free
    /// place), `mismatch` (the flavor does not match the pods, or the topology could not hold them even if it were
    /// empty), or `behind` (the head of a StrictFIFO ClusterQueue).
    pub kind: &'static str,
    /// Names of the pod sets.
    #[serde(skip_serializing_if = "String::is_empty")]
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
    /// What the workload would borrow, if only that keeps it from reclaiming the quota.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub borrowed: String,
    /// The blocker as text, as in the message.
    pub text: String,
}

impl BlockerRow {
    /// The row of a workload that waits behind the head of this StrictFIFO ClusterQueue.
    pub(super) fn behind(cluster_queue: &str, text: &str) -> Self {
        Self {
            kind: "behind",
            pod_set: String::new(),
            flavor: String::new(),
            resource: String::new(),
            node: node_name(&NodeRef::ClusterQueue(cluster_queue.into())),
            requested: String::new(),
            available: String::new(),
            limit: String::new(),
            borrowed: String::new(),
            text: text.to_owned(),
        }
    }

    /// Converts a blocker of a workload of this ClusterQueue.
    pub(super) fn new(blocker: &Blocker, cluster_queue: &str, engine: &Engine, units: &QuotaUnits) -> Self {
        let concerns_quota = matches!(blocker.kind, BlockerKind::NeverFits | BlockerKind::InUse);
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        let queue = NodeRef::ClusterQueue(cluster_queue.into());
        let when_quota = |text: String| if concerns_quota { text } else { String::new() };
        let shown_limit = |limit: Amount| when_quota(units.format_limit(&queue, &fr, limit));
        Self {
            kind: match blocker.kind {
                BlockerKind::NeverFits => "neverFits",
                BlockerKind::InUse => "inUse",
                BlockerKind::Undeclared => "undeclared",
                BlockerKind::NodesInUse(_) => "nodesInUse",
                BlockerKind::Mismatch(_) => "mismatch",
            },
            pod_set: blocker.pod_set.to_string(),
            flavor: blocker.flavor.to_string(),
            resource: blocker.resource.to_string(),
            node: blocker.node.as_ref().map(node_name).unwrap_or_default(),
            requested: when_quota(units.format(&queue, &fr, blocker.requested)),
            available: shown_limit(engine.available(cluster_queue, &fr)),
            limit: if blocker.node.is_some() { shown_limit(blocker.limit) } else { String::new() },
            borrowed: blocker.borrowed.to_string(),
            text: blocker.to_string(),
        }
    }
}

/// Words of sentences about the obstacles of a queue, which may name everything.
pub(super) struct ObstacleWords<'a> {
    pub(super) engine: &'a Engine,
    pub(super) units: &'a QuotaUnits,
    pub(super) queue: &'a str,
}

impl ObstacleReader for ObstacleWords<'_> {
    fn name(&self, key: &ObjectKey) -> Option<String> {
        Some(key.to_string())
    }

    fn missing(&self, _: &ObjectKey, blocker: &Blocker) -> Option<String> {
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        let available = self.engine.available(self.queue, &fr);
        let missing = blocker.requested.minus(available).max(Amount::ZERO);
        Some(self.units.format(&NodeRef::ClusterQueue(self.queue.into()), &fr, missing))
    }

    fn limit(&self, blocker: &Blocker) -> Option<String> {
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        Some(self.units.format_limit(&NodeRef::ClusterQueue(self.queue.into()), &fr, blocker.limit))
    }
}

fn node_name(node: &NodeRef) -> String {
    match node {
        NodeRef::ClusterQueue(name) => format!("ClusterQueue/{name}"),
        NodeRef::Cohort(name) => format!("Cohort/{name}"),
    }
}
