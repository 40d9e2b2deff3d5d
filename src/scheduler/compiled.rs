//! A ClusterQueue prepared for scheduling: names are resolved to ids once, when the configuration changes.

use super::config::ClusterQueue;
use crate::api::v1beta2::{QueueingStrategy, ReclaimPolicy, WithinClusterQueuePolicy};
use crate::quota::{FlavorResource, FlavorResourceId, NodeId, QuotaTree};
use std::sync::Arc;

/// A configured ClusterQueue with resolved ids.
#[derive(Clone, Debug)]
pub(super) struct CompiledClusterQueue {
    pub(super) config: ClusterQueue,
    pub(super) node: NodeId,
    pub(super) groups: Vec<CompiledResourceGroup>,
}

/// Resources that one flavor provides together.
#[derive(Clone, Debug)]
pub(super) struct CompiledResourceGroup {
    pub(super) covered_resources: Vec<Arc<str>>,
    pub(super) flavors: Vec<GroupFlavor>,
}

/// A flavor of a resource group.
#[derive(Clone, Debug)]
pub(super) struct GroupFlavor {
    pub(super) name: Arc<str>,
    /// Ids by resource, in the order of `covered_resources`.
    pub(super) frs: Vec<FlavorResourceId>,
}

impl CompiledClusterQueue {
    pub(super) fn compile(config: ClusterQueue, node: NodeId, tree: &mut QuotaTree) -> Self {
        let mut groups = Vec::new();
        for group in &config.groups {
            let mut flavors = Vec::new();
            for flavor in &group.flavors {
                let fr = |resource: &Arc<str>| FlavorResource {
                    flavor: Arc::clone(&flavor.name),
                    resource: Arc::clone(resource),
                };
                let frs =
                    group.covered_resources.iter().map(|resource| tree.ensure_fr(&fr(resource))).collect();
                flavors.push(GroupFlavor { name: Arc::clone(&flavor.name), frs });
            }
            groups
                .push(CompiledResourceGroup { covered_resources: group.covered_resources.clone(), flavors });
        }
        Self { config, node, groups }
    }

    /// Whether its policies allow its workloads to evict any others.
    pub(super) fn may_preempt(&self) -> bool {
        let within = self.config.preemption.within_cluster_queue.unwrap_or_default();
        within != WithinClusterQueuePolicy::Never || self.may_reclaim()
    }

    /// Whether its policy allows its workloads to evict workloads of other ClusterQueues.
    pub(super) fn may_reclaim(&self) -> bool {
        let policy = self.config.preemption.reclaim_within_cohort.unwrap_or_default();
        self.config.cohort.is_some() && policy != ReclaimPolicy::Never
    }

    /// Whether its policies allow its workloads to evict newer ones of their priority.
    pub(super) fn preempts_newer(&self) -> bool {
        let own = self.config.preemption.within_cluster_queue.unwrap_or_default();
        own == WithinClusterQueuePolicy::LowerOrNewerEqualPriority
    }

    /// Whether its blocked head withholds capacity from other heads.
    pub(super) fn withholds_capacity(&self) -> bool {
        let reclaims = self.config.preemption.reclaim_within_cohort.unwrap_or_default();
        self.config.strategy == QueueingStrategy::StrictFIFO && reclaims != ReclaimPolicy::Any
    }
}

impl CompiledResourceGroup {
    /// Index of a resource in `covered_resources`.
    pub(super) fn position(&self, resource: &str) -> Option<usize> {
        self.covered_resources.iter().position(|covered| **covered == *resource)
    }
}

impl GroupFlavor {
    pub(super) fn fr(&self, position: usize) -> Option<FlavorResourceId> {
        self.frs.get(position).copied()
    }
}
