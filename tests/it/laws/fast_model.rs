//! The quota rules a third time, over plain arrays: fast enough to be asked after every step of a long history.
//!
//! Nodes are numbered, cohorts first; every parent has a smaller number, so that one walk backwards sums a tree up.

use super::builders::{COHORTS, QUEUES};

/// Flavor times two plus resource.
pub(super) const FLAVOR_RESOURCES: usize = 4;

/// An amount of each flavor and resource.
pub(super) type Amounts = [i128; FLAVOR_RESOURCES];

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quota {
    pub(super) nominal: i128,
    pub(super) borrowing: Option<i128>,
    pub(super) lending: Option<i128>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub(super) parent: Option<usize>,
    pub(super) quotas: [Quota; FLAVOR_RESOURCES],
}

/// The configuration of the tree.
#[derive(Clone, Debug)]
pub(super) struct FastModel {
    pub(super) nodes: Vec<Node>,
}

/// Sums of all nodes.
pub(super) struct NodeSums {
    pub(super) subtree_quota: Vec<Amounts>,
    pub(super) local_quota: Vec<Amounts>,
    pub(super) usage: Vec<Amounts>,
}

/// Number of a queue among the nodes.
pub(super) const fn node_index(queue: usize) -> usize {
    COHORTS.len() + queue
}

impl FastModel {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::default(); COHORTS.len() + QUEUES.len()] }
    }

    /// Everything that follows from what queues hold.
    pub(super) fn sums<'a>(&self, held: impl Iterator<Item = (usize, &'a Amounts)>) -> NodeSums {
        let zero = vec![[0; FLAVOR_RESOURCES]; self.nodes.len()];
        let mut sums = NodeSums { subtree_quota: zero.clone(), local_quota: zero.clone(), usage: zero };
        for (queue, amounts) in held {
            for (sum, amount) in sums.usage[node_index(queue)].iter_mut().zip(amounts) {
                *sum += amount;
            }
        }
        for (at, node) in self.nodes.iter().enumerate().rev() {
            for (pair, quota) in node.quotas.iter().enumerate() {
                sums.subtree_quota[at][pair] += quota.nominal;
                let subtree = sums.subtree_quota[at][pair];
                let local = quota.lending.map_or(0, |lending| (subtree - lending).max(0));
                sums.local_quota[at][pair] = local;
                if let Some(up) = node.parent {
                    sums.subtree_quota[up][pair] += subtree - local;
                    sums.usage[up][pair] += (sums.usage[at][pair] - local).max(0);
                }
            }
        }
        sums
    }

    pub(super) fn available(&self, sums: &NodeSums, at: usize, pair: usize) -> i128 {
        let (subtree, local, usage) =
            (sums.subtree_quota[at][pair], sums.local_quota[at][pair], sums.usage[at][pair]);
        let Some(up) = self.nodes[at].parent else {
            return subtree - usage;
        };
        let above = self.available(sums, up, pair);
        let limit = self.nodes[at].quotas[pair].borrowing;
        let own = limit.map(|limit| subtree - local - (usage - local).max(0) + limit);
        (local - usage).max(0) + own.map_or(above, |own| own.min(above))
    }

    /// What a node could have at most if nothing were in use.
    pub(super) fn potential_available(&self, sums: &NodeSums, at: usize, pair: usize) -> i128 {
        let Some(up) = self.nodes[at].parent else {
            return sums.subtree_quota[at][pair];
        };
        let most = sums.local_quota[at][pair] + self.potential_available(sums, up, pair);
        let limit = self.nodes[at].quotas[pair].borrowing;
        limit.map_or(most, |limit| most.min(sums.subtree_quota[at][pair] + limit))
    }

    /// Whether an amount is within what a queue or a cohort above it owns that has a cohort above itself.
    pub(super) fn may_reclaim(&self, sums: &NodeSums, queue: usize, pair: usize, amount: i128) -> bool {
        let mut rest = amount;
        let owner = self.path_to_root(queue).into_iter().find(|node| {
            let owns = sums.usage[*node][pair] + rest <= sums.subtree_quota[*node][pair];
            rest -= (sums.local_quota[*node][pair] - sums.usage[*node][pair]).max(0);
            owns
        });
        owner.is_some_and(|node| self.nodes[node].parent.is_some())
    }

    /// Whether a queue can take so much more.
    pub(super) fn fits(&self, sums: &NodeSums, queue: usize, wanted: &Amounts) -> bool {
        let at = node_index(queue);
        (0..FLAVOR_RESOURCES)
            .all(|pair| wanted[pair] == 0 || wanted[pair] <= self.available(sums, at, pair).max(0))
    }

    /// The same without going beyond what the queue owns.
    pub(super) fn fits_without_borrowing(&self, sums: &NodeSums, queue: usize, wanted: &Amounts) -> bool {
        let at = node_index(queue);
        let own = |pair: usize| {
            wanted[pair] == 0 || sums.usage[at][pair] + wanted[pair] <= sums.subtree_quota[at][pair]
        };
        self.fits(sums, queue, wanted) && (0..FLAVOR_RESOURCES).all(own)
    }

    /// The way from a queue to its root.
    pub(super) fn path_to_root(&self, queue: usize) -> Vec<usize> {
        std::iter::successors(Some(node_index(queue)), |at| self.nodes[*at].parent).collect()
    }
}
