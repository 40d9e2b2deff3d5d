//! Signs of life of the parts that a leader depends on.
//!
//! Invariant: a part stamps its pulse at least once a second while it makes progress, also when it has nothing to do. A
//! renewal of the lease counts from the oldest stamp, so that a part that hangs loses the lease with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When one part last made progress, by the clock of the fence.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    part: &'static str,
    origin: Instant,
    last_beat: Arc<AtomicU64>,
}

impl Heartbeat {
    /// A pulse that counts from `origin`, stamped now.
    pub(super) fn new(part: &'static str, origin: Instant) -> Self {
        let pulse = Self { part, origin, last_beat: Arc::default() };
        pulse.beat();
        pulse
    }

    /// Stamps.
    pub fn beat(&self) {
        let nanos = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.last_beat.store(nanos, Ordering::Release);
    }

    fn last_beat(&self) -> Duration {
        Duration::from_nanos(self.last_beat.load(Ordering::Acquire))
    }
}

/// The pulses of all parts.
#[derive(Clone, Debug)]
pub struct Heartbeats(Arc<[Heartbeat]>);

impl Heartbeats {
    /// These parts.
    pub fn new(parts: impl IntoIterator<Item = Heartbeat>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// When the part that is silent the longest last made progress.
    pub fn oldest_beat(&self) -> Duration {
        self.oldest().map_or(Duration::MAX, Heartbeat::last_beat)
    }

    /// The part that is silent for this long or longer, with how long it is.
    pub fn stalled(&self, limit: Duration) -> Option<(&'static str, Duration)> {
        let slowest = self.oldest()?;
        let silent = slowest.origin.elapsed().saturating_sub(slowest.last_beat());
        (silent >= limit).then_some((slowest.part, silent))
    }

    /// Each part with the time since it last made progress.
    pub fn ages(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.0.iter().map(|pulse| (pulse.part, pulse.origin.elapsed().saturating_sub(pulse.last_beat())))
    }

    fn oldest(&self) -> Option<&Heartbeat> {
        self.0.iter().min_by_key(|pulse| pulse.last_beat())
    }
}

/// Looks within a limit; enough that a process that was paused as a whole is not taken for one that hangs.
const CHECKS_PER_LIMIT: u32 = 10;

/// Waits until a part is silent for `limit`, by this task's own count of looks: while the whole process is paused, nothing
/// is counted. Gives the part.
pub async fn wait_for_stall(pulses: Heartbeats, limit: Duration) -> &'static str {
    let (mut known, mut same) = (pulses.oldest_beat(), 0);
    loop {
        tokio::time::sleep(limit / CHECKS_PER_LIMIT).await;
        let moved = pulses.oldest_beat();
        same = if moved == known { same + 1 } else { 0 };
        known = moved;
        if let (true, Some(slowest)) = (same >= CHECKS_PER_LIMIT, pulses.oldest()) {
            return slowest.part;
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
        let pulses = Heartbeats::new([core.clone(), api.clone()]);
        assert_eq!(pulses.stalled(Duration::from_mins(10)), None);
        let beats = |pulse: Heartbeat| async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                pulse.beat();
            }
        };
        let watch = wait_for_stall(pulses.clone(), Duration::from_secs(10));
        tokio::select! {
            part = watch => panic!("{part} is called silent"),
            () = async { tokio::join!(beats(core), beats(api.clone())); } => {}
            () = tokio::time::sleep(Duration::from_mins(5)) => {}
        }
        // The core beats no more.
        tokio::select! {
            part = wait_for_stall(pulses.clone(), Duration::from_secs(10)) => assert_eq!(part, "core"),
            () = beats(api) => {}
        }
        assert_eq!(pulses.stalled(Duration::ZERO).map(|(part, _)| part), Some("core"));
    }
}
