//! How well one flavor and resource takes an amount, and which of two such answers is better.

use crate::api::v1beta2::{BorrowPolicy, ClusterQueuePreemption, FlavorFungibility, FungibilityPolicy};
use crate::queue::{Blocker, BlockerKind};
use crate::quota::{FlavorResource, Path};
use crate::resources::Amount;
use std::sync::Arc;

/// How an amount can be had, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// Not at all.
    NoFit,
    /// If somebody were evicted, but there is nobody to evict.
    NoCandidates,
    /// At once.
    Fit,
}

/// Mode and how far up the tree the quota comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grade {
    pub(super) mode: Mode,
    /// Height of the smallest subtree that provides it; 0 is the queue itself.
    pub(super) level: u32,
}

impl Grade {
    pub(super) const BEST: Self = Self {
        mode: Mode::Fit,
        level: 0,
    };

    /// Whether this is better: what needs nobody's eviction, then what borrows from nearer by.
    pub(super) fn preferred_over(self, other: Self) -> bool {
        (self.mode, other.level) > (other.mode, self.level)
    }

    /// Whether later flavors deserve a look.
    pub(super) fn try_next(self, fungibility: &FlavorFungibility) -> bool {
        let borrowing_goes_on = fungibility.when_can_borrow == Some(FungibilityPolicy::TryNextFlavor);
        self.mode != Mode::Fit || (self.level > 0 && borrowing_goes_on)
    }
}

/// Grades an amount on a path; what is not a fit comes with its blocker.
pub(super) fn grade(
    path: &Path,
    need: i128,
    preemption: &ClusterQueuePreemption,
    pod_set: &Arc<str>,
    pair: &FlavorResource,
) -> (Grade, Option<Blocker>) {
    let have = path.available().max(0);
    let blocker = |kind: BlockerKind| {
        let binding = if kind == BlockerKind::NeverFits {
            path.binds_ever()
        } else {
            path.binds_now()
        };
        let (node, limit) = binding.map(|b| (b.node, b.limit)).unzip();
        Blocker {
            pod_set: Arc::clone(pod_set),
            flavor: Arc::clone(&pair.flavor),
            resource: Arc::clone(&pair.resource),
            node,
            need: Amount::from_wide(need),
            have: Amount::from_wide(have),
            limit: limit.unwrap_or_default(),
            kind,
        }
    };
    if need > path.potential() {
        return (
            Grade {
                mode: Mode::NoFit,
                level: 0,
            },
            Some(blocker(BlockerKind::NeverFits)),
        );
    }
    let (level, may_reclaim) = path.lowest_subtree_for(need);
    if need <= have {
        return (
            Grade {
                mode: Mode::Fit,
                level,
            },
            None,
        );
    }
    let policy = preemption
        .borrow_within_cohort
        .as_ref()
        .and_then(|b| b.policy)
        .unwrap_or_default();
    let worth_preempting = path.nominal() >= need || may_reclaim || policy != BorrowPolicy::Never;
    let mode = if worth_preempting {
        Mode::NoCandidates
    } else {
        Mode::NoFit
    };
    (Grade { mode, level }, Some(blocker(BlockerKind::InUse)))
}
