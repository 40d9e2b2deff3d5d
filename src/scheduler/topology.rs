//! Places on nodes in judging: which pods need one, whether they find one in the plan, and what that means.
//!
//! Nothing is decided here. What a workload holds on nodes moves with its quota, in the same two layers: in fact, and in
//! the plan where victims are gone and those for whom they go are in.

use super::capacity_reservations::CapacityReservation;
use super::compiled::{CompiledClusterQueue, CompiledResourceGroup};
use super::config::Flavor;
use super::decision::PodSetPlacement;
use super::engine::Engine;
use super::flavor_assigner::{
    AssignRequest, PodSetGroupFlavors, TentativeAssignment, blocker_without_amounts,
};
use super::granular_mode::PreemptionMode;
use super::preemption::{SchedulingContext, Target};
use super::reserving_workloads::ReservingWorkload;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::ReclaimPolicy;
use crate::queue::{BlockerKind, PodSet};
use crate::quota::{NodeId, Usage, UsageLayer};
use crate::topology::{
    CapacityView, DomainPath, FlavorSpec, Footprint, NodeSpec, Occupancy, Placement, PodSetPlacementError,
    TasCache, TasPodSetRequest,
};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pods of a workload that need a place, and where they would go.
#[derive(Clone, Debug, Default)]
pub(super) struct TasAssignment {
    pub(super) pod_set_requests: Vec<TasPodSetRequest>,
    /// Place of the pod set of each part.
    pub(super) pod_set_indexes: Vec<usize>,
    /// By part, once they were found.
    placements: Vec<Placement>,
    /// Pod sets that get their place later.
    pub(super) delayed: BTreeSet<usize>,
    /// What they take beside what they have already, once somebody asked.
    footprint: OnceCell<Arc<Footprint>>,
}

impl TasAssignment {
    /// Where the pods of a pod set go.
    pub(super) fn pod_set_placement(&self, pod_set: usize) -> PodSetPlacement {
        let part = self.pod_set_indexes.iter().position(|member| *member == pod_set);
        match part.and_then(|part| self.placements.get(part)) {
            Some(placement) => PodSetPlacement::Assigned(placement.clone()),
            None if self.delayed.contains(&pod_set) => PodSetPlacement::Delayed,
            None => PodSetPlacement::Unconstrained,
        }
    }

    /// What they take on nodes.
    pub(super) fn occupancies(&self) -> Vec<Occupancy> {
        let pairs = self.pod_set_requests.iter().zip(&self.placements);
        pairs.map(|(part, placement)| part.occupancy(placement.clone())).collect()
    }

    /// Places for all parts were found, or others than before.
    pub(super) fn set_placements(&mut self, placements: Vec<Placement>) {
        (self.placements, self.footprint) = (placements, OnceCell::new());
    }

    /// What they take beside what they have already.
    pub(super) fn footprint(&self, cluster: &mut TasCache) -> Arc<Footprint> {
        let footprint = self.footprint.get_or_init(|| {
            let pairs = self.pod_set_requests.iter().zip(&self.placements);
            let new = pairs.map(|(part, placement)| part.occupancy(part.added_domains(placement)));
            Arc::new(cluster.footprint(&new.collect::<Vec<Occupancy>>()))
        });
        Arc::clone(footprint)
    }

    /// Flavors on whose nodes they go.
    pub(super) fn flavors(&self) -> BTreeSet<Arc<str>> {
        self.pod_set_requests.iter().map(|part| Arc::clone(&part.flavor)).collect()
    }
}

/// Why a flavor does not suit pods for the sake of topology, if so.
pub(super) fn topology_mismatch<'a>(
    field: &SchedulingContext,
    question: &AssignRequest,
    name: &Arc<str>,
    group: &CompiledResourceGroup,
    mut sets: impl Iterator<Item = &'a PodSet>,
) -> Option<String> {
    if !field.settings.gates.topology {
        return None;
    }
    let has_topology = |name: &str| question.flavors.get(name).is_some_and(|f| f.topology_name.is_some());
    let mut all = question.queue.groups.iter().flat_map(|group| &group.flavors);
    let all_topology = all.all(|flavor| has_topology(&flavor.name));
    let topology = has_topology(name);
    let why = |set: &PodSet| match (set.pod_requirements.is_explicit(), topology) {
        (true, true) if field.topology.lacks_level(name, &set.pod_requirements) => {
            Some(format!("flavor {name} does not contain the requested level"))
        }
        // A group of resources that no node has is quota alone: where the pods go is no matter of its flavors.
        (true, false)
            if set.pod_requirements.requests.keys().any(|resource| group.position(resource).is_some()) =>
        {
            Some(format!("flavor {name} does not support topology-aware scheduling"))
        }
        (false, true) if !all_topology => {
            Some(format!("flavor {name} supports only topology-aware scheduling"))
        }
        _ => None,
    };
    sets.find_map(why)
}

/// Flavors with a topology that a pod set was given; one without requests has those of its group.
fn topology_flavors_of<'a>(
    pick: &PodSetGroupFlavors,
    set: &PodSet,
    queue: &'a CompiledClusterQueue,
    flavors: &BTreeMap<Arc<str>, Flavor>,
) -> BTreeSet<&'a Arc<str>> {
    let of = |own: bool| {
        let given = pick.flavors.iter().filter_map(|(group, flavor)| {
            let group = queue.groups.get(*group)?;
            let asks = set.requests.keys().any(|resource| group.position(resource).is_some())
                || group.position("pods").is_some();
            (asks || !own).then(|| group.flavors.get(*flavor).map(|flavor| &flavor.name)).flatten()
        });
        let has_topology = |name: &&Arc<str>| flavors.get(*name).is_some_and(|f| f.topology_name.is_some());
        given.filter(has_topology).collect::<BTreeSet<_>>()
    };
    if set.requests.is_empty() { of(false) } else { of(true) }
}

/// The pods of an assignment that need a place.
fn tas_assignment_of(
    question: &AssignRequest,
    picks: &[PodSetGroupFlavors],
) -> Result<TasAssignment, (usize, &'static str)> {
    let mut stand = TasAssignment::default();
    let config = &question.queue.config;
    for pick in picks {
        for at in &pick.pod_set_indexes {
            let Some(set) = question.pod_sets.get(*at) else { continue };
            let mut flavors = topology_flavors_of(pick, set, question.queue, question.flavors).into_iter();
            let flavor = match (flavors.next(), flavors.next()) {
                (None, _) if set.pod_requirements.is_explicit() => {
                    return Err((*at, "no flavor with a topology assigned"));
                }
                (None, _) => continue,
                (Some(flavor), None) => flavor,
                (Some(_), Some(_)) => return Err((*at, "more than one flavor with a topology assigned")),
            };
            if set.count <= 0 {
                continue;
            }
            if config.topology_by_worker_cluster || config.provisioned_flavors.contains(flavor) {
                stand.delayed.insert(*at);
                continue;
            }
            stand.pod_set_indexes.push(*at);
            stand.pod_set_requests.push(TasPodSetRequest {
                flavor: Arc::clone(flavor),
                pods: Arc::clone(&set.pod_requirements),
                count: set.count,
                group: set.group.clone(),
                replacement: None,
            });
        }
    }
    Ok(stand)
}

/// Looks for places for the pods of an assignment. Where there are none now, it becomes a matter of evictions; where there
/// would be none without any workload either, it does not fit.
pub(super) fn assign_topology(
    field: &mut SchedulingContext,
    question: &AssignRequest,
    judgement: &mut TentativeAssignment,
) {
    if !field.settings.gates.topology || judgement.mode == PreemptionMode::NoFit {
        return;
    }
    match tas_assignment_of(question, &judgement.group_flavors) {
        Ok(stand) => judgement.tas_assignment = stand,
        Err((at, why)) => {
            add_topology_blocker(question, judgement, at, why);
            (judgement.mode, judgement.reason) =
                (PreemptionMode::NoFit, PendingReason::TopologyPlacementFailed);
        }
    }
    if judgement.tas_assignment.pod_set_requests.is_empty() {
        return;
    }
    let rules = field.settings.gates.placement;
    match field.topology.place_now_or_projected(&judgement.tas_assignment.pod_set_requests, rules) {
        Ok(placements) if judgement.mode == PreemptionMode::Fit => {
            judgement.tas_assignment.set_placements(placements);
            return;
        }
        // Quota has to come first: what becomes of places meanwhile does not matter.
        Ok(_) => {}
        Err(refused) => {
            if judgement.mode == PreemptionMode::Fit {
                add_placement_blocker(field, question, judgement, &refused, CapacityView::Projected);
            }
            judgement.wake_conditions.on_topology_change = judgement.tas_assignment.flavors();
            if let Err(refused) = field.topology.place_all(
                &judgement.tas_assignment.pod_set_requests,
                CapacityView::Empty,
                rules,
            ) {
                add_placement_blocker(field, question, judgement, &refused, CapacityView::Empty);
                (judgement.mode, judgement.reason) =
                    (PreemptionMode::NoFit, PendingReason::TopologyPlacementFailed);
                return;
            }
        }
    }
    judgement.mode = judgement.mode.min(PreemptionMode::Preempt);
    let flavors = judgement.tas_assignment.flavors();
    for (pair, _) in &judgement.usage {
        let placed = field.tree.fr_name(*pair).is_some_and(|name| flavors.contains(&name.flavor));
        if placed && !judgement.frs_need_preemption.contains(pair) {
            judgement.frs_need_preemption.push(*pair);
        }
    }
    if question.queue.may_preempt() {
        judgement.wake_conditions.on_release.extend(judgement.frs_need_preemption.iter().copied());
    }
}

/// Notes why there are no places in a view.
fn add_placement_blocker(
    field: &mut SchedulingContext,
    question: &AssignRequest,
    judgement: &mut TentativeAssignment,
    (at, refusal): &PodSetPlacementError,
    view: CapacityView,
) {
    let Some(part) = judgement.tas_assignment.pod_set_requests.get(*at) else { return };
    let why = field.topology.explain(part, refusal, view, field.settings.gates.placement);
    let member = judgement.tas_assignment.pod_set_indexes.get(*at).copied().unwrap_or_default();
    add_topology_blocker(question, judgement, member, &why);
}

fn add_topology_blocker(
    question: &AssignRequest,
    judgement: &mut TentativeAssignment,
    pod_set: usize,
    why: &str,
) {
    let name = question.pod_sets.get(pod_set).map(|set| Arc::clone(&set.name)).unwrap_or_default();
    let blocker = blocker_without_amounts(&name, "", "", BlockerKind::Mismatch(Arc::from(why)));
    if !judgement.blockers.contains(&blocker) {
        judgement.blockers.push(blocker);
    }
}

/// Quota and places that somebody takes in the plan.
#[derive(Clone, Debug)]
pub(super) struct CapacityUsage {
    pub(super) node: NodeId,
    pub(super) usage: Usage,
    pub(super) footprint: Arc<Footprint>,
}

impl CapacityUsage {
    /// What a holder takes.
    pub(super) fn from_workload(holder: &ReservingWorkload) -> Self {
        Self { node: holder.node, usage: holder.usage.clone(), footprint: Arc::clone(&holder.footprint) }
    }

    /// What victims take.
    pub(super) fn from_targets(targets: &[Target]) -> Vec<Self> {
        targets.iter().map(|target| Self::from_workload(&target.workload)).collect()
    }

    /// What is kept for somebody.
    pub(super) fn from_reservation(earmark: &CapacityReservation) -> Self {
        Self { node: earmark.node, usage: earmark.usage.clone(), footprint: Arc::clone(&earmark.footprint) }
    }
}

impl Engine {
    /// Sets the levels of a Topology, or removes it.
    pub fn set_topology(&mut self, name: &str, levels: Option<DomainPath>) {
        if self.topology.set_topology(name, levels) {
            let users = self.flavors.iter().filter(|(_, f)| f.topology_name.as_deref() == Some(name));
            let users: Vec<Arc<str>> = users.map(|(flavor, _)| Arc::clone(flavor)).collect();
            self.pending.topology_changed(&users);
        }
    }

    /// Sets what is known of a node, or removes it.
    pub fn set_node(&mut self, name: &str, node: Option<NodeSpec>) {
        let touched = self.topology.set_node(name, node);
        self.pending.topology_changed(&touched);
    }

    /// Sets what a pod takes of a node that no workload with a topology owns, or removes it.
    pub fn set_pod(
        &mut self,
        key: &crate::api::ObjectKey,
        takes: Option<(Arc<str>, crate::resources::Requests)>,
    ) {
        let touched = self.topology.set_non_tas_pod(key, takes);
        self.pending.topology_changed(&touched);
    }

    /// Nodes and what stands on them.
    pub fn topology(&self) -> &TasCache {
        &self.topology
    }

    /// A flavor is known otherwise: so are its nodes.
    pub(super) fn update_topology_flavor(&mut self, name: &str) {
        let spec = self.flavors.get(name).and_then(|flavor| {
            let topology = flavor.topology_name.clone().filter(|_| self.settings.gates.topology)?;
            let (node_labels, tolerations) = (flavor.node_labels.clone(), flavor.tolerations.clone());
            Some(FlavorSpec { node_labels, tolerations, topology })
        });
        self.topology.set_flavor(name, spec);
    }

    /// Moves what is taken of nodes and wakes those who wait for room there.
    pub(super) fn shift_footprint(&mut self, stand: &Footprint, sign: i128, layers: &[UsageLayer]) {
        if stand.is_empty() {
            return;
        }
        for layer in layers {
            self.topology.shift_usage(stand, sign, *layer);
        }
        if sign < 0 {
            let flavors = self.topology.flavors_of(stand);
            self.pending.topology_changed(&flavors);
        }
    }

    /// Tries out what somebody takes, or takes it back.
    pub(super) fn shift_usage(&mut self, taken: &CapacityUsage, sign: i128, layer: UsageLayer) {
        self.tree.shift_usage(taken.node, &taken.usage, sign, layer);
        self.topology.shift_usage(&taken.footprint, sign, layer);
    }

    /// Asks a question as if these had nothing.
    pub(super) fn with_usage_removed<T>(
        &mut self,
        gone: &[CapacityUsage],
        layer: UsageLayer,
        ask: impl FnOnce(&mut Self) -> T,
    ) -> T {
        for taken in gone {
            self.shift_usage(taken, -1, layer);
        }
        let answer = ask(self);
        for taken in gone {
            self.shift_usage(taken, 1, layer);
        }
        answer
    }

    /// Finds the places that pods will have once victims are gone; without any, those that they would claim of empty nodes.
    pub(super) fn assign_projected_topology(
        &mut self,
        queue: &str,
        judgement: &mut TentativeAssignment,
        targets: &[Target],
    ) {
        // A queue that may take everything back claims nothing.
        let claims = self.reclaim_policy(queue) != ReclaimPolicy::Any;
        let parts = &judgement.tas_assignment.pod_set_requests;
        if !judgement.mode.needs_preemption() || parts.is_empty() || (targets.is_empty() && !claims) {
            return;
        }
        let rules = self.settings.gates.placement;
        let view = if targets.is_empty() { CapacityView::Empty } else { CapacityView::Projected };
        let place = |engine: &mut Self| engine.topology.place_all(parts, view, rules);
        if let Ok(placements) =
            self.with_usage_removed(&CapacityUsage::from_targets(targets), UsageLayer::Projected, place)
        {
            judgement.tas_assignment.set_placements(placements);
        }
    }
}
