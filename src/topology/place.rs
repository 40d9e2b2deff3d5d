//! Places pod sets one after the other, each beside those before it. Usage is simulated and restored before returning.

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
    /// Name of its assigned flavor.
    pub flavor: Arc<str>,
    /// Requirements of its pods.
    pub pods: Arc<PodRequirements>,
    /// Number of pods.
    pub count: i32,
    /// Pod sets of one group are placed together.
    pub group: Option<Arc<str>>,
    /// Existing placement and failed nodes, if only the pods on failed nodes are to be placed.
    pub replacement: Option<(Placement, Vec<String>)>,
}

impl TasPodSetRequest {
    /// Returns the usage of the pod set in a placement.
    pub fn occupancy(&self, placement: Placement) -> Occupancy {
        Occupancy {
            flavor: Arc::clone(&self.flavor),
            placement,
            requests_per_pod: self.pods.requests.clone(),
        }
    }
}

/// Workers and leader placed together.
pub(super) struct PlacementRequest<'a> {
    pub(super) workers: &'a TasPodSetRequest,
    pub(super) leader: Option<&'a TasPodSetRequest>,
    pub(super) count: i64,
    /// Leaves to use; all if `None`.
    pub(super) allowed_leaves: Option<Range<usize>>,
    /// Hosts never to use.
    pub(super) excluded_hosts: &'a [String],
    /// Replaces the constraints of the pod set, for a replacement placement.
    pub(super) params: Option<PlacementParams>,
}

impl<'a> PlacementRequest<'a> {
    /// Requests all pods of a pod set beside a leader, on any leaf.
    fn new(workers: &'a TasPodSetRequest, leader: Option<&'a TasPodSetRequest>) -> Self {
        let count = i64::from(workers.count);
        Self { workers, leader, count, allowed_leaves: None, excluded_hosts: &[], params: None }
    }
}

/// Placements of workers and leader, domains sorted by value.
pub(super) struct PlacementResult {
    pub(super) workers: Placement,
    pub(super) leader: Option<Placement>,
}

/// Index of the pod set that cannot be placed, and why.
pub type PodSetPlacementError = (usize, PlacementError);

impl TasCache {
    /// Returns a placement for each pod set. Each placement counts the usage of those before it.
    ///
    /// # Errors
    /// The first pod set that cannot be placed, and why.
    pub fn place_all(
        &mut self,
        pod_sets: &[TasPodSetRequest],
        view: CapacityView,
        gates: TasGates,
    ) -> Result<Vec<Placement>, PodSetPlacementError> {
        let mut placed: Vec<Option<Placement>> = vec![None; pod_sets.len()];
        let mut simulated = Vec::new();
        let mut result = Ok(());
        for index in 0..pod_sets.len() {
            if placed.get(index).is_none_or(Option::is_some) {
                continue;
            }
            if let Err(error) = self.place_group(pod_sets, index, view, gates, &mut placed, &mut simulated) {
                result = Err((index, error));
                break;
            }
        }
        for footprint in simulated.iter().rev() {
            self.leaf_capacities.simulate_usage(footprint, -1);
        }
        result.map(|()| placed.into_iter().flatten().collect())
    }

    /// Returns whether all pod sets can be placed.
    pub fn can_place(&mut self, pod_sets: &[TasPodSetRequest], view: CapacityView, gates: TasGates) -> bool {
        match pod_sets {
            [pod_set] if pod_set.replacement.is_none() => {
                self.assign_leaves(&PlacementRequest::new(pod_set, None), view, gates).is_ok()
            }
            _ => self.place_all(pod_sets, view, gates).is_ok(),
        }
    }

    /// Returns placements that are available now; if there are none, placements in projected usage.
    ///
    /// # Errors
    /// The first pod set that cannot be placed in projected usage, and why.
    pub fn place_now_or_projected(
        &mut self,
        pod_sets: &[TasPodSetRequest],
        gates: TasGates,
    ) -> Result<Vec<Placement>, PodSetPlacementError> {
        let result = self.place_all(pod_sets, CapacityView::AvailableNow, gates);
        if result.is_err() && self.has_pending_release(pod_sets) {
            self.place_all(pod_sets, CapacityView::Projected, gates)
        } else {
            result
        }
    }

    /// Returns whether victims still have to release capacity on any node of these flavors.
    fn has_pending_release(&mut self, pod_sets: &[TasPodSetRequest]) -> bool {
        let Self { trees, leaf_capacities, .. } = self;
        let mut flavors: Vec<&Arc<str>> = pod_sets.iter().map(|pod_set| &pod_set.flavor).collect();
        flavors.dedup();
        let layouts = flavors.into_iter().filter_map(|flavor| Some(trees.get_mut(flavor)?.layout()));
        let is_releasing =
            |id: &CapacityId| leaf_capacities.get(*id).is_some_and(LeafCapacity::has_pending_release);
        layouts.into_iter().any(|layout| layout.capacity_ids.iter().any(is_releasing))
    }

    /// Places a pod set together with the other pod set of its group.
    fn place_group(
        &mut self,
        pod_sets: &[TasPodSetRequest],
        index: usize,
        view: CapacityView,
        gates: TasGates,
        placed: &mut [Option<Placement>],
        simulated: &mut Vec<Footprint>,
    ) -> Result<(), PlacementError> {
        let Some(pod_set) = pod_sets.get(index) else {
            return Ok(());
        };
        let in_group = pod_sets
            .iter()
            .enumerate()
            .filter(|(other, p)| *other == index || (pod_set.group.is_some() && p.group == pod_set.group));
        let members: Vec<usize> = in_group.map(|(other, _)| other).collect();
        let (workers, leader) = match *members {
            [only] => (only, None),
            [first, second] => {
                let count = |index: usize| pod_sets.get(index).map_or(0, |pod_set| pod_set.count);
                if count(first) < count(second) { (second, Some(first)) } else { (first, Some(second)) }
            }
            _ => return Err(PlacementError::InvalidGroupSize(members.len())),
        };
        let Some(pod_set) = pod_sets.get(workers) else {
            return Ok(());
        };
        let result = if pod_set.replacement.is_some() {
            self.replace_failed_node(pod_set, leader.and_then(|index| pod_sets.get(index)), view, gates)?
        } else {
            self.place_request(
                &PlacementRequest::new(pod_set, leader.and_then(|index| pod_sets.get(index))),
                view,
                gates,
            )?
        };
        let mut occupancies = Vec::new();
        for (index, placement) in [(Some(workers), Some(result.workers)), (leader, result.leader)] {
            let Some(index) = index else { continue };
            let (Some(pod_set), Some(slot)) = (pod_sets.get(index), placed.get_mut(index)) else { continue };
            occupancies.extend(
                placement.as_ref().map(|placement| pod_set.occupancy(pod_set.added_domains(placement))),
            );
            *slot = placement;
        }
        // After the last pod set there is no other that would have to see this usage.
        if placed.iter().any(Option::is_none) {
            for occupancy in occupancies {
                let footprint = self.footprint(&[occupancy]);
                self.leaf_capacities.simulate_usage(&footprint, 1);
                simulated.push(footprint);
            }
        }
        Ok(())
    }

    /// Returns placements for a request.
    pub(super) fn place_request(
        &mut self,
        request: &PlacementRequest,
        view: CapacityView,
        gates: TasGates,
    ) -> Result<PlacementResult, PlacementError> {
        let (layout, assignments) = self.assign_leaves(request, view, gates)?;
        let tree = self.trees.get(&request.workers.flavor).ok_or(PlacementError::NoTopology)?;
        Ok(to_placement_result(tree, &layout, assignments, request.leader.is_some()))
    }

    /// Assigns the pods of a request to leaves of the flavor's current layout.
    fn assign_leaves(
        &mut self,
        request: &PlacementRequest,
        view: CapacityView,
        gates: TasGates,
    ) -> Result<(Arc<DomainLayout>, Vec<DomainAssignment>), PlacementError> {
        let pod_set = request.workers;
        let Some(tree) = self.trees.get_mut(&pod_set.flavor) else {
            return Err(PlacementError::NoTopology);
        };
        let params = match &request.params {
            Some(params) => params.clone(),
            None => PlacementParams::resolve(&pod_set.pods, tree, gates)?,
        };
        let layout = tree.layout();
        // Requests restricted to some leaves rarely repeat, so they are not cached.
        let cacheable = request.allowed_leaves.is_none() && request.excluded_hosts.is_empty();
        let leader = request.leader.map(|leader| Arc::clone(&leader.pods));
        let key = CountKey {
            pods: Arc::clone(&pod_set.pods),
            leader,
            params,
            view,
            respect_preferred_affinity: gates.respect_preferred_affinity,
        };
        let existing = if cacheable { self.count_cache.take(&key, &layout) } else { None };
        let mut cached = existing.unwrap_or_else(|| {
            let pod = self.resource_names.pod_requests(&pod_set.pods.requests);
            let leader = request.leader.map(|leader| self.resource_names.pod_requests(&leader.pods.requests));
            CachedCounts::new(key, &layout, resource_needs(&pod, leader.as_ref()))
        });
        let tree = self.trees.get(&pod_set.flavor).ok_or(PlacementError::NoTopology)?;
        let needs = Arc::clone(&cached.needs);
        let count_request = CountRequest {
            pods: &pod_set.pods,
            extra_tolerations: &tree.flavor.tolerations,
            needs,
            has_leader: request.leader.is_some(),
            view,
            respect_preferred_affinity: gates.respect_preferred_affinity,
            allowed_leaves: request.allowed_leaves.clone(),
            excluded_hosts: request.excluded_hosts,
        };
        self.update_fits(&mut cached, tree, &layout, &count_request);
        let assignments = cached.select_domains(&layout, request.count, gates);
        if cacheable {
            self.count_cache.insert(cached);
        }
        Ok((layout, assignments?))
    }
}

impl TasPodSetRequest {
    /// Returns the part of a placement whose capacity its pods do not use already.
    pub fn added_domains(&self, placement: &Placement) -> Placement {
        let Some((kept, _)) = &self.replacement else {
            return placement.clone();
        };
        let pods_before = |values: &DomainPath| {
            let same = kept.domains.iter().filter(|(values_before, _)| values_before.last() == values.last());
            same.fold(0_i32, |sum, (_, pods)| sum.saturating_add(*pods))
        };
        let added = |(values, pods): &(DomainPath, i32)| {
            (Arc::clone(values), pods.saturating_sub(pods_before(values)))
        };
        let domains = placement.domains.iter().map(added).filter(|(_, pods)| *pods > 0).collect();
        Placement { levels: Arc::clone(&placement.levels), domains }
    }
}

/// Converts assignments of leaves to placements.
fn to_placement_result(
    tree: &TopologyTree,
    layout: &DomainLayout,
    mut assignments: Vec<DomainAssignment>,
    has_leader: bool,
) -> PlacementResult {
    assignments.sort_unstable_by_key(|assignment| assignment.domain);
    let levels = placement_levels(tree);
    let skip = tree.levels.len() - levels.len();
    let values = |leaf: usize| layout.paths.get(leaf).and_then(|path| path.get(skip..)).map(Arc::from);
    let domains = |pods: &dyn Fn(&DomainAssignment) -> i64| {
        let assigned = assignments.iter().filter(|assignment| pods(assignment) > 0);
        let domain = |assignment: &DomainAssignment| {
            Some((values(assignment.domain)?, i32::try_from(pods(assignment)).unwrap_or(i32::MAX)))
        };
        Placement { levels: Arc::clone(&levels), domains: assigned.filter_map(domain).collect() }
    };
    PlacementResult {
        workers: domains(&|assignment| assignment.units),
        leader: has_leader.then(|| domains(&|assignment| i64::from(assignment.has_leader))),
    }
}

/// Returns the labels of the levels in a placement: the hostname alone where the tree ends in hosts.
fn placement_levels(tree: &TopologyTree) -> DomainPath {
    if tree.is_by_host() { Arc::from([Arc::from(HOSTNAME_LABEL)]) } else { Arc::clone(&tree.levels) }
}
