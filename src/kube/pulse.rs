//! Signs of life of the parts that a leader depends on.
//!
//! Invariant: a part stamps its pulse at least once a second while it makes progress, also when it has nothing to do. A
//! renewal of the lease counts from the oldest stamp, so that a part that hangs loses the lease with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// When one part last made progress, by the clock of the fence.
#[derive(Clone, Debug)]
pub struct Pulse {
    part: &'static str,
    origin: Instant,
    at: Arc<AtomicU64>,
}

impl Pulse {
    /// A pulse that counts from `origin`, stamped now.
    pub(super) fn new(part: &'static str, origin: Instant) -> Self {
        let pulse = Self { part, origin, at: Arc::default() };
        pulse.beat();
        pulse
    }

    /// Stamps.
    pub fn beat(&self) {
        let nanos = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.at.store(nanos, Ordering::Release);
    }

    fn at(&self) -> Duration {
        Duration::from_nanos(self.at.load(Ordering::Acquire))
    }
}

/// The pulses of all parts.
#[derive(Clone, Debug)]
pub struct Pulses(Arc<[Pulse]>);

impl Pulses {
    /// These parts.
    pub fn new(parts: impl IntoIterator<Item = Pulse>) -> Self {
        Self(parts.into_iter().collect())
    }

    /// When the part that is silent the longest last made progress.
    pub fn moved(&self) -> Duration {
        self.slowest().map_or(Duration::MAX, Pulse::at)
    }

    /// The part that is silent for this long or longer, with how long it is.
    pub fn stalled(&self, limit: Duration) -> Option<(&'static str, Duration)> {
        let slowest = self.slowest()?;
        let silent = slowest.origin.elapsed().saturating_sub(slowest.at());
        (silent >= limit).then_some((slowest.part, silent))
    }

    /// Each part with the time since it last made progress.
    pub fn ages(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        self.0.iter().map(|pulse| (pulse.part, pulse.origin.elapsed().saturating_sub(pulse.at())))
    }

    fn slowest(&self) -> Option<&Pulse> {
        self.0.iter().min_by_key(|pulse| pulse.at())
    }
}

/// Looks within a limit; enough that a process that was paused as a whole is not taken for one that hangs.
const LOOKS: u32 = 10;

/// Waits until a part is silent for `limit`, by this task's own count of looks: while the whole process is paused, nothing
/// is counted. Gives the part.
pub async fn watch_over(pulses: Pulses, limit: Duration) -> &'static str {
    let (mut known, mut same) = (pulses.moved(), 0);
    loop {
        tokio::time::sleep(limit / LOOKS).await;
        let moved = pulses.moved();
        same = if moved == known { same + 1 } else { 0 };
        known = moved;
        if let (true, Some(slowest)) = (same >= LOOKS, pulses.slowest()) {
            return slowest.part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_silent_part_among_others_is_found_and_named() {
        let origin = Instant::now();
        let (core, api) = (Pulse::new("core", origin), Pulse::new("api", origin));
        let pulses = Pulses::new([core.clone(), api.clone()]);
        assert_eq!(pulses.stalled(Duration::from_mins(10)), None);
        let beats = |pulse: Pulse| async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                pulse.beat();
            }
        };
        let watch = watch_over(pulses.clone(), Duration::from_secs(10));
        tokio::select! {
            part = watch => panic!("{part} is called silent"),
            () = async { tokio::join!(beats(core), beats(api.clone())); } => {}
            () = tokio::time::sleep(Duration::from_mins(5)) => {}
        }
        // The core beats no more.
        tokio::select! {
            part = watch_over(pulses.clone(), Duration::from_secs(10)) => assert_eq!(part, "core"),
            () = beats(api) => {}
        }
        assert_eq!(pulses.stalled(Duration::ZERO).map(|(part, _)| part), Some("core"));
    }
}
