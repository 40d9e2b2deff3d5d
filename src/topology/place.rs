//! Placing pod sets: one after the other, each beside those before it; nothing is decided and nothing stays.

use super::count_cache::{CachedCounts, CountKey};
use super::counts::{CountRequest, resource_needs};
use super::domain_selection::DomainAssignment;
use super::leaf_capacity::{CapacityId, CapacityView, Footprint, LeafCapacity};
use super::placement_params::PlacementParams;
use super::pod_requirements::{DomainPath, HOSTNAME_LABEL, Occupancy, Placement, PodRequirements};
use super::tas_cache::TasCache;
use super::tree::{DomainLayout, TopologyTree};
use super::{PlacementError, TasGates};
use std::ops::Range;
use std::sync::Arc;

/// A pod set to be placed.
#[derive(Clone, Debug)]
pub struct TasPodSetRequest {
    /// Name of the flavor that it has.
    pub flavor: Arc<str>,
    /// Its pods.
    pub pods: Arc<PodRequirements>,
    /// How many.
    pub count: i32,
    /// Pod sets of one group are placed together.
    pub group: Option<Arc<str>>,
    /// Where its pods stand, if only those on failed nodes are to be placed.
    pub replacement: Option<(Placement, Vec<String>)>,
}

impl TasPodSetRequest {
    /// What it takes in a placement.
    pub fn occupancy(&self, placement: Placement) -> Occupancy {
        Occupancy {
            flavor: Arc::clone(&self.flavor),
            placement,
            requests_per_pod: self.pods.requests.clone(),
        }
    }
}

/// Pods that are placed in one go.
pub(super) struct PlacementRequest<'a> {
    pub(super) workers: &'a TasPodSetRequest,
    pub(super) leader: Option<&'a TasPodSetRequest>,
    pub(super) count: i64,
    /// Level and leaf of the domain that may be used.
    pub(super) allowed_leaves: Option<Range<usize>>,
    /// Hosts that may not.
    pub(super) excluded_hosts: &'a [String],
    /// What the request comes to, where it is not what it says.
    pub(super) params: Option<PlacementParams>,
}

impl<'a> PlacementRequest<'a> {
    /// All pods of a part, beside a leader, anywhere.
    fn new(workers: &'a TasPodSetRequest, leader: Option<&'a TasPodSetRequest>) -> Self {
        let count = i64::from(workers.count);
        Self { workers, leader, count, allowed_leaves: None, excluded_hosts: &[], params: None }
    }
}

/// Where workers and leader go, as domains in order of their values.
pub(super) struct PlacementResult {
    pub(super) workers: Placement,
    pub(super) leader: Option<Placement>,
}

/// Which part was refused, and why.
pub type PodSetPlacementError = (usize, PlacementError);

impl TasCache {
    /// Where all parts could go, by part. Each sees what those before it would take.
    ///
    /// # Errors
    /// The first part that cannot be placed, and why.
    pub fn place_all(
        &mut self,
        parts: &[TasPodSetRequest],
        view: CapacityView,
        rules: TasGates,
    ) -> Result<Vec<Placement>, PodSetPlacementError> {
        let mut placed: Vec<Option<Placement>> = vec![None; parts.len()];
        let mut trail = Vec::new();
        let mut outcome = Ok(());
        for at in 0..parts.len() {
            if placed.get(at).is_none_or(Option::is_some) {
                continue;
            }
            if let Err(refusal) = self.place_group(parts, at, view, rules, &mut placed, &mut trail) {
                outcome = Err((at, refusal));
                break;
            }
        }
        for footprint in trail.iter().rev() {
            self.leaf_capacities.simulate_usage(footprint, -1);
        }
        outcome.map(|()| placed.into_iter().flatten().collect())
    }

    /// Whether all parts could go somewhere.
    pub fn can_place(&mut self, parts: &[TasPodSetRequest], view: CapacityView, rules: TasGates) -> bool {
        match parts {
            [part] if part.replacement.is_none() => {
                self.assign_leaves(&PlacementRequest::new(part, None), view, rules).is_ok()
            }
            _ => self.place_all(parts, view, rules).is_ok(),
        }
    }

    /// Where all parts could go at once; where there is no such place, where they could go in the plan.
    ///
    /// # Errors
    /// The first part that cannot be placed in the plan, and why.
    pub fn place_now_or_projected(
        &mut self,
        parts: &[TasPodSetRequest],
        rules: TasGates,
    ) -> Result<Vec<Placement>, PodSetPlacementError> {
        let found = self.place_all(parts, CapacityView::AvailableNow, rules);
        if found.is_err() && self.has_pending_release(parts) {
            self.place_all(parts, CapacityView::Projected, rules)
        } else {
            found
        }
    }

    /// Whether more is free in the plan than in fact anywhere on the nodes of these flavors.
    fn has_pending_release(&mut self, parts: &[TasPodSetRequest]) -> bool {
        let Self { trees, leaf_capacities: spots, .. } = self;
        let mut flavors: Vec<&Arc<str>> = parts.iter().map(|part| &part.flavor).collect();
        flavors.dedup();
        let shapes = flavors.into_iter().filter_map(|flavor| Some(trees.get_mut(flavor)?.layout()));
        let freed = |id: &CapacityId| spots.get(*id).is_some_and(LeafCapacity::has_pending_release);
        shapes.into_iter().any(|shape| shape.capacity_ids.iter().any(freed))
    }

    /// Places a part, and those of its group with it.
    fn place_group(
        &mut self,
        parts: &[TasPodSetRequest],
        at: usize,
        view: CapacityView,
        rules: TasGates,
        placed: &mut [Option<Placement>],
        trail: &mut Vec<Footprint>,
    ) -> Result<(), PlacementError> {
        let Some(part) = parts.get(at) else {
            return Ok(());
        };
        let mates = parts
            .iter()
            .enumerate()
            .filter(|(other, p)| *other == at || (part.group.is_some() && p.group == part.group));
        let members: Vec<usize> = mates.map(|(other, _)| other).collect();
        let (workers, leader) = match *members {
            [one] => (one, None),
            [first, second] => {
                let count = |at: usize| parts.get(at).map_or(0, |part| part.count);
                if count(first) < count(second) { (second, Some(first)) } else { (first, Some(second)) }
            }
            _ => return Err(PlacementError::InvalidGroupSize(members.len())),
        };
        let Some(part) = parts.get(workers) else {
            return Ok(());
        };
        let found = if part.replacement.is_some() {
            self.replace_failed_node(part, leader.and_then(|at| parts.get(at)), view, rules)?
        } else {
            self.place_request(
                &PlacementRequest::new(part, leader.and_then(|at| parts.get(at))),
                view,
                rules,
            )?
        };
        let mut taken = Vec::new();
        for (at, placement) in [(Some(workers), Some(found.workers)), (leader, found.leader)] {
            let Some(at) = at else { continue };
            let (Some(part), Some(place)) = (parts.get(at), placed.get_mut(at)) else { continue };
            taken.extend(placement.as_ref().map(|placement| part.occupancy(part.added_domains(placement))));
            *place = placement;
        }
        // Nobody comes after the last.
        if placed.iter().any(Option::is_none) {
            for occupancy in taken {
                let footprint = self.footprint(&[occupancy]);
                self.leaf_capacities.simulate_usage(&footprint, 1);
                trail.push(footprint);
            }
        }
        Ok(())
    }

    /// Where a party could go.
    pub(super) fn place_request(
        &mut self,
        party: &PlacementRequest,
        view: CapacityView,
        rules: TasGates,
    ) -> Result<PlacementResult, PlacementError> {
        let (shape, shares) = self.assign_leaves(party, view, rules)?;
        let tree = self.trees.get(&party.workers.flavor).ok_or(PlacementError::NoTopology)?;
        Ok(to_placement_result(tree, &shape, shares, party.leader.is_some()))
    }

    /// What each of the narrowest domains of a shape would take of a party.
    fn assign_leaves(
        &mut self,
        party: &PlacementRequest,
        view: CapacityView,
        rules: TasGates,
    ) -> Result<(Arc<DomainLayout>, Vec<DomainAssignment>), PlacementError> {
        let part = party.workers;
        let Some(tree) = self.trees.get_mut(&part.flavor) else {
            return Err(PlacementError::NoTopology);
        };
        let terms = match &party.params {
            Some(terms) => terms.clone(),
            None => PlacementParams::resolve(&part.pods, tree, rules)?,
        };
        let shape = tree.layout();
        // What is asked of a part of the domains alone is hardly asked twice.
        let kept = party.allowed_leaves.is_none() && party.excluded_hosts.is_empty();
        let leader = party.leader.map(|leader| Arc::clone(&leader.pods));
        let subject = CountKey {
            pods: Arc::clone(&part.pods),
            leader,
            params: terms,
            view,
            respect_preferred_affinity: rules.respect_preferred_affinity,
        };
        let known = if kept { self.count_cache.take(&subject, &shape) } else { None };
        let mut tally = known.unwrap_or_else(|| {
            let pod = self.resource_names.pod_requests(&part.pods.requests);
            let leader = party.leader.map(|leader| self.resource_names.pod_requests(&leader.pods.requests));
            CachedCounts::new(subject, &shape, resource_needs(&pod, leader.as_ref()))
        });
        let tree = self.trees.get(&part.flavor).ok_or(PlacementError::NoTopology)?;
        let needs = Arc::clone(&tally.needs);
        let ask = CountRequest {
            pods: &part.pods,
            extra_tolerations: &tree.flavor.tolerations,
            needs,
            has_leader: party.leader.is_some(),
            view,
            respect_preferred_affinity: rules.respect_preferred_affinity,
            allowed_leaves: party.allowed_leaves.clone(),
            excluded_hosts: party.excluded_hosts,
        };
        self.update_fits(&mut tally, tree, &shape, &ask);
        let shares = tally.select_domains(&shape, party.count, rules);
        if kept {
            self.count_cache.insert(tally);
        }
        Ok((shape, shares?))
    }
}

impl TasPodSetRequest {
    /// Of a placement what its pods do not take already.
    pub fn added_domains(&self, placement: &Placement) -> Placement {
        let Some((kept, _)) = &self.replacement else {
            return placement.clone();
        };
        let before = |values: &DomainPath| {
            let same = kept.domains.iter().filter(|(known, _)| known.last() == values.last());
            same.fold(0_i32, |sum, (_, pods)| sum.saturating_add(*pods))
        };
        let more =
            |(values, pods): &(DomainPath, i32)| (Arc::clone(values), pods.saturating_sub(before(values)));
        let domains = placement.domains.iter().map(more).filter(|(_, pods)| *pods > 0).collect();
        Placement { levels: Arc::clone(&placement.levels), domains }
    }
}

/// Shares of the narrowest domains as placements.
fn to_placement_result(
    tree: &TopologyTree,
    shape: &DomainLayout,
    mut shares: Vec<DomainAssignment>,
    has_leader: bool,
) -> PlacementResult {
    shares.sort_unstable_by_key(|share| share.domain);
    let levels = placement_levels(tree);
    let skip = tree.levels.len() - levels.len();
    let values = |leaf: usize| shape.paths.get(leaf).and_then(|path| path.get(skip..)).map(Arc::from);
    let domains = |pods: &dyn Fn(&DomainAssignment) -> i64| {
        let taken = shares.iter().filter(|share| pods(share) > 0);
        let domain = |share: &DomainAssignment| {
            Some((values(share.domain)?, i32::try_from(pods(share)).unwrap_or(i32::MAX)))
        };
        Placement { levels: Arc::clone(&levels), domains: taken.filter_map(domain).collect() }
    };
    PlacementResult {
        workers: domains(&|share| share.units),
        leader: has_leader.then(|| domains(&|share| i64::from(share.has_leader))),
    }
}

/// Labels of the levels that placements name: a host says all by itself.
fn placement_levels(tree: &TopologyTree) -> DomainPath {
    if tree.is_by_host() { Arc::from([Arc::from(HOSTNAME_LABEL)]) } else { Arc::clone(&tree.levels) }
}
