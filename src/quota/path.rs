//! The way from a leaf to its root for one flavor and resource, and every question that the way answers.
//!
//! All arithmetic is exact (`i128`), so neither unlimited quotas nor debts bend a comparison.

use super::{FlavorResource, Limits, NodeRef};
use crate::resources::Amount;
use std::collections::BTreeMap;

/// One node of a path with its figures for one flavor and resource.
#[derive(Clone, Copy, Debug)]
pub struct Rung<'a> {
    /// The node.
    pub node: &'a NodeRef,
    /// What the subtree owns and may use or lend.
    pub subtree: i128,
    /// The part of it that is never lent.
    pub local: i128,
    /// What is in use; at inner nodes only what the children could not keep local.
    pub usage: i128,
    /// Most that may be used beyond `subtree`.
    pub borrowing: Option<i128>,
    /// Longest distance to a leaf below.
    pub height: u32,
}

impl Rung<'_> {
    fn local_available(&self) -> i128 {
        (self.local - self.usage).max(0)
    }

    /// What the parent may still give this node by its borrowing limit.
    fn borrowable(&self) -> Option<i128> {
        let stored = self.subtree - self.local;
        let used = (self.usage - self.local).max(0);
        self.borrowing.map(|limit| stored - used + limit)
    }
}

/// Where a limit binds and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The node.
    pub node: NodeRef,
    /// Most that the node can ever have in use.
    pub limit: Amount,
}

/// The rungs from the leaf up to the root; never empty.
#[derive(Clone, Debug)]
pub struct Path<'a> {
    rungs: Vec<Rung<'a>>,
}

impl<'a> Path<'a> {
    pub(super) fn new(rungs: Vec<Rung<'a>>) -> Self {
        Self { rungs }
    }

    /// The rungs, leaf first.
    pub fn rungs(&self) -> &[Rung<'a>] {
        &self.rungs
    }

    fn leaf(&self) -> Option<&Rung<'a>> {
        self.rungs.first()
    }

    /// What the leaf may still take; negative while it or a node above is in debt.
    pub fn available(&self) -> i128 {
        self.fold(
            |root| root.subtree - root.usage,
            |rung, above| rung.local_available() + rung.borrowable().map_or(above, |limit| limit.min(above)),
        )
    }

    /// What the leaf could take if nothing were in use.
    pub fn potential(&self) -> i128 {
        self.fold(
            |root| root.subtree,
            |rung, above| {
                let all = rung.local + above;
                rung.borrowing.map_or(all, |limit| all.min(rung.subtree + limit))
            },
        )
    }

    fn fold(&self, root: impl Fn(&Rung) -> i128, below: impl Fn(&Rung, i128) -> i128) -> i128 {
        let mut downward = self.rungs.iter().rev();
        let top = downward.next().map_or(0, root);
        downward.fold(top, |above, rung| below(rung, above))
    }

    /// The lowest node whose limit keeps the leaf from having more than now.
    pub fn binds_now(&self) -> Option<Binding> {
        self.binding(
            |root| root.subtree - root.usage,
            |rung, above| {
                (
                    rung.borrowable(),
                    rung.local_available() + rung.borrowable().map_or(above, |l| l.min(above)),
                )
            },
        )
    }

    /// The lowest node whose limit keeps the leaf from ever having more.
    pub fn binds_ever(&self) -> Option<Binding> {
        self.binding(
            |root| root.subtree,
            |rung, above| {
                let all = rung.local + above;
                let own = rung.borrowing.map(|limit| rung.subtree + limit);
                (own.map(|o| o - rung.local), own.map_or(all, |o| o.min(all)))
            },
        )
    }

    /// `below` answers with what the rung's own limit lets through (none without one) and what arrives below it.
    fn binding(
        &self,
        root: impl Fn(&Rung) -> i128,
        below: impl Fn(&Rung, i128) -> (Option<i128>, i128),
    ) -> Option<Binding> {
        let mut downward = self.rungs.iter().rev();
        let top = downward.next()?;
        let mut at = (top, top.subtree);
        let mut flow = root(top);
        for rung in downward {
            let (own, arrives) = below(rung, flow);
            if own.is_some_and(|own| own <= flow) {
                at = (rung, rung.subtree + rung.borrowing.unwrap_or(0));
            }
            flow = arrives;
        }
        Some(Binding {
            node: at.0.node.clone(),
            limit: Amount::from_wide(at.1),
        })
    }

    /// Whether the leaf would use more than its own with so much more.
    pub fn borrows_with(&self, more: i128) -> bool {
        self.leaf().is_some_and(|leaf| leaf.subtree < leaf.usage + more)
    }

    /// What the leaf owns.
    pub fn nominal(&self) -> i128 {
        self.leaf().map_or(0, |leaf| leaf.subtree)
    }

    /// What the leaf uses.
    pub fn usage(&self) -> i128 {
        self.leaf().map_or(0, |leaf| leaf.usage)
    }

    /// The leaf's borrowing limit.
    pub fn borrowing_limit(&self) -> Option<i128> {
        self.leaf().and_then(|leaf| leaf.borrowing)
    }

    /// Height of the smallest subtree that could give so much without borrowing, and whether that subtree has a parent
    /// from which something could be reclaimed. Height 0 is the leaf itself.
    pub fn lowest_subtree_for(&self, more: i128) -> (u32, bool) {
        let last = self.rungs.len().saturating_sub(1);
        if !self.borrows_with(more) || last == 0 {
            return (0, last > 0);
        }
        let mut remaining = more - self.leaf().map_or(0, Rung::local_available);
        for (level, rung) in self.rungs.iter().enumerate().skip(1) {
            if rung.subtree >= rung.usage + remaining {
                return (rung.height, level < last);
            }
            remaining -= rung.local_available();
        }
        (self.rungs.last().map_or(0, |root| root.height), false)
    }
}

/// The rung of a node, from its figures.
pub(super) fn rung<'a>(
    node: &'a NodeRef,
    cell: super::tree::Cell,
    limits: &BTreeMap<FlavorResource, Limits>,
    pair: &FlavorResource,
    height: u32,
) -> Rung<'a> {
    let borrowing = limits.get(pair).and_then(|l| l.borrowing).map(Amount::wide);
    Rung {
        node,
        subtree: cell.subtree,
        local: cell.local,
        usage: cell.usage,
        borrowing,
        height,
    }
}
