//! A ClusterQueue as decisions need it: names looked up once, when the configuration changes.

use super::config::ClusterQueue;
use crate::api::v1beta2::{QueueingStrategy, ReclaimPolicy, WithinClusterQueuePolicy};
use crate::quota::{FlavorResource, FlavorResourceId, NodeId, QuotaTree};
use std::sync::Arc;

/// A configured ClusterQueue.
#[derive(Clone, Debug)]
pub(super) struct CompiledClusterQueue {
    pub(super) config: ClusterQueue,
    pub(super) node: NodeId,
    pub(super) groups: Vec<CompiledResourceGroup>,
}

/// Resources that one flavor gives together.
#[derive(Clone, Debug)]
pub(super) struct CompiledResourceGroup {
    pub(super) covered_resources: Vec<Arc<str>>,
    pub(super) flavors: Vec<GroupFlavor>,
}

/// A flavor of a group.
#[derive(Clone, Debug)]
pub(super) struct GroupFlavor {
    pub(super) name: Arc<str>,
    /// By resource, in the order of `covered`.
    pub(super) frs: Vec<FlavorResourceId>,
}

impl CompiledClusterQueue {
    pub(super) fn compile(config: ClusterQueue, node: NodeId, tree: &mut QuotaTree) -> Self {
        let mut groups = Vec::new();
        for group in &config.groups {
            let mut flavors = Vec::new();
            for flavor in &group.flavors {
                let pair = |resource: &Arc<str>| FlavorResource {
                    flavor: Arc::clone(&flavor.name),
                    resource: Arc::clone(resource),
                };
                let pairs =
                    group.covered_resources.iter().map(|resource| tree.ensure_fr(&pair(resource))).collect();
                flavors.push(GroupFlavor { name: Arc::clone(&flavor.name), frs: pairs });
            }
            groups
                .push(CompiledResourceGroup { covered_resources: group.covered_resources.clone(), flavors });
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
    pub(super) fn withholds_capacity(&self) -> bool {
        let reclaims = self.config.preemption.reclaim_within_cohort.unwrap_or_default();
        self.config.strategy == QueueingStrategy::StrictFIFO && reclaims != ReclaimPolicy::Any
    }
}

impl CompiledResourceGroup {
    /// Place of a resource among the covered.
    pub(super) fn position(&self, resource: &str) -> Option<usize> {
        self.covered_resources.iter().position(|covered| **covered == *resource)
    }
}

impl GroupFlavor {
    pub(super) fn fr(&self, position: usize) -> Option<FlavorResourceId> {
        self.frs.get(position).copied()
    }
}
