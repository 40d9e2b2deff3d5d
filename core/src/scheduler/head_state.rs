//! The way of one head through a cycle, as a state machine.
//!
//! ```text
//! Fits             -> Granting | Preempting | NodesLost | Decided
//! Granting         -> Decided
//! TargetsSelected  -> TargetsCurrent | TargetsStale | Decided
//! TargetsStale     -> TargetsCurrent | Inadmissible | Decided
//! TargetsCurrent   -> Preempting | NodesLost | Decided
//! Preempting       -> Decided
//! NodesLost        -> Granting | TargetsSelected | Inadmissible | Decided
//! Inadmissible     -> Decided
//! ```
//!
//! A nomination is made against the start of the cycle; processing compares it with what earlier heads have done since.
//! A head goes back to an earlier state for two reasons: an earlier head evicts the same targets or freed capacity
//! (`TargetsStale`), or an earlier head took the nodes and no others are free (`NodesLost`). In both cases assignment
//! and targets are computed again with the same flavors.
//!
//! Invariants: every head reaches `Decided`. The only cycle of the graph leads through `NodesLost`, and `PlanRound` lets
//! a head enter that state only once.
//! Neighbours: `cycle` calls; the steps on targets are in `process_preemption`.

use super::cycle::{CycleState, skipped};
use super::decision::Outcome;
use super::engine::Engine;
use super::nominate::{Evaluation, Head, Inadmissible, NominatedAssignment, evaluation_of};
use super::preemption::Target;
use super::shortfall::Shortfall;
use super::tentative_assignment::PodSetGroupFlavors;
use super::topology::CapacityUsage;
use crate::api::reason::PendingReason;
use crate::queue::{FlavorCursor, Parked, Verdict, WakeConditions};
use crate::quota::{NodeId, UsageLayer};
use crate::topology::CapacityView;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where a head is in the processing of its cycle.
pub(super) enum HeadState {
    /// It fitted projected usage without evictions when it was nominated. Earlier heads may have taken its quota or
    /// its nodes since.
    Fits(Box<NominatedAssignment>),
    /// It fits projected usage now. Its quota is charged if current usage has room, else reserved.
    Granting(Box<NominatedAssignment>, Shortfall),
    /// Its targets were selected when it was nominated. Earlier heads may evict some of them, or have freed capacity
    /// that makes them unnecessary.
    TargetsSelected(PreemptionPlan),
    /// Its targets must be selected again.
    TargetsStale(StaleTargets),
    /// Its targets count for no other head of this cycle. Earlier heads may have taken its quota or its nodes.
    TargetsCurrent(PreemptionPlan),
    /// Its targets are evicted, and what they free is reserved for it.
    Preempting(PreemptionPlan),
    /// Earlier heads took its nodes, and the same flavors have no others under the same targets.
    NodesLost(Vec<PodSetGroupFlavors>),
    /// It fits neither now nor after evictions.
    Inadmissible(Box<Inadmissible>),
    /// Final.
    Decided(Outcome),
}

/// An assignment, and the targets whose eviction makes it fit.
pub(super) struct PreemptionPlan {
    pub(super) nominated: Box<NominatedAssignment>,
    pub(super) targets: Vec<Target>,
    pub(super) round: PlanRound,
}

/// Whether a head that loses its nodes may go back to `NodesLost`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanRound {
    /// The plan comes from the nomination.
    First,
    /// The plan was computed because the nodes of an earlier one were taken. If its nodes are taken as well, the head
    /// waits for another cycle.
    Last,
}

/// What selecting targets again starts from.
pub(super) struct StaleTargets {
    /// The flavors stay.
    pub(super) flavors: Vec<PodSetGroupFlavors>,
    pub(super) cause: StaleCause,
    pub(super) round: PlanRound,
}

/// Why targets are selected again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StaleCause {
    /// An earlier head of this cycle evicts some of them; counted in the metrics.
    Overlap,
    /// This cycle freed capacity that may make some of them unnecessary.
    FreedCapacity,
}

impl From<Evaluation> for HeadState {
    fn from(evaluation: Evaluation) -> Self {
        match evaluation {
            Evaluation::Fits(nominated) => Self::Fits(nominated),
            Evaluation::NeedsPreemption(nominated, targets) => {
                Self::TargetsSelected(PreemptionPlan { nominated, targets, round: PlanRound::First })
            }
            Evaluation::Inadmissible(inadmissible) => Self::Inadmissible(inadmissible),
        }
    }
}

impl Engine {
    /// Moves a head from state to state until its outcome is decided.
    pub(super) fn process_head(
        &mut self,
        head: &Head,
        mut state: HeadState,
        cycle: &mut CycleState,
    ) -> Outcome {
        loop {
            state = match state {
                HeadState::Fits(nominated) => self.check_fit(head, nominated, cycle),
                HeadState::Granting(nominated, shortfall) => {
                    HeadState::Decided(self.admit_or_wait(head, &nominated, shortfall, cycle))
                }
                HeadState::TargetsSelected(plan) => self.check_targets(head, plan, cycle),
                HeadState::TargetsStale(stale) => self.select_targets_again(head, stale, cycle),
                HeadState::TargetsCurrent(plan) => self.check_preemption(head, plan, cycle),
                HeadState::Preempting(plan) => HeadState::Decided(self.preempt(head, &plan, cycle)),
                HeadState::NodesLost(flavors) => self.assign_again(head, &flavors),
                HeadState::Inadmissible(inadmissible) => {
                    HeadState::Decided(self.process_inadmissible(head, *inadmissible, cycle))
                }
                HeadState::Decided(outcome) => return outcome,
            };
        }
    }

    /// From `Fits`: checks that projected usage still has room, and whether another variant must leave first.
    fn check_fit(
        &mut self,
        head: &Head,
        mut nominated: Box<NominatedAssignment>,
        cycle: &mut CycleState,
    ) -> HeadState {
        let Some(shortfall) = self.shortfall_after_move(head, &mut nominated, cycle) else {
            return HeadState::NodesLost(nominated.assignment.group_flavors);
        };
        if !shortfall.is_empty() {
            return HeadState::Decided(self.skip_or_park(head, *nominated, shortfall, cycle));
        }
        match self.migration_target(head) {
            Some(Ok(sibling)) => {
                let (targets, round) = (vec![sibling], PlanRound::First);
                return HeadState::Preempting(PreemptionPlan { nominated, targets, round });
            }
            Some(Err(outcome)) => return HeadState::Decided(outcome),
            None => {}
        }
        let current_shortfall = self.current_shortfall_after_move(head, &mut nominated);
        HeadState::Granting(nominated, current_shortfall)
    }

    /// Returns the shortfall of projected usage, after the choice of other placements if only nodes are missing. `None` if
    /// there are no other placements.
    pub(super) fn shortfall_after_move(
        &mut self,
        head: &Head,
        nominated: &mut NominatedAssignment,
        cycle: &CycleState,
    ) -> Option<Shortfall> {
        let shortfall = self.projected_shortfall(head, nominated, &[], cycle);
        if !(shortfall.only_topology() && self.settings.gates.recompute_topology) {
            return Some(shortfall);
        }
        self.find_other_placements(head, nominated, &[]).then(Shortfall::default)
    }

    /// Returns the shortfall of current usage, after the choice of other placements if only nodes are missing.
    pub(super) fn current_shortfall_after_move(
        &mut self,
        head: &Head,
        nominated: &mut NominatedAssignment,
    ) -> Shortfall {
        let shortfall = self.shortfall(head, nominated, &[], UsageLayer::Current);
        // Admissions of this cycle may leave projected capacity on one set of nodes and current capacity on another.
        if shortfall.only_topology() && self.find_other_placements(head, nominated, &[]) {
            return self.shortfall(head, nominated, &[], UsageLayer::Current);
        }
        shortfall
    }

    /// From `NodesLost`: computes assignment and targets again with the same flavors.
    fn assign_again(&mut self, head: &Head, flavors: &[PodSetGroupFlavors]) -> HeadState {
        match self.evaluate_with_flavors(head, flavors) {
            None => HeadState::Decided(skipped("The ClusterQueue is gone")),
            Some(Evaluation::Fits(nominated)) => {
                let shortfall = self.shortfall(head, &nominated, &[], UsageLayer::Current);
                HeadState::Granting(nominated, shortfall)
            }
            Some(Evaluation::NeedsPreemption(nominated, targets)) => {
                HeadState::TargetsSelected(PreemptionPlan { nominated, targets, round: PlanRound::Last })
            }
            Some(Evaluation::Inadmissible(inadmissible)) => HeadState::Inadmissible(inadmissible),
        }
    }

    /// Evaluates a head against projected usage as it is now, with flavors chosen before. Returns `None` if its
    /// ClusterQueue is gone.
    pub(super) fn evaluate_with_flavors(
        &mut self,
        head: &Head,
        flavors: &[PodSetGroupFlavors],
    ) -> Option<Evaluation> {
        let (nominated, targets) =
            self.compute_assignment(&head.queue, &head.workload, None, Some(flavors))?;
        Some(evaluation_of(nominated, targets, &mut self.topology))
    }

    /// Assigns other nodes with the same flavors and targets after this cycle took the assigned ones. Returns whether
    /// it succeeded.
    pub(super) fn find_other_placements(
        &mut self,
        head: &Head,
        nominated: &mut NominatedAssignment,
        targets: &[Target],
    ) -> bool {
        let mut removed = self.own_projected_usage(&head.workload);
        removed.extend(CapacityUsage::from_targets(targets));
        let (requests, gates) =
            (&nominated.assignment.tas_assignment.pod_set_requests, self.settings.gates.placement);
        let result = self.with_usage_removed(&removed, UsageLayer::Projected, |engine| {
            if targets.is_empty() {
                engine.topology.place_now_or_projected(requests, gates)
            } else {
                engine.topology.place_all(requests, CapacityView::Projected, gates)
            }
        });
        result.map(|placements| nominated.assignment.tas_assignment.set_placements(placements)).is_ok()
    }

    /// From `Granting`: admits if current usage has room; otherwise reserves the capacity.
    fn admit_or_wait(
        &mut self,
        head: &Head,
        nominated: &NominatedAssignment,
        shortfall: Shortfall,
        cycle: &mut CycleState,
    ) -> Outcome {
        cycle.changed_trees.insert(self.root_of(head));
        if shortfall.is_empty() {
            return self.admit_unless_blocked(head, nominated);
        }
        self.wait_for_victims(head, nominated, shortfall, cycle.now)
    }

    /// From `Inadmissible`: drops a capacity reservation that no longer helps; a head without one is parked.
    fn process_inadmissible(
        &mut self,
        head: &Head,
        inadmissible: Inadmissible,
        cycle: &mut CycleState,
    ) -> Outcome {
        if self.reservations.contains(head.key()) {
            return self.drop_reservation(head, cycle);
        }
        if cycle.has_second_pass_claims && !inadmissible.wake_conditions.on_topology_change.is_empty() {
            // The claim of a second pass ends with this cycle, and its end wakes no parked class. The quota that this
            // head could use stays its own until then: its policy may not let it take the quota back.
            self.pending.keep_active(&head.queue, head.class, None);
            if let Some(claim) = self.claim_allowed(head, inadmissible.claim) {
                self.apply_head_claim(head, &claim, cycle);
            }
            return skipped("Nodes are reserved for another workload that waits for its topology assignment");
        }
        let parked = self.park_class(head, inadmissible);
        self.claim_for_parked(head, parked, cycle)
    }

    /// Drops a capacity reservation that no longer fits; the workload is nominated again without it.
    fn drop_reservation(&mut self, head: &Head, cycle: &mut CycleState) -> Outcome {
        let root = self.root_of(head);
        if cycle.changed_trees.contains(&root) {
            // This head was evaluated before that change. Dropping its reservation now could make two preemptors
            // yield to each other forever.
            self.pending.keep_active(&head.queue, head.class, None);
            return skipped("Workload no longer fits after processing another workload");
        }
        self.cancel_reservation(head.key());
        cycle.changed_trees.insert(root);
        skipped("Capacity reservation no longer fits; it was released")
    }

    /// Skips a head that lost to another head of this cycle; parks it if only head claims block it. Nodes belong to no cohort
    /// tree: a head of any tree may have taken or claimed them, and a head that waits for its own tree alone would wait for ever.
    pub(super) fn skip_or_park(
        &mut self,
        head: &Head,
        nominated: NominatedAssignment,
        shortfall: Shortfall,
        cycle: &mut CycleState,
    ) -> Outcome {
        let root = self.root_of(head);
        let nodes_taken =
            shortfall.topology && (cycle.has_second_pass_claims || !cycle.changed_trees.is_empty());
        if cycle.changed_trees.contains(&root) || nodes_taken || self.reservations.contains(head.key()) {
            let cursor = nominated.assignment.cursor.map(|cursor| FlavorCursor { lost_race: true, ..cursor });
            self.pending.keep_active(&head.queue, head.class, cursor);
            return skipped("Workload no longer fits after processing another workload");
        }
        let may_block = |tree: &NodeId| *tree == root || shortfall.topology;
        let claiming = cycle.claiming_queues.iter().filter(|(tree, _)| may_block(tree));
        let claiming_queues: BTreeSet<Arc<str>> = claiming.flat_map(|(_, queues)| queues.clone()).collect();
        let names: Vec<&str> = claiming_queues.iter().map(|name| &**name).collect();
        let text =
            format!("quota is reserved for the head of ClusterQueue {} (StrictFIFO)", names.join(", "));
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::WaitingForQuota, &text));
        let on_topology_change =
            if shortfall.topology { nominated.assignment.tas_assignment.flavors() } else { BTreeSet::new() };
        let wake_conditions = WakeConditions {
            tree: Some(root),
            on_usage_change: shortfall.quota,
            on_topology_change,
            on_claim_end: claiming_queues,
            ..WakeConditions::default()
        };
        let parked = Parked { never_blocks_queue: false, claim: None, wake_conditions };
        self.pending.park(&head.queue, head.class, &verdict, parked);
        Outcome::Pending(verdict)
    }
}
