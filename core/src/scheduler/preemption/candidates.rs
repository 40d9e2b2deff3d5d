//! Preemption candidates: which workloads policies allow to evict, and in which order.
//!
//! Neighbours: `policy` has the rules; `classic` and `fair` choose targets from these candidates.

use super::{EvictionRule, Preemptor, SchedulingContext};
use crate::quota::NodeId;
use crate::scheduler::reserving_workloads::ReservingWorkload;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

impl SchedulingContext<'_> {
    /// Workloads of the preemptor's own ClusterQueue that its policy allows to evict.
    pub(super) fn own_candidates(&self, preemptor: &Preemptor) -> Vec<Arc<ReservingWorkload>> {
        self.candidates_by(preemptor.queue.policy.own(), preemptor.queue.node, preemptor)
    }

    /// Workloads of another ClusterQueue that the preemptor's policy allows to evict.
    pub(super) fn cohort_candidates(
        &self,
        queue: NodeId,
        preemptor: &Preemptor,
    ) -> Vec<Arc<ReservingWorkload>> {
        self.candidates_by(preemptor.queue.policy.reclaim(), queue, preemptor)
    }

    fn candidates_by(
        &self,
        rule: Option<EvictionRule>,
        queue: NodeId,
        preemptor: &Preemptor,
    ) -> Vec<Arc<ReservingWorkload>> {
        let Some(rule) = rule.filter(|_| !self.inactive.contains(queue)) else {
            return Vec::new();
        };
        let head = preemptor.rank();
        let uses = |workload: &ReservingWorkload| {
            workload
                .usage
                .iter()
                .any(|(fr, amount)| *amount > 0 && preemptor.frs_need_preemption.contains(fr))
        };
        let already_preempted = |workload: &ReservingWorkload| {
            !workload.charge.evicted
                && self
                    .already_preempted
                    .is_some_and(|already_preempted| already_preempted.contains(&workload.key))
        };
        let eligible = |workload: &&Arc<ReservingWorkload>| {
            !workload.is_terminating()
                && uses(workload)
                && rule.priority.allows(head, workload.rank())
                && !already_preempted(workload)
        };
        self.reserving_workloads.in_cluster_queue(queue).filter(eligible).cloned().collect()
    }

    /// Sorts candidates: evicted ones first, then other ClusterQueues, then lower priority, then newer reservation.
    /// Within a ClusterQueue with usage-based admission fair sharing, candidates of the LocalQueue with the highest
    /// past usage come first.
    pub(super) fn sort_candidates<T>(
        &self,
        candidates: &mut Vec<T>,
        own: NodeId,
        workload_of: impl Fn(&T) -> &ReservingWorkload,
    ) {
        sort_by_importance(candidates, own, &workload_of);
        self.sort_by_past_usage(candidates, workload_of);
    }

    /// Reorders the candidates of each ClusterQueue with usage-based admission fair sharing: highest past usage
    /// first.
    pub(super) fn sort_by_past_usage<T>(
        &self,
        candidates: &mut Vec<T>,
        workload_of: impl Fn(&T) -> &ReservingWorkload,
    ) {
        let Some(settings) = &self.settings.admission_fair_sharing else {
            return;
        };
        let mut by_queue: BTreeMap<(bool, NodeId), Vec<usize>> = BTreeMap::new();
        for (index, candidate) in candidates.iter().enumerate() {
            let workload = workload_of(candidate);
            if self
                .config
                .cluster_queue(&workload.charge.cluster_queue)
                .is_some_and(|queue| queue.config.orders_by_past_usage)
            {
                by_queue.entry((workload.charge.evicted, workload.node)).or_default().push(index);
            }
        }
        let mut new_index: Vec<usize> = (0..candidates.len()).collect();
        for indexes in by_queue.values() {
            let mut order: Vec<usize> = indexes.clone();
            let usage = |index: &usize| {
                let workload = candidates.get(*index).map(&workload_of);
                workload.and_then(|workload| self.afs_usage.weighted_usage_for(workload, settings))
            };
            order.sort_by(|a, b| usage(b).unwrap_or(0.0).total_cmp(&usage(a).unwrap_or(0.0)));
            for (position, from) in indexes.iter().zip(order) {
                if let Some(target) = new_index.get_mut(from) {
                    *target = *position;
                }
            }
        }
        let mut indexed: Vec<(usize, T)> = new_index.into_iter().zip(candidates.drain(..)).collect();
        indexed.sort_by_key(|(position, _)| *position);
        candidates.extend(indexed.into_iter().map(|(_, candidate)| candidate));
    }
}

/// Sorts candidates without regard to past usage. The main key is computed once per candidate, not once per
/// comparison.
pub(super) fn sort_by_importance<T>(
    candidates: &mut Vec<T>,
    own: NodeId,
    workload_of: impl Fn(&T) -> &ReservingWorkload,
) {
    let key = |workload: &ReservingWorkload| {
        let charge = &workload.charge;
        // An unconfirmed reservation counts as the newest.
        let newest = charge.reserved_at.map_or((0, Reverse(None)), |time| (1, Reverse(Some(time))));
        (!charge.evicted, workload.node == own, charge.priority, newest)
    };
    let mut keyed: Vec<_> =
        candidates.drain(..).map(|candidate| (key(workload_of(&candidate)), candidate)).collect();
    keyed.sort_by(|(x, a), (y, b)| {
        let (a, b) = (workload_of(a), workload_of(b));
        x.cmp(y).then_with(|| (&a.charge.uid, &a.key).cmp(&(&b.charge.uid, &b.key)))
    });
    candidates.extend(keyed.into_iter().map(|(_, candidate)| candidate));
}
