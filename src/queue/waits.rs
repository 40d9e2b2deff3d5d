//! What parked classes wait for, indexed by what can happen.
//!
//! A class that needs so much of a flavor and resource is kept by that need: a release asks each queue of the tree what
//! it could take now and wakes the needs up to that, smallest first, and nobody else. Classes whose verdict could turn
//! with any change of usage are woken by any.

use super::pending::ClassId;
use crate::quota::{NodeId, PairId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What can let a parked class in, beside changes of configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Root of the tree in which it waits.
    pub tree: Option<NodeId>,
    /// It may fit when so much is available.
    pub needs: BTreeMap<PairId, i128>,
    /// Any change of what is in use may let it in.
    pub any: BTreeSet<PairId>,
    /// Anything that is given back may let it in, perhaps with somebody evicted.
    pub freed: BTreeSet<PairId>,
    /// Flavors of which a change of nodes, or of what stands on them, may let it in.
    pub places: BTreeSet<Arc<str>>,
    /// Queues whose blocked heads keep the quota from it.
    pub claims: BTreeSet<Arc<str>>,
}

type Waiter = (Arc<str>, ClassId);
type Spot = (NodeId, PairId);
/// Needs of each queue, smallest first.
type Needs = BTreeMap<Arc<str>, BTreeSet<(i128, ClassId)>>;

/// The index.
#[derive(Debug, Default)]
pub(super) struct WaitIndex {
    needs: BTreeMap<Spot, Needs>,
    any: BTreeMap<Spot, BTreeSet<Waiter>>,
    freed: BTreeMap<Spot, BTreeSet<Waiter>>,
    places: BTreeMap<Arc<str>, BTreeSet<Waiter>>,
    claims: BTreeMap<Arc<str>, BTreeSet<Waiter>>,
}

impl WaitIndex {
    pub(super) fn add(&mut self, queue: &Arc<str>, class: ClassId, waits: &Waits) {
        let waiter = || (Arc::clone(queue), class);
        if let Some(tree) = waits.tree {
            for (pair, need) in &waits.needs {
                let spot = self.needs.entry((tree, *pair)).or_default();
                spot.entry(Arc::clone(queue)).or_default().insert((*need, class));
            }
            for pair in &waits.any {
                self.any.entry((tree, *pair)).or_default().insert(waiter());
            }
            for pair in &waits.freed {
                self.freed.entry((tree, *pair)).or_default().insert(waiter());
            }
        }
        for flavor in &waits.places {
            self.places.entry(Arc::clone(flavor)).or_default().insert(waiter());
        }
        for claimant in &waits.claims {
            self.claims.entry(Arc::clone(claimant)).or_default().insert(waiter());
        }
    }

    pub(super) fn remove(&mut self, queue: &Arc<str>, class: ClassId, waits: &Waits) {
        if let Some(tree) = waits.tree {
            for (pair, need) in &waits.needs {
                let spot = (tree, *pair);
                let Some(queues) = self.needs.get_mut(&spot) else {
                    continue;
                };
                if let Some(classes) = queues.get_mut(queue) {
                    classes.remove(&(*need, class));
                    if classes.is_empty() {
                        queues.remove(queue);
                    }
                }
                if queues.is_empty() {
                    self.needs.remove(&spot);
                }
            }
            for pair in &waits.any {
                drop_waiter(&mut self.any, &(tree, *pair), &(Arc::clone(queue), class));
            }
            for pair in &waits.freed {
                drop_waiter(&mut self.freed, &(tree, *pair), &(Arc::clone(queue), class));
            }
        }
        for flavor in &waits.places {
            drop_waiter(&mut self.places, flavor, &(Arc::clone(queue), class));
        }
        for claimant in &waits.claims {
            drop_waiter(&mut self.claims, claimant, &(Arc::clone(queue), class));
        }
    }

    /// Classes of the tree whose need is met; `available` answers for a queue.
    pub(super) fn met(&self, spot: &Spot, available: impl Fn(&str) -> i128) -> Vec<Waiter> {
        let queues = self.needs.get(spot).into_iter().flatten();
        queues
            .flat_map(|(queue, classes)| {
                let free = available(queue);
                let met = classes.iter().take_while(move |(need, _)| *need <= free);
                met.map(|(_, class)| (Arc::clone(queue), *class))
            })
            .collect()
    }

    /// Classes that wait for any change there, or for anything given back if that is what happened.
    pub(super) fn any(&self, spot: &Spot, freed: bool) -> Vec<Waiter> {
        let given = self.freed.get(spot).filter(|_| freed).into_iter().flatten();
        self.any.get(spot).into_iter().flatten().chain(given).cloned().collect()
    }

    /// Classes that wait for room on the nodes of a flavor.
    pub(super) fn placed_on(&self, flavor: &str) -> Vec<Waiter> {
        self.places.get(flavor).into_iter().flatten().cloned().collect()
    }

    /// Classes that a claim of the queue's head keeps out.
    pub(super) fn kept_by(&self, queue: &str) -> Vec<Waiter> {
        self.claims.get(queue).into_iter().flatten().cloned().collect()
    }
}

fn drop_waiter<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Waiter>>, at: &K, waiter: &Waiter) {
    if let Some(waiters) = index.get_mut(at) {
        waiters.remove(waiter);
        if waiters.is_empty() {
            index.remove(at);
        }
    }
}
