//! Queries about a node and its path to the root: available quota, potential available quota, and the limit that
//! binds.
//!
//! Invariants: all arithmetic is exact (`i128`), so unlimited quotas and debts cannot distort a comparison.
//! Availability queries cost the length of the path and allocate nothing, except `headrooms`, which only explanations ask.

use super::node_quota::NodeQuota;
use super::tree::{Node, NodeId, QuotaTree};
use super::{FlavorResource, FlavorResourceId, NodeRef, QuotaLimits};
use crate::resources::{Amount, UsageLayer};
use std::collections::{BTreeMap, BTreeSet};

/// The node whose limit binds, and the limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// The node.
    pub node: NodeRef,
    /// Maximum usage of the node.
    pub limit: Amount,
}

/// Quota and usage of a node for one flavor-resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Configured limits.
    pub limits: QuotaLimits,
    /// Subtree quota.
    pub subtree_quota: Amount,
    /// Current usage.
    pub usage: Amount,
}

/// Returns what a node borrows that uses an amount: what is above its subtree quota. A node without a parent borrows nothing, because
/// nothing lends to it.
pub fn borrowed(usage: i128, subtree_quota: i128, has_parent: bool) -> i128 {
    if has_parent { usage.saturating_sub(subtree_quota).max(0) } else { 0 }
}

impl NodeUsage {
    /// What the node borrows, by whether it has a parent.
    pub fn borrowed(&self, has_parent: bool) -> Amount {
        let (usage, quota) = (self.usage.to_i128(), self.subtree_quota.to_i128());
        Amount::saturating_from_i128(borrowed(usage, quota, has_parent))
    }

    /// The part of the subtree quota that is never lent.
    pub fn local_quota(&self) -> i128 {
        let lending = self.limits.lending_limit;
        lending.map_or(0, |lending| (self.subtree_quota.to_i128() - lending.to_i128()).max(0))
    }

    /// What others could use of its quota now: the unused part that may be lent.
    pub fn unused_lendable(&self) -> i128 {
        let lendable = self.subtree_quota.to_i128() - self.local_quota();
        lendable.min(self.subtree_quota.to_i128() - self.usage.to_i128()).max(0)
    }

    /// For each node of a path: whether its subtree quota covers an amount that the first node asks for, less what the nodes below it
    /// keep for themselves. This is what `QuotaTree::request_to_parent` says, node by node.
    pub fn covered_along(path: &[Self], mut amount: i128) -> Vec<bool> {
        let covered = path.iter().map(|usage| {
            let request = request_of(usage.to_quota(), amount, UsageLayer::Current);
            amount = request.amount;
            request.covered
        });
        covered.collect()
    }

    fn to_quota(self) -> NodeQuota {
        let mut quota = NodeQuota::default();
        quota.subtree_quota = self.subtree_quota.to_i128();
        quota.local_quota = self.local_quota();
        quota.borrowing_limit = self.limits.borrowing_limit.map(Amount::to_i128);
        quota.add_usage(UsageLayer::Current, self.usage.to_i128());
        quota
    }
}

/// What a node must request from its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentRequest {
    /// The part of the amount beyond the node's local quota.
    pub amount: i128,
    /// Whether the node's subtree quota covers the whole amount.
    pub covered: bool,
}

/// The smallest subtree that could provide an amount without borrowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LowestSubtree {
    /// Height of its root; 0 is the leaf itself.
    pub height: u32,
    /// Whether it has a parent to reclaim from.
    pub has_parent: bool,
}

impl QuotaTree {
    /// Quota available to a node; negative while it or an ancestor is in debt, 0 below a cycle.
    pub fn available(&self, node: NodeId, fr: FlavorResourceId, layer: UsageLayer) -> i128 {
        self.min_headroom(node, current_headroom(fr, layer), |_| {})
    }

    /// Quota that would be available to a node with nothing in use.
    pub fn potential_available(&self, node: NodeId, fr: FlavorResourceId) -> i128 {
        self.min_headroom(node, potential_headroom(fr), |_| {})
    }

    /// Minimum headroom over the path to the root, each node's plus the local quota of the nodes below it; nodes
    /// without an own limit are skipped. Calls `binds` for each node that lowers the minimum.
    fn min_headroom<'a>(
        &'a self,
        from: NodeId,
        headroom_of: impl Fn(&Node, bool) -> (Option<i128>, i128),
        mut binds: impl FnMut(&'a Node),
    ) -> i128 {
        let (mut minimum, mut local_quota) = (None, 0);
        for node in self.path_to_root(from) {
            if node.cyclic {
                return 0;
            }
            let (headroom, node_local_quota) = headroom_of(node, node.parent.is_none());
            if let Some(headroom) = headroom.map(|headroom| headroom + local_quota)
                && minimum.is_none_or(|minimum| headroom < minimum)
            {
                minimum = Some(headroom);
                binds(node);
            }
            local_quota += node_local_quota;
        }
        minimum.unwrap_or(0)
    }

    /// What the limit of each node from a leaf to the root leaves to the leaf, `None` for a node without one; nothing below a cycle.
    pub fn headrooms(
        &self,
        leaf: NodeId,
        fr: FlavorResourceId,
        layer: UsageLayer,
    ) -> Vec<(NodeId, Option<i128>)> {
        let (mut found, mut local_quota) = (Vec::new(), 0);
        let headroom_of = current_headroom(fr, layer);
        for node in self.path_to_root(leaf) {
            if node.cyclic {
                return Vec::new();
            }
            let (headroom, node_local_quota) = headroom_of(node, node.parent.is_none());
            found.push((node.id, headroom.map(|headroom| headroom + local_quota)));
            local_quota += node_local_quota;
        }
        found
    }

    /// What a node may still use within its own borrowing limit, whatever its ancestors have; `None` without such a limit.
    pub fn own_headroom(&self, node: NodeId, fr: FlavorResourceId, layer: UsageLayer) -> Option<i128> {
        let node = self.node(node).filter(|node| node.parent.is_some())?;
        headroom_in_use(node.quota(fr), layer, false).0
    }

    /// The lowest node whose limit prevents the leaf from getting more now.
    pub fn current_bottleneck(
        &self,
        node: NodeId,
        fr: FlavorResourceId,
        layer: UsageLayer,
    ) -> Option<Bottleneck> {
        let mut binding = None;
        self.min_headroom(node, current_headroom(fr, layer), |node| binding = Some(node));
        binding.map(|node| bottleneck(node, fr))
    }

    /// The lowest node whose limit prevents the leaf from ever getting more.
    pub fn permanent_bottleneck(&self, node: NodeId, fr: FlavorResourceId) -> Option<Bottleneck> {
        let mut binding = None;
        self.min_headroom(node, potential_headroom(fr), |node| binding = Some(node));
        binding.map(|node| bottleneck(node, fr))
    }

    /// Whether the usage of a node would exceed its subtree quota with `more` added.
    pub fn borrows_with(&self, node: NodeId, fr: FlavorResourceId, more: i128, layer: UsageLayer) -> bool {
        self.node(node).is_some_and(|node| {
            let quota = node.quota(fr);
            quota.subtree_quota < quota.usage(layer) + more
        })
    }

    /// Subtree quota of a node.
    pub fn subtree_quota(&self, node: NodeId, fr: FlavorResourceId) -> i128 {
        self.node(node).map_or(0, |node| node.quota(fr).subtree_quota)
    }

    /// Usage of a node.
    pub fn used(&self, node: NodeId, fr: FlavorResourceId, layer: UsageLayer) -> i128 {
        self.node(node).map_or(0, |node| node.quota(fr).usage(layer))
    }

    /// Borrowing limit of a node.
    pub fn borrowing_limit(&self, node: NodeId, fr: FlavorResourceId) -> Option<i128> {
        self.node(node).and_then(|node| node.quota(fr).borrowing_limit)
    }

    /// What a node must request from its parent for an amount.
    pub fn request_to_parent(
        &self,
        node: NodeId,
        fr: FlavorResourceId,
        amount: i128,
        layer: UsageLayer,
    ) -> ParentRequest {
        let node = self.node(node);
        node.map_or(ParentRequest { amount, covered: false }, |node| {
            request_of(node.quota(fr), amount, layer)
        })
    }

    /// Whether the usage of a node is within its subtree quota.
    pub fn within_nominal(&self, node: NodeId, fr: FlavorResourceId, layer: UsageLayer) -> bool {
        !self.borrows_with(node, fr, 0, layer)
    }

    /// The smallest subtree that could provide `more` without borrowing.
    pub fn lowest_subtree_for(
        &self,
        leaf: NodeId,
        fr: FlavorResourceId,
        more: i128,
        layer: UsageLayer,
    ) -> LowestSubtree {
        let mut path = self.path_to_root(leaf);
        let Some(first) = path.next() else {
            return LowestSubtree { height: 0, has_parent: false };
        };
        let quota = first.quota(fr);
        if quota.subtree_quota >= quota.usage(layer) + more || first.parent.is_none() {
            return LowestSubtree { height: 0, has_parent: first.parent.is_some() };
        }
        let (mut remaining, mut height) = (more - quota.local_quota_available(layer), 0);
        for node in path {
            let quota = node.quota(fr);
            height = node.height;
            if quota.subtree_quota >= quota.usage(layer) + remaining {
                return LowestSubtree { height, has_parent: node.parent.is_some() };
            }
            remaining -= quota.local_quota_available(layer);
        }
        LowestSubtree { height, has_parent: false }
    }

    /// Parent of a node; `None` below a cycle.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.node(node).filter(|node| !node.cyclic).and_then(|node| node.parent)
    }

    /// Children of a node.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.node(node).into_iter().flat_map(|node| node.children.iter().copied())
    }

    /// Root above a node; the node itself without a cohort or below a cycle.
    pub fn root(&self, node: NodeId) -> NodeId {
        self.path_to_root(node).last().map_or(node, |node| node.id)
    }

    /// If the path of a ClusterQueue ends in a cycle: its parent cohort.
    pub fn cycle_above(&self, queue: &str) -> Option<&NodeRef> {
        let node = self.node(self.leaf(queue)?).filter(|node| node.cyclic)?;
        node.parent.and_then(|parent| self.node(parent)).map(|parent| &parent.name)
    }

    /// Name of a node.
    pub fn name(&self, node: NodeId) -> Option<&NodeRef> {
        self.node(node).map(|node| &node.name)
    }

    /// Path from the root to a node, as `/root/cohort/queue`.
    pub fn path_of(&self, node: NodeId) -> String {
        let mut names: Vec<&str> = self.path_to_root(node).map(|node| node.name.as_str()).collect();
        names.push("");
        names.reverse();
        names.join("/")
    }

    /// Quota and usage of a node, by flavor-resource.
    pub fn usage(&self, name: &NodeRef) -> BTreeMap<FlavorResource, NodeUsage> {
        let Some(node) = self.find(name).and_then(|id| self.node(id)) else {
            return BTreeMap::new();
        };
        let with_quota =
            node.quotas.iter().filter(|(_, quota)| quota.declared || quota.usage(UsageLayer::Current) != 0);
        let frs: BTreeSet<FlavorResourceId> =
            node.limits.keys().copied().chain(with_quota.map(|(fr, _)| fr)).collect();
        let usage_of = |fr: FlavorResourceId| {
            let quota = node.quota(fr);
            NodeUsage {
                limits: node.limits.get(&fr).copied().unwrap_or_default(),
                subtree_quota: Amount::saturating_from_i128(quota.subtree_quota),
                usage: Amount::saturating_from_i128(quota.usage(UsageLayer::Current)),
            }
        };
        let named = |fr| Some((self.fr_name(fr)?.clone(), usage_of(fr)));
        frs.into_iter().filter_map(named).collect()
    }

    /// All nodes with their parents, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeRef, Option<&NodeRef>)> {
        self.ids.iter().filter_map(|(name, id)| {
            let parent = self.node(*id)?.parent.and_then(|p| self.node(p));
            Some((name, parent.map(|p| &p.name)))
        })
    }
}

fn request_of(quota: NodeQuota, amount: i128, layer: UsageLayer) -> ParentRequest {
    ParentRequest {
        amount: (amount - quota.local_quota_available(layer)).max(0),
        covered: quota.subtree_quota >= quota.usage(layer) + amount,
    }
}

/// Headroom and local quota of a node at its usage in a layer.
fn current_headroom(fr: FlavorResourceId, layer: UsageLayer) -> impl Fn(&Node, bool) -> (Option<i128>, i128) {
    move |node, is_root| headroom_in_use(node.quota(fr), layer, is_root)
}

fn headroom_in_use(quota: NodeQuota, layer: UsageLayer, is_root: bool) -> (Option<i128>, i128) {
    let local = quota.local_quota_available(layer);
    let root = || quota.subtree_quota - quota.usage(layer);
    let headroom = if is_root { Some(root()) } else { quota.borrowable(layer).map(|limit| local + limit) };
    (headroom, local)
}

/// Headroom and local quota of a node with nothing in use.
fn potential_headroom(fr: FlavorResourceId) -> impl Fn(&Node, bool) -> (Option<i128>, i128) {
    move |node, is_root| headroom_unused(node.quota(fr), is_root)
}

fn headroom_unused(quota: NodeQuota, is_root: bool) -> (Option<i128>, i128) {
    let headroom = if is_root { Some(0) } else { quota.borrowing_limit };
    (headroom.map(|headroom| quota.subtree_quota + headroom), quota.local_quota)
}

/// What a node could use, computed from the usages of the nodes on its path to the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathHeadroom {
    /// Beside its usage now; negative while it or an ancestor is in debt.
    pub available: i128,
    /// With nothing in use.
    pub potential: i128,
    /// Index on the path of the lowest node whose limit binds now.
    pub binding: usize,
}

impl PathHeadroom {
    /// Computes the headroom of the first node of a path that ends in a root: what `QuotaTree::available` and
    /// `QuotaTree::potential_available` say of it.
    pub fn of_path(path: &[NodeUsage]) -> Self {
        let (mut potential, mut local) = (None, 0);
        for (index, usage) in path.iter().enumerate() {
            let is_root = index.saturating_add(1) == path.len();
            let (headroom, node_local) = headroom_unused(usage.to_quota(), is_root);
            potential = potential.into_iter().chain(headroom.map(|headroom| headroom + local)).min();
            local += node_local;
        }
        let first = Self::limits(path).first().copied();
        let (binding, available) = first.unwrap_or_default();
        Self { available, potential: potential.unwrap_or(0), binding }
    }

    /// Returns what each node of a path that has a limit leaves to the first node, by its index; the one that binds first.
    pub fn limits(path: &[NodeUsage]) -> Vec<(usize, i128)> {
        let (mut limits, mut local) = (Vec::new(), 0);
        for (index, usage) in path.iter().enumerate() {
            let is_root = index.saturating_add(1) == path.len();
            let (headroom, node_local) = headroom_in_use(usage.to_quota(), UsageLayer::Current, is_root);
            limits.extend(headroom.map(|headroom| (index, headroom + local)));
            local += node_local;
        }
        limits.sort_by_key(|(_, headroom)| *headroom);
        limits
    }
}

fn bottleneck(node: &Node, fr: FlavorResourceId) -> Bottleneck {
    let quota = node.quota(fr);
    let borrowing = quota.borrowing_limit.filter(|_| node.parent.is_some()).unwrap_or(0);
    Bottleneck {
        node: node.name.clone(),
        limit: Amount::saturating_from_i128(quota.subtree_quota + borrowing),
    }
}
