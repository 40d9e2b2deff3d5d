//! The scheduling cycle: nominate the heads, order them, process each.
//!
//! Every head gets exactly one outcome, and processing cannot stop early. Heads are evaluated against projected
//! usage; quota is granted only if current usage has room too.

use super::config::Charge;
use super::decision::{Decision, Outcome};
use super::engine::Engine;
use super::entry_iterator::EntryIterator;
use super::nominate::{Entry, Inadmissible, NominatedAssignment, Nomination};
use super::preemption::Target;
use super::topology::CapacityUsage;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::{QueueingStrategy, ReclaimPolicy};
use crate::queue::{FlavorCursor, HeadClaim, Parked, Verdict, WakeConditions, Workload};
use crate::quota::{FlavorResourceId, NodeId, Usage, UsageLayer};
use crate::resources::Amount;
use crate::topology::Footprint;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What an assignment needs but cannot get.
#[derive(Default)]
pub(super) struct Shortfall {
    /// Flavor-resources with too little available quota.
    pub(super) quota: BTreeSet<FlavorResourceId>,
    /// Whether the leaf capacity of its topology assignment is taken.
    pub(super) topology: bool,
}

impl Shortfall {
    pub(super) fn is_empty(&self) -> bool {
        self.quota.is_empty() && !self.topology
    }

    pub(super) fn only_topology(&self) -> bool {
        self.quota.is_empty() && self.topology
    }
}

/// State of the cycle so far.
#[derive(Default)]
pub(super) struct CycleState {
    pub(super) now: Timestamp,
    /// Capacity added to projected usage for the rest of the cycle; removed at its end.
    pub(super) head_claims: Vec<CapacityUsage>,
    /// Cohort trees whose projected usage changed in this cycle.
    pub(super) changed_trees: BTreeSet<NodeId>,
    /// ClusterQueues whose blocked heads hold head claims, by root of their tree.
    pub(super) claiming_queues: BTreeMap<NodeId, BTreeSet<Arc<str>>>,
    /// Trees in which this cycle freed projected capacity; targets computed earlier may be unnecessary.
    pub(super) freed_trees: BTreeSet<NodeId>,
    /// Victims of this cycle.
    pub(super) victims: BTreeSet<ObjectKey>,
    /// Whether second passes withhold leaf capacity for the rest of this cycle, whatever trees their ClusterQueues
    /// are in.
    pub(super) has_second_pass_claims: bool,
    /// Workloads whose second pass found a topology assignment: the new charge, and the added part of its footprint.
    pub(super) topology_moves: Vec<(ObjectKey, Charge, Arc<Footprint>)>,
}

impl Engine {
    /// Nominates one head of every ClusterQueue. Admitted workloads are charged from then on.
    pub fn run_cycle(&mut self, now: Timestamp) -> Vec<Decision> {
        self.run_cycle_limited(usize::MAX, now)
    }

    /// Like `run_cycle`, for about `heads` heads: those of the most urgent trees, each tree with all of its heads, so
    /// the number may be exceeded. The other heads stay unchanged for a later cycle. Second passes are not limited.
    pub fn run_cycle_limited(&mut self, heads: usize, now: Timestamp) -> Vec<Decision> {
        self.cycle_count += 1;
        self.expire_reservations(now);
        if heads > 0 && self.pending.ready().is_empty() {
            self.pending.wake_idle_retries();
        }
        let second_passes = self.nominate_second_passes();
        let entries = self.nominate_heads(heads);
        let entries = entries.into_iter().map(|entry| self.park_if_inadmissible(entry)).collect();
        let mut entry_iterator = EntryIterator::new(entries, &self.settings, &self.tree);
        let mut cycle = CycleState { now, ..CycleState::default() };
        let mut decisions = Vec::new();
        for (request, nomination) in second_passes {
            decisions.extend(
                nomination.and_then(|nomination| self.process_second_pass(&request, nomination, &mut cycle)),
            );
        }
        while let Some(entry) = self.next_entry(&mut entry_iterator, &cycle) {
            decisions.extend(self.process_entry(entry, &mut cycle));
        }
        for claim in cycle.head_claims {
            self.shift_usage(&claim, -1, UsageLayer::Projected);
        }
        self.apply_topology_moves(cycle.topology_moves);
        self.cycle_metrics.end_cycle();
        decisions
    }

    fn next_entry(&mut self, entry_iterator: &mut EntryIterator, cycle: &CycleState) -> Option<Entry> {
        let workloads = cycle.victims.iter().filter_map(|key| self.reserving_workloads.get(key));
        let victims = workloads.filter(|workload| workload.preempted_by.is_some()).cloned();
        entry_iterator.next(&mut self.tree, &self.settings, victims)
    }

    /// Parks the class of an inadmissible head before this cycle charges anything: a charge made later may be a
    /// change that the class must be woken by. Heads with a capacity reservation are skipped; they are nominated
    /// again without it.
    fn park_if_inadmissible(&mut self, entry: Entry) -> Entry {
        match entry.nomination {
            Nomination::Inadmissible(inadmissible)
                if !self.capacity_reservations.contains_key(&entry.workload.key) =>
            {
                let nomination = self.park_class(&entry.queue, entry.class, *inadmissible);
                Entry { nomination, ..entry }
            }
            nomination => Entry { nomination, ..entry },
        }
    }

    fn park_class(
        &mut self,
        queue: &Arc<str>,
        class: crate::queue::ClassId,
        inadmissible: Inadmissible,
    ) -> Nomination {
        let Inadmissible { verdict, wake_conditions, claim, never_blocks_queue, cursor } = inadmissible;
        let verdict = Arc::new(verdict);
        let claim = claim.filter(|_| self.reclaim_policy(queue) != ReclaimPolicy::Any);
        if cursor.is_some() {
            self.pending.keep_active_with(queue, class, &verdict, cursor);
            return Nomination::Parked(verdict, claim);
        }
        let parked = Parked { never_blocks_queue, claim: claim.clone(), wake_conditions };
        self.pending.park(queue, class, &verdict, parked);
        Nomination::Parked(verdict, claim)
    }

    fn process_entry(&mut self, mut entry: Entry, cycle: &mut CycleState) -> Option<Decision> {
        let nomination =
            std::mem::replace(&mut entry.nomination, Nomination::ClaimOnly(HeadClaim::default()));
        let evaluated = matches!(nomination, Nomination::Fits(_) | Nomination::NeedsPreemption(..));
        if let Some(outcome) = evaluated.then(|| self.park_behind_better_variant(&entry)).flatten() {
            let (key, uid) = (entry.workload.key.clone(), Arc::clone(&entry.workload.uid));
            return Some(Decision { key, uid, outcome });
        }
        let reservation =
            self.capacity_reservations.get(entry.key()).map(|reservation| reservation.usage.clone());
        let outcome = match nomination {
            Nomination::ClaimOnly(claim) => {
                self.apply_head_claim(&entry, &claim, cycle);
                return None;
            }
            Nomination::Parked(verdict, claim) => {
                if let Some(claim) = claim {
                    self.apply_head_claim(&entry, &claim, cycle);
                }
                Outcome::Pending(verdict)
            }
            Nomination::Inadmissible(_) => self.drop_reservation(&entry, cycle),
            Nomination::Fits(nominated) => self.process_fit(&entry, *nominated, cycle),
            Nomination::NeedsPreemption(nominated, targets) => {
                self.process_preemption(&entry, *nominated, targets, false, cycle)
            }
        };
        // The reservation was dropped or moved to other flavors.
        if reservation.is_some_and(|reservation| self.projected_usage_of(entry.key()) != Some(&reservation)) {
            cycle.freed_trees.insert(self.root_of(&entry));
        }
        let (key, uid) = (entry.workload.key.clone(), Arc::clone(&entry.workload.uid));
        Some(Decision { key, uid, outcome })
    }

    /// Usage that a workload adds to projected usage: its charge, or its capacity reservation.
    fn projected_usage_of(&self, key: &ObjectKey) -> Option<&Usage> {
        let charged = self.reserving_workloads.get(key).map(|workload| &workload.usage);
        charged.or_else(|| self.capacity_reservations.get(key).map(|reservation| &reservation.usage))
    }

    /// Drops a capacity reservation that no longer fits; the workload is nominated again without it.
    fn drop_reservation(&mut self, entry: &Entry, cycle: &mut CycleState) -> Outcome {
        let root = self.root_of(entry);
        if cycle.changed_trees.contains(&root) {
            // This head was evaluated before that change. Dropping its reservation now could make two preemptors
            // yield to each other forever.
            self.pending.keep_active(&entry.queue, entry.class, None);
            return skipped("Workload no longer fits after processing another workload");
        }
        self.cancel_reservation(entry.key());
        cycle.changed_trees.insert(root);
        skipped("Capacity reservation no longer fits; it was released")
    }

    pub(super) fn process_fit(
        &mut self,
        entry: &Entry,
        mut nominated: NominatedAssignment,
        cycle: &mut CycleState,
    ) -> Outcome {
        let mut shortfall = self.projected_shortfall(entry, &nominated, &[], cycle);
        if shortfall.only_topology() && self.settings.gates.recompute_topology {
            if !self.find_other_placements(entry, &mut nominated, &[]) {
                return self.retry_with_same_flavors(entry, nominated, cycle);
            }
            shortfall = Shortfall::default();
        }
        if shortfall.is_empty() {
            match self.migration_target(entry) {
                Some(Ok(sibling)) => return self.preempt(entry, &nominated, &[sibling], cycle),
                Some(Err(outcome)) => return outcome,
                None => {}
            }
            let mut current_shortfall = self.shortfall(entry, &nominated, &[], UsageLayer::Current);
            // Admissions of this cycle may leave projected capacity on one set of nodes and current capacity on
            // another.
            if current_shortfall.only_topology() && self.find_other_placements(entry, &mut nominated, &[]) {
                current_shortfall = self.shortfall(entry, &nominated, &[], UsageLayer::Current);
            }
            return self.admit_or_wait(entry, &nominated, current_shortfall, cycle);
        }
        self.skip_or_park(entry, nominated, shortfall, cycle)
    }

    /// Skips a head that lost to another head of this cycle; parks it if only head claims block it.
    pub(super) fn skip_or_park(
        &mut self,
        entry: &Entry,
        nominated: NominatedAssignment,
        shortfall: Shortfall,
        cycle: &mut CycleState,
    ) -> Outcome {
        let root = self.root_of(entry);
        let claimed_by_second_pass = shortfall.topology && cycle.has_second_pass_claims;
        if cycle.changed_trees.contains(&root)
            || claimed_by_second_pass
            || self.capacity_reservations.contains_key(entry.key())
        {
            let cursor = nominated.assignment.cursor.map(|cursor| FlavorCursor { lost_race: true, ..cursor });
            self.pending.keep_active(&entry.queue, entry.class, cursor);
            return skipped("Workload no longer fits after processing another workload");
        }
        let claiming_queues = cycle.claiming_queues.get(&root).cloned().unwrap_or_default();
        let names: Vec<&str> = claiming_queues.iter().map(|name| &**name).collect();
        let text =
            format!("quota is reserved for the head of ClusterQueue {} (StrictFIFO)", names.join(", "));
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::WaitingForQuota, &text));
        let wake_conditions = WakeConditions {
            tree: Some(root),
            on_usage_change: shortfall.quota,
            on_claim_end: claiming_queues,
            ..WakeConditions::default()
        };
        let parked = Parked { never_blocks_queue: false, claim: None, wake_conditions };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        Outcome::Pending(verdict)
    }

    pub(super) fn process_inadmissible(
        &mut self,
        entry: &Entry,
        inadmissible: Inadmissible,
        cycle: &mut CycleState,
    ) -> Outcome {
        if self.capacity_reservations.contains_key(entry.key()) {
            return self.drop_reservation(entry, cycle);
        }
        if cycle.has_second_pass_claims && !inadmissible.wake_conditions.on_topology_change.is_empty() {
            // The claim of a second pass ends with this cycle, and its end wakes no parked class.
            self.pending.keep_active(&entry.queue, entry.class, None);
            return skipped("The places are kept for a workload that holds its quota and waits for them");
        }
        match self.park_class(&entry.queue, entry.class, inadmissible) {
            Nomination::Parked(verdict, claim) => {
                if let Some(claim) = claim {
                    self.apply_head_claim(entry, &claim, cycle);
                }
                Outcome::Pending(verdict)
            }
            _ => skipped(""),
        }
    }

    /// Parks a workload whose preemption gate is closed, until the gate opens or it fits without preemption.
    pub(super) fn park_gated(&mut self, entry: &Entry, nominated: NominatedAssignment) -> Outcome {
        let text = "Workload requires preemption, but it's gated";
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::AdmissionGated, text));
        let parked = Parked {
            never_blocks_queue: false,
            claim: None,
            wake_conditions: nominated.assignment.wake_conditions,
        };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        Outcome::PreemptionGated(verdict)
    }

    /// Returns what an assignment lacks in projected usage. Head claims do not count against a workload with a
    /// capacity reservation: the reservation came first, and the workload would otherwise retry forever.
    pub(super) fn projected_shortfall(
        &mut self,
        entry: &Entry,
        nominated: &NominatedAssignment,
        targets: &[Target],
        cycle: &CycleState,
    ) -> Shortfall {
        let claims: &[CapacityUsage] =
            if self.capacity_reservations.contains_key(entry.key()) { &cycle.head_claims } else { &[] };
        self.with_usage_removed(claims, UsageLayer::Projected, |engine| {
            engine.shortfall(entry, nominated, targets, UsageLayer::Projected)
        })
    }

    /// Returns what an assignment lacks in a layer once the targets are gone and without the workload's own usage.
    pub(super) fn shortfall(
        &mut self,
        entry: &Entry,
        nominated: &NominatedAssignment,
        targets: &[Target],
        layer: UsageLayer,
    ) -> Shortfall {
        let (node, usage) = (entry.node, &nominated.assignment.usage);
        let mut removed = match layer {
            UsageLayer::Projected => self.own_projected_usage(&entry.workload),
            UsageLayer::Current => {
                self.replaced_slice(&entry.workload).map(CapacityUsage::from_workload).into_iter().collect()
            }
        };
        removed.extend(CapacityUsage::from_targets(targets));
        self.with_usage_removed(&removed, layer, |engine| {
            let free = |fr: FlavorResourceId| engine.tree.available(node, fr, layer).max(0);
            let frs =
                usage.iter().filter(|(fr, requested)| *requested > free(*fr)).map(|(fr, _)| *fr).collect();
            let footprint = nominated.assignment.tas_assignment.footprint(&mut engine.topology);
            Shortfall { quota: frs, topology: !engine.topology.footprint_fits(&footprint, layer) }
        })
    }

    fn replaced_slice(&self, workload: &Workload) -> Option<&super::reserving_workloads::ReservingWorkload> {
        workload
            .replaces
            .as_ref()
            .and_then(|old| self.reserving_workloads.get(old))
            .map(|reserving| &**reserving)
    }

    /// Projected usage of the workload itself: its capacity reservation and the slice that it replaces.
    pub(super) fn own_projected_usage(&self, workload: &Workload) -> Vec<CapacityUsage> {
        let old = self.replaced_slice(workload).filter(|old| !old.is_terminating());
        self.reservation_of(&workload.key).into_iter().chain(old.map(CapacityUsage::from_workload)).collect()
    }

    /// Charges an assignment.
    pub(super) fn admit(&mut self, workload: &Workload, nominated: &NominatedAssignment) -> Outcome {
        let queue = self.queues.get(&workload.cluster_queue);
        let assignment = queue.map(|queue| {
            nominated.assignment.to_assignment(queue, &workload.cluster_queue, &nominated.pod_sets)
        });
        let Some(assignment) = assignment else {
            return skipped("The ClusterQueue is gone");
        };
        // Sums beyond the range of `Amount` count as unlimited.
        let saturated =
            |(fr, amount): &(FlavorResourceId, i128)| (*fr, Amount::saturating_from_i128(*amount).to_i128());
        let usage: Usage = nominated.assignment.usage.iter().map(saturated).collect();
        let charge = Charge {
            cluster_queue: Arc::clone(&workload.cluster_queue),
            usage: self.tree.to_named(usage.iter().copied()),
            uid: Arc::clone(&workload.uid),
            local_queue: Arc::clone(&workload.local_queue),
            priority: workload.priority,
            reserved_at: None,
            evicted: false,
            deactivated: false,
            queued_since: workload.queued_since,
            variant: workload.variant.clone(),
            topology: nominated.assignment.tas_assignment.occupancies(),
        };
        if let Some(old) = &workload.replaces {
            self.release(&old.clone());
        }
        self.add_entry_penalty(workload, &charge);
        self.charge_usage(&workload.key, charge, usage);
        Outcome::Admitted(assignment)
    }

    /// Withholds the capacity that a head waiting for evictions may claim in this cycle; nothing if its ClusterQueue
    /// is in debt.
    fn apply_head_claim(&mut self, entry: &Entry, claim: &HeadClaim, cycle: &mut CycleState) {
        let (node, root) = (entry.node, self.root_of(entry));
        let amount = |(fr, requested): &(FlavorResourceId, i128)| {
            let headroom =
                self.tree.subtree_quota(node, *fr) - self.tree.used(node, *fr, UsageLayer::Projected);
            let amount = match (claim.borrowing_level, self.tree.borrowing_limit(node, *fr)) {
                (0, _) => (*requested).min(headroom),
                (_, None) => *requested,
                (_, Some(limit)) => (*requested).min(headroom + limit),
            };
            (*fr, amount.max(0))
        };
        let usage: Usage = claim.usage.iter().map(amount).collect();
        let claimed = CapacityUsage { node, usage, footprint: Arc::clone(&claim.footprint) };
        self.shift_usage(&claimed, 1, UsageLayer::Projected);
        cycle.head_claims.push(claimed);
        if self.strategy(&entry.queue) == QueueingStrategy::StrictFIFO {
            cycle.claiming_queues.entry(root).or_default().insert(Arc::clone(&entry.queue));
        } else {
            cycle.changed_trees.insert(root);
        }
    }

    pub(super) fn root_of(&self, entry: &Entry) -> NodeId {
        self.tree.root(entry.node)
    }

    /// Root of the cohort tree of a ClusterQueue.
    pub(super) fn root(&self, queue: &str) -> Option<NodeId> {
        self.queues.get(queue).map(|queue| self.tree.root(queue.node))
    }

    fn strategy(&self, queue: &str) -> QueueingStrategy {
        self.queues.get(queue).map(|queue| queue.config.strategy).unwrap_or_default()
    }

    pub(super) fn reclaim_policy(&self, queue: &str) -> ReclaimPolicy {
        self.queues
            .get(queue)
            .and_then(|queue| queue.config.preemption.reclaim_within_cohort)
            .unwrap_or_default()
    }
}

pub(super) fn skipped(text: &str) -> Outcome {
    Outcome::Skipped(Arc::new(Verdict::without_blockers(PendingReason::WaitingForQuota, text)))
}
