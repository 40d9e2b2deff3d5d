//! Nodes, links and figures of the tree.
//!
//! A configuration change rebuilds the figures of the trees that it touches from what their leaves hold; a charge or
//! release walks one path.

use super::groups::limits_of;
use super::path::{Path, rung};
use super::{FlavorResource, Limits, NodeRef, ResourceGroup};
use crate::resources::Amount;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeId(u32);

/// Figures of one node for one flavor and resource; what they mean stands at `Rung`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) subtree: i128,
    pub(super) local: i128,
    pub(super) usage: i128,
}

#[derive(Clone, Debug)]
struct Node {
    name: NodeRef,
    parent: Option<NodeId>,
    children: BTreeSet<NodeId>,
    /// Whether an object stands behind the node; a cohort may exist by reference alone.
    configured: bool,
    limits: BTreeMap<FlavorResource, Limits>,
    cells: BTreeMap<FlavorResource, Cell>,
    /// What the workloads of a leaf hold: the truth from which `cells` follow.
    held: BTreeMap<FlavorResource, i128>,
    height: u32,
    /// Whether the way up ends in a cycle instead of a root.
    cyclic: bool,
    /// Raised whenever a figure may have changed for the better.
    generation: u64,
}

/// What a node owns and uses of one flavor and resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Its configured limits.
    pub limits: Limits,
    /// What its subtree owns and may use or lend.
    pub subtree: Amount,
    /// What is in use.
    pub usage: Amount,
}

impl NodeUsage {
    /// What is used beyond what the subtree owns.
    pub fn borrowed(&self) -> Amount {
        Amount::from_wide((self.usage.wide() - self.subtree.wide()).max(0))
    }
}

/// Which way a change of what a leaf holds went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// More is free.
    pub freed: BTreeSet<FlavorResource>,
    /// Less is free.
    pub taken: BTreeSet<FlavorResource>,
}

/// The forest of cohorts and ClusterQueues with what is in use.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    ids: BTreeMap<NodeRef, NodeId>,
    /// Those of the ClusterQueues once more, found without building a `NodeRef`.
    leaves: BTreeMap<Arc<str>, NodeId>,
    nodes: BTreeMap<NodeId, Node>,
    next: u32,
}

impl Tree {
    /// Sets or removes a node's parent cohort and quotas. What a leaf holds stays. Answers with all ClusterQueues whose
    /// figures may have changed.
    pub fn configure(
        &mut self,
        name: &NodeRef,
        config: Option<(Option<&str>, &[ResourceGroup])>,
    ) -> BTreeSet<Arc<str>> {
        if config.is_none() && !self.ids.contains_key(name) {
            return BTreeSet::new();
        }
        let id = self.intern(name);
        let parent = config.and_then(|(parent, _)| parent).map(|p| self.intern(&NodeRef::Cohort(p.into())));
        let mut old = None;
        if let Some(node) = self.nodes.get_mut(&id) {
            node.configured = config.is_some();
            node.limits = config.map(|(_, groups)| limits_of(groups)).unwrap_or_default();
            old = std::mem::replace(&mut node.parent, parent);
        }
        if let Some(node) = old.and_then(|old| self.nodes.get_mut(&old)) {
            node.children.remove(&id);
        }
        if let Some(node) = parent.and_then(|parent| self.nodes.get_mut(&parent)) {
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
    pub fn hold(&mut self, queue: &str, change: &BTreeMap<FlavorResource, i128>) -> Moved {
        let known = self.leaves.get(queue).copied();
        let id = known.unwrap_or_else(|| self.intern(&NodeRef::ClusterQueue(queue.into())));
        let mut moved = Moved::default();
        for (pair, &delta) in change.iter().filter(|(_, delta)| **delta != 0) {
            let side = if delta < 0 { &mut moved.freed } else { &mut moved.taken };
            side.insert(pair.clone());
            if let Some(leaf) = self.nodes.get_mut(&id) {
                let held = leaf.held.entry(pair.clone()).or_default();
                *held += delta;
                if *held == 0 {
                    leaf.held.remove(pair);
                }
            }
            self.walk(id, pair, delta);
        }
        if let Some(leaf) = self.nodes.get_mut(&id).filter(|_| !moved.freed.is_empty()) {
            leaf.generation += 1;
        }
        self.drop_if_unused(id);
        moved
    }

    /// Carries a change up the path, as far as it leaves each node's local quota.
    fn walk(&mut self, leaf: NodeId, pair: &FlavorResource, delta: i128) {
        let (mut at, mut delta) = (Some(leaf), delta);
        while let Some(node) = at.and_then(|id| self.nodes.get_mut(&id)).filter(|_| delta != 0) {
            let cell = node.cells.entry(pair.clone()).or_default();
            let before = (cell.usage - cell.local).max(0);
            cell.usage += delta;
            delta = (cell.usage - cell.local).max(0) - before;
            if *cell == Cell::default() && !node.limits.contains_key(pair) {
                node.cells.remove(pair);
            }
            at = if node.cyclic { None } else { node.parent };
        }
    }

    /// The path of a ClusterQueue, unless it is unknown or hangs on a cycle.
    pub fn path(&self, queue: &str, pair: &FlavorResource) -> Option<Path<'_>> {
        let mut rungs = Vec::with_capacity(8);
        let mut at = Some(*self.leaves.get(queue)?);
        while let Some(node) = at.and_then(|id| self.nodes.get(&id)) {
            if node.cyclic {
                return None;
            }
            let cell = node.cells.get(pair).copied().unwrap_or_default();
            rungs.push(rung(&node.name, cell, &node.limits, pair, node.height));
            at = node.parent;
        }
        Some(Path::new(rungs))
    }

    /// Whether the queue's way up ends in a cycle; then the cohort by which it hangs on it.
    pub fn cycle_above(&self, queue: &str) -> Option<&NodeRef> {
        let node = self.leaf(queue).filter(|node| node.cyclic)?;
        node.parent.and_then(|parent| self.nodes.get(&parent)).map(|parent| &parent.name)
    }

    /// The root above a ClusterQueue: itself without a cohort.
    pub fn root(&self, queue: &str) -> Option<&NodeRef> {
        let mut node = self.leaf(queue)?;
        while let Some(parent) = node.parent.filter(|_| !node.cyclic).and_then(|p| self.nodes.get(&p)) {
            node = parent;
        }
        Some(&node.name)
    }

    /// Generation of a ClusterQueue's figures.
    pub fn generation(&self, queue: &str) -> u64 {
        self.leaf(queue).map_or(0, |node| node.generation)
    }

    /// What a node owns and uses, by flavor and resource.
    pub fn usage(&self, name: &NodeRef) -> BTreeMap<FlavorResource, NodeUsage> {
        let Some(node) = self.node(name) else {
            return BTreeMap::new();
        };
        let pairs: BTreeSet<&FlavorResource> = node.limits.keys().chain(node.cells.keys()).collect();
        let figures = |pair: &FlavorResource| {
            let cell = node.cells.get(pair).copied().unwrap_or_default();
            NodeUsage {
                limits: node.limits.get(pair).copied().unwrap_or_default(),
                subtree: Amount::from_wide(cell.subtree),
                usage: Amount::from_wide(cell.usage),
            }
        };
        pairs.into_iter().map(|pair| (pair.clone(), figures(pair))).collect()
    }

    /// All nodes with their parents, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeRef, Option<&NodeRef>)> {
        self.ids.iter().filter_map(|(name, id)| {
            let parent = self.nodes.get(id)?.parent.and_then(|p| self.nodes.get(&p));
            Some((name, parent.map(|p| &p.name)))
        })
    }

    fn node(&self, name: &NodeRef) -> Option<&Node> {
        self.ids.get(name).and_then(|id| self.nodes.get(id))
    }

    fn leaf(&self, queue: &str) -> Option<&Node> {
        self.leaves.get(queue).and_then(|id| self.nodes.get(id))
    }

    fn intern(&mut self, name: &NodeRef) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = NodeId(self.next);
        self.next = self.next.wrapping_add(1);
        self.ids.insert(name.clone(), id);
        if let NodeRef::ClusterQueue(queue) = name {
            self.leaves.insert(Arc::clone(queue), id);
        }
        let node = Node {
            name: name.clone(),
            parent: None,
            children: BTreeSet::new(),
            configured: false,
            limits: BTreeMap::new(),
            cells: BTreeMap::new(),
            held: BTreeMap::new(),
            height: 0,
            cyclic: false,
            generation: 1,
        };
        self.nodes.insert(id, node);
        id
    }

    /// Forgets a node that nothing refers to any more.
    fn drop_if_unused(&mut self, id: NodeId) {
        let unused = |node: &&Node| !node.configured && node.children.is_empty() && node.held.is_empty();
        if let Some(name) = self.nodes.get(&id).filter(unused).map(|node| node.name.clone()) {
            self.ids.remove(&name);
            if let NodeRef::ClusterQueue(queue) = &name {
                self.leaves.remove(queue);
            }
            self.nodes.remove(&id);
        }
    }

    /// Computes the figures of the whole tree around a node anew and answers with its ClusterQueues.
    fn rebuild(&mut self, around: NodeId) -> BTreeSet<Arc<str>> {
        let (top, cyclic) = self.top(around);
        let order = self.below(top);
        for id in order.iter().rev() {
            self.recompute(*id, cyclic);
        }
        let leaf = |id| match self.nodes.get(id).map(|node| &node.name) {
            Some(NodeRef::ClusterQueue(name)) => Some(Arc::clone(name)),
            _ => None,
        };
        order.iter().filter_map(leaf).collect()
    }

    /// The root above a node, or a node of the cycle above it.
    fn top(&self, from: NodeId) -> (NodeId, bool) {
        let (mut at, mut seen) = (from, BTreeSet::from([from]));
        while let Some(parent) = self.nodes.get(&at).and_then(|node| node.parent) {
            if !seen.insert(parent) {
                return (parent, true);
            }
            at = parent;
        }
        (at, false)
    }

    /// All nodes below one, itself first, each after its parent.
    fn below(&self, top: NodeId) -> Vec<NodeId> {
        let (mut order, mut seen, mut at) = (vec![top], BTreeSet::from([top]), 0);
        while let Some(node) = order.get(at).and_then(|id| self.nodes.get(id)) {
            order.extend(node.children.iter().filter(|child| seen.insert(**child)));
            at += 1;
        }
        order
    }

    fn recompute(&mut self, id: NodeId, cyclic: bool) {
        let Some(node) = self.nodes.get(&id) else { return };
        let mut cells: BTreeMap<FlavorResource, Cell> = BTreeMap::new();
        for (pair, limits) in &node.limits {
            cells.entry(pair.clone()).or_default().subtree = limits.nominal.wide();
        }
        for (pair, held) in &node.held {
            cells.entry(pair.clone()).or_default().usage = *held;
        }
        let children = || node.children.iter().filter_map(|c| self.nodes.get(c)).filter(|_| !cyclic);
        for (pair, cell) in children().flat_map(|child| &child.cells) {
            let sum = cells.entry(pair.clone()).or_default();
            sum.subtree += cell.subtree - cell.local;
            sum.usage += (cell.usage - cell.local).max(0);
        }
        for (pair, cell) in &mut cells {
            let lending = node.limits.get(pair).and_then(|limits| limits.lending);
            cell.local = lending.map_or(0, |lending| (cell.subtree - lending.wide()).max(0));
        }
        let height = children().map(|child| child.height.saturating_add(1)).max().unwrap_or(0);
        if let Some(node) = self.nodes.get_mut(&id) {
            cells.retain(|pair, cell| *cell != Cell::default() || node.limits.contains_key(pair));
            (node.cells, node.height, node.cyclic) = (cells, height, cyclic);
            node.generation += 1;
        }
    }
}
