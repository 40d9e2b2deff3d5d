//! Latency of the webhooks under an open-loop load: reviews are sent on schedule, whether or not earlier ones were
//! answered, over persistent TLS connections.

use super::scenario::{NAMESPACE, Scenario};
use crate::binaries::Build;
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::{ControlPlane, Extent};
use crate::kubeconfig;
use crate::objects::{Job, Kind, ObjectClient, text};
use crate::process::ProcessUsage;
use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Warm-up time, not measured, in which connections are opened.
const WARM_UP: Duration = Duration::from_secs(3);
/// Reviews sent together at each tick.
const REVIEWS_PER_TICK: u32 = 2;

/// Sends `rate` reviews per second for `seconds` and prints the latencies.
pub async fn run(rate: u32, seconds: u64) -> Result<()> {
    let options =
        ClusterOptions { extent: Extent::Api, build: Build::Release, nodes: 0, ..ClusterOptions::default() };
    let cluster = Cluster::start(&options, &ControlPlane::temporary_folder()).await?;
    Scenario::by_name("baseline")?.make_queues(&cluster.objects).await?;
    let reviews = Arc::new(reviews(&cluster.objects).await?);
    let client = manager_client(&cluster).await?;
    let pid = cluster.manager()?.process().identity().pid;
    let warm_up = send_all(&client, &reviews, rate, WARM_UP).await?;
    ensure!(!warm_up.is_empty(), "no review was answered");
    let before = ProcessUsage::of_process(pid)?;
    let mut times = send_all(&client, &reviews, rate, Duration::from_secs(seconds)).await?;
    let after = ProcessUsage::of_process(pid)?;
    times.sort_unstable();
    let percentile = |percent: usize| percentile(&times, percent);
    println!("{} reviews at {rate} a second, dry-run creates of Jobs and Workloads in turn", times.len());
    println!(
        "  p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, longest {:.2} ms",
        percentile(50),
        percentile(90),
        percentile(99),
        percentile(100)
    );
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    println!(
        "  sluice: CPU {:.0} % of a core, {} MiB resident",
        cpu / seconds_as_f64(seconds) * 100.0,
        after.resident_mib
    );
    Ok(())
}

/// Returns a percentile of sorted times, in milliseconds; 0 without times.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default().as_secs_f64() * 1000.0
}

fn seconds_as_f64(seconds: u64) -> f64 {
    Duration::from_secs(seconds).as_secs_f64()
}

/// A webhook path and the review to send to it.
type SampleReview = (&'static str, Vec<u8>);

/// Returns reviews of creates of Jobs and Workloads.
pub(super) async fn reviews(objects: &ObjectClient) -> Result<Vec<SampleReview>> {
    let scenario = Scenario::by_name("baseline")?;
    let mut body = scenario.workload("reviewed", "q-0-0", &scenario.classes[0], 0);
    let job = Job::new(NAMESPACE, "reviewed", "q-0-0", &[("cpu", "1")]).pods(3);
    let stored = objects.list(Kind::CLUSTER_QUEUE, "", "").await?;
    ensure!(!stored.is_empty(), "no ClusterQueues exist");
    body["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
    body["kind"] = "Workload".into();
    let mut job = job.body().clone();
    job["apiVersion"] = "batch/v1".into();
    job["kind"] = "Job".into();
    let one = |path, group: &str, version: &str, resource: &str, object: &Value| -> Result<SampleReview> {
        let kind = text(object, "/kind");
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
            "requestKind": {"group": group, "version": version, "kind": kind},
            "requestResource": {"group": group, "version": version, "resource": resource},
            "name": "reviewed", "namespace": NAMESPACE, "operation": "CREATE",
            "userInfo": {"username": "user", "groups": ["system:authenticated"]},
            "object": object, "oldObject": null, "dryRun": true, "options": {},
        }});
        Ok((path, serde_json::to_vec(&review)?))
    };
    Ok(vec![
        one("/mutate-batch-v1-job", "batch", "v1", "jobs", &job)?,
        one("/mutate-kueue-x-k8s-io-v1beta2-workload", "kueue.x-k8s.io", "v1beta2", "workloads", &body)?,
        one("/validate-batch-v1-job", "batch", "v1", "jobs", &job)?,
        one("/validate-kueue-x-k8s-io-v1beta2-workload", "kueue.x-k8s.io", "v1beta2", "workloads", &body)?,
    ])
}

/// Returns the CA bundle in the webhook configurations, in PEM.
pub async fn ca_bundle(cluster: &Cluster) -> Result<String> {
    ca_bundle_of(&cluster.objects).await
}

async fn ca_bundle_of(objects: &ObjectClient) -> Result<String> {
    let configurations = objects.list(Kind::VALIDATING_WEBHOOKS, "", "").await?;
    let bundle = configurations.first().context("no webhook configurations")?["webhooks"][0]["clientConfig"]
        ["caBundle"]
        .clone();
    let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).context("no caBundle")?;
    Ok(String::from_utf8(bundle.0)?)
}

/// Returns a client for the manager's webhook port that trusts the CA bundle of the webhook configurations.
pub async fn manager_client(cluster: &Cluster) -> Result<Client> {
    client_of(&cluster.objects, cluster.manager()?.settings().webhook_port).await
}

/// The same of a manager that serves webhooks at this port.
pub(super) async fn client_of(objects: &ObjectClient, port: u16) -> Result<Client> {
    kubeconfig::anonymous(&format!("https://127.0.0.1:{port}"), &ca_bundle_of(objects).await?)
}

/// Sends reviews for `time`; returns the latency of each.
pub(super) async fn send_all(
    client: &Client,
    reviews: &Arc<Vec<SampleReview>>,
    rate: u32,
    time: Duration,
) -> Result<Vec<Duration>> {
    let period = Duration::from_secs(1) * REVIEWS_PER_TICK / rate;
    let ticks = time.as_nanos() / period.as_nanos().max(1);
    let begun = Instant::now();
    let mut running = JoinSet::new();
    let mut times = Vec::new();
    for tick in 0..u32::try_from(ticks)? {
        let due = begun + period * tick;
        tokio::time::sleep_until(due.into()).await;
        for offset in 0..REVIEWS_PER_TICK {
            let review_index = usize::try_from(tick * REVIEWS_PER_TICK + offset)? % reviews.len();
            // Measured from now: the timer may wake up to 1 ms late, which is not webhook latency.
            running.spawn(send(client.clone(), Arc::clone(reviews), review_index, Instant::now()));
        }
        while let Some(done) = running.try_join_next() {
            times.push(done??);
        }
    }
    while let Some(done) = running.join_next().await {
        times.push(done??);
    }
    Ok(times)
}

async fn send(
    client: Client,
    reviews: Arc<Vec<SampleReview>>,
    review_index: usize,
    sent_at: Instant,
) -> Result<Duration> {
    let (path, body) = &reviews[review_index];
    let request = http::Request::post(*path).header(http::header::CONTENT_TYPE, "application/json");
    let answer = client.send(request.body(Body::from(body.clone()))?).await?;
    ensure!(answer.status() == 200, "{path} returned {}", answer.status());
    let bytes = answer.into_body().collect_bytes().await?;
    let time = sent_at.elapsed();
    let answer: Value = serde_json::from_slice(&bytes)?;
    ensure!(answer["response"]["allowed"] == true, "{path}: {answer}");
    Ok(time)
}
