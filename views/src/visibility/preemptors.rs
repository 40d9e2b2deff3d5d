//! Sentences about the workloads that may preempt an admitted one.
//!
//! Invariants: there is a sentence only if a policy allows the preemption now; other ClusterQueues are named only for readers of
//! the cluster.

use super::candidate::{Candidate, Gain};
use super::workload_row::Rows;
use crate::quota::FlavorResource;
use crate::scheduler::VictimPriority;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of ClusterQueues that a sentence names.
const NAMED: usize = 3;

/// Returns one sentence, without a full stop, for each group of workloads that may preempt a workload with this priority and
/// usage in a ClusterQueue.
pub(super) fn preemptible_by(
    rows: Rows<'_>,
    priority: i64,
    queue: &Arc<str>,
    used: &[FlavorResource],
) -> Vec<String> {
    let Some(candidate) = Candidate::of(rows, priority, queue, used) else { return Vec::new() };
    let own = candidate.within_cluster_queue().map(|of| {
        let older = if of == VictimPriority::LowerOrNewerEqual { ", or of the same and older" } else { "" };
        format!("a workload of ClusterQueue {queue} with a priority above {priority}{older}")
    });
    let mut sentences: Vec<String> = own.into_iter().collect();
    let facts = rows.quota.facts;
    // By quota, and by whether only a higher priority may preempt.
    let mut others: BTreeMap<(Gain, bool), Vec<&str>> = BTreeMap::new();
    for (name, of_queue) in facts.cluster_queues.iter().filter(|(name, _)| *name != queue) {
        if rows.is_active(name) {
            for (gain, of) in candidate.gains(name, of_queue) {
                others.entry((gain, of != VictimPriority::Any)).or_default().push(name);
            }
        }
    }
    let has_others = !others.is_empty();
    for ((gain, is_above), names) in others {
        let subject = if rows.access.cluster { named(&names) } else { "another ClusterQueue".to_owned() };
        let above = if is_above { format!(" with a priority above {priority}") } else { String::new() };
        let what = match gain {
            Gain::Nominal => " that reclaims its nominal quota",
            Gain::OfCohort => " that reclaims quota of its cohort",
            Gain::Borrowed => ", also to borrow",
            Gain::Share => "",
        };
        sentences.push(format!("a workload of {subject}{above}{what}"));
    }
    if facts.fair_sharing.is_some() && has_others {
        let nominal = if facts.preempts_within_nominal { "to reclaim its nominal quota, or " } else { "" };
        sentences.push(format!(
            "under fair sharing, only {nominal}of a ClusterQueue or cohort with a smaller share"
        ));
    }
    sentences
}

/// Formats names: `ClusterQueue a, b or c`, or `ClusterQueue a, b, c or 4 others`.
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
