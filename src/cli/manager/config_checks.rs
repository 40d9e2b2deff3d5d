//! Runtime checks of preconditions of the configuration and of this version: the timeout of the initial lists, and definitions
//! that have all fields.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tokio::sync::watch;

use crate::api::crd::served::MissingFields;
use crate::kube::client::Caller;
use crate::kube::definition_check;
use crate::metrics::ConfigurationGaps;

/// Returns an error if the initial lists take longer than `controller.cacheSyncTimeout`, so that the process is restarted as
/// with Kueue. Never returns without a limit, or once all lists are complete.
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
