//! The quota rules written down a second time: plain recursion over names, everything recomputed on every question.

use super::builders::{COHORTS, FLAVORS, QUEUES, RESOURCES, Step};
use sluice::quota::{QuotaLimits, ResourceGroup};
use sluice::resources::Amount;
use sluice::scheduler::{FlavorResource, NodeRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type Node = (Option<NodeRef>, Vec<ResourceGroup>);

/// Configuration and charges as plain maps.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) nodes: BTreeMap<NodeRef, Node>,
    pub(super) charges: BTreeMap<usize, (usize, BTreeMap<FlavorResource, i128>)>,
}

pub(super) fn cohort_ref(at: usize) -> NodeRef {
    NodeRef::Cohort(Arc::from(COHORTS[at]))
}

pub(super) fn queue_ref(at: usize) -> NodeRef {
    NodeRef::ClusterQueue(Arc::from(QUEUES[at]))
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
            Step::Cohort(at, node) => set(cohort_ref(*at), node),
            Step::Queue(at, node) => set(queue_ref(*at), node),
            Step::Charge(who, at, usage) => {
                let pair = |(f, r, units): &(usize, usize, i64)| {
                    (FlavorResource::new(FLAVORS[*f], RESOURCES[*r]), i128::from(*units))
                };
                self.charges.insert(*who, (*at, usage.iter().map(pair).collect()));
            }
            Step::Release(who) => drop(self.charges.remove(who)),
        }
    }

    pub(super) fn parent(&self, node: &NodeRef) -> Option<NodeRef> {
        self.nodes.get(node).and_then(|(parent, _)| parent.clone())
    }

    pub(super) fn is_cyclic(&self, node: &NodeRef) -> bool {
        let (mut at, mut seen) = (node.clone(), BTreeSet::new());
        while seen.insert(at.clone()) {
            match self.parent(&at) {
                Some(parent) => at = parent,
                None => return false,
            }
        }
        true
    }

    pub(super) fn limits(&self, node: &NodeRef, pair: &FlavorResource) -> QuotaLimits {
        let groups = self.nodes.get(node).map(|(_, groups)| groups.as_slice()).unwrap_or_default();
        let flavor = groups.iter().flat_map(|g| &g.flavors).find(|f| f.name == pair.flavor);
        flavor.and_then(|f| f.limits.get(&pair.resource)).copied().unwrap_or_default()
    }

    pub(super) fn children(&self, node: &NodeRef) -> Vec<NodeRef> {
        self.nodes
            .iter()
            .filter(|(_, (parent, _))| parent.as_ref() == Some(node))
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(super) fn subtree_quota(&self, node: &NodeRef, pair: &FlavorResource) -> i128 {
        let own = self.limits(node, pair).nominal.to_i128();
        own + self
            .children(node)
            .iter()
            .map(|c| self.subtree_quota(c, pair) - self.local_quota(c, pair))
            .sum::<i128>()
    }

    pub(super) fn local_quota(&self, node: &NodeRef, pair: &FlavorResource) -> i128 {
        match self.limits(node, pair).lending_limit {
            Some(lending) => (self.subtree_quota(node, pair) - lending.to_i128()).max(0),
            None => 0,
        }
    }

    pub(super) fn usage(&self, node: &NodeRef, pair: &FlavorResource) -> i128 {
        let below = self.children(node);
        let up = below.iter().map(|c| (self.usage(c, pair) - self.local_quota(c, pair)).max(0)).sum::<i128>();
        let held = self.charges.values().filter(|(at, _)| queue_ref(*at) == *node);
        up + held.filter_map(|(_, usage)| usage.get(pair)).sum::<i128>()
    }

    pub(super) fn available(&self, node: &NodeRef, pair: &FlavorResource) -> i128 {
        let (subtree, local, usage) =
            (self.subtree_quota(node, pair), self.local_quota(node, pair), self.usage(node, pair));
        let Some(parent) = self.parent(node) else {
            return subtree - usage;
        };
        let mut above = self.available(&parent, pair);
        if let Some(limit) = self.limits(node, pair).borrowing_limit {
            above = above.min(subtree - local - (usage - local).max(0) + limit.to_i128());
        }
        (local - usage).max(0) + above
    }

    /// Nodes from a queue up, as far as what it holds beyond its local quota is seen.
    pub(super) fn node_over_limit(&self, from: &NodeRef, pair: &FlavorResource) -> Option<NodeRef> {
        let mut at = Some(from.clone());
        while let Some(node) = at {
            let (subtree, usage) = (self.subtree_quota(&node, pair), self.usage(&node, pair));
            at = self.parent(&node);
            let limit = if at.is_none() {
                Some(0)
            } else {
                self.limits(&node, pair).borrowing_limit.map(Amount::to_i128)
            };
            if limit.is_some_and(|limit| usage > subtree + limit) {
                return Some(node);
            }
            if usage <= self.local_quota(&node, pair) {
                return None;
            }
        }
        None
    }
}
