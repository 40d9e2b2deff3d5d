//! A budget of actions per second.

use std::time::Duration;

/// Allows a steady rate with a bounded burst. Time is an argument: any clock that does not go back.
#[derive(Clone, Debug)]
pub struct Budget {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Duration,
}

impl Budget {
    /// A full budget. A rate that is not positive allows nothing.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        Self { per_second: per_second.max(0.0), burst, tokens: burst, at: now }
    }

    /// Takes one action if there is one left.
    pub fn take(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.burst);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            true
        } else {
            false
        }
    }

    /// How long until there is one.
    pub fn wait(&self) -> Duration {
        if self.tokens >= 1.0 {
            return Duration::ZERO;
        }
        let seconds = (1.0 - self.tokens) / self.per_second;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_hours(1)).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_burst_plus_rate() {
        let mut budget = Budget::new(30.0, 30.0, Duration::ZERO);
        let taken = (0..10_000).filter(|ms| budget.take(Duration::from_millis(*ms))).count();
        assert!((325..=330).contains(&taken), "{taken} in ten seconds");
    }

    #[test]
    fn waiting_as_told_is_enough() {
        let mut budget = Budget::new(10.0, 1.0, Duration::ZERO);
        assert!(budget.take(Duration::ZERO));
        assert!(!budget.take(Duration::ZERO));
        assert!(budget.take(budget.wait() + Duration::from_millis(1)));
    }
}
