//! Capacity reservations: capacity that victims free stays reserved for their preemptor.
//!
//! Invariants (I19, I20): from the preemption decision until the preemptor is admitted, gives up or times out,
//! projected usage excludes the victims and includes the reservation. All other heads are evaluated against projected
//! usage, so no other workload takes reserved capacity, and no workload is evicted twice for the same preemptor.
//! Reservations come only from decisions of this engine, never from conditions read from objects.

use super::decision::{Outcome, PreemptionReason, Victim};
use super::engine::{Engine, negated_usage};
use super::nominate::{Head, NominatedAssignment};
use super::shortfall::Shortfall;
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

/// A capacity reservation expires after this long; the workload is then nominated again without it.
const RESERVATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(30);

/// Capacity reserved for one workload.
#[derive(Clone, Debug)]
pub(super) struct CapacityReservation {
    pub(super) node: NodeId,
    pub(super) usage: Usage,
    /// Reserved leaf capacity.
    pub(super) footprint: Arc<Footprint>,
    pub(super) since: Timestamp,
    /// Victims that have not released their quota yet, with the reasons of their preemption.
    pub(super) victims: BTreeMap<ObjectKey, PreemptionReason>,
    /// Verdict of the workload while it waits.
    pub(super) verdict: Arc<Verdict>,
}

/// Capacity reservations by preemptor.
#[derive(Debug, Default)]
pub(super) struct CapacityReservations {
    by_preemptor: BTreeMap<ObjectKey, CapacityReservation>,
    /// Lower bound of all reservations' start times; the reservation that set it may no longer exist.
    oldest: Option<Timestamp>,
}

impl CapacityReservations {
    pub(super) fn contains(&self, preemptor: &ObjectKey) -> bool {
        self.by_preemptor.contains_key(preemptor)
    }

    pub(super) fn get(&self, preemptor: &ObjectKey) -> Option<&CapacityReservation> {
        self.by_preemptor.get(preemptor)
    }

    pub(super) fn get_mut(&mut self, preemptor: &ObjectKey) -> Option<&mut CapacityReservation> {
        self.by_preemptor.get_mut(preemptor)
    }

    fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &CapacityReservation)> {
        self.by_preemptor.iter()
    }

    fn insert(&mut self, preemptor: &ObjectKey, reservation: CapacityReservation) {
        self.oldest = Some(self.oldest.map_or(reservation.since, |old| old.min(reservation.since)));
        self.by_preemptor.insert(preemptor.clone(), reservation);
    }

    fn remove(&mut self, preemptor: &ObjectKey) -> Option<CapacityReservation> {
        self.by_preemptor.remove(preemptor)
    }

    /// Earliest time at which a reservation may expire.
    fn next_expiry(&self) -> Option<Timestamp> {
        self.oldest.filter(|_| !self.by_preemptor.is_empty())?.checked_add(RESERVATION_TIMEOUT).ok()
    }

    /// Makes the lower bound of the start times exact.
    fn refresh_oldest(&mut self) {
        self.oldest = self.by_preemptor.values().map(|reservation| reservation.since).min();
    }
}

/// What is reserved for a workload, beside its assignment.
pub(super) struct ReservationRequest {
    /// What current usage lacks.
    pub(super) shortfall: Shortfall,
    /// Verdict of the workload while it waits.
    pub(super) verdict: Arc<Verdict>,
    /// New victims, with the reasons of their preemption.
    pub(super) victims: BTreeMap<ObjectKey, PreemptionReason>,
    pub(super) now: Timestamp,
}

/// The preemption of one workload that holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The preemptor.
    pub preemptor: ObjectKey,
    /// The victim with reason and paths.
    pub victim: Victim,
}

impl Engine {
    /// Reserves capacity for a workload; projected usage excludes its victims from now on.
    pub(super) fn add_reservation(&mut self, key: &ObjectKey, reservation: CapacityReservation) {
        // No wake here: capacity becomes current only when the victims release it.
        for victim in reservation.victims.keys() {
            let workload = self.reserving_workloads.set_preempted_by(victim, Some(key.clone()));
            if let Some(workload) = workload.filter(|workload| !workload.is_terminating()) {
                self.tree.add_usage(workload.node, &negated_usage(&workload.usage), &[UsageLayer::Projected]);
                self.topology.shift_usage(&workload.footprint, -1, UsageLayer::Projected);
            }
        }
        self.tree.add_usage(reservation.node, &reservation.usage, &[UsageLayer::Projected]);
        self.topology.shift_usage(&reservation.footprint, 1, UsageLayer::Projected);
        self.reservations.insert(key, reservation);
    }

    /// Reserves capacity for a workload that fits once workloads already being evicted have left.
    pub(super) fn wait_for_victims(
        &mut self,
        head: &Head,
        nominated: &NominatedAssignment,
        shortfall: Shortfall,
        now: Timestamp,
    ) -> Outcome {
        let text = "Waiting for preempted workloads to release quota";
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::WaitingForPreemptedWorkloads, text));
        let request = ReservationRequest { shortfall, verdict, victims: BTreeMap::new(), now };
        let verdict = self.reserve_capacity(head, nominated, request);
        Outcome::Pending(verdict)
    }

    /// Reserves capacity for a workload that current usage has no room for yet, and adds victims to an earlier
    /// reservation.
    pub(super) fn reserve_capacity(
        &mut self,
        head: &Head,
        nominated: &NominatedAssignment,
        request: ReservationRequest,
    ) -> Arc<Verdict> {
        let ReservationRequest { shortfall, verdict, victims, now } = request;
        let Some(node) = self.config.cluster_queue(&head.queue).map(|queue| queue.node) else {
            return verdict;
        };
        let usage = &nominated.assignment.usage;
        let footprint = nominated.assignment.tas_assignment.footprint(&mut self.topology);
        let wake_conditions = self.wake_conditions(head, nominated, shortfall);
        let known = self.reservations.get(head.key()).filter(|known| known.node == node);
        if let Some(known) = known.filter(|known| known.usage == *usage && victims.is_empty()) {
            let (verdict, old_footprint) = (Arc::clone(&known.verdict), Arc::clone(&known.footprint));
            self.move_reservation(head.key(), &old_footprint, footprint);
            self.park_isolated(head.key(), &verdict, wake_conditions);
            return verdict;
        }
        let old = self.cancel_reservation(head.key());
        let since = old.as_ref().map_or(now, |old| old.since);
        let old_victims = old.map(|old| old.victims).unwrap_or_default();
        let victims = old_victims.into_iter().chain(victims).collect();
        let (usage, reservation_verdict) = (usage.clone(), Arc::clone(&verdict));
        let reservation =
            CapacityReservation { node, usage, footprint, since, victims, verdict: reservation_verdict };
        self.add_reservation(head.key(), reservation);
        self.park_isolated(head.key(), &verdict, wake_conditions);
        verdict
    }

    /// Moves a reservation to another footprint only if the old one is no longer valid. Otherwise two preemptors
    /// could make way for each other forever.
    fn move_reservation(&mut self, key: &ObjectKey, old: &Footprint, new: Arc<Footprint>) {
        if self.topology.still_valid_at(old, &new) {
            return;
        }
        self.shift_footprint(old, -1, &[UsageLayer::Projected]);
        self.topology.shift_usage(&new, 1, UsageLayer::Projected);
        if let Some(reservation) = self.reservations.get_mut(key) {
            reservation.footprint = new;
        }
    }

    /// Wake conditions of a workload with a capacity reservation: changes of what current usage lacks, and releases
    /// where the resource group has other flavors, since it may fit elsewhere before its victims are gone.
    fn wake_conditions(
        &self,
        head: &Head,
        nominated: &NominatedAssignment,
        shortfall: Shortfall,
    ) -> WakeConditions {
        let nothing_lacking = shortfall.is_empty();
        let assignment = &nominated.assignment;
        let on_usage_change = if nothing_lacking {
            assignment.usage.iter().map(|(fr, _)| *fr).collect()
        } else {
            shortfall.quota
        };
        let on_topology_change = if nothing_lacking || shortfall.topology {
            assignment.tas_assignment.flavors()
        } else {
            BTreeSet::new()
        };
        let groups = self.config.cluster_queue(&head.queue).into_iter().flat_map(|queue| &queue.groups);
        let alternatives = groups.filter(|group| group.flavors.len() > 1).flat_map(|group| &group.flavors);
        let on_release = alternatives.flat_map(|flavor| flavor.frs.iter().copied()).collect();
        WakeConditions {
            tree: Some(self.root_of(head)),
            on_usage_change,
            on_release,
            on_topology_change,
            ..WakeConditions::default()
        }
    }

    /// Whether a workload has victims that have not released their quota.
    pub(super) fn has_victims(&self, key: &ObjectKey) -> bool {
        self.reservations.get(key).is_some_and(|reservation| !reservation.victims.is_empty())
    }

    /// Usage of a workload's capacity reservation; empty if it has none.
    pub(super) fn reservation_of(&self, key: &ObjectKey) -> Vec<CapacityUsage> {
        self.reservations.get(key).map(CapacityUsage::from_reservation).into_iter().collect()
    }

    /// Parks a workload in a class of its own.
    fn park_isolated(&mut self, key: &ObjectKey, verdict: &Arc<Verdict>, wake_conditions: WakeConditions) {
        let queue = self.pending.workload(key).map(|workload| Arc::clone(&workload.cluster_queue));
        if let (Some(queue), Some(class)) = (queue, self.pending.isolate(key)) {
            self.pending.park(
                &queue,
                class,
                verdict,
                Parked { never_blocks_queue: false, claim: None, wake_conditions },
            );
        }
    }

    /// Drops a capacity reservation. Projected usage includes its remaining victims again unless they are
    /// deactivated.
    pub(super) fn cancel_reservation(&mut self, key: &ObjectKey) -> Option<CapacityReservation> {
        let reservation = self.reservations.remove(key)?;
        self.add_usage(reservation.node, &negated_usage(&reservation.usage), &[UsageLayer::Projected]);
        self.shift_footprint(&reservation.footprint, -1, &[UsageLayer::Projected]);
        for victim in reservation.victims.keys() {
            let is_victim = self
                .reserving_workloads
                .get(victim)
                .is_some_and(|workload| workload.preempted_by.as_ref() == Some(key));
            if let Some(workload) =
                is_victim.then(|| self.reserving_workloads.set_preempted_by(victim, None)).flatten()
            {
                self.preemption_history.remove(key, victim);
                if workload.charge.deactivated {
                    continue;
                }
                self.add_usage(workload.node, &workload.usage, &[UsageLayer::Projected]);
                self.shift_footprint(&workload.footprint, 1, &[UsageLayer::Projected]);
            }
        }
        self.pending.rejoin_class(key);
        Some(reservation)
    }

    /// Drops the capacity reservations of all workloads pending in a ClusterQueue that admits nothing.
    pub(super) fn cancel_reservations_in(&mut self, queue: &str) {
        let pending_here =
            |key: &&ObjectKey| self.pending.workload(key).is_some_and(|w| *w.cluster_queue == *queue);
        let keys: Vec<ObjectKey> =
            self.reservations.iter().map(|(key, _)| key).filter(pending_here).cloned().collect();
        for key in keys {
            self.cancel_reservation(&key);
        }
    }

    /// Drops expired capacity reservations; their workloads are nominated again.
    pub fn expire_reservations(&mut self, now: Timestamp) {
        if self.next_reservation_expiry().is_none_or(|time| time > now) {
            return;
        }
        let expired =
            |reservation: &CapacityReservation| now.duration_since(reservation.since) >= RESERVATION_TIMEOUT;
        let keys: Vec<ObjectKey> = self
            .reservations
            .iter()
            .filter(|(_, reservation)| expired(reservation))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.cancel_reservation(&key);
        }
        self.reservations.refresh_oldest();
    }

    /// Earliest time at which a reservation may expire.
    pub fn next_reservation_expiry(&self) -> Option<Timestamp> {
        self.reservations.next_expiry()
    }

    /// All capacity reservations: workload, ClusterQueue and amounts.
    pub fn reservations(
        &self,
    ) -> impl Iterator<Item = (&ObjectKey, Arc<str>, BTreeMap<FlavorResource, Amount>)> {
        self.reservations.iter().map(move |(key, reservation)| {
            let queue = self.tree.name(reservation.node).map(|name| Arc::from(name.as_str()));
            (key, queue.unwrap_or_default(), self.tree.to_named(reservation.usage.iter().copied()))
        })
    }

    /// Preemptor, reason and paths of a preempted workload.
    pub fn preemption_of(&self, key: &ObjectKey) -> Option<Preemption> {
        let workload = self.reserving_workloads.get(key)?;
        let preemptor = workload.preempted_by.clone()?;
        let reservation = self.reservations.get(&preemptor)?;
        let reason = *reservation.victims.get(key)?;
        let victim = Victim {
            key: key.clone(),
            uid: Arc::clone(&workload.charge.uid),
            reason,
            preemptor_path: Arc::from(self.tree.path_of(reservation.node)),
            preemptee_path: Arc::from(self.tree.path_of(workload.node)),
        };
        Some(Preemption { preemptor, victim })
    }
}
