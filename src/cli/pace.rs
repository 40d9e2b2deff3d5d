//! How often the core decides while changes keep coming: several cost little more together than the first of them alone, and a
//! write takes the server as long.
//!
//! Invariants: time is an argument; no pause is longer than `PACE`, however many batches came before it without one.

use std::time::Duration;
use tokio::time::Instant;

/// Mean time between two batches.
const PACE: Duration = Duration::from_millis(50);
/// Batches that may come without a pause after a quiet time.
const SPARE: u32 = 10;

/// Pauses between batches.
#[derive(Debug)]
pub(super) struct Pace {
    /// Until when pauses are paid for.
    paid: Instant,
}

impl Pace {
    /// After a quiet time.
    pub(super) fn new(now: Instant) -> Self {
        Self { paid: now }
    }

    /// The pause after a batch; none for one who is pressed, because nothing is decided yet or enough waits already.
    pub(super) fn after_batch(&mut self, now: Instant, pressed: bool) -> Duration {
        let spare = now.checked_sub(PACE * SPARE).unwrap_or(now);
        self.paid = (self.paid.max(spare) + PACE).min(now + PACE);
        if pressed { Duration::ZERO } else { self.paid.saturating_duration_since(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_without_a_pause_are_not_made_up_for() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..10_000 {
            assert_eq!(pace.after_batch(now, true), Duration::ZERO);
        }
        assert_eq!(pace.after_batch(now, false), PACE);
        assert_eq!(pace.after_batch(now + PACE, false), PACE);
    }

    #[test]
    fn the_first_after_a_quiet_time_do_not_wait_and_the_others_keep_the_pace() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        now += Duration::from_secs(1);
        for _ in 0..SPARE {
            assert_eq!(pace.after_batch(now, false), Duration::ZERO);
        }
        for _ in 0..100 {
            assert_eq!(pace.after_batch(now, false), PACE);
            now += PACE;
        }
        now += PACE * 3;
        assert_eq!(pace.after_batch(now, false), Duration::ZERO);
    }
}
