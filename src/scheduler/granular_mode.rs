//! How well one flavor and resource takes an amount, and which of two such answers is better.

use super::compiled::CompiledClusterQueue;
use super::decision::PreemptionReason;
use super::preemption::{Preemptor, SchedulingContext};
use crate::api::v1beta2::{FlavorFungibility, FungibilityPolicy, FungibilityPreference};
use crate::queue::{Blocker, BlockerKind};
use crate::quota::{FlavorResourceId, UsageLayer};
use crate::resources::Amount;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::sync::Arc;

/// How an amount can be had, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PreemptionMode {
    /// Not at all.
    NoFit,
    /// If somebody were evicted, but there is nobody to evict.
    NoCandidates,
    /// If somebody of the same queue is evicted.
    Preempt,
    /// If others who borrow are evicted.
    Reclaim,
    /// At once.
    Fit,
}

impl PreemptionMode {
    /// Whether it is a matter of evictions.
    pub(super) const fn needs_preemption(self) -> bool {
        matches!(self, Self::NoCandidates | Self::Preempt | Self::Reclaim)
    }
}

/// Mode and how far up the tree the quota comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GranularMode {
    pub(super) mode: PreemptionMode,
    /// Height of the smallest subtree that provides it; 0 is the queue itself.
    pub(super) borrowing_level: u32,
}

impl GranularMode {
    pub(super) const BEST: Self = Self { mode: PreemptionMode::Fit, borrowing_level: 0 };
    pub(super) const WORST: Self = Self { mode: PreemptionMode::NoFit, borrowing_level: 0 };

    /// Whether this is better. What can succeed at all comes before what cannot; then the queue's preference decides
    /// between evictions and borrowing.
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

    /// Whether later flavors deserve a look.
    pub(super) fn should_try_next_flavor(self, fungibility: &FlavorFungibility) -> bool {
        let goes_on = |policy: Option<FungibilityPolicy>, default| {
            policy.unwrap_or(default) == FungibilityPolicy::TryNextFlavor
        };
        match self.mode {
            PreemptionMode::NoFit | PreemptionMode::NoCandidates => return true,
            PreemptionMode::Preempt | PreemptionMode::Reclaim
                if goes_on(fungibility.when_can_preempt, FungibilityPolicy::TryNextFlavor) =>
            {
                return true;
            }
            PreemptionMode::Preempt | PreemptionMode::Reclaim | PreemptionMode::Fit => {}
        }
        self.borrowing_level > 0 && goes_on(fungibility.when_can_borrow, FungibilityPolicy::MayStopSearch)
    }
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct Requester<'a> {
    pub(super) queue: &'a CompiledClusterQueue,
    pub(super) priority: i64,
    pub(super) queued_since: Timestamp,
}

impl SchedulingContext<'_> {
    /// Grades an amount of one flavor and resource in the plan.
    pub(super) fn evaluate(&mut self, asker: &Requester, pair: FlavorResourceId, need: i128) -> GranularMode {
        let node = asker.queue.node;
        if need > self.tree.potential_available(node, pair) {
            return GranularMode::WORST;
        }
        let (level, may_reclaim) = self.tree.lowest_subtree_for(node, pair, need, UsageLayer::Projected);
        if need <= self.tree.available(node, pair, UsageLayer::Projected).max(0) {
            return GranularMode { mode: PreemptionMode::Fit, borrowing_level: level };
        }
        let worth_a_look = self.tree.subtree_quota(node, pair) >= need
            || may_reclaim
            || self.may_preempt_while_borrowing(asker.queue);
        if !worth_a_look {
            return GranularMode { mode: PreemptionMode::NoFit, borrowing_level: level };
        }
        self.simulate_preemption(asker, pair, need, level)
    }

    /// Tries out whether evictions would help with this flavor and resource alone.
    fn simulate_preemption(
        &mut self,
        asker: &Requester,
        pair: FlavorResourceId,
        need: i128,
        level: u32,
    ) -> GranularMode {
        let usage = vec![(pair, need)];
        let preemptor = Preemptor {
            queue: asker.queue,
            priority: asker.priority,
            queued_since: asker.queued_since,
            usage: &usage,
            frs_need_preemption: &[pair],
            pod_set_requests: &[],
        };
        let targets = self.find_targets(&preemptor);
        if targets.is_empty() {
            return GranularMode { mode: PreemptionMode::NoCandidates, borrowing_level: level };
        }
        let own = targets.iter().any(|target| target.reason == PreemptionReason::InClusterQueue);
        for target in &targets {
            self.simulate_eviction(&preemptor, &target.workload);
        }
        let (level, _) = self.tree.lowest_subtree_for(asker.queue.node, pair, need, UsageLayer::Projected);
        for target in &targets {
            self.undo_eviction(&preemptor, &target.workload);
        }
        GranularMode {
            mode: if own { PreemptionMode::Preempt } else { PreemptionMode::Reclaim },
            borrowing_level: level,
        }
    }

    /// What stands in the way of an amount that is not a fit.
    pub(super) fn blocker(
        &self,
        asker: &Requester,
        pair: FlavorResourceId,
        need: i128,
        pod_set: &Arc<str>,
    ) -> Blocker {
        let node = asker.queue.node;
        let never = need > self.tree.potential_available(node, pair);
        let binding = if never {
            self.tree.permanent_bottleneck(node, pair)
        } else {
            self.tree.current_bottleneck(node, pair, UsageLayer::Projected)
        };
        let have = self.tree.available(node, pair, UsageLayer::Projected).max(0);
        let name = self.tree.fr_name(pair);
        let (flavor, resource) =
            name.map(|name| (Arc::clone(&name.flavor), Arc::clone(&name.resource))).unwrap_or_default();
        let (node, limit) = binding.map(|binding| (binding.node, binding.limit)).unzip();
        Blocker {
            pod_set: Arc::clone(pod_set),
            flavor,
            resource,
            node,
            requested: Amount::saturating_from_i128(need),
            available: Amount::saturating_from_i128(have),
            limit: limit.unwrap_or_default(),
            kind: if never { BlockerKind::NeverFits } else { BlockerKind::InUse },
        }
    }
}
