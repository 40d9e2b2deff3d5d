//! Who holds what: the charges from which all usage follows, by workload, ClusterQueue and LocalQueue.

use super::config::Charge;
use crate::api::ObjectKey;
use crate::quota::{FlavorResource, NodeId, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One that holds quota.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) key: ObjectKey,
    pub(super) charge: Charge,
    /// Its ClusterQueue.
    pub(super) node: NodeId,
    /// What it holds, by number.
    pub(super) usage: Usage,
    /// The workload that it must make room for: in the plan it is gone.
    pub(super) leaves_for: Option<ObjectKey>,
}

/// Number of holders and what they hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) workloads: usize,
    pub(super) usage: BTreeMap<FlavorResource, i128>,
}

/// Holders by workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Holders {
    by_key: BTreeMap<ObjectKey, Arc<Holder>>,
    by_queue: BTreeMap<NodeId, BTreeMap<ObjectKey, Arc<Holder>>>,
    by_local_queue: BTreeMap<ObjectKey, Held>,
}

impl Holders {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<Holder>> {
        self.by_key.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Holder>> {
        self.by_key.values()
    }

    /// Those of a ClusterQueue.
    pub(super) fn of(&self, queue: NodeId) -> impl Iterator<Item = &Arc<Holder>> {
        self.by_queue.get(&queue).into_iter().flat_map(BTreeMap::values)
    }

    /// ClusterQueues that hold anything.
    pub(super) fn queues(&self) -> impl Iterator<Item = NodeId> {
        self.by_queue.keys().copied()
    }

    pub(super) fn insert(&mut self, holder: Holder) -> Option<Arc<Holder>> {
        let old = self.remove(&holder.key);
        let held = self.by_local_queue.entry(local(&holder)).or_default();
        held.workloads += 1;
        for (pair, amount) in &holder.charge.usage {
            *held.usage.entry(pair.clone()).or_default() += amount.wide();
        }
        let holder = Arc::new(holder);
        self.by_queue.entry(holder.node).or_default().insert(holder.key.clone(), Arc::clone(&holder));
        self.by_key.insert(holder.key.clone(), holder);
        old
    }

    /// Notes whom a holder must make room for, or nobody any more; answers with the holder as it was.
    pub(super) fn set_leaving(
        &mut self,
        key: &ObjectKey,
        leaves_for: Option<ObjectKey>,
    ) -> Option<Arc<Holder>> {
        let old = self.by_key.get(key).filter(|holder| holder.leaves_for != leaves_for)?;
        let old = Arc::clone(old);
        let new = Arc::new(Holder { leaves_for, ..(*old).clone() });
        self.by_queue.entry(new.node).or_default().insert(key.clone(), Arc::clone(&new));
        self.by_key.insert(key.clone(), new);
        Some(old)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Holder>> {
        let holder = self.by_key.remove(key)?;
        if let Some(all) = self.by_queue.get_mut(&holder.node) {
            all.remove(key);
            if all.is_empty() {
                self.by_queue.remove(&holder.node);
            }
        }
        let name = local(&holder);
        if let Some(held) = self.by_local_queue.get_mut(&name) {
            held.workloads = held.workloads.saturating_sub(1);
            for (pair, amount) in &holder.charge.usage {
                *held.usage.entry(pair.clone()).or_default() -= amount.wide();
            }
            if held.workloads == 0 {
                self.by_local_queue.remove(&name);
            }
        }
        Some(holder)
    }

    pub(super) fn count(&self, queue: NodeId) -> usize {
        self.by_queue.get(&queue).map_or(0, BTreeMap::len)
    }

    pub(super) fn local(&self, namespace: &str, local_queue: &str) -> Option<&Held> {
        self.by_local_queue.get(&ObjectKey::new(namespace, local_queue))
    }
}

fn local(holder: &Holder) -> ObjectKey {
    let name = Arc::clone(&holder.charge.local_queue);
    ObjectKey { namespace: Arc::clone(&holder.key.namespace), name }
}
