//! Room that is kept: what victims free belongs to the workload that they were evicted for.
//!
//! Invariants (I19, I20): in the plan of the quota tree victims are gone and those for whom they go are in, from the
//! decision until the newcomer is admitted, gives up, or has waited too long. Everyone else is judged in the plan, so that
//! nobody takes what is kept and nobody is evicted twice for the same. Earmarks come from decisions of this engine alone,
//! never from conditions found on objects.

use super::cycle::Shortfall;
use super::decision::{Outcome, PreemptionReason, Victim};
use super::engine::{Engine, negated_usage};
use super::nominate::{Entry, NominatedAssignment};
use super::topology::CapacityUsage;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{Parked, Verdict, WakeConditions};
use crate::quota::{FlavorResource, NodeId, Usage, UsageLayer};
use crate::resources::Amount;
use crate::topology::Footprint;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// After so long without success the workload is judged anew, as if nothing had been kept for it.
const RESERVATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(30);

/// Room that is kept for one workload.
#[derive(Clone, Debug)]
pub(super) struct CapacityReservation {
    pub(super) node: NodeId,
    pub(super) usage: Usage,
    /// Room on nodes.
    pub(super) footprint: Arc<Footprint>,
    pub(super) since: Timestamp,
    /// Those who must go for it, and why.
    pub(super) victims: BTreeMap<ObjectKey, PreemptionReason>,
    /// What is said of the workload meanwhile.
    pub(super) verdict: Arc<Verdict>,
}

/// Why a workload that holds quota must go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The workload that it makes room for.
    pub preemptor: ObjectKey,
    /// The victim with the reason and both paths.
    pub victim: Victim,
}

impl Engine {
    /// Keeps room for a pending workload; its victims are gone in the plan from now on.
    pub(super) fn add_reservation(&mut self, key: &ObjectKey, earmark: CapacityReservation) {
        // Nothing is free before the victims are gone in fact: only then is there anybody to wake.
        for victim in earmark.victims.keys() {
            let holder = self.reserving_workloads.set_preempted_by(victim, Some(key.clone()));
            if let Some(holder) = holder.filter(|holder| !holder.is_terminating()) {
                self.tree.add_usage(holder.node, &negated_usage(&holder.usage), &[UsageLayer::Projected]);
                self.topology.shift_usage(&holder.footprint, -1, UsageLayer::Projected);
            }
        }
        self.tree.add_usage(earmark.node, &earmark.usage, &[UsageLayer::Projected]);
        self.topology.shift_usage(&earmark.footprint, 1, UsageLayer::Projected);
        self.oldest_reservation =
            Some(self.oldest_reservation.map_or(earmark.since, |old| old.min(earmark.since)));
        self.capacity_reservations.insert(key.clone(), earmark);
    }

    /// It fits once those are gone who must go already: room is kept, and quota given when it is free in fact.
    pub(super) fn wait_for_victims(
        &mut self,
        entry: &Entry,
        plan: &NominatedAssignment,
        lacking: Shortfall,
        now: Timestamp,
    ) -> Outcome {
        let text = "The quota is being freed by workloads that were preempted or deactivated";
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::WaitingForPreemptedWorkloads, text));
        let verdict = self.reserve_capacity(entry, plan, lacking, verdict, BTreeMap::new(), now);
        Outcome::Pending(verdict)
    }

    /// Keeps room for a workload that lacks some of it in fact, beside what is kept for it already.
    pub(super) fn reserve_capacity(
        &mut self,
        entry: &Entry,
        plan: &NominatedAssignment,
        lacking: Shortfall,
        verdict: Arc<Verdict>,
        victims: BTreeMap<ObjectKey, PreemptionReason>,
        now: Timestamp,
    ) -> Arc<Verdict> {
        let Some(node) = self.queues.get(&entry.queue).map(|queue| queue.node) else {
            return verdict;
        };
        let usage = &plan.assignment.usage;
        let stand = plan.assignment.tas_assignment.footprint(&mut self.topology);
        let waits = self.wake_conditions(entry, plan, lacking);
        let known = self.capacity_reservations.get(entry.key()).filter(|known| known.node == node);
        if let Some(known) = known.filter(|known| known.usage == *usage && victims.is_empty()) {
            let (verdict, before) = (Arc::clone(&known.verdict), Arc::clone(&known.footprint));
            self.move_reservation(entry.key(), &before, stand);
            self.park_isolated(entry.key(), &verdict, waits);
            return verdict;
        }
        let old = self.cancel_reservation(entry.key());
        let since = old.as_ref().map_or(now, |old| old.since);
        let before = old.map(|old| old.victims).unwrap_or_default();
        let victims = before.into_iter().chain(victims).collect();
        let (usage, verdict_kept) = (usage.clone(), Arc::clone(&verdict));
        let earmark =
            CapacityReservation { node, usage, footprint: stand, since, victims, verdict: verdict_kept };
        self.add_reservation(entry.key(), earmark);
        self.park_isolated(entry.key(), &verdict, waits);
        verdict
    }

    /// Keeps other places. Room on nodes stays where it is while it can, and moves to what is free: two who make way for each
    /// other would never come to an end.
    fn move_reservation(&mut self, key: &ObjectKey, before: &Footprint, stand: Arc<Footprint>) {
        if self.topology.still_valid_at(before, &stand) {
            return;
        }
        self.shift_footprint(before, -1, &[UsageLayer::Projected]);
        self.topology.shift_usage(&stand, 1, UsageLayer::Projected);
        if let Some(earmark) = self.capacity_reservations.get_mut(key) {
            earmark.footprint = stand;
        }
    }

    /// How one waits for whom room is kept: until what it lacks of it is free in fact, or something is given back where
    /// there are other flavors: it may fit elsewhere before its victims are gone.
    fn wake_conditions(
        &self,
        entry: &Entry,
        plan: &NominatedAssignment,
        lacking: Shortfall,
    ) -> WakeConditions {
        let all = lacking.is_empty();
        let judgement = &plan.assignment;
        let any = if all { judgement.usage.iter().map(|(pair, _)| *pair).collect() } else { lacking.quota };
        let places =
            if all || lacking.topology { judgement.tas_assignment.flavors() } else { BTreeSet::new() };
        let groups = self.queues.get(&entry.queue).into_iter().flat_map(|queue| &queue.groups);
        let choices = groups.filter(|group| group.flavors.len() > 1).flat_map(|group| &group.flavors);
        let freed = choices.flat_map(|flavor| flavor.frs.iter().copied()).collect();
        WakeConditions {
            tree: Some(self.root_of(entry)),
            on_usage_change: any,
            on_release: freed,
            on_topology_change: places,
            ..WakeConditions::default()
        }
    }

    /// What is kept for a workload, if anything is.
    pub(super) fn reservation_of(&self, key: &ObjectKey) -> Vec<CapacityUsage> {
        self.capacity_reservations.get(key).map(CapacityUsage::from_reservation).into_iter().collect()
    }

    /// Parks a workload by itself.
    fn park_isolated(&mut self, key: &ObjectKey, verdict: &Arc<Verdict>, waits: WakeConditions) {
        let queue = self.pending.workload(key).map(|workload| Arc::clone(&workload.cluster_queue));
        if let (Some(queue), Some(class)) = (queue, self.pending.isolate(key)) {
            self.pending.park(
                &queue,
                class,
                verdict,
                Parked { never_blocks_queue: false, claim: None, wake_conditions: waits },
            );
        }
    }

    /// Gives up what is kept for a workload. Victims that still hold their quota are in the plan again, unless they leave anyway.
    pub(super) fn cancel_reservation(&mut self, key: &ObjectKey) -> Option<CapacityReservation> {
        let earmark = self.capacity_reservations.remove(key)?;
        self.add_usage(earmark.node, &negated_usage(&earmark.usage), &[UsageLayer::Projected]);
        self.shift_footprint(&earmark.footprint, -1, &[UsageLayer::Projected]);
        for victim in earmark.victims.keys() {
            let leaves = self
                .reserving_workloads
                .get(victim)
                .is_some_and(|holder| holder.preempted_by.as_ref() == Some(key));
            if let Some(holder) =
                leaves.then(|| self.reserving_workloads.set_preempted_by(victim, None)).flatten()
            {
                self.preemption_history.remove(key, victim);
                if holder.charge.deactivated {
                    continue;
                }
                self.add_usage(holder.node, &holder.usage, &[UsageLayer::Projected]);
                self.shift_footprint(&holder.footprint, 1, &[UsageLayer::Projected]);
            }
        }
        self.pending.rejoin_class(key);
        Some(earmark)
    }

    /// Nothing is kept for those who wait in a queue that admits nothing.
    pub(super) fn cancel_reservations_in(&mut self, queue: &str) {
        let of = |key: &&ObjectKey| self.pending.workload(key).is_some_and(|w| *w.cluster_queue == *queue);
        let keys: Vec<ObjectKey> = self.capacity_reservations.keys().filter(of).cloned().collect();
        for key in keys {
            self.cancel_reservation(&key);
        }
    }

    /// Lets go of earmarks that are too old; those workloads are judged anew.
    pub fn expire_reservations(&mut self, now: Timestamp) {
        if self.next_reservation_expiry().is_none_or(|time| time > now) {
            return;
        }
        let old = |earmark: &CapacityReservation| now.duration_since(earmark.since) >= RESERVATION_TIMEOUT;
        let keys: Vec<ObjectKey> = self
            .capacity_reservations
            .iter()
            .filter(|(_, earmark)| old(earmark))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.cancel_reservation(&key);
        }
        self.oldest_reservation = self.capacity_reservations.values().map(|earmark| earmark.since).min();
    }

    /// When the next earmark is too old: not later than that.
    pub fn next_reservation_expiry(&self) -> Option<Timestamp> {
        self.oldest_reservation
            .filter(|_| !self.capacity_reservations.is_empty())?
            .checked_add(RESERVATION_TIMEOUT)
            .ok()
    }

    /// Room that is kept: for which workload, of which ClusterQueue, and how much.
    pub fn reservations(
        &self,
    ) -> impl Iterator<Item = (&ObjectKey, Arc<str>, BTreeMap<FlavorResource, Amount>)> {
        self.capacity_reservations.iter().map(move |(key, earmark)| {
            let queue = self.tree.name(earmark.node).map(|name| Arc::from(name.as_str()));
            (key, queue.unwrap_or_default(), self.tree.to_named(earmark.usage.iter().copied()))
        })
    }

    /// For whom and why a workload that holds quota must go.
    pub fn preemption_of(&self, key: &ObjectKey) -> Option<Preemption> {
        let holder = self.reserving_workloads.get(key)?;
        let preemptor = holder.preempted_by.clone()?;
        let earmark = self.capacity_reservations.get(&preemptor)?;
        let reason = *earmark.victims.get(key)?;
        let victim = Victim {
            key: key.clone(),
            uid: Arc::clone(&holder.charge.uid),
            reason,
            preemptor_path: Arc::from(self.tree.path_of(earmark.node)),
            preemptee_path: Arc::from(self.tree.path_of(holder.node)),
        };
        Some(Preemption { preemptor, victim })
    }
}
