//! Outages in the middle of a switch, both ways: etcd stops answering, and the API server is killed and restarted, while `sluice migrate`
//! waits for its user and while it writes. Kueue's own manager of 0.19.2 and Sluice's run as in `live_switch`.

use crate::cases::note;
use crate::fixture::Fixture;
use crate::live_switch::{Live, Owner, TAKEOVER};
use crate::migration_run::Run;
use crate::shipped_manifests::check_support;
use anyhow::{Context as _, Result, ensure};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::within;
use std::time::Duration;

const SERVICE: Kind = Kind::new("", "v1", "Service", "services");
const ETCD: &str = "etcd";
/// Longer than a call of `sluice migrate` waits, and than both managers keep their Lease.
const LONG_OUTAGE: Duration = Duration::from_secs(40);
/// Shorter than a Lease.
const SHORT_OUTAGE: Duration = Duration::from_secs(8);

/// A run goes on by itself after each outage and ends as an undisturbed one; repeated it has nothing to do. No pod is replaced.
pub(crate) async fn switch_meets_outages(_: &mut Cluster, _: &Fixture) -> Result<()> {
    check_support()?;
    let mut live = Live::start("partitions", Owner::Kubectl).await?;
    let outcome = there_and_back(&mut live).await;
    live.installation.report(outcome).await
}

async fn there_and_back(live: &mut Live) -> Result<()> {
    live.install_kueue().await.context("install Kueue")?;
    live.fill().await?;
    let pods = live.both_pods().await?;
    switch(live, "to-sluice").await?;
    ensure!(live.running_pods().await? == pods, "pods were replaced on the way to Sluice");
    live.serves("a").await.context("Sluice serves")?;
    live.end_job("b").await?;
    live.wait_until_admitted("a").await?;
    live.create_job("d").await?;
    let pods = live.both_pods().await?;
    switch(live, "to-kueue").await?;
    ensure!(live.running_pods().await? == pods, "pods were replaced on the way to Kueue");
    live.serves("d").await.context("Kueue serves")?;
    live.end_job("c").await?;
    live.wait_until_admitted("d").await
}

async fn switch(live: &mut Live, verb: &'static str) -> Result<()> {
    let run = Run::begin(live, verb).await?;
    // No command has been run yet.
    lose_quorum(live, LONG_OUTAGE).await?;
    run.process.check()?;
    ensure!(!run.text()?.contains("step 4"), "it went on beside the other manager:\n{}", run.text()?);
    for line in run.commands()? {
        if line.contains("apply") && verb == "to-sluice" {
            live.apply_sluice(&run)?;
        } else {
            live.execute(&line)?;
        }
        if line.contains("delete deployment") {
            // One manager ends, and the other is not there.
            live.installation.plane.restart_apiserver().await?;
        }
    }
    // The new manager starts, and becomes the leader.
    lose_quorum(live, SHORT_OUTAGE).await?;
    within(TAKEOVER, "the manager has been replaced", async || {
        ensure!(run.text()?.contains("step 4 of 7"), "{}", run.text()?);
        Ok(())
    })
    .await?;
    // It writes.
    live.installation.plane.pause(ETCD)?;
    tokio::time::sleep(SHORT_OUTAGE).await;
    live.installation.plane.resume(ETCD)?;
    live.installation.plane.restart_apiserver().await?;
    run.wait_until_done().await?;
    let waits = run.text()?.matches("waiting for the API server").count();
    ensure!(waits > 0, "no outage was met:\n{}", run.text()?);
    note(format_args!("{verb}: {waits} outages were met"));
    live.wait_until_available().await?;
    entries_are_answered(live).await?;
    within(TAKEOVER, "nothing is due", async || {
        let (code, output) = live.migrate(&[verb, "--dry-run"])?;
        ensure!(code == Some(0), "{code:?}\n{output}");
        Ok(())
    })
    .await
}

/// Stops etcd's only member for a while: nothing is read or written.
async fn lose_quorum(live: &Live, time: Duration) -> Result<()> {
    live.installation.plane.pause(ETCD)?;
    tokio::time::sleep(time).await;
    live.installation.plane.resume(ETCD)
}

/// Each Service that a webhook entry names exists.
async fn entries_are_answered(live: &Live) -> Result<()> {
    let objects = &live.installation.objects;
    for kind in [Kind::MUTATING_WEBHOOKS, Kind::VALIDATING_WEBHOOKS] {
        for configuration in objects.list(kind, "", "").await? {
            for entry in configuration["webhooks"].as_array().into_iter().flatten() {
                let service = |part: &str| text(entry, &format!("/clientConfig/service/{part}"));
                objects.must_get(SERVICE, service("namespace"), service("name")).await?;
            }
        }
    }
    Ok(())
}
