//! What is configured and may not come about: first lists that take too long, webhooks that do not hold Jobs back.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::kube::Client;
use anyhow::bail;
use tokio::sync::watch;

use super::settings::Settings;
use crate::admission::holds_jobs_without_queue;
use crate::kube::guard;
use crate::view::Standing;

/// Ends with an error when the first lists take longer than `controller.cacheSyncTimeout`: the process is started again
/// then, as with Kueue. Runs on without a limit, and once everything is listed.
pub(super) async fn listed_in_time(
    limit: Option<Duration>,
    mut synced: watch::Receiver<bool>,
    unlisted: impl Fn() -> Vec<&'static str>,
) -> anyhow::Result<()> {
    if let Some(limit) = limit {
        let all = tokio::time::timeout(limit, synced.wait_for(|synced| *synced)).await;
        if all.is_err() {
            bail!("controller.cacheSyncTimeout: not listed within {limit:?}: {}", unlisted().join(", "));
        }
    }
    std::future::pending().await
}

/// Tells of webhooks that let Jobs without a queue start while no manager answers, where such Jobs are to be managed.
pub(super) fn guard(
    settings: &Settings,
    client: Client,
    standing: Arc<Standing>,
) -> impl Future<Output = ()> + Send + use<> {
    let wanted = settings.configuration.manage_jobs_without_queue_name;
    let names = settings.certificates();
    let names = [names.mutating, names.validating];
    let watch = settings.watch();
    async move {
        if !wanted {
            return std::future::pending().await;
        }
        let tell = move |held: bool| {
            let news = standing.unguarded(!held);
            if news && !held {
                tracing::warn!(
                    "manageJobsWithoutQueueName is on, but no webhook that fails closed is asked about Jobs without a queue: \
                     they start while no manager answers; apply the component config/webhooks/manage-all-jobs"
                );
            } else if news {
                tracing::info!("webhooks hold Jobs without a queue back while no manager answers");
            }
        };
        guard::run(client, names, watch, holds_jobs_without_queue, tell).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_lists_may_take_so_long() {
        let unlisted = || vec!["pods", "nodes"];
        let (sender, synced) = watch::channel(false);
        let error = listed_in_time(Some(Duration::ZERO), synced.clone(), unlisted).await.unwrap_err();
        assert!(error.to_string().ends_with("pods, nodes"), "{error}");
        let goes_on = |limit| {
            let task = listed_in_time(limit, synced.clone(), unlisted);
            async move { tokio::time::timeout(Duration::from_millis(1), task).await.is_err() }
        };
        assert!(goes_on(None).await);
        sender.send_replace(true);
        assert!(goes_on(Some(Duration::ZERO)).await);
    }
}
