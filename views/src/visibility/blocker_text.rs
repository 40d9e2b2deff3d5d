//! The first blocker of a pending Workload, parsed from the message of its condition, which every replica has.
//!
//! Invariant: it parses what `queue::Verdict` writes, which a test compares; any other message gives nothing.

use crate::quota::NodeRef;
use std::sync::Arc;

/// A blocker in the words of the message. Amounts are quantities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BlockerText<'a> {
    /// Missing quota: in use, or more than the queue can ever have.
    Quota(QuotaBlockerText<'a>),
    /// No resource group covers the resource.
    Undeclared {
        /// The resource.
        resource: &'a str,
    },
}

/// A blocker by quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QuotaBlockerText<'a> {
    /// Whether the request exceeds what the queue can ever have.
    pub(super) never_fits: bool,
    /// Names of the pod sets, separated by commas; empty if the message names none.
    pub(super) pod_set: &'a str,
    pub(super) resource: &'a str,
    pub(super) flavor: &'a str,
    pub(super) request: &'a str,
    pub(super) node: NodeRef,
    /// The whole text of the blocker.
    pub(super) text: &'a str,
}

const IN_USE: &str = "insufficient unused quota for ";
const NEVER: &str = "insufficient quota for ";
const UNDECLARED: &str = " unavailable in ClusterQueue";

/// Returns the first blocker of a message of the scheduler; `None` for another message.
pub(super) fn first_blocker(message: &str) -> Option<BlockerText<'_>> {
    let starts = |text: &str| message.find(text);
    let quota = [(IN_USE, false), (NEVER, true)]
        .into_iter()
        .filter_map(|(text, never)| Some((starts(text)?, text, never)));
    let quota = quota.min_by_key(|(at, ..)| *at);
    let undeclared = message.find(UNDECLARED).and_then(|end| {
        let before = message.get(..end)?;
        let start = before.rfind("resource ")?;
        Some((start, before.get(start..)?.strip_prefix("resource ")?))
    });
    match (quota, undeclared) {
        (Some((at, ..)), Some((other, resource))) if other < at => Some(BlockerText::Undeclared { resource }),
        (Some((at, marker, never)), _) => {
            let (before, text) = message.split_at_checked(at)?;
            let blocker = quota_blocker(text, marker, never)?;
            Some(BlockerText::Quota(QuotaBlockerText { pod_set: pod_set(before), ..blocker }))
        }
        (None, Some((_, resource))) => Some(BlockerText::Undeclared { resource }),
        (None, None) => None,
    }
}

/// Returns the names of the pod sets that the text before a blocker names last.
fn pod_set(before: &str) -> &str {
    let names = before.rsplit_once("pod set ").and_then(|(_, after)| after.split_once(':'));
    names.map_or("", |(names, _)| names)
}

fn quota_blocker<'a>(text: &'a str, marker: &str, never_fits: bool) -> Option<QuotaBlockerText<'a>> {
    let rest = text.strip_prefix(marker)?;
    let (resource, rest) = rest.split_once(" in flavor ")?;
    let (flavor, rest) = rest.split_once(", request ")?;
    let (request, rest) = if never_fits {
        rest.strip_prefix('(')?.split_once(") > maximum capacity (")?
    } else {
        rest.split_once(", limit ")?
    };
    let (_, rest) = rest.split_once(" at ")?;
    let (kind, rest) = rest.split_once(' ')?;
    let end = rest.find([' ', ',', ';']).unwrap_or(rest.len());
    let name = rest.get(..end)?.trim_end_matches('.');
    let node = match kind {
        "ClusterQueue" => NodeRef::ClusterQueue(Arc::from(name)),
        "Cohort" => NodeRef::Cohort(Arc::from(name)),
        _ => return None,
    };
    let length = text.len().checked_sub(rest.len())?.checked_add(name.len())?;
    let text = text.get(..length)?;
    Some(QuotaBlockerText { never_fits, pod_set: "", resource, flavor, request, node, text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::reason::PendingReason;
    use crate::queue::{Blocker, BlockerKind, Verdict};
    use crate::resources::{Amount, format_quantity};
    use proptest::prelude::*;

    fn blocker(kind: BlockerKind, node: NodeRef, amounts: (i64, i64)) -> Blocker {
        Blocker {
            pod_set: "main".into(),
            flavor: "h100-80g.x".into(),
            resource: "nvidia.com/gpu".into(),
            node: Some(node),
            requested: Amount::new(amounts.0),
            available: Amount::new(8),
            limit: Amount::new(amounts.1),
            borrowed: "".into(),
            kind,
        }
    }

    proptest! {
        #[test]
        fn messages_of_the_scheduler_are_parsed(
            never in any::<bool>(),
            cohort in any::<bool>(),
            name in "[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?",
            request in 1_i64..i64::MAX,
            limit in prop_oneof![0_i64..1_000_000_000, Just(i64::MAX)],
            borrowed in prop_oneof![Just(""), Just("cpu in h100")],
            text in prop_oneof![Just(""), Just("Pending the preemption of 2 workload(s)")],
        ) {
            let kind = if never { BlockerKind::NeverFits } else { BlockerKind::InUse };
            let name: Arc<str> = name.into();
            let node = if cohort { NodeRef::Cohort(name) } else { NodeRef::ClusterQueue(name) };
            let blocker = Blocker { borrowed: borrowed.into(), ..blocker(kind, node.clone(), (request, limit)) };
            let verdict = Verdict { blockers: vec![blocker], ..Verdict::without_blockers(PendingReason::WaitingForQuota, text) };
            let message = verdict.to_string();
            let Some(BlockerText::Quota(read)) = first_blocker(&message) else { panic!("{message}") };
            let requested = format_quantity("nvidia.com/gpu", Amount::new(request));
            prop_assert_eq!((read.never_fits, read.pod_set), (never, "main"));
            prop_assert_eq!((read.resource, read.flavor), ("nvidia.com/gpu", "h100-80g.x"));
            prop_assert_eq!((read.request, read.node), (&*requested, node));
            prop_assert!(message.contains(read.text) && read.text.starts_with("insufficient"));
        }

        #[test]
        fn any_text_is_read(message in ".{0,200}") {
            let _ = first_blocker(&message);
        }
    }

    #[test]
    fn other_messages_say_nothing() {
        for message in [
            "",
            "ClusterQueue x doesn't exist",
            "insufficient unused quota for cpu in flavor default, 1 more needed",
            "insufficient quota for ",
            "couldn't assign flavors to pod set main: flavor a doesn't match node affinity",
        ] {
            assert_eq!(first_blocker(message), None, "{message}");
        }
        let undeclared =
            "couldn't assign flavors to pod set main: resource example.com/x unavailable in ClusterQueue";
        assert_eq!(first_blocker(undeclared), Some(BlockerText::Undeclared { resource: "example.com/x" }));
    }
}
