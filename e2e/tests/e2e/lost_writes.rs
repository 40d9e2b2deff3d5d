//! Writes that are lost, whose answer is lost, that arrive late, or twice.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, number, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::{eventually, scaled_duration};
use std::collections::BTreeMap;
use std::time::Duration;

/// The manager gives a call up after this time …
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// … and a late one arrives after that one. Both are a tenth of it, but for a soak.
const DELAY: Duration = Duration::from_secs(30);
/// Stories at once.
const PARALLEL_SCENARIOS: usize = 8;

const FAULTS: [(&str, Fault); 4] = [
    ("lost", Fault::DropRequest),
    ("unanswered", Fault::DropResponse),
    ("late", Fault::Delay(DELAY)),
    ("twice", Fault::Duplicate),
];

/// Whether a call is this step of the Job of this name.
pub(crate) type Step = fn(&Call, &str) -> bool;

/// Every write of the story.
pub(crate) const STEPS: [(&str, Step); 8] = [
    ("create", |call, job| {
        call.matches(&Method::POST, "/workloads")
            && call.body["metadata"]["ownerReferences"][0]["name"] == job
    }),
    ("reserve", |call, job| {
        is_workload_status_patch(call, job)
            && call.sets_condition("QuotaReserved", "True")
            && !call.sets_condition("Evicted", "True")
    }),
    ("start", |call, job| is_job_patch(call, job) && call.body["spec"]["suspend"] == false),
    ("evict", |call, job| {
        is_workload_status_patch(call, job)
            && call.sets_condition("Evicted", "True")
            && call.sets_condition("QuotaReserved", "True")
    }),
    ("stop", |call, job| is_job_patch(call, job) && call.body["spec"]["suspend"] == true),
    ("release", |call, job| {
        is_workload_status_patch(call, job)
            && call.sets_condition("Evicted", "True")
            && call.sets_condition("QuotaReserved", "False")
    }),
    ("finish", |call, job| is_workload_status_patch(call, job) && call.sets_condition("Finished", "True")),
    ("count", |call, job| call.matches(&Method::PATCH, &format!("-{job}/status"))),
];

fn is_workload_status_patch(call: &Call, job: &str) -> bool {
    call.matches(&Method::PATCH, "/status") && call.path.contains(&format!("/workloads/job-{job}-"))
}

fn is_job_patch(call: &Call, job: &str) -> bool {
    call.matches(&Method::PATCH, &format!("/jobs/{job}"))
}

/// How a story ended: all that must not depend on what went wrong on the way.
#[derive(Debug, PartialEq)]
pub(crate) struct EndState {
    /// Type, status and reason of the Workload's conditions.
    conditions: Vec<(String, String, String)>,
    admission: Value,
    /// What the Job runs with.
    selector: Value,
    suspended: Value,
    /// The queue's counts of pending, reserving and admitted workloads, and what it holds.
    counts: (i64, i64, i64, Value),
    /// The manager's counters for this queue.
    counters: BTreeMap<String, String>,
}

impl EndState {
    /// The same without what names the nodes and flavor that it ran on.
    pub(crate) fn without_placement(self) -> Self {
        Self { admission: Value::Null, selector: Value::Null, ..self }
    }

    /// Whether the manager has counted all that it counts in a life.
    pub(crate) fn is_counted(&self) -> bool {
        self.counters.len() >= 5
    }
}

/// Each write of a Job's life, evicted once in the middle, goes astray in each way: the end is as without.
pub(crate) async fn lost_late_duplicate_writes(cluster: &mut Cluster, ground: &Fixture) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let flags = vec![
        format!("--call-timeout={}s", scaled_duration(CALL_TIMEOUT).as_secs()),
        "--metrics-insecure".to_owned(),
    ];
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), flags, ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;

    scenario(ground, "calm").await?;
    let calm = wait_for_counted_end(ground, &manager, "calm").await?;
    let all = FAULTS.iter().flat_map(|fault| STEPS.iter().map(move |step| (fault, step)));
    let wrong: Vec<String> = stream::iter(all)
        .map(async |((how, fault), (what, step))| {
            let job = format!("{what}-{how}");
            let picks = {
                let job = job.clone();
                move |call: &Call| step(call, &job)
            };
            let fault = match *fault {
                Fault::Delay(time) => Fault::Delay(scaled_duration(time)),
                other => other,
            };
            let trap = proxy.inject(fault, 0..1, picks);
            let told = async {
                scenario(ground, &job).await?;
                trap.wait_until_completed().await?;
                // The manager may still be finding out what has become of its write.
                eventually("the end is as without", async || {
                    let end = end_state(ground, &manager, &job).await?;
                    ensure!(end == calm, "it is {end:#?}");
                    Ok(())
                })
                .await
            };
            told.await.err().map(|error| format!("{job}: {error:#}"))
        })
        .buffer_unordered(PARALLEL_SCENARIOS)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    ensure!(wrong.is_empty(), "{}\nand without any fault: {calm:#?}", wrong.join("\n"));

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.wait_until_ready().await?;
    cluster.put_manager(direct);
    cluster.wait_for_webhooks().await
}

/// Submitted, run, stopped by its user, run again, finished; in a queue of its own.
pub(crate) async fn scenario(ground: &Fixture, job: &str) -> Result<()> {
    ground.create_queue(job, "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job(job, job, "1")).await?;
    ground.wait_until_running(job).await?;
    ground.set_workload_spec(job, json!({"active": false})).await?;
    ground.wait_until_pending(job, "Deactivated").await?;
    ground.set_workload_spec(job, json!({"active": true})).await?;
    ground.wait_until_running_and_reported(job).await?;
    ground.finish_job(job).await?;
    ground.wait_for_queue_counts(job, (0, 0, 0), &[("cpu", "0")]).await
}

/// The end of a story when the manager has counted everything.
pub(crate) async fn wait_for_counted_end(ground: &Fixture, manager: &Manager, job: &str) -> Result<EndState> {
    eventually("everything is counted", async || {
        let end = end_state(ground, manager, job).await?;
        ensure!(end.is_counted(), "the manager counts too little: {:?}", end.counters);
        Ok(end)
    })
    .await
}

pub(crate) async fn end_state(ground: &Fixture, manager: &Manager, job: &str) -> Result<EndState> {
    let workload = ground.workload(job).await?;
    let object = ground.objects.must_get(Kind::JOB, &ground.name, job).await?;
    let queue = ground.objects.must_get(Kind::CLUSTER_QUEUE, "", &ground.own_name(job)).await?;
    let mut conditions: Vec<_> = workload["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| (text(c, "/type").to_owned(), text(c, "/status").to_owned(), text(c, "/reason").to_owned()))
        .collect();
    conditions.sort();
    let mut admission = workload["status"]["admission"].clone();
    admission["clusterQueue"] = Value::Null;
    Ok(EndState {
        conditions,
        admission,
        selector: object["spec"]["template"]["spec"]["nodeSelector"].clone(),
        suspended: object["spec"]["suspend"].clone(),
        counts: (
            number(&queue, "/status/pendingWorkloads"),
            number(&queue, "/status/reservingWorkloads"),
            number(&queue, "/status/admittedWorkloads"),
            queue["status"]["flavorsReservation"][0]["resources"].clone(),
        ),
        counters: counters(ground, manager, job).await?,
    })
}

/// The manager's counters of workloads in one queue, by name.
async fn counters(ground: &Fixture, manager: &Manager, queue: &str) -> Result<BTreeMap<String, String>> {
    let label = format!("cluster_queue=\"{}\"", ground.own_name(queue));
    eventually("the counters are read", async || {
        let page = manager.metrics().await?;
        let lines = page.lines().filter(|line| line.contains(&label) && line.contains("_workloads"));
        let values = lines.filter_map(|line| {
            let (name, value) = line.split_once('{').zip(line.rsplit_once(' ')).map(|(l, r)| (l.0, r.1))?;
            name.ends_with("_total").then(|| (name.to_owned(), value.to_owned()))
        });
        Ok(values.collect())
    })
    .await
}
