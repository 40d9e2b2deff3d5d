//! The manager dies in the middle of its first lists, and over and over under a burst.

use crate::background_jobs::BackgroundJobs;
use crate::fixture::Fixture;
use crate::history::History;
use crate::watch_faults::max_reserved;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::{eventually, is_soak_run, scaled_duration};
use std::time::{Duration, Instant};

/// Workloads that are listed.
const WORKLOADS: usize = 10_000;
/// Of them, those that have quota before, and those that have room beside them.
const RESERVED: usize = 3;
const CAPACITY: usize = 5;
/// Kinds whose list is not complete when the manager dies; of the first, half has been told.
const KINDS: [&str; 5] = ["workloads", "clusterqueues", "localqueues", "resourceflavors", "jobs"];
/// How long it is given to do harm before it dies.
const OBSERVATION_TIME: Duration = Duration::from_secs(1);
/// How long it is killed over and over; a tenth of it, but for a soak.
const KILL_PERIOD: Duration = Duration::from_mins(3);
const JOBS: usize = 40;

/// Ten thousand Workloads, a few of them with quota: as long as one list is not complete nothing is admitted, however often
/// the manager dies then; and when all are, as many as there is room for.
pub(crate) async fn killed_during_initial_lists(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let count = if is_soak_run() { WORKLOADS } else { WORKLOADS / 10 };
    let room = CAPACITY.to_string();
    fixture.create_queue("main", "", &[("cpu", &room, None)], json!({})).await?;
    fixture.wait_until_queue_active("main").await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    create_workloads(fixture, 0..RESERVED).await?;
    fixture.wait_for_cpu_usage("main", &RESERVED.to_string()).await?;
    let before = cluster.manager()?.settings().clone();
    let old = cluster.take_manager().context("no manager")?;
    old.kill();
    create_workloads(fixture, RESERVED..count).await?;

    let proxy = Proxy::open(&cluster.plane).await?;
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), ..before.clone() };
    for kind in KINDS {
        let of_kind = move |call: &Call| call.is_watch() && call.path.ends_with(&format!("/{kind}"));
        // About half of a Workload's bytes for each of them.
        let fault = if kind == "workloads" { Fault::HoldBodyAfter(count * 500) } else { Fault::Hold };
        let trap = proxy.inject_all(fault, of_kind);
        let manager = Manager::start(&cluster.plane, &settings).await?;
        // Webhooks do not answer from flavors: a replica that lacks these alone is ready for reviews.
        let reviewed = kind != "resourceflavors";
        eventually(format!("only {kind} are not listed"), async || {
            let error = match manager.is_ready().await {
                Ok(()) if reviewed => anyhow::bail!("it is ready"),
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let error = format!("{error:#}");
            let missing = error
                .split("waiting for initial list of ")
                .nth(1)
                .and_then(|rest| rest.split([';', '\n']).next());
            ensure!(missing == Some(kind), "{error}");
            Ok(())
        })
        .await?;
        tokio::time::sleep(OBSERVATION_TIME).await;
        manager.kill();
        drop(trap);
        let reserved = count_reserved(fixture).await?;
        ensure!(reserved == RESERVED, "{reserved} have quota and {kind} were not listed");
    }
    cluster.start_manager(&before).await?;
    fixture.wait_for_cpu_usage("main", &room).await?;
    let waiting = i64::try_from(count - CAPACITY)?;
    let room = i64::try_from(CAPACITY)?;
    fixture.wait_for_queue_counts("main", (waiting, room, room), &[]).await?;
    let most = max_reserved(&history.revisions()?, CAPACITY)?;
    ensure!(most == CAPACITY, "{most} were held at once");
    Ok(())
}

async fn count_reserved(fixture: &Fixture) -> Result<usize> {
    let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
    Ok(all.iter().filter(|workload| condition_is_true(workload, "QuotaReserved")).count())
}

/// Workloads of one CPU each that no Job owns.
async fn create_workloads(fixture: &Fixture, numbers: std::ops::Range<usize>) -> Result<()> {
    let created = stream::iter(numbers).map(async |number| {
        let container = json!({"name": "c", "image": "work:1", "resources": {"requests": {"cpu": "1"}}});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let sets = json!([{"name": "main", "count": 1, "template": template}]);
        let metadata = json!({"namespace": fixture.name, "name": format!("w-{number}")});
        let body = json!({"metadata": metadata, "spec": {"queueName": "main", "podSets": sets}});
        fixture.objects.create(Kind::WORKLOAD, &body).await
    });
    let created: Vec<Value> = created.buffer_unordered(16).try_collect().await?;
    ensure!(created.iter().all(|workload| !text(workload, "/metadata/uid").is_empty()), "one has no uid");
    Ok(())
}

/// Killed every one to five seconds while Jobs come, ready or not: never beyond the quota, and when it is let alone all
/// have run, once each.
pub(crate) async fn killed_repeatedly_under_burst(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "main").await?;
    let coming = work.submit(0..JOBS);
    let killed = async {
        let begun = Instant::now();
        for pause in (1..=5).cycle().map(Duration::from_secs) {
            tokio::time::sleep(pause).await;
            let old = cluster.take_manager().context("no manager")?;
            old.kill();
            cluster.put_manager(Manager::start(&cluster.plane, old.settings()).await?);
            if begun.elapsed() > scaled_duration(KILL_PERIOD) {
                break;
            }
        }
        cluster.manager()?.wait_until_ready().await
    };
    let (coming, killed) = futures::join!(coming, killed);
    killed?;
    coming?;
    cluster.wait_for_webhooks().await?;
    work.wait_and_check(cluster, JOBS).await
}
