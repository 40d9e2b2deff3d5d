//! How much is written.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::audit::{AuditedRequest, count_by_verb_and_resource};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::wait::eventually;
use std::time::Duration;

/// How long nothing may be written.
const QUIET_PERIOD: Duration = Duration::from_mins(1);

fn manager_account() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
}

fn is_lease(request: &AuditedRequest) -> bool {
    request.resource == "leases"
}

/// Over its life, with one wait: at most 7 writes and 6 events, queue status apart.
pub(crate) async fn writes_and_events_per_job(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.wait_until_queue_active("main").await?;
    ground.submit(ground.job("holder", "main", "1")).await?;
    ground.wait_until_running("holder").await?;
    wait_without_writes(cluster, Duration::from_secs(2)).await?;
    let mut audit = cluster.audit()?;
    ground.submit(ground.job("counted", "main", "1")).await?;
    ground.wait_until_pending("counted", "WaitingForQuota").await?;
    ground.finish_job("holder").await?;
    ground.wait_until_running("counted").await?;
    ground.finish_job("counted").await?;
    ground.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    wait_without_writes(cluster, Duration::from_secs(2)).await?;

    let all: Vec<AuditedRequest> = audit.new_writes_by(&manager_account())?;
    let own: Vec<AuditedRequest> = all
        .into_iter()
        .filter(|request| request.namespace == ground.name && request.name.contains("counted"))
        .collect();
    let (events, writes): (Vec<AuditedRequest>, Vec<AuditedRequest>) =
        own.into_iter().partition(|r| r.resource == "events");
    println!("      {:?}; {} events", count_by_verb_and_resource(&writes), events.len());
    ensure!(writes.len() <= 7, "{} writes: {:?}", writes.len(), count_by_verb_and_resource(&writes));
    ensure!(events.len() <= 6, "{} events", events.len());
    ensure!(!writes.is_empty(), "the audit log shows no write at all");
    Ok(())
}

/// With Jobs running, waiting and finished, nothing is written but the lease.
pub(crate) async fn settled_cluster_writes_nothing(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("done", "main", "1").runs_for("0s")).await?;
    ground.wait_until_finished("done", "Succeeded").await?;
    ground.submit(ground.job("runs", "main", "1")).await?;
    ground.wait_until_running("runs").await?;
    ground.submit(ground.job("waits", "main", "1")).await?;
    ground.wait_until_pending("waits", "WaitingForQuota").await?;
    ground.submit(ground.job("never", "main", "9")).await?;
    ground.wait_until_pending("never", "ExceedsMaxQuota").await?;
    ground.wait_for_queue_counts("main", (2, 1, 1), &[("cpu", "1")]).await?;
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
    ensure!(!leases.is_empty(), "the audit log shows not even the lease's renewal");
    Ok(())
}

/// Waits for a while without any write of the manager but the lease's: what was set off has come to its end.
async fn wait_without_writes(cluster: &Cluster, while_: Duration) -> Result<()> {
    eventually(format!("{} s without writes", while_.as_secs()), async || {
        let mut audit = cluster.audit()?;
        tokio::time::sleep(while_).await;
        let writes: Vec<AuditedRequest> =
            audit.new_writes_by(&manager_account())?.into_iter().filter(|r| !is_lease(r)).collect();
        ensure!(writes.is_empty(), "{:?}", count_by_verb_and_resource(&writes));
        Ok(())
    })
    .await
}
