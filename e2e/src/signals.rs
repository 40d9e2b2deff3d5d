//! Ctrl-C and SIGTERM end the work, not the process: what it holds is dropped in order.

use anyhow::{Result, bail};
use std::future::Future;
use tokio::signal::unix::{SignalKind, signal};

/// Runs the work until it ends or a signal comes.
pub async fn interruptible<F: Future<Output = Result<()>>>(work: F) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        outcome = work => outcome,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
        _ = hangup.recv() => bail!("the terminal is gone"),
    }
}
