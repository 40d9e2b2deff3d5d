//! The store stops or is slow, the API server is restarted, a leader is cut off from it: nothing is admitted beyond the
//! quota, nothing is lost, and work goes on when they are back.

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

/// How long each lasts; a tenth of it, but for a soak.
const STOP_TIME: Duration = Duration::from_mins(1);
const SLOW_PERIOD: Duration = Duration::from_mins(2);
const CUT_OFF: Duration = Duration::from_mins(1);
/// A write takes up to this long, …
const FSYNC_DELAY: Duration = Duration::from_secs(1);
/// … and then there is this time for as many as can be.
const SUBMIT_INTERVAL: Duration = Duration::from_millis(300);
/// Jobs before a fault, and in all.
const JOBS_BEFORE: usize = 8;
const JOBS: usize = 24;

/// Jobs keep coming while something happens to the cluster; the manager is started again if it ends meanwhile, as it must
/// when it cannot renew its lease.
async fn run_under_load(
    cluster: &mut Cluster,
    work: &BackgroundJobs<'_>,
    fault: impl AsyncFnOnce(&mut Cluster) -> Result<()>,
) -> Result<()> {
    work.submit(0..JOBS_BEFORE).await?;
    let submitted = Cell::new(false);
    let coming = async {
        let outcome = work.submit(JOBS_BEFORE..JOBS).await;
        submitted.set(true);
        outcome
    };
    let faulty = async {
        fault(cluster).await?;
        while !submitted.get() {
            // It is tried again: what is wrong with it shows at the end.
            let _ = restart_if_exited(cluster).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        cluster.plane.check()
    };
    let (coming, faulty) = futures::join!(coming, faulty);
    faulty?;
    coming?;
    work.wait_and_check(cluster, JOBS).await
}

/// etcd answers nothing, for longer than the lease, and goes on.
pub(crate) async fn etcd_stops_and_resumes(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "stops").await?;
    run_under_load(cluster, &work, async |cluster| {
        cluster.plane.pause("etcd")?;
        tokio::time::sleep(scaled_duration(STOP_TIME)).await;
        cluster.plane.resume("etcd")
    })
    .await
}

/// etcd stops for a second over and over, as on a disk that takes so long to write.
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

/// The API server is killed and started twice.
pub(crate) async fn api_server_restarts_twice(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "restarts").await?;
    work.allow_relist();
    run_under_load(cluster, &work, async |cluster| {
        for _ in 0..2 {
            cluster.plane.restart_apiserver().await?;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        Ok(())
    })
    .await
}

/// Nothing of the leader reaches the API server, nor the other way: it ends itself, the standby takes over; started again
/// it is not ready as long as it is cut off, and afterwards it leads when the other goes.
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
    // A Service sends nothing to who is not ready.
    balancer.set_backends(vec![port(&second)]);
    let led = wait_for_other_holder(&fixture.objects, &led).await?;
    work.submit(JOBS_BEFORE..2 * JOBS_BEFORE).await?;
    eventually("the one that is cut off has ended", async || {
        ensure!(first.process().check().is_err(), "it runs on");
        Ok(())
    })
    .await?;
    let settings = first.settings().clone();
    let mut again = Manager::start(&cluster.plane, &settings).await?;
    tokio::time::sleep(scaled_duration(CUT_OFF).saturating_sub(begun.elapsed())).await;
    ensure!(again.is_ready().await.is_err(), "it is ready and knows nothing");
    drop(cut);
    if again.process().check().is_err() {
        again = Manager::start(&cluster.plane, &settings).await?;
    }
    again.wait_until_ready().await?;
    balancer.set_backends(vec![port(&again)]);
    second.terminate();
    wait_for_other_holder(&fixture.objects, &led).await?;
    work.submit(2 * JOBS_BEFORE..JOBS).await?;
    cluster.put_manager(again);
    work.wait_and_check(cluster, JOBS).await?;
    cluster.replace_manager(&before).await.map(drop)
}
