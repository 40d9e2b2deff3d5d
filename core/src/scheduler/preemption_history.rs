//! Preemption history. A preemptor never evicts the same victim again until something external changes (I20).
//!
//! This prevents eviction loops under contradictory policies: one ClusterQueue reclaims its own quota of one
//! resource, another evens out shares of a second, and two workloads evict each other forever. External changes are:
//! configuration; quota released by a workload that was not evicted; a new or changed preemptor or victim. Arrivals
//! of other workloads do not count.

use crate::api::ObjectKey;
use crate::quota::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// Victims by preemptor, by root of their cohort tree.
#[derive(Clone, Debug, Default)]
pub(super) struct PreemptionHistory(BTreeMap<NodeId, BTreeMap<ObjectKey, BTreeSet<ObjectKey>>>);

impl PreemptionHistory {
    pub(super) fn insert(&mut self, tree: NodeId, preemptor: &ObjectKey, victim: &ObjectKey) {
        self.0.entry(tree).or_default().entry(preemptor.clone()).or_default().insert(victim.clone());
    }

    /// Workloads that this preemptor has evicted.
    pub(super) fn victims(&self, tree: NodeId, preemptor: &ObjectKey) -> Option<&BTreeSet<ObjectKey>> {
        self.0.get(&tree)?.get(preemptor)
    }

    /// Removes one victim whose preemption was cancelled.
    pub(super) fn remove(&mut self, preemptor: &ObjectKey, victim: &ObjectKey) {
        for tree in self.0.values_mut() {
            if let Some(victims) = tree.get_mut(preemptor) {
                victims.remove(victim);
            }
        }
    }

    /// Removes a workload that was deleted or changed, as preemptor and as victim.
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
