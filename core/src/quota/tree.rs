//! Nodes, links, quotas and usage of the quota tree.
//!
//! A configuration change rebuilds the affected trees from the usage of their leaves; a charge or release updates one
//! path. All sums are exact, so any addition can be undone: simulations need no copy of the tree.

use super::flavor_resource::{FlavorResourceInterner, ResourceId, Usage};
use super::node_quota::{NodeQuota, NodeQuotas};
use super::resource_groups::limits_of;
use super::{FlavorResource, FlavorResourceId, NodeRef, QuotaLimits, ResourceGroup};
use crate::resources::{Amount, UsageLayer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Id of a node; the id of a dropped node names no other node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    slot: u32,
    generation: u32,
}

/// Configuration of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeConfig<'a> {
    /// Parent cohort.
    pub parent: Option<&'a str>,
    /// Quotas of the node itself, without its children.
    pub groups: &'a [ResourceGroup],
    /// Weight in fair sharing.
    pub weight: f64,
}

/// Usage of a leaf's workloads, by layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeafUsage {
    current: i128,
    projected: i128,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) name: NodeRef,
    pub(super) parent: Option<NodeId>,
    pub(super) children: BTreeSet<NodeId>,
    /// Whether an object exists for the node; a cohort may exist because it is referred to.
    configured: bool,
    pub(super) limits: BTreeMap<FlavorResourceId, QuotaLimits>,
    pub(super) quotas: NodeQuotas,
    /// Current and projected usage of a leaf's workloads: the source from which `quotas` is computed.
    leaf_usage: BTreeMap<FlavorResourceId, LeafUsage>,
    pub(super) height: u32,
    /// Whether the path ends in a cycle instead of a root.
    pub(super) cyclic: bool,
    /// Increased whenever available quota may have grown.
    generation: u64,
    pub(super) weight: f64,
    /// Maximum that children of the node could use, by resource: the denominator of their DRS.
    pub(super) lendable: Vec<(ResourceId, i128)>,
}

/// Flavor-resources whose usage changed, by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageChange {
    /// More is available.
    pub decreased: Vec<FlavorResourceId>,
    /// Less is available.
    pub increased: Vec<FlavorResourceId>,
}

/// The forest of cohorts and ClusterQueues with their usage.
#[derive(Clone, Debug, Default)]
pub struct QuotaTree {
    pub(super) ids: BTreeMap<NodeRef, NodeId>,
    /// ClusterQueues by name: lookup without building a `NodeRef`.
    leaves: BTreeMap<Arc<str>, NodeId>,
    nodes: Vec<Option<Node>>,
    free_ids: Vec<NodeId>,
    pub(super) flavor_resources: FlavorResourceInterner,
}

impl QuotaTree {
    /// Sets or removes the configuration of a node; the usage of leaves stays. Returns all ClusterQueues whose quota
    /// may have changed.
    pub fn configure(&mut self, name: &NodeRef, config: Option<NodeConfig>) -> BTreeSet<Arc<str>> {
        if config.is_none() && !self.ids.contains_key(name) {
            return BTreeSet::new();
        }
        let id = self.intern(name);
        let parent = config.and_then(|config| config.parent).map(|p| self.intern(&NodeRef::Cohort(p.into())));
        let limits = config.map(|config| limits_of(config.groups)).unwrap_or_default();
        let limits =
            limits.into_iter().map(|(fr, limits)| (self.flavor_resources.intern(&fr), limits)).collect();
        let mut old = None;
        if let Some(node) = self.node_mut(id) {
            node.configured = config.is_some();
            node.limits = limits;
            node.weight = config.map_or(1.0, |config| config.weight);
            old = std::mem::replace(&mut node.parent, parent);
        }
        if let Some(node) = old.and_then(|old| self.node_mut(old)) {
            node.children.remove(&id);
        }
        if let Some(node) = parent.and_then(|parent| self.node_mut(parent)) {
            node.children.insert(id);
        }
        let mut changed = self.rebuild(id);
        if let Some(old) = old {
            changed.extend(self.rebuild(old));
            self.drop_if_unused(old);
        }
        self.drop_if_unused(id);
        changed
    }

    /// Adds signed usage to a leaf and its whole path.
    pub fn add_usage(&mut self, leaf: NodeId, deltas: &Usage, layers: &[UsageLayer]) -> UsageChange {
        let mut usage_change = UsageChange::default();
        for (fr, delta) in deltas.iter().filter(|(_, delta)| *delta != 0) {
            let frs = if *delta < 0 { &mut usage_change.decreased } else { &mut usage_change.increased };
            frs.push(*fr);
            let delta_in = |layer| if layers.contains(&layer) { *delta } else { 0 };
            let (current, projected) = (delta_in(UsageLayer::Current), delta_in(UsageLayer::Projected));
            if let Some(node) = self.node_mut(leaf) {
                let usage = node.leaf_usage.entry(*fr).or_default();
                *usage =
                    LeafUsage { current: usage.current + current, projected: usage.projected + projected };
                if *usage == LeafUsage::default() {
                    node.leaf_usage.remove(fr);
                }
            }
            self.propagate(leaf, *fr, current, projected);
        }
        if let Some(node) = self.node_mut(leaf).filter(|_| !usage_change.decreased.is_empty()) {
            node.generation += 1;
        }
        self.drop_if_unused(leaf);
        usage_change
    }

    /// Propagates changes of both layers up the path, as far as they exceed each node's local quota.
    fn propagate(&mut self, leaf: NodeId, fr: FlavorResourceId, mut current: i128, mut projected: i128) {
        let mut current_node = Some(leaf);
        while let Some(node) =
            current_node.and_then(|id| self.node_mut(id)).filter(|_| (current, projected) != (0, 0))
        {
            node.quotas.update(fr, |quota| {
                current = quota.add_and_overflow(UsageLayer::Current, current);
                projected = quota.add_and_overflow(UsageLayer::Projected, projected);
            });
            current_node = if node.cyclic { None } else { node.parent };
        }
    }

    /// Propagates usage up the path `times` times without adding it to the leaf's own usage; simulations undo it with
    /// the opposite sign. Goes node by node, since quotas are sorted in the order of usages.
    pub fn shift_usage(&mut self, leaf: NodeId, usage: &Usage, times: i128, layer: UsageLayer) {
        let mut deltas: Usage = usage.iter().map(|(fr, amount)| (*fr, times * amount)).collect();
        let mut current_node = Some(leaf);
        loop {
            deltas.retain(|(_, delta)| *delta != 0);
            let Some(node) = current_node.and_then(|id| self.node_mut(id)).filter(|_| !deltas.is_empty())
            else {
                return;
            };
            let mut hint = 0;
            for (fr, delta) in &mut deltas {
                node.quotas.update_with_hint(&mut hint, *fr, |quota| {
                    *delta = quota.add_and_overflow(layer, *delta);
                });
            }
            current_node = if node.cyclic { None } else { node.parent };
        }
    }

    /// The nodes from `from` up to its root; only `from` below a cycle.
    pub(super) fn path_to_root(&self, from: NodeId) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.node(from), |node| {
            node.parent.filter(|_| !node.cyclic).and_then(|parent| self.node(parent))
        })
    }

    /// Id of a node by name.
    pub fn find(&self, name: &NodeRef) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    /// Id of a ClusterQueue by name.
    pub fn leaf(&self, queue: &str) -> Option<NodeId> {
        self.leaves.get(queue).copied()
    }

    /// Id of a ClusterQueue by name. An unknown ClusterQueue is added and exists while it has usage.
    pub fn ensure_leaf(&mut self, queue: &str) -> NodeId {
        self.leaf(queue).unwrap_or_else(|| self.intern(&NodeRef::ClusterQueue(queue.into())))
    }

    /// Id of a known flavor-resource.
    pub fn fr_id(&self, fr: &FlavorResource) -> Option<FlavorResourceId> {
        self.flavor_resources.find(fr)
    }

    /// Id of a flavor-resource; adds it if unknown.
    pub fn ensure_fr(&mut self, fr: &FlavorResource) -> FlavorResourceId {
        self.flavor_resources.intern(fr)
    }

    /// Names of a flavor-resource.
    pub fn fr_name(&self, fr: FlavorResourceId) -> Option<&FlavorResource> {
        self.flavor_resources.name(fr)
    }

    /// Converts amounts by id to amounts by name.
    pub fn to_named(
        &self,
        usage: impl IntoIterator<Item = (FlavorResourceId, i128)>,
    ) -> BTreeMap<FlavorResource, Amount> {
        let named = |(fr, amount)| Some((self.fr_name(fr)?.clone(), Amount::saturating_from_i128(amount)));
        usage.into_iter().filter_map(named).collect()
    }

    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        let slot = self.nodes.get(usize::try_from(id.slot).ok()?)?;
        slot.as_ref().filter(|node| node.id == id)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        let slot = self.nodes.get_mut(usize::try_from(id.slot).ok()?)?;
        slot.as_mut().filter(|node| node.id == id)
    }

    fn intern(&mut self, name: &NodeRef) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let id = self.free_ids.pop().unwrap_or(NodeId { slot: next, generation: 0 });
        let node = Node {
            id,
            name: name.clone(),
            parent: None,
            children: BTreeSet::new(),
            configured: false,
            limits: BTreeMap::new(),
            quotas: NodeQuotas::default(),
            leaf_usage: BTreeMap::new(),
            height: 0,
            cyclic: false,
            generation: 1,
            weight: 1.0,
            lendable: Vec::new(),
        };
        match usize::try_from(id.slot).ok().and_then(|slot| self.nodes.get_mut(slot)) {
            Some(slot) => *slot = Some(node),
            None => self.nodes.push(Some(node)),
        }
        self.ids.insert(name.clone(), id);
        if let NodeRef::ClusterQueue(queue) = name {
            self.leaves.insert(Arc::clone(queue), id);
        }
        id
    }

    /// Drops a node without configuration, children and usage.
    fn drop_if_unused(&mut self, id: NodeId) {
        let unused =
            |node: &&Node| !node.configured && node.children.is_empty() && node.leaf_usage.is_empty();
        let Some(name) = self.node(id).filter(unused).map(|node| node.name.clone()) else {
            return;
        };
        self.ids.remove(&name);
        if let NodeRef::ClusterQueue(queue) = &name {
            self.leaves.remove(queue);
        }
        if let Some(slot) = usize::try_from(id.slot).ok().and_then(|slot| self.nodes.get_mut(slot)) {
            *slot = None;
            self.free_ids.push(NodeId { slot: id.slot, generation: id.generation.wrapping_add(1) });
        }
    }

    /// Recomputes the whole tree around a node. Returns its ClusterQueues.
    fn rebuild(&mut self, around: NodeId) -> BTreeSet<Arc<str>> {
        let (top, cyclic) = self.root_or_cycle(around);
        let order = self.subtree_nodes(top);
        for id in order.iter().rev() {
            self.recompute(*id, cyclic);
        }
        let known: Vec<FlavorResourceId> = self.node(top).into_iter().flat_map(Node::declared_frs).collect();
        for id in &order {
            let lendable = if cyclic { Vec::new() } else { self.lendable(*id, &known) };
            if let Some(node) = self.node_mut(*id) {
                node.lendable = lendable;
            }
        }
        let leaf = |id| match self.node(id).map(|node| &node.name) {
            Some(NodeRef::ClusterQueue(name)) => Some(Arc::clone(name)),
            _ => None,
        };
        order.iter().filter_map(|id| leaf(*id)).collect()
    }

    /// Root above a node, or a node of the cycle above it; the flag is true for a cycle.
    fn root_or_cycle(&self, from: NodeId) -> (NodeId, bool) {
        let (mut current_node, mut seen) = (from, BTreeSet::from([from]));
        while let Some(parent) = self.node(current_node).and_then(|node| node.parent) {
            if !seen.insert(parent) {
                return (parent, true);
            }
            current_node = parent;
        }
        (current_node, false)
    }

    /// All nodes of a subtree, each after its parent.
    fn subtree_nodes(&self, top: NodeId) -> Vec<NodeId> {
        let (mut order, mut seen, mut index) = (vec![top], BTreeSet::from([top]), 0);
        while let Some(node) = order.get(index).and_then(|id| self.node(*id)) {
            order.extend(node.children.iter().filter(|child| seen.insert(**child)));
            index += 1;
        }
        order
    }

    fn recompute(&mut self, id: NodeId, cyclic: bool) {
        let Some(node) = self.node(id) else { return };
        let mut quotas = NodeQuotas::default();
        for (fr, limits) in &node.limits {
            quotas.update(*fr, |quota| {
                quota.declared = true;
                quota.subtree_quota = limits.nominal.to_i128();
                quota.borrowing_limit = limits.borrowing_limit.map(Amount::to_i128);
            });
        }
        for (fr, usage) in &node.leaf_usage {
            quotas.update(*fr, |quota| {
                quota.add_usage(UsageLayer::Current, usage.current);
                quota.add_usage(UsageLayer::Projected, usage.projected);
            });
        }
        let children = || node.children.iter().filter_map(|c| self.node(*c)).filter(|_| !cyclic);
        for (fr, quota) in children().flat_map(|child| child.quotas.iter()) {
            quotas.update(fr, |sum| {
                sum.declared |= quota.declared;
                sum.subtree_quota += quota.subtree_quota - quota.local_quota;
                sum.add_usage(UsageLayer::Current, quota.usage_above_local_quota(UsageLayer::Current));
                sum.add_usage(UsageLayer::Projected, quota.usage_above_local_quota(UsageLayer::Projected));
            });
        }
        for (fr, quota) in quotas.iter_mut() {
            let lending = node.limits.get(&fr).and_then(|limits| limits.lending_limit);
            quota.local_quota = lending.map_or(0, |lending| (quota.subtree_quota - lending.to_i128()).max(0));
        }
        let height = children().map(|child| child.height.saturating_add(1)).max().unwrap_or(0);
        if let Some(node) = self.node_mut(id) {
            (node.quotas, node.height, node.cyclic) = (quotas, height, cyclic);
            node.generation += 1;
        }
    }

    /// Maximum that children of a node could use of each resource, over all flavors known in the tree.
    fn lendable(&self, id: NodeId, known: &[FlavorResourceId]) -> Vec<(ResourceId, i128)> {
        let mut sums: BTreeMap<ResourceId, i128> = BTreeMap::new();
        for fr in known {
            if let Some(resource) = self.flavor_resources.resource(*fr) {
                *sums.entry(resource).or_default() += self.potential_available(id, *fr);
            }
        }
        sums.into_iter().collect()
    }

    /// Generation of a node's quota.
    pub fn generation(&self, id: NodeId) -> u64 {
        self.node(id).map_or(0, |node| node.generation)
    }
}

impl Node {
    fn declared_frs(&self) -> impl Iterator<Item = FlavorResourceId> {
        self.quotas.iter().filter(|(_, quota)| quota.declared).map(|(fr, _)| fr)
    }

    pub(super) fn quota(&self, fr: FlavorResourceId) -> NodeQuota {
        self.quotas.get(fr)
    }
}
