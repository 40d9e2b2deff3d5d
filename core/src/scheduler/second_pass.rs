//! Second pass: assigns nodes to a workload that already holds quota, because the first pass could not assign them
//! yet or because assigned nodes failed.
//!
//! Invariants: only a workload that holds quota, has the same UID, and is neither evicted nor being preempted is
//! processed (I13); this is checked again when its decision is made. Quota is not requested again, and nodes only for
//! pods that have none. Two workloads never get the same leaf capacity in one cycle. Targets are selected as if the
//! workload arrived now and requested what it holds: a second pass may evict nothing that a first pass could not.
//! Neighbours: `topology` holds the assignment, `preemption` selects targets, `cycle` commits moves at its end.

use super::capacity_reservations::CapacityReservation;
use super::config::Charge;
use super::cycle::{CycleState, TopologyMove};
use super::decision::{Assignment, Decision, Outcome, PodSetPlacement, PreemptionReason};
use super::engine::Engine;
use super::granular_mode::{PreemptionMode, Requester};
use super::preemption::{Preemptor, Target};
use super::reserving_workloads::ReservingWorkload;
use super::topology::{CapacityUsage, TasAssignment};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{Verdict, Workload};
use crate::quota::{FlavorResourceId, Usage, UsageLayer};
use crate::topology::{CapacityView, Footprint, PodSetPlacementError, PriorPlacement, TasPodSetRequest};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A workload with quota that needs a second pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecondPassRequest {
    /// The workload with its pods as they will be placed, additions of admission checks included.
    pub workload: Workload,
    /// The assignment that it was granted.
    pub granted: Assignment,
    /// Nodes of its assignment that have failed.
    pub unhealthy_nodes: Vec<String>,
}

/// Result of the search for one workload.
enum SecondPassSearch {
    /// An assignment for all of its pods.
    Placed(TasAssignment),
    /// An assignment that is possible once the targets are evicted.
    NeedsPreemption(TasAssignment, Vec<Target>),
    /// Neither.
    NoPlacement(PlacementFailure),
}

/// Why a second pass found neither nodes nor targets.
#[derive(Default)]
struct PlacementFailure {
    message: String,
    /// Footprint on empty nodes to claim for the rest of the cycle, if evictions could have helped.
    wanted_footprint: Option<Arc<Footprint>>,
}

impl From<&str> for SecondPassSearch {
    fn from(message: &str) -> Self {
        Self::NoPlacement(PlacementFailure { message: message.to_owned(), wanted_footprint: None })
    }
}

impl Engine {
    /// Requests a second pass in the next cycle; replaces an earlier request of the same workload.
    pub fn request_second_pass(&mut self, request: SecondPassRequest) {
        self.second_pass_queue.insert(request.workload.key.clone(), request);
    }

    /// Searches assignments for all requested second passes, by priority, against usage at the start of the cycle.
    pub(super) fn nominate_second_passes(
        &mut self,
    ) -> Vec<(SecondPassRequest, Option<SecondPassNomination>)> {
        let mut requests: Vec<SecondPassRequest> =
            std::mem::take(&mut self.second_pass_queue).into_values().collect();
        requests.sort_by_key(|request| {
            let workload = &request.workload;
            (Reverse(workload.priority), workload.queued_since, workload.key.clone())
        });
        requests
            .into_iter()
            .map(|request| {
                let nomination = self
                    .eligible_workload(&request)
                    .map(|reserving| SecondPassNomination(self.search_second_pass(&request, &reserving)));
                (request, nomination)
            })
            .collect()
    }

    /// Returns the charged workload if it is still the same object and is not leaving.
    fn eligible_workload(&self, request: &SecondPassRequest) -> Option<Arc<ReservingWorkload>> {
        let reserving = self.reserving_workloads.get(&request.workload.key)?;
        let same_object = reserving.charge.uid == request.workload.uid
            && reserving.charge.cluster_queue == request.granted.cluster_queue;
        let stays = !reserving.charge.evicted && !reserving.is_terminating();
        (same_object && stays).then(|| Arc::clone(reserving))
    }

    fn search_second_pass(
        &mut self,
        request: &SecondPassRequest,
        reserving: &ReservingWorkload,
    ) -> SecondPassSearch {
        if let Some(precheck_failure) = &request.workload.precheck_failure {
            return SecondPassSearch::from(&*precheck_failure.to_string());
        }
        if self.inactive_reason(&reserving.charge.cluster_queue).is_some() {
            return SecondPassSearch::from("the ClusterQueue is inactive");
        }
        let mut tas_assignment = self.pod_sets_to_place(request);
        if tas_assignment.pod_set_requests.is_empty() {
            return SecondPassSearch::Placed(tas_assignment);
        }
        let gates = self.settings.gates.placement;
        self.with_usage_removed(&self.reservation_of(&reserving.key), UsageLayer::Projected, |engine| {
            match engine.topology.place_now_or_projected(&tas_assignment.pod_set_requests, gates) {
                Ok(placements) => {
                    tas_assignment.set_placements(placements);
                    SecondPassSearch::Placed(tas_assignment)
                }
                Err(error) if !request.unhealthy_nodes.is_empty() => {
                    engine.placement_failure(&tas_assignment, &error, CapacityView::Projected)
                }
                Err(_) => engine.search_with_preemption(request, reserving, tas_assignment),
            }
        })
    }

    fn placement_failure(
        &mut self,
        tas_assignment: &TasAssignment,
        failure: &PodSetPlacementError,
        view: CapacityView,
    ) -> SecondPassSearch {
        let gates = self.settings.gates.placement;
        let pod_set_request = tas_assignment.pod_set_requests.get(failure.pod_set);
        let message = pod_set_request
            .map(|pod_set_request| self.topology.explain(pod_set_request, &failure.error, view, gates))
            .unwrap_or_default();
        SecondPassSearch::NoPlacement(PlacementFailure { message, wanted_footprint: None })
    }

    /// Searches nodes under the assumption that targets are evicted.
    fn search_with_preemption(
        &mut self,
        request: &SecondPassRequest,
        reserving: &ReservingWorkload,
        mut tas_assignment: TasAssignment,
    ) -> SecondPassSearch {
        let gates = self.settings.gates.placement;
        match self.topology.place_all(&tas_assignment.pod_set_requests, CapacityView::Empty, gates) {
            Err(error) => return self.placement_failure(&tas_assignment, &error, CapacityView::Empty),
            Ok(placements) => tas_assignment.set_placements(placements),
        }
        let Some(targets) = self.second_pass_targets(request, reserving, &tas_assignment.pod_set_requests)
        else {
            return SecondPassSearch::from("the ClusterQueue is gone");
        };
        if targets.is_empty() {
            let search = match self.topology.place_all(
                &tas_assignment.pod_set_requests,
                CapacityView::Projected,
                gates,
            ) {
                Err(error) => self.placement_failure(&tas_assignment, &error, CapacityView::Projected),
                Ok(_) => SecondPassSearch::from(""),
            };
            let wanted_footprint = Some(tas_assignment.footprint(&mut self.topology));
            return match search {
                SecondPassSearch::NoPlacement(failure) => {
                    SecondPassSearch::NoPlacement(PlacementFailure { wanted_footprint, ..failure })
                }
                other => other,
            };
        }
        let place = |engine: &mut Self| {
            engine.topology.place_all(&tas_assignment.pod_set_requests, CapacityView::Projected, gates)
        };
        let placements =
            self.with_usage_removed(&CapacityUsage::from_targets(&targets), UsageLayer::Projected, place);
        tas_assignment.set_placements(placements.unwrap_or_default());
        SecondPassSearch::NeedsPreemption(tas_assignment, targets)
    }

    /// Returns targets whose eviction makes the pods fit; empty if there are none, `None` if the ClusterQueue is
    /// gone. The workload's own quota is removed and requested again. If it stayed in, or were not requested, a
    /// borrowing ClusterQueue would look like one that reclaims its own quota, and workloads protected by its policy
    /// would be evicted.
    fn second_pass_targets(
        &mut self,
        request: &SecondPassRequest,
        reserving: &ReservingWorkload,
        pod_set_requests: &[TasPodSetRequest],
    ) -> Option<Vec<Target>> {
        let own_usage =
            CapacityUsage { node: reserving.node, usage: reserving.usage.clone(), footprint: Arc::default() };
        self.with_usage_removed(&[own_usage], UsageLayer::Projected, |engine| {
            let mut frs_need_preemption = engine.placed_frs(reserving, pod_set_requests);
            let (mut context, queue, _) =
                engine.scheduling_context(&reserving.charge.cluster_queue, &reserving.key)?;
            // A workload whose priority was raised would be its own victim.
            let mut excluded = context.already_preempted.cloned().unwrap_or_default();
            excluded.insert(reserving.key.clone());
            context.already_preempted = Some(&excluded);
            let (priority, queued_since) = (request.workload.priority, request.workload.queued_since);
            let requester = Requester { queue, priority, queued_since };
            for (fr, requested) in &reserving.usage {
                match context.evaluate(&requester, *fr, *requested).mode {
                    PreemptionMode::NoFit => return Some(Vec::new()),
                    mode if mode.needs_preemption() && !frs_need_preemption.contains(fr) => {
                        frs_need_preemption.push(*fr);
                    }
                    _ => {}
                }
            }
            let usage = &reserving.usage;
            Some(context.find_targets(&Preemptor {
                queue,
                priority,
                queued_since,
                usage,
                frs_need_preemption: &frs_need_preemption,
                pod_set_requests,
            }))
        })
    }

    /// Flavor-resources of the workload's usage whose flavors need a topology assignment.
    fn placed_frs(
        &self,
        reserving: &ReservingWorkload,
        pod_set_requests: &[TasPodSetRequest],
    ) -> Vec<FlavorResourceId> {
        let flavors: BTreeSet<&Arc<str>> =
            pod_set_requests.iter().map(|pod_set_request| &pod_set_request.flavor).collect();
        let placed =
            |fr: &FlavorResourceId| self.tree.fr_name(*fr).is_some_and(|name| flavors.contains(&name.flavor));
        reserving.usage.iter().map(|(fr, _)| *fr).filter(placed).collect()
    }

    /// Collects the pod sets that need an assignment: delayed ones, and those on unhealthy nodes.
    fn pod_sets_to_place(&self, request: &SecondPassRequest) -> TasAssignment {
        let mut tas_assignment = TasAssignment::default();
        let by_worker_cluster = self
            .config
            .cluster_queue(&request.granted.cluster_queue)
            .is_some_and(|q| q.config.topology_by_worker_cluster);
        for (index, granted) in request.granted.pod_sets.iter().enumerate() {
            let sets = &request.workload.pod_sets;
            let Some(set) = sets.iter().find(|set| set.name == granted.name) else { continue };
            let Some(flavor) = granted.flavors.values().find(|name| self.config.has_topology(name)) else {
                continue;
            };
            let (prior, group) = match &granted.topology {
                PodSetPlacement::Delayed if !by_worker_cluster => (PriorPlacement::None, set.group.clone()),
                PodSetPlacement::Assigned(placement)
                    if request.unhealthy_nodes.iter().any(|node| placement.contains_host(node)) =>
                {
                    let failed = request.unhealthy_nodes.clone();
                    (PriorPlacement::WithFailedNodes(placement.clone(), failed), None)
                }
                _ => continue,
            };
            tas_assignment.pod_set_indexes.push(index);
            let (flavor, pods) = (Arc::clone(flavor), Arc::clone(&set.pod_requirements));
            tas_assignment.pod_set_requests.push(TasPodSetRequest {
                flavor,
                pods,
                count: granted.count,
                group,
                name: Arc::clone(&set.name),
                prior,
            });
        }
        tas_assignment
    }

    /// Turns a search result into a decision; searches again if another workload of this cycle took the capacity.
    pub(super) fn process_second_pass(
        &mut self,
        request: &SecondPassRequest,
        search: SecondPassNomination,
        cycle: &mut CycleState,
    ) -> Option<Decision> {
        let reserving = self.eligible_workload(request)?;
        let stale = match &search.0 {
            SecondPassSearch::Placed(tas_assignment) => {
                !self.is_assignment_free(tas_assignment, &reserving.key)
            }
            SecondPassSearch::NeedsPreemption(_, targets) => {
                targets.iter().any(|t| cycle.victims.contains(t.key()))
            }
            SecondPassSearch::NoPlacement(_) => false,
        };
        let search = if stale { self.search_second_pass(request, &reserving) } else { search.0 };
        let outcome = match search {
            SecondPassSearch::Placed(tas_assignment) => {
                self.commit_topology(request, &reserving, &tas_assignment, cycle)
            }
            SecondPassSearch::NeedsPreemption(tas_assignment, targets)
                if !targets.iter().any(|target| cycle.victims.contains(target.key())) =>
            {
                self.preempt_for_second_pass(&reserving, &tas_assignment, &targets, cycle)
            }
            SecondPassSearch::NeedsPreemption(..) => {
                topology_pending("Preemption targets overlap with another workload in this cycle")
            }
            SecondPassSearch::NoPlacement(PlacementFailure { message, .. })
                if !request.unhealthy_nodes.is_empty() && self.settings.gates.fail_fast =>
            {
                Outcome::ReplacementFailed(Arc::from(format!(
                    "Workload was evicted as there was no replacement for unhealthy node(s): {}{}{message}",
                    request.unhealthy_nodes.join(", "),
                    if message.is_empty() { "" } else { "; " },
                )))
            }
            SecondPassSearch::NoPlacement(PlacementFailure { message, wanted_footprint }) => {
                if let Some(wanted_footprint) = wanted_footprint {
                    self.claim_topology(&reserving, wanted_footprint, cycle);
                }
                topology_pending(&message)
            }
        };
        Some(Decision { key: reserving.key.clone(), uid: Arc::clone(&reserving.charge.uid), outcome })
    }

    /// Claims the wanted leaf capacity for the rest of the cycle. Otherwise a workload nominated later would take
    /// what is left there and be evicted for it soon after. A ClusterQueue that may reclaim from any workload claims
    /// nothing.
    fn claim_topology(
        &mut self,
        reserving: &ReservingWorkload,
        footprint: Arc<Footprint>,
        cycle: &mut CycleState,
    ) {
        if !self.claims_capacity(&reserving.charge.cluster_queue) {
            return;
        }
        let claim = CapacityUsage { node: reserving.node, usage: Usage::new(), footprint };
        self.shift_usage(&claim, 1, UsageLayer::Projected);
        cycle.head_claims.push(claim);
        cycle.has_second_pass_claims = true;
    }

    /// Whether the assigned leaf capacity is still free in projected usage.
    fn is_assignment_free(&mut self, tas_assignment: &TasAssignment, key: &ObjectKey) -> bool {
        let footprint = tas_assignment.footprint(&mut self.topology);
        let free = |engine: &mut Self| engine.topology.footprint_fits(&footprint, UsageLayer::Projected);
        self.with_usage_removed(&self.reservation_of(key), UsageLayer::Projected, free)
    }

    /// Commits the assignment if current usage has room for it.
    fn commit_topology(
        &mut self,
        request: &SecondPassRequest,
        reserving: &ReservingWorkload,
        tas_assignment: &TasAssignment,
        cycle: &mut CycleState,
    ) -> Outcome {
        let footprint = tas_assignment.footprint(&mut self.topology);
        if !self.topology.footprint_fits(&footprint, UsageLayer::Current) {
            return topology_pending("Waiting for preempted workloads to release nodes");
        }
        let mut granted = request.granted.clone();
        for (index, set) in granted.pod_sets.iter_mut().enumerate() {
            if let assigned @ PodSetPlacement::Assigned(_) = tas_assignment.pod_set_placement(index) {
                set.topology = assigned;
            }
        }
        let mut topology = tas_assignment.occupancies();
        topology.extend(self.retained_occupancies(request, tas_assignment));
        let charge = Charge { topology, ..(*reserving.charge).clone() };
        // The charge moves when the cycle ends. Until then neither the old nodes, where pods may still be
        // terminating, nor the new ones are available to other workloads.
        self.topology.shift_usage(&footprint, 1, UsageLayer::Current);
        self.topology.shift_usage(&footprint, 1, UsageLayer::Projected);
        cycle.topology_moves.push(TopologyMove { key: reserving.key.clone(), charge, added: footprint });
        Outcome::TopologyAssigned(granted)
    }

    /// Charges the assignments committed in this cycle.
    pub(super) fn apply_topology_moves(&mut self, moves: Vec<TopologyMove>) {
        for TopologyMove { key, charge, added } in moves {
            self.topology.shift_usage(&added, -1, UsageLayer::Current);
            self.topology.shift_usage(&added, -1, UsageLayer::Projected);
            self.charge(&key, charge);
        }
    }

    /// Occupancies of pod sets that keep their nodes.
    fn retained_occupancies(
        &self,
        request: &SecondPassRequest,
        tas_assignment: &TasAssignment,
    ) -> Vec<crate::topology::Occupancy> {
        let mut occupancies = Vec::new();
        for (index, granted) in request.granted.pod_sets.iter().enumerate() {
            let set = request.workload.pod_sets.iter().find(|set| set.name == granted.name);
            let (PodSetPlacement::Assigned(placement), Some(set)) = (&granted.topology, set) else {
                continue;
            };
            if tas_assignment.pod_set_indexes.contains(&index) {
                continue;
            }
            let flavors: BTreeSet<&Arc<str>> =
                granted.flavors.values().filter(|name| self.config.has_topology(name)).collect();
            occupancies.extend(flavors.into_iter().map(|flavor| crate::topology::Occupancy {
                flavor: Arc::clone(flavor),
                pod_set: Arc::clone(&set.name),
                placement: placement.clone(),
                requests_per_pod: set.pod_requirements.requests.clone(),
            }));
        }
        occupancies
    }

    /// Preempts the targets and reserves the nodes.
    fn preempt_for_second_pass(
        &mut self,
        reserving: &ReservingWorkload,
        tas_assignment: &TasAssignment,
        targets: &[Target],
        cycle: &mut CycleState,
    ) -> Outcome {
        cycle.victims.extend(targets.iter().map(|target| target.key().clone()));
        let text = format!("Pending the preemption of {} workload(s)", targets.len());
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::WaitingForPreemptedWorkloads, &text));
        let old = self.cancel_reservation(&reserving.key);
        let since = old.as_ref().map_or(cycle.now, |old| old.since);
        let old_victims = old.map(|old| old.victims).unwrap_or_default();
        let new_victims: BTreeMap<ObjectKey, PreemptionReason> =
            targets.iter().map(|target| (target.key().clone(), target.reason)).collect();
        let reservation = CapacityReservation {
            node: reserving.node,
            usage: Usage::new(),
            footprint: tas_assignment.footprint(&mut self.topology),
            since,
            victims: old_victims.into_iter().chain(new_victims).collect(),
            verdict: Arc::clone(&verdict),
        };
        self.add_reservation(&reserving.key, reservation);
        let victims = targets.iter().filter_map(|target| self.preemption_of(target.key()));
        Outcome::Preempting(verdict, victims.map(|preemption| preemption.victim).collect())
    }
}

/// A search result, to be processed later in the same cycle.
pub(super) struct SecondPassNomination(SecondPassSearch);

fn topology_pending(message: &str) -> Outcome {
    Outcome::TopologyPending(Arc::new(Verdict::without_blockers(
        PendingReason::TopologyPlacementFailed,
        message,
    )))
}
