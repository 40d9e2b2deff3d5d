//! Why a workload is not admitted, as a value: reason, what blocks, where the limit binds, and the message made of it.
//!
//! The message names what is needed and the limit, never what happens to be free, so that it does not change with usage.

use crate::api::reason::PendingReason;
use crate::quota::NodeRef;
use crate::resources::{Amount, format_quantity};
use std::fmt;
use std::sync::Arc;

/// What keeps one pod set from one flavor or resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Names of the pod sets that are judged together.
    pub pod_set: Arc<str>,
    /// The flavor, empty when no flavor is concerned.
    pub flavor: Arc<str>,
    /// The resource, empty when the flavor as a whole does not match.
    pub resource: Arc<str>,
    /// The node where the limit binds.
    pub node: Option<NodeRef>,
    /// What is asked for, with what earlier pod sets of the workload take.
    pub requested: Amount,
    /// What is free for it now.
    pub available: Amount,
    /// Most that the node can have in use.
    pub limit: Amount,
    /// What kind of obstacle it is.
    pub kind: BlockerKind,
}

/// Kinds of obstacles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockerKind {
    /// More than the tree could ever give.
    NeverFits,
    /// In use by others.
    InUse,
    /// No resource group of the ClusterQueue has the resource.
    Undeclared,
    /// The flavor does not suit the pods; the text says why.
    Mismatch(Arc<str>),
}

/// Why a workload is pending. Its `Display` is the message of the condition: what the blockers say, then the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Reason of the condition.
    pub reason: PendingReason,
    /// What stands in the way, in the order in which it was met.
    pub blockers: Vec<Blocker>,
    /// What is to be said beside the blockers.
    pub text: Arc<str>,
}

impl Verdict {
    /// A verdict that needs no blockers.
    pub fn without_blockers(reason: PendingReason, text: &str) -> Self {
        Self { reason, blockers: Vec::new(), text: Arc::from(text) }
    }

    /// Whether this says the same: what happens to be free does not count.
    pub fn same_message(&self, other: &Self) -> bool {
        let same = |(a, b): (&Blocker, &Blocker)| {
            (&a.pod_set, &a.flavor, &a.resource, &a.node) == (&b.pod_set, &b.flavor, &b.resource, &b.node)
                && (a.requested, a.limit, &a.kind) == (b.requested, b.limit, &b.kind)
        };
        (self.reason, &self.text, self.blockers.len()) == (other.reason, &other.text, other.blockers.len())
            && self.blockers.iter().zip(&other.blockers).all(same)
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (flavor, resource) = (&self.flavor, &self.resource);
        let need = amount_text(resource, self.requested);
        match (&self.kind, &self.node) {
            (BlockerKind::Undeclared, _) => write!(f, "resource {resource} unavailable in ClusterQueue"),
            (BlockerKind::Mismatch(why), _) => f.write_str(why),
            (BlockerKind::NeverFits, Some(node)) => {
                let limit = amount_text(resource, self.limit);
                write!(
                    f,
                    "insufficient quota for {resource} in flavor {flavor}, request ({need}) > maximum capacity ({limit}) at {node}"
                )
            }
            (BlockerKind::InUse, Some(node)) => {
                let limit = amount_text(resource, self.limit);
                write!(
                    f,
                    "insufficient unused quota for {resource} in flavor {flavor}, request {need}, limit {limit} at {node}"
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
        for (at, group) in self.blockers.chunk_by(|a, b| a.pod_set == b.pod_set).enumerate() {
            let mut reasons: Vec<String> = group.iter().map(ToString::to_string).collect();
            reasons.sort();
            reasons.dedup();
            let pod_set = group.first().map_or("", |b| &b.pod_set);
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}pod set {pod_set}: {}", reasons.join(", "))?;
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, ". {}", self.text) }
    }
}

/// The amount with its unit as users write it.
fn amount_text(resource: &str, amount: Amount) -> String {
    if amount == Amount::UNLIMITED { "unlimited".to_owned() } else { format_quantity(resource, amount) }
}
