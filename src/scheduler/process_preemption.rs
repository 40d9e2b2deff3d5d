//! Heads that need preemption, and heads whose topology assignment another head of the cycle took: targets and assignments
//! are computed again with the same flavors.

use super::cycle::{CycleState, Shortfall, skipped};
use super::cycle_metrics::Recomputation;
use super::decision::{Outcome, PreemptionReason};
use super::engine::Engine;
use super::nominate::{Entry, NominatedAssignment, Nomination, nomination_of};
use super::preemption::Target;
use super::topology::CapacityUsage;
use crate::api::reason::PendingReason;
use crate::queue::Verdict;
use crate::quota::UsageLayer;
use crate::topology::CapacityView;
use std::sync::Arc;

impl Engine {
    pub(super) fn process_preemption(
        &mut self,
        entry: &Entry,
        mut plan: NominatedAssignment,
        mut targets: Vec<Target>,
        again: bool,
        turn: &mut CycleState,
    ) -> Outcome {
        let overlaps = targets.iter().any(|target| turn.victims.contains(target.key()));
        // What others of this cycle have freed may make some of the targets needless.
        let eased = turn.freed_trees.contains(&self.root_of(entry));
        let recomputes = overlaps && self.settings.gates.recompute_on_overlap;
        if eased || recomputes {
            let picks = std::mem::take(&mut plan.assignment.group_flavors);
            let again = self.compute_assignment(&entry.queue, &entry.workload, None, Some(&picks));
            let Some((judged, victims)) = again else {
                return skipped("The ClusterQueue is gone");
            };
            let found = nomination_of(judged, victims, &mut self.topology);
            if recomputes {
                self.observe_recomputation(entry, &found, turn);
            }
            match found {
                Nomination::Fits(plan) => {
                    turn.changed_trees.insert(self.root_of(entry));
                    let lacking = self.shortfall(entry, &plan, &[], UsageLayer::Current);
                    return self.wait_for_victims(entry, &plan, lacking, turn.now);
                }
                Nomination::NeedsPreemption(judged, victims) => (plan, targets) = (*judged, victims),
                Nomination::Inadmissible(short) => return self.process_inadmissible(entry, *short, turn),
                Nomination::Parked(..) | Nomination::ClaimOnly(_) => return skipped(""),
            }
        } else if overlaps {
            self.cycle_metrics.record_skip(&entry.queue);
            self.pending.keep_active(&entry.queue, entry.class, None);
            return skipped("Workload has overlapping preemption targets with another workload");
        }
        if entry.workload.preemption_gated {
            return self.park_gated(entry, plan);
        }
        let mut short = self.projected_shortfall(entry, &plan, &targets, turn);
        if short.only_topology() && self.settings.gates.recompute_topology && !again {
            if !self.find_other_placements(entry, &mut plan, &targets) {
                return self.retry_with_same_flavors(entry, plan, turn);
            }
            short = Shortfall::default();
        }
        if !short.is_empty() {
            self.cycle_metrics.record_skip(&entry.queue);
            return self.skip_or_park(entry, plan, short, turn);
        }
        turn.changed_trees.insert(self.root_of(entry));
        self.preempt(entry, &plan, &targets, turn)
    }

    fn observe_recomputation(&mut self, entry: &Entry, found: &Nomination, turn: &CycleState) {
        let result = match found {
            Nomination::Fits(_) => Recomputation::DeferredFit,
            Nomination::NeedsPreemption(plan, targets)
                if self.projected_shortfall(entry, plan, targets, turn).is_empty() =>
            {
                Recomputation::NewTargets
            }
            _ => Recomputation::Skipped,
        };
        self.cycle_metrics.record_recomputation(&entry.queue, result);
    }

    /// Gives quota if nothing of it is lacking in fact; keeps it otherwise.
    pub(super) fn admit_or_wait(
        &mut self,
        entry: &Entry,
        plan: &NominatedAssignment,
        lacking: Shortfall,
        turn: &mut CycleState,
    ) -> Outcome {
        turn.changed_trees.insert(self.root_of(entry));
        if lacking.is_empty() {
            return self.admit_unless_blocked(entry, plan);
        }
        self.wait_for_victims(entry, plan, lacking, turn.now)
    }

    /// Looks for other places, with the same flavors and the same victims, as others of this cycle took those of the plan.
    pub(super) fn find_other_placements(
        &mut self,
        entry: &Entry,
        plan: &mut NominatedAssignment,
        targets: &[Target],
    ) -> bool {
        let mut gone = self.own_projected_usage(&entry.workload);
        gone.extend(CapacityUsage::from_targets(targets));
        let (parts, rules) =
            (&plan.assignment.tas_assignment.pod_set_requests, self.settings.gates.placement);
        let found = self.with_usage_removed(&gone, UsageLayer::Projected, |engine| {
            if targets.is_empty() {
                engine.topology.place_now_or_projected(parts, rules)
            } else {
                engine.topology.place_all(parts, CapacityView::Projected, rules)
            }
        });
        found.map(|placements| plan.assignment.tas_assignment.set_placements(placements)).is_ok()
    }

    /// With the same flavors there are no other places beside what others of this cycle took: it is judged again.
    pub(super) fn retry_with_same_flavors(
        &mut self,
        entry: &Entry,
        mut plan: NominatedAssignment,
        turn: &mut CycleState,
    ) -> Outcome {
        let picks = std::mem::take(&mut plan.assignment.group_flavors);
        let Some((judged, victims)) =
            self.compute_assignment(&entry.queue, &entry.workload, None, Some(&picks))
        else {
            return skipped("The ClusterQueue is gone");
        };
        match nomination_of(judged, victims, &mut self.topology) {
            Nomination::Fits(plan) => {
                let lacking = self.shortfall(entry, &plan, &[], UsageLayer::Current);
                self.admit_or_wait(entry, &plan, lacking, turn)
            }
            Nomination::NeedsPreemption(plan, targets) => {
                self.process_preemption(entry, *plan, targets, true, turn)
            }
            Nomination::Inadmissible(short) => self.process_inadmissible(entry, *short, turn),
            Nomination::Parked(..) | Nomination::ClaimOnly(_) => skipped(""),
        }
    }

    /// Decides that the targets must go, and keeps what they free.
    pub(super) fn preempt(
        &mut self,
        entry: &Entry,
        plan: &NominatedAssignment,
        targets: &[Target],
        turn: &mut CycleState,
    ) -> Outcome {
        turn.victims.extend(targets.iter().map(|target| target.key().clone()));
        let root = self.root_of(entry);
        for target in targets {
            self.preemption_history.insert(root, entry.key(), target.key());
        }
        let migrates = targets.iter().any(|target| target.reason == PreemptionReason::FlavorMigration);
        let what = if migrates { "migration" } else { "preemption" };
        let text = format!("Pending the {what} of {} workload(s)", targets.len());
        let verdict = Arc::new(Verdict {
            reason: PendingReason::WaitingForPreemptedWorkloads,
            blockers: plan.assignment.blockers.clone(),
            text: Arc::from(text),
        });
        let victims = targets.iter().map(|target| (target.key().clone(), target.reason)).collect();
        let lacking = self.shortfall(entry, plan, &[], UsageLayer::Current);
        let verdict = self.reserve_capacity(entry, plan, lacking, verdict, victims, turn.now);
        let victims = targets.iter().filter_map(|target| self.preemption_of(target.key()));
        Outcome::Preempting(verdict, victims.map(|preemption| preemption.victim).collect())
    }
}
