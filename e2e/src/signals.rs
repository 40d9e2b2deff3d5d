//! Turns SIGINT, SIGTERM and SIGHUP into an error, so that the work is dropped and its child processes are stopped in
//! order.

use anyhow::{Result, bail};
use std::future::Future;
use tokio::signal::unix::{SignalKind, signal};

/// Runs `work` until it completes or a signal arrives; a signal returns an error.
pub async fn interruptible<F: Future<Output = Result<()>>>(work: F) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        outcome = work => outcome,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
        _ = hangup.recv() => bail!("terminal closed"),
    }
}
