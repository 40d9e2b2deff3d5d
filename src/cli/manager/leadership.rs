//! Leadership of this replica. It leads while its first lists are processed, no other manager owns the webhooks of the cluster,
//! and it holds the Lease.
//!
//! Invariant: a replica that has led and may no longer lead ends the process, like a replica that loses the Lease: its
//! decisions in flight must not be mixed with decisions of a later term.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::watch;

use super::run::ManagerContext;
use crate::kube::lease::{self, ElectionTask, Fence, LeaseSettings};
use crate::kube::webhook_ownership::ForeignConfiguration;

/// Configurations that belong to another manager; `None` before they are read.
pub(super) type Ownership = Option<Vec<ForeignConfiguration>>;

/// Leads whenever this replica may, until the stop. Returns an error if it has led and may no longer.
pub(super) fn lead(
    election: Option<LeaseSettings>,
    handover: Duration,
    shared: &ManagerContext,
    leading: watch::Sender<Option<i32>>,
    ownership: watch::Receiver<Ownership>,
) -> impl Future<Output = anyhow::Result<()>> + Send + use<> {
    let (caller, fence, heartbeats) =
        (shared.clients.lease.clone(), shared.fence.clone(), shared.heartbeats.all.clone());
    let holder = Arc::clone(&shared.leadership.holder);
    let (mut synced, mut stop) = (shared.synced.clone(), shared.stop.acting.clone());
    async move {
        tokio::select! {
            // A replica without state must not block other replicas.
            ready = synced.wait_for(|synced| *synced) => { ready.context("core task exited")?; }
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        tokio::select! {
            may = may_lead(ownership.clone(), handover) => may?,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
        let interrupted = interrupted(stop.clone(), ownership);
        let Some(settings) = election else {
            fence.open_forever();
            leading.send_replace(Some(0));
            let reason = interrupted.await;
            fence.close();
            return reason;
        };
        let task = ElectionTask { caller, settings, fence: fence.clone(), heartbeats, leading, holder };
        run_election(task, &fence, interrupted).await
    }
}

/// Takes part in the election until the interruption, then releases the lease.
async fn run_election(
    task: ElectionTask,
    fence: &Fence,
    interrupted: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let (halt, halted) = watch::channel(false);
    let mut election = pin!(lease::run_election(task, halted));
    let reason = tokio::select! {
        ended = &mut election => return Ok(ended?),
        reason = interrupted => reason,
    };
    fence.close();
    halt.send_replace(true);
    election.await?;
    reason
}

/// Returns when no configuration belongs to another manager. After one did, also waits for `handover`: the other manager may
/// learn of the change later, but cannot renew its lease for longer if it cannot reach the API server.
async fn may_lead(mut ownership: watch::Receiver<Ownership>, handover: Duration) -> anyhow::Result<()> {
    let mut waited = false;
    loop {
        let is_foreign = {
            let known = ownership.wait_for(Option::is_some).await;
            let known = known.context("no watch of webhook configurations")?;
            known.as_ref().is_some_and(|foreign| !foreign.is_empty())
        };
        if is_foreign {
            waited = true;
            ownership.changed().await.context("no watch of webhook configurations")?;
        } else if waited {
            waited = false;
            tokio::time::sleep(handover).await;
        } else {
            return Ok(());
        }
    }
}

/// Waits for the stop, or returns an error when a configuration belongs to another manager.
async fn interrupted(
    mut stop: watch::Receiver<bool>,
    mut ownership: watch::Receiver<Ownership>,
) -> anyhow::Result<()> {
    let is_foreign = |known: &Ownership| known.as_ref().is_some_and(|foreign| !foreign.is_empty());
    tokio::select! {
        // An error means that the sender was dropped, which is a stop too.
        _ = stop.wait_for(|stop| *stop) => Ok(()),
        found = ownership.wait_for(is_foreign) => {
            let found = found.context("no watch of webhook configurations")?;
            let first = found.as_ref().and_then(|foreign| foreign.first());
            Err(first.map_or_else(|| anyhow!("webhook configurations changed"), |first| {
                anyhow!("{first}, another manager: this one stops acting")
            }))
        }
    }
}

/// Waits for the stop without ever leading.
pub(super) async fn never_lead(
    mut stop: watch::Receiver<bool>,
    leading: watch::Sender<Option<i32>>,
) -> anyhow::Result<()> {
    // An error means that the sender was dropped, which is a stop too.
    let _ = stop.wait_for(|stop| *stop).await;
    drop(leading);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::webhook_ownership::ServiceName;

    const HANDOVER: Duration = Duration::from_secs(15);

    fn other() -> Vec<ForeignConfiguration> {
        let service = ServiceName { namespace: "b".to_owned(), name: "hooks".to_owned() };
        vec![ForeignConfiguration { name: "mutating".to_owned(), service }]
    }

    /// Returns whether the future ends within a second of the paused clock.
    async fn ends_now(future: impl Future<Output = anyhow::Result<()>>) -> bool {
        tokio::time::timeout(Duration::from_secs(1), future).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn leads_at_once_unless_other_manager_was_seen() {
        let (sender, ownership) = watch::channel(None);
        assert!(!ends_now(may_lead(ownership.clone(), HANDOVER)).await, "leads before anything is read");
        sender.send_replace(Some(Vec::new()));
        assert!(ends_now(may_lead(ownership.clone(), HANDOVER)).await);
        sender.send_replace(Some(other()));
        let mut waiting = pin!(may_lead(ownership.clone(), HANDOVER));
        assert!(!ends_now(&mut waiting).await);
        sender.send_replace(Some(Vec::new()));
        assert!(!ends_now(&mut waiting).await, "does not wait for the other manager");
        // The other manager takes them back before the handover has passed.
        sender.send_replace(Some(other()));
        tokio::time::advance(HANDOVER).await;
        assert!(!ends_now(&mut waiting).await);
        sender.send_replace(Some(Vec::new()));
        assert!(tokio::time::timeout(HANDOVER * 2, waiting).await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn leader_is_interrupted_by_other_manager() {
        let (halt, stop) = watch::channel(false);
        let (sender, ownership) = watch::channel(Some(Vec::new()));
        assert!(!ends_now(interrupted(stop.clone(), ownership.clone())).await);
        sender.send_replace(Some(other()));
        let error = interrupted(stop.clone(), ownership.clone()).await.unwrap_err().to_string();
        assert!(error.contains("mutating sends reviews to Service b/hooks"), "{error}");
        sender.send_replace(Some(Vec::new()));
        halt.send_replace(true);
        assert!(interrupted(stop, ownership).await.is_ok());
    }
}
