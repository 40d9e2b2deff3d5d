//! How often the core decides while changes keep coming: several cost little more together than the first of them alone, and a
//! write takes the server as long.
//!
//! Invariants: time is an argument; no pause is longer than `PACE`, however many batches came before it without one.

use std::time::Duration;
use tokio::time::Instant;

/// Mean time between two batches.
const BATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Batches that may come without a pause after a quiet time.
const MAX_BURST: u32 = 10;

/// Pauses between batches.
#[derive(Debug)]
pub(super) struct BatchPacer {
    /// Until when pauses are paid for.
    paced_until: Instant,
}

impl BatchPacer {
    /// After a quiet time.
    pub(super) fn new(now: Instant) -> Self {
        Self { paced_until: now }
    }

    /// The pause after a batch; none for one who is pressed, because nothing is decided yet or enough waits already.
    pub(super) fn pause_after_batch(&mut self, now: Instant, pressed: bool) -> Duration {
        let spare = now.checked_sub(BATCH_INTERVAL * MAX_BURST).unwrap_or(now);
        self.paced_until = (self.paced_until.max(spare) + BATCH_INTERVAL).min(now + BATCH_INTERVAL);
        if pressed { Duration::ZERO } else { self.paced_until.saturating_duration_since(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_pauses_are_not_accumulated() {
        let now = Instant::now();
        let mut pace = BatchPacer::new(now);
        for _ in 0..10_000 {
            assert_eq!(pace.pause_after_batch(now, true), Duration::ZERO);
        }
        assert_eq!(pace.pause_after_batch(now, false), BATCH_INTERVAL);
        assert_eq!(pace.pause_after_batch(now + BATCH_INTERVAL, false), BATCH_INTERVAL);
    }

    #[test]
    fn burst_after_idle_is_not_delayed() {
        let mut now = Instant::now();
        let mut pace = BatchPacer::new(now);
        now += Duration::from_secs(1);
        for _ in 0..MAX_BURST {
            assert_eq!(pace.pause_after_batch(now, false), Duration::ZERO);
        }
        for _ in 0..100 {
            assert_eq!(pace.pause_after_batch(now, false), BATCH_INTERVAL);
            now += BATCH_INTERVAL;
        }
        now += BATCH_INTERVAL * 3;
        assert_eq!(pace.pause_after_batch(now, false), Duration::ZERO);
    }
}
