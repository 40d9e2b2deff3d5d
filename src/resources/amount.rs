//! `Amount`: how much of one resource, as a whole number of its unit (milli-units for cpu, one otherwise).
//!
//! Invariant: no operation wraps. Results stay within `i64`, whose largest value means "unlimited"; sums that have to be
//! undone exactly (usage in the quota tree) are kept wider than this and only narrowed to be shown.

use std::fmt;

/// An amount of one resource; saturating, and possibly negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than anybody can ask for.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// The amount of so many units.
    pub const fn new(units: i64) -> Self {
        Self(units)
    }

    /// The number of units.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The number of units in a type in which sums of amounts do not saturate.
    pub fn to_i128(self) -> i128 {
        i128::from(self.0)
    }

    /// The nearest amount to an exact sum.
    pub fn saturating_from_i128(units: i128) -> Self {
        Self(i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX }))
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, which may be negative.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// So many times this.
    #[must_use]
    pub const fn times(self, factor: i64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Amount;

    #[test]
    fn i04_amount_operations_saturate() {
        assert_eq!(Amount::UNLIMITED.plus(Amount::new(1)), Amount::UNLIMITED);
        assert_eq!(Amount::new(-2).minus(Amount::UNLIMITED).minus(Amount::UNLIMITED).get(), i64::MIN);
        assert_eq!(Amount::UNLIMITED.times(3), Amount::UNLIMITED);
        assert_eq!(Amount::new(3).minus(Amount::new(5)).get(), -2);
    }

    #[test]
    fn exact_sum_narrows_to_nearest_amount() {
        assert_eq!(Amount::saturating_from_i128(Amount::UNLIMITED.to_i128() * 2), Amount::UNLIMITED);
        assert_eq!(Amount::saturating_from_i128(i128::MIN).get(), i64::MIN);
        assert_eq!(Amount::saturating_from_i128(-7).get(), -7);
    }
}
