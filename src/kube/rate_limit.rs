//! Rate limiters of calls, by rate and burst.
//!
//! Neighbours: `lifecycle::token_bucket` holds the arithmetic.

use std::time::Duration;

use jiff::SignedDuration;

use crate::lifecycle::token_bucket::TokenBucket;

/// Time per token where the rate is not positive: longer than any process runs.
const NEVER: SignedDuration = SignedDuration::from_hours(24 * 365 * 100);
/// Limits of a wait. The upper one ends waits for a token that never comes; the caller asks again.
const MIN_WAIT: SignedDuration = SignedDuration::from_millis(1);
const MAX_WAIT: SignedDuration = SignedDuration::from_hours(1);

/// A steady rate with a bounded burst. Time is an argument; an earlier time than before counts as the latest one.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    bucket: TokenBucket,
    latest: SignedDuration,
}

impl RateLimiter {
    /// Returns a limiter with a whole burst available. It never refills if the rate is not positive.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        let interval =
            SignedDuration::try_from_secs_f64(1.0 / per_second.max(0.0)).unwrap_or(NEVER).min(NEVER);
        let tolerance = SignedDuration::try_from_secs_f64(interval.as_secs_f64() * (burst - 1.0))
            .unwrap_or(SignedDuration::MAX);
        Self { bucket: TokenBucket::new(interval, tolerance), latest: signed(now) }
    }

    /// Takes one token, if available.
    pub fn try_acquire(&mut self, now: Duration) -> bool {
        self.latest = self.latest.max(signed(now));
        self.bucket.try_take(self.latest)
    }

    /// Returns the time until the next token is available, as of the last `try_acquire`.
    pub fn time_until_available(&self) -> Duration {
        let wait = self.bucket.wait(self.latest);
        if wait.is_zero() { Duration::ZERO } else { wait.clamp(MIN_WAIT, MAX_WAIT).unsigned_abs() }
    }
}

fn signed(time: Duration) -> SignedDuration {
    SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)
}

/// Factor by which the rate is lower under load.
const UNDER_LOAD_DIVISOR: f64 = 10.0;

/// A rate limiter with a lower rate under load, when its actions would slow down others at the server.
#[derive(Clone, Debug)]
pub struct AdaptiveRateLimiter {
    normal: RateLimiter,
    under_load: RateLimiter,
}

impl AdaptiveRateLimiter {
    /// Returns a full limiter.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        let under_load = RateLimiter::new(per_second / UNDER_LOAD_DIVISOR, 1.0, now);
        Self { normal: RateLimiter::new(per_second, burst, now), under_load }
    }

    /// Takes one token, if available. It counts for both rates.
    pub fn try_acquire(&mut self, now: Duration, under_load: bool) -> bool {
        let (first, second) = if under_load {
            (&mut self.under_load, &mut self.normal)
        } else {
            (&mut self.normal, &mut self.under_load)
        };
        let acquired = first.try_acquire(now);
        if acquired {
            second.try_acquire(now);
        }
        acquired
    }

    /// Returns the time until the next token is available, as of the last `try_acquire`.
    pub fn time_until_available(&self, under_load: bool) -> Duration {
        if under_load { self.under_load.time_until_available() } else { self.normal.time_until_available() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limiter_never_exceeds_burst_plus_rate() {
        let mut limiter = RateLimiter::new(30.0, 30.0, Duration::ZERO);
        let acquired = (0..10_000).filter(|ms| limiter.try_acquire(Duration::from_millis(*ms))).count();
        assert!((325..=330).contains(&acquired), "{acquired} tokens in 10 s");
    }

    #[test]
    fn whole_burst_is_available_at_any_rate() {
        for rate in [1.0, 3.0, 7.0, 30.0, 50.0, 60.0, 333.0] {
            for burst in [1.0, 2.0, 30.0, 60.0, 100.0, 1000.0] {
                let mut limiter = RateLimiter::new(rate, burst, Duration::ZERO);
                let acquired = (0..2_000).filter(|_| limiter.try_acquire(Duration::ZERO)).count();
                assert_eq!(acquired.to_string(), burst.to_string(), "rate {rate}");
            }
        }
    }

    #[test]
    fn limiter_without_rate_never_refills() {
        let mut limiter = RateLimiter::new(0.0, 2.0, Duration::ZERO);
        let acquired = (0..10).filter(|_| limiter.try_acquire(Duration::ZERO)).count();
        assert_eq!((acquired, limiter.try_acquire(Duration::from_hours(10_000))), (2, false));
        assert_eq!(limiter.time_until_available(), Duration::from_hours(1));
    }

    #[test]
    fn rate_drops_to_tenth_under_load() {
        let mut limiter = AdaptiveRateLimiter::new(50.0, 100.0, Duration::ZERO);
        let mut acquired = |seconds: std::ops::Range<u64>, under_load| {
            let millis = seconds.start * 1000..seconds.end * 1000;
            millis.filter(|ms| limiter.try_acquire(Duration::from_millis(*ms), under_load)).count()
        };
        let (loaded, quiet) = (acquired(0..10, true), acquired(10..20, false));
        assert!((49..=52).contains(&loaded) && (598..=602).contains(&quiet), "{loaded} {quiet}");
    }

    #[test]
    fn returned_wait_suffices_for_next_token() {
        let mut limiter = RateLimiter::new(10.0, 1.0, Duration::ZERO);
        assert!(limiter.try_acquire(Duration::ZERO));
        assert!(!limiter.try_acquire(Duration::ZERO));
        assert!(limiter.try_acquire(limiter.time_until_available() + Duration::from_millis(1)));
    }
}
