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

/// How many times fewer actions are allowed while much else is under way.
const CROWDED: f64 = 10.0;

/// A budget, of which little is allowed while much else is under way: it would take the server's time from the others.
#[derive(Clone, Debug)]
pub struct Throttle {
    full: Budget,
    trickle: Budget,
}

impl Throttle {
    /// A full budget.
    pub fn new(per_second: f64, burst: f64, now: Duration) -> Self {
        let trickle = Budget::new(per_second / CROWDED, 1.0, now);
        Self { full: Budget::new(per_second, burst, now), trickle }
    }

    /// Takes one action if there is one left. What one budget allows counts for both.
    pub fn take(&mut self, now: Duration, crowded: bool) -> bool {
        let (first, second) =
            if crowded { (&mut self.trickle, &mut self.full) } else { (&mut self.full, &mut self.trickle) };
        let taken = first.take(now);
        if taken {
            second.take(now);
        }
        taken
    }

    /// How long until there is one.
    pub fn wait(&self, crowded: bool) -> Duration {
        if crowded { self.trickle.wait() } else { self.full.wait() }
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
    fn a_tenth_of_it_while_much_else_is_under_way() {
        let mut throttle = Throttle::new(50.0, 100.0, Duration::ZERO);
        let mut taken = |seconds: std::ops::Range<u64>, crowded| {
            let millis = seconds.start * 1000..seconds.end * 1000;
            millis.filter(|ms| throttle.take(Duration::from_millis(*ms), crowded)).count()
        };
        let (crowd, quiet) = (taken(0..10, true), taken(10..20, false));
        assert!((49..=52).contains(&crowd) && (598..=602).contains(&quiet), "{crowd} {quiet}");
    }

    #[test]
    fn waiting_as_told_is_enough() {
        let mut budget = Budget::new(10.0, 1.0, Duration::ZERO);
        assert!(budget.take(Duration::ZERO));
        assert!(!budget.take(Duration::ZERO));
        assert!(budget.take(budget.wait() + Duration::from_millis(1)));
    }
}
