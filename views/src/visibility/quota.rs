//! Quota and usage of nodes of the quota tree, from the published view of the queues.
//!
//! Invariants: the headroom of a node is the one of the engine's tree; quota is conserved at each cohort, for each
//! flavor-resource: *borrowed(children) + lent(cohort) = lent(children) + lent(own quota) + borrowed(cohort)*.

mod lending;
mod pairs;

pub(super) use lending::Lending;
pub(super) use pairs::{Pair, pairs};

use super::amounts::{amount_view, limit_view};
use super::views::{AmountView, QuotaView, ShareView};
use crate::quota::{FlavorResource, NodeRef, NodeUsage, PathHeadroom};
use crate::resources::{Amount, to_f64};
use crate::snapshot::{QueueFacts, QueueView, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The quota tree of a snapshot.
#[derive(Clone, Copy)]
pub(super) struct PublishedQuota<'a> {
    queues: &'a QueueView,
    pub(super) facts: &'a QueueFacts,
}

impl<'a> PublishedQuota<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self { queues: &snapshot.queues, facts: &snapshot.facts }
    }

    fn parent(self, node: &NodeRef) -> Option<&'a Arc<str>> {
        match node {
            NodeRef::ClusterQueue(name) => self.queues.cluster_queues.get(name)?.parent.as_ref(),
            NodeRef::Cohort(name) => self.queues.cohorts.get(name)?.parent.as_ref(),
        }
    }

    fn usages(self, node: &NodeRef) -> Option<&'a BTreeMap<FlavorResource, NodeUsage>> {
        match node {
            NodeRef::ClusterQueue(name) => {
                self.queues.cluster_queues.get(name).map(|queue| &queue.usage_by_flavor_resource)
            }
            NodeRef::Cohort(name) => {
                self.queues.cohorts.get(name).map(|cohort| &cohort.usage_by_flavor_resource)
            }
        }
    }

    pub(super) fn usage(self, node: &NodeRef, fr: &FlavorResource) -> NodeUsage {
        self.usages(node).and_then(|all| all.get(fr)).copied().unwrap_or_default()
    }

    /// Returns the amount that a node borrows.
    pub(super) fn borrowed(self, node: &NodeRef, fr: &FlavorResource) -> i128 {
        self.usage(node, fr).borrowed(self.parent(node).is_some()).to_i128()
    }

    /// Returns the flavor-resources in which a node borrows.
    pub(super) fn borrowing(self, node: &NodeRef) -> BTreeSet<&'a FlavorResource> {
        let has_parent = self.parent(node).is_some();
        let borrows = |(_, usage): &(&FlavorResource, &NodeUsage)| usage.borrowed(has_parent) > Amount::ZERO;
        self.usages(node).into_iter().flatten().filter(borrows).map(|(fr, _)| fr).collect()
    }

    /// Returns the nodes from this one to its root; `None` if its parents form a cycle.
    pub(super) fn path(self, node: &NodeRef) -> Option<Vec<NodeRef>> {
        let (mut path, mut seen) = (vec![node.clone()], BTreeSet::from([node.clone()]));
        let mut next = self.parent(node);
        while let Some(name) = next {
            let parent = NodeRef::Cohort(Arc::clone(name));
            if !seen.insert(parent.clone()) {
                return None;
            }
            next = self.parent(&parent);
            path.push(parent);
        }
        Some(path)
    }

    /// Returns the headroom of a node, and the node whose limit binds; zero below a cycle.
    pub(super) fn headroom(self, node: &NodeRef, fr: &FlavorResource) -> (PathHeadroom, NodeRef) {
        let Some(path) = self.path(node) else { return (PathHeadroom::default(), node.clone()) };
        let usages: Vec<NodeUsage> = path.iter().map(|node| self.usage(node, fr)).collect();
        let headroom = PathHeadroom::of_path(&usages);
        let binding = path.get(headroom.binding).unwrap_or(node).clone();
        (headroom, binding)
    }

    /// Returns what the limit of each node from this one to its root leaves, the least first.
    pub(super) fn limits(self, node: &NodeRef, fr: &FlavorResource) -> Vec<(NodeRef, i128)> {
        let Some(path) = self.path(node) else { return Vec::new() };
        let usages: Vec<NodeUsage> = path.iter().map(|node| self.usage(node, fr)).collect();
        let limits = PathHeadroom::limits(&usages).into_iter();
        limits.filter_map(|(index, headroom)| Some((path.get(index)?.clone(), headroom))).collect()
    }

    /// Returns whether a node has a quota of a flavor-resource, even 0.
    pub(super) fn declares(self, node: &NodeRef, fr: &FlavorResource) -> bool {
        match node {
            NodeRef::ClusterQueue(name) => {
                self.facts.cluster_queues.get(name).is_some_and(|facts| facts.order.contains(fr))
            }
            NodeRef::Cohort(_) => self.usages(node).is_some_and(|usages| usages.contains_key(fr)),
        }
    }

    /// Returns the flavors with which a ClusterQueue has a quota of a resource.
    pub(super) fn flavors_of(self, queue: &NodeRef, resource: &str) -> Vec<FlavorResource> {
        let facts = self.facts.cluster_queues.get(queue.as_str());
        let order = facts.into_iter().flat_map(|facts| &facts.order);
        order.filter(|fr| *fr.resource == *resource).cloned().collect()
    }

    /// Returns the maximum usage of a node: its subtree quota, and its borrowing limit below a parent; `None` for an unknown node.
    pub(super) fn node_limit(self, node: &NodeRef, fr: &FlavorResource) -> Option<AmountView> {
        self.usages(node)?;
        let usage = self.usage(node, fr);
        let borrowing = usage.limits.borrowing_limit.filter(|_| self.parent(node).is_some());
        let limit = usage.subtree_quota.to_i128() + borrowing.map_or(0, Amount::to_i128);
        Some(limit_view(&self.facts.units, node, fr, limit))
    }

    /// Returns the flavor-resources of a node: first the ones of its spec, in their order, then the ones that occur only in its
    /// subtree or its usage.
    fn flavor_resources(self, node: &NodeRef) -> Vec<FlavorResource> {
        let of_spec = match node {
            NodeRef::ClusterQueue(name) => self.facts.cluster_queues.get(name).map(|facts| &facts.order),
            NodeRef::Cohort(_) => None,
        };
        let mut all: Vec<FlavorResource> = of_spec.cloned().unwrap_or_default();
        let known: BTreeSet<FlavorResource> = all.iter().cloned().collect();
        let others = self.usages(node).into_iter().flatten().map(|(fr, _)| fr);
        all.extend(others.filter(|fr| !known.contains(*fr)).cloned());
        all
    }

    /// Returns quota and usage of a node.
    pub(super) fn views(self, node: &NodeRef, lending: &Lending, sums: &Sums) -> Vec<QuotaView> {
        let has_parent = self.parent(node).is_some();
        let units = &self.facts.units;
        let view = |fr: FlavorResource| {
            let (usage, (headroom, _)) = (self.usage(node, &fr), self.headroom(node, &fr));
            let amount = |amount: i128| amount_view(units, node, &fr, amount);
            let limit = |limit: i128| limit_view(units, node, &fr, limit);
            let limits = usage.limits;
            let (nominal, used) = match node {
                NodeRef::ClusterQueue(_) => (limits.nominal.to_i128(), usage.usage.to_i128()),
                NodeRef::Cohort(_) => sums.get(node, &fr),
            };
            QuotaView {
                nominal: limit(nominal),
                used: amount(used),
                borrowed: amount(usage.borrowed(has_parent).to_i128()),
                lent: has_parent.then(|| amount(lending.lent(node, &fr))),
                borrowing_limit: limits.borrowing_limit.filter(|_| has_parent).map(|a| limit(a.to_i128())),
                lending_limit: limits.lending_limit.filter(|_| has_parent).map(|a| limit(a.to_i128())),
                limit: limit(headroom.potential.max(0)),
                available: limit(headroom.available.max(0)),
                flavor: fr.flavor.to_string(),
                resource: fr.resource.to_string(),
            }
        };
        self.flavor_resources(node).into_iter().map(view).collect()
    }

    /// Returns the share of a node, if fair sharing is on.
    pub(super) fn share(self, node: &NodeRef, value: Option<i64>) -> Option<ShareView> {
        let strategies = self.facts.fair_sharing.as_ref()?;
        let weight = match node {
            NodeRef::ClusterQueue(name) => self.facts.cluster_queues.get(name).map(|facts| &facts.weight),
            NodeRef::Cohort(name) => self.facts.cohorts.get(name).map(|facts| &facts.weight),
        };
        Some(ShareView {
            value: value?,
            weight: weight.cloned().unwrap_or_else(|| "1".to_owned()),
            dominant_resource: self.dominant_resource(node),
            next: None,
            strategies: strategies.iter().map(|&name| name.to_owned()).collect(),
        })
    }

    /// Returns the resource that determines the share: the one with the greatest borrowed part of the parent's lendable quota.
    fn dominant_resource(self, node: &NodeRef) -> Option<String> {
        let path = self.path(node)?;
        let parent = path.get(1)?;
        let mut borrowed: BTreeMap<&Arc<str>, i128> = BTreeMap::new();
        for (fr, usage) in self.usages(node)? {
            *borrowed.entry(&fr.resource).or_default() += usage.borrowed(true).to_i128();
        }
        let ratio = |resource: &Arc<str>, amount: i128| {
            let of_resource = self.usages(parent).into_iter().flatten().map(|(fr, _)| fr);
            let of_resource = of_resource.filter(|fr| fr.resource == *resource);
            let lendable: i128 = of_resource.map(|fr| self.headroom(parent, fr).0.potential).sum();
            if lendable > 0 { to_f64(amount) / to_f64(lendable) } else { 0.0 }
        };
        let borrowing = borrowed.into_iter().filter(|(_, amount)| *amount > 0);
        let ratios = borrowing.map(|(resource, amount)| (ratio(resource, amount), resource));
        let highest = ratios.filter(|(ratio, _)| *ratio > 0.0).max_by(|a, b| a.0.total_cmp(&b.0));
        highest.map(|(_, resource)| resource.to_string())
    }
}

/// Children of each cohort.
#[derive(Clone, Debug, Default)]
pub(super) struct Children(BTreeMap<Arc<str>, Vec<NodeRef>>);

impl Children {
    /// Collects the children: cohorts first, each by name.
    pub(super) fn of(queues: &QueueView) -> Self {
        let mut all: BTreeMap<Arc<str>, Vec<NodeRef>> = BTreeMap::new();
        let cohorts = queues
            .cohorts
            .iter()
            .map(|(name, cohort)| (cohort.parent.as_ref(), NodeRef::Cohort(Arc::clone(name))));
        let leaves = queues
            .cluster_queues
            .iter()
            .map(|(name, queue)| (queue.parent.as_ref(), NodeRef::ClusterQueue(Arc::clone(name))));
        for (parent, child) in cohorts.chain(leaves) {
            if let Some(parent) = parent {
                all.entry(Arc::clone(parent)).or_default().push(child);
            }
        }
        Self(all)
    }

    pub(super) fn of_cohort(&self, name: &str) -> &[NodeRef] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Calls `visit` with each ClusterQueue below a cohort. Terminates even if parents form a cycle.
    pub(super) fn each_leaf<'a>(&'a self, cohort: &str, mut visit: impl FnMut(&'a Arc<str>)) {
        let (mut open, mut seen) = (vec![cohort], BTreeSet::new());
        while let Some(name) = open.pop() {
            for child in self.0.get(name).into_iter().flatten() {
                match child {
                    NodeRef::ClusterQueue(name) => visit(name),
                    NodeRef::Cohort(name) if seen.insert(name) => open.push(name),
                    NodeRef::Cohort(_) => {}
                }
            }
        }
    }
}

/// Nominal quota and usage of the subtree of each cohort, added up without limits between its nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums(BTreeMap<(NodeRef, FlavorResource), (i128, i128)>);

impl Sums {
    /// Adds up quotas and usages along the paths to the roots. Nodes below a cycle are left out.
    pub(super) fn of(quota: PublishedQuota<'_>) -> Self {
        let mut sums = Self::default();
        let cohorts = quota.queues.cohorts.keys().map(|name| NodeRef::Cohort(Arc::clone(name)));
        let leaves = quota.queues.cluster_queues.keys().map(|name| NodeRef::ClusterQueue(Arc::clone(name)));
        for node in cohorts.chain(leaves) {
            let is_leaf = matches!(node, NodeRef::ClusterQueue(_));
            let above: Vec<NodeRef> = quota.path(&node).unwrap_or_default();
            for (fr, usage) in quota.usages(&node).into_iter().flatten() {
                for cohort in above.iter().filter(|node| matches!(node, NodeRef::Cohort(_))) {
                    let sum = sums.0.entry((cohort.clone(), fr.clone())).or_default();
                    sum.0 = sum.0.saturating_add(usage.limits.nominal.to_i128());
                    sum.1 = sum.1.saturating_add(if is_leaf { usage.usage.to_i128() } else { 0 });
                }
            }
        }
        sums
    }

    /// Returns nominal quota and usage of a cohort's subtree.
    pub(super) fn get(&self, node: &NodeRef, fr: &FlavorResource) -> (i128, i128) {
        self.0.get(&(node.clone(), fr.clone())).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::{FlavorQuotas, NodeConfig, QuotaLimits, QuotaTree, ResourceGroup};
    use crate::resources::UsageLayer;
    use crate::snapshot::{ClusterQueueView, CohortView};
    use proptest::prelude::*;

    /// Members of a tree: cohorts `c0` (the root) to `c2`, and ClusterQueues `q0` to `q4` below them, of one flavor-resource.
    #[derive(Clone, Debug)]
    struct Member {
        parent: Option<usize>,
        limits: QuotaLimits,
        usage: i64,
    }

    fn limits() -> impl Strategy<Value = QuotaLimits> {
        let limit = || prop::option::of((0_i64..30).prop_map(Amount::new));
        (0_i64..40, limit(), limit()).prop_map(|(nominal, borrowing_limit, lending_limit)| QuotaLimits {
            nominal: Amount::new(nominal),
            borrowing_limit,
            lending_limit,
        })
    }

    fn members() -> impl Strategy<Value = Vec<Member>> {
        let member = (0_usize..3, limits(), 0_i64..60);
        prop::collection::vec(member, 8).prop_map(|all| {
            let member = |(index, (parent, limits, usage)): (usize, (usize, QuotaLimits, i64))| {
                let parent =
                    if index < 3 { index.checked_sub(1).map(|last| parent.min(last)) } else { Some(parent) };
                Member { parent, limits, usage }
            };
            all.into_iter().enumerate().map(member).collect()
        })
    }

    fn node_of(index: usize) -> NodeRef {
        if index < 3 {
            NodeRef::Cohort(format!("c{index}").into())
        } else {
            NodeRef::ClusterQueue(format!("q{index}").into())
        }
    }

    fn fr() -> FlavorResource {
        FlavorResource::new("f", "gpu")
    }

    fn build(members: &[Member]) -> (QuotaTree, Snapshot) {
        let (mut tree, mut snapshot) = (QuotaTree::default(), Snapshot::default());
        for (index, member) in members.iter().enumerate() {
            let limits = [(Arc::from("gpu"), member.limits)].into();
            let groups = [ResourceGroup::from_flavors(vec![FlavorQuotas { name: Arc::from("f"), limits }])];
            let parent = member.parent.map(|parent| format!("c{parent}"));
            let config = NodeConfig { parent: parent.as_deref(), groups: &groups, weight: 1.0 };
            tree.configure(&node_of(index), Some(config));
        }
        for (index, member) in members.iter().enumerate().skip(3) {
            let (leaf, id) = (tree.ensure_leaf(node_of(index).as_str()), tree.ensure_fr(&fr()));
            tree.add_usage(leaf, &vec![(id, member.usage.into())], &[UsageLayer::Current]);
        }
        let queues = Arc::make_mut(&mut snapshot.queues);
        for (index, member) in members.iter().enumerate() {
            let (node, parent) =
                (node_of(index), member.parent.map(|parent| Arc::from(format!("c{parent}"))));
            let usage_by_flavor_resource = tree.usage(&node);
            match node {
                NodeRef::Cohort(name) => {
                    queues.cohorts.insert(
                        name,
                        CohortView { parent, usage_by_flavor_resource, ..CohortView::default() },
                    );
                }
                NodeRef::ClusterQueue(name) => {
                    let view =
                        ClusterQueueView { parent, usage_by_flavor_resource, ..ClusterQueueView::default() };
                    queues.cluster_queues.insert(name, view);
                }
            }
        }
        (tree, snapshot)
    }

    proptest! {
        #[test]
        fn headroom_is_that_of_the_engine(members in members()) {
            let (tree, snapshot) = build(&members);
            let (quota, id) = (PublishedQuota::of(&snapshot), tree.fr_id(&fr()).unwrap());
            for index in 0..members.len() {
                let node = node_of(index);
                let tree_node = tree.find(&node).unwrap();
                let (headroom, binding) = quota.headroom(&node, &fr());
                prop_assert_eq!(headroom.available, tree.available(tree_node, id, UsageLayer::Current));
                prop_assert_eq!(headroom.potential, tree.potential_available(tree_node, id));
                let bottleneck = tree.current_bottleneck(tree_node, id, UsageLayer::Current).unwrap();
                prop_assert_eq!(binding, bottleneck.node);
            }
        }

        #[test]
        fn pairs_add_up_to_what_is_lent_and_borrowed(members in members()) {
            let (_, snapshot) = build(&members);
            let (quota, children) = (PublishedQuota::of(&snapshot), Children::of(&snapshot.queues));
            let lending = Lending::of(quota, &children);
            let all = pairs(quota, &children, &lending);
            prop_assert!(all.iter().all(|pair| pair.amount > 0 && pair.lender != pair.borrower));
            let mut unserved = 0;
            for index in 0..members.len() {
                let node = node_of(index);
                let sum = |is_of: &dyn Fn(&Pair) -> bool| -> i128 {
                    all.iter().filter(|pair| is_of(pair)).map(|pair| pair.amount).sum()
                };
                let lent = match &node {
                    NodeRef::ClusterQueue(_) => lending.lent(&node, &fr()),
                    NodeRef::Cohort(_) => lending.own(&node, &fr()),
                };
                prop_assert_eq!(sum(&|pair| pair.lender == node), lent);
                let has = sum(&|pair| pair.borrower == node);
                match &node {
                    NodeRef::ClusterQueue(_) => {
                        let left = quota.usage(&node, &fr()).borrowed(true).to_i128() - has;
                        prop_assert!(left >= 0, "{left}");
                        unserved += left;
                    }
                    NodeRef::Cohort(_) => prop_assert_eq!(has, 0),
                }
            }
            // What the root uses beyond its quota is lent by no node.
            let beyond = quota.usage(&node_of(0), &fr()).borrowed(true).to_i128();
            prop_assert_eq!(unserved, beyond);
        }

        #[test]
        fn borrowed_quota_is_lent(members in members()) {
            let (_, snapshot) = build(&members);
            let (quota, children) = (PublishedQuota::of(&snapshot), Children::of(&snapshot.queues));
            let lending = Lending::of(quota, &children);
            for cohort in 0..3 {
                let node = node_of(cohort);
                let below = children.of_cohort(node.as_str());
                let usage = |node: &NodeRef| quota.usage(node, &fr());
                let borrowed: i128 = below.iter().map(|child| usage(child).borrowed(true).to_i128()).sum();
                let lent: i128 = below.iter().map(|child| lending.lent(child, &fr())).sum();
                let supply = lending.lent(&node, &fr()) + borrowed - usage(&node).borrowed(true).to_i128();
                // The cohort's own quota lends the rest.
                let own = supply - lent;
                prop_assert!(0 <= own && own <= usage(&node).limits.nominal.to_i128(), "{own} of {supply}");
                for child in below {
                    prop_assert!(lending.lent(child, &fr()) <= usage(child).unused_lendable());
                }
            }
        }
    }

    #[test]
    fn lent_quota_is_divided_by_what_can_be_lent() {
        // The example of the command line: vision lends to nlp, interns and beyond.
        let quota = |nominal, borrowing: Option<i64>, lending: Option<i64>| QuotaLimits {
            nominal: Amount::new(nominal),
            borrowing_limit: borrowing.map(Amount::new),
            lending_limit: lending.map(Amount::new),
        };
        let member = |parent, limits, usage| Member { parent, limits, usage };
        let members = [
            member(None, quota(0, None, None), 0),
            member(Some(0), quota(0, None, None), 0),
            member(Some(0), quota(0, None, None), 0),
            member(Some(1), quota(0, Some(16), None), 8),
            member(Some(1), quota(128, Some(64), None), 184),
            member(Some(1), quota(64, None, None), 16),
            member(Some(2), quota(96, Some(48), None), 40),
            member(Some(2), quota(32, None, Some(8)), 16),
        ];
        let (_, snapshot) = build(&members);
        let (quota, children) = (PublishedQuota::of(&snapshot), Children::of(&snapshot.queues));
        let lending = Lending::of(quota, &children);
        let lent: Vec<i128> = (1..8).map(|index| lending.lent(&node_of(index), &fr())).collect();
        assert_eq!(lent, [0, 16, 0, 0, 48, 14, 2]);
        let all = pairs(quota, &children, &lending);
        let all: Vec<(&str, &str, i128)> =
            all.iter().map(|pair| (pair.borrower.as_str(), pair.lender.as_str(), pair.amount)).collect();
        assert_eq!(all, [("q3", "q5", 8), ("q4", "q5", 40), ("q4", "q6", 14), ("q4", "q7", 2)]);
        let sums = Sums::of(quota);
        let of_cohorts: Vec<(i128, i128)> = (0..3).map(|index| sums.get(&node_of(index), &fr())).collect();
        assert_eq!(of_cohorts, [(320, 264), (192, 208), (128, 56)]);
    }
}
