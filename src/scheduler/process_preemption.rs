//! Processing of heads that need preemption, and of heads whose nodes another head of the cycle took: targets and
//! topology assignment are computed again with the same flavors.
//!
//! Neighbours: `cycle` calls, `preemption` selects targets, `capacity_reservations` reserves what they free.

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
        mut nominated: NominatedAssignment,
        mut targets: Vec<Target>,
        is_retry: bool,
        cycle: &mut CycleState,
    ) -> Outcome {
        let overlaps = targets.iter().any(|target| cycle.victims.contains(target.key()));
        // Capacity freed earlier in this cycle may make some targets unnecessary.
        let freed = cycle.freed_trees.contains(&self.root_of(entry));
        let recomputes = overlaps && self.settings.gates.recompute_on_overlap;
        if freed || recomputes {
            let group_flavors = std::mem::take(&mut nominated.assignment.group_flavors);
            let recomputed =
                self.compute_assignment(&entry.queue, &entry.workload, None, Some(&group_flavors));
            let Some((new_assignment, new_targets)) = recomputed else {
                return skipped("The ClusterQueue is gone");
            };
            let nomination = nomination_of(new_assignment, new_targets, &mut self.topology);
            if recomputes {
                self.observe_recomputation(entry, &nomination, cycle);
            }
            match nomination {
                Nomination::Fits(nominated) => {
                    cycle.changed_trees.insert(self.root_of(entry));
                    let shortfall = self.shortfall(entry, &nominated, &[], UsageLayer::Current);
                    return self.wait_for_victims(entry, &nominated, shortfall, cycle.now);
                }
                Nomination::NeedsPreemption(new_assignment, new_targets) => {
                    (nominated, targets) = (*new_assignment, new_targets);
                }
                Nomination::Inadmissible(inadmissible) => {
                    return self.process_inadmissible(entry, *inadmissible, cycle);
                }
                Nomination::Parked(..) | Nomination::ClaimOnly(_) => return skipped(""),
            }
        } else if overlaps {
            self.cycle_metrics.record_skip(&entry.queue);
            self.pending.keep_active(&entry.queue, entry.class, None);
            return skipped("Workload has overlapping preemption targets with another workload");
        }
        if entry.workload.preemption_gated {
            return self.park_gated(entry, nominated);
        }
        let mut shortfall = self.projected_shortfall(entry, &nominated, &targets, cycle);
        if shortfall.only_topology() && self.settings.gates.recompute_topology && !is_retry {
            if !self.find_other_placements(entry, &mut nominated, &targets) {
                return self.retry_with_same_flavors(entry, nominated, cycle);
            }
            shortfall = Shortfall::default();
        }
        if !shortfall.is_empty() {
            self.cycle_metrics.record_skip(&entry.queue);
            return self.skip_or_park(entry, nominated, shortfall, cycle);
        }
        cycle.changed_trees.insert(self.root_of(entry));
        self.preempt(entry, &nominated, &targets, cycle)
    }

    fn observe_recomputation(&mut self, entry: &Entry, nomination: &Nomination, cycle: &CycleState) {
        let result = match nomination {
            Nomination::Fits(_) => Recomputation::DeferredFit,
            Nomination::NeedsPreemption(nominated, targets)
                if self.projected_shortfall(entry, nominated, targets, cycle).is_empty() =>
            {
                Recomputation::NewTargets
            }
            _ => Recomputation::Skipped,
        };
        self.cycle_metrics.record_recomputation(&entry.queue, result);
    }

    /// Admits if current usage has room; otherwise reserves the capacity.
    pub(super) fn admit_or_wait(
        &mut self,
        entry: &Entry,
        nominated: &NominatedAssignment,
        shortfall: Shortfall,
        cycle: &mut CycleState,
    ) -> Outcome {
        cycle.changed_trees.insert(self.root_of(entry));
        if shortfall.is_empty() {
            return self.admit_unless_blocked(entry, nominated);
        }
        self.wait_for_victims(entry, nominated, shortfall, cycle.now)
    }

    /// Assigns other nodes with the same flavors and targets after this cycle took the assigned ones. Returns whether
    /// it succeeded.
    pub(super) fn find_other_placements(
        &mut self,
        entry: &Entry,
        nominated: &mut NominatedAssignment,
        targets: &[Target],
    ) -> bool {
        let mut removed = self.own_projected_usage(&entry.workload);
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

    /// Computes assignment and targets again with the same flavors, when no other nodes are available in this cycle.
    pub(super) fn retry_with_same_flavors(
        &mut self,
        entry: &Entry,
        mut nominated: NominatedAssignment,
        cycle: &mut CycleState,
    ) -> Outcome {
        let group_flavors = std::mem::take(&mut nominated.assignment.group_flavors);
        let Some((nominated, targets)) =
            self.compute_assignment(&entry.queue, &entry.workload, None, Some(&group_flavors))
        else {
            return skipped("The ClusterQueue is gone");
        };
        match nomination_of(nominated, targets, &mut self.topology) {
            Nomination::Fits(nominated) => {
                let shortfall = self.shortfall(entry, &nominated, &[], UsageLayer::Current);
                self.admit_or_wait(entry, &nominated, shortfall, cycle)
            }
            Nomination::NeedsPreemption(nominated, targets) => {
                self.process_preemption(entry, *nominated, targets, true, cycle)
            }
            Nomination::Inadmissible(inadmissible) => self.process_inadmissible(entry, *inadmissible, cycle),
            Nomination::Parked(..) | Nomination::ClaimOnly(_) => skipped(""),
        }
    }

    /// Preempts the targets and reserves the capacity that they free.
    pub(super) fn preempt(
        &mut self,
        entry: &Entry,
        nominated: &NominatedAssignment,
        targets: &[Target],
        cycle: &mut CycleState,
    ) -> Outcome {
        cycle.victims.extend(targets.iter().map(|target| target.key().clone()));
        let root = self.root_of(entry);
        for target in targets {
            self.preemption_history.insert(root, entry.key(), target.key());
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
        let shortfall = self.shortfall(entry, nominated, &[], UsageLayer::Current);
        let verdict = self.reserve_capacity(entry, nominated, shortfall, verdict, victims, cycle.now);
        let victims = targets.iter().filter_map(|target| self.preemption_of(target.key()));
        Outcome::Preempting(verdict, victims.map(|preemption| preemption.victim).collect())
    }
}
