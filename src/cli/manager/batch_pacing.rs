//! Pauses between delta batches of the core. Several deltas in one batch cost little more than one, so pauses under
//! load save CPU time; a write takes the API server about as long as a pause.
//!
//! Invariants: time is an argument; no pause is longer than `BATCH_INTERVAL`, however many batches were not paused
//! before.

use std::time::Duration;
use tokio::time::Instant;

/// Mean interval between two batches.
const BATCH_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of batches without a pause after an idle time.
const MAX_BURST: u32 = 10;

/// Pauses between batches.
#[derive(Debug)]
pub(super) struct BatchPacer {
    /// Time up to which batches have used their interval.
    paced_until: Instant,
}

impl BatchPacer {
    /// Creates a pacer with a full burst.
    pub(super) fn new(now: Instant) -> Self {
        Self { paced_until: now }
    }

    /// Returns the pause after a batch. There is none if `skip_pause` is set: before the initial lists are processed,
    /// or while many deltas wait.
    pub(super) fn pause_after_batch(&mut self, now: Instant, skip_pause: bool) -> Duration {
        let earliest = now.checked_sub(BATCH_INTERVAL * MAX_BURST).unwrap_or(now);
        self.paced_until = (self.paced_until.max(earliest) + BATCH_INTERVAL).min(now + BATCH_INTERVAL);
        if skip_pause { Duration::ZERO } else { self.paced_until.saturating_duration_since(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_pauses_are_not_accumulated() {
        let now = Instant::now();
        let mut pacer = BatchPacer::new(now);
        for _ in 0..10_000 {
            assert_eq!(pacer.pause_after_batch(now, true), Duration::ZERO);
        }
        assert_eq!(pacer.pause_after_batch(now, false), BATCH_INTERVAL);
        assert_eq!(pacer.pause_after_batch(now + BATCH_INTERVAL, false), BATCH_INTERVAL);
    }

    #[test]
    fn burst_after_idle_is_not_delayed() {
        let mut now = Instant::now();
        let mut pacer = BatchPacer::new(now);
        now += Duration::from_secs(1);
        for _ in 0..MAX_BURST {
            assert_eq!(pacer.pause_after_batch(now, false), Duration::ZERO);
        }
        for _ in 0..100 {
            assert_eq!(pacer.pause_after_batch(now, false), BATCH_INTERVAL);
            now += BATCH_INTERVAL;
        }
        now += BATCH_INTERVAL * 3;
        assert_eq!(pacer.pause_after_batch(now, false), Duration::ZERO);
    }
}
