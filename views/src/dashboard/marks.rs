//! Shapes and words for states and reasons. A shape never carries more information than the word beside it.

use super::links::Links;
use super::text;
use crate::visibility::selector::needs_change;
use crate::visibility::views::{BlockerKindView, BlockerView, Need, WorkloadState};

/// A shape before a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Waits for capacity.
    Waits,
    /// Needs a change.
    NeedsChange,
    /// Runs.
    Runs,
    /// As intended.
    Good,
    /// May not be as intended.
    Warning,
    /// A note.
    Note,
}

/// A shape with its word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) shape: Shape,
    pub(super) word: String,
}

impl Tag {
    pub(super) fn new(shape: Shape, word: &str) -> Self {
        Self { shape, word: word.to_owned() }
    }

    /// Returns the tag of a pending reason.
    pub(super) fn of_reason(reason: &str) -> Self {
        let shape = if needs_change(reason) { Shape::NeedsChange } else { Shape::Waits };
        Self::new(shape, if reason.is_empty() { "not evaluated" } else { reason })
    }

    /// Returns the tag of a pending workload, by its reason and whether time ends its wait.
    pub(super) fn of_pending(reason: &str, stuck: bool) -> Self {
        let shape = if stuck { Shape::NeedsChange } else { Shape::Waits };
        Self { shape, ..Self::of_reason(reason) }
    }

    /// Returns the tag of a finished workload, by the reason of its end.
    pub(super) fn of_end(reason: &str) -> Self {
        Self::new(if reason == "Succeeded" { Shape::Good } else { Shape::Warning }, reason)
    }

    /// Returns the tag of a state.
    pub(super) fn of_state(state: WorkloadState) -> Self {
        match state {
            WorkloadState::Pending => Self::new(Shape::Waits, "Pending"),
            WorkloadState::QuotaReserved => Self::new(Shape::Waits, "Quota reserved"),
            WorkloadState::Admitted => Self::new(Shape::Runs, "Admitted"),
            WorkloadState::Evicted => Self::new(Shape::Waits, "Evicted, terminating"),
            WorkloadState::Finished => Self::new(Shape::Good, "Finished"),
        }
    }
}

/// Returns the request of a workload for its scarcest resource: `16 nvidia.com/gpu`.
pub(super) fn need(needs: &[Need]) -> String {
    needs.first().map_or_else(
        || text::NONE.to_owned(),
        |need| format!("{} {}", text::amount(&need.amount), need.resource),
    )
}

/// Returns what blocks a workload, in a few words.
pub(super) fn blocked_by(blocker: Option<&BlockerView>, message: &str) -> String {
    let Some(blocker) = blocker else { return message.to_owned() };
    let node = node_words(&blocker.node);
    match (blocker.kind, &blocker.missing, &blocker.requested, &blocker.limit) {
        (BlockerKindView::NeverFits, _, Some(requested), Some(limit)) if !node.is_empty() => {
            format!(
                "requests {} {}, {node} can have at most {}",
                text::amount(requested),
                blocker.resource,
                text::amount(limit)
            )
        }
        (BlockerKindView::InUse | BlockerKindView::Next, Some(missing), ..) if !node.is_empty() => {
            format!("{} {} missing at {node}", text::amount(missing), blocker.resource)
        }
        _ if !blocker.text.is_empty() => blocker.text.clone(),
        _ => message.to_owned(),
    }
}

/// Writes a node of the quota tree: `ClusterQueue/nlp` as `ClusterQueue nlp`.
pub(super) fn node_words(node: &str) -> String {
    node.replacen('/', " ", 1)
}

/// Returns the page of a node of the quota tree.
pub(super) fn node_href(links: &Links, node: &str) -> String {
    match node.split_once('/') {
        Some(("ClusterQueue", name)) => links.cluster_queue(name),
        Some(("Cohort", name)) => links.cohort(name),
        _ => String::new(),
    }
}

/// Returns the words for the outcome of a flavor-resource.
pub(super) const fn result(kind: BlockerKindView) -> &'static str {
    match kind {
        BlockerKindView::NeverFits => "never fits",
        BlockerKindView::InUse => "quota in use",
        BlockerKindView::Undeclared => "no quota declared",
        BlockerKindView::NodesInUse => "nodes in use",
        BlockerKindView::Mismatch => "does not match",
        BlockerKindView::Behind => "behind the head",
        BlockerKindView::Next => "next limit",
        BlockerKindView::Fits => "fits",
        BlockerKindView::PodGate => "held by a gate",
        BlockerKindView::Unschedulable => "pod finds no node",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visibility::views::AmountView;

    #[test]
    fn blockers_have_short_words() {
        let amount = |value: u64| Some(AmountView { value: value.to_string(), number: Some(value.into()) });
        let blocker = BlockerView {
            node: "ClusterQueue/nlp".to_owned(),
            resource: "gpu".to_owned(),
            requested: amount(32),
            limit: amount(16),
            missing: amount(16),
            ..BlockerView::default()
        };
        assert_eq!(blocked_by(Some(&blocker), "m"), "16 gpu missing at ClusterQueue nlp");
        let never = BlockerView { kind: BlockerKindView::NeverFits, ..blocker.clone() };
        assert_eq!(blocked_by(Some(&never), "m"), "requests 32 gpu, ClusterQueue nlp can have at most 16");
        let gate = BlockerView { kind: BlockerKindView::PodGate, text: "gate a".to_owned(), ..blocker };
        assert_eq!(blocked_by(Some(&gate), "m"), "gate a");
        assert_eq!(blocked_by(None, "m"), "m");
        assert!(needs_change("ExceedsMaxQuota") && !needs_change("WaitingForQuota") && !needs_change(""));
    }
}
