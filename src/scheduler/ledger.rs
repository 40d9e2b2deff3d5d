//! Who holds what: the charges from which all usage follows, by workload, ClusterQueue and LocalQueue.

use super::config::Charge;
use crate::api::{ByKey, ObjectKey};
use crate::quota::{Layer, NodeId, PairId, Usage};
use crate::topology::Footprint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One that holds quota.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) key: ObjectKey,
    pub(super) charge: Arc<Charge>,
    /// Its ClusterQueue.
    pub(super) node: NodeId,
    /// What it holds, by number.
    pub(super) usage: Usage,
    /// What it takes of nodes.
    pub(super) stand: Arc<Footprint>,
    /// The workload that it must make room for.
    pub(super) leaves_for: Option<ObjectKey>,
}

impl Holder {
    /// Whether it leaves, for a preemptor or by itself: in the plan it is gone.
    pub(super) fn leaves(&self) -> bool {
        self.leaves_for.is_some() || self.charge.deactivated
    }

    /// Layers that it counts in.
    pub(super) fn layers(&self) -> &'static [Layer] {
        if self.leaves() { &[Layer::Held] } else { &[Layer::Held, Layer::Planned] }
    }
}

/// Number of holders and what they hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) workloads: usize,
    pub(super) usage: BTreeMap<PairId, i128>,
}

/// Holders by workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    all: ByKey<Arc<Holder>>,
    queues: BTreeMap<NodeId, BTreeMap<ObjectKey, Arc<Holder>>>,
    locals: BTreeMap<ObjectKey, Held>,
}

impl Holders {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Holder>> {
        self.all.get(key)
    }

    /// All, by ClusterQueue.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Holder>> {
        self.queues.values().flat_map(BTreeMap::values)
    }

    /// Those of a ClusterQueue.
    pub(super) fn of(&self, queue: NodeId) -> impl Iterator<Item = &Arc<Holder>> {
        self.queues.get(&queue).into_iter().flat_map(BTreeMap::values)
    }

    /// ClusterQueues that hold anything.
    pub(super) fn queues(&self) -> impl Iterator<Item = NodeId> {
        self.queues.keys().copied()
    }

    pub(super) fn insert(&mut self, holder: Holder) -> Option<Arc<Holder>> {
        let old = self.remove(&holder.key);
        let held = self.locals.entry(local(&holder)).or_default();
        held.workloads += 1;
        for (pair, amount) in &holder.usage {
            *held.usage.entry(*pair).or_default() += amount;
        }
        let holder = Arc::new(holder);
        self.queues.entry(holder.node).or_default().insert(holder.key.clone(), Arc::clone(&holder));
        self.all.insert(holder.key.clone(), holder);
        old
    }

    /// Notes whom a holder must make room for, or nobody any more; answers with the holder as it was.
    pub(super) fn set_leaving(
        &mut self,
        key: &ObjectKey,
        leaves_for: Option<ObjectKey>,
    ) -> Option<Arc<Holder>> {
        let old = self.all.get(key).filter(|holder| holder.leaves_for != leaves_for)?;
        let old = Arc::clone(old);
        let new = Arc::new(Holder { leaves_for, ..(*old).clone() });
        self.queues.entry(new.node).or_default().insert(key.clone(), Arc::clone(&new));
        self.all.insert(key.clone(), new);
        Some(old)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Holder>> {
        let holder = self.all.swap_remove(key)?;
        if let Some(all) = self.queues.get_mut(&holder.node) {
            all.remove(key);
            if all.is_empty() {
                self.queues.remove(&holder.node);
            }
        }
        let name = local(&holder);
        if let Some(held) = self.locals.get_mut(&name) {
            held.workloads = held.workloads.saturating_sub(1);
            for (pair, amount) in &holder.usage {
                *held.usage.entry(*pair).or_default() -= amount;
            }
            if held.workloads == 0 {
                self.locals.remove(&name);
            }
        }
        Some(holder)
    }

    pub(super) fn count(&self, queue: NodeId) -> usize {
        self.queues.get(&queue).map_or(0, BTreeMap::len)
    }

    pub(super) fn local(&self, namespace: &str, local_queue: &str) -> Option<&Held> {
        self.locals.get(&ObjectKey::new(namespace, local_queue))
    }
}

fn local(holder: &Holder) -> ObjectKey {
    let name = Arc::clone(&holder.charge.local_queue);
    ObjectKey { namespace: Arc::clone(&holder.key.namespace), name }
}
