//! Which workloads may be taken, and in which order.

use super::{Preemptor, SchedulingContext};
use crate::api::v1beta2::{ReclaimPolicy, WithinClusterQueuePolicy};
use crate::quota::NodeId;
use crate::scheduler::reserving_workloads::ReservingWorkload;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

impl SchedulingContext<'_> {
    /// Workloads of the preemptor's own queue that its policy lets it take.
    pub(super) fn own_candidates(&self, preemptor: &Preemptor) -> Vec<Arc<ReservingWorkload>> {
        let policy = preemptor.queue.config.preemption.within_cluster_queue.unwrap_or_default();
        let lower = |holder: &ReservingWorkload| holder.charge.priority < preemptor.priority;
        let newer = |holder: &ReservingWorkload| {
            holder.charge.priority == preemptor.priority
                && preemptor.queued_since < holder.charge.queued_since
        };
        let allowed = |holder: &ReservingWorkload| match policy {
            WithinClusterQueuePolicy::Never => false,
            WithinClusterQueuePolicy::LowerPriority => lower(holder),
            WithinClusterQueuePolicy::LowerOrNewerEqualPriority => lower(holder) || newer(holder),
        };
        if policy == WithinClusterQueuePolicy::Never {
            return Vec::new();
        }
        self.candidates_in(preemptor.queue.node, preemptor, allowed)
    }

    /// Workloads of another queue that the preemptor's policy lets it take.
    pub(super) fn cohort_candidates(
        &self,
        queue: NodeId,
        preemptor: &Preemptor,
    ) -> Vec<Arc<ReservingWorkload>> {
        let policy = preemptor.queue.config.preemption.reclaim_within_cohort.unwrap_or_default();
        let allowed = |holder: &ReservingWorkload| match policy {
            ReclaimPolicy::Never => false,
            ReclaimPolicy::LowerPriority => holder.charge.priority < preemptor.priority,
            ReclaimPolicy::Any => true,
        };
        self.candidates_in(queue, preemptor, allowed)
    }

    fn candidates_in(
        &self,
        queue: NodeId,
        preemptor: &Preemptor,
        allowed: impl Fn(&ReservingWorkload) -> bool,
    ) -> Vec<Arc<ReservingWorkload>> {
        if self.inactive.contains(&queue) {
            return Vec::new();
        }
        let uses = |holder: &ReservingWorkload| {
            holder
                .usage
                .iter()
                .any(|(pair, amount)| *amount > 0 && preemptor.frs_need_preemption.contains(pair))
        };
        let barred = |holder: &ReservingWorkload| {
            !holder.charge.evicted
                && self.already_preempted.is_some_and(|barred| barred.contains(&holder.key))
        };
        let free = |holder: &&Arc<ReservingWorkload>| {
            !holder.is_terminating() && uses(holder) && allowed(holder) && !barred(holder)
        };
        self.reserving_workloads.in_cluster_queue(queue).filter(free).cloned().collect()
    }

    /// Sorts candidates: those on their way out first, then other queues, then the least important and the newest. Those of
    /// one queue where past usage counts go by it: the LocalQueue that used most comes first.
    pub(super) fn sort_candidates<T>(
        &self,
        candidates: &mut Vec<T>,
        own: NodeId,
        holder: impl Fn(&T) -> &ReservingWorkload,
    ) {
        sort_by_importance(candidates, own, &holder);
        self.sort_by_past_usage(candidates, holder);
    }

    /// Sorts those of one queue by what their LocalQueues used, where that counts.
    pub(super) fn sort_by_past_usage<T>(
        &self,
        candidates: &mut Vec<T>,
        holder: impl Fn(&T) -> &ReservingWorkload,
    ) {
        let Some(settings) = &self.settings.admission_fair_sharing else {
            return;
        };
        let mut by_queue: BTreeMap<(bool, NodeId), Vec<usize>> = BTreeMap::new();
        for (at, candidate) in candidates.iter().enumerate() {
            let holder = holder(candidate);
            if self
                .queues
                .get(&holder.charge.cluster_queue)
                .is_some_and(|queue| queue.config.orders_by_past_usage)
            {
                by_queue.entry((holder.charge.evicted, holder.node)).or_default().push(at);
            }
        }
        let mut place: Vec<usize> = (0..candidates.len()).collect();
        for spots in by_queue.values() {
            let mut order: Vec<usize> = spots.clone();
            let usage = |at: &usize| {
                let holder = candidates.get(*at).map(&holder);
                holder.and_then(|holder| self.afs_usage.weighted_usage_for(holder, settings))
            };
            order.sort_by(|a, b| usage(b).unwrap_or(0.0).total_cmp(&usage(a).unwrap_or(0.0)));
            for (spot, from) in spots.iter().zip(order) {
                if let Some(slot) = place.get_mut(from) {
                    *slot = *spot;
                }
            }
        }
        let mut placed: Vec<(usize, T)> = place.into_iter().zip(candidates.drain(..)).collect();
        placed.sort_by_key(|(spot, _)| *spot);
        candidates.extend(placed.into_iter().map(|(_, candidate)| candidate));
    }
}

/// Sorts candidates without regard to past usage. What decides mostly is looked up once for each and kept beside it.
pub(super) fn sort_by_importance<T>(
    candidates: &mut Vec<T>,
    own: NodeId,
    holder: impl Fn(&T) -> &ReservingWorkload,
) {
    let key = |holder: &ReservingWorkload| {
        let charge = &holder.charge;
        // One that is not confirmed yet counts as the newest.
        let newest = charge.reserved_at.map_or((0, Reverse(None)), |at| (1, Reverse(Some(at))));
        (!charge.evicted, holder.node == own, charge.priority, newest)
    };
    let mut keyed: Vec<_> = candidates.drain(..).map(|one| (key(holder(&one)), one)).collect();
    keyed.sort_by(|(x, a), (y, b)| {
        let (a, b) = (holder(a), holder(b));
        x.cmp(y).then_with(|| (&a.charge.uid, &a.key).cmp(&(&b.charge.uid, &b.key)))
    });
    candidates.extend(keyed.into_iter().map(|(_, one)| one));
}
