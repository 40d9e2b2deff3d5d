//! Polls until a condition holds. Deadlines are generous: they end a failed run, they are never the assertion itself.

use anyhow::{Result, bail};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Deadline of one wait on a loaded machine.
pub const TIMEOUT: Duration = Duration::from_mins(1);

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
    let deadline = Instant::now() + timeout;
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() > deadline => {
                bail!("timed out after {} s waiting for: {what}: {error:#}", timeout.as_secs())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
