//! What parked classes wait for, indexed by what can happen.
//!
//! A class that needs so much of a flavor and resource is kept by that need: a release asks each queue of the tree what
//! it could take now and wakes the needs up to that, smallest first, and nobody else. Classes whose verdict could turn
//! with any change of usage are woken by any.

use super::equivalence_class::ClassId;
use crate::quota::{FlavorResourceId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What can let a parked class in, beside changes of configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeConditions {
    /// Root of the tree in which it waits.
    pub tree: Option<NodeId>,
    /// It may fit when so much is available.
    pub min_available: BTreeMap<FlavorResourceId, i128>,
    /// Any change of what is in use may let it in.
    pub on_usage_change: BTreeSet<FlavorResourceId>,
    /// Anything that is given back may let it in, perhaps with somebody evicted.
    pub on_release: BTreeSet<FlavorResourceId>,
    /// Flavors of which a change of nodes, or of what stands on them, may let it in.
    pub on_topology_change: BTreeSet<Arc<str>>,
    /// Queues whose blocked heads keep the quota from it.
    pub on_claim_end: BTreeSet<Arc<str>>,
}

type ParkedClass = (Arc<str>, ClassId);
type TreeResource = (NodeId, FlavorResourceId);
/// Needs of each queue, smallest first.
type MinAvailableByQueue = BTreeMap<Arc<str>, BTreeSet<(i128, ClassId)>>;

/// The index.
#[derive(Debug, Default)]
pub(super) struct WakeIndex {
    min_available: BTreeMap<TreeResource, MinAvailableByQueue>,
    on_usage_change: BTreeMap<TreeResource, BTreeSet<ParkedClass>>,
    on_release: BTreeMap<TreeResource, BTreeSet<ParkedClass>>,
    on_topology_change: BTreeMap<Arc<str>, BTreeSet<ParkedClass>>,
    on_claim_end: BTreeMap<Arc<str>, BTreeSet<ParkedClass>>,
}

impl WakeIndex {
    pub(super) fn add(&mut self, queue: &Arc<str>, class: ClassId, waits: &WakeConditions) {
        let waiter = || (Arc::clone(queue), class);
        if let Some(tree) = waits.tree {
            for (pair, need) in &waits.min_available {
                let spot = self.min_available.entry((tree, *pair)).or_default();
                spot.entry(Arc::clone(queue)).or_default().insert((*need, class));
            }
            for pair in &waits.on_usage_change {
                self.on_usage_change.entry((tree, *pair)).or_default().insert(waiter());
            }
            for pair in &waits.on_release {
                self.on_release.entry((tree, *pair)).or_default().insert(waiter());
            }
        }
        for flavor in &waits.on_topology_change {
            self.on_topology_change.entry(Arc::clone(flavor)).or_default().insert(waiter());
        }
        for claimant in &waits.on_claim_end {
            self.on_claim_end.entry(Arc::clone(claimant)).or_default().insert(waiter());
        }
    }

    pub(super) fn remove(&mut self, queue: &Arc<str>, class: ClassId, waits: &WakeConditions) {
        if let Some(tree) = waits.tree {
            for (pair, need) in &waits.min_available {
                let spot = (tree, *pair);
                let Some(queues) = self.min_available.get_mut(&spot) else {
                    continue;
                };
                if let Some(classes) = queues.get_mut(queue) {
                    classes.remove(&(*need, class));
                    if classes.is_empty() {
                        queues.remove(queue);
                    }
                }
                if queues.is_empty() {
                    self.min_available.remove(&spot);
                }
            }
            for pair in &waits.on_usage_change {
                drop_waiter(&mut self.on_usage_change, &(tree, *pair), &(Arc::clone(queue), class));
            }
            for pair in &waits.on_release {
                drop_waiter(&mut self.on_release, &(tree, *pair), &(Arc::clone(queue), class));
            }
        }
        for flavor in &waits.on_topology_change {
            drop_waiter(&mut self.on_topology_change, flavor, &(Arc::clone(queue), class));
        }
        for claimant in &waits.on_claim_end {
            drop_waiter(&mut self.on_claim_end, claimant, &(Arc::clone(queue), class));
        }
    }

    /// Classes of the tree whose need is met; `available` answers for a queue.
    pub(super) fn satisfied(
        &self,
        spot: &TreeResource,
        available: impl Fn(&str) -> i128,
    ) -> Vec<ParkedClass> {
        let queues = self.min_available.get(spot).into_iter().flatten();
        queues
            .flat_map(|(queue, classes)| {
                let free = available(queue);
                let met = classes.iter().take_while(move |(need, _)| *need <= free);
                met.map(|(_, class)| (Arc::clone(queue), *class))
            })
            .collect()
    }

    /// Classes that wait for any change there, or for anything given back if that is what happened.
    pub(super) fn waiting_for_usage_change(&self, spot: &TreeResource, freed: bool) -> Vec<ParkedClass> {
        let given = self.on_release.get(spot).filter(|_| freed).into_iter().flatten();
        self.on_usage_change.get(spot).into_iter().flatten().chain(given).cloned().collect()
    }

    /// Classes that wait for room on the nodes of a flavor.
    pub(super) fn waiting_for_topology(&self, flavor: &str) -> Vec<ParkedClass> {
        self.on_topology_change.get(flavor).into_iter().flatten().cloned().collect()
    }

    /// Classes that a claim of the queue's head keeps out.
    pub(super) fn waiting_for_claim_end(&self, queue: &str) -> Vec<ParkedClass> {
        self.on_claim_end.get(queue).into_iter().flatten().cloned().collect()
    }
}

fn drop_waiter<K: Ord>(index: &mut BTreeMap<K, BTreeSet<ParkedClass>>, at: &K, waiter: &ParkedClass) {
    if let Some(waiters) = index.get_mut(at) {
        waiters.remove(waiter);
        if waiters.is_empty() {
            index.remove(at);
        }
    }
}
