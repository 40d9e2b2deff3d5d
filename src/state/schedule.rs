//! From changes to decisions to effects: first who belongs in which queue, then cycles, then what is to be written.
//!
//! The order matters: a Workload that is admitted at once is never told that it waits.

use super::assumed::Assumed;
use super::interface::{Effect, Kind, Observation};
use super::passes::Found;
use super::records::WorkloadRecord;
use super::{Item, State};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::lifecycle::checks::{self, Demand};
use crate::lifecycle::workload::{self, Place};
use crate::lifecycle::{conditions, reservation};
use crate::scheduler::{Decision, Outcome, Verdict, Workload};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most explanations that are written at a time, so that they never stand in the way of admissions.
const EXPLANATIONS: usize = 64;

/// Most cycles before events are taken in again: more than heads can fit at a time where anybody waits for a decision, and
/// what would go on for ever holds nobody up for longer.
const CYCLES: usize = 1024;

impl State {
    /// Does everything that the changes so far ask for.
    pub(super) fn settle(&mut self, now: Timestamp) {
        if !self.synced() {
            // Webhooks answer from their own kinds as soon as these are listed: a list that fails for want of a right that
            // only scheduling needs must not take them away.
            self.publish(now);
            return;
        }
        self.dirty.extend(self.timers.take(now));
        let mut items = std::mem::take(&mut self.dirty);
        for item in &items {
            match item {
                Item::Workload(key) => {
                    let place = self.place(key, now);
                    self.tally(key, place, now);
                }
                Item::ClusterQueue(name) => {
                    self.configure_cluster_queue(name);
                    self.queue_clock.touch(item.clone());
                }
                Item::LocalQueue(key) => {
                    self.sample(key, now);
                    self.queue_clock.touch(item.clone());
                }
                Item::Cohort(_) => self.queue_clock.touch(item.clone()),
                _ => {}
            }
        }
        if !self.leading {
            self.publish(now);
            return;
        }
        let more = self.run_cycles(&mut items, now);
        self.explain(&mut items, now);
        for item in &items {
            self.step(item, now);
        }
        self.take_turns(now);
        // Where the line is still too long, writes are under way whose ends bring the next cycles.
        self.cycles_due = (more && self.decisions_wanted() > 0).then_some(now);
        // A step may have undone a decision: what it left dirty is taken up with the next delta or at once.
        if !self.dirty.is_empty() {
            self.timers.wake_all(std::mem::take(&mut self.dirty), now);
        }
        self.flush_queue_status(now);
        self.publish(now);
    }

    /// Puts a Workload where it belongs: held quota, the queue, or neither. Returns how it waits.
    fn place(&mut self, key: &ObjectKey, now: Timestamp) -> Place {
        let place = self.place_as_is(key, now);
        self.observe_readiness(key);
        #[cfg(feature = "moments")]
        self.pass_unguarded(key, now);
        place
    }

    fn place_as_is(&mut self, key: &ObjectKey, now: Timestamp) -> Place {
        let Some(record) = self.workloads.get(key) else {
            self.engine.release(key);
            self.engine.forget(key);
            self.engine.drop_penalty(key);
            return Place::Out;
        };
        if let Some(charge) = self.charge(record) {
            let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
            self.assumed.remove(key);
            let charge = self.with_places(key, charge);
            self.engine.charge(key, charge);
            self.follow_penalty(key, admitted, false, now);
            self.look_for_pass(key, now);
            return Place::Out;
        }
        self.passes.forget(key, &record.meta.uid);
        let facts = self.surroundings(record);
        let place = workload::place(&self.subject(record), &facts, &self.settings.lifecycle, now);
        let placed = if place == Place::Queued { self.queued(key) } else { None };
        if self.assumed.get(key).is_some_and(|a| placed.is_some() && a.uid == record.meta.uid) {
            return Place::Out;
        }
        self.assumed.remove(key);
        self.engine.release(key);
        self.follow_penalty(key, false, place == Place::Out, now);
        // What the server refused is not tried before its time: until then it would hold quota for nothing.
        let waits = self.writes.waits_until(Kind::Workload, key).is_some_and(|until| until > now);
        match placed.filter(|_| !waits) {
            Some(workload) => self.engine.enqueue(workload),
            None => self.engine.forget(key),
        }
        place
    }

    /// The Workload as the scheduler sees it: without what belongs to features that are off.
    pub(super) fn queued(&self, key: &ObjectKey) -> Option<Workload> {
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
            pod_sets: record.effective.pod_sets.clone()?,
            gated: self.settings.engine.gates.heeds_preemption_gates() && record.is_gated(),
            variant: record.variant.clone().filter(|_| self.settings.engine.gates.concurrent_admission),
            replaces: self.replaces(record).cloned(),
            obstacle: obstacle(record),
        })
    }

    /// The slice that a Workload takes over from.
    pub(super) fn replaces<'a>(&self, record: &'a WorkloadRecord) -> Option<&'a ObjectKey> {
        record.replaces.as_deref().filter(|_| self.settings.engine.gates.elastic_slices)
    }

    /// Runs cycles back to back until nobody can be judged, so many at a time and not much further than what is decided can
    /// be written: quota would be held for nothing, and later decisions know more. Answers whether there is more to judge.
    fn run_cycles(&mut self, items: &mut BTreeSet<Item>, now: Timestamp) -> bool {
        if self.engine.next_expiry().is_some_and(|time| time <= now) {
            self.engine.expire_earmarks(now);
        }
        let mut passing = self.hand_over_passes(now);
        self.hold_admissions();
        let (mut left, mut wanted) = (CYCLES, self.decisions_wanted());
        let mut fruitless = false;
        while left > 0 && (self.engine.has_due() || (wanted > 0 && self.engine.has_work())) {
            left = left.saturating_sub(1);
            let decisions = self.engine.cycle_of(wanted, now);
            fruitless = decisions.is_empty();
            if fruitless {
                break;
            }
            wanted = wanted.saturating_sub(self.follow(decisions, &mut passing, items, now));
            self.hold_admissions();
        }
        // They could not be judged as they stand in the scheduler now.
        for key in passing {
            self.pass_again(&key, None, now);
        }
        !fruitless && self.engine.has_work()
    }

    /// Takes up what a cycle decided. Answers with how many Workloads it admits and evicts.
    fn follow(
        &mut self,
        decisions: Vec<Decision>,
        passing: &mut BTreeSet<ObjectKey>,
        items: &mut BTreeSet<Item>,
        now: Timestamp,
    ) -> usize {
        let admitted = decisions.iter().any(|d| matches!(d.outcome, Outcome::Admitted(_)));
        self.effects.push(Effect::Observe(Observation::Attempt { admitted }));
        let recomputed = self.engine.take_recomputed().into_iter().map(|(queue, result)| {
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
                    self.assumed.insert(key.clone(), Assumed { uid, assignment });
                }
                Outcome::Preempting(verdict, victims) => {
                    moves = moves.saturating_add(victims.len());
                    items.extend(victims.into_iter().map(|victim| Item::Workload(victim.key)));
                    if again {
                        self.pass_again(&key, Some(&verdict.to_string()), now);
                    }
                }
                Outcome::Pending(verdict) if self.is_told(&key, &verdict, now) => continue,
                Outcome::Pending(_) | Outcome::Gated(_) => {}
                #[cfg(feature = "moments")]
                Outcome::Placed(assignment) if self.take_unguarded(&key, &assignment) => {}
                Outcome::Placed(assignment) => self.take_found(&key, &uid, Found::Places(assignment)),
                Outcome::NodesFailed(why) => self.take_found(&key, &uid, Found::NoNodes(why)),
                Outcome::Unplaced(why) => {
                    self.pass_again(&key, Some(&why.to_string()), now);
                    continue;
                }
                Outcome::Skipped(_) => continue,
            }
            items.insert(Item::Workload(key));
        }
        moves
    }

    /// Whether a Workload says already why it waits, or has a time at which it is to be told. Heads are judged again and again
    /// while their queues are at work, and hardly ever with another verdict.
    fn is_told(&self, key: &ObjectKey, verdict: &Verdict, now: Timestamp) -> bool {
        let status = self.workloads.get(key).map(|record| &record.status);
        let told = status.and_then(|status| conditions::find(status, ConditionType::QuotaReserved));
        self.allowance.has_turn(key, now)
            || told.is_some_and(|told| {
                told.status == "False"
                    && told.reason == verdict.reason.as_str()
                    && told.message == verdict.to_string()
            })
    }

    /// Takes up Workloads that wait for a reason that they were not told yet, a few at a time.
    fn explain(&mut self, items: &mut BTreeSet<Item>, now: Timestamp) {
        let room = self.explanations_left().min(self.allowance.room(now));
        // Who stands in line to be told comes before those who were not looked at yet.
        if room > 0 && !self.turns.has_waiting() {
            items.extend(self.engine.take_explained(room).into_iter().map(Item::Workload));
        }
        // A write that ends brings the next ones; an allowance that comes back has to be waited for.
        let spent = self.engine.has_news() && self.allowance.room(now) == 0;
        self.news_due = spent.then(|| self.allowance.next(now));
    }

    /// How many more explanations may be under way: the most of the room is for what admits.
    pub(super) fn explanations_left(&self) -> usize {
        let share = self.settings.status_writes_at_once.map_or(usize::MAX, |limit| (limit / 8).max(1));
        EXPLANATIONS.min(share).saturating_sub(self.writes.explanations())
    }

    fn step(&mut self, item: &Item, now: Timestamp) {
        if let Item::Pods(workload) = item {
            return self.step_pods(workload, now);
        }
        let (kind, key) = item.object();
        let overtakes = matches!(item, Item::Workload(key) if self.overtake_pass(key, now));
        if !overtakes && !self.writes.may_write(kind, &key, now) {
            if let Some(until) = self.writes.waits_until(kind, &key).filter(|until| *until > now) {
                self.timers.wake(item.clone(), until);
            }
            return;
        }
        match item {
            Item::Workload(key) if self.settings.status_writes_at_once.is_some() => self.line_up(key),
            Item::Workload(key) => self.step_workload(key, now),
            Item::Job(kind, key) => self.step_job(*kind, key, now),
            Item::ClusterQueue(name) => self.step_cluster_queue(name),
            Item::Flavor(name) => self.step_flavor(name),
            Item::Check(name) => self.step_check(name, now),
            Item::Worker(name) => self.step_worker(name, now),
            Item::Topology(name) => self.step_topology(name),
            Item::LocalQueue(_) | Item::Cohort(_) | Item::Pods(_) => {}
        }
    }

    /// Whether the Workload holds quota as its object says.
    pub(super) fn holds_quota(&self, key: &ObjectKey) -> bool {
        self.workloads.get(key).is_some_and(|r| reservation::holds_quota(&r.status))
    }
}

/// What keeps a Workload from being judged: checks that have failed, or requests that are not valid.
fn obstacle(record: &WorkloadRecord) -> Option<Arc<Verdict>> {
    let (reason, text) = match (checks::demand(&record.status), &record.effective.misconfigured) {
        (Demand::Retry(text) | Demand::Reject(text), _) => (PendingReason::PendingEvaluation, text),
        (Demand::None, Some(text)) => (PendingReason::Misconfigured, text.clone()),
        (Demand::None, None) => return None,
    };
    Some(Arc::new(Verdict::plain(reason, &text)))
}

impl Item {
    /// The object that a step of the item would write.
    fn object(&self) -> (Kind, ObjectKey) {
        match self {
            Self::ClusterQueue(name) => (Kind::ClusterQueue, ObjectKey::cluster(name)),
            Self::LocalQueue(key) => (Kind::LocalQueue, key.clone()),
            Self::Cohort(name) => (Kind::Cohort, ObjectKey::cluster(name)),
            Self::Flavor(name) => (Kind::ResourceFlavor, ObjectKey::cluster(name)),
            Self::Check(name) => (Kind::AdmissionCheck, ObjectKey::cluster(name)),
            Self::Worker(name) => (Kind::MultiKueueCluster, ObjectKey::cluster(name)),
            Self::Topology(name) => (Kind::Topology, ObjectKey::cluster(name)),
            Self::Job(kind, key) => (Kind::Job(*kind), key.clone()),
            Self::Workload(key) | Self::Pods(key) => (Kind::Workload, key.clone()),
        }
    }
}
