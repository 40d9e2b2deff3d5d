//! Heartbeats of the tasks that a leader depends on.
//!
//! Invariant: a task beats at least once a second while it makes progress, also when it is idle. A renewal of the lease
//! counts from the oldest beat, so a task that hangs costs the replica its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Last progress of one task, on the clock of the fence.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    part: &'static str,
    origin: Instant,
    last_beat: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Returns a heartbeat with time origin `origin` that beats now.
    pub(super) fn new(part: &'static str, origin: Instant) -> Self {
        let heartbeat = Self { part, origin, last_beat: Arc::default() };
        heartbeat.beat();
        heartbeat
    }

    /// Records progress now.
    pub fn beat(&self) {
        let nanos = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_beat.store(nanos, Ordering::Release);
    }

    fn last_beat(&self) -> Duration {
        Duration::from_nanos(self.last_beat.load(Ordering::Acquire))
    }
}

/// Heartbeats of all tasks.
#[derive(Clone, Debug)]
pub struct Heartbeats(Arc<[Heartbeat]>);

impl Heartbeats {
    /// Combines the heartbeats of several tasks.
    pub fn new(parts: impl IntoIterator<Item = Heartbeat>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// Returns the time of the oldest beat, or the maximum without tasks.
    pub fn oldest_beat(&self) -> Duration {
        self.oldest().map_or(Duration::MAX, Heartbeat::last_beat)
    }

    /// Returns the task with the oldest beat and its age, if that is at least `limit`.
    pub fn stalled(&self, limit: Duration) -> Option<(&'static str, Duration)> {
        let oldest = self.oldest()?;
        let age = oldest.origin.elapsed().saturating_sub(oldest.last_beat());
        (age >= limit).then_some((oldest.part, age))
    }

    /// Iterates over all tasks with the time since their last beat.
    pub fn ages(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.0.iter().map(|heartbeat| {
            (heartbeat.part, heartbeat.origin.elapsed().saturating_sub(heartbeat.last_beat()))
        })
    }

    fn oldest(&self) -> Option<&Heartbeat> {
        self.0.iter().min_by_key(|heartbeat| heartbeat.last_beat())
    }
}

/// Number of checks within a limit. With several, pausing the whole process is not mistaken for a stalled task.
const CHECKS_PER_LIMIT: u32 = 10;

/// Waits until a task has not beaten for `limit`, counted in checks: no check runs while the whole process is paused.
/// Returns the name of the task.
pub async fn wait_for_stall(heartbeats: Heartbeats, limit: Duration) -> &'static str {
    let (mut last_beat, mut unchanged) = (heartbeats.oldest_beat(), 0);
    loop {
        tokio::time::sleep(limit / CHECKS_PER_LIMIT).await;
        let current = heartbeats.oldest_beat();
        unchanged = if current == last_beat { unchanged + 1 } else { 0 };
        last_beat = current;
        if let (true, Some(oldest)) = (unchanged >= CHECKS_PER_LIMIT, heartbeats.oldest()) {
            return oldest.part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn stalled_part_is_found_and_named() {
        let origin = Instant::now();
        let (core, api) = (Heartbeat::new("core", origin), Heartbeat::new("api", origin));
        let heartbeats = Heartbeats::new([core.clone(), api.clone()]);
        assert_eq!(heartbeats.stalled(Duration::from_mins(10)), None);
        let keep_beating = |heartbeat: Heartbeat| async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                heartbeat.beat();
            }
        };
        let stall = wait_for_stall(heartbeats.clone(), Duration::from_secs(10));
        tokio::select! {
            part = stall => panic!("{part} is reported as stalled"),
            () = async { tokio::join!(keep_beating(core), keep_beating(api.clone())); } => {}
            () = tokio::time::sleep(Duration::from_mins(5)) => {}
        }
        // The core stops beating.
        tokio::select! {
            part = wait_for_stall(heartbeats.clone(), Duration::from_secs(10)) => assert_eq!(part, "core"),
            () = keep_beating(api) => {}
        }
        assert_eq!(heartbeats.stalled(Duration::ZERO).map(|(part, _)| part), Some("core"));
    }
}
