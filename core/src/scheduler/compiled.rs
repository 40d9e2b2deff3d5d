//! A ClusterQueue prepared for scheduling: names are resolved to ids once, when the configuration changes.

use super::config::{ClusterQueue, EngineSettings};
use super::preemption::PreemptionPolicy;
use crate::api::v1beta2::QueueingStrategy;
use crate::quota::{FlavorResource, FlavorResourceId, NodeId, QuotaTree};
use std::sync::Arc;

/// A configured ClusterQueue with resolved ids.
#[derive(Clone, Debug)]
pub(super) struct CompiledClusterQueue {
    pub(super) config: ClusterQueue,
    pub(super) node: NodeId,
    pub(super) groups: Vec<CompiledResourceGroup>,
    pub(super) policy: PreemptionPolicy,
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
    pub(super) fn compile(
        config: ClusterQueue,
        node: NodeId,
        tree: &mut QuotaTree,
        settings: &EngineSettings,
    ) -> Self {
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
        let policy = PreemptionPolicy::of(&config.preemption, config.cohort.as_deref(), settings);
        Self { config, node, groups, policy }
    }

    /// Whether its blocked head withholds capacity from other heads.
    pub(super) fn withholds_capacity(&self) -> bool {
        self.config.strategy == QueueingStrategy::StrictFIFO && self.policy.withholds_capacity()
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
