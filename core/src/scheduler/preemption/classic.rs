//! Preemption without fair sharing: by priority within the ClusterQueue, by quota ownership across cohorts.
//!
//! Neighbours: `candidates` lists and sorts, `mod.rs` tests the fit and removes unneeded targets.

use super::{Attempt, EvictionCandidate, Preemptor, SchedulingContext, Target};
use crate::quota::{FlavorResourceId, NodeId, NodeRef, Usage, UsageLayer};
use crate::scheduler::decision::PreemptionReason;
use crate::scheduler::reserving_workloads::ReservingWorkload;
use std::sync::Arc;

/// Candidate pools in the order in which they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CandidatePool {
    /// Other ClusterQueues, where the preemptor only reclaims what its side of the tree owns.
    HierarchicalReclaim,
    /// Other ClusterQueues, otherwise.
    PriorityReclaim,
    /// The preemptor's ClusterQueue.
    SameQueue,
}

struct Candidate {
    workload: Arc<ReservingWorkload>,
    pool: CandidatePool,
    reason: PreemptionReason,
    /// Lowest common cohort of candidate and preemptor; `None` in the same ClusterQueue.
    lowest_common_cohort: Option<NodeId>,
    /// The widest attempt in which it may be evicted.
    widest: Attempt,
}

impl SchedulingContext<'_> {
    pub(super) fn classical_targets(&mut self, preemptor: &Preemptor) -> Vec<Target> {
        let mut candidates = self.reclaim_candidates(preemptor);
        let attempts = self.attempts(preemptor, &candidates);
        self.add_own_candidates(preemptor, &mut candidates);
        if candidates.is_empty() {
            return Vec::new();
        }
        let results = attempts.iter().map(|attempt| self.try_candidates(preemptor, &candidates, *attempt));
        results.into_iter().find(|targets| !targets.is_empty()).unwrap_or_default()
    }

    /// Candidates of other ClusterQueues. In an attempt within nominal quota no request fits that exceeds it, whatever is evicted.
    pub(super) fn classical_candidates(&self, preemptor: &Preemptor) -> Vec<EvictionCandidate> {
        let candidates = self.reclaim_candidates(preemptor);
        let nominal = |fr| self.tree.subtree_quota(preemptor.queue.node, fr);
        let is_within_nominal = preemptor.usage.iter().all(|(fr, amount)| *amount <= nominal(*fr));
        let attempts = self.attempts(preemptor, &candidates).iter().copied();
        let attempts: Vec<Attempt> =
            attempts.filter(|attempt| *attempt == Attempt::Borrowing || is_within_nominal).collect();
        let is_eligible = |candidate: &Candidate| {
            attempts.iter().any(|attempt| self.is_still_eligible(candidate, preemptor, *attempt))
        };
        let candidates = candidates.into_iter().map(|candidate| EvictionCandidate {
            is_eligible: is_eligible(&candidate),
            reason: candidate.reason,
            workload: candidate.workload,
        });
        candidates.collect()
    }

    /// Returns the attempts to find targets, in their order, by the candidates of other ClusterQueues. While its ClusterQueue borrows,
    /// a preemptor whose policy does not allow it to evict for that may only take back what its side of the tree owns. Where none of
    /// the candidates has that, it first tries to stay within nominal quota: the other attempt would evict workloads of its own
    /// ClusterQueue in place of those that borrow. In any other case the attempt with the wider limit is the first.
    fn attempts(&self, preemptor: &Preemptor, others: &[Candidate]) -> &'static [Attempt] {
        let may_borrow = preemptor.queue.policy.borrow().is_some();
        let hierarchical =
            others.iter().any(|candidate| candidate.pool == CandidatePool::HierarchicalReclaim);
        if others.is_empty() || (!may_borrow && !self.below_nominal(preemptor)) {
            &[Attempt::Borrowing]
        } else if !may_borrow && !hierarchical {
            &[Attempt::WithinNominal, Attempt::Borrowing]
        } else {
            &[Attempt::Borrowing, Attempt::WithinNominal]
        }
    }

    /// Adds the candidates of the preemptor's ClusterQueue to those of others, and sorts them all.
    fn add_own_candidates(&self, preemptor: &Preemptor, candidates: &mut Vec<Candidate>) {
        candidates.extend(self.own_candidates(preemptor).into_iter().map(|workload| Candidate {
            workload,
            pool: CandidatePool::SameQueue,
            reason: PreemptionReason::InClusterQueue,
            lowest_common_cohort: None,
            widest: Attempt::Borrowing,
        }));
        self.sort_candidates(candidates, preemptor.queue.node, |candidate| &candidate.workload);
        candidates.sort_by_key(|candidate| (!candidate.workload.charge.evicted, candidate.pool));
    }

    /// Returns what a preemptor without targets would borrow, if it had targets in other ClusterQueues but for the rule
    /// that these keep their workloads from a ClusterQueue that borrows; else nothing.
    pub(in crate::scheduler) fn borrowing_that_forbids_reclaim(
        &mut self,
        preemptor: &Preemptor,
    ) -> Vec<FlavorResourceId> {
        if self.settings.fair_sharing.is_some() {
            return Vec::new();
        }
        // The reason must not depend on which workloads the preemptor has evicted before (I25).
        let already_preempted = self.already_preempted.take();
        let mut candidates = self.reclaim_candidates(preemptor);
        let targets = if candidates.iter().any(|candidate| candidate.widest == Attempt::WithinNominal) {
            for candidate in &mut candidates {
                candidate.widest = Attempt::Borrowing;
            }
            self.add_own_candidates(preemptor, &mut candidates);
            self.try_candidates(preemptor, &candidates, Attempt::Borrowing)
        } else {
            Vec::new()
        };
        self.already_preempted = already_preempted;
        if targets.iter().all(|target| target.reason == PreemptionReason::InClusterQueue) {
            return Vec::new();
        }
        for target in &targets {
            self.simulate_eviction(preemptor, &target.workload);
        }
        let node = preemptor.queue.node;
        let borrows = |(fr, amount): &&(FlavorResourceId, i128)| {
            *amount > 0 && self.tree.borrows_with(node, *fr, *amount, UsageLayer::Projected)
        };
        let borrowed = preemptor.usage.iter().filter(borrows).map(|(fr, _)| *fr).collect();
        for target in &targets {
            self.undo_eviction(preemptor, &target.workload);
        }
        borrowed
    }

    /// Whether the preemptor's ClusterQueue uses less than its subtree quota in every flavor-resource that needs
    /// preemption.
    fn below_nominal(&self, preemptor: &Preemptor) -> bool {
        let node = preemptor.queue.node;
        let below_quota =
            |fr| self.tree.used(node, fr, UsageLayer::Projected) < self.tree.subtree_quota(node, fr);
        preemptor.frs_need_preemption.iter().all(|fr| below_quota(*fr))
    }

    /// Candidates of other ClusterQueues, from the preemptor's cohort up to the root.
    fn reclaim_candidates(&self, preemptor: &Preemptor) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        if preemptor.queue.policy.reclaim().is_none() {
            return candidates;
        }
        // A request of zero is within any quota, whatever other workloads use.
        let requests = preemptor.usage.iter().filter(|(_, amount)| *amount > 0).copied();
        let (mut branch, mut requests, mut advantage) =
            (preemptor.queue.node, requests.collect::<Usage>(), false);
        loop {
            let mut covered = true;
            for (fr, amount) in &mut requests {
                let request = self.tree.request_to_parent(branch, *fr, *amount, UsageLayer::Projected);
                *amount = request.amount;
                covered &= request.covered;
            }
            advantage |= covered;
            let Some(cohort) = self.tree.parent(branch) else {
                return candidates;
            };
            for queue in self.queues_over_quota(cohort, branch, preemptor) {
                for workload in self.cohort_candidates(queue, preemptor) {
                    candidates.push(classify(workload, preemptor, cohort, advantage));
                }
            }
            branch = cohort;
        }
    }

    /// ClusterQueues below a cohort that use more than nominal quota, reached through cohorts that do; skips the
    /// branch `excluded`.
    fn queues_over_quota(&self, cohort: NodeId, excluded: NodeId, preemptor: &Preemptor) -> Vec<NodeId> {
        let (mut open, mut queues) = (vec![cohort], Vec::new());
        while let Some(node) = open.pop() {
            for child in self.tree.children(node) {
                if child == excluded || self.within_nominal(child, preemptor.frs_need_preemption) {
                    continue;
                }
                match self.tree.name(child) {
                    Some(NodeRef::Cohort(_)) => open.push(child),
                    _ => queues.push(child),
                }
            }
        }
        queues
    }

    /// Simulates evicting candidates in order until the preemptor fits; undoes everything if it never does.
    fn try_candidates(
        &mut self,
        preemptor: &Preemptor,
        candidates: &[Candidate],
        attempt: Attempt,
    ) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for candidate in candidates {
            if !self.is_still_eligible(candidate, preemptor, attempt) {
                continue;
            }
            self.simulate_eviction(preemptor, &candidate.workload);
            targets.push(Target { workload: Arc::clone(&candidate.workload), reason: candidate.reason });
            if self.fits(preemptor, attempt) {
                return self
                    .drop_unneeded_targets(preemptor, targets, |context| context.fits(preemptor, attempt));
            }
        }
        for target in &targets {
            self.undo_eviction(preemptor, &target.workload);
        }
        Vec::new()
    }

    /// Whether a candidate is still eligible after earlier simulated evictions: every node from its ClusterQueue up
    /// to the lowest common cohort must still exceed nominal quota.
    fn is_still_eligible(&self, candidate: &Candidate, preemptor: &Preemptor, attempt: Attempt) -> bool {
        let Some(top) = candidate.lowest_common_cohort else {
            return true;
        };
        if attempt > candidate.widest {
            return false;
        }
        let mut current = Some(candidate.workload.node);
        while let Some(node) = current.filter(|node| *node != top) {
            if self.within_nominal(node, preemptor.frs_need_preemption) {
                return false;
            }
            current = self.tree.parent(node);
        }
        true
    }
}

fn classify(
    workload: Arc<ReservingWorkload>,
    preemptor: &Preemptor,
    cohort: NodeId,
    advantage: bool,
) -> Candidate {
    let borrow = preemptor.queue.policy.borrow();
    let allowed = borrow.is_some_and(|borrow| borrow.priority.allows(preemptor.rank(), workload.rank()));
    let while_borrowing = !advantage && allowed;
    Candidate {
        workload,
        pool: if advantage { CandidatePool::HierarchicalReclaim } else { CandidatePool::PriorityReclaim },
        reason: if while_borrowing {
            PreemptionReason::InCohortReclaimWhileBorrowing
        } else {
            PreemptionReason::InCohortReclamation
        },
        lowest_common_cohort: Some(cohort),
        widest: if advantage || while_borrowing { Attempt::Borrowing } else { Attempt::WithinNominal },
    }
}
