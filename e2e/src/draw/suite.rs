//! The suites, which are named after the recorded ones whose cases were generated over eight cycles.

use std::ops::RangeInclusive;

/// The suite in whose style a scenario is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suite {
    /// One cohort, or none.
    Flat,
    /// Trees of cohorts with quotas of their own.
    Hier,
    /// The same with fair sharing: weights and strategies.
    Fair,
    /// Flavors with labels and taints, pods that select them.
    Flavor,
    /// Flavors with a topology, nodes that fail.
    Tas,
}

impl Suite {
    /// Returns the suite of a scenario: one after the other, so that each has a fifth.
    pub(super) fn of(number: u64) -> Self {
        match number % 5 {
            0 => Self::Flat,
            1 => Self::Hier,
            2 => Self::Fair,
            3 => Self::Flavor,
            _ => Self::Tas,
        }
    }

    /// Returns the name, that of the recorded suite without `generated-`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Hier => "hier",
            Self::Fair => "fair",
            Self::Flavor => "flavor",
            Self::Tas => "tas",
        }
    }

    /// Returns the possible numbers of ResourceFlavors.
    pub(super) const fn flavors(self) -> RangeInclusive<u64> {
        match self {
            Self::Flat | Self::Hier | Self::Fair => 1..=3,
            Self::Flavor => 2..=4,
            Self::Tas => 1..=2,
        }
    }

    /// Returns the possible numbers of ClusterQueues.
    pub(super) const fn queues(self) -> RangeInclusive<u64> {
        match self {
            Self::Flat => 1..=4,
            Self::Hier | Self::Fair => 2..=6,
            Self::Flavor | Self::Tas => 1..=5,
        }
    }

    /// Returns whether there are Cohort objects.
    pub(super) const fn has_trees(self) -> bool {
        matches!(self, Self::Hier | Self::Fair)
    }

    /// Returns whether a ClusterQueue may have two resource groups.
    pub(super) const fn has_two_groups(self) -> bool {
        matches!(self, Self::Hier | Self::Fair | Self::Flavor)
    }
}
