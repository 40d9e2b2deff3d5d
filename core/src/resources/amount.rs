//! `Amount`: a whole number of units of one resource (milli-units for cpu, one otherwise).
//!
//! Invariant: no operation wraps (I4). Results saturate at `i64`, whose maximum means "unlimited"; sums that must be undone
//! exactly (usage in the quota tree) are kept wider and narrowed only for display.

use std::fmt;

/// An amount of one resource. Saturating; may be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

impl Amount {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// No limit: more than any request.
    pub const UNLIMITED: Self = Self(i64::MAX);

    /// Returns the amount of `units` units.
    pub const fn new(units: i64) -> Self {
        Self(units)
    }

    /// Returns the number of units.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the number of units in a type in which sums of amounts do not saturate.
    pub fn to_i128(self) -> i128 {
        i128::from(self.0)
    }

    /// Returns the amount nearest to an exact sum.
    pub fn saturating_from_i128(units: i128) -> Self {
        Self(i64::try_from(units).unwrap_or(if units < 0 { i64::MIN } else { i64::MAX }))
    }

    /// Returns the sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, which may be negative.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns the product with `factor`.
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
