//! Preemption under fair sharing: from the queue with the largest share, as long as shares become fairer.

use super::candidates::compare;
use super::{Field, Preemptor, Target};
use crate::api::v1beta2::ReclaimPolicy;
use crate::quota::{NodeId, NodeRef, Share};
use crate::scheduler::config::FairStrategy;
use crate::scheduler::decision::PreemptionReason;
use crate::scheduler::ledger::Holder;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Candidates by queue, and the nodes that need not be looked at any more.
struct Tournament {
    own: NodeId,
    root: NodeId,
    /// The preemptor's queue and all above it.
    path: BTreeSet<NodeId>,
    candidates: BTreeMap<NodeId, VecDeque<Arc<Holder>>>,
    pruned: BTreeSet<NodeId>,
}

impl Field<'_> {
    pub(super) fn fair(&mut self, preemptor: &Preemptor) -> Vec<Target> {
        let mut candidates = self.own_candidates(preemptor);
        candidates.extend(self.borrowers(preemptor));
        if candidates.is_empty() {
            return Vec::new();
        }
        let node = preemptor.queue.node;
        self.sort(&mut candidates, node, |holder| holder);
        self.tree.plan(node, preemptor.usage, 1);
        let found = self.search(preemptor, candidates);
        let targets = found.map(|targets| self.fill_back(targets, |field| field.fits_without(preemptor)));
        self.tree.plan(node, preemptor.usage, -1);
        targets.unwrap_or_default()
    }

    /// Workloads of all queues of the tree that borrow where room is short.
    fn borrowers(&self, preemptor: &Preemptor) -> Vec<Arc<Holder>> {
        let own = preemptor.queue.node;
        let policy = preemptor.queue.config.preemption.reclaim_within_cohort.unwrap_or_default();
        if policy == ReclaimPolicy::Never || self.tree.parent(own).is_none() {
            return Vec::new();
        }
        let root = self.tree.root(own);
        let others = self.holders.queues().filter(|queue| *queue != own && self.tree.root(*queue) == root);
        let borrowing = others.filter(|queue| !self.within_nominal(*queue, preemptor.short));
        borrowing.flat_map(|queue| self.cohort_candidates(queue, preemptor)).collect()
    }

    /// The fit test while the preemptor's usage is in the plan.
    fn fits_without(&mut self, preemptor: &Preemptor) -> bool {
        self.tree.plan(preemptor.queue.node, preemptor.usage, -1);
        let fits = self.fits(preemptor, true);
        self.tree.plan(preemptor.queue.node, preemptor.usage, 1);
        fits
    }

    /// Both strategies in turn. What was taken out stays out if the search ends well, and is back otherwise.
    fn search(&mut self, preemptor: &Preemptor, candidates: Vec<Arc<Holder>>) -> Option<Vec<Target>> {
        let both = [FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
        let configured = self.settings.fair_sharing.as_deref().unwrap_or_default();
        let strategies = if configured.is_empty() { &both } else { configured };
        let first = strategies.first().copied().unwrap_or(FairStrategy::LessThanOrEqualToFinalShare);
        let (mut targets, mut again) = (Vec::new(), Vec::new());
        let fits = self.first_strategy(preemptor, candidates, first, &mut targets, &mut again)
            || (strategies.len() > 1 && self.second_strategy(preemptor, again, &mut targets));
        if !fits {
            for target in &targets {
                self.put_back(&target.holder);
            }
        }
        fits.then_some(targets)
    }

    fn first_strategy(
        &mut self,
        preemptor: &Preemptor,
        candidates: Vec<Arc<Holder>>,
        strategy: FairStrategy,
        targets: &mut Vec<Target>,
        again: &mut Vec<Arc<Holder>>,
    ) -> bool {
        let own = preemptor.queue.node;
        let within = self.settings.gates.preempt_within_nominal && self.within_nominal(own, preemptor.short);
        let mut tournament = Tournament::new(self, own, candidates);
        while let Some(queue) = tournament.next(self) {
            let unconditional = match (queue == own, within) {
                (true, _) => Some(PreemptionReason::InClusterQueue),
                (false, true) => Some(PreemptionReason::InCohortReclamation),
                (false, false) => None,
            };
            let chosen = match unconditional {
                Some(reason) => tournament.pop(queue).map(|holder| Target { holder, reason }),
                None => self.fairer(&mut tournament, queue, strategy, again),
            };
            let Some(target) = chosen else { continue };
            self.take_out(&target.holder);
            targets.push(target);
            if self.fits_without(preemptor) {
                return true;
            }
        }
        false
    }

    /// The queue's first candidate whose going makes shares fairer; those before it may be tried again.
    fn fairer(
        &mut self,
        tournament: &mut Tournament,
        queue: NodeId,
        strategy: FairStrategy,
        again: &mut Vec<Arc<Holder>>,
    ) -> Option<Target> {
        let (mine, theirs) = self.sides(tournament, queue);
        let share = self.tree.share(mine);
        let hopeless = share.is_infinite() && !self.tree.share(theirs).is_infinite();
        while let Some(holder) = tournament.pop(queue) {
            if !hopeless && self.passes(share, theirs, &holder, strategy) {
                return Some(Target { holder, reason: PreemptionReason::InCohortFairSharing });
            }
            again.push(holder);
        }
        None
    }

    fn passes(&mut self, share: Share, theirs: NodeId, holder: &Holder, strategy: FairStrategy) -> bool {
        match strategy {
            FairStrategy::LessThanOrEqualToFinalShare => {
                self.take_out(holder);
                let left = self.tree.share(theirs);
                self.put_back(holder);
                share.compare(&left) != Ordering::Greater
            }
            FairStrategy::LessThanInitialShare => share.compare(&self.tree.share(theirs)) == Ordering::Less,
        }
    }

    /// One more candidate of each queue whose share is larger than the preemptor's.
    fn second_strategy(
        &mut self,
        preemptor: &Preemptor,
        again: Vec<Arc<Holder>>,
        targets: &mut Vec<Target>,
    ) -> bool {
        let mut tournament = Tournament::new(self, preemptor.queue.node, again);
        while let Some(queue) = tournament.next(self) {
            let (mine, theirs) = self.sides(&tournament, queue);
            let larger = self.tree.share(mine).compare(&self.tree.share(theirs)) == Ordering::Less;
            let chosen = tournament.pop(queue).filter(|_| larger);
            tournament.drop_queue(queue);
            let Some(holder) = chosen else { continue };
            self.take_out(&holder);
            targets.push(Target { holder, reason: PreemptionReason::InCohortFairSharing });
            if self.fits_without(preemptor) {
                return true;
            }
        }
        false
    }

    /// The nodes right below the lowest cohort above both queues: the preemptor's side and the other.
    fn sides(&self, tournament: &Tournament, queue: NodeId) -> (NodeId, NodeId) {
        let mut theirs = queue;
        let mut top = self.tree.parent(theirs);
        while let Some(cohort) = top.filter(|cohort| !tournament.path.contains(cohort)) {
            theirs = cohort;
            top = self.tree.parent(cohort);
        }
        let mut mine = tournament.own;
        while let Some(above) = self.tree.parent(mine).filter(|above| Some(*above) != top) {
            mine = above;
        }
        (mine, theirs)
    }

    fn uses_beyond(&self, node: NodeId) -> bool {
        self.tree.share(node).borrows
    }
}

impl Tournament {
    fn new(field: &Field, own: NodeId, holders: Vec<Arc<Holder>>) -> Self {
        let path = std::iter::successors(Some(own), |node| field.tree.parent(*node)).collect();
        let mut candidates: BTreeMap<NodeId, VecDeque<Arc<Holder>>> = BTreeMap::new();
        for holder in holders {
            candidates.entry(holder.node).or_default().push_back(holder);
        }
        Self { own, root: field.tree.root(own), path, candidates, pruned: BTreeSet::new() }
    }

    fn pop(&mut self, queue: NodeId) -> Option<Arc<Holder>> {
        self.candidates.get_mut(&queue)?.pop_front()
    }

    fn first(&self, queue: NodeId) -> Option<&Arc<Holder>> {
        self.candidates.get(&queue)?.front()
    }

    fn drop_queue(&mut self, queue: NodeId) {
        self.candidates.remove(&queue);
    }

    /// The queue to take from next, from the root down along the largest shares.
    fn next(&mut self, field: &Field) -> Option<NodeId> {
        if self.root == self.own {
            return self.first(self.own).map(|_| self.own);
        }
        let mut at = self.root;
        while !self.pruned.contains(&self.root) {
            let queue = self.largest_queue(field, at);
            let cohort = self.largest_cohort(field, at);
            match (queue, cohort) {
                (None, None) => {
                    self.pruned.insert(at);
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

    fn largest_queue(&mut self, field: &Field, cohort: NodeId) -> Option<(NodeId, Share)> {
        let mut largest: Option<(NodeId, Share)> = None;
        for queue in field.tree.children(cohort) {
            if self.pruned.contains(&queue) || !is_queue(field, queue) {
                continue;
            }
            let done = self.first(queue).is_none();
            if done || (queue != self.own && !field.uses_beyond(queue)) {
                self.pruned.insert(queue);
                continue;
            }
            let share = field.tree.share(queue);
            let better = largest.is_none_or(|(other, most)| {
                share.compare(&most).then_with(|| self.before(other, queue)) == Ordering::Greater
            });
            if better {
                largest = Some((queue, share));
            }
        }
        largest
    }

    /// Order of two queues by their first candidates; greater means that the second goes first.
    fn before(&self, a: NodeId, b: NodeId) -> Ordering {
        match (self.first(a), self.first(b)) {
            (Some(x), Some(y)) => compare(x, y, self.own),
            _ => Ordering::Equal,
        }
    }

    fn largest_cohort(&mut self, field: &Field, cohort: NodeId) -> Option<(NodeId, Share)> {
        let mut largest: Option<(NodeId, Share)> = None;
        for child in field.tree.children(cohort) {
            if self.pruned.contains(&child) || is_queue(field, child) {
                continue;
            }
            if !self.path.contains(&child) && !field.uses_beyond(child) {
                self.pruned.insert(child);
                continue;
            }
            let share = field.tree.share(child);
            // Among equals the last by name, so that the order in which objects appeared does not matter.
            let later = |other: NodeId| field.tree.name(child) > field.tree.name(other);
            let better = largest.is_none_or(|(other, most)| match share.compare(&most) {
                Ordering::Greater => true,
                Ordering::Equal => later(other),
                Ordering::Less => false,
            });
            if better {
                largest = Some((child, share));
            }
        }
        largest
    }
}

fn is_queue(field: &Field, node: NodeId) -> bool {
    matches!(field.tree.name(node), Some(NodeRef::ClusterQueue(_)))
}
