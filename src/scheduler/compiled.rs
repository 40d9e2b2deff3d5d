//! A ClusterQueue as decisions need it: names looked up once, when the configuration changes.

use super::config::ClusterQueue;
use crate::api::v1beta2::{QueueingStrategy, ReclaimPolicy, WithinClusterQueuePolicy};
use crate::quota::{FlavorResource, NodeId, PairId, Tree};
use std::sync::Arc;

/// A configured ClusterQueue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) config: ClusterQueue,
    pub(super) node: NodeId,
    pub(super) groups: Vec<Group>,
}

/// Resources that one flavor gives together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) covered: Vec<Arc<str>>,
    pub(super) flavors: Vec<GroupFlavor>,
}

/// A flavor of a group.
#[derive(Clone, Debug)]
pub(super) struct GroupFlavor {
    pub(super) name: Arc<str>,
    /// By resource, in the order of `covered`.
    pub(super) pairs: Vec<PairId>,
}

impl Queue {
    pub(super) fn compile(config: ClusterQueue, node: NodeId, tree: &mut Tree) -> Self {
        let mut groups = Vec::new();
        for group in &config.groups {
            let mut flavors = Vec::new();
            for flavor in &group.flavors {
                let pair = |resource: &Arc<str>| FlavorResource {
                    flavor: Arc::clone(&flavor.name),
                    resource: Arc::clone(resource),
                };
                let pairs = group.covered.iter().map(|resource| tree.pair_or_new(&pair(resource))).collect();
                flavors.push(GroupFlavor { name: Arc::clone(&flavor.name), pairs });
            }
            groups.push(Group { covered: group.covered.clone(), flavors });
        }
        Self { config, node, groups }
    }

    /// Whether its workloads may ever evict others.
    pub(super) fn may_preempt(&self) -> bool {
        let preemption = &self.config.preemption;
        preemption.within_cluster_queue.unwrap_or_default() != WithinClusterQueuePolicy::Never
            || (self.config.cohort.is_some()
                && preemption.reclaim_within_cohort.unwrap_or_default() != ReclaimPolicy::Never)
    }

    /// Whether its blocked head keeps from others what it asks for.
    pub(super) fn keeps_room(&self) -> bool {
        let reclaims = self.config.preemption.reclaim_within_cohort.unwrap_or_default();
        self.config.strategy == QueueingStrategy::StrictFIFO && reclaims != ReclaimPolicy::Any
    }
}

impl Group {
    /// Place of a resource among the covered.
    pub(super) fn position(&self, resource: &str) -> Option<usize> {
        self.covered.iter().position(|covered| **covered == *resource)
    }
}

impl GroupFlavor {
    pub(super) fn pair(&self, position: usize) -> Option<PairId> {
        self.pairs.get(position).copied()
    }
}
