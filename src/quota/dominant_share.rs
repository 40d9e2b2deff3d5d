//! Dominant shares: how far a node goes beyond what it owns, measured by what its parent could lend.
//!
//! Computed in the same floating-point steps as Kueue's, so that ties fall alike.

use super::flavor_resource::{ResourceId, Usage};
use super::tree::{NodeId, QuotaTree};
use crate::resources::{UsageLayer, to_f64};
use std::cmp::Ordering;

/// Share of a node in its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DominantResourceShare {
    /// Highest ratio over the resources, in thousandths of what the parent could lend, whatever the weight.
    ratio: f64,
    weight: f64,
    /// Whether anything is borrowed, be it of what nobody lends.
    pub borrows: bool,
}

impl DominantResourceShare {
    /// Whether a node of no weight borrows: its share is without limit.
    pub fn is_infinite(&self) -> bool {
        self.weight == 0.0 && self.ratio > 0.0
    }

    /// The share by weight.
    pub fn weighted_share(&self) -> f64 {
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
            (false, false) => self.weighted_share().total_cmp(&other.weighted_share()),
        }
    }
}

impl QuotaTree {
    /// The share of a node as planned, with what is asked beside what it uses; 0 for a root.
    pub fn share(&self, node: NodeId) -> DominantResourceShare {
        let Some((node, parent)) = self.node(node).and_then(|n| Some((n, self.node(self.parent(n.id)?)?)))
        else {
            return DominantResourceShare::default();
        };
        let mut sums: Vec<(ResourceId, i128)> = Vec::new();
        for (pair, cell) in node.quotas.iter().filter(|(_, cell)| cell.declared) {
            let borrowed = cell.borrowed(UsageLayer::Projected);
            let Some(resource) = self.flavor_resources.resource(pair).filter(|_| borrowed > 0) else {
                continue;
            };
            match sums.iter_mut().find(|(known, _)| *known == resource) {
                Some((_, sum)) => *sum += borrowed,
                None => sums.push((resource, borrowed)),
            }
        }
        let ratio = |(resource, borrowed): &(ResourceId, i128)| {
            let lendable = parent.lendable.iter().find(|(known, _)| known == resource).map_or(0, |(_, l)| *l);
            if lendable > 0 { to_f64(*borrowed) * 1000.0 / to_f64(lendable) } else { 0.0 }
        };
        let most = sums.iter().map(ratio).fold(0.0, f64::max);
        DominantResourceShare { ratio: most, weight: node.weight, borrows: !sums.is_empty() }
    }

    /// Runs a question with usage added to a leaf as planned, and takes it off again.
    pub fn with_simulated_usage<T>(
        &mut self,
        leaf: NodeId,
        usage: &Usage,
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.simulate_usage(leaf, usage, 1);
        let answer = ask(self);
        self.simulate_usage(leaf, usage, -1);
        answer
    }

    /// Adds usage to a leaf as planned, or takes it off, for a while.
    pub fn simulate_usage(&mut self, leaf: NodeId, usage: &Usage, sign: i128) {
        self.shift_usage(leaf, usage, sign, UsageLayer::Projected);
    }
}
