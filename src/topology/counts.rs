//! How many pods each domain could take: counted at the narrowest domains, added up towards the widest.

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

/// What one domain could take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainFit {
    pub(super) pods: i64,
    /// Beside a leader.
    pub(super) pods_with_leader: i64,
    pub(super) slices: i64,
    pub(super) slices_with_leader: i64,
    /// Whether it could take the leader.
    pub(super) fits_leader: bool,
    /// How much the pods prefer its nodes.
    pub(super) score: i64,
}

/// Counts by level and domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainFits {
    pub(super) levels: Vec<Vec<DomainFit>>,
}

impl DomainFits {
    pub(super) fn get(&self, level: usize, domain: usize) -> DomainFit {
        self.level(level).get(domain).copied().unwrap_or_default()
    }

    /// All domains of a level.
    pub(super) fn level(&self, level: usize) -> &[DomainFit] {
        self.levels.get(level).map(Vec::as_slice).unwrap_or_default()
    }

    /// Answers with the count before, if it was another.
    fn set(&mut self, level: usize, domain: usize, count: DomainFit) -> Option<DomainFit> {
        let place = self.levels.get_mut(level)?.get_mut(domain)?;
        let before = std::mem::replace(place, count);
        (before != count).then_some(before)
    }

    /// Nothing is counted in any domain.
    fn clear(&mut self, shape: &DomainLayout) {
        self.levels.resize_with(shape.levels.len(), Vec::new);
        for (level, all) in self.levels.iter_mut().enumerate() {
            all.clear();
            all.resize(shape.domain_count(level), DomainFit::default());
        }
    }

    /// Leaves out domains of a level, and from what their parents could take.
    pub(super) fn exclude_domains(
        &mut self,
        shape: &DomainLayout,
        level: usize,
        domains: impl Iterator<Item = usize>,
        terms: &PlacementParams,
        has_leader: bool,
    ) {
        let changed = domains
            .filter_map(|domain| Some((domain, self.set(level, domain, DomainFit::default())?)))
            .collect();
        self.propagate_up(shape, level, changed, terms, has_leader);
    }

    /// Counts what is above domains of a level that have changed, which are in order and come with their counts before.
    fn propagate_up(
        &mut self,
        shape: &DomainLayout,
        level: usize,
        mut changed: Vec<(usize, DomainFit)>,
        terms: &PlacementParams,
        has_leader: bool,
    ) {
        for level in (0..level).rev() {
            let unit = terms.inner_slice_sizes.get(level + 1).copied().unwrap_or(1);
            let mut above: Vec<(usize, DomainFit)> = Vec::new();
            let mut rest = changed.as_slice();
            while let Some((first, _)) = rest.first() {
                let Some((at, domain)) = shape.parent(level, *first) else { break };
                let (here, others) =
                    rest.split_at(rest.partition_point(|(child, _)| *child < domain.children.end));
                rest = others;
                let children = self.level(level + 1);
                let moved = || {
                    let news = here.iter().map(|(child, before)| (before, children.get(*child)));
                    adjusted_sum(self.get(level, at), news, unit)
                };
                let mut count = if has_leader { None } else { moved() }.unwrap_or_else(|| {
                    sum_children(children.get(domain.children.clone()).unwrap_or_default(), unit, has_leader)
                });
                count_slices(&mut count, level, terms);
                above.extend(self.set(level, at, count).map(|before| (at, before)));
            }
            changed = above;
        }
    }
}

/// A sum in which some children have changed; none where it cannot be told without the others. Leaders go where they cost
/// least, which all children have a say in.
fn adjusted_sum<'a>(
    mut sum: DomainFit,
    news: impl Iterator<Item = (&'a DomainFit, Option<&'a DomainFit>)>,
    unit: i64,
) -> Option<DomainFit> {
    // Sums end at the largest number, and say no more how far beyond they are.
    let shift = |sum: i64, before: i64, after: i64| {
        sum.checked_sub(before)?.checked_add(after).filter(|_| sum < i64::MAX)
    };
    for (before, after) in news {
        let after = after?;
        sum.pods =
            shift(sum.pods, round_down_to_unit(before.pods, unit), round_down_to_unit(after.pods, unit))?;
        sum.slices = shift(sum.slices, before.slices, after.slices)?;
        sum.score = shift(sum.score, before.score, after.score)?;
    }
    (sum.pods_with_leader, sum.slices_with_leader) = (sum.pods, sum.slices);
    Some(sum)
}

/// Pods in whole units.
const fn round_down_to_unit(pods: i64, unit: i64) -> i64 {
    if unit > 1 { pods / unit * unit } else { pods }
}

/// A resource by number, what one pod needs of it, and what the leader.
pub(super) type ResourceNeed = (usize, i128, i128);

/// What is asked of each domain.
pub(super) struct CountRequest<'a> {
    pub(super) pods: &'a PodRequirements,
    /// Tolerations that the pods are given.
    pub(super) extra_tolerations: &'a [Toleration],
    pub(super) needs: Arc<[ResourceNeed]>,
    pub(super) has_leader: bool,
    pub(super) view: CapacityView,
    /// Whether preferences of the pods count.
    pub(super) respect_preferred_affinity: bool,
    /// Narrowest domains that may be used.
    pub(super) allowed_leaves: Option<Range<usize>>,
    /// Hosts that may not, whatever they say of themselves.
    pub(super) excluded_hosts: &'a [String],
}

/// What pods and leader take by resource, side by side.
pub(super) fn resource_needs(pod: &SparseVector, leader: Option<&SparseVector>) -> Arc<[ResourceNeed]> {
    let mut needs: Vec<ResourceNeed> = pod.iter().map(|(number, amount)| (*number, *amount, 0)).collect();
    for (number, amount) in leader.into_iter().flatten() {
        match needs.iter_mut().find(|(known, _, _)| known == number) {
            Some((_, _, leader)) => *leader = *amount,
            None => needs.push((*number, 0, *amount)),
        }
    }
    needs.into()
}

impl<'a> CountRequest<'a> {
    /// What the subject of a tally asks.
    pub(super) fn from_cached(tally: &'a CachedCounts, tree: &'a TopologyTree) -> Self {
        let CachedCounts { key: subject, needs, .. } = tally;
        Self {
            pods: &subject.pods,
            extra_tolerations: &tree.flavor.tolerations,
            needs: Arc::clone(needs),
            has_leader: subject.leader.is_some(),
            view: subject.view,
            respect_preferred_affinity: subject.respect_preferred_affinity,
            allowed_leaves: None,
            excluded_hosts: &[],
        }
    }

    /// What keeps the pods from a narrowest domain that is a host.
    pub(super) fn find_exclusion(&self, spot: &LeafCapacity) -> Option<Exclusion> {
        let pods = self.pods;
        if !spot.tainted && pods.node_selector.is_empty() && pods.required_affinity.is_empty() {
            return None;
        }
        let mut nodes = spot.nodes.iter();
        nodes.find_map(|(name, node)| {
            find_exclusion(pods, self.extra_tolerations, name, &node.labels, &node.taints)
        })
    }

    /// Whether a narrowest domain is a host that may not be used.
    fn excludes_host(&self, host: Option<&Arc<str>>) -> bool {
        host.is_some_and(|host| self.excluded_hosts.iter().any(|barred| **barred == **host))
    }

    /// What a narrowest domain could take.
    fn leaf_fit(&self, spot: &LeafCapacity) -> DomainFit {
        let (mut pods, mut beside, mut leader) = (i64::MAX, i64::MAX, self.has_leader);
        for (number, need, of_leader) in &*self.needs {
            let free = spot.free(*number, self.view);
            pods = fit_count_up_to(pods, free, *need);
            if self.has_leader {
                leader &= *of_leader <= free.max(0);
                beside = fit_count_up_to(beside, free - of_leader, *need);
            } else if pods == 0 {
                break;
            }
        }
        let beside = if self.has_leader { if leader { beside } else { 0 } } else { pods };
        DomainFit { pods, pods_with_leader: beside, fits_leader: leader, ..DomainFit::default() }
    }

    fn affinity_score(&self, spot: &LeafCapacity) -> i64 {
        if !self.respect_preferred_affinity || self.pods.preferred_affinity.is_empty() {
            return 0;
        }
        let scores =
            spot.nodes.iter().map(|(name, node)| preferred_affinity_score(self.pods, name, &node.labels));
        scores.fold(0, i64::saturating_add)
    }
}

impl TasCache {
    /// Counts what every domain could take, as far as that may have changed since the last time.
    pub(super) fn update_fits(
        &self,
        tally: &mut CachedCounts,
        tree: &TopologyTree,
        shape: &DomainLayout,
        ask: &CountRequest,
    ) {
        let CachedCounts {
            key: subject,
            fits: counts,
            excluded_leaves: closed,
            last_seen_change: seen,
            last_selection: chosen,
            ..
        } = tally;
        let lowest = shape.levels.len().saturating_sub(1);
        if *seen == 0 {
            counts.clear(shape);
            closed.clear();
            closed.resize(shape.capacity_ids.len(), false);
        }
        let by_host = tree.is_by_host();
        let mut changed = Vec::new();
        for leaf in self.leaves_to_count(*seen, shape, ask.allowed_leaves.clone()) {
            let Some(id) = shape.capacity_ids.get(leaf) else { continue };
            let news = self.leaf_capacities.last_change(*id);
            if news.nodes_or_usage <= *seen {
                continue;
            }
            let (Some(spot), Some(closed)) = (self.leaf_capacities.get(*id), closed.get_mut(leaf)) else {
                continue;
            };
            if news.nodes > *seen {
                let host = || shape.paths.get(leaf).and_then(|path| path.last());
                *closed = by_host && (ask.find_exclusion(spot).is_some() || ask.excludes_host(host()));
            }
            let mut count = DomainFit::default();
            if !*closed {
                count = ask.leaf_fit(spot);
                count.score = ask.affinity_score(spot);
                count_slices(&mut count, lowest, &subject.params);
            }
            changed.extend(counts.set(lowest, leaf, count).map(|before| (leaf, before)));
        }
        *seen = self.leaf_capacities.change_count();
        if !changed.is_empty() {
            *chosen = None;
        }
        counts.propagate_up(shape, lowest, changed, &subject.params, ask.has_leader);
    }

    /// Narrowest domains in order, those among them that have changed since.
    fn leaves_to_count(&self, seen: u64, shape: &DomainLayout, within: Option<Range<usize>>) -> Vec<usize> {
        let latest = self.leaf_capacities.changed_since(seen).filter(|_| seen > 0 && within.is_none());
        let Some(latest) = latest else {
            return within.unwrap_or(0..shape.capacity_ids.len()).collect();
        };
        let mut leaves: Vec<usize> = latest.filter_map(|spot| shape.leaf_of(spot)).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves
    }

    /// Whether what was counted so far is what a count from nothing comes to.
    pub(super) fn count_cache_is_consistent(&self) -> bool {
        self.count_cache.iter().all(|tally| {
            let Some(shape) = tally.layout.upgrade() else { return true };
            let current = |tree: &&TopologyTree| tree.has_layout(&shape);
            let Some(tree) = self.trees.values().find(current) else { return true };
            let ask = CountRequest::from_cached(tally, tree);
            let (mut known, mut fresh) =
                (tally.clone(), CachedCounts { last_seen_change: 0, last_selection: None, ..tally.clone() });
            self.update_fits(&mut known, tree, &shape, &ask);
            self.update_fits(&mut fresh, tree, &shape, &ask);
            let chosen = known.last_selection.as_ref();
            chosen.is_none_or(|known| fresh.select_domains(&shape, known.pods, known.gates) == known.result)
                && known.fits == fresh.fits
        })
    }
}

/// Slices are counted where they have to be in one domain, and below that as units of inner slices.
fn count_slices(count: &mut DomainFit, level: usize, terms: &PlacementParams) {
    let size = match level.cmp(&terms.slice_level) {
        Ordering::Less => return,
        Ordering::Equal => terms.slice_size,
        Ordering::Greater => terms.inner_slice_sizes.get(level).copied().unwrap_or(1).max(1),
    };
    count.slices = count.pods / size;
    count.slices_with_leader = count.pods_with_leader / size;
}

/// What children could take together; the leader goes where it costs least.
fn sum_children(children: &[DomainFit], unit: i64, has_leader: bool) -> DomainFit {
    let mut sum = DomainFit::default();
    let (mut pods_lost, mut slices_lost) = (i64::MAX, i64::MAX);
    for child in children {
        let (pods, beside) =
            (round_down_to_unit(child.pods, unit), round_down_to_unit(child.pods_with_leader, unit));
        sum.pods = sum.pods.saturating_add(pods);
        sum.slices = sum.slices.saturating_add(child.slices);
        sum.score = sum.score.saturating_add(child.score);
        if child.fits_leader {
            sum.fits_leader = true;
            pods_lost = pods_lost.min(pods - beside);
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
