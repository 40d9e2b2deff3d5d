//! The order in which the heads of a cycle are processed.
//!
//! Without fair sharing: those that borrow least first, then by priority and time. With it: the winner of a tournament
//! over the tree, where at every cohort the side with the smallest share wins, held anew after each turn. Those who must go
//! since this cycle count for the shares of their queues until they are gone.

use super::config::EngineSettings;
use super::ledger::Holder;
use super::nominate::Entry;
use crate::quota::{Layer, NodeId, Share, Tree};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Heads that have not had their turn.
pub(super) enum Lineup {
    /// In this order, last first.
    Sorted(Vec<Entry>),
    /// By tournament, each with the way from its queue to its root.
    Tournament(Vec<(Entry, Vec<NodeId>)>),
}

impl Lineup {
    pub(super) fn new(mut entries: Vec<Entry>, settings: &EngineSettings, tree: &Tree) -> Self {
        if settings.fair_sharing.is_some() {
            let path =
                |entry: &Entry| std::iter::successors(Some(entry.node), |node| tree.parent(*node)).collect();
            let with_path = |entry: Entry| {
                let path = path(&entry);
                (entry, path)
            };
            return Self::Tournament(entries.into_iter().map(with_path).collect());
        }
        let sorts = settings.gates.priority_sorting_within_cohort;
        let turn = |entry: &Entry| {
            let priority = if sorts { entry.workload.priority } else { 0 };
            (entry.borrows, Reverse(priority), entry.workload.queued_since)
        };
        entries
            .sort_by(|a, b| turn(b).cmp(&turn(a)).then_with(|| b.workload.order().cmp(&a.workload.order())));
        Self::Sorted(entries)
    }

    /// Takes the head whose turn it is, of the tree of the first; `leaving` are those who must go since this cycle.
    pub(super) fn next(
        &mut self,
        tree: &mut Tree,
        settings: &EngineSettings,
        leaving: impl Iterator<Item = Arc<Holder>>,
    ) -> Option<Entry> {
        match self {
            Self::Sorted(entries) => entries.pop(),
            Self::Tournament(entries) => {
                let root = *entries.first()?.1.last()?;
                let leaving: Vec<Arc<Holder>> =
                    leaving.filter(|holder| tree.root(holder.node) == root).collect();
                plan(tree, &leaving, 1);
                let at = winner(entries, root, tree, settings);
                plan(tree, &leaving, -1);
                Some(entries.remove(at?).0)
            }
        }
    }
}

fn plan(tree: &mut Tree, holders: &[Arc<Holder>], sign: i128) {
    for holder in holders {
        tree.plan(holder.node, &holder.usage, sign);
    }
}

/// A contender at some node of the tree.
struct Contender {
    entry: usize,
    /// How far it has come up.
    level: usize,
}

/// What decides between contenders of one cohort.
struct Standing {
    borrows: bool,
    share: Share,
    /// Whether it stands there for itself, not for a cohort.
    is_queue: bool,
}

/// Place of the entry whose turn it is: the winner of a tree.
fn winner(
    entries: &[(Entry, Vec<NodeId>)],
    root: NodeId,
    tree: &mut Tree,
    settings: &EngineSettings,
) -> Option<usize> {
    let mut by_depth: BTreeMap<usize, Vec<Contender>> = BTreeMap::new();
    for (at, (_, path)) in entries.iter().enumerate() {
        if path.last() == Some(&root) {
            by_depth.entry(path.len()).or_default().push(Contender { entry: at, level: 0 });
        }
    }
    while let Some((depth, contenders)) = by_depth.pop_last() {
        let mut best: BTreeMap<NodeId, (Contender, Standing)> = BTreeMap::new();
        for contender in contenders {
            let (entry, path) = entries.get(contender.entry)?;
            let Some(cohort) = path.get(contender.level + 1) else {
                return Some(contender.entry);
            };
            let standing = standing(entry, path, contender.level, tree);
            let wins = best.get(cohort).is_none_or(|(other, best)| {
                let Some((rival, _)) = entries.get(other.entry) else { return true };
                compare((entry, &standing), (rival, best), settings) == Ordering::Less
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

fn standing(entry: &Entry, path: &[NodeId], level: usize, tree: &mut Tree) -> Standing {
    let is_queue = level == 0;
    let (Some(leaf), Some(node)) = (path.first(), path.get(level)) else {
        return Standing { borrows: false, share: Share::default(), is_queue };
    };
    tree.with_planned(*leaf, &entry.usage, |tree| Standing {
        borrows: entry.usage.iter().any(|(pair, _)| !tree.within_nominal(*node, *pair, Layer::Planned)),
        share: tree.share(*node),
        is_queue,
    })
}

/// Less goes first.
fn compare(a: (&Entry, &Standing), b: (&Entry, &Standing), settings: &EngineSettings) -> Ordering {
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
