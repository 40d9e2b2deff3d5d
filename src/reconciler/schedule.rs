//! From changes to decisions to effects: first who belongs in which queue, then cycles, then what is to be written.
//!
//! The order matters: a Workload that is admitted at once is never told that it waits.

use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::checks::{self, CheckAction};
use crate::lifecycle::workload::{self, QueueMembership};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::membership::assumed::AssumedAdmission;
use crate::reconciler::messages::{Effect, Observation};
use crate::reconciler::second_pass::queue::SecondPassResult;
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::scheduler::{Decision, Outcome, Verdict, Workload};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most explanations that are written at a time, so that they never stand in the way of admissions.
const MAX_IN_FLIGHT_EXPLANATIONS: usize = 64;

/// Most cycles before events are taken in again: more than heads can fit at a time where anybody waits for a decision, and
/// what would go on for ever holds nobody up for longer.
const MAX_CYCLES_PER_RECONCILE: usize = 1024;

impl Reconciler {
    /// Does everything that the changes so far ask for.
    pub(in crate::reconciler) fn reconcile(&mut self, now: Timestamp) {
        if !self.is_synced() {
            // Webhooks answer from their own kinds as soon as these are listed: a list that fails for want of a right that
            // only scheduling needs must not take them away.
            self.update_snapshot(now);
            return;
        }
        self.dirty.extend(self.timers.take_due(now));
        let mut items = std::mem::take(&mut self.dirty);
        for item in &items {
            match item {
                ReconcileKey::Workload(key) => {
                    let place = self.sync_queue_membership(key, now);
                    self.update_counts(key, place, now);
                }
                ReconcileKey::ClusterQueue(name) => {
                    self.configure_cluster_queue(name);
                    self.status_schedule.mark_dirty(item.clone());
                }
                ReconcileKey::LocalQueue(key) => {
                    self.sample_afs_usage(key, now);
                    self.status_schedule.mark_dirty(item.clone());
                }
                ReconcileKey::Cohort(_) => self.status_schedule.mark_dirty(item.clone()),
                _ => {}
            }
        }
        if !self.leading {
            self.update_snapshot(now);
            return;
        }
        let more = self.run_cycles(&mut items, now);
        self.explain_pending(&mut items, now);
        for item in &items {
            self.step_object(item, now);
        }
        self.dequeue_writes(now);
        // Where the line is still too long, writes are under way whose ends bring the next cycles.
        self.resume_cycles_at = (more && self.decision_budget() > 0).then_some(now);
        // A step may have undone a decision: what it left dirty is taken up with the next delta or at once.
        if !self.dirty.is_empty() {
            self.timers.wake_all(std::mem::take(&mut self.dirty), now);
        }
        self.flush_queue_status(now);
        self.update_snapshot(now);
    }

    /// Puts a Workload where it belongs: held quota, the queue, or neither. Returns how it waits.
    fn sync_queue_membership(&mut self, key: &ObjectKey, now: Timestamp) -> QueueMembership {
        let place = self.apply_queue_membership(key, now);
        self.update_pods_ready_gate(key);
        #[cfg(feature = "failpoints")]
        self.step_unguarded_pass(key, now);
        place
    }

    fn apply_queue_membership(&mut self, key: &ObjectKey, now: Timestamp) -> QueueMembership {
        let Some(record) = self.workloads.get(key) else {
            self.engine.release(key);
            self.engine.remove_pending(key);
            self.engine.drop_penalty(key);
            return QueueMembership::NotQueued;
        };
        if let Some(charge) = self.charge_from_admission(record) {
            let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
            self.assumed.remove(key);
            let charge = self.with_pending_result(key, charge);
            self.engine.charge(key, charge);
            self.sync_entry_penalty(key, admitted, false, now);
            self.schedule_second_pass(key, now);
            return QueueMembership::NotQueued;
        }
        self.second_passes.forget(key, &record.meta.uid);
        let facts = self.membership_facts(record);
        let place =
            workload::queue_membership(&self.workload_input(record), &facts, &self.settings.lifecycle, now);
        let placed = if place == QueueMembership::Queued { self.to_pending_workload(key) } else { None };
        if self.assumed.get(key).is_some_and(|a| placed.is_some() && a.uid == record.meta.uid) {
            return QueueMembership::NotQueued;
        }
        self.assumed.remove(key);
        self.engine.release(key);
        self.sync_entry_penalty(key, false, place == QueueMembership::NotQueued, now);
        // What the server refused is not tried before its time: until then it would hold quota for nothing.
        let waits = self.in_flight_writes.backoff_until(Kind::Workload, key).is_some_and(|until| until > now);
        match placed.filter(|_| !waits) {
            Some(workload) => self.engine.enqueue(workload),
            None => self.engine.remove_pending(key),
        }
        place
    }

    /// The Workload as the scheduler sees it: without what belongs to features that are off.
    pub(in crate::reconciler) fn to_pending_workload(&self, key: &ObjectKey) -> Option<Workload> {
        let record = self.workloads.get(key)?;
        let cluster_queue = self.cluster_queue_name(record)?;
        let known = self.cluster_queues.get_key_value(cluster_queue).map(|(name, _)| name.clone());
        Some(Workload {
            key: key.clone(),
            uid: record.meta.uid.clone(),
            cluster_queue: known.unwrap_or_else(|| Arc::from(cluster_queue)),
            local_queue: record.queue_name.clone()?,
            priority: i64::from(record.priority),
            queued_since: self.queued_since(record),
            pod_sets: record.effective_requests.pod_sets.clone()?,
            preemption_gated: self.settings.engine.gates.respects_preemption_gates()
                && record.is_preemption_gated(),
            variant: record.variant.clone().filter(|_| self.settings.engine.gates.concurrent_admission),
            replaces: self.replaced_slice(record).cloned(),
            precheck_failure: precheck_failure(record),
        })
    }

    /// The slice that a Workload takes over from.
    pub(in crate::reconciler) fn replaced_slice<'a>(
        &self,
        record: &'a WorkloadRecord,
    ) -> Option<&'a ObjectKey> {
        record.replaces.as_deref().filter(|_| self.settings.engine.gates.elastic_slices)
    }

    /// Runs cycles back to back until nobody can be judged, so many at a time and not much further than what is decided can
    /// be written: quota would be held for nothing, and later decisions know more. Answers whether there is more to judge.
    fn run_cycles(&mut self, items: &mut BTreeSet<ReconcileKey>, now: Timestamp) -> bool {
        if self.engine.next_reservation_expiry().is_some_and(|time| time <= now) {
            self.engine.expire_reservations(now);
        }
        let mut passing = self.dequeue_second_passes(now);
        self.update_admission_block();
        let (mut left, mut wanted) = (MAX_CYCLES_PER_RECONCILE, self.decision_budget());
        let mut fruitless = false;
        while left > 0 && (self.engine.has_second_passes() || (wanted > 0 && self.engine.has_work())) {
            left = left.saturating_sub(1);
            let decisions = self.engine.run_cycle_limited(wanted, now);
            fruitless = decisions.is_empty();
            if fruitless {
                break;
            }
            wanted = wanted.saturating_sub(self.apply_decisions(decisions, &mut passing, items, now));
            self.update_admission_block();
        }
        // They could not be judged as they stand in the scheduler now.
        for key in passing {
            self.requeue_second_pass(&key, None, now);
        }
        !fruitless && self.engine.has_work()
    }

    /// Takes up what a cycle decided. Answers with how many Workloads it admits and evicts.
    fn apply_decisions(
        &mut self,
        decisions: Vec<Decision>,
        passing: &mut BTreeSet<ObjectKey>,
        items: &mut BTreeSet<ReconcileKey>,
        now: Timestamp,
    ) -> usize {
        let admitted = decisions.iter().any(|d| matches!(d.outcome, Outcome::Admitted(_)));
        self.effects.push(Effect::Observe(Observation::AdmissionAttempt { admitted }));
        let recomputed = self.engine.take_recomputations().into_iter().map(|(queue, result)| {
            let (cluster_queue, result) = (queue.to_string(), result.as_str());
            Effect::Observe(Observation::TargetsRecomputed { cluster_queue, result })
        });
        self.effects.extend(recomputed);
        let mut moves: usize = 0;
        for Decision { key, uid, outcome } in decisions {
            let again = passing.remove(&key);
            match outcome {
                Outcome::Admitted(assignment) => {
                    moves = moves.saturating_add(1);
                    self.assumed.insert(key.clone(), AssumedAdmission { uid, assignment });
                }
                Outcome::Preempting(verdict, victims) => {
                    moves = moves.saturating_add(victims.len());
                    items.extend(victims.into_iter().map(|victim| ReconcileKey::Workload(victim.key)));
                    if again {
                        self.requeue_second_pass(&key, Some(&verdict.to_string()), now);
                    }
                }
                Outcome::Pending(verdict) if self.is_already_explained(&key, &verdict, now) => continue,
                Outcome::Pending(_) | Outcome::PreemptionGated(_) => {}
                #[cfg(feature = "failpoints")]
                Outcome::TopologyAssigned(assignment) if self.record_unguarded_result(&key, &assignment) => {}
                Outcome::TopologyAssigned(assignment) => {
                    self.record_second_pass_result(&key, &uid, SecondPassResult::Assigned(assignment));
                }
                Outcome::ReplacementFailed(why) => {
                    self.record_second_pass_result(&key, &uid, SecondPassResult::NoReplacement(why));
                }
                Outcome::TopologyPending(why) => {
                    self.requeue_second_pass(&key, Some(&why.to_string()), now);
                    continue;
                }
                Outcome::Skipped(_) => continue,
            }
            items.insert(ReconcileKey::Workload(key));
        }
        moves
    }

    /// Whether a Workload says already why it waits, or has a time at which it is to be told. Heads are judged again and again
    /// while their queues are at work, and hardly ever with another verdict.
    fn is_already_explained(&self, key: &ObjectKey, verdict: &Verdict, now: Timestamp) -> bool {
        let status = self.workloads.get(key).map(|record| &record.status);
        let told = status.and_then(|status| conditions::find(status, ConditionType::QuotaReserved));
        self.status_rate_limiter.has_slot(key, now)
            || told.is_some_and(|told| {
                told.status == "False"
                    && told.reason == verdict.reason.as_str()
                    && told.message == verdict.to_string()
            })
    }

    /// Takes up Workloads that wait for a reason that they were not told yet, a few at a time.
    fn explain_pending(&mut self, items: &mut BTreeSet<ReconcileKey>, now: Timestamp) {
        let room = self.explanation_budget().min(self.status_rate_limiter.available(now));
        // Who stands in line to be told comes before those who were not looked at yet.
        if room > 0 && !self.workload_write_queue.has_explanation() {
            items.extend(self.engine.take_message_updates(room).into_iter().map(ReconcileKey::Workload));
        }
        // A write that ends brings the next ones; an allowance that comes back has to be waited for.
        let spent = self.engine.has_message_updates() && self.status_rate_limiter.available(now) == 0;
        self.next_message_update = spent.then(|| self.status_rate_limiter.next_available(now));
    }

    /// How many more explanations may be under way: the most of the room is for what admits.
    pub(in crate::reconciler) fn explanation_budget(&self) -> usize {
        let share = self.settings.max_in_flight_status_writes.map_or(usize::MAX, |limit| (limit / 8).max(1));
        MAX_IN_FLIGHT_EXPLANATIONS.min(share).saturating_sub(self.in_flight_writes.explanation_count())
    }

    fn step_object(&mut self, item: &ReconcileKey, now: Timestamp) {
        if let ReconcileKey::Pods(workload) = item {
            return self.step_pods(workload, now);
        }
        let (kind, key) = item.written_object();
        let overtakes =
            matches!(item, ReconcileKey::Workload(key) if self.supersede_second_pass_write(key, now));
        if !overtakes && !self.in_flight_writes.may_write(kind, &key, now) {
            if let Some(until) = self.in_flight_writes.backoff_until(kind, &key).filter(|until| *until > now)
            {
                self.timers.wake(item.clone(), until);
            }
            return;
        }
        match item {
            ReconcileKey::Workload(key) if self.settings.max_in_flight_status_writes.is_some() => {
                self.enqueue_write(key);
            }
            ReconcileKey::Workload(key) => self.step_workload(key, now),
            ReconcileKey::Job(kind, key) => self.step_job(*kind, key, now),
            ReconcileKey::ClusterQueue(name) => self.step_cluster_queue(name),
            ReconcileKey::Flavor(name) => self.step_flavor(name),
            ReconcileKey::Check(name) => self.step_check(name, now),
            ReconcileKey::MultiKueueCluster(name) => self.step_multikueue_cluster(name, now),
            ReconcileKey::Topology(name) => self.step_topology(name),
            ReconcileKey::LocalQueue(_) | ReconcileKey::Cohort(_) | ReconcileKey::Pods(_) => {}
        }
    }

    /// Whether the Workload holds quota as its object says.
    pub(in crate::reconciler) fn holds_quota(&self, key: &ObjectKey) -> bool {
        self.workloads.get(key).is_some_and(|r| reservation::holds_quota(&r.status))
    }
}

/// What keeps a Workload from being judged: checks that have failed, or requests that are not valid.
fn precheck_failure(record: &WorkloadRecord) -> Option<Arc<Verdict>> {
    let (reason, text) =
        match (checks::required_action(&record.status), &record.effective_requests.misconfiguration) {
            (CheckAction::Retry(text) | CheckAction::Reject(text), _) => {
                (PendingReason::PendingEvaluation, text)
            }
            (CheckAction::None, Some(text)) => (PendingReason::Misconfigured, text.clone()),
            (CheckAction::None, None) => return None,
        };
    Some(Arc::new(Verdict::without_blockers(reason, &text)))
}

impl ReconcileKey {
    /// The object that a step of the item would write.
    fn written_object(&self) -> (Kind, ObjectKey) {
        match self {
            Self::ClusterQueue(name) => (Kind::ClusterQueue, ObjectKey::cluster(name)),
            Self::LocalQueue(key) => (Kind::LocalQueue, key.clone()),
            Self::Cohort(name) => (Kind::Cohort, ObjectKey::cluster(name)),
            Self::Flavor(name) => (Kind::ResourceFlavor, ObjectKey::cluster(name)),
            Self::Check(name) => (Kind::AdmissionCheck, ObjectKey::cluster(name)),
            Self::MultiKueueCluster(name) => (Kind::MultiKueueCluster, ObjectKey::cluster(name)),
            Self::Topology(name) => (Kind::Topology, ObjectKey::cluster(name)),
            Self::Job(kind, key) => (Kind::Job(*kind), key.clone()),
            Self::Workload(key) | Self::Pods(key) => (Kind::Workload, key.clone()),
        }
    }
}
