//! Shapes and words for states and reasons. A shape never carries more information than the word beside it.

use super::links::Links;
use super::text;
use crate::visibility::selector::needs_change;
use crate::visibility::views::{BlockerKindView, Need, WorkloadState, WorkloadView};

/// Reason of evictions by preemption.
pub(super) const PREEMPTED: &str = "Preempted";

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

/// Returns what blocks a workload, in a few words, for a row that has its request. The resource is named only if it is not the
/// one of the request.
pub(super) fn blocked_by(view: &WorkloadView) -> String {
    let Some(blocker) = &view.first_blocker else { return short(&view.message) };
    let node = short_node(&blocker.node);
    let is_shown = view.needs.first().is_some_and(|need| need.resource == blocker.resource);
    let resource = if is_shown { String::new() } else { format!(" {}", blocker.resource) };
    match (blocker.kind, &blocker.missing, &blocker.requested, &blocker.limit) {
        (BlockerKindView::NeverFits, _, Some(requested), Some(limit)) if !node.is_empty() => {
            let most = format!("{node} can have at most {}{resource}", text::amount(limit));
            if is_shown { most } else { format!("{most}, it requests {}", text::amount(requested)) }
        }
        (BlockerKindView::InUse | BlockerKindView::Next, Some(missing), ..) if !node.is_empty() => {
            format!("{}{resource} missing at {node}", text::amount(missing))
        }
        _ if !blocker.text.is_empty() => short(&blocker.text),
        _ => short(&view.message),
    }
}

/// Longest text of a blocker in a row, in characters; the page of the workload has all of it.
const MAX_BLOCKER: usize = 120;

/// Returns the first statement of a message: without the pod set that it is about, and cut if it is long.
fn short(message: &str) -> String {
    let about = message.split_once("couldn't assign flavors to pod set ");
    let rest = about.and_then(|(_, rest)| rest.split_once(": ")).map_or(message, |(_, rest)| rest);
    let Some(start) = rest.char_indices().nth(MAX_BLOCKER).and_then(|(end, _)| rest.get(..end)) else {
        return rest.to_owned();
    };
    let whole = start.rsplit_once(char::is_whitespace).map_or(start, |(words, _)| words);
    format!("{} …", whole.trim_end_matches(','))
}

/// Writes a node of the quota tree in a row: `ClusterQueue/nlp` as `nlp`, `Cohort/ai` as `cohort ai`.
pub(super) fn short_node(node: &str) -> String {
    match node.split_once('/') {
        Some(("ClusterQueue", name)) => name.to_owned(),
        Some(("Cohort", name)) => format!("cohort {name}"),
        _ => node.to_owned(),
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
    use crate::visibility::views::{AmountView, BlockerView};

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
        let row = |resource: &str, blocker: &BlockerView| {
            let need = Need { resource: resource.to_owned(), ..Need::default() };
            blocked_by(&WorkloadView {
                needs: vec![need],
                first_blocker: Some(blocker.clone()),
                ..WorkloadView::default()
            })
        };
        assert_eq!(row("gpu", &blocker), "16 missing at nlp");
        assert_eq!(row("cpu", &blocker), "16 gpu missing at nlp");
        let above = BlockerView { node: "Cohort/ai".to_owned(), ..blocker.clone() };
        assert_eq!(row("gpu", &above), "16 missing at cohort ai");
        let never = BlockerView { kind: BlockerKindView::NeverFits, ..blocker.clone() };
        assert_eq!(row("gpu", &never), "nlp can have at most 16");
        assert_eq!(row("cpu", &never), "nlp can have at most 16 gpu, it requests 32");
        let gate = BlockerView {
            kind: BlockerKindView::PodGate,
            text: "gate a".to_owned(),
            ..BlockerView::default()
        };
        assert_eq!(row("gpu", &gate), "gate a");
        assert!(needs_change("ExceedsMaxQuota") && !needs_change("WaitingForQuota") && !needs_change(""));
    }

    #[test]
    fn long_messages_are_cut_between_words() {
        let said = |message: &str| {
            blocked_by(&WorkloadView { message: message.to_owned(), ..WorkloadView::default() })
        };
        assert_eq!(said("not evaluated yet"), "not evaluated yet");
        assert_eq!(said("couldn't assign flavors to pod set main: no host is free"), "no host is free");
        let cut = said(&"flavor a doesn't match node affinity, ".repeat(9));
        assert!(cut.ends_with("node affinity …"), "{cut}");
        assert!(cut.chars().count() <= MAX_BLOCKER + 2, "{cut}");
        assert_eq!(said(&"x".repeat(200)), format!("{} …", "x".repeat(MAX_BLOCKER)));
    }
}
