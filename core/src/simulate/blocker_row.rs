//! The scheduler's blockers as rows of the report.
//!
//! Invariants: a row has the content of the scheduler's `Blocker`; only the available amount is read again. What all pod sets request
//! together is said as in the views (`PodSet::later_request`).

use crate::api::ObjectKey;
use crate::quota::{NodeRef, QuotaUnits};
use crate::resources::Amount;
use crate::scheduler::{Blocker, BlockerKind, Engine, FlavorResource, ObstacleReader, PodSet};
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
    /// Requested amount, with that of the earlier pod sets.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested: String,
    /// What all pod sets request together, where later ones need the same quota in use; absent if it is `requested`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub requested_by_all: String,
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

/// Kind of the row of a workload that waits behind the head of a StrictFIFO ClusterQueue.
const BEHIND: &str = "behind";

impl BlockerRow {
    /// Whether a head is before the workload; the text names that head.
    pub(super) fn is_behind(&self) -> bool {
        self.kind == BEHIND
    }

    /// The row of a workload that waits behind the head of this StrictFIFO ClusterQueue.
    pub(super) fn behind(cluster_queue: &str, text: &str) -> Self {
        Self {
            kind: BEHIND,
            pod_set: String::new(),
            flavor: String::new(),
            resource: String::new(),
            node: node_name(&NodeRef::ClusterQueue(cluster_queue.into())),
            requested: String::new(),
            requested_by_all: String::new(),
            available: String::new(),
            limit: String::new(),
            borrowed: String::new(),
            text: text.to_owned(),
        }
    }

    /// The amount that has to be free before the workload is admitted as a whole.
    pub(super) fn amount(&self) -> &str {
        if self.requested_by_all.is_empty() { &self.requested } else { &self.requested_by_all }
    }

    /// Converts a blocker of a workload with these pod sets.
    pub(super) fn new(blocker: &Blocker, sets: &[PodSet], words: &ObstacleWords<'_>) -> Self {
        let ObstacleWords { engine, units, queue: cluster_queue } = *words;
        let concerns_quota = matches!(blocker.kind, BlockerKind::NeverFits | BlockerKind::InUse);
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        let queue = NodeRef::ClusterQueue(cluster_queue.into());
        let of_all = words.requested_by_all(blocker, sets);
        let has_later = blocker.kind == BlockerKind::InUse && of_all > blocker.requested;
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
            requested_by_all: if has_later { units.format(&queue, &fr, of_all) } else { String::new() },
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

impl ObstacleWords<'_> {
    /// Returns what all pod sets that need the quota of a blocker request together.
    fn requested_by_all(&self, blocker: &Blocker, sets: &[PodSet]) -> Amount {
        let (flavor, resource) = (&blocker.flavor, &blocker.resource);
        let later = match &*self.engine.flavors_with(self.queue, resource) {
            [only] if only.flavor == *flavor => PodSet::later_request(sets, &blocker.pod_set, resource),
            // A later pod set may get another flavor.
            _ => 0,
        };
        blocker.requested.plus(Amount::saturating_from_i128(later))
    }
}

impl ObstacleReader for ObstacleWords<'_> {
    fn name(&self, key: &ObjectKey) -> Option<String> {
        Some(key.to_string())
    }

    fn missing(&self, key: &ObjectKey, blocker: &Blocker) -> Option<String> {
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        let available = self.engine.available(self.queue, &fr);
        let sets = self.engine.workload(key).map(|workload| &*workload.pod_sets).unwrap_or_default();
        let missing = self.requested_by_all(blocker, sets).minus(available).max(Amount::ZERO);
        Some(self.units.format(&NodeRef::ClusterQueue(self.queue.into()), &fr, missing))
    }

    fn limit(&self, blocker: &Blocker) -> Option<String> {
        let fr = FlavorResource::new(&blocker.flavor, &blocker.resource);
        Some(self.units.format_limit(&NodeRef::ClusterQueue(self.queue.into()), &fr, blocker.limit))
    }
}

/// Words of the same sentences for readers of a namespace, which they are about. Amounts of others and limits are left out, as for
/// readers without sums of their ClusterQueue.
pub(super) struct ObstacleInNamespace<'a>(pub(super) &'a str);

impl ObstacleReader for ObstacleInNamespace<'_> {
    fn name(&self, key: &ObjectKey) -> Option<String> {
        (*key.namespace == *self.0).then(|| key.to_string())
    }

    fn missing(&self, _: &ObjectKey, _: &Blocker) -> Option<String> {
        None
    }

    fn limit(&self, _: &Blocker) -> Option<String> {
        None
    }
}

fn node_name(node: &NodeRef) -> String {
    match node {
        NodeRef::ClusterQueue(name) => format!("ClusterQueue/{name}"),
        NodeRef::Cohort(name) => format!("Cohort/{name}"),
    }
}
