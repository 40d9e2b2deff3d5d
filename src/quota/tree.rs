//! Nodes, links and figures of the tree.
//!
//! A configuration change rebuilds the figures of the trees that it touches from what their leaves hold; a charge or
//! release walks one path. Every figure is an exact sum, so that whatever was added can be taken off again: trying
//! something out needs no copy of the tree.

use super::flavor_resource::{FlavorResourceInterner, ResourceId, Usage};
use super::node_quota::{NodeQuota, NodeQuotas};
use super::resource_groups::limits_of;
use super::{FlavorResource, FlavorResourceId, NodeRef, QuotaLimits, ResourceGroup};
use crate::resources::{Amount, UsageLayer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Handle of a node; that of a node that is gone names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    slot: u32,
    generation: u32,
}

/// What is configured of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeConfig<'a> {
    /// The cohort above.
    pub parent: Option<&'a str>,
    /// Its quotas.
    pub groups: &'a [ResourceGroup],
    /// Its weight in fair sharing.
    pub weight: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) name: NodeRef,
    pub(super) parent: Option<NodeId>,
    pub(super) children: BTreeSet<NodeId>,
    /// Whether an object stands behind the node; a cohort may exist by reference alone.
    configured: bool,
    pub(super) limits: BTreeMap<FlavorResourceId, QuotaLimits>,
    pub(super) quotas: NodeQuotas,
    /// What the workloads of a leaf hold, now and as planned: the truth from which `cells` follow.
    leaf_usage: BTreeMap<FlavorResourceId, (i128, i128)>,
    pub(super) height: u32,
    /// Whether the way up ends in a cycle instead of a root.
    pub(super) cyclic: bool,
    /// Raised whenever a figure may have changed for the better.
    generation: u64,
    pub(super) weight: f64,
    /// What children of the node could have at most, by resource: the measure of their shares.
    pub(super) lendable: Vec<(ResourceId, i128)>,
}

/// Which way a change of what a leaf holds went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageChange {
    /// More is free.
    pub decreased: Vec<FlavorResourceId>,
    /// Less is free.
    pub increased: Vec<FlavorResourceId>,
}

/// The forest of cohorts and ClusterQueues with what is in use.
#[derive(Clone, Debug, Default)]
pub struct QuotaTree {
    pub(super) ids: BTreeMap<NodeRef, NodeId>,
    /// Those of the ClusterQueues once more, found without building a `NodeRef`.
    leaves: BTreeMap<Arc<str>, NodeId>,
    nodes: Vec<Option<Node>>,
    free_ids: Vec<NodeId>,
    pub(super) flavor_resources: FlavorResourceInterner,
}

impl QuotaTree {
    /// Sets or removes a node's configuration. What a leaf holds stays. Answers with all ClusterQueues whose figures may
    /// have changed.
    pub fn configure(&mut self, name: &NodeRef, config: Option<NodeConfig>) -> BTreeSet<Arc<str>> {
        if config.is_none() && !self.ids.contains_key(name) {
            return BTreeSet::new();
        }
        let id = self.intern(name);
        let parent = config.and_then(|config| config.parent).map(|p| self.intern(&NodeRef::Cohort(p.into())));
        let limits = config.map(|config| limits_of(config.groups)).unwrap_or_default();
        let limits =
            limits.into_iter().map(|(pair, limits)| (self.flavor_resources.intern(&pair), limits)).collect();
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
        let mut touched = self.rebuild(id);
        if let Some(old) = old {
            touched.extend(self.rebuild(old));
            self.drop_if_unused(old);
        }
        self.drop_if_unused(id);
        touched
    }

    /// Adds to what a leaf holds, or takes from it, on the whole path at once.
    pub fn add_usage(&mut self, leaf: NodeId, change: &Usage, layers: &[UsageLayer]) -> UsageChange {
        let mut moved = UsageChange::default();
        for (pair, delta) in change.iter().filter(|(_, delta)| *delta != 0) {
            let side = if *delta < 0 { &mut moved.decreased } else { &mut moved.increased };
            side.push(*pair);
            let of = |layer| if layers.contains(&layer) { *delta } else { 0 };
            let (held, planned) = (of(UsageLayer::Current), of(UsageLayer::Projected));
            if let Some(node) = self.node_mut(leaf) {
                let own = node.leaf_usage.entry(*pair).or_default();
                *own = (own.0 + held, own.1 + planned);
                if *own == (0, 0) {
                    node.leaf_usage.remove(pair);
                }
            }
            self.propagate(leaf, *pair, held, planned);
        }
        if let Some(node) = self.node_mut(leaf).filter(|_| !moved.decreased.is_empty()) {
            node.generation += 1;
        }
        self.drop_if_unused(leaf);
        moved
    }

    /// Carries changes of both layers up the path, as far as they leave each node's local quota.
    fn propagate(&mut self, leaf: NodeId, pair: FlavorResourceId, mut held: i128, mut planned: i128) {
        let mut at = Some(leaf);
        while let Some(node) = at.and_then(|id| self.node_mut(id)).filter(|_| (held, planned) != (0, 0)) {
            node.quotas.update(pair, |cell| {
                held = cell.add_and_overflow(UsageLayer::Current, held);
                planned = cell.add_and_overflow(UsageLayer::Projected, planned);
            });
            at = if node.cyclic { None } else { node.parent };
        }
    }

    /// Carries a usage up the path, so many times, without making it part of what the leaf holds: whoever tries something out
    /// takes it off again. It goes up node by node, since cells are in the order of usages.
    pub fn shift_usage(&mut self, leaf: NodeId, usage: &Usage, times: i128, layer: UsageLayer) {
        let mut deltas: Usage = usage.iter().map(|(pair, amount)| (*pair, times * amount)).collect();
        let mut at = Some(leaf);
        loop {
            deltas.retain(|(_, delta)| *delta != 0);
            let Some(node) = at.and_then(|id| self.node_mut(id)).filter(|_| !deltas.is_empty()) else {
                return;
            };
            let mut place = 0;
            for (pair, delta) in &mut deltas {
                node.quotas.update_with_hint(&mut place, *pair, |cell| {
                    *delta = cell.add_and_overflow(layer, *delta);
                });
            }
            at = if node.cyclic { None } else { node.parent };
        }
    }

    /// The nodes from one up to its root; only itself while it hangs on a cycle.
    pub(super) fn path_to_root(&self, from: NodeId) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.node(from), |node| {
            node.parent.filter(|_| !node.cyclic).and_then(|parent| self.node(parent))
        })
    }

    /// Handle of a node by name.
    pub fn find(&self, name: &NodeRef) -> Option<NodeId> {
        self.ids.get(name).copied()
    }

    /// Handle of a ClusterQueue by name.
    pub fn leaf(&self, queue: &str) -> Option<NodeId> {
        self.leaves.get(queue).copied()
    }

    /// Handle of a ClusterQueue by name; one that is not known yet exists from now on, as long as it holds something.
    pub fn ensure_leaf(&mut self, queue: &str) -> NodeId {
        self.leaf(queue).unwrap_or_else(|| self.intern(&NodeRef::ClusterQueue(queue.into())))
    }

    /// Number of a flavor and resource that was named before.
    pub fn fr_id(&self, pair: &FlavorResource) -> Option<FlavorResourceId> {
        self.flavor_resources.find(pair)
    }

    /// Number of a flavor and resource.
    pub fn ensure_fr(&mut self, pair: &FlavorResource) -> FlavorResourceId {
        self.flavor_resources.intern(pair)
    }

    /// Names of a flavor and resource.
    pub fn fr_name(&self, pair: FlavorResourceId) -> Option<&FlavorResource> {
        self.flavor_resources.name(pair)
    }

    /// Amounts by name, from amounts by number.
    pub fn to_named(
        &self,
        usage: impl IntoIterator<Item = (FlavorResourceId, i128)>,
    ) -> BTreeMap<FlavorResource, Amount> {
        let named =
            |(pair, amount)| Some((self.fr_name(pair)?.clone(), Amount::saturating_from_i128(amount)));
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

    /// Forgets a node that nothing refers to any more.
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

    /// Computes the figures of the whole tree around a node anew and answers with its ClusterQueues.
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

    /// The root above a node, or a node of the cycle above it.
    fn root_or_cycle(&self, from: NodeId) -> (NodeId, bool) {
        let (mut at, mut seen) = (from, BTreeSet::from([from]));
        while let Some(parent) = self.node(at).and_then(|node| node.parent) {
            if !seen.insert(parent) {
                return (parent, true);
            }
            at = parent;
        }
        (at, false)
    }

    /// All nodes below one, itself first, each after its parent.
    fn subtree_nodes(&self, top: NodeId) -> Vec<NodeId> {
        let (mut order, mut seen, mut at) = (vec![top], BTreeSet::from([top]), 0);
        while let Some(node) = order.get(at).and_then(|id| self.node(*id)) {
            order.extend(node.children.iter().filter(|child| seen.insert(**child)));
            at += 1;
        }
        order
    }

    fn recompute(&mut self, id: NodeId, cyclic: bool) {
        let Some(node) = self.node(id) else { return };
        let mut cells = NodeQuotas::default();
        for (pair, limits) in &node.limits {
            cells.update(*pair, |cell| {
                cell.declared = true;
                cell.subtree_quota = limits.nominal.to_i128();
                cell.borrowing_limit = limits.borrowing_limit.map(Amount::to_i128);
            });
        }
        for (pair, (held, planned)) in &node.leaf_usage {
            cells.update(*pair, |cell| {
                cell.add_usage(UsageLayer::Current, *held);
                cell.add_usage(UsageLayer::Projected, *planned);
            });
        }
        let children = || node.children.iter().filter_map(|c| self.node(*c)).filter(|_| !cyclic);
        for (pair, cell) in children().flat_map(|child| child.quotas.iter()) {
            cells.update(pair, |sum| {
                sum.declared |= cell.declared;
                sum.subtree_quota += cell.subtree_quota - cell.local_quota;
                sum.add_usage(UsageLayer::Current, cell.usage_above_local_quota(UsageLayer::Current));
                sum.add_usage(UsageLayer::Projected, cell.usage_above_local_quota(UsageLayer::Projected));
            });
        }
        for (pair, cell) in cells.iter_mut() {
            let lending = node.limits.get(&pair).and_then(|limits| limits.lending_limit);
            cell.local_quota = lending.map_or(0, |lending| (cell.subtree_quota - lending.to_i128()).max(0));
        }
        let height = children().map(|child| child.height.saturating_add(1)).max().unwrap_or(0);
        if let Some(node) = self.node_mut(id) {
            (node.quotas, node.height, node.cyclic) = (cells, height, cyclic);
            node.generation += 1;
        }
    }

    /// Most that children of a node could have of each resource, over all flavors known in the tree.
    fn lendable(&self, id: NodeId, known: &[FlavorResourceId]) -> Vec<(ResourceId, i128)> {
        let mut sums: BTreeMap<ResourceId, i128> = BTreeMap::new();
        for pair in known {
            if let Some(resource) = self.flavor_resources.resource(*pair) {
                *sums.entry(resource).or_default() += self.potential_available(id, *pair);
            }
        }
        sums.into_iter().collect()
    }

    /// Generation of a node's figures.
    pub fn generation(&self, id: NodeId) -> u64 {
        self.node(id).map_or(0, |node| node.generation)
    }
}

impl Node {
    fn declared_frs(&self) -> impl Iterator<Item = FlavorResourceId> {
        self.quotas.iter().filter(|(_, cell)| cell.declared).map(|(pair, _)| pair)
    }

    pub(super) fn quota(&self, pair: FlavorResourceId) -> NodeQuota {
        self.quotas.get(pair)
    }
}
