//! Topology assignment during scheduling: which pod sets need nodes, whether projected usage has room for them, and
//! what follows for the assignment.
//!
//! Invariants: nothing is decided here. Leaf capacity is charged together with quota, in the same two layers: current
//! usage and projected usage.
//! Neighbours: `crate::topology` searches placements; `flavor_assigner`, `second_pass` and `cycle` call.

use super::capacity_reservations::CapacityReservation;
use super::compiled::{CompiledClusterQueue, CompiledResourceGroup};
use super::config::Flavor;
use super::decision::PodSetPlacement;
use super::engine::Engine;
use super::flavor_assigner::{AssignRequest, blocker_without_amounts};
use super::granular_mode::PreemptionMode;
use super::preemption::{FlavorRules, SchedulingContext, Target};
use super::reserving_workloads::ReservingWorkload;
use super::tentative_assignment::{PodSetGroupFlavors, TentativeAssignment};
use crate::api::reason::PendingReason;
use crate::queue::{BlockerKind, PodSet};
use crate::quota::{NodeId, Usage, UsageLayer};
use crate::topology::{
    CapacityView, DomainPath, FlavorSpec, Footprint, NodeSpec, NonTasPod, Occupancy, Placement,
    PodSetPlacementError, PriorPlacement, TasCache, TasPodSetRequest,
};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pod sets of a workload that need a topology assignment, and their placements.
#[derive(Clone, Debug, Default)]
pub(super) struct TasAssignment {
    pub(super) pod_set_requests: Vec<TasPodSetRequest>,
    /// Index of the pod set of each request.
    pub(super) pod_set_indexes: Vec<usize>,
    /// Placement of each request, once found.
    placements: Vec<Placement>,
    /// Pod sets whose topology is assigned in a second pass.
    pub(super) delayed: BTreeSet<usize>,
    /// Leaf capacity taken in addition to what the workload already has; computed on first use.
    footprint: OnceCell<Arc<Footprint>>,
}

impl TasAssignment {
    /// Where the pods of a pod set go.
    pub(super) fn pod_set_placement(&self, pod_set: usize) -> PodSetPlacement {
        let index = self.pod_set_indexes.iter().position(|member| *member == pod_set);
        match index.and_then(|index| self.placements.get(index)) {
            Some(placement) => PodSetPlacement::Assigned(placement.clone()),
            None if self.delayed.contains(&pod_set) => PodSetPlacement::Delayed,
            None => PodSetPlacement::Unconstrained,
        }
    }

    /// Occupancies of all placements.
    pub(super) fn occupancies(&self) -> Vec<Occupancy> {
        let placed = self.pod_set_requests.iter().zip(&self.placements);
        placed.map(|(pod_set_request, placement)| pod_set_request.occupancy(placement.clone())).collect()
    }

    /// Sets the placements of all requests.
    pub(super) fn set_placements(&mut self, placements: Vec<Placement>) {
        (self.placements, self.footprint) = (placements, OnceCell::new());
    }

    /// Leaf capacity taken in addition to what the workload already has.
    pub(super) fn footprint(&self, cluster: &mut TasCache) -> Arc<Footprint> {
        let footprint = self.footprint.get_or_init(|| {
            let placed = self.pod_set_requests.iter().zip(&self.placements);
            let new = placed.map(|(pod_set_request, placement)| {
                pod_set_request.occupancy(pod_set_request.added_domains(placement))
            });
            Arc::new(cluster.footprint(&new.collect::<Vec<Occupancy>>()))
        });
        Arc::clone(footprint)
    }

    /// Flavors on whose nodes the pods go.
    pub(super) fn flavors(&self) -> BTreeSet<Arc<str>> {
        self.pod_set_requests.iter().map(|pod_set_request| Arc::clone(&pod_set_request.flavor)).collect()
    }
}

/// Why the topology of a flavor does not suit the pods, if it does not.
pub(super) fn topology_mismatch<'a>(
    (rules, request): (FlavorRules<'_>, &AssignRequest),
    name: &Arc<str>,
    group: &CompiledResourceGroup,
    mut sets: impl Iterator<Item = &'a PodSet>,
) -> Option<String> {
    if !rules.gates.topology {
        return None;
    }
    let has_topology = |name: &str| request.flavors.get(name).is_some_and(|f| f.topology_name.is_some());
    let mut queue_flavors = request.queue.groups.iter().flat_map(|group| &group.flavors);
    let all_have_topology = queue_flavors.all(|flavor| has_topology(&flavor.name));
    let topology = has_topology(name);
    if topology && request.workload.is_slice && !rules.gates.elastic_topology {
        return Some(format!(
            "flavor {name} has a topology, which elastic jobs need the feature gate ElasticJobsViaWorkloadSlicesWithTAS for"
        ));
    }
    let mismatch = |set: &PodSet| match (set.pod_requirements.is_explicit(), topology) {
        (true, true) if rules.topology.lacks_level(name, &set.pod_requirements) => {
            Some(format!("flavor {name} does not contain the requested level"))
        }
        // A resource group that no pod of the set requests only counts quota; its flavor does not decide where pods
        // go.
        (true, false)
            if set.pod_requirements.requests.keys().any(|resource| group.position(resource).is_some()) =>
        {
            Some(format!("flavor {name} does not support topology-aware scheduling"))
        }
        (false, true) if !all_have_topology => {
            Some(format!("flavor {name} supports only topology-aware scheduling"))
        }
        _ => None,
    };
    sets.find_map(mismatch)
}

/// Flavors with a topology assigned to a pod set; a pod set without requests uses those of its group.
fn topology_flavors_of<'a>(
    group_flavors: &PodSetGroupFlavors,
    set: &PodSet,
    queue: &'a CompiledClusterQueue,
    flavors: &BTreeMap<Arc<str>, Flavor>,
) -> BTreeSet<&'a Arc<str>> {
    let flavors_with = |only_requested: bool| {
        let assigned = group_flavors.flavors.iter().filter_map(|index| {
            let (group, flavor) = index.find(queue)?;
            let requested = set.requests.keys().any(|resource| group.position(resource).is_some())
                || group.position("pods").is_some();
            (requested || !only_requested).then_some(&flavor.name)
        });
        let has_topology = |name: &&Arc<str>| flavors.get(*name).is_some_and(|f| f.topology_name.is_some());
        assigned.filter(has_topology).collect::<BTreeSet<_>>()
    };
    if set.requests.is_empty() { flavors_with(false) } else { flavors_with(true) }
}

/// Collects the pod sets of an assignment that need nodes.
fn tas_assignment_of(
    request: &AssignRequest,
    all_group_flavors: &[PodSetGroupFlavors],
) -> Result<TasAssignment, (usize, &'static str)> {
    let mut tas_assignment = TasAssignment::default();
    let config = &request.queue.config;
    for group_flavors in all_group_flavors {
        for index in &group_flavors.pod_set_indexes {
            let Some(set) = request.pod_sets.get(*index) else { continue };
            let mut flavors =
                topology_flavors_of(group_flavors, set, request.queue, request.flavors).into_iter();
            let flavor = match (flavors.next(), flavors.next()) {
                (None, _) if set.pod_requirements.is_explicit() => {
                    return Err((*index, "no flavor with a topology assigned"));
                }
                (None, _) => continue,
                (Some(flavor), None) => flavor,
                (Some(_), Some(_)) => return Err((*index, "more than one flavor with a topology assigned")),
            };
            if let Some(message) = constraint_on_slice(request, set) {
                return Err((*index, message));
            }
            if set.count <= 0 {
                continue;
            }
            let prior = placement_in_replaced_slice(request, set, flavor);
            if config.topology_by_worker_cluster || config.provisioned_flavors.contains(flavor) {
                if prior != PriorPlacement::None {
                    // A second pass would place the pods that run as well, and their own nodes would seem free.
                    return Err((
                        *index,
                        "an elastic job with a topology cannot grow on nodes that are provisioned",
                    ));
                }
                tas_assignment.delayed.insert(*index);
                continue;
            }
            tas_assignment.pod_set_indexes.push(*index);
            tas_assignment.pod_set_requests.push(TasPodSetRequest {
                flavor: Arc::clone(flavor),
                pods: Arc::clone(&set.pod_requirements),
                count: set.count,
                // Pods that run have their places, whether or not these suit the group.
                group: set.group.clone().filter(|_| prior == PriorPlacement::None),
                name: Arc::clone(&set.name),
                prior,
            });
        }
    }
    Ok(tas_assignment)
}

/// Returns why the topology request of a pod set does not suit a slice, if it does not: pods that are added when the job grows
/// need not fit into the domain of those that run, and these do not move.
fn constraint_on_slice(request: &AssignRequest, set: &PodSet) -> Option<&'static str> {
    let topology = set.pod_requirements.request.as_ref().filter(|_| request.workload.is_slice)?;
    if topology.required.is_some() {
        Some("required topology is not supported with ElasticJobsViaWorkloadSlices")
    } else if topology.preferred.is_some() {
        Some("preferred topology is not supported with ElasticJobsViaWorkloadSlices")
    } else if topology.pod_set_slice_required_topology.is_some()
        || !topology.pod_set_slice_required_topology_constraints.is_empty()
    {
        Some("slices of a topology are not supported with ElasticJobsViaWorkloadSlices")
    } else {
        None
    }
}

/// Returns where the slice that the workload replaces has pods of a pod set. The pods of a slice that is being evicted end.
fn placement_in_replaced_slice(request: &AssignRequest, set: &PodSet, flavor: &Arc<str>) -> PriorPlacement {
    let slice = request.replaced_slice.filter(|old| request.workload.is_slice && !old.is_terminating());
    let mut occupancies = slice.into_iter().flat_map(|old| &old.charge.topology);
    let own = occupancies.find(|occupancy| occupancy.pod_set == set.name && occupancy.flavor == *flavor);
    own.map_or(PriorPlacement::None, |own| PriorPlacement::OfSlice(own.placement.clone()))
}

/// Assigns nodes to an assignment. If there are none now, the assignment needs preemption; if there would be none
/// even on empty nodes, it does not fit.
pub(super) fn assign_topology(
    context: &mut SchedulingContext,
    request: &AssignRequest,
    assignment: &mut TentativeAssignment,
) {
    if !context.settings.gates.topology || assignment.mode == PreemptionMode::NoFit {
        return;
    }
    match tas_assignment_of(request, &assignment.group_flavors) {
        Ok(tas_assignment) => assignment.tas_assignment = tas_assignment,
        Err((index, message)) => {
            add_topology_blocker(request, assignment, index, BlockerKind::Mismatch(Arc::from(message)));
            (assignment.mode, assignment.reason) =
                (PreemptionMode::NoFit, PendingReason::TopologyPlacementFailed);
        }
    }
    if assignment.tas_assignment.pod_set_requests.is_empty() {
        return;
    }
    let gates = context.settings.gates.placement;
    let requests = &assignment.tas_assignment.pod_set_requests;
    let placed = if context.is_empty {
        context.topology.place_all(requests, CapacityView::Released, gates)
    } else {
        context.topology.place_now_or_projected(requests, gates)
    };
    match placed {
        Ok(placements) if assignment.mode == PreemptionMode::Fit => {
            assignment.tas_assignment.set_placements(placements);
            return;
        }
        // Quota needs preemption anyway; nodes are assigned after the target search.
        Ok(_) => {}
        Err(in_use) => {
            assignment.wake_conditions.on_topology_change = assignment.tas_assignment.flavors();
            let requests = &assignment.tas_assignment.pod_set_requests;
            let view = if context.is_empty { CapacityView::Released } else { CapacityView::Empty };
            let empty = context.topology.place_all(requests, view, gates);
            if let Err(error) = empty {
                // Pods of workloads without a topology go with their workloads.
                let ends = !context.is_empty
                    && context.topology.has_ending_pods()
                    && context.topology.can_place(requests, CapacityView::Released, gates);
                let kind: BlockerOf = if ends { BlockerKind::NodesInUse } else { BlockerKind::Mismatch };
                // What is free now does not matter: two counts of one topology would contradict each other.
                add_placement_blocker(context, request, assignment, &error, (view, kind));
                (assignment.mode, assignment.reason) =
                    (PreemptionMode::NoFit, PendingReason::TopologyPlacementFailed);
                return;
            }
            if assignment.mode == PreemptionMode::Fit {
                let kind: BlockerOf = BlockerKind::NodesInUse;
                add_placement_blocker(context, request, assignment, &in_use, (CapacityView::Projected, kind));
            }
        }
    }
    assignment.mode = assignment.mode.min(PreemptionMode::Preempt);
    let flavors = assignment.tas_assignment.flavors();
    for (fr, _) in &assignment.usage {
        let needs_nodes = context.tree.fr_name(*fr).is_some_and(|name| flavors.contains(&name.flavor));
        if needs_nodes && !assignment.frs_need_preemption.contains(fr) {
            assignment.frs_need_preemption.push(*fr);
        }
    }
    if request.queue.policy.may_preempt() {
        assignment.wake_conditions.on_release.extend(assignment.frs_need_preemption.iter().copied());
    }
}

/// Makes a blocker of a message.
type BlockerOf = fn(Arc<str>) -> BlockerKind;

/// Adds the reason why a view has no placement as a blocker.
fn add_placement_blocker(
    context: &mut SchedulingContext,
    request: &AssignRequest,
    assignment: &mut TentativeAssignment,
    failure: &PodSetPlacementError,
    (view, kind): (CapacityView, BlockerOf),
) {
    let Some(pod_set_request) = assignment.tas_assignment.pod_set_requests.get(failure.pod_set) else {
        return;
    };
    let gates = context.settings.gates.placement;
    let message = context.topology.explain(pod_set_request, &failure.error, view, gates);
    let pod_set = assignment.tas_assignment.pod_set_indexes.get(failure.pod_set).copied().unwrap_or_default();
    add_topology_blocker(request, assignment, pod_set, kind(Arc::from(message)));
}

fn add_topology_blocker(
    request: &AssignRequest,
    assignment: &mut TentativeAssignment,
    pod_set: usize,
    kind: BlockerKind,
) {
    let name = request.pod_sets.get(pod_set).map(|set| Arc::clone(&set.name)).unwrap_or_default();
    let blocker = blocker_without_amounts(&name, "", "", kind);
    if !assignment.blockers.contains(&blocker) {
        assignment.blockers.push(blocker);
    }
}

/// Quota and leaf capacity that one workload takes.
#[derive(Clone, Debug)]
pub(super) struct CapacityUsage {
    pub(super) node: NodeId,
    pub(super) usage: Usage,
    pub(super) footprint: Arc<Footprint>,
}

impl CapacityUsage {
    /// Usage of a workload with quota.
    pub(super) fn from_workload(workload: &ReservingWorkload) -> Self {
        Self {
            node: workload.node,
            usage: workload.usage.clone(),
            footprint: Arc::clone(&workload.footprint),
        }
    }

    /// Usage of the targets.
    pub(super) fn from_targets(targets: &[Target]) -> Vec<Self> {
        targets.iter().map(|target| Self::from_workload(&target.workload)).collect()
    }

    /// Usage of a capacity reservation.
    pub(super) fn from_reservation(reservation: &CapacityReservation) -> Self {
        Self {
            node: reservation.node,
            usage: reservation.usage.clone(),
            footprint: Arc::clone(&reservation.footprint),
        }
    }
}

impl Engine {
    /// Sets the levels of a Topology, or removes it.
    pub fn set_topology(&mut self, name: &str, levels: Option<DomainPath>) {
        if self.topology.set_topology(name, levels) {
            self.standings.note_change();
            let flavors =
                self.config.flavors().iter().filter(|(_, f)| f.topology_name.as_deref() == Some(name));
            let flavors: Vec<Arc<str>> = flavors.map(|(flavor, _)| Arc::clone(flavor)).collect();
            self.pending.topology_changed(&flavors);
        }
    }

    /// Sets or removes a node.
    pub fn set_node(&mut self, name: &str, node: Option<NodeSpec>) {
        let changed = self.topology.set_node(name, node);
        if !changed.is_empty() {
            self.standings.note_change();
        }
        self.pending.topology_changed(&changed);
    }

    /// Sets or removes a pod outside topology assignments.
    pub fn set_pod(&mut self, key: &crate::api::ObjectKey, pod: Option<NonTasPod>) {
        let changed = self.topology.set_non_tas_pod(key, pod);
        if !changed.is_empty() {
            self.standings.note_change();
        }
        self.pending.topology_changed(&changed);
    }

    /// Nodes and their usage.
    pub fn topology(&self) -> &TasCache {
        &self.topology
    }

    /// Nodes and their usage, for questions that fill caches.
    pub(crate) fn topology_mut(&mut self) -> &mut TasCache {
        &mut self.topology
    }

    /// Passes a changed flavor on to the topology cache.
    pub(super) fn update_topology_flavor(&mut self, name: &str) {
        let spec = self.config.flavors().get(name).and_then(|flavor| {
            let topology = flavor.topology_name.clone().filter(|_| self.settings.gates.topology)?;
            let (node_labels, tolerations) = (flavor.node_labels.clone(), flavor.tolerations.clone());
            Some(FlavorSpec { node_labels, tolerations, topology })
        });
        self.standings.note_change();
        self.topology.set_flavor(name, spec);
    }

    /// Adds or removes a footprint and wakes the classes that wait for nodes when capacity was freed.
    pub(super) fn shift_footprint(&mut self, footprint: &Footprint, sign: i128, layers: &[UsageLayer]) {
        if footprint.is_empty() {
            return;
        }
        for layer in layers {
            self.topology.shift_usage(footprint, sign, *layer);
        }
        if sign < 0 {
            let flavors = self.topology.flavors_of(footprint);
            self.pending.topology_changed(&flavors);
        }
    }

    /// Adds or removes usage without waking any class; callers undo it.
    pub(super) fn shift_usage(&mut self, capacity: &CapacityUsage, sign: i128, layer: UsageLayer) {
        self.tree.shift_usage(capacity.node, &capacity.usage, sign, layer);
        self.topology.shift_usage(&capacity.footprint, sign, layer);
    }

    /// Runs `ask` as if the given usage did not exist, and restores it.
    pub(super) fn with_usage_removed<T>(
        &mut self,
        removed: &[CapacityUsage],
        layer: UsageLayer,
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        for capacity in removed {
            self.shift_usage(capacity, -1, layer);
        }
        let result = ask(self);
        for capacity in removed {
            self.shift_usage(capacity, 1, layer);
        }
        result
    }

    /// Assigns the nodes that the pods get once the targets are evicted; without targets, the empty nodes that a head
    /// claim covers.
    pub(super) fn assign_projected_topology(
        &mut self,
        queue: &str,
        assignment: &mut TentativeAssignment,
        targets: &[Target],
    ) {
        // A ClusterQueue that may reclaim from any workload claims nothing.
        let claims = self.claims_capacity(queue);
        let pod_set_requests = &assignment.tas_assignment.pod_set_requests;
        if !assignment.mode.needs_preemption()
            || pod_set_requests.is_empty()
            || (targets.is_empty() && !claims)
        {
            return;
        }
        let gates = self.settings.gates.placement;
        let view = if targets.is_empty() { CapacityView::Empty } else { CapacityView::Projected };
        let place = |engine: &mut Self| engine.topology.place_all(pod_set_requests, view, gates);
        if let Ok(placements) =
            self.with_usage_removed(&CapacityUsage::from_targets(targets), UsageLayer::Projected, place)
        {
            assignment.tas_assignment.set_placements(placements);
        }
    }
}
