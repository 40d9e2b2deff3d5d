//! ClusterQueue, Cohort, ResourceFlavor and Topology are deleted and created again under the same name while one Job is
//! running and others are pending.

use crate::fixture::Fixture;
use crate::history::History;
use crate::watch_faults::max_reserved;
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Kind, condition, condition_is_true, text};
use sluice_e2e::wait::eventually;

const HOST: &str = "kubernetes.io/hostname";
const LABEL: &str = "e2e.example/recreated";

/// The running Job keeps its quota and stays charged for it; the pending Jobs get the quota when it has finished.
pub(crate) async fn running_job_keeps_quota(_: &Cluster, fixture: &Fixture) -> Result<()> {
    // With this priority the late Job is last even if it is created within the same second.
    fixture.create_priority_class("low", -1).await?;
    let history = History::start(&fixture.objects, Kind::WORKLOAD, &fixture.name).await?;
    let failures: Vec<String> = futures::future::join_all([
        scenario(fixture, "queue", Kind::CLUSTER_QUEUE),
        scenario(fixture, "cohort", Kind::COHORT),
        scenario(fixture, "flavor", Kind::FLAVOR),
        scenario(fixture, "topology", Kind::TOPOLOGY),
    ])
    .await
    .into_iter()
    .zip(["queue", "cohort", "flavor", "topology"])
    .filter_map(|(outcome, name)| outcome.err().map(|error| format!("{name}: {error:#}")))
    .collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    ensure!(max_reserved(&history.revisions()?, 1)? == 1, "no workload reserved quota");
    Ok(())
}

async fn scenario(fixture: &Fixture, name: &str, kind: Kind) -> Result<()> {
    let (running, waiting, late) = (format!("runs-{name}"), format!("waits-{name}"), format!("late-{name}"));
    prepare(fixture, name).await?;
    fixture.submit(fixture.job(&running, name, "1")).await?;
    fixture.wait_until_running(&running).await?;
    fixture.submit(fixture.job(&waiting, name, "1")).await?;
    fixture.wait_until_pending(&waiting, "WaitingForQuota").await?;
    fixture.wait_for_queue_counts(name, (1, 1, 1), &[("cpu", "1")]).await?;

    let full_name = fixture.own_name(name);
    let body = recreatable(&fixture.objects.must_get(kind, "", &full_name).await?);
    force_delete(fixture, kind, &full_name).await?;
    // While the object is missing, no Job may start or stop.
    fixture.submit(fixture.job(&late, name, "1").priority(&fixture.own_name("low"))).await?;
    eventually("the late Job has a Workload", async || fixture.workload(&late).await.map(drop)).await?;
    fixture.check_pending(&waiting).await?;
    fixture.check_pending(&late).await?;
    fixture.objects.create(kind, &body).await?;
    fixture.wait_until_queue_active(name).await?;
    fixture.wait_for_queue_counts(name, (2, 1, 1), &[("cpu", "1")]).await?;
    let workload = fixture.workload(&running).await?;
    ensure!(
        condition_is_true(&workload, "Admitted"),
        "the running Job lost its admission: {}",
        workload["status"]
    );
    ensure!(
        condition(&workload, "Evicted").status.is_empty(),
        "the running Job was evicted: {}",
        workload["status"]
    );
    fixture.check_pending(&waiting).await?;
    fixture.check_pending(&late).await?;

    fixture.finish_job(&running).await?;
    fixture.wait_until_running(&waiting).await?;
    fixture.wait_for_queue_counts(name, (1, 1, 1), &[("cpu", "1")]).await?;
    fixture.finish_job(&waiting).await?;
    fixture.wait_until_running(&late).await?;
    fixture.finish_job(&late).await?;
    fixture.wait_for_queue_counts(name, (0, 0, 0), &[("cpu", "0")]).await
}

/// Creates a queue that borrows all its quota from its cohort, with a flavor and a topology of one node.
async fn prepare(fixture: &Fixture, name: &str) -> Result<()> {
    let full_name = fixture.own_name(name);
    let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": full_name, "effect": "NoSchedule"});
    let node = json!({
        "metadata": {"name": full_name, "labels": {LABEL: full_name, HOST: full_name}}, "spec": {"taints": [taint]},
        "status": {"capacity": capacity, "allocatable": capacity},
    });
    fixture.create_tracked(Kind::NODE, node).await?;
    let levels = json!([{"nodeLabel": HOST}]);
    fixture
        .create_tracked(Kind::TOPOLOGY, json!({"metadata": {"name": full_name}, "spec": {"levels": levels}}))
        .await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec =
        json!({"nodeLabels": {LABEL: full_name}, "tolerations": [toleration], "topologyName": full_name});
    fixture.create_flavor(name, spec).await?;
    let cohort = objects::cohort(&full_name, "", &full_name, &[("cpu", "1", None)]);
    fixture.create_tracked(Kind::COHORT, cohort).await?;
    let queue = objects::cluster_queue(&full_name, &full_name, &full_name, &[("cpu", "0", None)]);
    fixture.create_tracked(Kind::CLUSTER_QUEUE, queue).await?;
    fixture.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&fixture.name, name, &full_name)).await?;
    fixture.wait_until_queue_active(name).await
}

/// Returns the object as a user would create it again: name and spec.
fn recreatable(object: &Value) -> Value {
    json!({"metadata": {"name": object["metadata"]["name"]}, "spec": object["spec"]})
}

/// Deletes an object and removes its finalizers, which would keep it while it is in use.
async fn force_delete(fixture: &Fixture, kind: Kind, name: &str) -> Result<()> {
    fixture.objects.delete(kind, "", name, PropagationPolicy::Background).await?;
    eventually(format!("{name} is deleted"), async || {
        let Some(remaining) = fixture.objects.get(kind, "", name).await? else { return Ok(()) };
        let uid = text(&remaining, "/metadata/uid").to_owned();
        let no_finalizers = json!({"metadata": {"finalizers": null, "uid": uid}});
        let _ = fixture.objects.merge(kind, "", name, &no_finalizers).await;
        ensure!(fixture.objects.get(kind, "", name).await?.is_none(), "it still exists");
        Ok(())
    })
    .await
}
