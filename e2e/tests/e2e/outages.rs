//! etcd is stopped or slow, the API server restarts, or the leader is cut off from it: usage never exceeds the quota,
//! no write is lost, and work continues after the fault.

use crate::background_jobs::{BackgroundJobs, restart_if_exited};
use crate::crashes::{lease_holder, wait_for_other_holder};
use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::proxy::{Fault, Proxy};
use sluice_e2e::wait::{eventually, scaled_duration};
use sluice_e2e::watch_faults::EventFault;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Duration of each fault; a tenth of it outside soak runs.
const STOP_TIME: Duration = Duration::from_mins(1);
const SLOW_PERIOD: Duration = Duration::from_mins(2);
const CUT_OFF: Duration = Duration::from_mins(1);
/// How long etcd is stopped each time, so that a write takes up to this long.
const FSYNC_DELAY: Duration = Duration::from_secs(1);
/// How long etcd then runs and completes pending writes.
const SUBMIT_INTERVAL: Duration = Duration::from_millis(300);
/// Jobs created before a fault.
const JOBS_BEFORE: usize = 8;
/// Jobs in total.
const JOBS: usize = 24;

/// Creates Jobs while the fault acts on the cluster. Restarts the manager if it exits, as it must when it cannot renew
/// its lease.
async fn run_under_load(
    cluster: &mut Cluster,
    work: &BackgroundJobs<'_>,
    fault: impl AsyncFnOnce(&mut Cluster) -> Result<()>,
) -> Result<()> {
    work.submit(0..JOBS_BEFORE).await?;
    let submitted = Cell::new(false);
    let submission = async {
        let outcome = work.submit(JOBS_BEFORE..JOBS).await;
        submitted.set(true);
        outcome
    };
    let faulty = async {
        fault(cluster).await?;
        while !submitted.get() {
            // Ignored: it is retried, and a lasting error is found by the final checks.
            let _ = restart_if_exited(cluster).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        cluster.plane.check()
    };
    let (submission, faulty) = futures::join!(submission, faulty);
    faulty?;
    submission?;
    work.wait_and_check(cluster, JOBS).await
}

/// etcd is stopped for longer than the lease and then continues.
pub(crate) async fn etcd_stops_and_resumes(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "stops").await?;
    run_under_load(cluster, &work, async |cluster| {
        cluster.plane.pause("etcd")?;
        tokio::time::sleep(scaled_duration(STOP_TIME)).await;
        cluster.plane.resume("etcd")
    })
    .await
}

/// etcd is stopped for a second repeatedly, as on a disk that needs a second per write.
pub(crate) async fn etcd_writes_are_slow(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "slow").await?;
    run_under_load(cluster, &work, async |cluster| {
        let begun = Instant::now();
        while begun.elapsed() < scaled_duration(SLOW_PERIOD) {
            cluster.plane.pause("etcd")?;
            tokio::time::sleep(FSYNC_DELAY).await;
            cluster.plane.resume("etcd")?;
            tokio::time::sleep(SUBMIT_INTERVAL).await;
        }
        Ok(())
    })
    .await
}

/// The API server is killed and restarted twice.
pub(crate) async fn api_server_restarts_twice(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "restarts").await?;
    work.expect_restarts();
    run_under_load(cluster, &work, async |cluster| {
        for _ in 0..2 {
            cluster.plane.restart_apiserver().await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        Ok(())
    })
    .await
}

/// The leader is cut off from the API server in both directions: it exits and the standby takes over. Restarted, it is
/// not ready while it is cut off; afterwards it leads when the other replica stops.
pub(crate) async fn leader_loses_api_server(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings =
        ManagerSettings { api_server_url: Some(proxy.url()), ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    let first = cluster.take_manager().context("no manager")?;
    let balancer = cluster.balancer.as_ref().context("no balancer")?;
    let port = |manager: &Manager| manager.settings().webhook_port;
    let work = BackgroundJobs::start(fixture, "work").await?;
    work.submit(0..JOBS_BEFORE).await?;
    let led = lease_holder(&fixture.objects).await?;
    let standby = ManagerSettings { name: "standby".to_owned(), webhook_port: 0, ..before.clone() };
    let second = Manager::start(&cluster.plane, &standby).await?;
    second.wait_until_ready().await?;

    let begun = Instant::now();
    let cut = (
        proxy.inject_all(Fault::NeverAnswer, |_| true),
        proxy.inject_watch_fault(|_, _| EventFault::Stalled),
    );
    // A Service sends no requests to a replica that is not ready.
    balancer.set_backends(vec![port(&second)]);
    let led = wait_for_other_holder(&fixture.objects, &led).await?;
    work.submit(JOBS_BEFORE..2 * JOBS_BEFORE).await?;
    eventually("the replica that is cut off has exited", async || {
        ensure!(first.process().check().is_err(), "it is still running");
        Ok(())
    })
    .await?;
    let settings = first.settings().clone();
    let mut restarted = Manager::start(&cluster.plane, &settings).await?;
    tokio::time::sleep(scaled_duration(CUT_OFF).saturating_sub(begun.elapsed())).await;
    ensure!(restarted.is_ready().await.is_err(), "it is ready although it is cut off");
    drop(cut);
    if restarted.process().check().is_err() {
        restarted = Manager::start(&cluster.plane, &settings).await?;
    }
    restarted.wait_until_ready().await?;
    balancer.set_backends(vec![port(&restarted)]);
    second.terminate();
    wait_for_other_holder(&fixture.objects, &led).await?;
    work.submit(2 * JOBS_BEFORE..JOBS).await?;
    cluster.put_manager(restarted);
    work.wait_and_check(cluster, JOBS).await?;
    cluster.replace_manager(&before).await.map(drop)
}
