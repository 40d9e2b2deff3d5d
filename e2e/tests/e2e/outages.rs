//! The store stops or is slow, the API server is restarted, a leader is cut off from it: nothing is admitted beyond the
//! quota, nothing is lost, and work goes on when they are back.

use crate::crashes::{another_holder, holder};
use crate::ground::Ground;
use crate::work::{Work, revive};
use anyhow::{Context as _, Result, ensure};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, Settings};
use sluice_e2e::proxy::{Fault, Proxy};
use sluice_e2e::taps::Passing;
use sluice_e2e::wait::{eventually, scaled};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// How long each lasts; a tenth of it, but for a soak.
const STOPPED: Duration = Duration::from_mins(1);
const SLOW: Duration = Duration::from_mins(2);
const CUT: Duration = Duration::from_mins(1);
/// A write takes up to this long, …
const FSYNC: Duration = Duration::from_secs(1);
/// … and then there is this time for as many as can be.
const BETWEEN: Duration = Duration::from_millis(300);
/// Jobs before a fault, and in all.
const BEFORE: usize = 8;
const JOBS: usize = 24;

/// Jobs keep coming while something happens to the cluster; the manager is started again if it ends meanwhile, as it must
/// when it cannot renew its lease.
async fn under_load(
    cluster: &mut Cluster,
    work: &Work<'_>,
    fault: impl AsyncFnOnce(&mut Cluster) -> Result<()>,
) -> Result<()> {
    work.submit(0..BEFORE).await?;
    let submitted = Cell::new(false);
    let coming = async {
        let outcome = work.submit(BEFORE..JOBS).await;
        submitted.set(true);
        outcome
    };
    let faulty = async {
        fault(cluster).await?;
        while !submitted.get() {
            // It is tried again: what is wrong with it shows at the end.
            let _ = revive(cluster).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        cluster.plane.check()
    };
    let (coming, faulty) = futures::join!(coming, faulty);
    faulty?;
    coming?;
    work.ends(cluster, JOBS).await
}

/// etcd answers nothing, for longer than the lease, and goes on.
pub(crate) async fn the_store_stops(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let work = Work::open(ground, "stops").await?;
    under_load(cluster, &work, async |cluster| {
        cluster.plane.pause("etcd")?;
        tokio::time::sleep(scaled(STOPPED)).await;
        cluster.plane.resume("etcd")
    })
    .await
}

/// etcd stops for a second over and over, as on a disk that takes so long to write.
pub(crate) async fn the_store_is_slow(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let work = Work::open(ground, "slow").await?;
    under_load(cluster, &work, async |cluster| {
        let begun = Instant::now();
        while begun.elapsed() < scaled(SLOW) {
            cluster.plane.pause("etcd")?;
            tokio::time::sleep(FSYNC).await;
            cluster.plane.resume("etcd")?;
            tokio::time::sleep(BETWEEN).await;
        }
        Ok(())
    })
    .await
}

/// The API server is killed and started twice.
pub(crate) async fn the_server_is_restarted(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let work = Work::open(ground, "restarts").await?;
    work.forgive();
    under_load(cluster, &work, async |cluster| {
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
pub(crate) async fn a_leader_is_cut_off(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings = Settings { server: Some(proxy.url()), ..cluster.manager()?.settings().clone() };
    let before = cluster.replace_manager(&settings).await?;
    let first = cluster.take_manager().context("no manager")?;
    let balancer = cluster.balancer.as_ref().context("no balancer")?;
    let port = |manager: &Manager| manager.settings().webhook_port;
    let work = Work::open(ground, "work").await?;
    work.submit(0..BEFORE).await?;
    let led = holder(&ground.objects).await?;
    let standby = Settings { name: "standby".to_owned(), webhook_port: 0, ..before.clone() };
    let second = Manager::start(&cluster.plane, &standby).await?;
    second.ready().await?;

    let begun = Instant::now();
    let cut = (proxy.trap_all(Fault::Silence, |_| true), proxy.tap(|_, _| Passing::Stalled));
    // A Service sends nothing to who is not ready.
    balancer.set(vec![port(&second)]);
    let led = another_holder(&ground.objects, &led).await?;
    work.submit(BEFORE..2 * BEFORE).await?;
    eventually("the one that is cut off has ended", async || {
        ensure!(first.process().check().is_err(), "it runs on");
        Ok(())
    })
    .await?;
    let settings = first.settings().clone();
    let mut again = Manager::start(&cluster.plane, &settings).await?;
    tokio::time::sleep(scaled(CUT).saturating_sub(begun.elapsed())).await;
    ensure!(again.is_ready().await.is_err(), "it is ready and knows nothing");
    drop(cut);
    if again.process().check().is_err() {
        again = Manager::start(&cluster.plane, &settings).await?;
    }
    again.ready().await?;
    balancer.set(vec![port(&again)]);
    second.terminate();
    another_holder(&ground.objects, &led).await?;
    work.submit(2 * BEFORE..JOBS).await?;
    cluster.put_manager(again);
    work.ends(cluster, JOBS).await?;
    cluster.replace_manager(&before).await.map(drop)
}
