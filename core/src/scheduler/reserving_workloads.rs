//! Workloads that hold quota, indexed by workload, ClusterQueue and LocalQueue.
//!
//! Invariant: all usage follows from these charges.

use super::config::Charge;
use super::preemption::EvictionRank;
use crate::api::{ByKey, ObjectKey};
use crate::quota::{FlavorResourceId, NodeId, Usage, UsageLayer};
use crate::topology::Footprint;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A workload that holds quota.
#[derive(Clone, Debug)]
pub(super) struct ReservingWorkload {
    pub(super) key: ObjectKey,
    pub(super) charge: Arc<Charge>,
    /// Its ClusterQueue.
    pub(super) node: NodeId,
    /// Its usage by flavor-resource id.
    pub(super) usage: Usage,
    /// Its usage of leaf capacity.
    pub(super) footprint: Arc<Footprint>,
    /// The preemptor that evicts it, if any.
    pub(super) preempted_by: Option<ObjectKey>,
}

/// How a workload changed as a candidate for preemption, usage aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CandidateChange {
    None,
    /// Its place among the candidates, which rarely makes a preemption possible.
    Order,
    /// Also which workloads may preempt it.
    Eligibility,
}

impl ReservingWorkload {
    /// Compares it with its next state.
    pub(super) fn candidate_change(&self, next: &Self) -> CandidateChange {
        let (old, new) = (&*self.charge, &*next.charge);
        // Everything that `candidates` and `concurrent_admission` read of a charge.
        if (old.priority, old.queued_since, old.evicted) != (new.priority, new.queued_since, new.evicted)
            || old.variant != new.variant
        {
            CandidateChange::Eligibility
        } else if (old.reserved_at, &old.local_queue) != (new.reserved_at, &new.local_queue) {
            CandidateChange::Order
        } else {
            CandidateChange::None
        }
    }

    /// What decides whether a head may evict it.
    pub(super) fn rank(&self) -> EvictionRank {
        EvictionRank { priority: self.charge.priority, queued_since: self.charge.queued_since }
    }

    /// Whether it is preempted or deactivated: projected usage excludes it.
    pub(super) fn is_terminating(&self) -> bool {
        self.preempted_by.is_some() || self.charge.deactivated
    }

    /// Usage layers that include it.
    pub(super) fn usage_layers(&self) -> &'static [UsageLayer] {
        if self.is_terminating() {
            &[UsageLayer::Current]
        } else {
            &[UsageLayer::Current, UsageLayer::Projected]
        }
    }
}

/// Number and total usage of the workloads of a LocalQueue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LocalQueueUsage {
    pub(super) workloads: usize,
    pub(super) usage: BTreeMap<FlavorResourceId, i128>,
}

/// All workloads that hold quota.
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

    /// All workloads, grouped by ClusterQueue.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<ReservingWorkload>> {
        self.by_cluster_queue.values().flat_map(BTreeMap::values)
    }

    /// Workloads of a ClusterQueue.
    pub(super) fn in_cluster_queue(&self, queue: NodeId) -> impl Iterator<Item = &Arc<ReservingWorkload>> {
        self.by_cluster_queue.get(&queue).into_iter().flat_map(BTreeMap::values)
    }

    /// ClusterQueues with at least one workload.
    pub(super) fn cluster_queues(&self) -> impl Iterator<Item = NodeId> {
        self.by_cluster_queue.keys().copied()
    }

    pub(super) fn insert(&mut self, workload: ReservingWorkload) -> Option<Arc<ReservingWorkload>> {
        let old = self.remove(&workload.key);
        let local_usage = self.by_local_queue.entry(local_queue_key(&workload)).or_default();
        local_usage.workloads += 1;
        for (fr, amount) in &workload.usage {
            *local_usage.usage.entry(*fr).or_default() += amount;
        }
        let workload = Arc::new(workload);
        self.by_cluster_queue
            .entry(workload.node)
            .or_default()
            .insert(workload.key.clone(), Arc::clone(&workload));
        self.workloads.insert(workload.key.clone(), workload);
        old
    }

    /// Sets or clears the preemptor that evicts this workload. Returns the previous entry, or `None` if unchanged.
    pub(super) fn set_preempted_by(
        &mut self,
        key: &ObjectKey,
        preemptor: Option<ObjectKey>,
    ) -> Option<Arc<ReservingWorkload>> {
        let old = self.workloads.get(key).filter(|workload| workload.preempted_by != preemptor)?;
        let old = Arc::clone(old);
        let new = Arc::new(ReservingWorkload { preempted_by: preemptor, ..(*old).clone() });
        self.by_cluster_queue.entry(new.node).or_default().insert(key.clone(), Arc::clone(&new));
        self.workloads.insert(key.clone(), new);
        Some(old)
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<ReservingWorkload>> {
        let workload = self.workloads.swap_remove(key)?;
        if let Some(workloads) = self.by_cluster_queue.get_mut(&workload.node) {
            workloads.remove(key);
            if workloads.is_empty() {
                self.by_cluster_queue.remove(&workload.node);
            }
        }
        let name = local_queue_key(&workload);
        if let Some(local_usage) = self.by_local_queue.get_mut(&name) {
            local_usage.workloads = local_usage.workloads.saturating_sub(1);
            for (fr, amount) in &workload.usage {
                *local_usage.usage.entry(*fr).or_default() -= amount;
            }
            if local_usage.workloads == 0 {
                self.by_local_queue.remove(&name);
            }
        }
        Some(workload)
    }

    pub(super) fn count(&self, queue: NodeId) -> usize {
        self.by_cluster_queue.get(&queue).map_or(0, BTreeMap::len)
    }

    pub(super) fn local_queue_usage(&self, namespace: &str, local_queue: &str) -> Option<&LocalQueueUsage> {
        self.by_local_queue.get(&ObjectKey::new(namespace, local_queue))
    }
}

fn local_queue_key(workload: &ReservingWorkload) -> ObjectKey {
    let name = Arc::clone(&workload.charge.local_queue);
    ObjectKey { namespace: Arc::clone(&workload.key.namespace), name }
}
