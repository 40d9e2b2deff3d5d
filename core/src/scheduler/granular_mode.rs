//! Evaluation of one flavor-resource for an amount, and the comparison of such results.
//!
//! Neighbours: `quota` answers what is available, `preemption` whether evictions help.

use super::compiled::CompiledClusterQueue;
use super::decision::PreemptionReason;
use super::preemption::{Preemptor, SchedulingContext};
use crate::api::v1beta2::{FlavorFungibility, FungibilityPolicy, FungibilityPreference};
use crate::queue::{Blocker, BlockerKind};
use crate::quota::{FlavorResourceId, LowestSubtree, UsageLayer};
use crate::resources::Amount;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::sync::Arc;

/// How an amount can be obtained, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PreemptionMode {
    /// Never.
    NoFit,
    /// Only by evicting, but there are no targets.
    NoCandidates,
    /// By evicting a workload of the same ClusterQueue.
    Preempt,
    /// By evicting workloads of other ClusterQueues that borrow.
    Reclaim,
    /// Without eviction.
    Fit,
}

impl PreemptionMode {
    /// Whether the amount depends on evictions.
    pub(super) const fn needs_preemption(self) -> bool {
        matches!(self, Self::NoCandidates | Self::Preempt | Self::Reclaim)
    }
}

/// Preemption mode and borrowing level of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GranularMode {
    pub(super) mode: PreemptionMode,
    /// Height of the smallest subtree that provides it; 0 is the ClusterQueue itself.
    pub(super) borrowing_level: u32,
}

impl GranularMode {
    pub(super) const BEST: Self = Self { mode: PreemptionMode::Fit, borrowing_level: 0 };
    pub(super) const WORST: Self = Self { mode: PreemptionMode::NoFit, borrowing_level: 0 };

    /// Whether this result is better. Modes that can succeed come before those that cannot; then the configured
    /// preference decides between preemption and borrowing.
    pub(super) fn is_preferred_over(self, other: Self, fungibility: &FlavorFungibility) -> bool {
        if self.mode <= PreemptionMode::NoCandidates || other.mode <= PreemptionMode::NoCandidates {
            let rank = |mode: PreemptionMode| mode.min(PreemptionMode::Preempt);
            if rank(self.mode) != rank(other.mode) {
                return rank(self.mode) > rank(other.mode);
            }
            if self.mode == PreemptionMode::NoFit {
                return false;
            }
        }
        match fungibility.preference {
            Some(FungibilityPreference::PreemptionOverBorrowing) => {
                (Reverse(self.borrowing_level), self.mode) > (Reverse(other.borrowing_level), other.mode)
            }
            _ => (self.mode, Reverse(self.borrowing_level)) > (other.mode, Reverse(other.borrowing_level)),
        }
    }

    /// Whether the scan should go on to later flavors.
    pub(super) fn should_try_next_flavor(self, fungibility: &FlavorFungibility) -> bool {
        let tries_next = |policy: Option<FungibilityPolicy>, default| {
            policy.unwrap_or(default) == FungibilityPolicy::TryNextFlavor
        };
        match self.mode {
            PreemptionMode::NoFit | PreemptionMode::NoCandidates => return true,
            PreemptionMode::Preempt | PreemptionMode::Reclaim
                if tries_next(fungibility.when_can_preempt, FungibilityPolicy::TryNextFlavor) =>
            {
                return true;
            }
            PreemptionMode::Preempt | PreemptionMode::Reclaim | PreemptionMode::Fit => {}
        }
        self.borrowing_level > 0 && tries_next(fungibility.when_can_borrow, FungibilityPolicy::MayStopSearch)
    }
}

/// The workload for which quota is evaluated.
#[derive(Clone, Copy)]
pub(super) struct Requester<'a> {
    pub(super) queue: &'a CompiledClusterQueue,
    pub(super) priority: i64,
    pub(super) queued_since: Timestamp,
}

impl SchedulingContext<'_> {
    /// Evaluates an amount of one flavor-resource against projected usage.
    pub(super) fn evaluate(
        &mut self,
        requester: &Requester,
        fr: FlavorResourceId,
        requested: i128,
    ) -> GranularMode {
        let node = requester.queue.node;
        if requested > self.tree.potential_available(node, fr) {
            return GranularMode::WORST;
        }
        if self.is_empty {
            return GranularMode::BEST;
        }
        let subtree = self.tree.lowest_subtree_for(node, fr, requested, UsageLayer::Projected);
        let level = subtree.height;
        if requested <= self.tree.available(node, fr, UsageLayer::Projected).max(0) {
            return GranularMode { mode: PreemptionMode::Fit, borrowing_level: level };
        }
        if !self.searches_targets(requester.queue, (fr, requested), subtree) {
            return GranularMode { mode: PreemptionMode::NoFit, borrowing_level: level };
        }
        self.simulate_preemption(requester, fr, requested, level)
    }

    /// Whether targets are searched for an amount that is in use, by the smallest subtree that could provide it: the ClusterQueue may
    /// take it back from nodes beside that subtree, or preempt while it borrows.
    fn searches_targets(
        &self,
        queue: &CompiledClusterQueue,
        (fr, requested): (FlavorResourceId, i128),
        subtree: LowestSubtree,
    ) -> bool {
        self.tree.subtree_quota(queue.node, fr) >= requested
            || subtree.has_parent
            || queue.policy.searches_while_borrowing()
    }

    /// Whether targets are searched for an amount if it is in use: never for one that exceeds all quota.
    pub(super) fn would_search_targets(
        &self,
        queue: &CompiledClusterQueue,
        (fr, requested): (FlavorResourceId, i128),
    ) -> bool {
        let subtree = self.tree.lowest_subtree_for(queue.node, fr, requested, UsageLayer::Projected);
        requested <= self.tree.potential_available(queue.node, fr)
            && self.searches_targets(queue, (fr, requested), subtree)
    }

    /// Simulates whether evictions would help with this flavor-resource alone.
    fn simulate_preemption(
        &mut self,
        requester: &Requester,
        fr: FlavorResourceId,
        requested: i128,
        level: u32,
    ) -> GranularMode {
        let usage = vec![(fr, requested)];
        let preemptor = Preemptor {
            queue: requester.queue,
            priority: requester.priority,
            queued_since: requester.queued_since,
            usage: &usage,
            frs_need_preemption: &[fr],
            pod_set_requests: &[],
        };
        let targets = self.find_targets(&preemptor);
        if targets.is_empty() {
            return GranularMode { mode: PreemptionMode::NoCandidates, borrowing_level: level };
        }
        let same_queue = targets.iter().any(|target| target.reason == PreemptionReason::InClusterQueue);
        for target in &targets {
            self.simulate_eviction(&preemptor, &target.workload);
        }
        let node = requester.queue.node;
        let level = self.tree.lowest_subtree_for(node, fr, requested, UsageLayer::Projected).height;
        for target in &targets {
            self.undo_eviction(&preemptor, &target.workload);
        }
        GranularMode {
            mode: if same_queue { PreemptionMode::Preempt } else { PreemptionMode::Reclaim },
            borrowing_level: level,
        }
    }

    /// Returns the blocker for an amount that does not fit, with the mode that was found for it.
    pub(super) fn blocker(
        &self,
        requester: &Requester,
        mode: PreemptionMode,
        (fr, requested): (FlavorResourceId, i128),
        pod_set: &Arc<str>,
    ) -> Blocker {
        let node = requester.queue.node;
        let never = requested > self.tree.potential_available(node, fr);
        let bottleneck = if never {
            self.tree.permanent_bottleneck(node, fr)
        } else {
            self.tree.current_bottleneck(node, fr, UsageLayer::Projected)
        };
        let available = self.tree.available(node, fr, UsageLayer::Projected).max(0);
        let name = self.tree.fr_name(fr);
        let (flavor, resource) =
            name.map(|name| (Arc::clone(&name.flavor), Arc::clone(&name.resource))).unwrap_or_default();
        // Evictions were not considered, since the amount exceeds the quota of the ClusterQueue itself.
        let exceeds_own =
            !never && mode == PreemptionMode::NoFit && requester.queue.policy.reclaim().is_some();
        let borrowed = if exceeds_own { self.fr_text(&[fr]) } else { Arc::default() };
        let (node, limit) = bottleneck.map(|bottleneck| (bottleneck.node, bottleneck.limit)).unzip();
        Blocker {
            pod_set: Arc::clone(pod_set),
            flavor,
            resource,
            node,
            requested: Amount::saturating_from_i128(requested),
            available: Amount::saturating_from_i128(available),
            limit: limit.unwrap_or_default(),
            borrowed,
            kind: if never { BlockerKind::NeverFits } else { BlockerKind::InUse },
        }
    }

    /// Names flavor-resources in a message.
    pub(super) fn fr_text(&self, frs: &[FlavorResourceId]) -> Arc<str> {
        let names = frs.iter().filter_map(|fr| self.tree.fr_name(*fr));
        let texts: Vec<String> =
            names.map(|name| format!("{} in flavor {}", name.resource, name.flavor)).collect();
        Arc::from(texts.join(", "))
    }
}
