//! A stop of a Job needs several writes. A manager that takes over between two of them finishes it, whether Kueue's manager began it
//! or this one; what Kueue's would find says that it is not complete.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use http::Method;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::{Manager, ManagerSettings};
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::proxy::{Call, Fault, Proxy};
use sluice_e2e::wait::eventually;

const STOPPING: &str = "/metadata/annotations/kueue.x-k8s.io~1stopping";
const POD_SET: &str = "/spec/template/metadata/labels/kueue.x-k8s.io~1podset";

pub(crate) async fn either_manager_finishes_it(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    for job in ["theirs", "ours"] {
        fixture.create_queue(job, "", &[("cpu", "1", None)], json!({})).await?;
        fixture.submit(fixture.job(job, job, "1")).await?;
        fixture.wait_until_running(job).await?;
    }
    let before = cluster.manager()?.settings().clone();
    cluster.take_manager().context("no manager")?.terminate();
    let proxy = Proxy::open(&cluster.plane).await?;
    let settings = ManagerSettings { api_server_url: Some(proxy.url()), ..before.clone() };
    let start = async |cluster: &Cluster| {
        let manager = Manager::start(&cluster.plane, &settings).await?;
        manager.wait_until_ready().await?;
        cluster.wait_for_webhooks().await?;
        anyhow::Ok(manager)
    };
    let manager = start(cluster).await?;
    // It serves webhooks, and writes nothing.
    let fault = proxy.inject_all(Fault::Hold, |call: &Call| call.method == Method::PATCH);
    left_by_kueue(fixture, "theirs").await?;
    manager.kill();
    drop(fault);
    let manager = start(cluster).await?;
    is_stopped(fixture, "theirs").await?;

    let second = |call: &Call| {
        call.matches(&Method::PATCH, "/jobs/ours") && call.body.pointer("/spec/suspend").is_none()
    };
    let fault = proxy.inject_all(Fault::Hold, second);
    fixture.set_workload_spec("ours", json!({"active": false})).await?;
    fault.wait_until_matched().await?;
    manager.kill();
    let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "ours").await?;
    ensure!(job["spec"]["suspend"] == true && text(&job, STOPPING) == "true", "{job}");
    let workload = fixture.workload("ours").await?;
    ensure!(condition_is_true(&workload, "Evicted"), "{}", workload["status"]);
    drop(fault);
    cluster.start_manager(&before).await?;
    is_stopped(fixture, "ours").await
}

/// Does what Kueue's manager does before it dies: it evicts the Workload, and makes the first write of the stop.
async fn left_by_kueue(fixture: &Fixture, job: &str) -> Result<()> {
    fixture.set_workload_spec(job, json!({"active": false})).await?;
    let workload = fixture.workload(job).await?;
    let mut conditions = workload["status"]["conditions"].clone();
    let evicted = json!({"type": "Evicted", "status": "True", "reason": "Deactivated",
        "message": "The workload is deactivated", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    conditions.as_array_mut().context("no conditions")?.push(evicted);
    let name = text(&workload, "/metadata/name");
    let status = json!({"status": {"conditions": conditions}});
    fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, name, &status).await?;
    let first =
        json!({"metadata": {"annotations": {"kueue.x-k8s.io/stopping": "true"}}, "spec": {"suspend": true}});
    fixture.objects.merge(Kind::JOB, &fixture.name, job, &first).await?;
    Ok(())
}

/// Waits until the Job is suspended as its user made it, and its quota is free.
async fn is_stopped(fixture: &Fixture, job: &str) -> Result<()> {
    eventually(format!("{job} is stopped"), async || {
        let object = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
        let left = [STOPPING, POD_SET].map(|pointer| object.pointer(pointer));
        ensure!(object["spec"]["suspend"] == true && left == [None, None], "{object}");
        Ok(())
    })
    .await?;
    fixture.wait_for_queue_counts(job, (0, 0, 0), &[("cpu", "0")]).await
}
