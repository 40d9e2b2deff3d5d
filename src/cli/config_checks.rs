//! Runtime checks of what the configuration and this version rely on: the timeout of the initial lists, webhooks that fail
//! closed for Jobs, and definitions that have all fields.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ::kube::Client;
use anyhow::bail;
use tokio::sync::watch;

use super::settings::ManagerSettings;
use crate::admission::fails_closed_for_unqueued_jobs;
use crate::api::crd::served::MissingFields;
use crate::kube::client::Caller;
use crate::kube::{definition_check, webhook_config_watch};
use crate::metrics::ConfigurationGaps;

/// Returns an error if the initial lists take longer than `controller.cacheSyncTimeout`, so that the process is
/// restarted as with Kueue. Never returns without a limit, or once everything is listed.
pub(super) async fn enforce_sync_timeout(
    limit: Option<Duration>,
    mut synced: watch::Receiver<bool>,
    unlisted: impl Fn() -> Vec<&'static str>,
) -> anyhow::Result<()> {
    if let Some(limit) = limit {
        let all = tokio::time::timeout(limit, synced.wait_for(|synced| *synced)).await;
        if all.is_err() {
            bail!(
                "controller.cacheSyncTimeout: initial lists not complete within {limit:?}: {}",
                unlisted().join(", ")
            );
        }
    }
    std::future::pending().await
}

/// Watches the webhook configurations and logs and exports whether Jobs without a queue name can start while no manager
/// answers. Does nothing unless such Jobs are managed.
pub(super) fn watch_fail_closed_webhooks(
    settings: &ManagerSettings,
    client: Client,
    gaps: Arc<ConfigurationGaps>,
) -> impl Future<Output = ()> + Send + use<> {
    let enabled = settings.configuration.manage_jobs_without_queue_name;
    let names = settings.certificates();
    let names = [names.mutating, names.validating];
    let watch = settings.watch();
    async move {
        if !enabled {
            return std::future::pending().await;
        }
        let report = move |fail_closed: Vec<bool>| {
            let fail_closed = fail_closed.into_iter().all(|fails_closed| fails_closed);
            let changed = gaps.set_jobs_unguarded(!fail_closed);
            if changed && !fail_closed {
                tracing::warn!(
                    "manageJobsWithoutQueueName is on, but no webhook that fails closed is asked about Jobs without a queue: \
                     they start while no manager answers; apply the component config/webhooks/manage-all-jobs"
                );
            } else if changed {
                tracing::info!("webhooks reject Jobs without a queue while no manager responds");
            }
        };
        let fails_closed = |object: Option<&_>| object.is_some_and(fails_closed_for_unqueued_jobs);
        webhook_config_watch::run(client, vec![names], watch, fails_closed, report).await;
    }
}

/// Checks the definitions in the cluster, and logs and exports which fields of this version they lack.
pub(super) async fn check_definitions(caller: Caller, gaps: Arc<ConfigurationGaps>) {
    let report = move |missing: &MissingFields| {
        if !gaps.set_missing_fields(missing) {
            return;
        }
        for (resource, fields) in missing {
            tracing::warn!(
                resource,
                fields = fields.join(", "),
                "definition lacks fields of this version: the API server drops them or refuses writes with them; apply crds/"
            );
        }
        if missing.is_empty() {
            tracing::info!("the definitions have all fields of this version");
        }
    };
    definition_check::run(caller, report).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn initial_lists_time_out_after_limit() {
        let unlisted = || vec!["pods", "nodes"];
        let (sender, synced) = watch::channel(false);
        let error = enforce_sync_timeout(Some(Duration::ZERO), synced.clone(), unlisted).await.unwrap_err();
        assert!(error.to_string().ends_with("pods, nodes"), "{error}");
        let keeps_running = |limit| {
            let task = enforce_sync_timeout(limit, synced.clone(), unlisted);
            async move { tokio::time::timeout(Duration::from_millis(1), task).await.is_err() }
        };
        assert!(keeps_running(None).await);
        sender.send_replace(true);
        assert!(keeps_running(Some(Duration::ZERO)).await);
    }
}
