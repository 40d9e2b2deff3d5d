//! Rate limiters.

use std::time::Duration;

/// A token bucket: a steady rate with a bounded burst. Time is an argument and must be monotonic.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    refilled_at: Duration,
}

impl TokenBucket {
    /// Returns a full bucket. It never refills if the rate is not positive.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        Self { per_second: per_second.max(0.0), burst, tokens: burst, refilled_at: now }
    }

    /// Takes one token, if available.
    pub fn try_acquire(&mut self, now: Duration) -> bool {
        let elapsed = now.saturating_sub(self.refilled_at);
        self.refilled_at = self.refilled_at.max(now);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.per_second).min(self.burst);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            true
        } else {
            false
        }
    }

    /// Returns the time until the next token is available, as of the last `try_acquire`.
    pub fn time_until_available(&self) -> Duration {
        if self.tokens >= 1.0 {
            return Duration::ZERO;
        }
        let seconds = (1.0 - self.tokens) / self.per_second;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(1)).max(Duration::from_millis(1))
    }
}

/// Factor by which the rate is lower under load.
const UNDER_LOAD_DIVISOR: f64 = 10.0;

/// A rate limiter with a lower rate under load, when its actions would slow down others at the server.
#[derive(Clone, Debug)]
pub struct AdaptiveRateLimiter {
    normal: TokenBucket,
    under_load: TokenBucket,
}

impl AdaptiveRateLimiter {
    /// Returns a full limiter.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        let under_load = TokenBucket::new(per_second / UNDER_LOAD_DIVISOR, 1.0, now);
        Self { normal: TokenBucket::new(per_second, burst, now), under_load }
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
    fn bucket_never_exceeds_burst_plus_rate() {
        let mut bucket = TokenBucket::new(30.0, 30.0, Duration::ZERO);
        let acquired = (0..10_000).filter(|ms| bucket.try_acquire(Duration::from_millis(*ms))).count();
        assert!((325..=330).contains(&acquired), "{acquired} tokens in 10 s");
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
        let mut bucket = TokenBucket::new(10.0, 1.0, Duration::ZERO);
        assert!(bucket.try_acquire(Duration::ZERO));
        assert!(!bucket.try_acquire(Duration::ZERO));
        assert!(bucket.try_acquire(bucket.time_until_available() + Duration::from_millis(1)));
    }
}
