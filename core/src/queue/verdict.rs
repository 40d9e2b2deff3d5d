//! Why a workload is not admitted: reason, blockers, the node whose limit binds, and the message made of them.
//!
//! Invariant: the message names request and limit, never the available amount, so that it does not change with the amounts in use.

use crate::api::reason::PendingReason;
use crate::quota::NodeRef;
use crate::resources::{Amount, format_quantity};
use std::fmt;
use std::sync::Arc;

/// Why a pod set cannot use a flavor or resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Names of the pod sets that are assigned together.
    pub pod_set: Arc<str>,
    /// The flavor; empty if none is concerned.
    pub flavor: Arc<str>,
    /// The resource; empty if the flavor as a whole does not match.
    pub resource: Arc<str>,
    /// The node whose limit binds.
    pub node: Option<NodeRef>,
    /// Requested amount, including earlier pod sets of the workload.
    pub requested: Amount,
    /// Amount available now.
    pub available: Amount,
    /// Maximum usage of the node.
    pub limit: Amount,
    /// What the workload would borrow (resources with their flavors), if only that keeps it from reclaiming the quota;
    /// empty otherwise. Without amounts, so that it changes only when the obstacle does.
    pub borrowed: Arc<str>,
    /// Kind of the blocker.
    pub kind: BlockerKind,
}

/// Kinds of blockers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockerKind {
    /// The request exceeds the potential available quota.
    NeverFits,
    /// Other workloads use the quota.
    InUse,
    /// No resource group of the ClusterQueue covers the resource.
    Undeclared,
    /// Other workloads use the nodes; the text says how many pods fit.
    NodesInUse(Arc<str>),
    /// The flavor does not suit the pods, or the topology has no place for them even on empty nodes; the text says why.
    Mismatch(Arc<str>),
}

/// Why a workload is pending. `Display` writes the condition message: the blockers, then the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Reason of the condition.
    pub reason: PendingReason,
    /// Blockers in the order in which they were found.
    pub blockers: Vec<Blocker>,
    /// Text after the blockers.
    pub text: Arc<str>,
}

impl Verdict {
    /// Returns a verdict that consists of a text.
    pub fn without_blockers(reason: PendingReason, text: &str) -> Self {
        Self { reason, blockers: Vec::new(), text: Arc::from(text) }
    }

    /// Whether both have the same message; available amounts are ignored.
    pub fn same_message(&self, other: &Self) -> bool {
        let same_blocker = |(a, b): (&Blocker, &Blocker)| {
            (&a.pod_set, &a.flavor, &a.resource, &a.node) == (&b.pod_set, &b.flavor, &b.resource, &b.node)
                && (a.requested, a.limit, &a.kind, &a.borrowed)
                    == (b.requested, b.limit, &b.kind, &b.borrowed)
        };
        (self.reason, &self.text, self.blockers.len()) == (other.reason, &other.text, other.blockers.len())
            && self.blockers.iter().zip(&other.blockers).all(same_blocker)
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flavor, resource) = (&self.flavor, &self.resource);
        // A request has an end, also where it exceeds the range of amounts.
        let need = format_quantity(resource, self.requested);
        match (&self.kind, &self.node) {
            (BlockerKind::Undeclared, _) => write!(f, "resource {resource} unavailable in ClusterQueue"),
            (BlockerKind::NodesInUse(text) | BlockerKind::Mismatch(text), _) => f.write_str(text),
            (BlockerKind::NeverFits, Some(node)) => {
                let limit = limit_text(resource, self.limit);
                write!(
                    f,
                    "insufficient quota for {resource} in flavor {flavor}, request ({need}) > maximum capacity ({limit}) at {node}"
                )
            }
            (BlockerKind::InUse, Some(node)) => {
                let limit = limit_text(resource, self.limit);
                write!(
                    f,
                    "insufficient unused quota for {resource} in flavor {flavor}, request {need}, limit {limit} at {node}"
                )?;
                if self.borrowed.is_empty() {
                    return Ok(());
                }
                write!(
                    f,
                    " (not reclaimed: borrowWithinCohort does not allow it to a workload that borrows {})",
                    self.borrowed
                )
            }
            (BlockerKind::NeverFits | BlockerKind::InUse, None) => {
                write!(f, "insufficient quota for {resource} in flavor {flavor}, request ({need})")
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blockers.is_empty() {
            return f.write_str(&self.text);
        }
        f.write_str("couldn't assign flavors to ")?;
        for (index, group) in self.blockers.chunk_by(|a, b| a.pod_set == b.pod_set).enumerate() {
            let mut reasons: Vec<String> = group.iter().map(ToString::to_string).collect();
            reasons.sort();
            reasons.dedup();
            let pod_set = group.first().map_or("", |b| &b.pod_set);
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}pod set {pod_set}: {}", reasons.join(", "))?;
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, ". {}", self.text) }
    }
}

/// Formats a limit with the unit that users write.
fn limit_text(resource: &str, amount: Amount) -> String {
    if amount == Amount::UNLIMITED { "unlimited".to_owned() } else { format_quantity(resource, amount) }
}
