//! The order in which the heads of a cycle are processed.
//!
//! Without fair sharing: those that borrow least first, then by priority and time. With it: the winner of a tournament
//! over the tree, where at every cohort the side with the smallest share wins, held anew after each turn. Those who must go
//! since this cycle count for the shares of their queues until they are gone.

use super::config::EngineSettings;
use super::nominate::Entry;
use super::reserving_workloads::ReservingWorkload;
use crate::quota::{DominantResourceShare, NodeId, QuotaTree, UsageLayer};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Heads that have not had their turn.
pub(super) enum EntryIterator {
    /// In this order, last first.
    Classical(Vec<Entry>),
    /// By tournament, each with the way from its queue to its root.
    FairSharing(Vec<(Entry, Vec<NodeId>)>),
}

impl EntryIterator {
    pub(super) fn new(mut entries: Vec<Entry>, settings: &EngineSettings, tree: &QuotaTree) -> Self {
        if settings.fair_sharing.is_some() {
            let path =
                |entry: &Entry| std::iter::successors(Some(entry.node), |node| tree.parent(*node)).collect();
            let with_path = |entry: Entry| {
                let path = path(&entry);
                (entry, path)
            };
            return Self::FairSharing(entries.into_iter().map(with_path).collect());
        }
        let sorts = settings.gates.priority_sorting_within_cohort;
        let turn = |entry: &Entry| {
            let priority = if sorts { entry.workload.priority } else { 0 };
            (entry.borrowing_level, Reverse(priority), entry.workload.queued_since)
        };
        entries
            .sort_by(|a, b| turn(b).cmp(&turn(a)).then_with(|| b.workload.order().cmp(&a.workload.order())));
        Self::Classical(entries)
    }

    /// Takes the head whose turn it is, of the tree of the first; `leaving` are those who must go since this cycle.
    pub(super) fn next(
        &mut self,
        tree: &mut QuotaTree,
        settings: &EngineSettings,
        leaving: impl Iterator<Item = Arc<ReservingWorkload>>,
    ) -> Option<Entry> {
        match self {
            Self::Classical(entries) => entries.pop(),
            Self::FairSharing(entries) => {
                let root = *entries.first()?.1.last()?;
                let leaving: Vec<Arc<ReservingWorkload>> =
                    leaving.filter(|holder| tree.root(holder.node) == root).collect();
                simulate_usage_of(tree, &leaving, 1);
                let at = tournament_winner(entries, root, tree, settings);
                simulate_usage_of(tree, &leaving, -1);
                Some(entries.remove(at?).0)
            }
        }
    }
}

fn simulate_usage_of(tree: &mut QuotaTree, holders: &[Arc<ReservingWorkload>], sign: i128) {
    for holder in holders {
        tree.simulate_usage(holder.node, &holder.usage, sign);
    }
}

/// A contender at some node of the tree.
struct Contender {
    entry: usize,
    /// How far it has come up.
    level: usize,
}

/// What decides between contenders of one cohort.
struct TournamentKey {
    borrows: bool,
    share: DominantResourceShare,
    /// Whether it stands there for itself, not for a cohort.
    is_queue: bool,
}

/// Place of the entry whose turn it is: the winner of a tree.
fn tournament_winner(
    entries: &[(Entry, Vec<NodeId>)],
    root: NodeId,
    tree: &mut QuotaTree,
    settings: &EngineSettings,
) -> Option<usize> {
    let mut by_depth: BTreeMap<usize, Vec<Contender>> = BTreeMap::new();
    for (at, (_, path)) in entries.iter().enumerate() {
        if path.last() == Some(&root) {
            by_depth.entry(path.len()).or_default().push(Contender { entry: at, level: 0 });
        }
    }
    while let Some((depth, contenders)) = by_depth.pop_last() {
        let mut best: BTreeMap<NodeId, (Contender, TournamentKey)> = BTreeMap::new();
        for contender in contenders {
            let (entry, path) = entries.get(contender.entry)?;
            let Some(cohort) = path.get(contender.level + 1) else {
                return Some(contender.entry);
            };
            let standing = tournament_key(entry, path, contender.level, tree);
            let wins = best.get(cohort).is_none_or(|(other, best)| {
                let Some((rival, _)) = entries.get(other.entry) else { return true };
                compare_contenders((entry, &standing), (rival, best), settings) == Ordering::Less
            });
            if wins {
                best.insert(*cohort, (contender, standing));
            }
        }
        let above = by_depth.entry(depth - 1).or_default();
        above.extend(best.into_values().map(|(won, _)| Contender { level: won.level + 1, ..won }));
    }
    None
}

fn tournament_key(entry: &Entry, path: &[NodeId], level: usize, tree: &mut QuotaTree) -> TournamentKey {
    let is_queue = level == 0;
    let (Some(leaf), Some(node)) = (path.first(), path.get(level)) else {
        return TournamentKey { borrows: false, share: DominantResourceShare::default(), is_queue };
    };
    tree.with_simulated_usage(*leaf, &entry.usage, |tree| TournamentKey {
        borrows: entry
            .usage
            .iter()
            .any(|(pair, _)| !tree.within_nominal(*node, *pair, UsageLayer::Projected)),
        share: tree.share(*node),
        is_queue,
    })
}

/// Less goes first.
fn compare_contenders(
    a: (&Entry, &TournamentKey),
    b: (&Entry, &TournamentKey),
    settings: &EngineSettings,
) -> Ordering {
    let gates = settings.gates;
    let borrows =
        if gates.prioritize_non_borrowing { a.1.borrows.cmp(&b.1.borrows) } else { Ordering::Equal };
    let (x, y) = (&a.0.workload, &b.0.workload);
    let priority =
        if gates.priority_sorting_within_cohort { y.priority.cmp(&x.priority) } else { Ordering::Equal };
    borrows
        .then_with(|| a.1.share.compare(&b.1.share))
        .then(priority)
        .then_with(|| x.queued_since.cmp(&y.queued_since))
        .then(a.1.is_queue.cmp(&b.1.is_queue))
        .then_with(|| x.order().cmp(&y.order()))
}
