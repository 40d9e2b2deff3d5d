//! Writes that are lost, whose response is lost, that arrive late or twice.

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

/// Request timeout of the manager; a tenth of it outside soak runs.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay of late writes, longer than `CALL_TIMEOUT`; a tenth of it outside soak runs.
const DELAY: Duration = Duration::from_secs(30);
/// Concurrent scenarios.
const PARALLEL_SCENARIOS: usize = 8;

const FAULTS: [(&str, Fault); 4] = [
    ("lost", Fault::DropRequest),
    ("unanswered", Fault::DropResponse),
    ("late", Fault::Delay(DELAY)),
    ("twice", Fault::Duplicate),
];

/// Returns whether a call is this step of the Job with this name.
pub(crate) type Step = fn(&Call, &str) -> bool;

/// Every write of the scenario.
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

/// The end state of a scenario, which must not depend on faults.
#[derive(Debug, PartialEq)]
pub(crate) struct EndState {
    /// Type, status and reason of the Workload's conditions.
    conditions: Vec<(String, String, String)>,
    admission: Value,
    /// Node selector of the Job.
    selector: Value,
    suspended: Value,
    /// The queue's counts of pending, reserving and admitted workloads, and its reserved resources.
    counts: (i64, i64, i64, Value),
    /// The manager's metric counters for this queue.
    counters: BTreeMap<String, String>,
}

impl EndState {
    /// Clears admission and node selector, which depend on flavor and nodes.
    pub(crate) fn without_placement(self) -> Self {
        Self { admission: Value::Null, selector: Value::Null, ..self }
    }

    /// Returns whether the manager has exposed all counters of the scenario.
    pub(crate) fn is_counted(&self) -> bool {
        self.counters.len() >= 5
    }
}

/// Applies each fault to each write in the life of a Job that is evicted once; the end state must be as without faults.
pub(crate) async fn lost_late_duplicate_writes(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let flags = vec![
        format!("--request-timeout={}s", scaled_duration(CALL_TIMEOUT).as_secs()),
        "--metrics-insecure".to_owned(),
    ];
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), flags, ..old.settings().clone() };
    let manager = Manager::start(&cluster.plane, &settings).await?;
    manager.wait_until_ready().await?;
    cluster.wait_for_webhooks().await?;

    scenario(fixture, "calm").await?;
    let expected = wait_for_counted_end(fixture, &manager, "calm").await?;
    let all = FAULTS.iter().flat_map(|fault| STEPS.iter().map(move |step| (fault, step)));
    let failures: Vec<String> = stream::iter(all)
        .map(async |((fault_name, fault), (step_name, step))| {
            let job = format!("{step_name}-{fault_name}");
            let is_step = {
                let job = job.clone();
                move |call: &Call| step(call, &job)
            };
            let fault = match *fault {
                Fault::Delay(time) => Fault::Delay(scaled_duration(time)),
                other => other,
            };
            let injected = proxy.inject(fault, 0..1, is_step);
            let outcome = async {
                scenario(fixture, &job).await?;
                injected.wait_until_completed().await?;
                // The manager may still be checking whether its write has landed.
                eventually("the end state is as without faults", async || {
                    let end = end_state(fixture, &manager, &job).await?;
                    ensure!(end == expected, "the end state is {end:#?}");
                    Ok(())
                })
                .await
            };
            outcome.await.err().map(|error| format!("{job}: {error:#}"))
        })
        .buffer_unordered(PARALLEL_SCENARIOS)
        .filter_map(async |failure| failure)
        .collect()
        .await;
    ensure!(failures.is_empty(), "{}\nend state without faults: {expected:#?}", failures.join("\n"));

    manager.terminate();
    let direct = Manager::start(&cluster.plane, old.settings()).await?;
    direct.wait_until_ready().await?;
    cluster.put_manager(direct);
    cluster.wait_for_webhooks().await
}

/// Runs a Job in its own queue: submitted, running, deactivated, reactivated, running, finished.
pub(crate) async fn scenario(fixture: &Fixture, job: &str) -> Result<()> {
    fixture.create_queue(job, "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job(job, job, "1")).await?;
    fixture.wait_until_running(job).await?;
    fixture.set_workload_spec(job, json!({"active": false})).await?;
    fixture.wait_until_pending(job, "Deactivated").await?;
    fixture.set_workload_spec(job, json!({"active": true})).await?;
    fixture.wait_until_running_and_reported(job).await?;
    fixture.finish_job(job).await?;
    fixture.wait_for_queue_counts(job, (0, 0, 0), &[("cpu", "0")]).await
}

/// Waits until the manager has exposed all counters; returns the end state.
pub(crate) async fn wait_for_counted_end(
    fixture: &Fixture,
    manager: &Manager,
    job: &str,
) -> Result<EndState> {
    eventually("all counters are exposed", async || {
        let end = end_state(fixture, manager, job).await?;
        ensure!(end.is_counted(), "counters are missing: {:?}", end.counters);
        Ok(end)
    })
    .await
}

pub(crate) async fn end_state(fixture: &Fixture, manager: &Manager, job: &str) -> Result<EndState> {
    let workload = fixture.workload(job).await?;
    let object = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
    let queue = fixture.objects.must_get(Kind::CLUSTER_QUEUE, "", &fixture.own_name(job)).await?;
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
        counters: counters(fixture, manager, job).await?,
    })
}

/// Returns the manager's workload counters of one queue, by metric name.
async fn counters(fixture: &Fixture, manager: &Manager, queue: &str) -> Result<BTreeMap<String, String>> {
    let label = format!("cluster_queue=\"{}\"", fixture.own_name(queue));
    eventually("the metrics are readable", async || {
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
