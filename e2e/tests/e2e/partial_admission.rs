//! Partial admission: a Job runs with fewer pods than it requests.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Job, Kind, expect_condition, text};
use sluice_e2e::wait::eventually;

const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";

/// A Job of five pods with a minimum of two is admitted with the three that fit; when stopped, it gets its parallelism
/// back.
pub(crate) async fn job_shrinks_to_free_quota(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "3", None)], json!({})).await?;
    fixture.submit(five_pod_job(fixture, "stiff").annotation(MIN_PARALLELISM, "4")).await?;
    fixture.wait_until_pending("stiff", "").await?;
    fixture.submit(five_pod_job(fixture, "supple").annotation(MIN_PARALLELISM, "2")).await?;
    fixture.wait_until_running("supple").await?;
    ensure!(parallelism(fixture, "supple").await? == json!(3), "its parallelism is not 3");
    let admission = fixture.workload("supple").await?["status"]["admission"].clone();
    let set = &admission["podSetAssignments"][0];
    ensure!(set["count"] == json!(3) && set["resourceUsage"]["cpu"] == json!("3"), "admitted as {admission}");
    fixture.wait_for_queue_counts("main", (1, 1, 1), &[("cpu", "3")]).await?;

    fixture.set_workload_spec("supple", json!({"active": false})).await?;
    eventually("the original parallelism is restored", async || {
        let parallelism = parallelism(fixture, "supple").await?;
        ensure!(parallelism == json!(5), "its parallelism is {parallelism}");
        Ok(())
    })
    .await?;
    fixture.set_workload_spec("supple", json!({"active": true})).await?;
    fixture.wait_until_running("supple").await?;
    ensure!(parallelism(fixture, "supple").await? == json!(3), "its parallelism is not 3");
    eventually("its five pods finish, at most three at a time", async || {
        for pod in fixture.pods("supple").await? {
            let patch = json!({"metadata": {"annotations": {"sluice.dev/run-for": "0s"}}});
            fixture.objects.merge(Kind::POD, &fixture.name, text(&pod, "/metadata/name"), &patch).await?;
        }
        expect_condition(&fixture.workload("supple").await?, "Finished", "True", "Succeeded")
    })
    .await?;
    fixture.check_pending("stiff").await
}

fn five_pod_job(fixture: &Fixture, name: &str) -> Job {
    fixture.job(name, "main", "1").pods(5)
}

async fn parallelism(fixture: &Fixture, job: &str) -> Result<Value> {
    let job = fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?;
    Ok(job["spec"]["parallelism"].clone())
}
