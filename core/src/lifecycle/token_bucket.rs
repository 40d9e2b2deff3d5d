//! The arithmetic of rate limits: a token bucket that stores one time instead of a number of tokens (the generic cell
//! rate algorithm, GCRA).
//!
//! Each token takes `interval` of a time line. The bucket stores until when that line is taken; the part of it that lies
//! in the future is the debt. A token is available while the debt is at most `tolerance`, so `tolerance / interval + 1`
//! tokens may be taken at once.
//!
//! Invariants: time is an argument, measured from an origin that the caller chooses. All sums saturate.

use jiff::SignedDuration;

/// A token bucket.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    interval: SignedDuration,
    tolerance: SignedDuration,
    /// Until when the tokens taken so far use up the rate.
    taken_until: SignedDuration,
}

impl TokenBucket {
    /// Returns a full bucket: one token per `interval`, and tokens in advance while the debt is at most `tolerance`.
    pub const fn new(interval: SignedDuration, tolerance: SignedDuration) -> Self {
        Self { interval, tolerance, taken_until: SignedDuration::MIN }
    }

    /// The time that one token takes.
    pub const fn interval(&self) -> SignedDuration {
        self.interval
    }

    /// Takes one token, even if none is available.
    pub fn take(&mut self, now: SignedDuration) {
        self.taken_until = self.taken_until.max(now).saturating_add(self.interval);
    }

    /// Takes one token, if available.
    pub fn try_take(&mut self, now: SignedDuration) -> bool {
        let available = self.wait(now).is_zero();
        if available {
            self.take(now);
        }
        available
    }

    /// Returns the time until a token is available.
    pub fn wait(&self, now: SignedDuration) -> SignedDuration {
        self.debt(now).saturating_sub(self.tolerance).max(SignedDuration::ZERO)
    }

    /// Returns how many tokens the rest of the tolerance covers.
    pub fn covered(&self, now: SignedDuration) -> usize {
        let rest = self.tolerance.saturating_sub(self.debt(now));
        let number = rest.as_nanos().checked_div(self.interval.as_nanos()).unwrap_or(0);
        usize::try_from(number).unwrap_or(0)
    }

    fn debt(&self, now: SignedDuration) -> SignedDuration {
        self.taken_until.saturating_sub(now).max(SignedDuration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(number: i64) -> SignedDuration {
        SignedDuration::from_millis(number)
    }

    #[test]
    fn tokens_up_to_tolerance_are_available_at_once() {
        let mut bucket = TokenBucket::new(millis(100), millis(300));
        assert_eq!(bucket.covered(millis(5_000)), 3);
        let taken = (0..10).filter(|_| bucket.try_take(millis(5_000))).count();
        assert_eq!((taken, bucket.wait(millis(5_000)), bucket.covered(millis(5_000))), (4, millis(100), 0));
        assert!(!bucket.try_take(millis(5_099)));
        assert!(bucket.try_take(millis(5_100)));
    }

    #[test]
    fn steady_rate_is_one_token_per_interval() {
        let mut bucket = TokenBucket::new(millis(100), millis(0));
        assert_eq!((0..10_000).filter(|now| bucket.try_take(millis(*now))).count(), 100);
    }

    #[test]
    fn forced_tokens_are_paid_back() {
        let mut bucket = TokenBucket::new(millis(100), millis(100));
        for _ in 0..5 {
            bucket.take(millis(0));
        }
        assert_eq!(
            (bucket.wait(millis(0)), bucket.wait(millis(250)), bucket.wait(millis(400))),
            (millis(400), millis(150), millis(0))
        );
        assert_eq!((bucket.covered(millis(400)), bucket.covered(millis(500))), (0, 1));
    }

    #[test]
    fn extreme_times_saturate() {
        let mut bucket = TokenBucket::new(SignedDuration::MAX, millis(-1));
        assert!(!bucket.try_take(millis(0)));
        bucket.take(SignedDuration::MAX);
        assert_eq!(bucket.wait(SignedDuration::MIN), SignedDuration::MAX);
        assert_eq!(TokenBucket::new(millis(0), millis(100)).covered(millis(0)), 0);
    }
}
