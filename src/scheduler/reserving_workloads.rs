//! Who holds what: the charges from which all usage follows, by workload, ClusterQueue and LocalQueue.

use super::config::Charge;
use crate::api::{ByKey, ObjectKey};
use crate::quota::{FlavorResourceId, NodeId, Usage, UsageLayer};
use crate::topology::Footprint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One that holds quota.
#[derive(Clone, Debug)]
pub(super) struct ReservingWorkload {
    pub(super) key: ObjectKey,
    pub(super) charge: Arc<Charge>,
    /// Its ClusterQueue.
    pub(super) node: NodeId,
    /// What it holds, by number.
    pub(super) usage: Usage,
    /// What it takes of nodes.
    pub(super) footprint: Arc<Footprint>,
    /// The workload that it must make room for.
    pub(super) preempted_by: Option<ObjectKey>,
}

impl ReservingWorkload {
    /// Whether it leaves, for a preemptor or by itself: in the plan it is gone.
    pub(super) fn is_terminating(&self) -> bool {
        self.preempted_by.is_some() || self.charge.deactivated
    }

    /// Layers that it counts in.
    pub(super) fn usage_layers(&self) -> &'static [UsageLayer] {
        if self.is_terminating() {
            &[UsageLayer::Current]
        } else {
            &[UsageLayer::Current, UsageLayer::Projected]
        }
    }
}

/// Number of holders and what they hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalQueueUsage {
    pub(super) workloads: usize,
    pub(super) usage: BTreeMap<FlavorResourceId, i128>,
}

/// Holders by workload.
#[derive(Clone, Debug, Default)]
pub(super) struct ReservingWorkloads {
    workloads: ByKey<Arc<ReservingWorkload>>,
    by_cluster_queue: BTreeMap<NodeId, BTreeMap<ObjectKey, Arc<ReservingWorkload>>>,
    by_local_queue: BTreeMap<ObjectKey, LocalQueueUsage>,
}

impl ReservingWorkloads {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<ReservingWorkload>> {
        self.workloads.get(key)
    }

    /// All, by ClusterQueue.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<ReservingWorkload>> {
        self.by_cluster_queue.values().flat_map(BTreeMap::values)
    }

    /// Those of a ClusterQueue.
    pub(super) fn in_cluster_queue(&self, queue: NodeId) -> impl Iterator<Item = &Arc<ReservingWorkload>> {
        self.by_cluster_queue.get(&queue).into_iter().flat_map(BTreeMap::values)
    }

    /// ClusterQueues that hold anything.
    pub(super) fn cluster_queues(&self) -> impl Iterator<Item = NodeId> {
        self.by_cluster_queue.keys().copied()
    }

    pub(super) fn insert(&mut self, holder: ReservingWorkload) -> Option<Arc<ReservingWorkload>> {
        let old = self.remove(&holder.key);
        let held = self.by_local_queue.entry(local_queue_key(&holder)).or_default();
        held.workloads += 1;
        for (pair, amount) in &holder.usage {
            *held.usage.entry(*pair).or_default() += amount;
        }
        let holder = Arc::new(holder);
        self.by_cluster_queue.entry(holder.node).or_default().insert(holder.key.clone(), Arc::clone(&holder));
        self.workloads.insert(holder.key.clone(), holder);
        old
    }

    /// Notes whom a holder must make room for, or nobody any more; answers with the holder as it was.
    pub(super) fn set_preempted_by(
        &mut self,
        key: &ObjectKey,
        leaves_for: Option<ObjectKey>,
    ) -> Option<Arc<ReservingWorkload>> {
        let old = self.workloads.get(key).filter(|holder| holder.preempted_by != leaves_for)?;
        let old = Arc::clone(old);
        let new = Arc::new(ReservingWorkload { preempted_by: leaves_for, ..(*old).clone() });
        self.by_cluster_queue.entry(new.node).or_default().insert(key.clone(), Arc::clone(&new));
        self.workloads.insert(key.clone(), new);
        Some(old)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<ReservingWorkload>> {
        let holder = self.workloads.swap_remove(key)?;
        if let Some(all) = self.by_cluster_queue.get_mut(&holder.node) {
            all.remove(key);
            if all.is_empty() {
                self.by_cluster_queue.remove(&holder.node);
            }
        }
        let name = local_queue_key(&holder);
        if let Some(held) = self.by_local_queue.get_mut(&name) {
            held.workloads = held.workloads.saturating_sub(1);
            for (pair, amount) in &holder.usage {
                *held.usage.entry(*pair).or_default() -= amount;
            }
            if held.workloads == 0 {
                self.by_local_queue.remove(&name);
            }
        }
        Some(holder)
    }

    pub(super) fn count(&self, queue: NodeId) -> usize {
        self.by_cluster_queue.get(&queue).map_or(0, BTreeMap::len)
    }

    pub(super) fn local_queue_usage(&self, namespace: &str, local_queue: &str) -> Option<&LocalQueueUsage> {
        self.by_local_queue.get(&ObjectKey::new(namespace, local_queue))
    }
}

fn local_queue_key(holder: &ReservingWorkload) -> ObjectKey {
    let name = Arc::clone(&holder.charge.local_queue);
    ObjectKey { namespace: Arc::clone(&holder.key.namespace), name }
}
