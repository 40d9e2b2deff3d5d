//! Stopping workloads and queues, and giving quota back when the pods are gone, not before.

use crate::fixture::Fixture;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, condition_is_true, text};
use sluice_e2e::wait::eventually;

pub(crate) async fn deactivate_and_reactivate(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "1")).await?;
    ground.wait_until_running("first").await?;
    ground.submit(ground.job("second", "main", "1")).await?;
    ground.wait_until_pending("second", "WaitingForQuota").await?;

    ground.set_workload_spec("first", json!({"active": false})).await?;
    ground.wait_for_condition("first", "Evicted", "True", "Deactivated").await?;
    ground.wait_until_pending("first", "Deactivated").await?;
    ground.wait_for_condition("first", "Requeued", "False", "Deactivated").await?;
    ground.wait_until_running("second").await?;

    ground.set_workload_spec("first", json!({"active": true})).await?;
    ground.wait_until_pending("first", "WaitingForQuota").await?;
    ground.finish_job("second").await?;
    ground.wait_until_running("first").await?;
    ground.wait_for_condition("first", "Evicted", "False", "QuotaReserved").await?;

    // A pending one, too.
    ground.submit(ground.job("third", "main", "1")).await?;
    ground.wait_until_pending("third", "WaitingForQuota").await?;
    ground.set_workload_spec("third", json!({"active": false})).await?;
    ground.wait_until_pending("third", "Deactivated").await
}

/// Eviction has two steps: pods that will not go keep their quota.
pub(crate) async fn quota_kept_until_pods_end(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground
        .submit(ground.job("stubborn", "main", "1").pod_annotation("sluice.dev/ignores-deletion", "true"))
        .await?;
    ground.wait_until_running("stubborn").await?;
    ground.submit(ground.job("next", "main", "1")).await?;
    ground.wait_until_pending("next", "WaitingForQuota").await?;
    ground.set_workload_spec("stubborn", json!({"active": false})).await?;
    ground.wait_for_condition("stubborn", "Evicted", "True", "Deactivated").await?;
    eventually("the Job is suspended and its pod is asked to go", async || {
        let job = ground.objects.must_get(Kind::JOB, &ground.name, "stubborn").await?;
        ensure!(job["spec"]["suspend"] == json!(true), "it is not suspended");
        let pods = ground.pods("stubborn").await?;
        ensure!(
            pods.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_string()),
            "a pod was not asked"
        );
        ensure!(!pods.is_empty(), "the pod is gone");
        Ok(())
    })
    .await?;
    ensure!(
        condition_is_true(&ground.workload("stubborn").await?, "QuotaReserved"),
        "quota was given back under a pod"
    );
    ground.check_pending("next").await?;
    ground.force_delete_pods("stubborn")?;
    ground.wait_until_pending("stubborn", "Deactivated").await?;
    ground.wait_until_running("next").await
}

pub(crate) async fn hold_and_drain_cluster_queue(_: &Cluster, ground: &Fixture) -> Result<()> {
    let queue = ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "1")).await?;
    ground.wait_until_running("first").await?;
    ground.submit(ground.job("second", "main", "1")).await?;
    ground.wait_until_pending("second", "WaitingForQuota").await?;
    let stop = async |policy: &str| {
        ground.set_spec(Kind::CLUSTER_QUEUE, "", &queue, json!({"stopPolicy": policy})).await
    };

    // Hold: who runs runs on, who waits is told.
    stop("Hold").await?;
    ground.wait_until_pending("second", "Suspended").await?;
    ensure!(condition_is_true(&ground.workload("first").await?, "Admitted"), "Hold stopped a running Job");
    stop("None").await?;
    ground.finish_job("first").await?;
    ground.wait_until_running("second").await?;

    stop("HoldAndDrain").await?;
    ground.wait_for_condition("second", "Evicted", "True", "ClusterQueueStopped").await?;
    ground.wait_until_pending("second", "Suspended").await?;
    ground.wait_for_queue_counts("main", (1, 0, 0), &[("cpu", "0")]).await?;
    stop("None").await?;
    ground.wait_until_running("second").await?;
    ground.wait_for_condition("second", "Requeued", "True", "ClusterQueueRestarted").await
}

pub(crate) async fn hold_and_drain_local_queue(_: &Cluster, ground: &Fixture) -> Result<()> {
    ground.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "1")).await?;
    ground.wait_until_running("first").await?;
    let stop = async |policy: &str| {
        ground.set_spec(Kind::LOCAL_QUEUE, &ground.name, "main", json!({"stopPolicy": policy})).await
    };
    stop("HoldAndDrain").await?;
    ground.wait_for_condition("first", "Evicted", "True", "LocalQueueStopped").await?;
    ground.wait_until_pending("first", "Suspended").await?;
    stop("None").await?;
    ground.wait_until_running("first").await?;
    ground.wait_for_condition("first", "Requeued", "True", "LocalQueueRestarted").await
}

pub(crate) async fn quota_lowered_under_usage(_: &Cluster, ground: &Fixture) -> Result<()> {
    let queue = ground.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "2")).await?;
    ground.wait_until_running("first").await?;
    let any = ground.own_name("any");
    let quota = |cpu: &str| {
        json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": any, "resources": [{"name": "cpu", "nominalQuota": cpu}]},
        ]}]})
    };
    ground.set_spec(Kind::CLUSTER_QUEUE, "", &queue, quota("1")).await?;
    ground.submit(ground.job("second", "main", "1")).await?;
    ground.wait_until_pending("second", "WaitingForQuota").await?;
    ensure!(condition_is_true(&ground.workload("first").await?, "Admitted"), "a running Job lost its quota");
    ground.finish_job("first").await?;
    ground.wait_until_running("second").await?;
    ground.submit(ground.job("third", "main", "1")).await?;
    ground.wait_until_pending("third", "WaitingForQuota").await?;
    ground.set_spec(Kind::CLUSTER_QUEUE, "", &queue, quota("2")).await?;
    ground.wait_until_running("third").await
}

/// A new ClusterQueue that leaves a quota out is stored with 0, as with Kueue; a Cohort must say it.
pub(crate) async fn missing_quota_is_zero(_: &Cluster, ground: &Fixture) -> Result<()> {
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": ground.own_name("any"), "resources": [{"name": "cpu"}]},
    ]}]);
    let body =
        |name: &str| json!({"metadata": {"name": ground.own_name(name)}, "spec": {"resourceGroups": groups}});
    let queue = ground.create_tracked(Kind::CLUSTER_QUEUE, body("empty")).await?;
    let stored = ground.objects.must_get(Kind::CLUSTER_QUEUE, "", &queue).await?;
    let quota = text(&stored, "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota");
    ensure!(quota == "0", "it is stored with the quota {quota:?}");
    let refused = ground.objects.create(Kind::COHORT, &body("mute")).await;
    let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(said.contains("nominalQuota: Required value"), "a Cohort without it is answered with {said:?}");
    Ok(())
}
