//! The quota rules a third time, over plain arrays: fast enough to check after every step of a long history.
//!
//! Nodes are numbered, cohorts first; every parent has a smaller number, so one backward pass sums the tree.

use crate::fixtures::builders::{COHORTS, QUEUES};

/// Number of flavor-resources; the index is flavor times two plus resource.
pub(super) const FLAVOR_RESOURCES: usize = 4;

/// One amount per flavor-resource.
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

#[derive(Clone, Debug)]
pub(super) struct FastModel {
    pub(super) nodes: Vec<Node>,
}

/// Quota and usage of all nodes.
pub(super) struct NodeSums {
    pub(super) subtree_quota: Vec<Amounts>,
    pub(super) local_quota: Vec<Amounts>,
    pub(super) usage: Vec<Amounts>,
}

/// Index of a queue among the nodes.
pub(super) const fn node_index(queue: usize) -> usize {
    COHORTS.len() + queue
}

impl FastModel {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node::default(); COHORTS.len() + QUEUES.len()] }
    }

    /// Sums quota and usage over the tree from the amounts charged to queues.
    pub(super) fn sums<'a>(&self, charged: impl Iterator<Item = (usize, &'a Amounts)>) -> NodeSums {
        let zero = vec![[0; FLAVOR_RESOURCES]; self.nodes.len()];
        let mut sums = NodeSums { subtree_quota: zero.clone(), local_quota: zero.clone(), usage: zero };
        for (queue, amounts) in charged {
            for (sum, amount) in sums.usage[node_index(queue)].iter_mut().zip(amounts) {
                *sum += amount;
            }
        }
        for (index, node) in self.nodes.iter().enumerate().rev() {
            for (fr, quota) in node.quotas.iter().enumerate() {
                sums.subtree_quota[index][fr] += quota.nominal;
                let subtree = sums.subtree_quota[index][fr];
                let local = quota.lending.map_or(0, |lending| (subtree - lending).max(0));
                sums.local_quota[index][fr] = local;
                if let Some(parent) = node.parent {
                    sums.subtree_quota[parent][fr] += subtree - local;
                    sums.usage[parent][fr] += (sums.usage[index][fr] - local).max(0);
                }
            }
        }
        sums
    }

    pub(super) fn available(&self, sums: &NodeSums, index: usize, fr: usize) -> i128 {
        let (subtree, local, usage) =
            (sums.subtree_quota[index][fr], sums.local_quota[index][fr], sums.usage[index][fr]);
        let Some(parent) = self.nodes[index].parent else {
            return subtree - usage;
        };
        let above = self.available(sums, parent, fr);
        let limit = self.nodes[index].quotas[fr].borrowing;
        let own = limit.map(|limit| subtree - local - (usage - local).max(0) + limit);
        (local - usage).max(0) + own.map_or(above, |own| own.min(above))
    }

    /// Returns what a node could have if nothing were in use.
    pub(super) fn potential_available(&self, sums: &NodeSums, index: usize, fr: usize) -> i128 {
        let Some(parent) = self.nodes[index].parent else {
            return sums.subtree_quota[index][fr];
        };
        let most = sums.local_quota[index][fr] + self.potential_available(sums, parent, fr);
        let limit = self.nodes[index].quotas[fr].borrowing;
        limit.map_or(most, |limit| most.min(sums.subtree_quota[index][fr] + limit))
    }

    /// Whether the queue, or a cohort above it, covers the amount with its own quota and has a parent.
    pub(super) fn may_reclaim(&self, sums: &NodeSums, queue: usize, fr: usize, amount: i128) -> bool {
        let mut rest = amount;
        let owner = self.path_to_root(queue).into_iter().find(|node| {
            let owns = sums.usage[*node][fr] + rest <= sums.subtree_quota[*node][fr];
            rest -= (sums.local_quota[*node][fr] - sums.usage[*node][fr]).max(0);
            owns
        });
        owner.is_some_and(|node| self.nodes[node].parent.is_some())
    }

    /// Whether the queue can take `requested` in addition.
    pub(super) fn fits(&self, sums: &NodeSums, queue: usize, requested: &Amounts) -> bool {
        let index = node_index(queue);
        (0..FLAVOR_RESOURCES)
            .all(|fr| requested[fr] == 0 || requested[fr] <= self.available(sums, index, fr).max(0))
    }

    /// [`Self::fits`] without borrowing.
    pub(super) fn fits_without_borrowing(&self, sums: &NodeSums, queue: usize, requested: &Amounts) -> bool {
        let index = node_index(queue);
        let own = |fr: usize| {
            requested[fr] == 0 || sums.usage[index][fr] + requested[fr] <= sums.subtree_quota[index][fr]
        };
        self.fits(sums, queue, requested) && (0..FLAVOR_RESOURCES).all(own)
    }

    /// Returns the nodes from a queue to its root.
    pub(super) fn path_to_root(&self, queue: usize) -> Vec<usize> {
        std::iter::successors(Some(node_index(queue)), |node| self.nodes[*node].parent).collect()
    }
}
