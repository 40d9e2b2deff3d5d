//! Latency of the webhooks under an open load: reviews are sent at their times, whether earlier ones were answered or not,
//! over TLS connections that are kept.

use super::scenario::{NAMESPACE, Scenario};
use crate::cluster::{Cluster, ClusterOptions};
use crate::control_plane::{ControlPlane, Extent};
use crate::kubeconfig;
use crate::objects::{Job, Kind, text};
use crate::process::ProcessUsage;
use anyhow::{Context as _, Result, ensure};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Reviews that are not counted: connections are made.
const WARM_UP: Duration = Duration::from_secs(3);
/// Reviews sent together at each tick.
const REVIEWS_PER_TICK: u32 = 2;

/// Runs it at so many reviews a second for so many seconds, and prints the figures.
pub async fn run(rate: u32, seconds: u64) -> Result<()> {
    let options =
        ClusterOptions { extent: Extent::Api, release: true, nodes: 0, ..ClusterOptions::default() };
    let cluster = Cluster::start(&options, &ControlPlane::temporary_folder()).await?;
    Scenario::by_name("baseline")?.make_queues(&cluster.objects).await?;
    let reviews = Arc::new(reviews(&cluster).await?);
    let client = manager_client(&cluster).await?;
    let pid = cluster.manager()?.process().identity().pid;
    let warm = send_all(&client, &reviews, rate, WARM_UP).await?;
    ensure!(!warm.is_empty(), "nothing was answered");
    let before = ProcessUsage::of_process(pid)?;
    let mut times = send_all(&client, &reviews, rate, Duration::from_secs(seconds)).await?;
    let after = ProcessUsage::of_process(pid)?;
    times.sort_unstable();
    let at = |percent: usize| {
        let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(place).copied().unwrap_or_default().as_secs_f64() * 1000.0
    };
    println!("{} reviews at {rate} a second, dry-run creates of Jobs and Workloads in turn", times.len());
    println!("  p50 {:.2} ms, p90 {:.2} ms, p99 {:.2} ms, longest {:.2} ms", at(50), at(90), at(99), at(100));
    let cpu = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    println!(
        "  sluice: CPU {:.0} % of a core, {} MiB resident",
        cpu / seconds_as_f64(seconds) * 100.0,
        after.resident_mib
    );
    Ok(())
}

fn seconds_as_f64(seconds: u64) -> f64 {
    Duration::from_secs(seconds).as_secs_f64()
}

/// A path of a webhook and the review to send there.
type SampleReview = (&'static str, Vec<u8>);

async fn reviews(cluster: &Cluster) -> Result<Vec<SampleReview>> {
    let scenario = Scenario::by_name("baseline")?;
    let mut body = scenario.workload("reviewed", "q-0-0", &scenario.classes[0], 0);
    // What the server adds before it asks: defaults of the schema.
    let job = Job::new(NAMESPACE, "reviewed", "q-0-0", &[("cpu", "1")]).pods(3);
    let stored = cluster.objects.list(Kind::CLUSTER_QUEUE, "", "").await?;
    ensure!(!stored.is_empty(), "there are no queues");
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
            "userInfo": {"username": "somebody", "groups": ["system:authenticated"]},
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

/// The certificates by which the API server knows the manager, as PEM.
pub async fn ca_bundle(cluster: &Cluster) -> Result<String> {
    let configurations = cluster.objects.list(Kind::VALIDATING_WEBHOOKS, "", "").await?;
    let bundle =
        configurations.first().context("no webhooks")?["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).context("no bundle")?;
    Ok(String::from_utf8(bundle.0)?)
}

/// A client that trusts what the API server trusts, and asks the manager itself.
pub async fn manager_client(cluster: &Cluster) -> Result<Client> {
    let port = cluster.manager()?.settings().webhook_port;
    kubeconfig::anonymous(&format!("https://127.0.0.1:{port}"), &ca_bundle(cluster).await?)
}

/// Sends for a while and returns how long each took from the time at which it was due.
async fn send_all(
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
        for place in 0..REVIEWS_PER_TICK {
            let which = usize::try_from(tick * REVIEWS_PER_TICK + place)? % reviews.len();
            // The timer wakes up to a millisecond late: that is not the webhook's time.
            running.spawn(send(client.clone(), Arc::clone(reviews), which, Instant::now()));
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
    which: usize,
    due: Instant,
) -> Result<Duration> {
    let (path, body) = &reviews[which];
    let request = http::Request::post(*path).header(http::header::CONTENT_TYPE, "application/json");
    let answer = client.send(request.body(Body::from(body.clone()))?).await?;
    ensure!(answer.status() == 200, "{path} answers {}", answer.status());
    let bytes = answer.into_body().collect_bytes().await?;
    let time = due.elapsed();
    let answer: Value = serde_json::from_slice(&bytes)?;
    ensure!(answer["response"]["allowed"] == true, "{path}: {answer}");
    Ok(time)
}
