//! Who was evicted for whom: nobody is evicted twice for the same workload while nothing changes from outside (I20).
//!
//! Where rules contradict each other, as when one queue takes back what it owns of one resource and another evens out
//! shares of a second, two workloads could evict each other for ever. What counts as a change: configuration, quota that is
//! given back by one that was not evicted, and a new or changed preemptor or victim. Arrivals of others do not count.

use crate::api::ObjectKey;
use crate::quota::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Preemptors with their victims, by root of their tree.
#[derive(Clone, Debug, Default)]
pub(super) struct PreemptionHistory(BTreeMap<NodeId, BTreeMap<ObjectKey, BTreeSet<ObjectKey>>>);

impl PreemptionHistory {
    pub(super) fn insert(&mut self, tree: NodeId, preemptor: &ObjectKey, victim: &ObjectKey) {
        self.0.entry(tree).or_default().entry(preemptor.clone()).or_default().insert(victim.clone());
    }

    /// Those who were evicted for a workload.
    pub(super) fn victims(&self, tree: NodeId, preemptor: &ObjectKey) -> Option<&BTreeSet<ObjectKey>> {
        self.0.get(&tree)?.get(preemptor)
    }

    /// The victim does not go for the preemptor after all.
    pub(super) fn remove(&mut self, preemptor: &ObjectKey, victim: &ObjectKey) {
        for tree in self.0.values_mut() {
            if let Some(victims) = tree.get_mut(preemptor) {
                victims.remove(victim);
            }
        }
    }

    /// A workload that is gone or has changed has done and suffered nothing.
    pub(super) fn forget(&mut self, key: &ObjectKey) {
        for tree in self.0.values_mut() {
            tree.remove(key);
            tree.retain(|_, victims| {
                victims.remove(key);
                !victims.is_empty()
            });
        }
    }

    pub(super) fn forget_tree(&mut self, tree: NodeId) {
        self.0.remove(&tree);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
