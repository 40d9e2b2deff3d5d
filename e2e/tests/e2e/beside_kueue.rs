//! Kueue's manager beside Sluice's: it holds the Lease that both use, as client-go's leader election does.

use crate::crashes::lease_holder;
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::install::{ACCOUNT, NAMESPACE};
use sluice_e2e::manager::{LEASE_NAME, Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, ObjectClient, number};
use sluice_e2e::wait::eventually;
use std::fs;
use std::time::Duration;

/// Identity in the form of client-go: pod and UUID.
const KUEUE: &str = "kueue-controller-manager-5f7d_0b5c3f0e-6f0e-4f0b-9b6a-2f8f5d0c7a11";
/// client-go's defaults are 15 s and 2 s.
const LEASE_SECONDS: u32 = 6;
const RETRY_PERIOD: Duration = Duration::from_secs(1);
/// How long Kueue holds the Lease: longer than one lease duration, so that only renewals keep it.
const HOLDING_TIME: Duration = Duration::from_secs(10);
const WAITING: &str = "lease held by another manager, waiting";

/// How Kueue's manager ends.
#[derive(Clone, Copy, Debug)]
enum KueueEnd {
    /// It clears the holder (`ReleaseOnCancel`).
    Release,
    /// It stops renewing.
    Crash,
}

/// While Kueue's manager renews the Lease, Sluice's is ready, serves webhooks, names the holder once in its log and writes
/// nothing. When Kueue's releases the Lease or stops renewing it, Sluice's takes over.
pub(crate) async fn lease_is_held_by_kueue(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.wait_until_queue_active("main").await?;
    let before = cluster.manager()?.settings().clone();
    let flags = vec!["--metrics-insecure".to_owned()];
    for end in [KueueEnd::Release, KueueEnd::Crash] {
        let old = cluster.take_manager().context("no manager")?;
        old.terminate();
        hold(&fixture.objects, KUEUE, LEASE_SECONDS).await?;
        let mut audit = cluster.audit()?;
        // Each has a log of its own.
        let name = format!("beside-{end:?}").to_lowercase();
        let settings = ManagerSettings { name: name.clone(), flags: flags.clone(), ..before.clone() };
        let manager = Manager::start(&cluster.plane, &settings).await?;
        tokio::select! {
            outcome = renew(&fixture.objects) => outcome.context("Kueue lost the Lease")?,
            outcome = check_waiting(cluster, fixture, &manager, &name) => outcome.context(name.clone())?,
        }
        let writes = audit.new_writes_by(&format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}"))?;
        ensure!(writes.is_empty(), "writes while another manager leads: {writes:?}");
        if matches!(end, KueueEnd::Release) {
            hold(&fixture.objects, "", 1).await?;
        }
        fixture.wait_until_running(&name).await?;
        fixture.finish_job(&name).await?;
        let log = fs::read_to_string(manager.log())?;
        let waiting: Vec<&str> = log.lines().filter(|line| line.contains(WAITING)).collect();
        ensure!(waiting.len() == 1 && waiting[0].contains(KUEUE), "{waiting:?}");
        ensure!(log.contains("lease acquired"), "the log does not say that the lease was acquired");
        cluster.put_manager(manager);
    }
    cluster.replace_manager(&before).await.map(drop)
}

/// Makes `holder` the holder of the Lease; an empty one releases it.
async fn hold(objects: &ObjectClient, holder: &str, seconds: u32) -> Result<()> {
    let now = format!("{:.6}", jiff::Timestamp::now());
    let lease = objects.must_get(Kind::LEASE, NAMESPACE, LEASE_NAME).await?;
    let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": seconds, "acquireTime": now,
        "renewTime": now, "leaseTransitions": number(&lease, "/spec/leaseTransitions") + 1});
    objects.merge(Kind::LEASE, NAMESPACE, LEASE_NAME, &json!({"spec": spec})).await?;
    Ok(())
}

/// Renews the Lease; returns only with an error.
async fn renew(objects: &ObjectClient) -> Result<()> {
    loop {
        tokio::time::sleep(RETRY_PERIOD).await;
        let holder = lease_holder(objects).await?;
        ensure!(holder == KUEUE, "the holder is {holder:?}");
        let renewed = json!({"spec": {"renewTime": format!("{:.6}", jiff::Timestamp::now())}});
        objects.merge(Kind::LEASE, NAMESPACE, LEASE_NAME, &renewed).await?;
    }
}

/// Checks that a manager is ready and acts on nothing for some time, even if a Job is created.
async fn check_waiting(cluster: &Cluster, fixture: &Fixture, manager: &Manager, job: &str) -> Result<()> {
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;
    fixture.submit(fixture.job(job, "main", "1")).await?;
    eventually("the log names the holder", async || {
        let log = fs::read_to_string(manager.log())?;
        ensure!(log.contains(WAITING) && log.contains(KUEUE), "not logged yet");
        Ok(())
    })
    .await?;
    tokio::time::sleep(HOLDING_TIME).await;
    manager.is_ready().await?;
    let metrics = manager.metrics().await?;
    ensure!(metrics.lines().any(|line| line == "sluice_leader 0"), "the metrics do not say that it waits");
    let object = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
    ensure!(object["spec"]["suspend"] == json!(true), "the webhooks did not suspend the Job");
    ensure!(fixture.workload(job).await.is_err(), "the Job has a Workload");
    Ok(())
}
