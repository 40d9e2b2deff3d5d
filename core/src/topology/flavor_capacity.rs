//! What the nodes of a flavor have, what is free on them, and how many pods would be placed within one domain.
//!
//! Invariants: the number of pods of a level is what a placement finds: that many are placed, one more is not; asking changes
//! nothing but cached counts; a flavor without a tree is counted node by node.

use super::counts::ResourceNeed;
use super::filter::find_exclusion;
use super::leaf_capacity::{CapacityKey, CapacityView, LeafCapacity};
use super::place::{PlacementRequest, PriorPlacement, TasPodSetRequest};
use super::pod_requirements::{DomainPath, HOSTNAME_LABEL, PodRequirements};
use super::resource_vector::{amount_at, fit_count};
use super::tas_cache::{NodeEntry, TasCache};
use super::tree::{Domain, DomainLayout};
use super::{FlavorSpec, TasGates};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is free: neither used now nor reserved.
const VIEW: CapacityView = CapacityView::AvailableNow;

/// A flavor whose nodes are asked about; its topology is empty if it has none.
#[derive(Clone, Copy, Debug)]
pub struct AskedFlavor<'a> {
    /// Its name.
    pub name: &'a Arc<str>,
    /// Labels of its nodes, and what it adds to pods.
    pub spec: &'a FlavorSpec,
}

/// What the nodes of a flavor have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAmounts {
    /// Number of nodes with the labels of the flavor.
    pub total: usize,
    /// Number of those that are ready, not cordoned and, with a topology, have all its levels.
    pub schedulable: usize,
    /// Number of those without a label of the topology.
    pub without_level: usize,
    /// Amounts of the schedulable nodes by resource.
    pub amounts: BTreeMap<Arc<str>, NodeAmount>,
}

/// Amounts of one resource on schedulable nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeAmount {
    /// Their allocatable amount.
    pub allocatable: i128,
    /// The allocatable amount of the node with the most.
    pub largest: i128,
    /// What pods outside topology assignments use.
    pub others: i128,
    /// What is free.
    pub free: i128,
}

/// What fits within one domain of a level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelCapacity {
    /// Label of the level; empty for anywhere.
    pub level: Arc<str>,
    /// Number of its domains.
    pub domains: usize,
    /// The most that is free in one of them, of one resource, on nodes that take the pods.
    pub most_free: i128,
    /// Values of the first domain with that much, widest first; empty for anywhere.
    pub location: Vec<Arc<str>>,
    /// Number of further domains with that much.
    pub more: usize,
    /// Most pods that are placed within one domain.
    pub gang: i64,
    /// What keeps one more from being placed there.
    pub limit: CapacityLimit,
}

/// What keeps one more pod from being placed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CapacityLimit {
    /// There are no nodes.
    #[default]
    NoNodes,
    /// No node takes the pods.
    Excluded,
    /// There is not enough of a resource.
    Resource(Arc<str>),
}

/// A host, or a narrowest domain, of a topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafView {
    /// Its values, widest first.
    pub values: DomainPath,
    /// What is free of one resource; 0 if it is not schedulable.
    pub free: i128,
    /// The allocatable amount of it, without what pods outside topology assignments use.
    pub capacity: i128,
    /// Whether it is ready and not cordoned.
    pub schedulable: bool,
}

fn requirements_of(flavor: AskedFlavor<'_>, pods: &Arc<PodRequirements>) -> TasPodSetRequest {
    TasPodSetRequest {
        flavor: Arc::clone(flavor.name),
        pods: Arc::clone(pods),
        count: 1,
        group: None,
        name: Arc::from(""),
        prior: PriorPlacement::None,
    }
}

impl TasCache {
    /// Returns what the nodes of a flavor have.
    pub fn node_amounts(&mut self, flavor: AskedFlavor<'_>) -> NodeAmounts {
        let tree = self.trees.get(flavor.name);
        let mut sums = NodeAmounts::default();
        for (name, entry) in &self.nodes {
            let labels = &entry.spec.labels;
            if !flavor.spec.node_labels.iter().all(|(key, value)| labels.get(key) == Some(value)) {
                continue;
            }
            sums.total = sums.total.saturating_add(1);
            if tree.is_some_and(|tree| tree.path_of(labels).is_none()) {
                sums.without_level = sums.without_level.saturating_add(1);
                continue;
            }
            if !entry.spec.usable {
                continue;
            }
            sums.schedulable = sums.schedulable.saturating_add(1);
            for (resource, allocatable) in &entry.spec.allocatable {
                let sum = sums.amounts.entry(Arc::clone(resource)).or_default();
                let amount = allocatable.to_i128();
                sum.allocatable = sum.allocatable.saturating_add(amount);
                sum.largest = sum.largest.max(amount);
                sum.others = sum.others.saturating_add(self.non_tas_amount(name, resource));
                if tree.is_none() {
                    sum.free = sum.free.saturating_add(self.free_on(name, entry, resource).max(0));
                }
            }
        }
        if let Some(layout) = self.trees.get_mut(flavor.name).map(super::tree::TopologyTree::layout) {
            for (resource, sum) in &mut sums.amounts {
                let index = self.resource_names.index(resource);
                let leaves = layout.capacity_ids.iter().filter_map(|id| self.leaf_capacities.get(*id));
                sum.free = leaves.map(|leaf| leaf.free(index, VIEW).max(0)).sum();
            }
        }
        sums
    }

    /// Returns what fits within one domain of each level of the flavor's topology, and anywhere. `shown` is the resource of which the
    /// free amount is reported.
    pub fn level_capacities(
        &mut self,
        flavor: AskedFlavor<'_>,
        pods: &Arc<PodRequirements>,
        shown: &Arc<str>,
    ) -> Vec<LevelCapacity> {
        let shown_index = self.resource_names.index(shown);
        let pod_set = requirements_of(flavor, pods);
        let request = PlacementRequest::new(&pod_set, None);
        let Ok((layout, counts)) = self.count(&request, VIEW, TasGates::default()) else {
            return vec![self.anywhere_by_node(flavor, pods, shown)];
        };
        let levels = self.trees.get(flavor.name).map(|tree| Arc::clone(&tree.levels)).unwrap_or_default();
        let leaves = Leaves { cache: self, layout: &layout, excluded: &counts.excluded_leaves };
        let narrowest_first = levels.iter().enumerate().rev();
        let mut all: Vec<LevelCapacity> = narrowest_first
            .map(|(level, label)| {
                let domains = layout.levels.get(level).map(Vec::as_slice).unwrap_or_default();
                let fits = counts.fits.level(level).iter().map(|fit| fit.pods);
                let found = leaves.largest(domains, fits, &counts.needs);
                let mut of_level = leaves.most_free(domains, (level, shown_index));
                (of_level.level, of_level.gang, of_level.limit) = (Arc::clone(label), found.0, found.1);
                of_level
            })
            .collect();
        let everywhere = Domain { children: 0..0, leaves: 0..layout.paths.len() };
        let sum = counts.fits.level(0).iter().fold(0, |sum: i64, fit| sum.saturating_add(fit.pods));
        let (gang, limit) =
            leaves.largest(std::slice::from_ref(&everywhere), std::iter::once(sum), &counts.needs);
        let most_free = leaves.free(&everywhere, shown_index);
        all.push(LevelCapacity { domains: 1, most_free, gang, limit, ..LevelCapacity::default() });
        self.count_cache.insert(counts);
        all
    }

    /// Returns the hosts or narrowest domains of a flavor's topology in order, at most `most` of them; those that are not schedulable
    /// come last.
    pub fn leaf_views(&mut self, flavor: AskedFlavor<'_>, shown: &Arc<str>, most: usize) -> Vec<LeafView> {
        let index = self.resource_names.index(shown);
        let Some(tree) = self.trees.get_mut(flavor.name) else { return Vec::new() };
        let layout = tree.layout();
        let leaves = layout.paths.iter().zip(&layout.capacity_ids);
        let view = |(path, id): (&DomainPath, &usize)| {
            let leaf = self.leaf_capacities.get(*id)?;
            let capacity = amount_at(&leaf.capacity, index);
            Some(LeafView {
                values: Arc::clone(path),
                free: leaf.free(index, VIEW).max(0),
                capacity,
                schedulable: true,
            })
        };
        let mut all: Vec<LeafView> = leaves.filter_map(view).take(most).collect();
        let unusable = self.nodes.values().filter(|entry| !entry.spec.usable);
        let paths = unusable.filter_map(|entry| {
            let capacity = entry.spec.allocatable.get(shown).map_or(0, |amount| amount.to_i128());
            Some(LeafView {
                values: tree.path_of(&entry.spec.labels)?,
                free: 0,
                capacity,
                schedulable: false,
            })
        });
        let left = most.saturating_sub(all.len());
        all.extend(paths.take(left));
        all
    }

    /// Returns the values of a host at every level of a flavor's topology, the widest level first. `None` if the topology does not end
    /// with hosts, or no node of the flavor is this host.
    pub fn path_of_host(&self, flavor: &str, host: &Arc<str>) -> Option<DomainPath> {
        let tree = self.trees.get(flavor).filter(|tree| tree.is_by_host())?;
        let id = self.leaf_capacities.find(&CapacityKey::Host(Arc::clone(host)));
        let claimed = id.and_then(|id| tree.claimed_path(id)).cloned();
        // A node that is cordoned or not ready has no capacity; it is found where its name is that of its host.
        claimed.or_else(|| tree.path_of(&self.nodes.get(host)?.spec.labels))
    }

    /// Returns what pods outside topology assignments use on a node.
    fn non_tas_amount(&self, node: &str, resource: &Arc<str>) -> i128 {
        let usage = self.non_tas_usage_of(node);
        self.resource_names.find(resource).map_or(0, |index| amount_at(usage, index))
    }

    /// Returns what is free on a node of a flavor without a tree: what pods use, and what workloads with a topology were assigned.
    pub(super) fn free_on(&self, name: &Arc<str>, entry: &NodeEntry, resource: &Arc<str>) -> i128 {
        let host =
            entry.spec.labels.get(HOSTNAME_LABEL).map_or_else(|| Arc::clone(name), |host| Arc::from(&**host));
        let leaf = self.leaf_capacities.find(&CapacityKey::Host(host));
        let leaf = leaf.and_then(|id| self.leaf_capacities.get(id));
        let index = self.resource_names.find(resource);
        let assigned = index.zip(leaf).map_or(0, |(index, leaf)| {
            amount_at(&leaf.current_usage, index).max(amount_at(&leaf.projected_usage, index))
        });
        let allocatable = entry.spec.allocatable.get(resource).map_or(0, |amount| amount.to_i128());
        allocatable - self.non_tas_amount(name, resource) - assigned
    }

    /// Counts the pods that fit on each node of a flavor without a tree.
    fn anywhere_by_node(
        &mut self,
        flavor: AskedFlavor<'_>,
        pods: &Arc<PodRequirements>,
        shown: &Arc<str>,
    ) -> LevelCapacity {
        let needs = self.resource_names.pod_requests(&pods.requests);
        let named: Vec<(Arc<str>, i128)> =
            needs.iter().map(|(index, need)| (Arc::from(self.resource_names.name(*index)), *need)).collect();
        let mut found = LevelCapacity { domains: 1, ..LevelCapacity::default() };
        let mut alone: Vec<i64> = vec![0; named.len()];
        for (name, entry) in &self.nodes {
            let spec = &entry.spec;
            let is_own =
                flavor.spec.node_labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value));
            if !is_own || !spec.usable {
                continue;
            }
            let tolerations = &flavor.spec.tolerations;
            if find_exclusion(pods, tolerations, name, &spec.labels, &spec.taints).is_some() {
                if found.limit == CapacityLimit::NoNodes {
                    found.limit = CapacityLimit::Excluded;
                }
                continue;
            }
            found.most_free = found.most_free.saturating_add(self.free_on(name, entry, shown).max(0));
            let mut fits = i64::MAX;
            for ((resource, need), sum) in named.iter().zip(&mut alone) {
                let fit = fit_count(self.free_on(name, entry, resource), *need);
                (fits, *sum) = (fits.min(fit), sum.saturating_add(fit));
            }
            found.gang = found.gang.saturating_add(fits);
            let scarcest = named.iter().zip(&alone).min_by_key(|(_, sum)| **sum);
            found.limit = scarcest
                .map_or(CapacityLimit::NoNodes, |((name, _), _)| CapacityLimit::Resource(Arc::clone(name)));
        }
        found
    }
}

/// The narrowest domains of a topology, and which of them take the pods.
struct Leaves<'a> {
    cache: &'a TasCache,
    layout: &'a DomainLayout,
    excluded: &'a [bool],
}

impl<'a> Leaves<'a> {
    /// Returns the leaves of a domain that take the pods.
    fn of(&self, domain: &Domain) -> impl Iterator<Item = &'a LeafCapacity> {
        let ids = self.layout.capacity_ids.iter().zip(self.excluded);
        let count = domain.leaves.end.saturating_sub(domain.leaves.start);
        let taken = ids.skip(domain.leaves.start).take(count).filter(|(_, excluded)| !**excluded);
        let cache = self.cache;
        taken.filter_map(move |(id, _)| cache.leaf_capacities.get(*id)).collect::<Vec<_>>().into_iter()
    }

    fn free(&self, domain: &Domain, resource: usize) -> i128 {
        self.of(domain).map(|leaf| leaf.free(resource, VIEW).max(0)).sum()
    }

    /// Returns the domain with the most of a resource.
    fn most_free(&self, domains: &[Domain], (level, resource): (usize, usize)) -> LevelCapacity {
        let mut found = LevelCapacity { domains: domains.len(), ..LevelCapacity::default() };
        for (index, domain) in domains.iter().enumerate() {
            let free = self.free(domain, resource);
            if index > 0 && free == found.most_free {
                found.more = found.more.saturating_add(1);
            } else if index == 0 || free > found.most_free {
                let path = self.layout.paths.get(domain.leaves.start);
                let values = path.into_iter().flat_map(|path| path.iter()).take(level.saturating_add(1));
                (found.most_free, found.more, found.location) = (free, 0, values.cloned().collect());
            }
        }
        found
    }

    /// Returns the most pods that fit within one domain, and the resource of which there is the least there.
    fn largest(
        &self,
        domains: &[Domain],
        fits: impl Iterator<Item = i64>,
        needs: &[ResourceNeed],
    ) -> (i64, CapacityLimit) {
        let mut best: Option<(i64, &Domain)> = None;
        for (fit, domain) in fits.zip(domains) {
            // Of domains that hold none, one whose nodes take the pods says more.
            let says_more =
                |(most, _): (i64, &Domain)| fit > most || (most == 0 && self.of(domain).next().is_some());
            if best.is_none_or(says_more) {
                best = Some((fit, domain));
            }
        }
        let Some((fit, domain)) = best else { return (0, CapacityLimit::NoNodes) };
        let mut alone: Vec<(i64, usize)> = Vec::new();
        for need in needs {
            let fits = self.of(domain).map(|leaf| fit_count(leaf.free(need.resource, VIEW), need.per_pod));
            alone.push((fits.fold(0, i64::saturating_add), need.resource));
        }
        if domain.leaves.is_empty() {
            return (0, CapacityLimit::NoNodes);
        }
        if self.of(domain).next().is_none() {
            return (0, CapacityLimit::Excluded);
        }
        let scarcest = alone.into_iter().min_by_key(|(fits, _)| *fits);
        let limit = scarcest.map_or(CapacityLimit::NoNodes, |(_, resource)| {
            CapacityLimit::Resource(Arc::from(self.cache.resource_names.name(resource)))
        });
        (fit, limit)
    }
}
