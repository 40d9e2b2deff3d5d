//! How well one flavor and resource takes an amount, and which of two such answers is better.

use super::compiled::Queue;
use super::decision::PreemptionReason;
use super::preemption::{Field, Preemptor};
use crate::api::v1beta2::{FlavorFungibility, FungibilityPolicy, FungibilityPreference};
use crate::queue::{Blocker, BlockerKind};
use crate::quota::{Layer, PairId};
use crate::resources::Amount;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::sync::Arc;

/// How an amount can be had, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
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

impl Mode {
    /// Whether it is a matter of evictions.
    pub(super) const fn needs_room(self) -> bool {
        matches!(self, Self::NoCandidates | Self::Preempt | Self::Reclaim)
    }
}

/// Mode and how far up the tree the quota comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grade {
    pub(super) mode: Mode,
    /// Height of the smallest subtree that provides it; 0 is the queue itself.
    pub(super) level: u32,
}

impl Grade {
    pub(super) const BEST: Self = Self { mode: Mode::Fit, level: 0 };
    pub(super) const WORST: Self = Self { mode: Mode::NoFit, level: 0 };

    /// Whether this is better. What can succeed at all comes before what cannot; then the queue's preference decides
    /// between evictions and borrowing.
    pub(super) fn preferred_over(self, other: Self, fungibility: &FlavorFungibility) -> bool {
        if self.mode <= Mode::NoCandidates || other.mode <= Mode::NoCandidates {
            let rank = |mode: Mode| mode.min(Mode::Preempt);
            if rank(self.mode) != rank(other.mode) {
                return rank(self.mode) > rank(other.mode);
            }
            if self.mode == Mode::NoFit {
                return false;
            }
        }
        match fungibility.preference {
            Some(FungibilityPreference::PreemptionOverBorrowing) => {
                (Reverse(self.level), self.mode) > (Reverse(other.level), other.mode)
            }
            _ => (self.mode, Reverse(self.level)) > (other.mode, Reverse(other.level)),
        }
    }

    /// Whether later flavors deserve a look.
    pub(super) fn try_next(self, fungibility: &FlavorFungibility) -> bool {
        let goes_on = |policy: Option<FungibilityPolicy>, default| {
            policy.unwrap_or(default) == FungibilityPolicy::TryNextFlavor
        };
        match self.mode {
            Mode::NoFit | Mode::NoCandidates => return true,
            Mode::Preempt | Mode::Reclaim
                if goes_on(fungibility.when_can_preempt, FungibilityPolicy::TryNextFlavor) =>
            {
                return true;
            }
            Mode::Preempt | Mode::Reclaim | Mode::Fit => {}
        }
        self.level > 0 && goes_on(fungibility.when_can_borrow, FungibilityPolicy::MayStopSearch)
    }
}

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) queue: &'a Queue,
    pub(super) priority: i64,
    pub(super) queued_since: Timestamp,
}

impl Field<'_> {
    /// Grades an amount of one flavor and resource in the plan.
    pub(super) fn grade(&mut self, asker: &Asker, pair: PairId, need: i128) -> Grade {
        let node = asker.queue.node;
        if need > self.tree.potential(node, pair) {
            return Grade::WORST;
        }
        let (level, may_reclaim) = self.tree.lowest_subtree_for(node, pair, need, Layer::Planned);
        if need <= self.tree.available(node, pair, Layer::Planned).max(0) {
            return Grade { mode: Mode::Fit, level };
        }
        let worth_a_look = self.tree.nominal(node, pair) >= need
            || may_reclaim
            || self.may_preempt_while_borrowing(asker.queue);
        if !worth_a_look {
            return Grade { mode: Mode::NoFit, level };
        }
        self.grade_with_evictions(asker, pair, need, level)
    }

    /// Tries out whether evictions would help with this flavor and resource alone.
    fn grade_with_evictions(&mut self, asker: &Asker, pair: PairId, need: i128, level: u32) -> Grade {
        let usage = vec![(pair, need)];
        let preemptor = Preemptor {
            queue: asker.queue,
            priority: asker.priority,
            queued_since: asker.queued_since,
            usage: &usage,
            short: &[pair],
            parts: &[],
        };
        let targets = self.targets(&preemptor);
        if targets.is_empty() {
            return Grade { mode: Mode::NoCandidates, level };
        }
        let own = targets.iter().any(|target| target.reason == PreemptionReason::InClusterQueue);
        for target in &targets {
            self.take_out(&preemptor, &target.holder);
        }
        let (level, _) = self.tree.lowest_subtree_for(asker.queue.node, pair, need, Layer::Planned);
        for target in &targets {
            self.put_back(&preemptor, &target.holder);
        }
        Grade { mode: if own { Mode::Preempt } else { Mode::Reclaim }, level }
    }

    /// What stands in the way of an amount that is not a fit.
    pub(super) fn blocker(&self, asker: &Asker, pair: PairId, need: i128, pod_set: &Arc<str>) -> Blocker {
        let node = asker.queue.node;
        let never = need > self.tree.potential(node, pair);
        let binding = if never {
            self.tree.binds_ever(node, pair)
        } else {
            self.tree.binds_now(node, pair, Layer::Planned)
        };
        let have = self.tree.available(node, pair, Layer::Planned).max(0);
        let name = self.tree.pair_name(pair);
        let (flavor, resource) =
            name.map(|name| (Arc::clone(&name.flavor), Arc::clone(&name.resource))).unwrap_or_default();
        let (node, limit) = binding.map(|binding| (binding.node, binding.limit)).unzip();
        Blocker {
            pod_set: Arc::clone(pod_set),
            flavor,
            resource,
            node,
            need: Amount::from_wide(need),
            have: Amount::from_wide(have),
            limit: limit.unwrap_or_default(),
            kind: if never { BlockerKind::NeverFits } else { BlockerKind::InUse },
        }
    }
}
