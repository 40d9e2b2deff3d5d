//! The steps of a head that has targets: whether they are still this head's own, whether evicting them still makes it
//! fit, and their eviction.
//!
//! Neighbours: `head_state` holds the states and calls, `preemption` selects targets, `capacity_reservations` reserves
//! what they free.

use super::capacity_reservations::ReservationRequest;
use super::cycle::{CycleState, skipped};
use super::cycle_metrics::Recomputation;
use super::decision::{Outcome, PreemptionReason};
use super::engine::Engine;
use super::head_state::{HeadState, PlanRound, PreemptionPlan, StaleCause, StaleTargets};
use super::nominate::{Evaluation, Head, NominatedAssignment};
use super::shortfall::Shortfall;
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict};
use crate::quota::UsageLayer;
use std::sync::Arc;

impl Engine {
    /// From `TargetsSelected`: keeps the targets unless an earlier head of this cycle evicts some of them or freed
    /// capacity that may make some of them unnecessary.
    pub(super) fn check_targets(
        &mut self,
        head: &Head,
        plan: PreemptionPlan,
        cycle: &CycleState,
    ) -> HeadState {
        let overlaps = plan.targets.iter().any(|target| cycle.victims.contains(target.key()));
        let cause = if overlaps && self.settings.gates.recompute_on_overlap {
            StaleCause::Overlap
        } else if cycle.freed_trees.contains(&self.root_of(head)) {
            StaleCause::FreedCapacity
        } else if overlaps {
            self.cycle_metrics.record_skip(&head.queue);
            self.pending.keep_active(&head.queue, head.class, None);
            let text = "Workload has overlapping preemption targets with another workload";
            return HeadState::Decided(skipped(text));
        } else {
            return HeadState::TargetsCurrent(plan);
        };
        let PreemptionPlan { nominated, round, .. } = plan;
        let flavors = nominated.assignment.group_flavors;
        HeadState::TargetsStale(StaleTargets { flavors, cause, round })
    }

    /// From `TargetsStale`: evaluates the head against projected usage as it is now, with the same flavors.
    pub(super) fn select_targets_again(
        &mut self,
        head: &Head,
        stale: StaleTargets,
        cycle: &mut CycleState,
    ) -> HeadState {
        let StaleTargets { flavors, cause, round } = stale;
        let Some(evaluation) = self.evaluate_with_flavors(head, &flavors) else {
            return HeadState::Decided(skipped("The ClusterQueue is gone"));
        };
        if cause == StaleCause::Overlap {
            self.observe_recomputation(head, &evaluation, cycle);
        }
        match evaluation {
            Evaluation::Fits(nominated) => {
                // It fits what earlier victims of this cycle will free, which is still in use.
                cycle.changed_trees.insert(self.root_of(head));
                let shortfall = self.shortfall(head, &nominated, &[], UsageLayer::Current);
                HeadState::Decided(self.wait_for_victims(head, &nominated, shortfall, cycle.now))
            }
            Evaluation::NeedsPreemption(nominated, targets) => {
                HeadState::TargetsCurrent(PreemptionPlan { nominated, targets, round })
            }
            Evaluation::Inadmissible(inadmissible) => HeadState::Inadmissible(inadmissible),
        }
    }

    /// From `TargetsCurrent`: checks that the head may preempt and that evicting the targets makes it fit.
    pub(super) fn check_preemption(
        &mut self,
        head: &Head,
        mut plan: PreemptionPlan,
        cycle: &mut CycleState,
    ) -> HeadState {
        if head.workload.preemption_gated {
            return HeadState::Decided(self.park_gated(head, *plan.nominated));
        }
        let mut shortfall = self.projected_shortfall(head, &plan.nominated, &plan.targets, cycle);
        let may_go_back = self.settings.gates.recompute_topology && plan.round == PlanRound::First;
        if shortfall.only_topology() && may_go_back {
            if !self.find_other_placements(head, &mut plan.nominated, &plan.targets) {
                return HeadState::NodesLost(plan.nominated.assignment.group_flavors);
            }
            shortfall = Shortfall::default();
        }
        if !shortfall.is_empty() {
            self.cycle_metrics.record_skip(&head.queue);
            return HeadState::Decided(self.skip_or_park(head, *plan.nominated, shortfall, cycle));
        }
        cycle.changed_trees.insert(self.root_of(head));
        HeadState::Preempting(plan)
    }

    /// From `Preempting`: preempts the targets and reserves the capacity that they free.
    pub(super) fn preempt(&mut self, head: &Head, plan: &PreemptionPlan, cycle: &mut CycleState) -> Outcome {
        let PreemptionPlan { nominated, targets, .. } = plan;
        cycle.victims.extend(targets.iter().map(|target| target.key().clone()));
        let root = self.root_of(head);
        for target in targets {
            self.preemption_history.insert(root, head.key(), target.key());
        }
        let migrates = targets.iter().any(|target| target.reason == PreemptionReason::FlavorMigration);
        let action = if migrates { "migration" } else { "preemption" };
        let text = format!("Pending the {action} of {} workload(s)", targets.len());
        let verdict = Arc::new(Verdict {
            reason: PendingReason::WaitingForPreemptedWorkloads,
            blockers: nominated.assignment.blockers.clone(),
            text: Arc::from(text),
        });
        let victims = targets.iter().map(|target| (target.key().clone(), target.reason)).collect();
        let shortfall = self.shortfall(head, nominated, &[], UsageLayer::Current);
        let request = ReservationRequest { shortfall, verdict, victims, now: cycle.now };
        let verdict = self.reserve_capacity(head, nominated, request);
        let victims = targets.iter().filter_map(|target| self.preemption_of(target.key()));
        Outcome::Preempting(verdict, victims.map(|preemption| preemption.victim).collect())
    }

    /// Parks a workload whose preemption gate is closed, until the gate opens or it fits without preemption.
    fn park_gated(&mut self, head: &Head, nominated: NominatedAssignment) -> Outcome {
        let text = "Workload requires preemption, but it's gated";
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::AdmissionGated, text));
        let parked = Parked {
            never_blocks_queue: false,
            claim: None,
            wake_conditions: nominated.assignment.wake_conditions,
        };
        self.pending.park(&head.queue, head.class, &verdict, parked);
        Outcome::PreemptionGated(verdict)
    }

    fn observe_recomputation(&mut self, head: &Head, evaluation: &Evaluation, cycle: &CycleState) {
        let result = match evaluation {
            Evaluation::Fits(_) => Recomputation::DeferredFit,
            Evaluation::NeedsPreemption(nominated, targets)
                if self.projected_shortfall(head, nominated, targets, cycle).is_empty() =>
            {
                Recomputation::NewTargets
            }
            _ => Recomputation::Skipped,
        };
        self.cycle_metrics.record_recomputation(&head.queue, result);
    }
}
