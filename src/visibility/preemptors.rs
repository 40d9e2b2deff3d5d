//! Which workloads may preempt an admitted one, by the policies of the queues of its tree.
//!
//! Invariants: a sentence is there only if a policy allows the preemption now; other ClusterQueues have names only for readers of the
//! cluster.

use super::workload_row::Rows;
use crate::api::v1beta2::{BorrowPolicy, ReclaimPolicy, WithinClusterQueuePolicy};
use crate::quota::{FlavorResource, NodeRef};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most ClusterQueues that are named.
const NAMED: usize = 3;

/// How a ClusterQueue may take the quota of a workload of another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    /// It takes back its nominal quota, whatever the priority.
    ReclaimsAny,
    /// The same, from workloads of lower priority.
    ReclaimsLower,
    /// It borrows, and preempts workloads of lower priority for it.
    Borrows,
}

/// Returns a sentence without a full stop for each group of workloads that may preempt one of a priority in a ClusterQueue.
pub(super) fn preemptible_by(
    rows: Rows<'_>,
    priority: i64,
    (queue, used): (&Arc<str>, &[FlavorResource]),
) -> Vec<String> {
    let mut sentences = Vec::new();
    let all = &rows.quota.facts.cluster_queues;
    let own = all.get(queue).and_then(|facts| facts.preemption.within_cluster_queue).unwrap_or_default();
    match own {
        WithinClusterQueuePolicy::Never => {}
        WithinClusterQueuePolicy::LowerPriority => {
            sentences.push(format!("a workload of ClusterQueue {queue} with a priority above {priority}"));
        }
        WithinClusterQueuePolicy::LowerOrNewerEqualPriority => sentences.push(format!(
            "a workload of ClusterQueue {queue} with a priority above {priority}, or of the same and older"
        )),
    }
    let node = NodeRef::ClusterQueue(Arc::clone(queue));
    let borrowed: Vec<&FlavorResource> =
        used.iter().filter(|fr| rows.quota.borrowed(&node, fr) > 0).collect();
    // Only workloads of queues that borrow are candidates of others.
    if borrowed.is_empty() {
        return sentences;
    }
    let root = |node: &NodeRef| rows.quota.path(node).and_then(|mut path| path.pop());
    let tree = root(&node);
    if tree.is_none() {
        // In a cycle of cohorts no queue takes anything of another one.
        return sentences;
    }
    let mut others: BTreeSet<(Way, &Arc<str>)> = BTreeSet::new();
    for (name, facts) in all.iter().filter(|(name, _)| *name != queue) {
        let other = NodeRef::ClusterQueue(Arc::clone(name));
        let declares = borrowed.iter().any(|fr| facts.order.contains(fr));
        if !declares || root(&other) != tree {
            continue;
        }
        match facts.preemption.reclaim_within_cohort.unwrap_or_default() {
            ReclaimPolicy::Never => continue,
            ReclaimPolicy::LowerPriority => others.insert((Way::ReclaimsLower, name)),
            ReclaimPolicy::Any => others.insert((Way::ReclaimsAny, name)),
        };
        let borrow = facts.preemption.borrow_within_cohort.as_ref();
        let threshold = |max: Option<i32>| max.is_none_or(|max| priority <= i64::from(max));
        if borrow.is_some_and(|borrow| {
            borrow.policy == Some(BorrowPolicy::LowerPriority) && threshold(borrow.max_priority_threshold)
        }) {
            others.insert((Way::Borrows, name));
        }
    }
    for way in [Way::ReclaimsAny, Way::ReclaimsLower, Way::Borrows] {
        let names: Vec<&str> = others.iter().filter(|(of, _)| *of == way).map(|(_, name)| &***name).collect();
        if names.is_empty() {
            continue;
        }
        let subject = if rows.access.cluster { named(&names) } else { "another ClusterQueue".to_owned() };
        sentences.push(match way {
            Way::ReclaimsAny => format!("a workload of {subject} that reclaims its nominal quota"),
            Way::ReclaimsLower => format!(
                "a workload of {subject} with a priority above {priority} that reclaims its nominal quota"
            ),
            Way::Borrows => {
                format!("a workload of {subject} with a priority above {priority}, also to borrow")
            }
        });
    }
    if rows.quota.facts.fair_sharing.is_some() && !others.is_empty() {
        sentences
            .push("under fair sharing, only of a ClusterQueue or cohort with a smaller share".to_owned());
    }
    sentences
}

/// `ClusterQueue a, b or c`, or `ClusterQueue a, b, c or 4 others`.
fn named(names: &[&str]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMED).copied().collect();
    let left = names.len().saturating_sub(shown.len());
    if left > 0 {
        let others = if left == 1 { "other" } else { "others" };
        return format!("ClusterQueue {} or {left} {others}", shown.join(", "));
    }
    match shown.split_last() {
        Some((last, [])) => format!("ClusterQueue {last}"),
        Some((last, before)) => format!("ClusterQueue {} or {last}", before.join(", ")),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_queues_are_named() {
        assert_eq!(named(&["a"]), "ClusterQueue a");
        assert_eq!(named(&["a", "b", "c"]), "ClusterQueue a, b or c");
        assert_eq!(named(&["a", "b", "c", "d"]), "ClusterQueue a, b, c or 1 other");
        assert_eq!(named(&["a", "b", "c", "d", "e"]), "ClusterQueue a, b, c or 2 others");
    }
}
