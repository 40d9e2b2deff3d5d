//! Stopping workloads and queues, and giving quota back when the pods are gone, not before.

use crate::ground::Ground;
use anyhow::{Result, ensure};
use serde_json::json;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{Kind, holds, text};
use sluice_e2e::wait::eventually;

pub(crate) async fn deactivate_and_reactivate(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "1")).await?;
    ground.runs("first").await?;
    ground.submit(ground.job("second", "main", "1")).await?;
    ground.waits("second", "WaitingForQuota").await?;

    ground.set_workload("first", json!({"active": false})).await?;
    ground.condition("first", "Evicted", "True", "Deactivated").await?;
    ground.waits("first", "Deactivated").await?;
    ground.condition("first", "Requeued", "False", "Deactivated").await?;
    ground.runs("second").await?;

    ground.set_workload("first", json!({"active": true})).await?;
    ground.waits("first", "WaitingForQuota").await?;
    ground.finish("second").await?;
    ground.runs("first").await?;
    ground.condition("first", "Evicted", "False", "QuotaReserved").await?;

    // A pending one, too.
    ground.submit(ground.job("third", "main", "1")).await?;
    ground.waits("third", "WaitingForQuota").await?;
    ground.set_workload("third", json!({"active": false})).await?;
    ground.waits("third", "Deactivated").await
}

/// Eviction has two steps: pods that will not go keep their quota.
pub(crate) async fn eviction_keeps_quota_until_pods_are_gone(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground
        .submit(ground.job("stubborn", "main", "1").pod_annotation("sluice.dev/ignores-deletion", "true"))
        .await?;
    ground.runs("stubborn").await?;
    ground.submit(ground.job("next", "main", "1")).await?;
    ground.waits("next", "WaitingForQuota").await?;
    ground.set_workload("stubborn", json!({"active": false})).await?;
    ground.condition("stubborn", "Evicted", "True", "Deactivated").await?;
    eventually("the Job is suspended and its pod is asked to go", async || {
        let job = ground.objects.need(Kind::JOB, &ground.name, "stubborn").await?;
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
    ensure!(holds(&ground.workload("stubborn").await?, "QuotaReserved"), "quota was given back under a pod");
    ground.still_waits("next").await?;
    ground.force_pods_away("stubborn")?;
    ground.waits("stubborn", "Deactivated").await?;
    ground.runs("next").await
}

pub(crate) async fn hold_and_drain_a_cluster_queue(_: &Cluster, ground: &Ground) -> Result<()> {
    let queue = ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "1")).await?;
    ground.runs("first").await?;
    ground.submit(ground.job("second", "main", "1")).await?;
    ground.waits("second", "WaitingForQuota").await?;
    let stop =
        async |policy: &str| ground.set(Kind::CLUSTER_QUEUE, "", &queue, json!({"stopPolicy": policy})).await;

    // Hold: who runs runs on, who waits is told.
    stop("Hold").await?;
    ground.waits("second", "Suspended").await?;
    ensure!(holds(&ground.workload("first").await?, "Admitted"), "Hold stopped a running Job");
    stop("None").await?;
    ground.finish("first").await?;
    ground.runs("second").await?;

    stop("HoldAndDrain").await?;
    ground.condition("second", "Evicted", "True", "ClusterQueueStopped").await?;
    ground.waits("second", "Suspended").await?;
    ground.counts("main", (1, 0, 0), &[("cpu", "0")]).await?;
    stop("None").await?;
    ground.runs("second").await?;
    ground.condition("second", "Requeued", "True", "ClusterQueueRestarted").await
}

pub(crate) async fn hold_and_drain_a_local_queue(_: &Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "1")).await?;
    ground.runs("first").await?;
    let stop = async |policy: &str| {
        ground.set(Kind::LOCAL_QUEUE, &ground.name, "main", json!({"stopPolicy": policy})).await
    };
    stop("HoldAndDrain").await?;
    ground.condition("first", "Evicted", "True", "LocalQueueStopped").await?;
    ground.waits("first", "Suspended").await?;
    stop("None").await?;
    ground.runs("first").await?;
    ground.condition("first", "Requeued", "True", "LocalQueueRestarted").await
}

pub(crate) async fn quota_lowered_under_usage(_: &Cluster, ground: &Ground) -> Result<()> {
    let queue = ground.queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    ground.submit(ground.job("first", "main", "2")).await?;
    ground.runs("first").await?;
    let any = ground.own("any");
    let quota = |cpu: &str| {
        json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": any, "resources": [{"name": "cpu", "nominalQuota": cpu}]},
        ]}]})
    };
    ground.set(Kind::CLUSTER_QUEUE, "", &queue, quota("1")).await?;
    ground.submit(ground.job("second", "main", "1")).await?;
    ground.waits("second", "WaitingForQuota").await?;
    ensure!(holds(&ground.workload("first").await?, "Admitted"), "a running Job lost its quota");
    ground.finish("first").await?;
    ground.runs("second").await?;
    ground.submit(ground.job("third", "main", "1")).await?;
    ground.waits("third", "WaitingForQuota").await?;
    ground.set(Kind::CLUSTER_QUEUE, "", &queue, quota("2")).await?;
    ground.runs("third").await
}

/// A new ClusterQueue that leaves a quota out is stored with 0, as with Kueue; a Cohort must say it.
pub(crate) async fn a_quota_left_out_is_nothing(_: &Cluster, ground: &Ground) -> Result<()> {
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": ground.own("any"), "resources": [{"name": "cpu"}]},
    ]}]);
    let body =
        |name: &str| json!({"metadata": {"name": ground.own(name)}, "spec": {"resourceGroups": groups}});
    let queue = ground.keep(Kind::CLUSTER_QUEUE, body("empty")).await?;
    let stored = ground.objects.need(Kind::CLUSTER_QUEUE, "", &queue).await?;
    let quota = text(&stored, "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota");
    ensure!(quota == "0", "it is stored with the quota {quota:?}");
    let refused = ground.objects.create(Kind::COHORT, &body("mute")).await;
    let said = refused.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(said.contains("nominalQuota: Required value"), "a Cohort without it is answered with {said:?}");
    Ok(())
}
