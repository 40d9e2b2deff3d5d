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
    /// Name of the pod set.
    pub name: Arc<str>,
    /// Where pods are already: only the others are placed.
    pub prior: PriorPlacement,
}

/// Where pods of a pod set are before a placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PriorPlacement {
    /// Nowhere.
    #[default]
    None,
    /// Here, but for the pods on the named nodes, which have failed.
    WithFailedNodes(Placement, Vec<String>),
    /// Here, on the capacity of the slice that the workload replaces; pods that the slice does not have are added.
    OfSlice(Placement),
}

impl TasPodSetRequest {
    /// Returns the usage of the pod set in a placement.
    pub fn occupancy(&self, placement: Placement) -> Occupancy {
        Occupancy {
            flavor: Arc::clone(&self.flavor),
            pod_set: Arc::clone(&self.name),
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
    pub(super) fn new(workers: &'a TasPodSetRequest, leader: Option<&'a TasPodSetRequest>) -> Self {
        let count = i64::from(workers.count);
        Self { workers, leader, count, allowed_leaves: None, excluded_hosts: &[], params: None }
    }

    /// Whether its counts are kept: requests restricted to some leaves rarely repeat.
    const fn is_repeated(&self) -> bool {
        self.allowed_leaves.is_none() && self.excluded_hosts.is_empty()
    }
}

/// Placements of workers and leader, domains sorted by value.
pub(super) struct PlacementResult {
    pub(super) workers: Placement,
    pub(super) leader: Option<Placement>,
}

/// Which pod set cannot be placed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSetPlacementError {
    /// Index of the pod set.
    pub pod_set: usize,
    /// Why.
    pub error: PlacementError,
}

/// Pod sets that are placed together, and how far that has come.
struct GroupPlacement<'a> {
    pod_sets: &'a [TasPodSetRequest],
    /// Placements by pod set, as far as they are known.
    placed: Vec<Option<Placement>>,
    /// Usage simulated for the pod sets placed so far.
    simulated: Vec<Footprint>,
}

impl<'a> GroupPlacement<'a> {
    fn new(pod_sets: &'a [TasPodSetRequest]) -> Self {
        Self { pod_sets, placed: vec![None; pod_sets.len()], simulated: Vec::new() }
    }

    fn is_placed(&self, index: usize) -> bool {
        self.placed.get(index).is_none_or(Option::is_some)
    }

    fn is_complete(&self) -> bool {
        self.placed.iter().all(Option::is_some)
    }

    /// Indexes of workers and leader of the group of a pod set.
    fn workers_and_leader(&self, index: usize) -> Result<(usize, Option<usize>), PlacementError> {
        let group = self.pod_sets.get(index).and_then(|pod_set| pod_set.group.as_ref());
        let in_group = self
            .pod_sets
            .iter()
            .enumerate()
            .filter(|(other, p)| *other == index || (group.is_some() && p.group.as_ref() == group));
        let members: Vec<usize> = in_group.map(|(other, _)| other).collect();
        match *members {
            [only] => Ok((only, None)),
            [first, second] => {
                let count = |index: usize| self.pod_sets.get(index).map_or(0, |pod_set| pod_set.count);
                if count(first) < count(second) {
                    Ok((second, Some(first)))
                } else {
                    Ok((first, Some(second)))
                }
            }
            _ => Err(PlacementError::InvalidGroupSize(members.len())),
        }
    }

    /// Records a placement. Returns the capacity that it takes in addition.
    fn record(&mut self, index: usize, placement: Option<Placement>) -> Option<Occupancy> {
        let (pod_set, slot) = (self.pod_sets.get(index)?, self.placed.get_mut(index)?);
        let occupancy =
            placement.as_ref().map(|placement| pod_set.occupancy(pod_set.added_domains(placement)));
        *slot = placement;
        occupancy
    }
}

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
        let mut placement = GroupPlacement::new(pod_sets);
        let mut result = Ok(());
        for index in 0..pod_sets.len() {
            if placement.is_placed(index) {
                continue;
            }
            if let Err(error) = self.place_group(&mut placement, index, view, gates) {
                result = Err(PodSetPlacementError { pod_set: index, error });
                break;
            }
        }
        for footprint in placement.simulated.iter().rev() {
            self.leaf_capacities.simulate_usage(footprint, -1);
        }
        result.map(|()| placement.placed.into_iter().flatten().collect())
    }

    /// Returns whether all pod sets can be placed.
    pub fn can_place(&mut self, pod_sets: &[TasPodSetRequest], view: CapacityView, gates: TasGates) -> bool {
        match pod_sets {
            [pod_set] if pod_set.prior == PriorPlacement::None => {
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
        placement: &mut GroupPlacement,
        index: usize,
        view: CapacityView,
        gates: TasGates,
    ) -> Result<(), PlacementError> {
        let (workers, leader) = placement.workers_and_leader(index)?;
        let Some(pod_set) = placement.pod_sets.get(workers) else {
            return Ok(());
        };
        let leader_set = leader.and_then(|index| placement.pod_sets.get(index));
        let result = match (&pod_set.prior, leader_set) {
            (PriorPlacement::None, _) => {
                self.place_request(&PlacementRequest::new(pod_set, leader_set), view, gates)?
            }
            (_, Some(_)) => return Err(PlacementError::InvalidGroupSize(2)),
            (PriorPlacement::WithFailedNodes(before, failed), None) => {
                self.replace_failed_node(pod_set, (before, failed), view, gates)?
            }
            (PriorPlacement::OfSlice(before), None) => self.place_added_pods(pod_set, before, view, gates)?,
        };
        let mut occupancies: Vec<Occupancy> =
            placement.record(workers, Some(result.workers)).into_iter().collect();
        occupancies.extend(leader.and_then(|leader| placement.record(leader, result.leader)));
        // After the last pod set there is no other that would have to see this usage.
        if !placement.is_complete() {
            for occupancy in occupancies {
                let footprint = self.footprint(&[occupancy]);
                self.leaf_capacities.simulate_usage(&footprint, 1);
                placement.simulated.push(footprint);
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
        Ok(to_placement_result(tree, &layout, &assignments, request.leader.is_some()))
    }

    /// Counts how many pods of a request fit into each domain of the flavor's current layout.
    ///
    /// # Errors
    /// The flavor has no topology, or not the levels that the pods request.
    pub(super) fn count(
        &mut self,
        request: &PlacementRequest,
        view: CapacityView,
        gates: TasGates,
    ) -> Result<(Arc<DomainLayout>, CachedCounts), PlacementError> {
        let pod_set = request.workers;
        let Some(tree) = self.trees.get_mut(&pod_set.flavor) else {
            return Err(PlacementError::NoTopology);
        };
        let params = match &request.params {
            Some(params) => params.clone(),
            None => PlacementParams::resolve(&pod_set.pods, tree, gates)?,
        };
        let layout = tree.layout();
        let leader = request.leader.map(|leader| Arc::clone(&leader.pods));
        let key = CountKey {
            pods: Arc::clone(&pod_set.pods),
            leader,
            params,
            view,
            respect_preferred_affinity: gates.respect_preferred_affinity,
        };
        let existing = if request.is_repeated() { self.count_cache.take(&key, &layout) } else { None };
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
        Ok((layout, cached))
    }

    /// Assigns the pods of a request to leaves of the flavor's current layout, sorted. All pods are assigned, whatever the size
    /// of slices: a pod without a domain would keep its scheduling gate for ever.
    fn assign_leaves(
        &mut self,
        request: &PlacementRequest,
        view: CapacityView,
        gates: TasGates,
    ) -> Result<(Arc<DomainLayout>, Vec<DomainAssignment>), PlacementError> {
        let (layout, mut cached) = self.count(request, view, gates)?;
        // The last slice may be incomplete: it gets the capacity of a whole one.
        let excess = (-request.count).rem_euclid(cached.key.params.slice_size);
        let assignments = cached.select_domains(&layout, request.count.saturating_add(excess), gates);
        if request.is_repeated() {
            self.count_cache.insert(cached);
        }
        let mut assignments = assignments?;
        assignments.sort_unstable_by_key(|assignment| assignment.domain);
        remove_last(&mut assignments, excess);
        Ok((layout, assignments))
    }
}

/// Removes pods from the last leaves. All of a slice are in one domain of its level, so that at most the last slice becomes
/// incomplete.
fn remove_last(assignments: &mut [DomainAssignment], mut excess: i64) {
    for assignment in assignments.iter_mut().rev() {
        let removed = assignment.units.min(excess);
        assignment.units -= removed;
        excess -= removed;
    }
}

impl TasPodSetRequest {
    /// Returns the part of a placement whose capacity its pods do not use already.
    pub fn added_domains(&self, placement: &Placement) -> Placement {
        let before = match &self.prior {
            PriorPlacement::None => return placement.clone(),
            PriorPlacement::OfSlice(before) | PriorPlacement::WithFailedNodes(before, _) => before,
        };
        let is_same = |a: &DomainPath, b: &DomainPath| {
            if before.levels == placement.levels { a == b } else { a.last() == b.last() }
        };
        let pods_before = |values: &DomainPath| {
            let same = before.domains.iter().filter(|(values_before, _)| is_same(values_before, values));
            same.fold(0_i32, |sum, (_, pods)| sum.saturating_add(*pods))
        };
        let added = |(values, pods): &(DomainPath, i32)| {
            (Arc::clone(values), pods.saturating_sub(pods_before(values)))
        };
        let domains = placement.domains.iter().map(added).filter(|(_, pods)| *pods > 0).collect();
        Placement { levels: Arc::clone(&placement.levels), domains }
    }
}

/// Converts assignments of leaves, which are sorted, to placements.
fn to_placement_result(
    tree: &TopologyTree,
    layout: &DomainLayout,
    assignments: &[DomainAssignment],
    has_leader: bool,
) -> PlacementResult {
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
pub(super) fn placement_levels(tree: &TopologyTree) -> DomainPath {
    if tree.is_by_host() { Arc::from([Arc::from(HOSTNAME_LABEL)]) } else { Arc::clone(&tree.levels) }
}
