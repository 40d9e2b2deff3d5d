//! The quota rules restated as plain recursion over names; every query recomputes everything.

use crate::fixtures::builders::{COHORTS, FLAVORS, QUEUES, RESOURCES, Step};
use sluice_core::quota::{QuotaLimits, ResourceGroup};
use sluice_core::resources::Amount;
use sluice_core::scheduler::{FlavorResource, NodeRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Node = (Option<NodeRef>, Vec<ResourceGroup>);

/// Configuration and charges as plain maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) nodes: BTreeMap<NodeRef, Node>,
    pub(super) charges: BTreeMap<usize, (usize, BTreeMap<FlavorResource, i128>)>,
}

pub(super) fn cohort_ref(index: usize) -> NodeRef {
    NodeRef::Cohort(Arc::from(COHORTS[index]))
}

pub(super) fn queue_ref(index: usize) -> NodeRef {
    NodeRef::ClusterQueue(Arc::from(QUEUES[index]))
}

pub(super) fn flavor_resources() -> Vec<FlavorResource> {
    FLAVORS.iter().flat_map(|f| RESOURCES.iter().map(|r| FlavorResource::new(f, r))).collect()
}

impl Model {
    pub(super) fn apply(&mut self, step: &Step) {
        let mut set = |name: NodeRef, node: &Option<(Option<usize>, Vec<ResourceGroup>)>| match node {
            Some((parent, groups)) => drop(self.nodes.insert(name, (parent.map(cohort_ref), groups.clone()))),
            None => drop(self.nodes.remove(&name)),
        };
        match step {
            Step::Cohort(index, node) => set(cohort_ref(*index), node),
            Step::Queue(index, node) => set(queue_ref(*index), node),
            Step::Charge(number, index, usage) => {
                let entry = |(f, r, units): &(usize, usize, i64)| {
                    (FlavorResource::new(FLAVORS[*f], RESOURCES[*r]), i128::from(*units))
                };
                self.charges.insert(*number, (*index, usage.iter().map(entry).collect()));
            }
            Step::Release(number) => drop(self.charges.remove(number)),
        }
    }

    pub(super) fn parent(&self, node: &NodeRef) -> Option<NodeRef> {
        self.nodes.get(node).and_then(|(parent, _)| parent.clone())
    }

    pub(super) fn is_cyclic(&self, node: &NodeRef) -> bool {
        let (mut current, mut seen) = (node.clone(), BTreeSet::new());
        while seen.insert(current.clone()) {
            match self.parent(&current) {
                Some(parent) => current = parent,
                None => return false,
            }
        }
        true
    }

    pub(super) fn limits(&self, node: &NodeRef, fr: &FlavorResource) -> QuotaLimits {
        let groups = self.nodes.get(node).map(|(_, groups)| groups.as_slice()).unwrap_or_default();
        let flavor = groups.iter().flat_map(|g| &g.flavors).find(|f| f.name == fr.flavor);
        flavor.and_then(|f| f.limits.get(&fr.resource)).copied().unwrap_or_default()
    }

    pub(super) fn children(&self, node: &NodeRef) -> Vec<NodeRef> {
        self.nodes
            .iter()
            .filter(|(_, (parent, _))| parent.as_ref() == Some(node))
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(super) fn subtree_quota(&self, node: &NodeRef, fr: &FlavorResource) -> i128 {
        let own = self.limits(node, fr).nominal.to_i128();
        own + self
            .children(node)
            .iter()
            .map(|c| self.subtree_quota(c, fr) - self.local_quota(c, fr))
            .sum::<i128>()
    }

    pub(super) fn local_quota(&self, node: &NodeRef, fr: &FlavorResource) -> i128 {
        match self.limits(node, fr).lending_limit {
            Some(lending) => (self.subtree_quota(node, fr) - lending.to_i128()).max(0),
            None => 0,
        }
    }

    pub(super) fn usage(&self, node: &NodeRef, fr: &FlavorResource) -> i128 {
        let children = self.children(node);
        let up = children.iter().map(|c| (self.usage(c, fr) - self.local_quota(c, fr)).max(0)).sum::<i128>();
        let charges = self.charges.values().filter(|(queue, _)| queue_ref(*queue) == *node);
        up + charges.filter_map(|(_, usage)| usage.get(fr)).sum::<i128>()
    }

    pub(super) fn available(&self, node: &NodeRef, fr: &FlavorResource) -> i128 {
        let (subtree, local, usage) =
            (self.subtree_quota(node, fr), self.local_quota(node, fr), self.usage(node, fr));
        let Some(parent) = self.parent(node) else {
            return subtree - usage;
        };
        let mut above = self.available(&parent, fr);
        if let Some(limit) = self.limits(node, fr).borrowing_limit {
            above = above.min(subtree - local - (usage - local).max(0) + limit.to_i128());
        }
        (local - usage).max(0) + above
    }

    /// Returns the first node from `from` upwards that exceeds its limit. Stops where usage is within the local quota, because
    /// it is not visible further up.
    pub(super) fn node_over_limit(&self, from: &NodeRef, fr: &FlavorResource) -> Option<NodeRef> {
        let mut next = Some(from.clone());
        while let Some(node) = next {
            let (subtree, usage) = (self.subtree_quota(&node, fr), self.usage(&node, fr));
            next = self.parent(&node);
            let limit = if next.is_none() {
                Some(0)
            } else {
                self.limits(&node, fr).borrowing_limit.map(Amount::to_i128)
            };
            if limit.is_some_and(|limit| usage > subtree + limit) {
                return Some(node);
            }
            if usage <= self.local_quota(&node, fr) {
                return None;
            }
        }
        None
    }
}
