//! How many pods fit into each domain: counted at the narrowest level, summed up to the widest.

use super::count_cache::CachedCounts;
use super::filter::{Exclusion, find_exclusion, preferred_affinity_score};
use super::leaf_capacity::{CapacityView, LeafCapacity};
use super::placement_params::PlacementParams;
use super::pod_requirements::PodRequirements;
use super::resource_vector::{SparseVector, fit_count_up_to};
use super::tas_cache::TasCache;
use super::tree::{DomainLayout, TopologyTree};
use k8s_openapi::api::core::v1::Toleration;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// What fits into one domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainFit {
    pub(super) pods: i64,
    /// Pods that fit beside a leader; likewise `slices_with_leader`.
    pub(super) pods_with_leader: i64,
    pub(super) slices: i64,
    pub(super) slices_with_leader: i64,
    /// Whether the leader fits.
    pub(super) fits_leader: bool,
    /// Sum of the preferred node affinity weights of its nodes.
    pub(super) score: i64,
}

/// Fits by level and domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainFits {
    pub(super) levels: Vec<Vec<DomainFit>>,
}

impl DomainFits {
    pub(super) fn get(&self, level: usize, domain: usize) -> DomainFit {
        self.level(level).get(domain).copied().unwrap_or_default()
    }

    pub(super) fn level(&self, level: usize) -> &[DomainFit] {
        self.levels.get(level).map(Vec::as_slice).unwrap_or_default()
    }

    /// Sets the fit of a domain. Returns the previous one if it differs.
    fn set(&mut self, level: usize, domain: usize, fit: DomainFit) -> Option<DomainFit> {
        let slot = self.levels.get_mut(level)?.get_mut(domain)?;
        let before = std::mem::replace(slot, fit);
        (before != fit).then_some(before)
    }

    /// Resets all domains of `layout` to 0.
    fn clear(&mut self, layout: &DomainLayout) {
        self.levels.resize_with(layout.levels.len(), Vec::new);
        for (level, all) in self.levels.iter_mut().enumerate() {
            all.clear();
            all.resize(layout.domain_count(level), DomainFit::default());
        }
    }

    /// Sets the fits of domains of a level to 0 and updates their ancestors.
    pub(super) fn exclude_domains(
        &mut self,
        rules: SummingRules,
        level: usize,
        domains: impl Iterator<Item = usize>,
    ) {
        let changed = domains
            .filter_map(|domain| Some((domain, self.set(level, domain, DomainFit::default())?)))
            .collect();
        self.propagate_up(rules, level, changed);
    }

    /// Updates the ancestors of `changed`: domains of `level` in order, with their previous fits.
    fn propagate_up(&mut self, rules: SummingRules, level: usize, mut changed: Vec<(usize, DomainFit)>) {
        let SummingRules { layout, params, has_leader } = rules;
        for level in (0..level).rev() {
            let unit = params.inner_slice_sizes.get(level + 1).copied().unwrap_or(1);
            let mut changed_parents: Vec<(usize, DomainFit)> = Vec::new();
            let mut rest = changed.as_slice();
            while let Some((first, _)) = rest.first() {
                let Some((parent, domain)) = layout.parent(level, *first) else { break };
                let (siblings, others) =
                    rest.split_at(rest.partition_point(|(child, _)| *child < domain.children.end));
                rest = others;
                let children = self.level(level + 1);
                let adjusted = || {
                    let updates = siblings.iter().map(|(child, before)| (before, children.get(*child)));
                    adjusted_sum(self.get(level, parent), updates, unit)
                };
                let mut fit = if has_leader { None } else { adjusted() }.unwrap_or_else(|| {
                    sum_children(children.get(domain.children.clone()).unwrap_or_default(), unit, has_leader)
                });
                count_slices(&mut fit, level, params);
                changed_parents.extend(self.set(level, parent, fit).map(|before| (parent, before)));
            }
            changed = changed_parents;
        }
    }
}

/// How the fits of domains are summed up to their ancestors.
#[derive(Clone, Copy)]
pub(super) struct SummingRules<'a> {
    pub(super) layout: &'a DomainLayout,
    pub(super) params: &'a PlacementParams,
    pub(super) has_leader: bool,
}

/// Updates a sum by the changes of some children. `None` where all children are needed: on saturation. Never used with a
/// leader, which goes to the child where it costs least.
fn adjusted_sum<'a>(
    mut sum: DomainFit,
    updates: impl Iterator<Item = (&'a DomainFit, Option<&'a DomainFit>)>,
    unit: i64,
) -> Option<DomainFit> {
    // A saturated sum has lost its excess, so it cannot be updated.
    let shift = |sum: i64, before: i64, after: i64| {
        sum.checked_sub(before)?.checked_add(after).filter(|_| sum < i64::MAX)
    };
    for (before, after) in updates {
        let after = after?;
        sum.pods =
            shift(sum.pods, round_down_to_unit(before.pods, unit), round_down_to_unit(after.pods, unit))?;
        sum.slices = shift(sum.slices, before.slices, after.slices)?;
        sum.score = shift(sum.score, before.score, after.score)?;
    }
    (sum.pods_with_leader, sum.slices_with_leader) = (sum.pods, sum.slices);
    Some(sum)
}

const fn round_down_to_unit(pods: i64, unit: i64) -> i64 {
    if unit > 1 { pods / unit * unit } else { pods }
}

/// What pods need of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResourceNeed {
    /// Index of the resource.
    pub(super) resource: usize,
    /// Request of one pod.
    pub(super) per_pod: i128,
    /// Request of the leader.
    pub(super) leader: i128,
}

/// What is counted in each domain.
pub(super) struct CountRequest<'a> {
    pub(super) pods: &'a PodRequirements,
    /// Tolerations that the flavor adds to the pods.
    pub(super) extra_tolerations: &'a [Toleration],
    pub(super) needs: Arc<[ResourceNeed]>,
    pub(super) has_leader: bool,
    pub(super) view: CapacityView,
    /// Whether preferred node affinity counts.
    pub(super) respect_preferred_affinity: bool,
    /// Narrowest domains to use; all if `None`.
    pub(super) allowed_leaves: Option<Range<usize>>,
    /// Hosts never to use, even if they are schedulable.
    pub(super) excluded_hosts: &'a [String],
}

/// Joins the requests of a pod and of the leader by resource.
pub(super) fn resource_needs(pod: &SparseVector, leader: Option<&SparseVector>) -> Arc<[ResourceNeed]> {
    let pod_need = |(resource, amount): &(usize, i128)| ResourceNeed {
        resource: *resource,
        per_pod: *amount,
        leader: 0,
    };
    let mut needs: Vec<ResourceNeed> = pod.iter().map(pod_need).collect();
    for (resource, amount) in leader.into_iter().flatten() {
        match needs.iter_mut().find(|need| need.resource == *resource) {
            Some(need) => need.leader = *amount,
            None => needs.push(ResourceNeed { resource: *resource, per_pod: 0, leader: *amount }),
        }
    }
    needs.into()
}

impl<'a> CountRequest<'a> {
    /// Returns the request that cached counts answer.
    pub(super) fn from_cached(cached: &'a CachedCounts, tree: &'a TopologyTree) -> Self {
        let CachedCounts { key, needs, .. } = cached;
        Self {
            pods: &key.pods,
            extra_tolerations: &tree.flavor.tolerations,
            needs: Arc::clone(needs),
            has_leader: key.leader.is_some(),
            view: key.view,
            respect_preferred_affinity: key.respect_preferred_affinity,
            allowed_leaves: None,
            excluded_hosts: &[],
        }
    }

    /// Returns why a leaf that is a host excludes the pods.
    pub(super) fn find_exclusion(&self, capacity: &LeafCapacity) -> Option<Exclusion> {
        let pods = self.pods;
        if !capacity.tainted && pods.node_selector.is_empty() && pods.required_affinity.is_empty() {
            return None;
        }
        let mut nodes = capacity.nodes.iter();
        nodes.find_map(|(name, node)| {
            find_exclusion(pods, self.extra_tolerations, name, &node.labels, &node.taints)
        })
    }

    fn excludes_host(&self, host: Option<&Arc<str>>) -> bool {
        host.is_some_and(|host| self.excluded_hosts.iter().any(|excluded| **excluded == **host))
    }

    fn leaf_fit(&self, capacity: &LeafCapacity) -> DomainFit {
        let (mut pods, mut pods_with_leader, mut fits_leader) = (i64::MAX, i64::MAX, self.has_leader);
        for need in &*self.needs {
            let free = capacity.free(need.resource, self.view);
            pods = fit_count_up_to(pods, free, need.per_pod);
            if self.has_leader {
                fits_leader &= need.leader <= free.max(0);
                pods_with_leader = fit_count_up_to(pods_with_leader, free - need.leader, need.per_pod);
            } else if pods == 0 {
                break;
            }
        }
        let pods_with_leader =
            if self.has_leader { if fits_leader { pods_with_leader } else { 0 } } else { pods };
        DomainFit { pods, pods_with_leader, fits_leader, ..DomainFit::default() }
    }

    fn affinity_score(&self, capacity: &LeafCapacity) -> i64 {
        if !self.respect_preferred_affinity || self.pods.preferred_affinity.is_empty() {
            return 0;
        }
        let scores =
            capacity.nodes.iter().map(|(name, node)| preferred_affinity_score(self.pods, name, &node.labels));
        scores.fold(0, i64::saturating_add)
    }
}

impl TasCache {
    /// Brings `cached` up to date: counts only leaves that changed since the last call, and their ancestors.
    pub(super) fn update_fits(
        &self,
        cached: &mut CachedCounts,
        tree: &TopologyTree,
        layout: &DomainLayout,
        request: &CountRequest,
    ) {
        let CachedCounts { key, fits, excluded_leaves, last_seen_change, last_selection, .. } = cached;
        let lowest = layout.levels.len().saturating_sub(1);
        if *last_seen_change == 0 {
            fits.clear(layout);
            excluded_leaves.clear();
            excluded_leaves.resize(layout.capacity_ids.len(), false);
        }
        let by_host = tree.is_by_host();
        let mut changed = Vec::new();
        for leaf in self.leaves_to_count(*last_seen_change, layout, request.allowed_leaves.clone()) {
            let Some(id) = layout.capacity_ids.get(leaf) else { continue };
            let last_change = self.leaf_capacities.last_change(*id);
            if last_change.nodes_or_usage <= *last_seen_change {
                continue;
            }
            let (Some(capacity), Some(excluded)) =
                (self.leaf_capacities.get(*id), excluded_leaves.get_mut(leaf))
            else {
                continue;
            };
            if last_change.nodes > *last_seen_change {
                let host = || layout.paths.get(leaf).and_then(|path| path.last());
                *excluded =
                    by_host && (request.find_exclusion(capacity).is_some() || request.excludes_host(host()));
            }
            let mut fit = DomainFit::default();
            if !*excluded {
                fit = request.leaf_fit(capacity);
                fit.score = request.affinity_score(capacity);
                count_slices(&mut fit, lowest, &key.params);
            }
            changed.extend(fits.set(lowest, leaf, fit).map(|before| (leaf, before)));
        }
        *last_seen_change = self.leaf_capacities.change_count();
        if !changed.is_empty() {
            *last_selection = None;
        }
        let rules = SummingRules { layout, params: &key.params, has_leader: request.has_leader };
        fits.propagate_up(rules, lowest, changed);
    }

    /// Returns the leaves to count, in order: the ones changed since `seen`, or all allowed ones if the change log is too short.
    fn leaves_to_count(&self, seen: u64, layout: &DomainLayout, allowed: Option<Range<usize>>) -> Vec<usize> {
        let recent = self.leaf_capacities.changed_since(seen).filter(|_| seen > 0 && allowed.is_none());
        let Some(recent) = recent else {
            return allowed.unwrap_or(0..layout.capacity_ids.len()).collect();
        };
        let mut leaves: Vec<usize> = recent.filter_map(|id| layout.leaf_of(id)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Returns whether every cached count, brought up to date, equals a count from scratch.
    pub(super) fn count_cache_is_consistent(&self) -> bool {
        self.count_cache.iter().all(|cached| {
            let Some(layout) = cached.layout.upgrade() else { return true };
            let current = |tree: &&TopologyTree| tree.has_layout(&layout);
            let Some(tree) = self.trees.values().find(current) else { return true };
            let request = CountRequest::from_cached(cached, tree);
            let (mut updated, mut recounted) = (
                cached.clone(),
                CachedCounts { last_seen_change: 0, last_selection: None, ..cached.clone() },
            );
            self.update_fits(&mut updated, tree, &layout, &request);
            self.update_fits(&mut recounted, tree, &layout, &request);
            let selection = updated.last_selection.as_ref();
            selection.is_none_or(|updated| {
                recounted.select_domains(&layout, updated.pods, updated.gates) == updated.result
            }) && updated.fits == recounted.fits
        })
    }
}

/// Sets the slices of a fit: outermost slices at the slice level, inner slices below it, none above (those are summed).
fn count_slices(fit: &mut DomainFit, level: usize, params: &PlacementParams) {
    let size = match level.cmp(&params.slice_level) {
        Ordering::Less => return,
        Ordering::Equal => params.slice_size,
        Ordering::Greater => params.inner_slice_sizes.get(level).copied().unwrap_or(1).max(1),
    };
    fit.slices = fit.pods / size;
    fit.slices_with_leader = fit.pods_with_leader / size;
}

/// Sums the fits of children. The leader goes to the child where it costs least.
fn sum_children(children: &[DomainFit], unit: i64, has_leader: bool) -> DomainFit {
    let mut sum = DomainFit::default();
    let (mut pods_lost, mut slices_lost) = (i64::MAX, i64::MAX);
    for child in children {
        let (pods, pods_with_leader) =
            (round_down_to_unit(child.pods, unit), round_down_to_unit(child.pods_with_leader, unit));
        sum.pods = sum.pods.saturating_add(pods);
        sum.slices = sum.slices.saturating_add(child.slices);
        sum.score = sum.score.saturating_add(child.score);
        if child.fits_leader {
            sum.fits_leader = true;
            pods_lost = pods_lost.min(pods - pods_with_leader);
            slices_lost = slices_lost.min(child.slices - child.slices_with_leader);
        }
    }
    if !has_leader {
        (sum.pods_with_leader, sum.slices_with_leader) = (sum.pods, sum.slices);
    } else if sum.fits_leader {
        sum.pods_with_leader = sum.pods - pods_lost;
        sum.slices_with_leader = sum.slices - slices_lost;
    }
    sum
}
