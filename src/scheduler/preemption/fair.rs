//! Preemption under fair sharing: from the queue with the largest share, as long as shares become fairer.

use super::candidates::sort_by_importance;
use super::{Preemptor, SchedulingContext, Target};
use crate::api::v1beta2::ReclaimPolicy;
use crate::quota::{DominantResourceShare, NodeId, NodeRef};
use crate::scheduler::config::FairStrategy;
use crate::scheduler::decision::PreemptionReason;
use crate::scheduler::reserving_workloads::ReservingWorkload;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A candidate with its place in the order of all, past usage apart.
struct RankedCandidate {
    rank: usize,
    workload: Arc<ReservingWorkload>,
}

/// A node below a cohort that is still worth a look.
struct SubtreeCandidates {
    node: NodeId,
    is_queue: bool,
    /// Its share and the place of its first candidate, until it or one below loses somebody.
    cached_share: Option<(DominantResourceShare, Option<usize>)>,
}

/// Candidates by queue, and the nodes that still have to be looked at.
struct TargetTournament {
    preemptor_queue: NodeId,
    root: NodeId,
    /// The preemptor's queue and all above it.
    preemptor_ancestors: BTreeSet<NodeId>,
    candidates: BTreeMap<NodeId, VecDeque<RankedCandidate>>,
    /// What is left below the cohorts that were looked at.
    subtrees: BTreeMap<NodeId, Vec<SubtreeCandidates>>,
    /// Queues that lost a candidate since the last look.
    stale_queues: Vec<NodeId>,
    /// Whether nothing is left below the root.
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
        sort_by_importance(&mut candidates, node, |holder| holder);
        let placed = candidates
            .into_iter()
            .enumerate()
            .map(|(place, holder)| RankedCandidate { rank: place, workload: holder });
        let mut candidates: Vec<RankedCandidate> = placed.collect();
        self.sort_by_past_usage(&mut candidates, |placed| &placed.workload);
        self.tree.simulate_usage(node, preemptor.usage, 1);
        let found = self.search_targets(preemptor, candidates);
        let targets = found.map(|targets| {
            self.drop_unneeded_targets(preemptor, targets, |field| {
                field.fits_with_own_usage_removed(preemptor)
            })
        });
        self.tree.simulate_usage(node, preemptor.usage, -1);
        targets.unwrap_or_default()
    }

    /// Workloads of all queues of the tree that borrow where room is short.
    fn borrowing_candidates(&self, preemptor: &Preemptor) -> Vec<Arc<ReservingWorkload>> {
        let own = preemptor.queue.node;
        let policy = preemptor.queue.config.preemption.reclaim_within_cohort.unwrap_or_default();
        if policy == ReclaimPolicy::Never || self.tree.parent(own).is_none() {
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

    /// The fit test while the preemptor's usage is in the plan.
    fn fits_with_own_usage_removed(&mut self, preemptor: &Preemptor) -> bool {
        self.tree.simulate_usage(preemptor.queue.node, preemptor.usage, -1);
        let fits = self.fits(preemptor, true);
        self.tree.simulate_usage(preemptor.queue.node, preemptor.usage, 1);
        fits
    }

    /// Both strategies in turn. What was taken out stays out if the search ends well, and is back otherwise.
    fn search_targets(
        &mut self,
        preemptor: &Preemptor,
        candidates: Vec<RankedCandidate>,
    ) -> Option<Vec<Target>> {
        let both = [FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
        let configured = self.settings.fair_sharing.as_deref().unwrap_or_default();
        let strategies = if configured.is_empty() { &both } else { configured };
        let first = strategies.first().copied().unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let (mut targets, mut again) = (Vec::new(), Vec::new());
        let fits = self.first_strategy(preemptor, candidates, first, &mut targets, &mut again)
            || (strategies.len() > 1 && self.second_strategy(preemptor, again, &mut targets));
        if !fits {
            for target in &targets {
                self.undo_eviction(preemptor, &target.workload);
            }
        }
        fits.then_some(targets)
    }

    fn first_strategy(
        &mut self,
        preemptor: &Preemptor,
        candidates: Vec<RankedCandidate>,
        strategy: FairStrategy,
        targets: &mut Vec<Target>,
        again: &mut Vec<RankedCandidate>,
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
                    tournament.pop(queue).map(|placed| Target { workload: placed.workload, reason })
                }
                None => self.next_fairer_candidate(&mut tournament, queue, strategy, again),
            };
            let Some(target) = chosen else { continue };
            self.simulate_eviction(preemptor, &target.workload);
            targets.push(target);
            if self.fits_with_own_usage_removed(preemptor) {
                return true;
            }
        }
        false
    }

    /// The queue's first candidate whose going makes shares fairer; those before it may be tried again.
    fn next_fairer_candidate(
        &mut self,
        tournament: &mut TargetTournament,
        queue: NodeId,
        strategy: FairStrategy,
        again: &mut Vec<RankedCandidate>,
    ) -> Option<Target> {
        let (mine, theirs) = self.sides(tournament, queue);
        let share = self.tree.share(mine);
        let hopeless = share.is_infinite() && !self.tree.share(theirs).is_infinite();
        while let Some(placed) = tournament.pop(queue) {
            if !hopeless && self.passes_strategy(share, theirs, &placed.workload, strategy) {
                return Some(Target {
                    workload: placed.workload,
                    reason: PreemptionReason::InCohortFairSharing,
                });
            }
            again.push(placed);
        }
        None
    }

    fn passes_strategy(
        &mut self,
        share: DominantResourceShare,
        theirs: NodeId,
        holder: &ReservingWorkload,
        strategy: FairStrategy,
    ) -> bool {
        match strategy {
            FairStrategy::LessThanOrEqualToFinalShare => {
                self.tree.simulate_usage(holder.node, &holder.usage, -1);
                let left = self.tree.share(theirs);
                self.tree.simulate_usage(holder.node, &holder.usage, 1);
                share.compare(&left) != Ordering::Greater
            }
            FairStrategy::LessThanInitialShare => share.compare(&self.tree.share(theirs)) == Ordering::Less,
        }
    }

    /// One more candidate of each queue whose share is larger than the preemptor's.
    fn second_strategy(
        &mut self,
        preemptor: &Preemptor,
        again: Vec<RankedCandidate>,
        targets: &mut Vec<Target>,
    ) -> bool {
        let mut tournament = TargetTournament::new(self, preemptor.queue.node, again);
        while let Some(queue) = tournament.next(self) {
            let (mine, theirs) = self.sides(&tournament, queue);
            let larger = self.tree.share(mine).compare(&self.tree.share(theirs)) == Ordering::Less;
            let chosen = tournament.pop(queue).filter(|_| larger);
            tournament.drop_queue(queue);
            let Some(RankedCandidate { workload: holder, .. }) = chosen else { continue };
            self.simulate_eviction(preemptor, &holder);
            targets.push(Target { workload: holder, reason: PreemptionReason::InCohortFairSharing });
            if self.fits_with_own_usage_removed(preemptor) {
                return true;
            }
        }
        false
    }

    /// The nodes right below the lowest cohort above both queues: the preemptor's side and the other.
    fn sides(&self, tournament: &TargetTournament, queue: NodeId) -> (NodeId, NodeId) {
        let mut theirs = queue;
        let mut top = self.tree.parent(theirs);
        while let Some(cohort) = top.filter(|cohort| !tournament.preemptor_ancestors.contains(cohort)) {
            theirs = cohort;
            top = self.tree.parent(cohort);
        }
        let mut mine = tournament.preemptor_queue;
        while let Some(above) = self.tree.parent(mine).filter(|above| Some(*above) != top) {
            mine = above;
        }
        (mine, theirs)
    }
}

impl TargetTournament {
    fn new(field: &SchedulingContext, own: NodeId, all: Vec<RankedCandidate>) -> Self {
        let path = std::iter::successors(Some(own), |node| field.tree.parent(*node)).collect();
        let mut candidates: BTreeMap<NodeId, VecDeque<RankedCandidate>> = BTreeMap::new();
        for placed in all {
            candidates.entry(placed.workload.node).or_default().push_back(placed);
        }
        let root = field.tree.root(own);
        Self {
            preemptor_queue: own,
            root,
            preemptor_ancestors: path,
            candidates,
            subtrees: BTreeMap::new(),
            stale_queues: Vec::new(),
            is_over: false,
        }
    }

    /// Takes the first candidate of a queue. Whether it goes or stays, the queue is looked at anew.
    fn pop(&mut self, queue: NodeId) -> Option<RankedCandidate> {
        self.stale_queues.push(queue);
        self.candidates.get_mut(&queue)?.pop_front()
    }

    fn drop_queue(&mut self, queue: NodeId) {
        self.stale_queues.push(queue);
        self.candidates.remove(&queue);
    }

    /// The queue to take from next, from the root down along the largest shares.
    fn next(&mut self, field: &SchedulingContext) -> Option<NodeId> {
        if self.root == self.preemptor_queue {
            let left =
                self.candidates.get(&self.preemptor_queue).is_some_and(|candidates| !candidates.is_empty());
            return left.then_some(self.preemptor_queue);
        }
        self.invalidate_shares(field);
        let mut at = self.root;
        while !self.is_over {
            match self.largest_shares(field, at) {
                (None, None) => {
                    self.prune(field, at);
                    at = self.root;
                }
                (Some((queue, share)), Some((cohort, larger))) => {
                    if larger.compare(&share) == Ordering::Less {
                        return Some(queue);
                    }
                    at = cohort;
                }
                (Some((queue, _)), None) => return Some(queue),
                (None, Some((cohort, _))) => at = cohort,
            }
        }
        None
    }

    /// Forgets what is not true any more: losses of a queue are felt up to the root.
    fn invalidate_shares(&mut self, field: &SchedulingContext) {
        self.stale_queues.dedup();
        for queue in self.stale_queues.drain(..) {
            let mut at = queue;
            while let Some(above) = field.tree.parent(at) {
                let sides = self.subtrees.get_mut(&above);
                if let Some(side) = sides.and_then(|sides| sides.iter_mut().find(|side| side.node == at)) {
                    side.cached_share = None;
                }
                at = above;
            }
        }
    }

    /// A cohort with nothing left is not looked at again.
    fn prune(&mut self, field: &SchedulingContext, cohort: NodeId) {
        self.is_over |= cohort == self.root;
        if let Some(sides) = field.tree.parent(cohort).and_then(|above| self.subtrees.get_mut(&above)) {
            sides.retain(|side| side.node != cohort);
        }
    }

    /// The queue and the cohort of the largest shares below a cohort. Nodes that do not borrow are not looked at again, but
    /// for the preemptor's side; nor are queues without candidates.
    fn largest_shares(
        &mut self,
        field: &SchedulingContext,
        cohort: NodeId,
    ) -> (Option<NodeShare>, Option<NodeShare>) {
        let side = |node| SubtreeCandidates { node, is_queue: is_queue(field, node), cached_share: None };
        let sides = self.subtrees.entry(cohort);
        let sides = sides.or_insert_with(|| field.tree.children(cohort).map(side).collect());
        let mut queue: Option<(NodeId, DominantResourceShare, usize)> = None;
        let mut inner: Option<NodeShare> = None;
        sides.retain_mut(|side| {
            let node = side.node;
            let first = || self.candidates.get(&node)?.front().map(|placed| placed.rank);
            let (share, first) = *side.cached_share.get_or_insert_with(|| (field.tree.share(node), first()));
            if !share.borrows && !self.preemptor_ancestors.contains(&node) {
                return false;
            }
            if !side.is_queue {
                // Among equals the last by name, so that the order in which objects appeared does not matter.
                let later = |other| field.tree.name(node) > field.tree.name(other);
                if inner.is_none_or(|(other, most)| exceeds(share, most, || later(other))) {
                    inner = Some((node, share));
                }
                return true;
            }
            let Some(place) = first else { return false };
            // Among equals the one whose first candidate comes first.
            if queue.is_none_or(|(_, most, other)| exceeds(share, most, || place < other)) {
                queue = Some((node, share, place));
            }
            true
        });
        (queue.map(|(node, share, _)| (node, share)), inner)
    }
}

/// A node with its share.
type NodeShare = (NodeId, DominantResourceShare);

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

fn is_queue(field: &SchedulingContext, node: NodeId) -> bool {
    matches!(field.tree.name(node), Some(NodeRef::ClusterQueue(_)))
}
