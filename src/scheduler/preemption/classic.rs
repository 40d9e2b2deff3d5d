//! Preemption without fair sharing: by priority in the own queue, by ownership of quota in the cohorts above.

use super::{Preemptor, SchedulingContext, Target, allows_borrow_within_cohort};
use crate::api::v1beta2::ReclaimPolicy;
use crate::quota::{NodeId, NodeRef, Usage, UsageLayer};
use crate::scheduler::decision::PreemptionReason;
use crate::scheduler::reserving_workloads::ReservingWorkload;
use std::sync::Arc;

/// Pools in the order in which they are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CandidatePool {
    /// Other queues, where the preemptor only takes back what its side of the tree owns.
    HierarchicalReclaim,
    /// Other queues, otherwise.
    PriorityReclaim,
    /// The own queue.
    SameQueue,
}

struct Candidate {
    workload: Arc<ReservingWorkload>,
    pool: CandidatePool,
    reason: PreemptionReason,
    /// Lowest cohort above both.
    lowest_common_cohort: Option<NodeId>,
    /// Whether it may only be taken by a queue that does not borrow.
    only_without_borrowing: bool,
}

impl SchedulingContext<'_> {
    pub(super) fn classical_targets(&mut self, preemptor: &Preemptor) -> Vec<Target> {
        let mut candidates = self.reclaim_candidates(preemptor);
        let others = candidates.len();
        let hierarchical =
            candidates.iter().any(|candidate| candidate.pool == CandidatePool::HierarchicalReclaim);
        candidates.extend(self.own_candidates(preemptor).into_iter().map(|holder| Candidate {
            workload: holder,
            pool: CandidatePool::SameQueue,
            reason: PreemptionReason::InClusterQueue,
            lowest_common_cohort: None,
            only_without_borrowing: false,
        }));
        if candidates.is_empty() {
            return Vec::new();
        }
        self.sort_candidates(&mut candidates, preemptor.queue.node, |candidate| &candidate.workload);
        candidates.sort_by_key(|candidate| (!candidate.workload.charge.evicted, candidate.pool));
        let may_borrow = allows_borrow_within_cohort(preemptor.queue);
        let attempts: &[bool] = if others == 0 || (!may_borrow && !self.below_nominal(preemptor)) {
            &[true]
        } else if !may_borrow && !hierarchical {
            &[false, true]
        } else {
            &[true, false]
        };
        let found = attempts.iter().map(|borrowing| self.try_candidates(preemptor, &candidates, *borrowing));
        found.into_iter().find(|targets| !targets.is_empty()).unwrap_or_default()
    }

    /// Whether the preemptor's queue uses less than it owns wherever room is short.
    fn below_nominal(&self, preemptor: &Preemptor) -> bool {
        let node = preemptor.queue.node;
        let below =
            |pair| self.tree.used(node, pair, UsageLayer::Projected) < self.tree.subtree_quota(node, pair);
        preemptor.frs_need_preemption.iter().all(|pair| below(*pair))
    }

    /// Candidates of other queues, from the preemptor's cohort up to the root.
    fn reclaim_candidates(&self, preemptor: &Preemptor) -> Vec<Candidate> {
        let policy = preemptor.queue.config.preemption.reclaim_within_cohort.unwrap_or_default();
        let mut found = Vec::new();
        if policy == ReclaimPolicy::Never {
            return found;
        }
        // Nothing of a resource is within any quota, whatever others use of it.
        let asks = preemptor.usage.iter().filter(|(_, amount)| *amount > 0).copied();
        let (mut below, mut asks, mut advantage) = (preemptor.queue.node, asks.collect::<Usage>(), false);
        loop {
            let mut owns = true;
            for (pair, amount) in &mut asks {
                let (rest, fits) = self.tree.request_to_parent(below, *pair, *amount, UsageLayer::Projected);
                *amount = rest;
                owns &= fits;
            }
            advantage |= owns;
            let Some(cohort) = self.tree.parent(below) else {
                return found;
            };
            for queue in self.queues_over_quota(cohort, below, preemptor) {
                for holder in self.cohort_candidates(queue, preemptor) {
                    found.push(classify(holder, preemptor, cohort, advantage));
                }
            }
            below = cohort;
        }
    }

    /// ClusterQueues below a cohort that use more than they own, in cohorts that do; all but those in one branch.
    fn queues_over_quota(&self, cohort: NodeId, but: NodeId, preemptor: &Preemptor) -> Vec<NodeId> {
        let (mut open, mut queues) = (vec![cohort], Vec::new());
        while let Some(node) = open.pop() {
            for child in self.tree.children(node) {
                if child == but || self.within_nominal(child, preemptor.frs_need_preemption) {
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

    /// Takes candidates out until the preemptor fits.
    fn try_candidates(
        &mut self,
        preemptor: &Preemptor,
        candidates: &[Candidate],
        borrowing: bool,
    ) -> Vec<Target> {
        let mut targets: Vec<Target> = Vec::new();
        for candidate in candidates {
            if !self.is_still_eligible(candidate, preemptor, borrowing) {
                continue;
            }
            self.simulate_eviction(preemptor, &candidate.workload);
            targets.push(Target { workload: Arc::clone(&candidate.workload), reason: candidate.reason });
            if self.fits(preemptor, borrowing) {
                return self
                    .drop_unneeded_targets(preemptor, targets, |field| field.fits(preemptor, borrowing));
            }
        }
        for target in &targets {
            self.undo_eviction(preemptor, &target.workload);
        }
        Vec::new()
    }

    /// Whether a candidate may still be taken after those that were: its side of the tree must be beyond its quota.
    fn is_still_eligible(&self, candidate: &Candidate, preemptor: &Preemptor, borrowing: bool) -> bool {
        let Some(top) = candidate.lowest_common_cohort else {
            return true;
        };
        if borrowing && candidate.only_without_borrowing {
            return false;
        }
        let mut at = Some(candidate.workload.node);
        while let Some(node) = at.filter(|node| *node != top) {
            if self.within_nominal(node, preemptor.frs_need_preemption) {
                return false;
            }
            at = self.tree.parent(node);
        }
        true
    }
}

fn classify(
    holder: Arc<ReservingWorkload>,
    preemptor: &Preemptor,
    cohort: NodeId,
    advantage: bool,
) -> Candidate {
    let borrow = preemptor.queue.config.preemption.borrow_within_cohort.as_ref();
    let threshold = borrow.and_then(|borrow| borrow.max_priority_threshold).map(i64::from);
    let priority = holder.charge.priority;
    let protected = priority >= preemptor.priority || threshold.is_some_and(|threshold| priority > threshold);
    let while_borrowing = !advantage && allows_borrow_within_cohort(preemptor.queue) && !protected;
    Candidate {
        workload: holder,
        pool: if advantage { CandidatePool::HierarchicalReclaim } else { CandidatePool::PriorityReclaim },
        reason: if while_borrowing {
            PreemptionReason::InCohortReclaimWhileBorrowing
        } else {
            PreemptionReason::InCohortReclamation
        },
        lowest_common_cohort: Some(cohort),
        only_without_borrowing: !advantage && !while_borrowing,
    }
}
