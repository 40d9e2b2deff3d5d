//! Polls until a condition holds. Deadlines are generous: they end a failed run, they are never the assertion itself.

use anyhow::{Result, bail};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Deadline of one wait on a loaded machine.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Time in which a probe is repeated often: most waits end in it.
const SHORT_WAIT: Duration = Duration::from_secs(1);
/// Pause between two probes of a short wait, and of a longer one. Many wait at once, and a probe costs as much as a write.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

static IS_SOAK_RUN: AtomicBool = AtomicBool::new(false);

/// Lets faults last their whole time from now on.
pub fn use_whole_durations() {
    IS_SOAK_RUN.store(true, Ordering::Relaxed);
}

/// Returns whether faults last their whole time and not a tenth of it.
pub fn is_soak_run() -> bool {
    IS_SOAK_RUN.load(Ordering::Relaxed)
}

/// Returns the duration of a fault: `whole` in a soak run, else a tenth.
pub fn scaled_duration(whole: Duration) -> Duration {
    if is_soak_run() { whole } else { whole / 10 }
}

/// Polls until `probe` succeeds, for 1 minute (15 in a soak run). The failure contains the last error of `probe`.
pub async fn eventually<T>(what: impl Display, probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    within(if is_soak_run() { 15 * TIMEOUT } else { TIMEOUT }, what, probe).await
}

/// Like `eventually`, with its own timeout.
pub async fn within<T>(
    timeout: Duration,
    what: impl Display,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(error) if begun.elapsed() > timeout => {
                bail!("timed out after {} s waiting for: {what}: {error:#}", timeout.as_secs())
            }
            Err(_) => {
                let [short, long] = PAUSES;
                let pause = if begun.elapsed() < SHORT_WAIT { short } else { long };
                tokio::time::sleep(pause).await;
            }
        }
    }
}
