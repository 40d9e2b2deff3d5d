//! Order in which the heads of a cycle are processed.
//!
//! Without fair sharing: lower borrowing level first, then priority, then time. With fair sharing: the winner of a
//! tournament over the cohort tree, in which the side with the smallest DRS wins at each cohort; the tournament runs
//! again after every entry. Victims of this cycle still count toward the DRS of their ClusterQueues.
//! Neighbours: `nominate` supplies the entries, `cycle` processes them.

use super::config::EngineSettings;
use super::nominate::Entry;
use super::reserving_workloads::ReservingWorkload;
use crate::quota::{DominantResourceShare, NodeId, QuotaTree, UsageLayer};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Entries that are not processed yet.
pub(super) enum EntryIterator {
    /// Sorted, the next one last.
    Classical(Vec<Entry>),
    /// Unsorted, each with the path from its ClusterQueue to the root.
    FairSharing(Vec<(Entry, Vec<NodeId>)>),
}

impl EntryIterator {
    pub(super) fn new(mut entries: Vec<Entry>, settings: &EngineSettings, tree: &QuotaTree) -> Self {
        if settings.fair_sharing.is_some() {
            let path = |entry: &Entry| {
                std::iter::successors(Some(entry.head.node), |node| tree.parent(*node)).collect()
            };
            let with_path = |entry: Entry| {
                let path = path(&entry);
                (entry, path)
            };
            return Self::FairSharing(entries.into_iter().map(with_path).collect());
        }
        let by_priority = settings.gates.priority_sorting_within_cohort;
        let sort_key = |entry: &Entry| {
            let priority = if by_priority { entry.head.workload.priority } else { 0 };
            (entry.borrowing_level, Reverse(priority), entry.head.workload.queued_since)
        };
        entries.sort_by(|a, b| {
            sort_key(b).cmp(&sort_key(a)).then_with(|| b.head.workload.order().cmp(&a.head.workload.order()))
        });
        Self::Classical(entries)
    }

    /// Removes and returns the next entry; with fair sharing the winner in the tree of the first entry. `victims` are
    /// the victims of this cycle.
    pub(super) fn next(
        &mut self,
        tree: &mut QuotaTree,
        settings: &EngineSettings,
        victims: impl Iterator<Item = Arc<ReservingWorkload>>,
    ) -> Option<Entry> {
        match self {
            Self::Classical(entries) => entries.pop(),
            Self::FairSharing(entries) => {
                let root = *entries.first()?.1.last()?;
                let victims: Vec<Arc<ReservingWorkload>> =
                    victims.filter(|workload| tree.root(workload.node) == root).collect();
                simulate_usage_of(tree, &victims, 1);
                let index = tournament_winner(entries, root, tree, settings);
                simulate_usage_of(tree, &victims, -1);
                Some(entries.remove(index?).0)
            }
        }
    }
}

fn simulate_usage_of(tree: &mut QuotaTree, workloads: &[Arc<ReservingWorkload>], sign: i128) {
    for workload in workloads {
        tree.simulate_usage(workload.node, &workload.usage, sign);
    }
}

/// A contender at one node of the tree.
struct Contender {
    entry: usize,
    /// Index of that node in the entry's path; 0 is the ClusterQueue.
    level: usize,
}

/// Sort key of a contender within one cohort.
struct TournamentKey {
    borrows: bool,
    share: DominantResourceShare,
    /// Whether it contends as a ClusterQueue, not as the winner of a cohort.
    is_queue: bool,
}

/// Runs the tournament of one tree. Returns the index of the winning entry.
fn tournament_winner(
    entries: &[(Entry, Vec<NodeId>)],
    root: NodeId,
    tree: &mut QuotaTree,
    settings: &EngineSettings,
) -> Option<usize> {
    let mut by_depth: BTreeMap<usize, Vec<Contender>> = BTreeMap::new();
    for (index, (_, path)) in entries.iter().enumerate() {
        if path.last() == Some(&root) {
            by_depth.entry(path.len()).or_default().push(Contender { entry: index, level: 0 });
        }
    }
    while let Some((depth, contenders)) = by_depth.pop_last() {
        let mut best: BTreeMap<NodeId, (Contender, TournamentKey)> = BTreeMap::new();
        for contender in contenders {
            let (entry, path) = entries.get(contender.entry)?;
            let Some(cohort) = path.get(contender.level + 1) else {
                return Some(contender.entry);
            };
            let key = tournament_key(entry, path, contender.level, tree);
            let wins = best.get(cohort).is_none_or(|(other, best)| {
                let Some((rival, _)) = entries.get(other.entry) else { return true };
                compare_contenders((entry, &key), (rival, best), settings) == Ordering::Less
            });
            if wins {
                best.insert(*cohort, (contender, key));
            }
        }
        let upper = by_depth.entry(depth - 1).or_default();
        upper.extend(best.into_values().map(|(winner, _)| Contender { level: winner.level + 1, ..winner }));
    }
    None
}

fn tournament_key(entry: &Entry, path: &[NodeId], level: usize, tree: &mut QuotaTree) -> TournamentKey {
    let is_queue = level == 0;
    let (Some(leaf), Some(node)) = (path.first(), path.get(level)) else {
        return TournamentKey { borrows: false, share: DominantResourceShare::default(), is_queue };
    };
    tree.with_simulated_usage(*leaf, &entry.usage, |tree| TournamentKey {
        borrows: entry.usage.iter().any(|(fr, _)| !tree.within_nominal(*node, *fr, UsageLayer::Projected)),
        share: tree.share(*node),
        is_queue,
    })
}

/// Compares two contenders; the smaller one goes first.
fn compare_contenders(
    a: (&Entry, &TournamentKey),
    b: (&Entry, &TournamentKey),
    settings: &EngineSettings,
) -> Ordering {
    let gates = settings.gates;
    let borrows =
        if gates.prioritize_non_borrowing { a.1.borrows.cmp(&b.1.borrows) } else { Ordering::Equal };
    let (x, y) = (&a.0.head.workload, &b.0.head.workload);
    let priority =
        if gates.priority_sorting_within_cohort { y.priority.cmp(&x.priority) } else { Ordering::Equal };
    borrows
        .then_with(|| a.1.share.compare(&b.1.share))
        .then(priority)
        .then_with(|| x.queued_since.cmp(&y.queued_since))
        .then(a.1.is_queue.cmp(&b.1.is_queue))
        .then_with(|| x.order().cmp(&y.order()))
}
