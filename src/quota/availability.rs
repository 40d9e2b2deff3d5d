//! Questions about a node and its way to the root: what is free, what could ever be, where the limit binds.
//!
//! All arithmetic is exact (`i128`), so neither unlimited quotas nor debts bend a comparison. Answers cost the length of
//! the path and allocate nothing.

use super::tree::{Node, NodeId, QuotaTree};
use super::{FlavorResource, FlavorResourceId, NodeRef, QuotaLimits};
use crate::resources::{Amount, UsageLayer};
use std::collections::{BTreeMap, BTreeSet};

/// Where a limit binds and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// The node.
    pub node: NodeRef,
    /// Most that the node can ever have in use.
    pub limit: Amount,
}

/// What a node owns and uses of one flavor and resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// Its configured limits.
    pub limits: QuotaLimits,
    /// What its subtree owns and may use or lend.
    pub subtree_quota: Amount,
    /// What is in use.
    pub usage: Amount,
}

impl NodeUsage {
    /// What is used beyond what the subtree owns.
    pub fn borrowed(&self) -> Amount {
        Amount::saturating_from_i128((self.usage.to_i128() - self.subtree_quota.to_i128()).max(0))
    }
}

impl QuotaTree {
    /// What a node may still take; negative while it or a node above is in debt. Nothing below a cycle.
    pub fn available(&self, node: NodeId, pair: FlavorResourceId, layer: UsageLayer) -> i128 {
        self.min_headroom(node, current_headroom(pair, layer), |_| {})
    }

    /// What a node could take if nothing were in use.
    pub fn potential_available(&self, node: NodeId, pair: FlavorResourceId) -> i128 {
        self.min_headroom(node, potential_headroom(pair), |_| {})
    }

    /// The least over the path of what each node lets through (none without a limit of its own) beside what the nodes below
    /// it keep locally; `binds` is told each node that sets a new least.
    fn min_headroom<'a>(
        &'a self,
        from: NodeId,
        of: impl Fn(&Node, bool) -> (Option<i128>, i128),
        mut binds: impl FnMut(&'a Node),
    ) -> i128 {
        let (mut least, mut local) = (None, 0);
        for node in self.path_to_root(from) {
            if node.cyclic {
                return 0;
            }
            let (own, kept) = of(node, node.parent.is_none());
            if let Some(own) = own.map(|own| own + local)
                && least.is_none_or(|least| own < least)
            {
                least = Some(own);
                binds(node);
            }
            local += kept;
        }
        least.unwrap_or(0)
    }

    /// The lowest node whose limit keeps the leaf from having more than now.
    pub fn current_bottleneck(
        &self,
        node: NodeId,
        pair: FlavorResourceId,
        layer: UsageLayer,
    ) -> Option<Bottleneck> {
        let mut at = None;
        self.min_headroom(node, current_headroom(pair, layer), |node| at = Some(node));
        at.map(|node| bottleneck(node, pair))
    }

    /// The lowest node whose limit keeps the leaf from ever having more.
    pub fn permanent_bottleneck(&self, node: NodeId, pair: FlavorResourceId) -> Option<Bottleneck> {
        let mut at = None;
        self.min_headroom(node, potential_headroom(pair), |node| at = Some(node));
        at.map(|node| bottleneck(node, pair))
    }

    /// Whether a node would use more than its subtree owns with so much more.
    pub fn borrows_with(&self, node: NodeId, pair: FlavorResourceId, more: i128, layer: UsageLayer) -> bool {
        self.node(node).is_some_and(|node| {
            let cell = node.quota(pair);
            cell.subtree_quota < cell.usage(layer) + more
        })
    }

    /// What the subtree of a node owns.
    pub fn subtree_quota(&self, node: NodeId, pair: FlavorResourceId) -> i128 {
        self.node(node).map_or(0, |node| node.quota(pair).subtree_quota)
    }

    /// What a node uses.
    pub fn used(&self, node: NodeId, pair: FlavorResourceId, layer: UsageLayer) -> i128 {
        self.node(node).map_or(0, |node| node.quota(pair).usage(layer))
    }

    /// A node's borrowing limit.
    pub fn borrowing_limit(&self, node: NodeId, pair: FlavorResourceId) -> Option<i128> {
        self.node(node).and_then(|node| node.quota(pair).borrowing_limit)
    }

    /// What of an amount a node has to ask of its parent, and whether its subtree owns enough for the amount.
    pub fn request_to_parent(
        &self,
        node: NodeId,
        pair: FlavorResourceId,
        amount: i128,
        layer: UsageLayer,
    ) -> (i128, bool) {
        self.node(node).map_or((amount, false), |node| {
            let cell = node.quota(pair);
            let asks = (amount - cell.local_quota_available(layer)).max(0);
            (asks, cell.subtree_quota >= cell.usage(layer) + amount)
        })
    }

    /// Whether a node uses no more than its subtree owns.
    pub fn within_nominal(&self, node: NodeId, pair: FlavorResourceId, layer: UsageLayer) -> bool {
        !self.borrows_with(node, pair, 0, layer)
    }

    /// Height of the smallest subtree that could give so much without borrowing, and whether that subtree has a parent
    /// from which something could be reclaimed. Height 0 is the leaf itself.
    pub fn lowest_subtree_for(
        &self,
        leaf: NodeId,
        pair: FlavorResourceId,
        more: i128,
        layer: UsageLayer,
    ) -> (u32, bool) {
        let mut path = self.path_to_root(leaf);
        let Some(first) = path.next() else {
            return (0, false);
        };
        let cell = first.quota(pair);
        if cell.subtree_quota >= cell.usage(layer) + more || first.parent.is_none() {
            return (0, first.parent.is_some());
        }
        let (mut remaining, mut height) = (more - cell.local_quota_available(layer), 0);
        for node in path {
            let cell = node.quota(pair);
            height = node.height;
            if cell.subtree_quota >= cell.usage(layer) + remaining {
                return (height, node.parent.is_some());
            }
            remaining -= cell.local_quota_available(layer);
        }
        (height, false)
    }

    /// The node above.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.node(node).filter(|node| !node.cyclic).and_then(|node| node.parent)
    }

    /// The nodes below.
    pub fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.node(node).into_iter().flat_map(|node| node.children.iter().copied())
    }

    /// The root above a node: itself without a cohort, or on a cycle.
    pub fn root(&self, node: NodeId) -> NodeId {
        self.path_to_root(node).last().map_or(node, |node| node.id)
    }

    /// Whether the way up ends in a cycle; then the cohort by which the queue hangs on it.
    pub fn cycle_above(&self, queue: &str) -> Option<&NodeRef> {
        let node = self.node(self.leaf(queue)?).filter(|node| node.cyclic)?;
        node.parent.and_then(|parent| self.node(parent)).map(|parent| &parent.name)
    }

    /// Name of a node.
    pub fn name(&self, node: NodeId) -> Option<&NodeRef> {
        self.node(node).map(|node| &node.name)
    }

    /// Names from the root down to a node, as `/root/cohort/queue`.
    pub fn path_of(&self, node: NodeId) -> String {
        let mut names: Vec<&str> = self.path_to_root(node).map(|node| node.name.as_str()).collect();
        names.push("");
        names.reverse();
        names.join("/")
    }

    /// What a node owns and uses, by flavor and resource.
    pub fn usage(&self, name: &NodeRef) -> BTreeMap<FlavorResource, NodeUsage> {
        let Some(node) = self.find(name).and_then(|id| self.node(id)) else {
            return BTreeMap::new();
        };
        let held =
            node.quotas.iter().filter(|(_, cell)| cell.declared || cell.usage(UsageLayer::Current) != 0);
        let pairs: BTreeSet<FlavorResourceId> =
            node.limits.keys().copied().chain(held.map(|(pair, _)| pair)).collect();
        let figures = |pair: FlavorResourceId| {
            let cell = node.quota(pair);
            NodeUsage {
                limits: node.limits.get(&pair).copied().unwrap_or_default(),
                subtree_quota: Amount::saturating_from_i128(cell.subtree_quota),
                usage: Amount::saturating_from_i128(cell.usage(UsageLayer::Current)),
            }
        };
        let named = |pair| Some((self.fr_name(pair)?.clone(), figures(pair)));
        pairs.into_iter().filter_map(named).collect()
    }

    /// All nodes with their parents, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeRef, Option<&NodeRef>)> {
        self.ids.iter().filter_map(|(name, id)| {
            let parent = self.node(*id)?.parent.and_then(|p| self.node(p));
            Some((name, parent.map(|p| &p.name)))
        })
    }
}

/// What a node lets through beside what it keeps locally, with usage as it is.
fn current_headroom(
    pair: FlavorResourceId,
    layer: UsageLayer,
) -> impl Fn(&Node, bool) -> (Option<i128>, i128) {
    move |node, is_root| {
        let cell = node.quota(pair);
        let local = cell.local_quota_available(layer);
        let root = || cell.subtree_quota - cell.usage(layer);
        let own = if is_root { Some(root()) } else { cell.borrowable(layer).map(|limit| local + limit) };
        (own, local)
    }
}

/// The same if nothing were in use.
fn potential_headroom(pair: FlavorResourceId) -> impl Fn(&Node, bool) -> (Option<i128>, i128) {
    move |node, is_root| {
        let cell = node.quota(pair);
        let own = if is_root { Some(0) } else { cell.borrowing_limit };
        (own.map(|own| cell.subtree_quota + own), cell.local_quota)
    }
}

fn bottleneck(node: &Node, pair: FlavorResourceId) -> Bottleneck {
    let cell = node.quota(pair);
    let borrowing = cell.borrowing_limit.filter(|_| node.parent.is_some()).unwrap_or(0);
    Bottleneck {
        node: node.name.clone(),
        limit: Amount::saturating_from_i128(cell.subtree_quota + borrowing),
    }
}
