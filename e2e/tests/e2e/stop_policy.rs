//! Stopping workloads and queues; quota is released only when the pods have ended.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;
use std::time::Duration;

pub(crate) async fn deactivate_and_reactivate(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("first", "main", "1")).await?;
    fixture.wait_until_running("first").await?;
    fixture.submit(fixture.job("second", "main", "1")).await?;
    fixture.wait_until_pending("second", "WaitingForQuota").await?;

    fixture.set_workload_spec("first", json!({"active": false})).await?;
    fixture.wait_for_condition("first", "Evicted", "True", "Deactivated").await?;
    fixture.wait_until_pending("first", "Deactivated").await?;
    fixture.wait_for_condition("first", "Requeued", "False", "Deactivated").await?;
    fixture.wait_until_running("second").await?;

    fixture.set_workload_spec("first", json!({"active": true})).await?;
    fixture.wait_until_pending("first", "WaitingForQuota").await?;
    fixture.finish_job("second").await?;
    fixture.wait_until_running("first").await?;
    fixture.wait_for_condition("first", "Evicted", "False", "QuotaReserved").await?;

    // Also while pending.
    fixture.submit(fixture.job("third", "main", "1")).await?;
    fixture.wait_until_pending("third", "WaitingForQuota").await?;
    fixture.set_workload_spec("third", json!({"active": false})).await?;
    fixture.wait_until_pending("third", "Deactivated").await
}

/// Starts a Job whose pod ignores its deletion and uses all quota, and lets another one wait for it.
async fn start_stubborn_job(fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture
        .submit(fixture.job("stubborn", "main", "1").pod_annotation("sluice.dev/ignores-deletion", "true"))
        .await?;
    fixture.wait_until_running("stubborn").await?;
    fixture.submit(fixture.job("next", "main", "1")).await?;
    fixture.wait_until_pending("next", "WaitingForQuota").await
}

/// Eviction has two steps: the quota stays reserved until the pods have ended.
pub(crate) async fn quota_kept_until_pods_end(_: &Cluster, fixture: &Fixture) -> Result<()> {
    start_stubborn_job(fixture).await?;
    fixture.set_workload_spec("stubborn", json!({"active": false})).await?;
    fixture.wait_for_condition("stubborn", "Evicted", "True", "Deactivated").await?;
    eventually("the Job is suspended and its pod is being deleted", async || {
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "stubborn").await?;
        ensure!(job["spec"]["suspend"] == json!(true), "it is not suspended");
        let pods = fixture.pods("stubborn").await?;
        ensure!(
            pods.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_string()),
            "a pod is not being deleted"
        );
        ensure!(!pods.is_empty(), "the pod is already gone");
        Ok(())
    })
    .await?;
    ensure!(
        condition_is_true(&fixture.workload("stubborn").await?, "QuotaReserved"),
        "quota was released while a pod was running"
    );
    fixture.check_pending("next").await?;
    fixture.force_delete_pods("stubborn")?;
    fixture.wait_until_pending("stubborn", "Deactivated").await?;
    fixture.wait_until_running("next").await
}

/// A Job in foreground deletion keeps its quota while its pods run, and is then deleted.
pub(crate) async fn quota_kept_in_foreground_deletion(_: &Cluster, fixture: &Fixture) -> Result<()> {
    start_stubborn_job(fixture).await?;
    let workload = fixture.workload("stubborn").await?;
    let name = text(&workload, "/metadata/name");
    fixture.objects.delete(Kind::JOB, &fixture.name, "stubborn", PropagationPolicy::Foreground).await?;
    // In the first minute of a cluster the garbage collector does not delete it.
    fixture.objects.delete(Kind::WORKLOAD, &fixture.name, name, PropagationPolicy::Background).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let workload = fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, name).await?;
    ensure!(condition_is_true(&workload, "QuotaReserved"), "quota was released: {}", workload["status"]);
    fixture.check_pending("next").await?;
    fixture.force_delete_pods("stubborn")?;
    fixture.wait_until_running("next").await?;
    eventually("the Job is gone", async || {
        let job = fixture.objects.get(Kind::JOB, &fixture.name, "stubborn").await?;
        ensure!(job.is_none(), "{job:?}");
        Ok(())
    })
    .await
}

pub(crate) async fn hold_and_drain_cluster_queue(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let queue = fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("first", "main", "1")).await?;
    fixture.wait_until_running("first").await?;
    fixture.submit(fixture.job("second", "main", "1")).await?;
    fixture.wait_until_pending("second", "WaitingForQuota").await?;
    let stop = async |policy: &str| {
        fixture.set_spec(Kind::CLUSTER_QUEUE, "", &queue, json!({"stopPolicy": policy})).await
    };

    // Hold: running workloads continue, pending ones report it.
    stop("Hold").await?;
    fixture.wait_until_pending("second", "Suspended").await?;
    ensure!(condition_is_true(&fixture.workload("first").await?, "Admitted"), "Hold stopped a running Job");
    stop("None").await?;
    fixture.finish_job("first").await?;
    fixture.wait_until_running("second").await?;

    stop("HoldAndDrain").await?;
    fixture.wait_for_condition("second", "Evicted", "True", "ClusterQueueStopped").await?;
    fixture.wait_until_pending("second", "Suspended").await?;
    fixture.wait_for_queue_counts("main", (1, 0, 0), &[("cpu", "0")]).await?;
    stop("None").await?;
    fixture.wait_until_running("second").await?;
    fixture.wait_for_condition("second", "Requeued", "True", "ClusterQueueRestarted").await
}

pub(crate) async fn hold_and_drain_local_queue(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("first", "main", "1")).await?;
    fixture.wait_until_running("first").await?;
    let stop = async |policy: &str| {
        fixture.set_spec(Kind::LOCAL_QUEUE, &fixture.name, "main", json!({"stopPolicy": policy})).await
    };
    stop("HoldAndDrain").await?;
    fixture.wait_for_condition("first", "Evicted", "True", "LocalQueueStopped").await?;
    fixture.wait_until_pending("first", "Suspended").await?;
    stop("None").await?;
    fixture.wait_until_running("first").await?;
    fixture.wait_for_condition("first", "Requeued", "True", "LocalQueueRestarted").await
}

pub(crate) async fn quota_lowered_under_usage(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let queue = fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    fixture.submit(fixture.job("first", "main", "2")).await?;
    fixture.wait_until_running("first").await?;
    let any = fixture.own_name("any");
    let quota = |cpu: &str| {
        json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": any, "resources": [{"name": "cpu", "nominalQuota": cpu}]},
        ]}]})
    };
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &queue, quota("1")).await?;
    fixture.submit(fixture.job("second", "main", "1")).await?;
    fixture.wait_until_pending("second", "WaitingForQuota").await?;
    ensure!(condition_is_true(&fixture.workload("first").await?, "Admitted"), "a running Job lost its quota");
    fixture.finish_job("first").await?;
    fixture.wait_until_running("second").await?;
    fixture.submit(fixture.job("third", "main", "1")).await?;
    fixture.wait_until_pending("third", "WaitingForQuota").await?;
    fixture.set_spec(Kind::CLUSTER_QUEUE, "", &queue, quota("2")).await?;
    fixture.wait_until_running("third").await
}

/// A ClusterQueue without nominalQuota is stored with 0, as with Kueue; in a Cohort it is required.
pub(crate) async fn missing_quota_is_zero(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": fixture.own_name("any"), "resources": [{"name": "cpu"}]},
    ]}]);
    let body = |name: &str| json!({"metadata": {"name": fixture.own_name(name)}, "spec": {"resourceGroups": groups}});
    let queue = fixture.create_tracked(Kind::CLUSTER_QUEUE, body("empty")).await?;
    let stored = fixture.objects.must_get(Kind::CLUSTER_QUEUE, "", &queue).await?;
    let quota = text(&stored, "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota");
    ensure!(quota == "0", "it is stored with nominalQuota {quota:?}");
    let outcome = fixture.objects.create(Kind::COHORT, &body("mute")).await;
    let error = outcome.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(
        error.contains("nominalQuota: Required value"),
        "a Cohort without nominalQuota returns {error:?}"
    );
    Ok(())
}

/// Jobs that are stopped and started again and again get no warning: no write is sent before the API server accepts it.
pub(crate) async fn stops_leave_no_warning(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let queue = fixture.create_queue("main", "", &[("cpu", "10", None)], json!({})).await?;
    let jobs: Vec<String> = (0..10).map(|number| format!("job-{number}")).collect();
    for job in &jobs {
        fixture.submit(fixture.job(job, "main", "1")).await?;
    }
    for _ in 0..3 {
        for job in &jobs {
            fixture.wait_until_running(job).await?;
        }
        let policy = async |policy: &str| {
            fixture.set_spec(Kind::CLUSTER_QUEUE, "", &queue, json!({"stopPolicy": policy})).await
        };
        policy("HoldAndDrain").await?;
        for job in &jobs {
            fixture.wait_until_pending(job, "").await?;
            let template =
                fixture.objects.must_get(Kind::JOB, &fixture.name, job).await?["spec"]["template"].clone();
            let label = template["metadata"]["labels"].get("kueue.x-k8s.io/podset");
            ensure!(label.is_none(), "{job} is not restored: {template}");
        }
        policy("None").await?;
    }
    fixture.expect_no_warning_of("WriteRejected").await
}
