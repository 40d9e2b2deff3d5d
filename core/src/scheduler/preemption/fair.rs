//! Preemption with fair sharing: evicts from the ClusterQueue with the largest dominant resource share (DRS) while
//! that makes shares fairer.
//!
//! Invariant: simulated evictions of a failed search are undone.
//! Neighbours: `candidates` lists and sorts, `quota::dominant_share` computes shares, `mod.rs` tests the fit.

use super::candidates::sort_by_importance;
use super::{Attempt, Preemptor, SchedulingContext, Target};
use crate::quota::{DominantResourceShare, NodeId, NodeRef};
use crate::scheduler::config::FairStrategy;
use crate::scheduler::decision::PreemptionReason;
use crate::scheduler::reserving_workloads::ReservingWorkload;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A candidate with its rank among all candidates; past usage may reorder them without changing the rank.
struct RankedCandidate {
    rank: usize,
    workload: Arc<ReservingWorkload>,
}

/// What a search has found so far.
#[derive(Default)]
struct TargetSearch {
    targets: Vec<Target>,
    /// Candidates that the first strategy skipped, for the second.
    retry_candidates: Vec<RankedCandidate>,
}

/// A child of a cohort that still takes part in the tournament.
struct SubtreeCandidates {
    node: NodeId,
    is_queue: bool,
    /// DRS of the node and rank of its first candidate; `None` after a candidate below it was removed.
    cached_share: Option<(DominantResourceShare, Option<usize>)>,
}

/// Tournament over the cohort tree for the next ClusterQueue to evict from.
struct TargetTournament {
    preemptor_queue: NodeId,
    root: NodeId,
    /// The preemptor's ClusterQueue and all its ancestors.
    preemptor_ancestors: BTreeSet<NodeId>,
    candidates: BTreeMap<NodeId, VecDeque<RankedCandidate>>,
    /// Remaining children of the cohorts visited so far.
    subtrees: BTreeMap<NodeId, Vec<SubtreeCandidates>>,
    /// ClusterQueues that lost a candidate since shares were last computed.
    stale_queues: Vec<NodeId>,
    /// Whether no candidates are left below the root.
    is_over: bool,
}

impl SchedulingContext<'_> {
    pub(super) fn fair_sharing_targets(&mut self, preemptor: &Preemptor) -> Vec<Target> {
        let mut candidates = self.own_candidates(preemptor);
        candidates.extend(self.borrowing_candidates(preemptor));
        if candidates.is_empty() {
            return Vec::new();
        }
        let node = preemptor.queue.node;
        sort_by_importance(&mut candidates, node, |workload| workload);
        let ranked =
            candidates.into_iter().enumerate().map(|(rank, workload)| RankedCandidate { rank, workload });
        let mut candidates: Vec<RankedCandidate> = ranked.collect();
        self.sort_by_past_usage(&mut candidates, |candidate| &candidate.workload);
        self.tree.simulate_usage(node, preemptor.usage, 1);
        let result = self.search_targets(preemptor, candidates);
        let targets = result.map(|targets| {
            self.drop_unneeded_targets(preemptor, targets, |context| {
                context.fits_with_own_usage_removed(preemptor)
            })
        });
        self.tree.simulate_usage(node, preemptor.usage, -1);
        targets.unwrap_or_default()
    }

    /// Candidates of the ClusterQueues in the same tree that borrow in a flavor-resource that needs preemption.
    pub(super) fn borrowing_candidates(&self, preemptor: &Preemptor) -> Vec<Arc<ReservingWorkload>> {
        let own = preemptor.queue.node;
        if preemptor.queue.policy.reclaim().is_none() || self.tree.parent(own).is_none() {
            return Vec::new();
        }
        let root = self.tree.root(own);
        let others = self
            .reserving_workloads
            .cluster_queues()
            .filter(|queue| *queue != own && self.tree.root(*queue) == root);
        let borrowing = others.filter(|queue| !self.within_nominal(*queue, preemptor.frs_need_preemption));
        borrowing.flat_map(|queue| self.cohort_candidates(queue, preemptor)).collect()
    }

    /// Tests the fit; the preemptor's simulated usage is removed during the test.
    fn fits_with_own_usage_removed(&mut self, preemptor: &Preemptor) -> bool {
        self.tree.simulate_usage(preemptor.queue.node, preemptor.usage, -1);
        let fits = self.fits(preemptor, Attempt::Borrowing);
        self.tree.simulate_usage(preemptor.queue.node, preemptor.usage, 1);
        fits
    }

    /// Runs the configured strategies in order. On success simulated evictions stay; on failure they are undone.
    fn search_targets(
        &mut self,
        preemptor: &Preemptor,
        candidates: Vec<RankedCandidate>,
    ) -> Option<Vec<Target>> {
        let default_strategies =
            [FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
        let configured = self.settings.fair_sharing.as_deref().unwrap_or_default();
        let strategies = if configured.is_empty() { &default_strategies } else { configured };
        let first = strategies.first().copied().unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let mut search = TargetSearch::default();
        let fits = self.first_strategy(preemptor, candidates, first, &mut search)
            || (strategies.len() > 1 && self.second_strategy(preemptor, &mut search));
        if !fits {
            for target in &search.targets {
                self.undo_eviction(preemptor, &target.workload);
            }
        }
        fits.then_some(search.targets)
    }

    fn first_strategy(
        &mut self,
        preemptor: &Preemptor,
        candidates: Vec<RankedCandidate>,
        strategy: FairStrategy,
        search: &mut TargetSearch,
    ) -> bool {
        let own = preemptor.queue.node;
        let within = self.settings.gates.preempt_within_nominal
            && self.within_nominal(own, preemptor.frs_need_preemption);
        let mut tournament = TargetTournament::new(self, own, candidates);
        while let Some(queue) = tournament.next(self) {
            let unconditional = match (queue == own, within) {
                (true, _) => Some(PreemptionReason::InClusterQueue),
                (false, true) => Some(PreemptionReason::InCohortReclamation),
                (false, false) => None,
            };
            let chosen = match unconditional {
                Some(reason) => {
                    tournament.pop(queue).map(|candidate| Target { workload: candidate.workload, reason })
                }
                None => self.next_fairer_candidate(&mut tournament, queue, strategy, search),
            };
            let Some(target) = chosen else { continue };
            self.simulate_eviction(preemptor, &target.workload);
            search.targets.push(target);
            if self.fits_with_own_usage_removed(preemptor) {
                return true;
            }
        }
        false
    }

    /// Returns the ClusterQueue's first candidate whose eviction makes shares fairer; skipped candidates go to the
    /// retry list.
    fn next_fairer_candidate(
        &mut self,
        tournament: &mut TargetTournament,
        queue: NodeId,
        strategy: FairStrategy,
        search: &mut TargetSearch,
    ) -> Option<Target> {
        let (own_side, other_side) = self.sides(tournament, queue);
        let share = self.tree.share(own_side);
        let hopeless = share.is_infinite() && !self.tree.share(other_side).is_infinite();
        while let Some(candidate) = tournament.pop(queue) {
            if !hopeless && self.passes_strategy(share, other_side, &candidate.workload, strategy) {
                return Some(Target {
                    workload: candidate.workload,
                    reason: PreemptionReason::InCohortFairSharing,
                });
            }
            search.retry_candidates.push(candidate);
        }
        None
    }

    fn passes_strategy(
        &mut self,
        share: DominantResourceShare,
        other_side: NodeId,
        workload: &ReservingWorkload,
        strategy: FairStrategy,
    ) -> bool {
        match strategy {
            FairStrategy::LessThanOrEqualToFinalShare => {
                self.tree.simulate_usage(workload.node, &workload.usage, -1);
                let remaining = self.tree.share(other_side);
                self.tree.simulate_usage(workload.node, &workload.usage, 1);
                share.compare(&remaining) != Ordering::Greater
            }
            FairStrategy::LessThanInitialShare => {
                share.compare(&self.tree.share(other_side)) == Ordering::Less
            }
        }
    }

    /// Evicts one more candidate from each ClusterQueue whose DRS is larger than the preemptor's.
    fn second_strategy(&mut self, preemptor: &Preemptor, search: &mut TargetSearch) -> bool {
        let retry_candidates = std::mem::take(&mut search.retry_candidates);
        let mut tournament = TargetTournament::new(self, preemptor.queue.node, retry_candidates);
        while let Some(queue) = tournament.next(self) {
            let (own_side, other_side) = self.sides(&tournament, queue);
            let larger = self.tree.share(own_side).compare(&self.tree.share(other_side)) == Ordering::Less;
            let chosen = tournament.pop(queue).filter(|_| larger);
            tournament.drop_queue(queue);
            let Some(RankedCandidate { workload, .. }) = chosen else { continue };
            self.simulate_eviction(preemptor, &workload);
            search.targets.push(Target { workload, reason: PreemptionReason::InCohortFairSharing });
            if self.fits_with_own_usage_removed(preemptor) {
                return true;
            }
        }
        false
    }

    /// Children of the lowest common cohort: the preemptor's side and the other side.
    fn sides(&self, tournament: &TargetTournament, queue: NodeId) -> (NodeId, NodeId) {
        let mut other_side = queue;
        let mut top = self.tree.parent(other_side);
        while let Some(cohort) = top.filter(|cohort| !tournament.preemptor_ancestors.contains(cohort)) {
            other_side = cohort;
            top = self.tree.parent(cohort);
        }
        let mut own_side = tournament.preemptor_queue;
        while let Some(above) = self.tree.parent(own_side).filter(|above| Some(*above) != top) {
            own_side = above;
        }
        (own_side, other_side)
    }
}

impl TargetTournament {
    fn new(context: &SchedulingContext, own: NodeId, ranked: Vec<RankedCandidate>) -> Self {
        let ancestors = std::iter::successors(Some(own), |node| context.tree.parent(*node)).collect();
        let mut candidates: BTreeMap<NodeId, VecDeque<RankedCandidate>> = BTreeMap::new();
        for candidate in ranked {
            candidates.entry(candidate.workload.node).or_default().push_back(candidate);
        }
        let root = context.tree.root(own);
        Self {
            preemptor_queue: own,
            root,
            preemptor_ancestors: ancestors,
            candidates,
            subtrees: BTreeMap::new(),
            stale_queues: Vec::new(),
            is_over: false,
        }
    }

    /// Removes and returns the first candidate of a ClusterQueue; its cached shares are recomputed.
    fn pop(&mut self, queue: NodeId) -> Option<RankedCandidate> {
        self.stale_queues.push(queue);
        self.candidates.get_mut(&queue)?.pop_front()
    }

    fn drop_queue(&mut self, queue: NodeId) {
        self.stale_queues.push(queue);
        self.candidates.remove(&queue);
    }

    /// Returns the ClusterQueue to evict from next: follows the largest shares from the root down.
    fn next(&mut self, context: &SchedulingContext) -> Option<NodeId> {
        if self.root == self.preemptor_queue {
            let has_candidates =
                self.candidates.get(&self.preemptor_queue).is_some_and(|candidates| !candidates.is_empty());
            return has_candidates.then_some(self.preemptor_queue);
        }
        self.invalidate_shares(context);
        let mut current = self.root;
        while !self.is_over {
            match self.largest_shares(context, current) {
                (None, None) => {
                    self.prune(context, current);
                    current = self.root;
                }
                (Some(queue), Some(cohort)) => {
                    if cohort.share.compare(&queue.share) == Ordering::Less {
                        return Some(queue.node);
                    }
                    current = cohort.node;
                }
                (Some(queue), None) => return Some(queue.node),
                (None, Some(cohort)) => current = cohort.node,
            }
        }
        None
    }

    /// Clears the cached shares of all ancestors of ClusterQueues that lost candidates.
    fn invalidate_shares(&mut self, context: &SchedulingContext) {
        self.stale_queues.dedup();
        for queue in self.stale_queues.drain(..) {
            let mut current = queue;
            while let Some(above) = context.tree.parent(current) {
                let sides = self.subtrees.get_mut(&above);
                if let Some(side) = sides.and_then(|sides| sides.iter_mut().find(|side| side.node == current))
                {
                    side.cached_share = None;
                }
                current = above;
            }
        }
    }

    /// Removes a cohort without remaining candidates.
    fn prune(&mut self, context: &SchedulingContext, cohort: NodeId) {
        self.is_over |= cohort == self.root;
        if let Some(sides) = context.tree.parent(cohort).and_then(|above| self.subtrees.get_mut(&above)) {
            sides.retain(|side| side.node != cohort);
        }
    }

    /// Returns the child ClusterQueue and the child cohort with the largest shares. Drops children that do not
    /// borrow, except those on the preemptor's path, and ClusterQueues without candidates.
    fn largest_shares(
        &mut self,
        context: &SchedulingContext,
        cohort: NodeId,
    ) -> (Option<NodeShare>, Option<NodeShare>) {
        let child_node =
            |node| SubtreeCandidates { node, is_queue: is_queue(context, node), cached_share: None };
        let sides = self.subtrees.entry(cohort);
        let sides = sides.or_insert_with(|| context.tree.children(cohort).map(child_node).collect());
        let mut largest_queue: Option<(NodeShare, usize)> = None;
        let mut largest_cohort: Option<NodeShare> = None;
        sides.retain_mut(|child_node| {
            let node = child_node.node;
            let first = || self.candidates.get(&node)?.front().map(|candidate| candidate.rank);
            let (share, first) =
                *child_node.cached_share.get_or_insert_with(|| (context.tree.share(node), first()));
            if !share.borrows && !self.preemptor_ancestors.contains(&node) {
                return false;
            }
            if !child_node.is_queue {
                // Ties go to the last name, so that the result does not depend on creation order.
                let later = |other| context.tree.name(node) > context.tree.name(other);
                if largest_cohort.is_none_or(|largest| exceeds(share, largest.share, || later(largest.node)))
                {
                    largest_cohort = Some(NodeShare { node, share });
                }
                return true;
            }
            let Some(rank) = first else { return false };
            // Ties go to the ClusterQueue whose first candidate ranks first.
            if largest_queue.is_none_or(|(largest, other)| exceeds(share, largest.share, || rank < other)) {
                largest_queue = Some((NodeShare { node, share }, rank));
            }
            true
        });
        (largest_queue.map(|(largest, _)| largest), largest_cohort)
    }
}

/// A node and its DRS.
#[derive(Clone, Copy)]
struct NodeShare {
    node: NodeId,
    share: DominantResourceShare,
}

/// Whether a share is larger, or equal and preferred.
fn exceeds(
    share: DominantResourceShare,
    other: DominantResourceShare,
    preferred: impl FnOnce() -> bool,
) -> bool {
    match share.compare(&other) {
        Ordering::Greater => true,
        Ordering::Equal => preferred(),
        Ordering::Less => false,
    }
}

fn is_queue(context: &SchedulingContext, node: NodeId) -> bool {
    matches!(context.tree.name(node), Some(NodeRef::ClusterQueue(_)))
}
