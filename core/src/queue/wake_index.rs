//! Index from changes to the parked classes that they wake.
//!
//! A class that needs a minimum amount of a flavor-resource is indexed by that amount. A release queries the
//! available amount of each ClusterQueue in the tree and wakes only classes with smaller or equal needs. Classes
//! whose verdict may change with any usage change are woken by any.

use super::equivalence_class::ClassId;
use crate::quota::{FlavorResourceId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Changes other than configuration that may let a parked class in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeConditions {
    /// Root of the cohort tree in which it waits.
    pub tree: Option<NodeId>,
    /// It may fit when this amount is available.
    pub min_available: BTreeMap<FlavorResourceId, i128>,
    /// Any usage change may let it in.
    pub on_usage_change: BTreeSet<FlavorResourceId>,
    /// Any release may let it in, possibly with preemption.
    pub on_release: BTreeSet<FlavorResourceId>,
    /// Flavors whose nodes, or the usage of these nodes, may let it in when they change.
    pub on_topology_change: BTreeSet<Arc<str>>,
    /// ClusterQueues whose head claims block it.
    pub on_claim_end: BTreeSet<Arc<str>>,
}

type ParkedClass = (Arc<str>, ClassId);
type TreeResource = (NodeId, FlavorResourceId);
/// Needed amounts by ClusterQueue, smallest first.
type MinAvailableByQueue = BTreeMap<Arc<str>, BTreeSet<(i128, ClassId)>>;

/// Parked classes by wake condition.
#[derive(Debug, Default)]
pub(super) struct WakeIndex {
    min_available: BTreeMap<TreeResource, MinAvailableByQueue>,
    on_usage_change: BTreeMap<TreeResource, BTreeSet<ParkedClass>>,
    on_release: BTreeMap<TreeResource, BTreeSet<ParkedClass>>,
    on_topology_change: BTreeMap<Arc<str>, BTreeSet<ParkedClass>>,
    on_claim_end: BTreeMap<Arc<str>, BTreeSet<ParkedClass>>,
}

impl WakeIndex {
    pub(super) fn add(&mut self, queue: &Arc<str>, class: ClassId, wake_conditions: &WakeConditions) {
        let parked_class = || (Arc::clone(queue), class);
        if let Some(tree) = wake_conditions.tree {
            for (fr, requested) in &wake_conditions.min_available {
                let by_queue = self.min_available.entry((tree, *fr)).or_default();
                by_queue.entry(Arc::clone(queue)).or_default().insert((*requested, class));
            }
            for fr in &wake_conditions.on_usage_change {
                self.on_usage_change.entry((tree, *fr)).or_default().insert(parked_class());
            }
            for fr in &wake_conditions.on_release {
                self.on_release.entry((tree, *fr)).or_default().insert(parked_class());
            }
        }
        for flavor in &wake_conditions.on_topology_change {
            self.on_topology_change.entry(Arc::clone(flavor)).or_default().insert(parked_class());
        }
        for claiming_queue in &wake_conditions.on_claim_end {
            self.on_claim_end.entry(Arc::clone(claiming_queue)).or_default().insert(parked_class());
        }
    }

    pub(super) fn remove(&mut self, queue: &Arc<str>, class: ClassId, wake_conditions: &WakeConditions) {
        if let Some(tree) = wake_conditions.tree {
            for (fr, requested) in &wake_conditions.min_available {
                let key = (tree, *fr);
                let Some(queues) = self.min_available.get_mut(&key) else {
                    continue;
                };
                if let Some(classes) = queues.get_mut(queue) {
                    classes.remove(&(*requested, class));
                    if classes.is_empty() {
                        queues.remove(queue);
                    }
                }
                if queues.is_empty() {
                    self.min_available.remove(&key);
                }
            }
            for fr in &wake_conditions.on_usage_change {
                drop_waiter(&mut self.on_usage_change, &(tree, *fr), &(Arc::clone(queue), class));
            }
            for fr in &wake_conditions.on_release {
                drop_waiter(&mut self.on_release, &(tree, *fr), &(Arc::clone(queue), class));
            }
        }
        for flavor in &wake_conditions.on_topology_change {
            drop_waiter(&mut self.on_topology_change, flavor, &(Arc::clone(queue), class));
        }
        for claiming_queue in &wake_conditions.on_claim_end {
            drop_waiter(&mut self.on_claim_end, claiming_queue, &(Arc::clone(queue), class));
        }
    }

    /// Classes of the tree whose minimum is available; `available` returns the amount for a ClusterQueue.
    pub(super) fn satisfied(&self, key: &TreeResource, available: impl Fn(&str) -> i128) -> Vec<ParkedClass> {
        let queues = self.min_available.get(key).into_iter().flatten();
        queues
            .flat_map(|(queue, classes)| {
                let free = available(queue);
                let woken = classes.iter().take_while(move |(requested, _)| *requested <= free);
                woken.map(|(_, class)| (Arc::clone(queue), *class))
            })
            .collect()
    }

    /// Classes that wait for any usage change there, and after a release also those that wait for releases.
    pub(super) fn waiting_for_usage_change(&self, key: &TreeResource, freed: bool) -> Vec<ParkedClass> {
        let on_release = self.on_release.get(key).filter(|_| freed).into_iter().flatten();
        self.on_usage_change.get(key).into_iter().flatten().chain(on_release).cloned().collect()
    }

    /// Whether any class waits for releases there.
    pub(super) fn waits_for_release(&self, key: &TreeResource) -> bool {
        self.on_release.contains_key(key)
    }

    /// Flavor-resources of a tree for whose release any class waits.
    pub(super) fn release_keys_of(&self, tree: NodeId) -> impl Iterator<Item = TreeResource> {
        let from = (tree, FlavorResourceId::default());
        self.on_release.range(from..).map(|(key, _)| *key).take_while(move |(root, _)| *root == tree)
    }

    /// Classes that wait for capacity on the nodes of a flavor.
    pub(super) fn waiting_for_topology(&self, flavor: &str) -> Vec<ParkedClass> {
        self.on_topology_change.get(flavor).into_iter().flatten().cloned().collect()
    }

    /// Classes blocked by the head claim of a ClusterQueue.
    pub(super) fn waiting_for_claim_end(&self, queue: &str) -> Vec<ParkedClass> {
        self.on_claim_end.get(queue).into_iter().flatten().cloned().collect()
    }
}

fn drop_waiter<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ParkedClass>>, key: &K, parked_class: &ParkedClass) {
    if let Some(parked_classes) = index.get_mut(key) {
        parked_classes.remove(parked_class);
        if parked_classes.is_empty() {
            index.remove(key);
        }
    }
}
