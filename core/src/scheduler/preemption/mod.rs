//! Preemption: selects the targets that a preemptor would have to evict.
//!
//! Invariants: evictions are only simulated in projected usage and undone exactly; nothing is decided here. Workloads
//! that are already terminating are not in projected usage and are never selected again.
//! Neighbours: `policy` has the rules of a ClusterQueue; `classic` selects without fair sharing, `fair` with it; `candidates`
//! filters and sorts for both.

mod candidates;
mod classic;
mod fair;
mod policy;

pub use policy::{Attempt, EvictionRank, EvictionRule, EvictionScope, PreemptionPolicy, VictimPriority};

use super::afs_usage::AfsUsageLedger;
use super::compiled::CompiledClusterQueue;
use super::config::{EngineGates, EngineSettings};
use super::configured_objects::{ConfiguredObjects, InactiveQueues};
use super::decision::PreemptionReason;
use super::reserving_workloads::{ReservingWorkload, ReservingWorkloads};
use crate::api::ObjectKey;
use crate::quota::{FlavorResourceId, NodeId, QuotaTree, Usage, UsageLayer};
use crate::topology::{CapacityView, TasCache, TasPodSetRequest};
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// State that assignment and target selection read and simulate on.
pub(super) struct SchedulingContext<'a> {
    pub(super) settings: &'a EngineSettings,
    pub(super) tree: &'a mut QuotaTree,
    pub(super) config: &'a ConfiguredObjects,
    pub(super) reserving_workloads: &'a ReservingWorkloads,
    /// Missing or inactive ClusterQueues; their workloads are never candidates.
    pub(super) inactive: &'a InactiveQueues,
    pub(super) afs_usage: &'a AfsUsageLedger,
    pub(super) topology: &'a mut TasCache,
    /// Workloads that the same preemptor has evicted before (`preemption_history`).
    pub(super) already_preempted: Option<&'a BTreeSet<ObjectKey>>,
    /// Cache of earlier target searches; valid because preemptor and projected usage do not change within one
    /// nomination.
    pub(super) target_cache: Vec<CachedTargets>,
    /// Whether quota and nodes count as empty.
    pub(super) is_empty: bool,
}

/// What decides whether a flavor suits pods, whatever is in use.
#[derive(Clone, Copy)]
pub(super) struct FlavorRules<'a> {
    pub(super) gates: &'a EngineGates,
    pub(super) topology: &'a TasCache,
}

/// Result of an earlier target search. The usage alone is the key: it determines `frs_need_preemption`.
pub(super) struct CachedTargets {
    usage: Usage,
    targets: Vec<Target>,
}

/// A workload that needs capacity, with its request.
#[derive(Clone, Copy)]
pub(super) struct Preemptor<'a> {
    pub(super) queue: &'a CompiledClusterQueue,
    pub(super) priority: i64,
    pub(super) queued_since: Timestamp,
    /// Everything that it requests.
    pub(super) usage: &'a Usage,
    /// Flavor-resources in which it does not fit.
    pub(super) frs_need_preemption: &'a [FlavorResourceId],
    /// Pod sets that need a topology assignment.
    pub(super) pod_set_requests: &'a [TasPodSetRequest],
}

/// A candidate selected for eviction.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) workload: Arc<ReservingWorkload>,
    pub(super) reason: PreemptionReason,
}

/// A workload that policies allow a preemptor to evict.
pub(super) struct EvictionCandidate {
    pub(super) workload: Arc<ReservingWorkload>,
    /// Why it would be evicted.
    pub(super) reason: PreemptionReason,
    /// Whether an attempt may evict it in which a request of this size could fit.
    pub(super) is_eligible: bool,
}

impl Preemptor<'_> {
    /// What decides which workloads it may evict.
    fn rank(&self) -> EvictionRank {
        EvictionRank { priority: self.priority, queued_since: self.queued_since }
    }
}

impl Target {
    pub(super) fn key(&self) -> &ObjectKey {
        &self.workload.key
    }
}

impl SchedulingContext<'_> {
    /// Borrows the part that says whether a flavor suits pods.
    pub(super) fn flavor_rules(&self) -> FlavorRules<'_> {
        FlavorRules { gates: &self.settings.gates, topology: &*self.topology }
    }

    /// Returns targets whose eviction makes the preemptor fit; empty if there are none.
    pub(super) fn find_targets(&mut self, preemptor: &Preemptor) -> Vec<Target> {
        let same_usage = |cached: &&CachedTargets| cached.usage == *preemptor.usage;
        let cacheable = preemptor.pod_set_requests.is_empty();
        if let Some(cached) = self.target_cache.iter().find(same_usage).filter(|_| cacheable) {
            return cached.targets.clone();
        }
        let fair = self.settings.fair_sharing.is_some();
        let targets =
            if fair { self.fair_sharing_targets(preemptor) } else { self.classical_targets(preemptor) };
        if cacheable {
            self.target_cache
                .push(CachedTargets { usage: preemptor.usage.clone(), targets: targets.clone() });
        }
        targets
    }

    /// Returns the candidates of a preemptor, those of its own ClusterQueue first. Whether the preemptor fits without them is not asked.
    pub(super) fn candidates(&self, preemptor: &Preemptor) -> Vec<EvictionCandidate> {
        let eligible =
            |workload, reason: PreemptionReason| EvictionCandidate { workload, reason, is_eligible: true };
        let own = self.own_candidates(preemptor).into_iter();
        let mut all: Vec<EvictionCandidate> =
            own.map(|workload| eligible(workload, PreemptionReason::InClusterQueue)).collect();
        if self.settings.fair_sharing.is_some() {
            let others = self.borrowing_candidates(preemptor).into_iter();
            all.extend(others.map(|workload| eligible(workload, PreemptionReason::InCohortFairSharing)));
        } else {
            all.extend(self.classical_candidates(preemptor));
        }
        all
    }

    /// Whether the preemptor fits projected usage of its ClusterQueue, and its pods the nodes.
    fn fits(&mut self, preemptor: &Preemptor, attempt: Attempt) -> bool {
        let node = preemptor.queue.node;
        // A flavor-resource with a request of zero fits even if its usage exceeds the quota.
        let quota = preemptor.usage.iter().filter(|(_, amount)| *amount > 0).all(|(fr, amount)| {
            let allowed = attempt == Attempt::Borrowing
                || !self.tree.borrows_with(node, *fr, *amount, UsageLayer::Projected);
            allowed && *amount <= self.tree.available(node, *fr, UsageLayer::Projected).max(0)
        });
        let gates = self.settings.gates.placement;
        quota
            && (preemptor.pod_set_requests.is_empty()
                || self.topology.can_place(preemptor.pod_set_requests, CapacityView::Projected, gates))
    }

    pub(super) fn simulate_eviction(&mut self, preemptor: &Preemptor, workload: &ReservingWorkload) {
        self.shift_usage(preemptor, workload, -1);
    }

    pub(super) fn undo_eviction(&mut self, preemptor: &Preemptor, workload: &ReservingWorkload) {
        self.shift_usage(preemptor, workload, 1);
    }

    /// Skips the topology cache if the preemptor needs no nodes: updating it costs far more than updating quota.
    fn shift_usage(&mut self, preemptor: &Preemptor, workload: &ReservingWorkload, sign: i128) {
        self.tree.simulate_usage(workload.node, &workload.usage, sign);
        if !preemptor.pod_set_requests.is_empty() {
            self.topology.shift_usage(&workload.footprint, sign, UsageLayer::Projected);
        }
    }

    /// Removes targets that prove unnecessary, from the last but one to the first, and undoes all simulated
    /// evictions.
    fn drop_unneeded_targets(
        &mut self,
        preemptor: &Preemptor,
        mut targets: Vec<Target>,
        fits: impl Fn(&mut Self) -> bool,
    ) -> Vec<Target> {
        for index in (0..targets.len().saturating_sub(1)).rev() {
            let Some(workload) = targets.get(index).map(|target| Arc::clone(&target.workload)) else {
                continue;
            };
            self.undo_eviction(preemptor, &workload);
            if fits(self) {
                targets.swap_remove(index);
            } else {
                self.simulate_eviction(preemptor, &workload);
            }
        }
        for target in &targets {
            self.undo_eviction(preemptor, &target.workload);
        }
        targets
    }

    /// Whether the projected usage of a node is within nominal quota for all given flavor-resources.
    fn within_nominal(&self, node: NodeId, frs: &[FlavorResourceId]) -> bool {
        frs.iter().all(|fr| self.tree.within_nominal(node, *fr, UsageLayer::Projected))
    }
}
