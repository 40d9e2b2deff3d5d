//! A budget of actions per second.

use std::time::Duration;

/// Allows a steady rate with a bounded burst. Time is an argument: any clock that does not go back.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    refilled_at: Duration,
}

impl TokenBucket {
    /// A full budget. A rate that is not positive allows nothing.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        Self { per_second: per_second.max(0.0), burst, tokens: burst, refilled_at: now }
    }

    /// Takes one action if there is one left.
    pub fn try_acquire(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.refilled_at);
        self.refilled_at = self.refilled_at.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.burst);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            true
        } else {
            false
        }
    }

    /// How long until there is one.
    pub fn time_until_available(&self) -> Duration {
        if self.tokens >= 1.0 {
            return Duration::ZERO;
        }
        let seconds = (1.0 - self.tokens) / self.per_second;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(1)).max(Duration::from_millis(1))
    }
}

/// How many times fewer actions are allowed while much else is under way.
const UNDER_LOAD_DIVISOR: f64 = 10.0;

/// A budget, of which little is allowed while much else is under way: it would take the server's time from the others.
#[derive(Clone, Debug)]
pub struct AdaptiveRateLimiter {
    normal: TokenBucket,
    under_load: TokenBucket,
}

impl AdaptiveRateLimiter {
    /// A full budget.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        let trickle = TokenBucket::new(per_second / UNDER_LOAD_DIVISOR, 1.0, now);
        Self { normal: TokenBucket::new(per_second, burst, now), under_load: trickle }
    }

    /// Takes one action if there is one left. What one budget allows counts for both.
    pub fn try_acquire(&mut self, now: Duration, crowded: bool) -> bool {
        let (first, second) = if crowded {
            (&mut self.under_load, &mut self.normal)
        } else {
            (&mut self.normal, &mut self.under_load)
        };
        let taken = first.try_acquire(now);
        if taken {
            second.try_acquire(now);
        }
        taken
    }

    /// How long until there is one.
    pub fn time_until_available(&self, crowded: bool) -> Duration {
        if crowded { self.under_load.time_until_available() } else { self.normal.time_until_available() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_never_exceeds_burst_plus_rate() {
        let mut budget = TokenBucket::new(30.0, 30.0, Duration::ZERO);
        let taken = (0..10_000).filter(|ms| budget.try_acquire(Duration::from_millis(*ms))).count();
        assert!((325..=330).contains(&taken), "{taken} in ten seconds");
    }

    #[test]
    fn rate_drops_to_tenth_under_load() {
        let mut throttle = AdaptiveRateLimiter::new(50.0, 100.0, Duration::ZERO);
        let mut taken = |seconds: std::ops::Range<u64>, crowded| {
            let millis = seconds.start * 1000..seconds.end * 1000;
            millis.filter(|ms| throttle.try_acquire(Duration::from_millis(*ms), crowded)).count()
        };
        let (crowd, quiet) = (taken(0..10, true), taken(10..20, false));
        assert!((49..=52).contains(&crowd) && (598..=602).contains(&quiet), "{crowd} {quiet}");
    }

    #[test]
    fn returned_wait_suffices_for_next_token() {
        let mut budget = TokenBucket::new(10.0, 1.0, Duration::ZERO);
        assert!(budget.try_acquire(Duration::ZERO));
        assert!(!budget.try_acquire(Duration::ZERO));
        assert!(budget.try_acquire(budget.time_until_available() + Duration::from_millis(1)));
    }
}
