//! Who must go for whom: the choice of victims.
//!
//! Everything here is tried out in the plan of the quota tree and taken back exactly; nothing is decided. Victims that
//! must go already are not in the plan and are never chosen twice. Sources: `classic` without, `fair` with fair sharing.

mod candidates;
mod classic;
mod fair;

use super::afs_usage::AfsUsageLedger;
use super::compiled::CompiledClusterQueue;
use super::config::EngineSettings;
use super::decision::PreemptionReason;
use super::reserving_workloads::{ReservingWorkload, ReservingWorkloads};
use crate::api::ObjectKey;
use crate::api::v1beta2::{BorrowPolicy, ReclaimPolicy};
use crate::quota::{FlavorResourceId, NodeId, QuotaTree, Usage, UsageLayer};
use crate::topology::{CapacityView, TasCache, TasPodSetRequest};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What the choice is made from.
pub(super) struct SchedulingContext<'a> {
    pub(super) settings: &'a EngineSettings,
    pub(super) tree: &'a mut QuotaTree,
    pub(super) queues: &'a BTreeMap<Arc<str>, CompiledClusterQueue>,
    pub(super) reserving_workloads: &'a ReservingWorkloads,
    /// ClusterQueues whose workloads nobody may take.
    pub(super) inactive: &'a BTreeSet<NodeId>,
    pub(super) afs_usage: &'a AfsUsageLedger,
    pub(super) topology: &'a mut TasCache,
    /// Those who were evicted for the same workload before.
    pub(super) already_preempted: Option<&'a BTreeSet<ObjectKey>>,
    /// What was found before. The plan is the same at every question, and who asks as well.
    pub(super) target_cache: Vec<CachedTargets>,
}

/// A choice that was made: for which usage, and who must go. What it is short of follows from the usage.
pub(super) struct CachedTargets {
    usage: Usage,
    targets: Vec<Target>,
}

/// A workload that needs room.
#[derive(Clone, Copy)]
pub(super) struct Preemptor<'a> {
    pub(super) queue: &'a CompiledClusterQueue,
    pub(super) priority: i64,
    pub(super) queued_since: Timestamp,
    /// All that it asks for.
    pub(super) usage: &'a Usage,
    /// Where it does not fit.
    pub(super) frs_need_preemption: &'a [FlavorResourceId],
    /// Pods that need a place on nodes.
    pub(super) pod_set_requests: &'a [TasPodSetRequest],
}

/// One that could go.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) workload: Arc<ReservingWorkload>,
    pub(super) reason: PreemptionReason,
}

impl Target {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.workload.key
    }
}

impl SchedulingContext<'_> {
    /// Victims with whom gone the preemptor fits; none if there is no such choice.
    pub(super) fn find_targets(&mut self, preemptor: &Preemptor) -> Vec<Target> {
        let same = |known: &&CachedTargets| known.usage == *preemptor.usage;
        let plain = preemptor.pod_set_requests.is_empty();
        if let Some(known) = self.target_cache.iter().find(same).filter(|_| plain) {
            return known.targets.clone();
        }
        let fair = self.settings.fair_sharing.is_some();
        let targets =
            if fair { self.fair_sharing_targets(preemptor) } else { self.classical_targets(preemptor) };
        if plain {
            self.target_cache
                .push(CachedTargets { usage: preemptor.usage.clone(), targets: targets.clone() });
        }
        targets
    }

    /// Whether a ClusterQueue may evict at all, so that a look for victims is worth while.
    pub(super) fn may_preempt_while_borrowing(&self, queue: &CompiledClusterQueue) -> bool {
        let preemption = &queue.config.preemption;
        if self.settings.fair_sharing.is_some() {
            // As in Kueue, where the field is never absent but in objects that nobody defaulted.
            preemption.reclaim_within_cohort != Some(ReclaimPolicy::Never)
        } else {
            allows_borrow_within_cohort(queue)
        }
    }

    /// Whether the usage fits the plan of the preemptor's queue, and the pods the nodes.
    fn fits(&mut self, preemptor: &Preemptor, borrowing: bool) -> bool {
        let node = preemptor.queue.node;
        // Where nothing is asked for, it does not matter who is beyond what.
        let quota = preemptor.usage.iter().filter(|(_, amount)| *amount > 0).all(|(pair, amount)| {
            let own = borrowing || !self.tree.borrows_with(node, *pair, *amount, UsageLayer::Projected);
            own && *amount <= self.tree.available(node, *pair, UsageLayer::Projected).max(0)
        });
        let rules = self.settings.gates.placement;
        quota
            && (preemptor.pod_set_requests.is_empty()
                || self.topology.can_place(preemptor.pod_set_requests, CapacityView::Projected, rules))
    }

    pub(super) fn simulate_eviction(&mut self, preemptor: &Preemptor, holder: &ReservingWorkload) {
        self.shift_usage(preemptor, holder, -1);
    }

    pub(super) fn undo_eviction(&mut self, preemptor: &Preemptor, holder: &ReservingWorkload) {
        self.shift_usage(preemptor, holder, 1);
    }

    /// Nodes are left alone where no places are asked for: moving them costs far more than moving quota.
    fn shift_usage(&mut self, preemptor: &Preemptor, holder: &ReservingWorkload, sign: i128) {
        self.tree.simulate_usage(holder.node, &holder.usage, sign);
        if !preemptor.pod_set_requests.is_empty() {
            self.topology.shift_usage(&holder.footprint, sign, UsageLayer::Projected);
        }
    }

    /// Lets go of victims that turn out not to be needed, from the last but one to the first, and puts all back.
    fn drop_unneeded_targets(
        &mut self,
        preemptor: &Preemptor,
        mut targets: Vec<Target>,
        fits: impl Fn(&mut Self) -> bool,
    ) -> Vec<Target> {
        for at in (0..targets.len().saturating_sub(1)).rev() {
            let Some(holder) = targets.get(at).map(|target| Arc::clone(&target.workload)) else {
                continue;
            };
            self.undo_eviction(preemptor, &holder);
            if fits(self) {
                targets.swap_remove(at);
            } else {
                self.simulate_eviction(preemptor, &holder);
            }
        }
        for target in &targets {
            self.undo_eviction(preemptor, &target.workload);
        }
        targets
    }

    /// Whether a node uses no more than it owns of any of these.
    fn within_nominal(&self, node: NodeId, pairs: &[FlavorResourceId]) -> bool {
        pairs.iter().all(|pair| self.tree.within_nominal(node, *pair, UsageLayer::Projected))
    }
}

/// Whether workloads of other queues may be taken while the preemptor's queue borrows.
fn allows_borrow_within_cohort(queue: &CompiledClusterQueue) -> bool {
    let policy = queue.config.preemption.borrow_within_cohort.as_ref().and_then(|borrow| borrow.policy);
    policy.unwrap_or_default() != BorrowPolicy::Never
}
