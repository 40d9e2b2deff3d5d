//! One cycle: heads, nomination, order, processing.
//!
//! Every head gets exactly one outcome; processing maps heads to outcomes and cannot end early. Decisions are taken in the
//! plan, and quota is given only when it is free in fact as well.

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

/// What a plan lacks.
#[derive(Default)]
pub(super) struct Shortfall {
    /// Quota.
    pub(super) quota: BTreeSet<FlavorResourceId>,
    /// Whether somebody else has the places on nodes.
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

/// What has happened in this cycle so far.
#[derive(Default)]
pub(super) struct CycleState {
    pub(super) now: Timestamp,
    /// Claims in the plan, to be undone at the end.
    pub(super) head_claims: Vec<CapacityUsage>,
    /// Trees whose next cycle starts from something else than this one.
    pub(super) changed_trees: BTreeSet<NodeId>,
    /// Trees with claims of blocked heads.
    pub(super) claiming_queues: BTreeMap<NodeId, BTreeSet<Arc<str>>>,
    /// Trees where more is free in the plan than at the start of this cycle.
    pub(super) freed_trees: BTreeSet<NodeId>,
    /// Those who must go since this cycle.
    pub(super) victims: BTreeSet<ObjectKey>,
    /// Whether second passes keep places on nodes for the rest of this cycle, in whichever trees their queues are.
    pub(super) has_second_pass_claims: bool,
    /// Those that were given places in a second pass, with what they hold then and what of it is new.
    pub(super) topology_moves: Vec<(ObjectKey, Charge, Arc<Footprint>)>,
}

impl Engine {
    /// Judges one head of every ClusterQueue. Those admitted hold their quota from then on.
    pub fn run_cycle(&mut self, now: Timestamp) -> Vec<Decision> {
        self.run_cycle_limited(usize::MAX, now)
    }

    /// The same for so many heads: those of the most urgent trees, each with all of its heads, so that more may be judged.
    /// The others wait for a later cycle as they stand. Second passes are never among them.
    pub fn run_cycle_limited(&mut self, heads: usize, now: Timestamp) -> Vec<Decision> {
        self.cycle_count += 1;
        self.expire_reservations(now);
        if heads > 0 && self.pending.ready().is_empty() {
            self.pending.wake_idle_retries();
        }
        let due = self.nominate_second_passes();
        let entries = self.nominate_heads(heads);
        let entries = entries.into_iter().map(|entry| self.park_if_inadmissible(entry)).collect();
        let mut lineup = EntryIterator::new(entries, &self.settings, &self.tree);
        let mut turn = CycleState { now, ..CycleState::default() };
        let mut decisions = Vec::new();
        for (again, found) in due {
            decisions.extend(found.and_then(|found| self.process_second_pass(&again, found, &mut turn)));
        }
        while let Some(entry) = self.next_entry(&mut lineup, &turn) {
            decisions.extend(self.process_entry(entry, &mut turn));
        }
        for taken in turn.head_claims {
            self.shift_usage(&taken, -1, UsageLayer::Projected);
        }
        self.apply_topology_moves(turn.topology_moves);
        self.cycle_metrics.end_cycle();
        decisions
    }

    fn next_entry(&mut self, lineup: &mut EntryIterator, turn: &CycleState) -> Option<Entry> {
        let holders = turn.victims.iter().filter_map(|key| self.reserving_workloads.get(key));
        let leaving = holders.filter(|holder| holder.preempted_by.is_some()).cloned();
        lineup.next(&mut self.tree, &self.settings, leaving)
    }

    /// Parks the class of a head that does not fit, before anything of this cycle is charged: what is charged later may be
    /// what it waits for. Where nothing was ever kept for it, that is: a head that loses what was kept is judged again.
    fn park_if_inadmissible(&mut self, entry: Entry) -> Entry {
        match entry.nomination {
            Nomination::Inadmissible(short)
                if !self.capacity_reservations.contains_key(&entry.workload.key) =>
            {
                let found = self.park_class(&entry.queue, entry.class, *short);
                Entry { nomination: found, ..entry }
            }
            found => Entry { nomination: found, ..entry },
        }
    }

    fn park_class(
        &mut self,
        queue: &Arc<str>,
        class: crate::queue::ClassId,
        short: Inadmissible,
    ) -> Nomination {
        let Inadmissible { verdict, wake_conditions: waits, claim, never_blocks_queue: aside, cursor } =
            short;
        let verdict = Arc::new(verdict);
        let claim = claim.filter(|_| self.reclaim_policy(queue) != ReclaimPolicy::Any);
        if cursor.is_some() {
            self.pending.keep_active_with(queue, class, &verdict, cursor);
            return Nomination::Parked(verdict, claim);
        }
        let parked = Parked { never_blocks_queue: aside, claim: claim.clone(), wake_conditions: waits };
        self.pending.park(queue, class, &verdict, parked);
        Nomination::Parked(verdict, claim)
    }

    fn process_entry(&mut self, mut entry: Entry, turn: &mut CycleState) -> Option<Decision> {
        let found = std::mem::replace(&mut entry.nomination, Nomination::ClaimOnly(HeadClaim::default()));
        let judged = matches!(found, Nomination::Fits(_) | Nomination::NeedsPreemption(..));
        if let Some(outcome) = judged.then(|| self.park_behind_better_variant(&entry)).flatten() {
            let (key, uid) = (entry.workload.key.clone(), Arc::clone(&entry.workload.uid));
            return Some(Decision { key, uid, outcome });
        }
        let kept = self.capacity_reservations.get(entry.key()).map(|kept| kept.usage.clone());
        let outcome = match found {
            Nomination::ClaimOnly(claim) => {
                self.apply_head_claim(&entry, &claim, turn);
                return None;
            }
            Nomination::Parked(verdict, claim) => {
                if let Some(claim) = claim {
                    self.apply_head_claim(&entry, &claim, turn);
                }
                Outcome::Pending(verdict)
            }
            Nomination::Inadmissible(_) => self.drop_reservation(&entry, turn),
            Nomination::Fits(plan) => self.process_fit(&entry, *plan, turn),
            Nomination::NeedsPreemption(plan, targets) => {
                self.process_preemption(&entry, *plan, targets, false, turn)
            }
        };
        // It gave room up, or went elsewhere.
        if kept.is_some_and(|kept| self.projected_usage_of(entry.key()) != Some(&kept)) {
            turn.freed_trees.insert(self.root_of(&entry));
        }
        let (key, uid) = (entry.workload.key.clone(), Arc::clone(&entry.workload.uid));
        Some(Decision { key, uid, outcome })
    }

    /// What a workload takes in the plan: what it holds, or what is kept for it.
    fn projected_usage_of(&self, key: &ObjectKey) -> Option<&Usage> {
        let holder = self.reserving_workloads.get(key).map(|holder| &holder.usage);
        holder.or_else(|| self.capacity_reservations.get(key).map(|kept| &kept.usage))
    }

    /// What was kept for a workload no longer serves it: it is judged again without.
    fn drop_reservation(&mut self, entry: &Entry, turn: &mut CycleState) -> Outcome {
        let root = self.root_of(entry);
        if turn.changed_trees.contains(&root) {
            // It was judged before that: two who give up for each other in turn would never come to an end.
            self.pending.keep_active(&entry.queue, entry.class, None);
            return skipped("Workload no longer fits after processing another workload");
        }
        self.cancel_reservation(entry.key());
        turn.changed_trees.insert(root);
        skipped("What was kept for the workload no longer serves it")
    }

    pub(super) fn process_fit(
        &mut self,
        entry: &Entry,
        mut plan: NominatedAssignment,
        turn: &mut CycleState,
    ) -> Outcome {
        let mut short = self.projected_shortfall(entry, &plan, &[], turn);
        if short.only_topology() && self.settings.gates.recompute_topology {
            if !self.find_other_placements(entry, &mut plan, &[]) {
                return self.retry_with_same_flavors(entry, plan, turn);
            }
            short = Shortfall::default();
        }
        if short.is_empty() {
            match self.migration_target(entry) {
                Some(Ok(sibling)) => return self.preempt(entry, &plan, &[sibling], turn),
                Some(Err(outcome)) => return outcome,
                None => {}
            }
            let mut lacking = self.shortfall(entry, &plan, &[], UsageLayer::Current);
            // What others of this cycle took is free in the plan, but there may be places that are free in fact.
            if lacking.only_topology() && self.find_other_placements(entry, &mut plan, &[]) {
                lacking = self.shortfall(entry, &plan, &[], UsageLayer::Current);
            }
            return self.admit_or_wait(entry, &plan, lacking, turn);
        }
        self.skip_or_park(entry, plan, short, turn)
    }

    /// Another head of this cycle was faster; or, if none was, blocked heads keep the quota.
    pub(super) fn skip_or_park(
        &mut self,
        entry: &Entry,
        plan: NominatedAssignment,
        short: Shortfall,
        turn: &mut CycleState,
    ) -> Outcome {
        let root = self.root_of(entry);
        let passing = short.topology && turn.has_second_pass_claims;
        if turn.changed_trees.contains(&root)
            || passing
            || self.capacity_reservations.contains_key(entry.key())
        {
            let cursor = plan.assignment.cursor.map(|cursor| FlavorCursor { lost_race: true, ..cursor });
            self.pending.keep_active(&entry.queue, entry.class, cursor);
            return skipped("Workload no longer fits after processing another workload");
        }
        let claims = turn.claiming_queues.get(&root).cloned().unwrap_or_default();
        let names: Vec<&str> = claims.iter().map(|name| &**name).collect();
        let text = format!("the quota is kept for the head of ClusterQueue {}", names.join(", "));
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::WaitingForQuota, &text));
        let waits = WakeConditions {
            tree: Some(root),
            on_usage_change: short.quota,
            on_claim_end: claims,
            ..WakeConditions::default()
        };
        let parked = Parked { never_blocks_queue: false, claim: None, wake_conditions: waits };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        Outcome::Pending(verdict)
    }

    pub(super) fn process_inadmissible(
        &mut self,
        entry: &Entry,
        short: Inadmissible,
        turn: &mut CycleState,
    ) -> Outcome {
        if self.capacity_reservations.contains_key(entry.key()) {
            return self.drop_reservation(entry, turn);
        }
        if turn.has_second_pass_claims && !short.wake_conditions.on_topology_change.is_empty() {
            // The places are kept for this cycle alone: a parked head would not be woken when they are free again.
            self.pending.keep_active(&entry.queue, entry.class, None);
            return skipped("The places are kept for a workload that holds its quota and waits for them");
        }
        match self.park_class(&entry.queue, entry.class, short) {
            Nomination::Parked(verdict, claim) => {
                if let Some(claim) = claim {
                    self.apply_head_claim(entry, &claim, turn);
                }
                Outcome::Pending(verdict)
            }
            _ => skipped(""),
        }
    }

    /// A closed gate keeps the workload from preempting; it waits for the gate, or for quota without.
    pub(super) fn park_gated(&mut self, entry: &Entry, plan: NominatedAssignment) -> Outcome {
        let text = "Workload requires preemption, but it's gated";
        let verdict = Arc::new(Verdict::without_blockers(PendingReason::AdmissionGated, text));
        let parked = Parked {
            never_blocks_queue: false,
            claim: None,
            wake_conditions: plan.assignment.wake_conditions,
        };
        self.pending.park(&entry.queue, entry.class, &verdict, parked);
        Outcome::PreemptionGated(verdict)
    }

    /// What of a plan there is no room for. Claims of blocked heads do not count against one for whom room is kept: it came
    /// first, and would try again for ever.
    pub(super) fn projected_shortfall(
        &mut self,
        entry: &Entry,
        plan: &NominatedAssignment,
        targets: &[Target],
        turn: &CycleState,
    ) -> Shortfall {
        let claims: &[CapacityUsage] =
            if self.capacity_reservations.contains_key(entry.key()) { &turn.head_claims } else { &[] };
        self.with_usage_removed(claims, UsageLayer::Projected, |engine| {
            engine.shortfall(entry, plan, targets, UsageLayer::Projected)
        })
    }

    /// What of a plan could not be had, with targets gone and without what the workload has itself already.
    pub(super) fn shortfall(
        &mut self,
        entry: &Entry,
        plan: &NominatedAssignment,
        targets: &[Target],
        layer: UsageLayer,
    ) -> Shortfall {
        let (node, usage) = (entry.node, &plan.assignment.usage);
        let mut gone = match layer {
            UsageLayer::Projected => self.own_projected_usage(&entry.workload),
            UsageLayer::Current => {
                self.replaced_slice(&entry.workload).map(CapacityUsage::from_workload).into_iter().collect()
            }
        };
        gone.extend(CapacityUsage::from_targets(targets));
        self.with_usage_removed(&gone, layer, |engine| {
            let free = |pair: FlavorResourceId| engine.tree.available(node, pair, layer).max(0);
            let pairs =
                usage.iter().filter(|(pair, need)| *need > free(*pair)).map(|(pair, _)| *pair).collect();
            let stand = plan.assignment.tas_assignment.footprint(&mut engine.topology);
            Shortfall { quota: pairs, topology: !engine.topology.footprint_fits(&stand, layer) }
        })
    }

    fn replaced_slice(&self, workload: &Workload) -> Option<&super::reserving_workloads::ReservingWorkload> {
        workload.replaces.as_ref().and_then(|old| self.reserving_workloads.get(old)).map(|holder| &**holder)
    }

    /// What stands in the plan for the workload itself: room kept for it, and the slice that it takes over from.
    pub(super) fn own_projected_usage(&self, workload: &Workload) -> Vec<CapacityUsage> {
        let old = self.replaced_slice(workload).filter(|old| !old.is_terminating());
        self.reservation_of(&workload.key).into_iter().chain(old.map(CapacityUsage::from_workload)).collect()
    }

    /// Charges an assignment.
    pub(super) fn admit(&mut self, workload: &Workload, plan: &NominatedAssignment) -> Outcome {
        let queue = self.queues.get(&workload.cluster_queue);
        let assignment =
            queue.map(|queue| plan.assignment.to_assignment(queue, &workload.cluster_queue, &plan.pod_sets));
        let Some(assignment) = assignment else {
            return skipped("The ClusterQueue is gone");
        };
        // Sums beyond what an amount can say count as unlimited.
        let held = |(pair, amount): &(FlavorResourceId, i128)| {
            (*pair, Amount::saturating_from_i128(*amount).to_i128())
        };
        let usage: Usage = plan.assignment.usage.iter().map(held).collect();
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
            topology: plan.assignment.tas_assignment.occupancies(),
        };
        if let Some(old) = &workload.replaces {
            self.release(&old.clone());
        }
        self.add_entry_penalty(workload, &charge);
        self.charge_usage(&workload.key, charge, usage);
        Outcome::Admitted(assignment)
    }

    /// Keeps what a head that waits for evictions could claim from the others of this cycle; of a queue in debt, nothing.
    fn apply_head_claim(&mut self, entry: &Entry, claim: &HeadClaim, turn: &mut CycleState) {
        let (node, root) = (entry.node, self.root_of(entry));
        let amount = |(pair, need): &(FlavorResourceId, i128)| {
            let own =
                self.tree.subtree_quota(node, *pair) - self.tree.used(node, *pair, UsageLayer::Projected);
            let amount = match (claim.borrowing_level, self.tree.borrowing_limit(node, *pair)) {
                (0, _) => (*need).min(own),
                (_, None) => *need,
                (_, Some(limit)) => (*need).min(own + limit),
            };
            (*pair, amount.max(0))
        };
        let usage: Usage = claim.usage.iter().map(amount).collect();
        let taken = CapacityUsage { node, usage, footprint: Arc::clone(&claim.footprint) };
        self.shift_usage(&taken, 1, UsageLayer::Projected);
        turn.head_claims.push(taken);
        if self.strategy(&entry.queue) == QueueingStrategy::StrictFIFO {
            turn.claiming_queues.entry(root).or_default().insert(Arc::clone(&entry.queue));
        } else {
            turn.changed_trees.insert(root);
        }
    }

    pub(super) fn root_of(&self, entry: &Entry) -> NodeId {
        self.tree.root(entry.node)
    }

    /// Root of the tree that a queue is in.
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
