//! Exponential back-off, and time arithmetic that saturates instead of overflowing.

use jiff::{SignedDuration, Timestamp};
use std::time::Duration;

/// Returns `base * 2^(failures - 1)`, capped at `max`; zero for zero failures.
pub fn exponential(base: SignedDuration, max: SignedDuration, failures: u32) -> SignedDuration {
    if failures == 0 {
        return SignedDuration::ZERO;
    }
    let factor = 1_i32.checked_shl(failures.saturating_sub(1).min(30)).unwrap_or(i32::MAX);
    base.checked_mul(factor).unwrap_or(max).min(max)
}

/// Returns `now + wait`, or [`Timestamp::MAX`] if that overflows.
pub fn after(now: Timestamp, wait: SignedDuration) -> Timestamp {
    now.checked_add(wait).unwrap_or(Timestamp::MAX)
}

/// Returns the time from `start` to `now`, or zero if `start` is later.
pub fn elapsed(start: Timestamp, now: Timestamp) -> SignedDuration {
    now.duration_since(start).max(SignedDuration::ZERO)
}

/// Like [`elapsed`], as counters take it.
pub fn elapsed_duration(start: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(elapsed(start, now)).unwrap_or_default()
}

/// Converts whole seconds to a duration.
pub fn seconds(n: i32) -> SignedDuration {
    SignedDuration::from_secs(i64::from(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_maximum() {
        let wait = |n| exponential(seconds(60), seconds(3600), n).as_secs();
        assert_eq!([wait(0), wait(1), wait(2), wait(6), wait(7), wait(500)], [0, 60, 120, 1920, 3600, 3600]);
    }
}
