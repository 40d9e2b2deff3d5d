//! The scheduling cycle: nominate the heads, order them, process each.
//!
//! Every head gets exactly one outcome, and processing cannot stop early. Heads are evaluated against projected
//! usage; quota is granted only if current usage has room too.

use super::config::Charge;
use super::decision::{Decision, Outcome};
use super::engine::Engine;
use super::entry_iterator::EntryIterator;
use super::head_state::HeadState;
use super::nominate::{Entry, Evaluation, Head, Inadmissible, NominatedAssignment, Nomination, ParkedHead};
use super::topology::CapacityUsage;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::queue::{HeadClaim, Parked, Verdict, Workload};
use crate::quota::{FlavorResourceId, NodeId, Usage, UsageLayer};
use crate::resources::Amount;
use crate::topology::Footprint;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// State of the cycle so far.
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
    /// Workloads whose second pass found a topology assignment.
    pub(super) topology_moves: Vec<TopologyMove>,
}

impl CycleState {
    /// Returns the state of a cycle that starts.
    pub(super) const fn new(now: Timestamp) -> Self {
        Self {
            now,
            head_claims: Vec::new(),
            changed_trees: BTreeSet::new(),
            claiming_queues: BTreeMap::new(),
            freed_trees: BTreeSet::new(),
            victims: BTreeSet::new(),
            has_second_pass_claims: false,
            topology_moves: Vec::new(),
        }
    }
}

/// A topology assignment of a second pass, charged at the end of the cycle.
pub(super) struct TopologyMove {
    pub(super) key: ObjectKey,
    /// The charge with the new assignment.
    pub(super) charge: Charge,
    /// Leaf capacity that it takes in addition.
    pub(super) added: Arc<Footprint>,
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
        let mut cycle = CycleState::new(now);
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

    pub(super) fn next_entry(
        &mut self,
        entry_iterator: &mut EntryIterator,
        cycle: &CycleState,
    ) -> Option<Entry> {
        let workloads = cycle.victims.iter().filter_map(|key| self.reserving_workloads.get(key));
        let victims = workloads.filter(|workload| workload.preempted_by.is_some()).cloned();
        entry_iterator.next(&mut self.tree, &self.settings, victims)
    }

    /// Parks the class of an inadmissible head before this cycle charges anything: a charge made later may be a
    /// change that the class must be woken by. Heads with a capacity reservation are skipped; they are nominated
    /// again without it.
    fn park_if_inadmissible(&mut self, entry: Entry) -> Entry {
        let nomination = match entry.nomination {
            Nomination::Evaluated(Evaluation::Inadmissible(inadmissible))
                if !self.reservations.contains(entry.head.key()) =>
            {
                Nomination::Parked(self.park_class(&entry.head, *inadmissible))
            }
            nomination => nomination,
        };
        Entry { nomination, ..entry }
    }

    /// Parks the class of an inadmissible head; one that has flavors left to try stays active.
    pub(super) fn park_class(&mut self, head: &Head, inadmissible: Inadmissible) -> ParkedHead {
        let Inadmissible { verdict, wake_conditions, claim, never_blocks_queue, cursor } = inadmissible;
        let verdict = Arc::new(verdict);
        let claim = self.claim_allowed(head, claim);
        if cursor.is_some() {
            self.pending.keep_active_with(&head.queue, head.class, &verdict, cursor);
        } else {
            let parked = Parked { never_blocks_queue, claim: claim.clone(), wake_conditions };
            self.pending.park(&head.queue, head.class, &verdict, parked);
        }
        ParkedHead { verdict, claim }
    }

    /// A ClusterQueue that may reclaim from any workload claims nothing.
    pub(super) fn claim_allowed(&self, head: &Head, claim: Option<HeadClaim>) -> Option<HeadClaim> {
        claim.filter(|_| self.claims_capacity(&head.queue))
    }

    fn process_entry(&mut self, entry: Entry, cycle: &mut CycleState) -> Option<Decision> {
        let Entry { head, nomination, .. } = entry;
        let outcome = match nomination {
            Nomination::ClaimOnly(claim) => {
                self.apply_head_claim(&head, &claim, cycle);
                return None;
            }
            Nomination::Parked(parked) => self.claim_for_parked(&head, parked, cycle),
            Nomination::Evaluated(evaluation) => self.process_evaluated(&head, evaluation, cycle),
        };
        Some(Decision { key: head.workload.key.clone(), uid: Arc::clone(&head.workload.uid), outcome })
    }

    fn process_evaluated(&mut self, head: &Head, evaluation: Evaluation, cycle: &mut CycleState) -> Outcome {
        if !matches!(evaluation, Evaluation::Inadmissible(_))
            && let Some(outcome) = self.park_behind_better_variant(head)
        {
            return outcome;
        }
        let reserved = self.reservations.get(head.key()).map(|reservation| reservation.usage.clone());
        let outcome = self.process_head(head, HeadState::from(evaluation), cycle);
        // The reservation was dropped or moved to other flavors.
        if reserved.is_some_and(|reserved| self.projected_usage_of(head.key()) != Some(&reserved)) {
            cycle.freed_trees.insert(self.root_of(head));
        }
        outcome
    }

    /// Applies the head claim of a parked head, which stays pending.
    pub(super) fn claim_for_parked(
        &mut self,
        head: &Head,
        parked: ParkedHead,
        cycle: &mut CycleState,
    ) -> Outcome {
        if let Some(claim) = parked.claim {
            self.apply_head_claim(head, &claim, cycle);
        }
        Outcome::Pending(parked.verdict)
    }

    /// Usage that a workload adds to projected usage: its charge, or its capacity reservation.
    fn projected_usage_of(&self, key: &ObjectKey) -> Option<&Usage> {
        let charged = self.reserving_workloads.get(key).map(|workload| &workload.usage);
        charged.or_else(|| self.reservations.get(key).map(|reservation| &reservation.usage))
    }

    /// Charges an assignment.
    pub(super) fn admit(&mut self, workload: &Workload, nominated: &NominatedAssignment) -> Outcome {
        let queue = self.config.cluster_queue(&workload.cluster_queue);
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
        self.add_entry_penalty(&workload.key, &charge);
        self.charge_usage(&workload.key, charge, usage);
        Outcome::Admitted(assignment)
    }

    /// Withholds the capacity that a head waiting for evictions may claim in this cycle; nothing if its ClusterQueue
    /// is in debt.
    pub(super) fn apply_head_claim(&mut self, head: &Head, claim: &HeadClaim, cycle: &mut CycleState) {
        let (node, root) = (head.node, self.root_of(head));
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
        // The end of the claim of a blocked head wakes what it blocked. Any other claim ends with the cycle, without a
        // trace: what it blocks must stay active.
        let blocked_head = self.pending.blocked_head(&head.queue).map(|blocked| blocked.class);
        if blocked_head == Some(head.class) {
            cycle.claiming_queues.entry(root).or_default().insert(Arc::clone(&head.queue));
        } else {
            cycle.changed_trees.insert(root);
        }
    }

    pub(super) fn root_of(&self, head: &Head) -> NodeId {
        self.tree.root(head.node)
    }

    /// Root of the cohort tree of a ClusterQueue.
    pub(super) fn root(&self, queue: &str) -> Option<NodeId> {
        self.config.cluster_queue(queue).map(|queue| self.tree.root(queue.node))
    }

    /// Whether a head of a ClusterQueue keeps capacity that it cannot have yet from heads after it.
    pub(super) fn claims_capacity(&self, queue: &str) -> bool {
        self.config.cluster_queue(queue).is_none_or(|queue| queue.policy.withholds_capacity())
    }
}

pub(super) fn skipped(text: &str) -> Outcome {
    Outcome::Skipped(Arc::new(Verdict::without_blockers(PendingReason::WaitingForQuota, text)))
}
