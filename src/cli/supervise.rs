//! Supervised tasks: if one ends early, the process ends.

use std::future::Future;
use std::time::Duration;

use anyhow::anyhow;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// A set of named tasks.
#[derive(Default)]
pub(super) struct SupervisedTasks(JoinSet<(&'static str, anyhow::Result<()>)>);

impl SupervisedTasks {
    /// Starts a task on `threads`.
    pub(super) fn start(
        &mut self,
        threads: &Runtime,
        name: &'static str,
        task: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.0.spawn_on(async move { (name, task.await) }, threads.handle());
    }

    /// Waits until a task ends and returns this as an error, because no task should end by itself.
    pub(super) async fn join_next(&mut self) -> anyhow::Error {
        match self.0.join_next().await {
            None => anyhow!("all tasks exited"),
            Some(Err(error)) => anyhow!("a task failed: {error}"),
            Some(Ok((name, Ok(())))) => anyhow!("task {name} exited unexpectedly"),
            Some(Ok((name, Err(error)))) => error.context(format!("task {name}")),
        }
    }

    /// Waits until all tasks have ended; aborts the remaining tasks after `within`.
    pub(super) async fn shutdown(mut self, within: Duration) {
        let all = async { while self.0.join_next().await.is_some() {} };
        if tokio::time::timeout(within, all).await.is_err() {
            tracing::warn!(left = self.0.len(), "shutdown timeout reached, aborting tasks");
            self.0.shutdown().await;
        }
    }
}

/// Waits for SIGINT or SIGTERM.
pub(super) async fn shutdown_signal() -> anyhow::Result<&'static str> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn task_panic_ends_supervision() {
        let mut tasks = SupervisedTasks::default();
        tasks.0.spawn(std::future::pending());
        tasks.0.spawn(async { panic!("on purpose") });
        let error = tasks.join_next().await.to_string();
        assert!(error.contains("a task failed") && error.contains("panic"), "{error}");
    }
}
