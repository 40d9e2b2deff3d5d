//! Limits on the number of writes.

use crate::cases::note;
use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::audit::{AuditedRequest, count_by_verb_and_resource};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::wait::eventually;
use std::time::Duration;

/// How long a stable cluster must not write.
const QUIET_PERIOD: Duration = Duration::from_mins(1);

fn manager_account() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
}

fn is_lease(request: &AuditedRequest) -> bool {
    request.resource == "leases"
}

/// A Job that is pending once causes at most 7 writes and 6 events, not counting queue status.
pub(crate) async fn writes_and_events_per_job(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.wait_until_queue_active("main").await?;
    fixture.submit(fixture.job("running", "main", "1")).await?;
    fixture.wait_until_running("running").await?;
    wait_without_writes(cluster, Duration::from_secs(2)).await?;
    let mut audit = cluster.audit()?;
    fixture.submit(fixture.job("counted", "main", "1")).await?;
    fixture.wait_until_pending("counted", "WaitingForQuota").await?;
    fixture.finish_job("running").await?;
    fixture.wait_until_running("counted").await?;
    fixture.finish_job("counted").await?;
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    wait_without_writes(cluster, Duration::from_secs(2)).await?;

    let all: Vec<AuditedRequest> = audit.new_writes_by(&manager_account())?;
    let own: Vec<AuditedRequest> = all
        .into_iter()
        .filter(|request| request.namespace == fixture.name && request.name.contains("counted"))
        .collect();
    let (events, writes): (Vec<AuditedRequest>, Vec<AuditedRequest>) =
        own.into_iter().partition(|r| r.resource == "events");
    note(format_args!("{:?}; {} events", count_by_verb_and_resource(&writes), events.len()));
    ensure!(writes.len() <= 7, "{} writes: {:?}", writes.len(), count_by_verb_and_resource(&writes));
    ensure!(events.len() <= 6, "{} events", events.len());
    ensure!(!writes.is_empty(), "the audit log shows no writes");
    Ok(())
}

/// With running, pending and finished Jobs, only the lease is written.
pub(crate) async fn settled_cluster_writes_nothing(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("done", "main", "1").runs_for("0s")).await?;
    fixture.wait_until_finished("done", "Succeeded").await?;
    fixture.submit(fixture.job("runs", "main", "1")).await?;
    fixture.wait_until_running("runs").await?;
    fixture.submit(fixture.job("waits", "main", "1")).await?;
    fixture.wait_until_pending("waits", "WaitingForQuota").await?;
    fixture.submit(fixture.job("never", "main", "9")).await?;
    fixture.wait_until_pending("never", "ExceedsMaxQuota").await?;
    fixture.wait_for_queue_counts("main", (2, 1, 1), &[("cpu", "1")]).await?;
    wait_without_writes(cluster, Duration::from_secs(5)).await?;
    let mut audit = cluster.audit()?;
    tokio::time::sleep(QUIET_PERIOD).await;
    let all = audit.new_writes_by(&manager_account())?;
    let (leases, others): (Vec<AuditedRequest>, Vec<AuditedRequest>) = all.into_iter().partition(is_lease);
    ensure!(
        others.is_empty(),
        "{} writes in {} s: {:?}",
        others.len(),
        QUIET_PERIOD.as_secs(),
        count_by_verb_and_resource(&others)
    );
    ensure!(!leases.is_empty(), "the audit log shows no lease renewal");
    Ok(())
}

/// Waits until the manager has written nothing but the lease for `period`: it has completed all earlier work.
async fn wait_without_writes(cluster: &Cluster, period: Duration) -> Result<()> {
    eventually(format!("{} s without writes", period.as_secs()), async || {
        let mut audit = cluster.audit()?;
        tokio::time::sleep(period).await;
        let writes: Vec<AuditedRequest> =
            audit.new_writes_by(&manager_account())?.into_iter().filter(|r| !is_lease(r)).collect();
        ensure!(writes.is_empty(), "{:?}", count_by_verb_and_resource(&writes));
        Ok(())
    })
    .await
}
