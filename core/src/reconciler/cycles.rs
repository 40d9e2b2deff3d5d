//! Scheduling cycles: runs as many as can be written, and handles each decision.

use super::messages::{Effect, Observation};
use super::second_pass::queue::SecondPassResult;
use super::work_queue::Alarm;
use super::writes::assumed::AssumedAdmission;
use super::{ReconcileKey, Reconciler};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::lifecycle::conditions;
use crate::scheduler::{Decision, Outcome, Verdict};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Maximum number of cycles before the next deltas are handled. Higher than the number of cycles that can admit at one
/// time where the latency of decisions matters; also bounds cycles that would never end.
const MAX_CYCLES_PER_RECONCILE: usize = 1024;

/// Inputs and results of the cycles of one round.
#[derive(Debug)]
pub(super) struct CycleRound<'a> {
    /// Second passes that were requested from the scheduler and have no result yet.
    pub(super) second_passes: BTreeSet<ObjectKey>,
    /// Objects that get a step after the cycles.
    pub(super) items: &'a mut BTreeSet<ReconcileKey>,
    pub(super) now: Timestamp,
}

impl Reconciler {
    /// Runs cycles until no head can be nominated, with few more decisions than can be written: an unwritten decision holds quota
    /// without effect, and a later decision is based on newer objects. Returns whether heads remain.
    pub(super) fn run_cycles(&mut self, items: &mut BTreeSet<ReconcileKey>, now: Timestamp) -> bool {
        if self.engine.next_reservation_expiry().is_some_and(|time| time <= now) {
            self.engine.expire_reservations(now);
        }
        let mut round = CycleRound { second_passes: self.second_passes().dequeue(now), items, now };
        self.update_admission_block();
        let (mut cycles_left, mut budget) =
            (MAX_CYCLES_PER_RECONCILE, self.workload_write_queue.decision_budget(&self.settings.writes));
        let mut undecided = false;
        while cycles_left > 0 && (self.engine.has_second_passes() || (budget > 0 && self.engine.has_work())) {
            cycles_left = cycles_left.saturating_sub(1);
            let decisions = self.engine.run_cycle_limited(budget, now);
            undecided = decisions.is_empty();
            if undecided {
                break;
            }
            budget = budget.saturating_sub(self.apply_decisions(decisions, &mut round));
            self.update_admission_block();
        }
        // The scheduler decided nothing about these.
        for key in round.second_passes {
            self.second_passes().requeue(&key, None, now);
        }
        !undecided && self.engine.has_work()
    }

    /// Blocks or unblocks admission in the scheduler, depending on whether admitted workloads have pods that are not
    /// ready.
    fn update_admission_block(&mut self) {
        if self.settings.engine.block_admission {
            self.engine.block_admission(self.membership.blocks_admission(&self.cache));
        }
    }

    /// Handles the decisions of a cycle. Returns how many Workloads they admit and evict.
    pub(super) fn apply_decisions(&mut self, decisions: Vec<Decision>, round: &mut CycleRound<'_>) -> usize {
        let admitted = decisions.iter().any(|d| matches!(d.outcome, Outcome::Admitted(_)));
        self.writes.emit(Effect::Observe(Observation::AdmissionAttempt { admitted }));
        let recomputed = self.engine.take_recomputations().into_iter().map(|(queue, result)| {
            let (cluster_queue, result) = (queue.to_string(), result.as_str());
            Effect::Observe(Observation::TargetsRecomputed { cluster_queue, result })
        });
        self.writes.emit_all(recomputed);
        decisions
            .into_iter()
            .fold(0, |moves, decision| moves.saturating_add(self.apply_decision(decision, round)))
    }

    /// Returns how many Workloads the decision admits and evicts.
    fn apply_decision(&mut self, decision: Decision, round: &mut CycleRound<'_>) -> usize {
        let Decision { key, uid, outcome } = decision;
        let now = round.now;
        let was_second_pass = round.second_passes.remove(&key);
        let mut moves = 0;
        match outcome {
            Outcome::Admitted(assignment) => {
                moves = 1;
                self.queues.waiting_heads.decide(&key, &assignment.cluster_queue, now);
                let generation = self.cache.workload(&key).map_or(0, |record| record.meta.generation);
                let decision = AssumedAdmission { uid, generation, assignment };
                self.membership.assumed.insert(key.clone(), decision);
            }
            Outcome::Preempting(verdict, victims) => {
                moves = victims.len();
                round.items.extend(victims.into_iter().map(|victim| ReconcileKey::workload(victim.key)));
                if was_second_pass {
                    self.second_passes().requeue(&key, Some(&verdict.to_string()), now);
                }
            }
            Outcome::Pending(verdict) if self.is_already_explained(&key, &verdict, now) => return 0,
            Outcome::Pending(_) | Outcome::PreemptionGated(_) => {}
            Outcome::TopologyAssigned(assignment)
                if self.second_passes().record_unguarded_result(&key, &assignment) => {}
            Outcome::TopologyAssigned(assignment) => {
                self.second_passes().record_result(&key, &uid, SecondPassResult::Assigned(assignment));
            }
            Outcome::ReplacementFailed(reason) => {
                self.second_passes().record_result(&key, &uid, SecondPassResult::NoReplacement(reason));
            }
            Outcome::TopologyPending(reason) => {
                self.second_passes().requeue(&key, Some(&reason.to_string()), now);
                return 0;
            }
            Outcome::Skipped(_) => return 0,
        }
        round.items.insert(ReconcileKey::workload(key));
        moves
    }

    /// Returns whether a Workload's condition already has this pending reason, or the rate limiter has reserved a slot
    /// for it. Heads are nominated repeatedly while their queues are active, and the verdict rarely changes.
    fn is_already_explained(&self, key: &ObjectKey, verdict: &Verdict, now: Timestamp) -> bool {
        let status = self.cache.workload(key).map(|record| &record.status);
        let condition = status.and_then(|status| conditions::find(status, ConditionType::QuotaReserved));
        self.status_rate_limiter.has_slot(key, now)
            || condition.is_some_and(|condition| {
                condition.status == "False"
                    && condition.reason == verdict.reason.as_str()
                    && condition.message == verdict.to_string()
            })
    }

    /// Adds Workloads whose pending reason is not in their status yet, a few at a time.
    pub(super) fn explain_pending(&mut self, items: &mut BTreeSet<ReconcileKey>, now: Timestamp) {
        let available = self
            .writes
            .explanation_budget(&self.settings.writes)
            .min(self.status_rate_limiter.available(now));
        // Workloads that are already in the write queue come first.
        if available > 0 && !self.workload_write_queue.has_explanation() {
            items.extend(self.engine.take_message_updates(available).into_iter().map(ReconcileKey::workload));
        }
        // The result of a write triggers the next round; the rate limit needs an alarm.
        let limited = self.engine.has_message_updates() && self.status_rate_limiter.available(now) == 0;
        let at = limited.then(|| self.status_rate_limiter.next_available(now));
        self.work_queue.set_alarm(Alarm::PendingReasons, at);
    }
}
