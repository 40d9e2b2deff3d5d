//! The demo, its pod group: plain pods that start together or not at all. Called by `demo`, while a Job has the quota.

use crate::cluster::Cluster;
use crate::demo::{NAMESPACE, chapter, finish};
use crate::objects::{Kind, condition, condition_is_true, text};
use crate::wait::eventually;
use anyhow::{Result, ensure};
use serde_json::{Value, json};

const GROUP: &str = "ensemble";
const MEMBERS: usize = 2;
/// State and reason of pods that wait, and that run.
const GATED: &str = "gated";
const RUNNING: &str = "running";

pub(super) async fn scenario(cluster: &Cluster) -> Result<()> {
    chapter(
        "5. ensemble is a group of two pods of 1 CPU, without a Job. Both wait at their gates: genome has the CPUs of biology.",
    );
    println!("$ kubectl create -f {GROUP}.yaml");
    for index in 0..MEMBERS {
        cluster.kubectl.run_with(&["create", "-f", "-"], &member(index).to_string())?;
    }
    wait_for(cluster, GATED).await?;

    chapter("6. genome finishes. Both pods start, on the quota of one Workload.");
    finish(cluster, "genome")?;
    wait_for(cluster, RUNNING).await
}

fn member(index: usize) -> Value {
    let requests = json!({"cpu": "1", "memory": "1Gi"});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{GROUP}-{index}"), "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": "biology", "demo-group": GROUP},
            "annotations": {"kueue.x-k8s.io/pod-group-name": GROUP,
                "kueue.x-k8s.io/pod-group-total-count": MEMBERS.to_string()},
        },
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "work", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests}}]},
    })
}

/// Waits until all pods of the group are in this state, and prints them and why.
async fn wait_for(cluster: &Cluster, wanted: &str) -> Result<()> {
    let (pods, why) = eventually(format!("the pods of {GROUP} are {wanted}"), async || {
        let pods = cluster.objects.list(Kind::POD, NAMESPACE, &format!("demo-group={GROUP}")).await?;
        let states: Vec<&str> = pods.iter().map(state).collect();
        ensure!(states == [wanted; MEMBERS], "they are {states:?}");
        let workload = cluster.objects.must_get(Kind::WORKLOAD, NAMESPACE, GROUP).await?;
        let reserved = condition(&workload, "QuotaReserved");
        let expected = if wanted == RUNNING { "QuotaReserved" } else { "WaitingForQuota" };
        ensure!(reserved.reason == expected, "{}: {}", reserved.reason, reserved.message);
        Ok((pods, reserved.message))
    })
    .await?;
    println!("\n  {:12} {:8} WHY", "POD", "STATE");
    for pod in &pods {
        println!("  {:12} {wanted:8} {why}", text(pod, "/metadata/name"));
    }
    println!();
    Ok(())
}

fn state(pod: &Value) -> &'static str {
    if condition_is_true(pod, "Ready") {
        RUNNING
    } else if pod["spec"].get("schedulingGates").is_some() {
        GATED
    } else {
        "starting"
    }
}
