//! The manager is killed during its initial lists, and repeatedly under a burst.

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

/// Workloads in the initial list; a tenth of them outside soak runs.
const WORKLOADS: usize = 10_000;
/// Workloads with quota before the manager is killed.
const RESERVED: usize = 3;
/// Quota of the queue in Workloads.
const CAPACITY: usize = 5;
/// Kinds whose list is incomplete when the manager is killed; about half of the list of Workloads has arrived by then.
const KINDS: [&str; 5] = ["workloads", "clusterqueues", "localqueues", "resourceflavors", "jobs"];
/// How long the manager could admit too early before it is killed.
const OBSERVATION_TIME: Duration = Duration::from_secs(1);
/// How long the manager is killed repeatedly; a tenth of it outside soak runs.
const KILL_PERIOD: Duration = Duration::from_mins(3);
const JOBS: usize = 40;

/// Of 10,000 Workloads, a few have quota. While one initial list is incomplete no further one is admitted, however
/// often the manager is killed then. When all lists are complete, the quota is filled.
pub(crate) async fn killed_during_initial_lists(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let count = if is_soak_run() { WORKLOADS } else { WORKLOADS / 10 };
    let quota = CAPACITY.to_string();
    fixture.create_queue("main", "", &[("cpu", &quota, None)], json!({})).await?;
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
        // About half of the response: 500 bytes for each Workload.
        let fault = if kind == "workloads" { Fault::HoldBodyAfter(count * 500) } else { Fault::Hold };
        let active_fault = proxy.inject_all(fault, of_kind);
        let manager = Manager::start(&cluster.plane, &settings).await?;
        // Webhooks do not use ResourceFlavors: a replica that lacks only this list is ready.
        let needed_by_webhooks = kind != "resourceflavors";
        eventually(format!("only the list of {kind} is missing"), async || {
            let error = match manager.is_ready().await {
                Ok(()) if needed_by_webhooks => anyhow::bail!("the manager is ready"),
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
        drop(active_fault);
        let reserved = count_reserved(fixture).await?;
        ensure!(reserved == RESERVED, "{reserved} Workloads have quota without the list of {kind}");
    }
    cluster.start_manager(&before).await?;
    fixture.wait_for_cpu_usage("main", &quota).await?;
    let pending = i64::try_from(count - CAPACITY)?;
    let admitted = i64::try_from(CAPACITY)?;
    fixture.wait_for_queue_counts("main", (pending, admitted, admitted), &[]).await?;
    let peak = max_reserved(&history.revisions()?, CAPACITY)?;
    ensure!(peak == CAPACITY, "{peak} Workloads had quota at once");
    Ok(())
}

async fn count_reserved(fixture: &Fixture) -> Result<usize> {
    let all = fixture.objects.list(Kind::WORKLOAD, &fixture.name, "").await?;
    Ok(all.iter().filter(|workload| condition_is_true(workload, "QuotaReserved")).count())
}

/// Creates Workloads of one CPU each, without an owner.
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
    ensure!(created.iter().all(|workload| !text(workload, "/metadata/uid").is_empty()), "a uid is missing");
    Ok(())
}

/// The manager is killed every one to five seconds, ready or not, while Jobs are created: usage never exceeds the
/// quota, and after the last restart all Jobs run, each once.
pub(crate) async fn killed_repeatedly_under_burst(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let work = BackgroundJobs::start(fixture, "main").await?;
    let submission = work.submit(0..JOBS);
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
    let (submission, killed) = futures::join!(submission, killed);
    killed?;
    submission?;
    cluster.wait_for_webhooks().await?;
    work.wait_and_check(cluster, JOBS).await
}
