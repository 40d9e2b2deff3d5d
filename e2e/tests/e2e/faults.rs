//! Writes that are lost, whose answer is lost, that arrive late, or twice.

use crate::ground::Ground;
use anyhow::{Context as _, Result, ensure};
use futures::stream::{self, StreamExt as _};
use http::Method;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, Settings};
use sluice_e2e::objects::{Kind, number, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::{eventually, scaled};
use std::collections::BTreeMap;
use std::time::Duration;

/// The manager gives a call up after this time …
const PATIENCE: Duration = Duration::from_secs(10);
/// … and a late one arrives after that one. Both are a tenth of it, but for a soak.
const LATE: Duration = Duration::from_secs(30);
/// Stories at once.
const AT_ONCE: usize = 8;

const FAULTS: [(&str, Fault); 4] = [
    ("lost", Fault::DropRequest),
    ("unanswered", Fault::DropAnswer),
    ("late", Fault::Delay(LATE)),
    ("twice", Fault::Duplicate),
];

/// Whether a call is this step of the Job of this name.
pub(crate) type Step = fn(&Call, &str) -> bool;

/// Every write of the story.
pub(crate) const STEPS: [(&str, Step); 8] = [
    ("create", |call, job| {
        call.is(&Method::POST, "/workloads") && call.body["metadata"]["ownerReferences"][0]["name"] == job
    }),
    ("reserve", |call, job| {
        is_status(call, job) && call.sets("QuotaReserved", "True") && !call.sets("Evicted", "True")
    }),
    ("start", |call, job| is_job(call, job) && call.body["spec"]["suspend"] == false),
    ("evict", |call, job| {
        is_status(call, job) && call.sets("Evicted", "True") && call.sets("QuotaReserved", "True")
    }),
    ("stop", |call, job| is_job(call, job) && call.body["spec"]["suspend"] == true),
    ("release", |call, job| {
        is_status(call, job) && call.sets("Evicted", "True") && call.sets("QuotaReserved", "False")
    }),
    ("finish", |call, job| is_status(call, job) && call.sets("Finished", "True")),
    ("count", |call, job| call.is(&Method::PATCH, &format!("-{job}/status"))),
];

fn is_status(call: &Call, job: &str) -> bool {
    call.is(&Method::PATCH, "/status") && call.path.contains(&format!("/workloads/job-{job}-"))
}

fn is_job(call: &Call, job: &str) -> bool {
    call.is(&Method::PATCH, &format!("/jobs/{job}"))
}

/// How a story ended: all that must not depend on what went wrong on the way.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
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

impl End {
    /// The same without what names the nodes and flavor that it ran on.
    pub(crate) fn anywhere(self) -> Self {
        Self { admission: Value::Null, selector: Value::Null, ..self }
    }

    /// Whether the manager has counted all that it counts in a life.
    pub(crate) fn is_counted(&self) -> bool {
        self.counters.len() >= 5
    }
}

/// Each write of a Job's life, evicted once in the middle, goes astray in each way: the end is as without.
pub(crate) async fn writes_that_go_astray(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let flags =
        vec![format!("--call-timeout={}s", scaled(PATIENCE).as_secs()), "--metrics-insecure".to_owned()];
    let settings = Settings { server: Some(proxy.url()), flags, ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.ready().await?;
    cluster.webhooks_answer().await?;

    story(ground, "calm").await?;
    let calm = counted(ground, &manager, "calm").await?;
    let all = FAULTS.iter().flat_map(|fault| STEPS.iter().map(move |step| (fault, step)));
    let wrong: Vec<String> = stream::iter(all)
        .map(async |((how, fault), (what, step))| {
            let job = format!("{what}-{how}");
            let picks = {
                let job = job.clone();
                move |call: &Call| step(call, &job)
            };
            let fault = match *fault {
                Fault::Delay(time) => Fault::Delay(scaled(time)),
                other => other,
            };
            let trap = proxy.trap(fault, 0..1, picks);
            let told = async {
                story(ground, &job).await?;
                trap.over().await?;
                // The manager may still be finding out what has become of its write.
                eventually("the end is as without", async || {
                    let end = end(ground, &manager, &job).await?;
                    ensure!(end == calm, "it is {end:#?}");
                    Ok(())
                })
                .await
            };
            told.await.err().map(|error| format!("{job}: {error:#}"))
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(async |wrong| wrong)
        .collect()
        .await;
    ensure!(wrong.is_empty(), "{}\nand without any fault: {calm:#?}", wrong.join("\n"));

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.ready().await?;
    cluster.put_manager(direct);
    cluster.webhooks_answer().await
}

/// Submitted, run, stopped by its user, run again, finished; in a queue of its own.
pub(crate) async fn story(ground: &Ground, job: &str) -> Result<()> {
    ground.queue(job, "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job(job, job, "1")).await?;
    ground.runs(job).await?;
    ground.set_workload(job, json!({"active": false})).await?;
    ground.waits(job, "Deactivated").await?;
    ground.set_workload(job, json!({"active": true})).await?;
    ground.runs_as_told(job).await?;
    ground.finish(job).await?;
    ground.counts(job, (0, 0, 0), &[("cpu", "0")]).await
}

/// The end of a story when the manager has counted everything.
pub(crate) async fn counted(ground: &Ground, manager: &Manager, job: &str) -> Result<End> {
    eventually("everything is counted", async || {
        let end = end(ground, manager, job).await?;
        ensure!(end.is_counted(), "the manager counts too little: {:?}", end.counters);
        Ok(end)
    })
    .await
}

pub(crate) async fn end(ground: &Ground, manager: &Manager, job: &str) -> Result<End> {
    let workload = ground.workload(job).await?;
    let object = ground.objects.need(Kind::JOB, &ground.name, job).await?;
    let queue = ground.objects.need(Kind::CLUSTER_QUEUE, "", &ground.own(job)).await?;
    let mut conditions: Vec<_> = workload["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| (text(c, "/type").to_owned(), text(c, "/status").to_owned(), text(c, "/reason").to_owned()))
        .collect();
    conditions.sort();
    let mut admission = workload["status"]["admission"].clone();
    admission["clusterQueue"] = Value::Null;
    Ok(End {
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
async fn counters(ground: &Ground, manager: &Manager, queue: &str) -> Result<BTreeMap<String, String>> {
    let label = format!("cluster_queue=\"{}\"", ground.own(queue));
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
