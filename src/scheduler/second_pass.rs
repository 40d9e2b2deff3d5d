//! A second pass: a workload that holds its quota is given places on nodes that it could not be given before, or others
//! instead of nodes that have failed.
//!
//! Invariants: only one that holds its quota, as the same object, and is neither on its way out nor asked to go is ever
//! taken (I13), and that is looked at when its turn comes; quota is not asked for again, and of places only those that it
//! does not have yet; two workloads never take the same place in one cycle. Victims are chosen as if the workload came now
//! and asked for what it holds: a second pass has no right that a first pass would not have.

use super::capacity_reservations::CapacityReservation;
use super::config::Charge;
use super::cycle::CycleState;
use super::decision::{Assignment, Decision, Outcome, PodSetPlacement, PreemptionReason};
use super::engine::Engine;
use super::granular_mode::{PreemptionMode, Requester};
use super::preemption::{Preemptor, Target};
use super::reserving_workloads::ReservingWorkload;
use super::topology::{CapacityUsage, TasAssignment};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::ReclaimPolicy;
use crate::queue::{Verdict, Workload};
use crate::quota::{FlavorResourceId, Usage, UsageLayer};
use crate::topology::{CapacityView, Footprint, PodSetPlacementError, TasPodSetRequest};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A workload that holds quota and is due for a second pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecondPassRequest {
    /// The workload with its pods as they are to be placed: what checks add to them is in.
    pub workload: Workload,
    /// What it was granted.
    pub granted: Assignment,
    /// Nodes of its assignment that have failed.
    pub unhealthy_nodes: Vec<String>,
    /// Whether it is a pod that cannot move: it keeps the place that it has.
    pub immovable: bool,
}

/// What was found for one of them.
enum SecondPassSearch {
    /// Places for all of its pods.
    Placed(TasAssignment),
    /// Places once these are gone.
    NeedsPreemption(TasAssignment, Vec<Target>),
    /// None.
    NoPlacement(PlacementFailure),
}

/// A pass that found neither places nor victims.
#[derive(Default)]
struct PlacementFailure {
    message: String,
    /// The places of empty nodes that it was judged with, where victims could have helped.
    wanted_footprint: Option<Arc<Footprint>>,
}

impl From<&str> for SecondPassSearch {
    fn from(why: &str) -> Self {
        Self::NoPlacement(PlacementFailure { message: why.to_owned(), wanted_footprint: None })
    }
}

impl Engine {
    /// Has a workload that holds quota judged in the next cycle.
    pub fn request_second_pass(&mut self, again: SecondPassRequest) {
        self.second_pass_queue.insert(again.workload.key.clone(), again);
    }

    /// Judges those that are due, as things stand at the start of a cycle.
    pub(super) fn nominate_second_passes(
        &mut self,
    ) -> Vec<(SecondPassRequest, Option<SecondPassNomination>)> {
        let mut due: Vec<SecondPassRequest> =
            std::mem::take(&mut self.second_pass_queue).into_values().collect();
        due.sort_by_key(|again| {
            let workload = &again.workload;
            (Reverse(workload.priority), workload.queued_since, workload.key.clone())
        });
        due.into_iter()
            .map(|again| {
                let found = self
                    .eligible_workload(&again)
                    .map(|holder| SecondPassNomination(self.search_second_pass(&again, &holder)));
                (again, found)
            })
            .collect()
    }

    /// What the workload holds, if it still is the one that was meant and stays.
    fn eligible_workload(&self, again: &SecondPassRequest) -> Option<Arc<ReservingWorkload>> {
        let holder = self.reserving_workloads.get(&again.workload.key)?;
        let same = holder.charge.uid == again.workload.uid
            && holder.charge.cluster_queue == again.granted.cluster_queue;
        let stays = !holder.charge.evicted && !holder.is_terminating();
        (same && stays).then(|| Arc::clone(holder))
    }

    fn search_second_pass(
        &mut self,
        again: &SecondPassRequest,
        holder: &ReservingWorkload,
    ) -> SecondPassSearch {
        if let Some(obstacle) = &again.workload.precheck_failure {
            return SecondPassSearch::from(&*obstacle.to_string());
        }
        if self.inactive_reason(&holder.charge.cluster_queue).is_some() {
            return SecondPassSearch::from("the ClusterQueue is inactive");
        }
        let mut stand = self.pod_sets_to_place(again);
        if stand.pod_set_requests.is_empty() {
            return SecondPassSearch::Placed(stand);
        }
        let rules = self.settings.gates.placement;
        self.with_usage_removed(&self.reservation_of(&holder.key), UsageLayer::Projected, |engine| {
            match engine.topology.place_now_or_projected(&stand.pod_set_requests, rules) {
                Ok(placements) => {
                    stand.set_placements(placements);
                    SecondPassSearch::Placed(stand)
                }
                Err(refused) if !again.unhealthy_nodes.is_empty() => {
                    engine.placement_failure(&stand, &refused, CapacityView::Projected)
                }
                Err(_) => engine.search_with_preemption(again, holder, stand),
            }
        })
    }

    fn placement_failure(
        &mut self,
        stand: &TasAssignment,
        (at, refusal): &PodSetPlacementError,
        view: CapacityView,
    ) -> SecondPassSearch {
        let rules = self.settings.gates.placement;
        let part = stand.pod_set_requests.get(*at);
        let why = part.map(|part| self.topology.explain(part, refusal, view, rules)).unwrap_or_default();
        SecondPassSearch::NoPlacement(PlacementFailure { message: why, wanted_footprint: None })
    }

    /// Whether the pods would have places if others went.
    fn search_with_preemption(
        &mut self,
        again: &SecondPassRequest,
        holder: &ReservingWorkload,
        mut stand: TasAssignment,
    ) -> SecondPassSearch {
        let rules = self.settings.gates.placement;
        match self.topology.place_all(&stand.pod_set_requests, CapacityView::Empty, rules) {
            Err(refused) => return self.placement_failure(&stand, &refused, CapacityView::Empty),
            Ok(placements) => stand.set_placements(placements),
        }
        let Some(targets) = self.second_pass_targets(again, holder, &stand.pod_set_requests) else {
            return SecondPassSearch::from("the ClusterQueue is gone");
        };
        if targets.is_empty() {
            let found = match self.topology.place_all(&stand.pod_set_requests, CapacityView::Projected, rules)
            {
                Err(refused) => self.placement_failure(&stand, &refused, CapacityView::Projected),
                Ok(_) => SecondPassSearch::from(""),
            };
            let wanted = Some(stand.footprint(&mut self.topology));
            return match found {
                SecondPassSearch::NoPlacement(unplaced) => {
                    SecondPassSearch::NoPlacement(PlacementFailure { wanted_footprint: wanted, ..unplaced })
                }
                other => other,
            };
        }
        let place = |engine: &mut Self| {
            engine.topology.place_all(&stand.pod_set_requests, CapacityView::Projected, rules)
        };
        let placements =
            self.with_usage_removed(&CapacityUsage::from_targets(&targets), UsageLayer::Projected, place);
        stand.set_placements(placements.unwrap_or_default());
        SecondPassSearch::NeedsPreemption(stand, targets)
    }

    /// Workloads that must go for the pods to have places; none if there is no such choice, and no answer if the queue is
    /// gone. What the workload holds is taken out and asked for again. Left in, or not asked for, it would make a queue that
    /// borrows look like one that takes back its own, and victims would go that the queue's policy protects.
    fn second_pass_targets(
        &mut self,
        again: &SecondPassRequest,
        holder: &ReservingWorkload,
        parts: &[TasPodSetRequest],
    ) -> Option<Vec<Target>> {
        let own = CapacityUsage { node: holder.node, usage: holder.usage.clone(), footprint: Arc::default() };
        self.with_usage_removed(&[own], UsageLayer::Projected, |engine| {
            let mut short = engine.placed_frs(holder, parts);
            let (mut field, queue, _) =
                engine.scheduling_context(&holder.charge.cluster_queue, &holder.key)?;
            // A workload whose priority was raised would be its own victim.
            let mut barred = field.already_preempted.cloned().unwrap_or_default();
            barred.insert(holder.key.clone());
            field.already_preempted = Some(&barred);
            let (priority, queued_since) = (again.workload.priority, again.workload.queued_since);
            let asker = Requester { queue, priority, queued_since };
            for (pair, need) in &holder.usage {
                match field.evaluate(&asker, *pair, *need).mode {
                    PreemptionMode::NoFit => return Some(Vec::new()),
                    mode if mode.needs_preemption() && !short.contains(pair) => short.push(*pair),
                    _ => {}
                }
            }
            let usage = &holder.usage;
            Some(field.find_targets(&Preemptor {
                queue,
                priority,
                queued_since,
                usage,
                frs_need_preemption: &short,
                pod_set_requests: parts,
            }))
        })
    }

    /// What the workload holds of the flavors on whose nodes it needs places.
    fn placed_frs(&self, holder: &ReservingWorkload, parts: &[TasPodSetRequest]) -> Vec<FlavorResourceId> {
        let flavors: BTreeSet<&Arc<str>> = parts.iter().map(|part| &part.flavor).collect();
        let placed = |pair: &FlavorResourceId| {
            self.tree.fr_name(*pair).is_some_and(|name| flavors.contains(&name.flavor))
        };
        holder.usage.iter().map(|(pair, _)| *pair).filter(placed).collect()
    }

    /// Pods that lack a place.
    fn pod_sets_to_place(&self, again: &SecondPassRequest) -> TasAssignment {
        let mut stand = TasAssignment::default();
        let elsewhere = self
            .queues
            .get(&again.granted.cluster_queue)
            .is_some_and(|q| q.config.topology_by_worker_cluster);
        for (at, granted) in again.granted.pod_sets.iter().enumerate() {
            let sets = &again.workload.pod_sets;
            let Some(set) = sets.iter().find(|set| set.name == granted.name) else { continue };
            let topology =
                |name: &&Arc<str>| self.flavors.get(*name).is_some_and(|f| f.topology_name.is_some());
            let Some(flavor) = granted.flavors.values().find(topology) else { continue };
            let (keeps, group) = match &granted.topology {
                PodSetPlacement::Delayed if !elsewhere => (None, set.group.clone()),
                PodSetPlacement::Assigned(placement)
                    if !again.immovable
                        && again.unhealthy_nodes.iter().any(|node| placement.contains_host(node)) =>
                {
                    (Some((placement.clone(), again.unhealthy_nodes.clone())), None)
                }
                _ => continue,
            };
            stand.pod_set_indexes.push(at);
            let (flavor, pods) = (Arc::clone(flavor), Arc::clone(&set.pod_requirements));
            stand.pod_set_requests.push(TasPodSetRequest {
                flavor,
                pods,
                count: granted.count,
                group,
                replacement: keeps,
            });
        }
        stand
    }

    /// Carries out what was found, unless somebody of this cycle was faster.
    pub(super) fn process_second_pass(
        &mut self,
        again: &SecondPassRequest,
        found: SecondPassNomination,
        turn: &mut CycleState,
    ) -> Option<Decision> {
        let holder = self.eligible_workload(again)?;
        let stale = match &found.0 {
            SecondPassSearch::Placed(stand) => !self.is_assignment_free(stand, &holder.key),
            SecondPassSearch::NeedsPreemption(_, targets) => {
                targets.iter().any(|t| turn.victims.contains(t.key()))
            }
            SecondPassSearch::NoPlacement(_) => false,
        };
        let found = if stale { self.search_second_pass(again, &holder) } else { found.0 };
        let outcome = match found {
            SecondPassSearch::Placed(stand) => self.commit_topology(again, &holder, &stand, turn),
            SecondPassSearch::NeedsPreemption(stand, targets)
                if !targets.iter().any(|target| turn.victims.contains(target.key())) =>
            {
                self.preempt_for_second_pass(&holder, &stand, &targets, turn)
            }
            SecondPassSearch::NeedsPreemption(..) => {
                topology_pending("others of this cycle evict the same workloads")
            }
            SecondPassSearch::NoPlacement(PlacementFailure { message: why, .. })
                if !again.unhealthy_nodes.is_empty() && self.settings.gates.fail_fast =>
            {
                Outcome::ReplacementFailed(Arc::from(format!(
                    "Workload was evicted as there was no replacement for unhealthy node(s): {}{}{why}",
                    again.unhealthy_nodes.join(", "),
                    if why.is_empty() { "" } else { "; " },
                )))
            }
            SecondPassSearch::NoPlacement(PlacementFailure { message: why, wanted_footprint: wanted }) => {
                if let Some(wanted) = wanted {
                    self.claim_topology(&holder, wanted, turn);
                }
                topology_pending(&why)
            }
        };
        Some(Decision { key: holder.key.clone(), uid: Arc::clone(&holder.charge.uid), outcome })
    }

    /// Keeps the places that a pass waits for from the rest of its cycle: a workload that is judged after it would take what
    /// is left there, and be evicted for it later. A queue that may take everything back keeps nothing.
    fn claim_topology(&mut self, holder: &ReservingWorkload, wanted: Arc<Footprint>, turn: &mut CycleState) {
        if self.reclaim_policy(&holder.charge.cluster_queue) == ReclaimPolicy::Any {
            return;
        }
        let kept = CapacityUsage { node: holder.node, usage: Usage::new(), footprint: wanted };
        self.shift_usage(&kept, 1, UsageLayer::Projected);
        turn.head_claims.push(kept);
        turn.has_second_pass_claims = true;
    }

    /// Whether the places that were found are still free in the plan.
    fn is_assignment_free(&mut self, stand: &TasAssignment, key: &ObjectKey) -> bool {
        let wanted = stand.footprint(&mut self.topology);
        let free = |engine: &mut Self| engine.topology.footprint_fits(&wanted, UsageLayer::Projected);
        self.with_usage_removed(&self.reservation_of(key), UsageLayer::Projected, free)
    }

    /// Gives the places, if they are free in fact.
    fn commit_topology(
        &mut self,
        again: &SecondPassRequest,
        holder: &ReservingWorkload,
        stand: &TasAssignment,
        turn: &mut CycleState,
    ) -> Outcome {
        let wanted = stand.footprint(&mut self.topology);
        if !self.topology.footprint_fits(&wanted, UsageLayer::Current) {
            return topology_pending("The places are being freed by workloads that were preempted");
        }
        let mut granted = again.granted.clone();
        for (at, set) in granted.pod_sets.iter_mut().enumerate() {
            if let placed @ PodSetPlacement::Assigned(_) = stand.pod_set_placement(at) {
                set.topology = placed;
            }
        }
        let mut topology = stand.occupancies();
        topology.extend(self.retained_occupancies(again, stand));
        let charge = Charge { topology, ..(*holder.charge).clone() };
        // What it holds moves when the cycle is over: until then nobody counts on the places that it leaves, where pods may
        // still be ending, nor on those that it was just given.
        self.topology.shift_usage(&wanted, 1, UsageLayer::Current);
        self.topology.shift_usage(&wanted, 1, UsageLayer::Projected);
        turn.topology_moves.push((holder.key.clone(), charge, wanted));
        Outcome::TopologyAssigned(granted)
    }

    /// Has those that were given places hold them.
    pub(super) fn apply_topology_moves(&mut self, placed: Vec<(ObjectKey, Charge, Arc<Footprint>)>) {
        for (key, charge, places) in placed {
            self.topology.shift_usage(&places, -1, UsageLayer::Current);
            self.topology.shift_usage(&places, -1, UsageLayer::Projected);
            self.charge(&key, charge);
        }
    }

    /// Places of pod sets that stay where they are.
    fn retained_occupancies(
        &self,
        again: &SecondPassRequest,
        stand: &TasAssignment,
    ) -> Vec<crate::topology::Occupancy> {
        let mut all = Vec::new();
        for (at, granted) in again.granted.pod_sets.iter().enumerate() {
            let set = again.workload.pod_sets.iter().find(|set| set.name == granted.name);
            let (PodSetPlacement::Assigned(placement), Some(set)) = (&granted.topology, set) else {
                continue;
            };
            if stand.pod_set_indexes.contains(&at) {
                continue;
            }
            let topology =
                |name: &&Arc<str>| self.flavors.get(*name).is_some_and(|f| f.topology_name.is_some());
            let flavors: BTreeSet<&Arc<str>> = granted.flavors.values().filter(topology).collect();
            all.extend(flavors.into_iter().map(|flavor| crate::topology::Occupancy {
                flavor: Arc::clone(flavor),
                placement: placement.clone(),
                requests_per_pod: set.pod_requirements.requests.clone(),
            }));
        }
        all
    }

    /// Decides that others must go, and keeps the places.
    fn preempt_for_second_pass(
        &mut self,
        holder: &ReservingWorkload,
        stand: &TasAssignment,
        targets: &[Target],
        turn: &mut CycleState,
    ) -> Outcome {
        turn.victims.extend(targets.iter().map(|target| target.key().clone()));
        let text = format!("Pending the preemption of {} workload(s)", targets.len());
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::WaitingForPreemptedWorkloads, &text));
        let old = self.cancel_reservation(&holder.key);
        let since = old.as_ref().map_or(turn.now, |old| old.since);
        let before = old.map(|old| old.victims).unwrap_or_default();
        let fresh: BTreeMap<ObjectKey, PreemptionReason> =
            targets.iter().map(|target| (target.key().clone(), target.reason)).collect();
        let earmark = CapacityReservation {
            node: holder.node,
            usage: Usage::new(),
            footprint: stand.footprint(&mut self.topology),
            since,
            victims: before.into_iter().chain(fresh).collect(),
            verdict: Arc::clone(&verdict),
        };
        self.add_reservation(&holder.key, earmark);
        let victims = targets.iter().filter_map(|target| self.preemption_of(target.key()));
        Outcome::Preempting(verdict, victims.map(|preemption| preemption.victim).collect())
    }
}

/// What was found, to be carried out later in the same cycle.
pub(super) struct SecondPassNomination(SecondPassSearch);

fn topology_pending(why: &str) -> Outcome {
    Outcome::TopologyPending(Arc::new(Verdict::without_blockers(PendingReason::TopologyPlacementFailed, why)))
}
