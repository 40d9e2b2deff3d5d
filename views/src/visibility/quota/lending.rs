//! Unused quota that the nodes of a cohort tree lend to one another.
//!
//! Invariant: at each cohort and for each flavor-resource, the children and the cohort's own quota lend exactly what the children
//! borrow and the cohort lends, less what the cohort borrows.

use super::{Children, PublishedQuota};
use crate::quota::{FlavorResource, NodeRef, NodeUsage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Amount of unused quota that each node lends.
#[derive(Clone, Debug, Default)]
pub(in crate::visibility) struct Lending {
    /// What a node lends with its subtree.
    lent: BTreeMap<(NodeRef, FlavorResource), i128>,
    /// What a cohort lends of the quota that it has beside its children.
    own: BTreeMap<(NodeRef, FlavorResource), i128>,
}

impl Lending {
    /// Computes the lent amounts of all nodes, from the roots down. The amount *borrowed(children) + lent(cohort) −
    /// borrowed(cohort)* is divided among the children and the cohort's own quota, in proportion to what they could lend.
    pub(in crate::visibility) fn of(quota: PublishedQuota<'_>, children: &Children) -> Self {
        let mut lending = Self::default();
        let is_root = |name: &&Arc<str>| quota.parent(&NodeRef::Cohort(Arc::clone(name))).is_none();
        let mut open: Vec<&Arc<str>> = quota.queues.cohorts.keys().filter(is_root).collect();
        while let Some(name) = open.pop() {
            let node = NodeRef::Cohort(Arc::clone(name));
            let below = children.of_cohort(name);
            for fr in quota.usages(&node).into_iter().flatten().map(|(fr, _)| fr) {
                lending.divide(quota, &node, below, fr);
            }
            open.extend(below.iter().filter_map(|child| match child {
                NodeRef::Cohort(name) => quota.queues.cohorts.get_key_value(name).map(|(name, _)| name),
                NodeRef::ClusterQueue(_) => None,
            }));
        }
        lending
    }

    /// Divides the lent amount of a cohort among its children and its own quota.
    fn divide(
        &mut self,
        quota: PublishedQuota<'_>,
        node: &NodeRef,
        children: &[NodeRef],
        fr: &FlavorResource,
    ) {
        let own = quota.usage(node, fr);
        let usages: Vec<NodeUsage> = children.iter().map(|child| quota.usage(child, fr)).collect();
        let borrowed: i128 = usages.iter().map(|usage| usage.borrowed(true).to_i128()).sum();
        // Usage of a root above its quota is borrowed from no node.
        let lent = (borrowed + self.lent(node, fr) - own.borrowed(true).to_i128()).max(0);
        let mut lenders: Vec<i128> = usages.iter().map(NodeUsage::unused_lendable).collect();
        lenders.push(own.limits.nominal.to_i128());
        let mut parts = divided(lent, &lenders);
        let of_own_quota = parts.pop().unwrap_or(0);
        if of_own_quota > 0 {
            self.own.insert((node.clone(), fr.clone()), of_own_quota);
        }
        for (child, amount) in children.iter().zip(parts) {
            if amount > 0 {
                self.lent.insert((child.clone(), fr.clone()), amount);
            }
        }
    }

    pub(in crate::visibility) fn lent(&self, node: &NodeRef, fr: &FlavorResource) -> i128 {
        self.lent.get(&(node.clone(), fr.clone())).copied().unwrap_or(0)
    }

    /// Returns what a cohort lends of the quota that it has beside its children.
    pub(super) fn own(&self, cohort: &NodeRef, fr: &FlavorResource) -> i128 {
        self.own.get(&(cohort.clone(), fr.clone())).copied().unwrap_or(0)
    }
}

/// Divides a whole number in proportion to weights. The parts add up to it unless the weights add up to 0; the remainder of
/// rounding goes to the largest remainders.
fn divided(whole: i128, weights: &[i128]) -> Vec<i128> {
    let sum: i128 = weights.iter().sum();
    let part = |weight: &i128| {
        let product = whole.checked_mul(*weight).unwrap_or(i128::MAX);
        (product.checked_div(sum).unwrap_or(0), product.checked_rem(sum).unwrap_or(0))
    };
    let parts: Vec<(i128, i128)> = weights.iter().map(part).collect();
    let mut amounts: Vec<i128> = parts.iter().map(|(amount, _)| *amount).collect();
    let mut left = if sum > 0 { whole - amounts.iter().sum::<i128>() } else { 0 };
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(parts.get(*index).map(|(_, remainder)| *remainder)));
    for index in order {
        if left > 0
            && let Some(amount) = amounts.get_mut(index)
        {
            *amount += 1;
            left -= 1;
        }
    }
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        assert_eq!(divided(16, &[56, 8]), [14, 2]);
        assert_eq!(divided(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(divided(0, &[5, 0]), [0, 0]);
        assert_eq!(divided(7, &[0, 0]), [0, 0]);
        assert_eq!(divided(7, &[]), []);
    }
}
