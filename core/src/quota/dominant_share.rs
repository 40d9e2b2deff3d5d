//! Dominant resource share (DRS): how far a node's usage exceeds its quota, relative to what its parent could lend.
//!
//! Invariant: uses the same floating-point steps as Kueue, so that ties are the same.

use super::flavor_resource::{ResourceId, Usage};
use super::tree::{NodeId, QuotaTree};
use crate::resources::{UsageLayer, to_f64};
use std::cmp::Ordering;

/// DRS of a node in its parent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DominantResourceShare {
    /// Highest ratio over the resources, in thousandths of what the parent could lend, before weighting.
    ratio: f64,
    weight: f64,
    /// Whether any usage is borrowed, even of a resource with nothing lendable.
    pub borrows: bool,
}

impl DominantResourceShare {
    /// Whether a node with weight 0 borrows: its share is infinite.
    pub fn is_infinite(&self) -> bool {
        self.weight == 0.0 && self.ratio > 0.0
    }

    /// Whether a node with weight 0 borrows anything, also of what its parent can no longer lend.
    pub fn borrows_without_weight(&self) -> bool {
        self.weight == 0.0 && self.borrows
    }

    /// The share divided by the weight.
    pub fn weighted_share(&self) -> f64 {
        if self.ratio == 0.0 {
            0.0
        } else if self.weight == 0.0 {
            f64::INFINITY
        } else {
            self.ratio / self.weight
        }
    }

    /// Compares shares; among borrowing nodes with weight 0 the ratios decide.
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
    /// DRS of a node in projected usage, simulated usage included; 0 for a root.
    pub fn share(&self, node: NodeId) -> DominantResourceShare {
        let Some((node, parent)) = self.node(node).and_then(|n| Some((n, self.node(self.parent(n.id)?)?)))
        else {
            return DominantResourceShare::default();
        };
        let mut sums: Vec<(ResourceId, i128)> = Vec::new();
        for (fr, quota) in node.quotas.iter().filter(|(_, quota)| quota.declared) {
            let borrowed = quota.borrowed(UsageLayer::Projected);
            let Some(resource) = self.flavor_resources.resource(fr).filter(|_| borrowed > 0) else {
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
        let highest = sums.iter().map(ratio).fold(0.0, f64::max);
        DominantResourceShare { ratio: highest, weight: node.weight, borrows: !sums.is_empty() }
    }

    /// Runs `ask` with projected usage added to a leaf, and removes it again.
    pub fn with_simulated_usage<T>(
        &mut self,
        leaf: NodeId,
        usage: &Usage,
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.simulate_usage(leaf, usage, 1);
        let result = ask(self);
        self.simulate_usage(leaf, usage, -1);
        result
    }

    /// Adds or removes projected usage of a leaf temporarily; callers undo it.
    pub fn simulate_usage(&mut self, leaf: NodeId, usage: &Usage, sign: i128) {
        self.shift_usage(leaf, usage, sign, UsageLayer::Projected);
    }
}
