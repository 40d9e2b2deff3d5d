//! Waiting for what must become true: polled, with a deadline that is generous and never the proof itself.

use anyhow::{Result, bail};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// How long anything on a loaded machine may take.
pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Whether faults last as long as they are said to (`SLUICE_SOAK`), and not a tenth of it.
pub fn is_soak_run() -> bool {
    std::env::var_os("SLUICE_SOAK").is_some()
}

/// How long a fault lasts: the whole, or a tenth.
pub fn scaled_duration(whole: Duration) -> Duration {
    if is_soak_run() { whole } else { whole / 10 }
}

/// Polls until `probe` finds something; its error says what is still wrong and ends up in the failure.
pub async fn eventually<T>(what: impl Display, probe: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    within(if is_soak_run() { 15 * TIMEOUT } else { TIMEOUT }, what, probe).await
}

/// The same with a patience of its own.
pub async fn within<T>(
    patience: Duration,
    what: impl Display,
    mut probe: impl AsyncFnMut() -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        match probe().await {
            Ok(found) => return Ok(found),
            Err(error) if Instant::now() > deadline => {
                bail!("after {} s still not: {what}: {error:#}", patience.as_secs())
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
