//! Supervised tasks: if one ends early, the process ends.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};

/// How long to wait for the error of another task after a task has ended without one.
const CAUSE_WITHIN: Duration = Duration::from_millis(200);

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
    ///
    /// The tasks share channels, so one failure ends several of them, in any order: an error is preferred to an end
    /// without one. Otherwise a lost lease would be reported as an executor that exited.
    pub(super) async fn join_next(&mut self) -> anyhow::Error {
        let Some(ended) = self.0.join_next().await else { return anyhow!("all tasks exited") };
        match outcome(ended) {
            Err(error) => error,
            Ok(name) => {
                let failed = tokio::time::timeout(CAUSE_WITHIN, self.join_failed()).await;
                failed.ok().flatten().unwrap_or_else(|| anyhow!("task {name} exited unexpectedly"))
            }
        }
    }

    /// Waits until a task fails; `None` if all end without a failure.
    async fn join_failed(&mut self) -> Option<anyhow::Error> {
        while let Some(ended) = self.0.join_next().await {
            if let Err(error) = outcome(ended) {
                return Some(error);
            }
        }
        None
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

/// Returns the name of a task that has ended, or its error.
fn outcome(ended: Result<(&'static str, anyhow::Result<()>), JoinError>) -> anyhow::Result<&'static str> {
    let (name, result) = ended.map_err(|error| anyhow!("a task failed: {error}"))?;
    result.with_context(|| format!("task {name}"))?;
    Ok(name)
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

    #[tokio::test]
    async fn failure_is_reported_not_its_consequence() {
        let mut tasks = SupervisedTasks::default();
        let (failing, channel) = tokio::sync::oneshot::channel::<()>();
        tasks.0.spawn(async {
            let _ = channel.await;
            ("executor", Ok(()))
        });
        tasks.0.spawn(async {
            drop(failing);
            tokio::time::sleep(Duration::from_millis(10)).await;
            ("lease", Err(anyhow!("lease lost")))
        });
        tasks.0.spawn(std::future::pending());
        assert_eq!(format!("{:#}", tasks.join_next().await), "task lease: lease lost");
    }

    #[tokio::test(start_paused = true)]
    async fn end_without_failure_is_reported() {
        let mut tasks = SupervisedTasks::default();
        tasks.0.spawn(async { ("executor", Ok(())) });
        tasks.0.spawn(std::future::pending());
        assert_eq!(tasks.join_next().await.to_string(), "task executor exited unexpectedly");
        let mut last = SupervisedTasks::default();
        last.0.spawn(async { ("executor", Ok(())) });
        assert_eq!(last.join_next().await.to_string(), "task executor exited unexpectedly");
    }
}
