//! Dominant shares: how far a node goes beyond what it owns, measured by what its parent could lend.
//!
//! Computed in the same floating-point steps as Kueue's, so that ties fall alike.

use super::pairs::{ResourceId, Usage};
use super::tree::{NodeId, Tree};
use crate::resources::{Layer, float};
use std::cmp::Ordering;

/// Share of a node in its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Highest ratio over the resources, in thousandths of what the parent could lend, whatever the weight.
    ratio: f64,
    weight: f64,
    /// Whether anything is borrowed, be it of what nobody lends.
    pub borrows: bool,
}

impl Share {
    /// Whether a node of no weight borrows: its share is without limit.
    pub fn is_infinite(&self) -> bool {
        self.weight == 0.0 && self.ratio > 0.0
    }

    /// The share by weight.
    pub fn value(&self) -> f64 {
        if self.ratio == 0.0 {
            0.0
        } else if self.weight == 0.0 {
            f64::INFINITY
        } else {
            self.ratio / self.weight
        }
    }

    /// Order of shares; between nodes of no weight that borrow the ratios decide.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => self.ratio.total_cmp(&other.ratio),
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.value().total_cmp(&other.value()),
        }
    }
}

impl Tree {
    /// The share of a node as planned, with what is asked beside what it uses; 0 for a root.
    pub fn share(&self, node: NodeId) -> Share {
        let Some((node, parent)) = self.node(node).and_then(|n| Some((n, self.node(self.parent(n.id)?)?)))
        else {
            return Share::default();
        };
        let mut sums: Vec<(ResourceId, i128)> = Vec::new();
        for (pair, cell) in node.cells.iter().filter(|(_, cell)| cell.declared) {
            let borrowed = cell.borrowed(Layer::Planned);
            let Some(resource) = self.pairs.resource(pair).filter(|_| borrowed > 0) else {
                continue;
            };
            match sums.iter_mut().find(|(known, _)| *known == resource) {
                Some((_, sum)) => *sum += borrowed,
                None => sums.push((resource, borrowed)),
            }
        }
        let ratio = |(resource, borrowed): &(ResourceId, i128)| {
            let lendable = parent.lendable.iter().find(|(known, _)| known == resource).map_or(0, |(_, l)| *l);
            if lendable > 0 { float(*borrowed) * 1000.0 / float(lendable) } else { 0.0 }
        };
        let most = sums.iter().map(ratio).fold(0.0, f64::max);
        Share { ratio: most, weight: node.weight, borrows: !sums.is_empty() }
    }

    /// Runs a question with usage added to a leaf as planned, and takes it off again.
    pub fn with_planned<T>(&mut self, leaf: NodeId, usage: &Usage, ask: impl FnOnce(&mut Self) -> T) -> T {
        self.plan(leaf, usage, 1);
        let answer = ask(self);
        self.plan(leaf, usage, -1);
        answer
    }

    /// Adds usage to a leaf as planned, or takes it off, for a while.
    pub fn plan(&mut self, leaf: NodeId, usage: &Usage, sign: i128) {
        self.try_out(leaf, usage, sign, Layer::Planned);
    }
}
