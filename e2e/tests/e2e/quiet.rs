//! How much is written.

use crate::ground::Ground;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::audit::{Request, count};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::wait::eventually;
use std::time::Duration;

/// How long nothing may be written.
const SETTLED: Duration = Duration::from_mins(1);

fn account() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
}

fn is_lease(request: &Request) -> bool {
    request.resource == "leases"
}

/// Over its life, with one wait: at most 7 writes and 6 events, queue status apart.
pub(crate) async fn writes_and_events_of_one_job(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.active("main").await?;
    ground.submit(ground.job("holder", "main", "1")).await?;
    ground.runs("holder").await?;
    quiet_for(cluster, Duration::from_secs(2)).await?;
    let mut audit = cluster.audit()?;
    ground.submit(ground.job("counted", "main", "1")).await?;
    ground.waits("counted", "WaitingForQuota").await?;
    ground.finish("holder").await?;
    ground.runs("counted").await?;
    ground.finish("counted").await?;
    ground.counts("main", (0, 0, 0), &[("cpu", "0")]).await?;
    quiet_for(cluster, Duration::from_secs(2)).await?;

    let all: Vec<Request> = audit.writes_of(&account())?;
    let own: Vec<Request> = all
        .into_iter()
        .filter(|request| request.namespace == ground.name && request.name.contains("counted"))
        .collect();
    let (events, writes): (Vec<Request>, Vec<Request>) =
        own.into_iter().partition(|r| r.resource == "events");
    println!("      {:?}; {} events", count(&writes), events.len());
    ensure!(writes.len() <= 7, "{} writes: {:?}", writes.len(), count(&writes));
    ensure!(events.len() <= 6, "{} events", events.len());
    ensure!(!writes.is_empty(), "the audit log shows no write at all");
    Ok(())
}

/// With Jobs running, waiting and finished, nothing is written but the lease.
pub(crate) async fn settled_means_no_writes(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("done", "main", "1").runs_for("0s")).await?;
    ground.finished("done", "Succeeded").await?;
    ground.submit(ground.job("runs", "main", "1")).await?;
    ground.runs("runs").await?;
    ground.submit(ground.job("waits", "main", "1")).await?;
    ground.waits("waits", "WaitingForQuota").await?;
    ground.submit(ground.job("never", "main", "9")).await?;
    ground.waits("never", "ExceedsMaxQuota").await?;
    ground.counts("main", (2, 1, 1), &[("cpu", "1")]).await?;
    quiet_for(cluster, Duration::from_secs(5)).await?;
    let mut audit = cluster.audit()?;
    tokio::time::sleep(SETTLED).await;
    let all = audit.writes_of(&account())?;
    let (leases, others): (Vec<Request>, Vec<Request>) = all.into_iter().partition(is_lease);
    ensure!(others.is_empty(), "{} writes in {} s: {:?}", others.len(), SETTLED.as_secs(), count(&others));
    ensure!(!leases.is_empty(), "the audit log shows not even the lease's renewal");
    Ok(())
}

/// Waits for a while without any write of the manager but the lease's: what was set off has come to its end.
async fn quiet_for(cluster: &Cluster, while_: Duration) -> Result<()> {
    eventually(format!("{} s without writes", while_.as_secs()), async || {
        let mut audit = cluster.audit()?;
        tokio::time::sleep(while_).await;
        let writes: Vec<Request> =
            audit.writes_of(&account())?.into_iter().filter(|r| !is_lease(r)).collect();
        ensure!(writes.is_empty(), "{:?}", count(&writes));
        Ok(())
    })
    .await
}
