//! What queues stand on, deleted and made again under the same name, while one workload runs and another waits.

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
const LABEL: &str = "e2e.example/again";

/// The one that runs keeps what it holds, and is charged for it after as before; the one that waits gets it afterwards.
pub(crate) async fn running_job_keeps_quota(_: &Cluster, ground: &Fixture) -> Result<()> {
    // The late one comes last even if it is made within the same second.
    ground.create_priority_class("low", -1).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let wrong: Vec<String> = futures::future::join_all([
        scenario(ground, "queue", Kind::CLUSTER_QUEUE),
        scenario(ground, "cohort", Kind::COHORT),
        scenario(ground, "flavor", Kind::FLAVOR),
        scenario(ground, "topology", Kind::TOPOLOGY),
    ])
    .await
    .into_iter()
    .zip(["queue", "cohort", "flavor", "topology"])
    .filter_map(|(outcome, name)| outcome.err().map(|error| format!("{name}: {error:#}")))
    .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(max_reserved(&history.revisions()?, 1)? == 1, "nobody held anything");
    Ok(())
}

async fn scenario(ground: &Fixture, name: &str, kind: Kind) -> Result<()> {
    let (runs, waits, late) = (format!("runs-{name}"), format!("waits-{name}"), format!("late-{name}"));
    prepare(ground, name).await?;
    ground.submit(ground.job(&runs, name, "1")).await?;
    ground.wait_until_running(&runs).await?;
    ground.submit(ground.job(&waits, name, "1")).await?;
    ground.wait_until_pending(&waits, "WaitingForQuota").await?;
    ground.wait_for_queue_counts(name, (1, 1, 1), &[("cpu", "1")]).await?;

    let full = ground.own_name(name);
    let body = recreatable(&ground.objects.must_get(kind, "", &full).await?);
    force_delete(ground, kind, &full).await?;
    // Whatever it makes of this, nobody starts, and nobody stops.
    ground.submit(ground.job(&late, name, "1").priority(&ground.own_name("low"))).await?;
    eventually("the late one is known", async || ground.workload(&late).await.map(drop)).await?;
    ground.check_pending(&waits).await?;
    ground.check_pending(&late).await?;
    ground.objects.create(kind, &body).await?;
    ground.wait_until_queue_active(name).await?;
    ground.wait_for_queue_counts(name, (2, 1, 1), &[("cpu", "1")]).await?;
    let workload = ground.workload(&runs).await?;
    ensure!(condition_is_true(&workload, "Admitted"), "the one that ran does not: {}", workload["status"]);
    ensure!(condition(&workload, "Evicted").status.is_empty(), "it was stopped: {}", workload["status"]);
    ground.check_pending(&waits).await?;
    ground.check_pending(&late).await?;

    ground.finish_job(&runs).await?;
    ground.wait_until_running(&waits).await?;
    ground.wait_for_queue_counts(name, (1, 1, 1), &[("cpu", "1")]).await?;
    ground.finish_job(&waits).await?;
    ground.wait_until_running(&late).await?;
    ground.finish_job(&late).await?;
    ground.wait_for_queue_counts(name, (0, 0, 0), &[("cpu", "0")]).await
}

/// A queue whose quota is its cohort's, of a flavor with a topology of one node.
async fn prepare(ground: &Fixture, name: &str) -> Result<()> {
    let full = ground.own_name(name);
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": full, "effect": "NoSchedule"});
    let node = json!({
        "metadata": {"name": full, "labels": {LABEL: full, HOST: full}}, "spec": {"taints": [taint]},
        "status": {"capacity": room, "allocatable": room},
    });
    ground.create_tracked(Kind::NODE, node).await?;
    let levels = json!([{"nodeLabel": HOST}]);
    ground
        .create_tracked(Kind::TOPOLOGY, json!({"metadata": {"name": full}, "spec": {"levels": levels}}))
        .await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec = json!({"nodeLabels": {LABEL: full}, "tolerations": [toleration], "topologyName": full});
    ground.create_flavor(name, spec).await?;
    let cohort = objects::cohort(&full, "", &full, &[("cpu", "1", None)]);
    ground.create_tracked(Kind::COHORT, cohort).await?;
    let queue = objects::cluster_queue(&full, &full, &full, &[("cpu", "0", None)]);
    ground.create_tracked(Kind::CLUSTER_QUEUE, queue).await?;
    ground.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&ground.name, name, &full)).await?;
    ground.wait_until_queue_active(name).await
}

/// What somebody would apply again.
fn recreatable(object: &Value) -> Value {
    json!({"metadata": {"name": object["metadata"]["name"]}, "spec": object["spec"]})
}

/// Deletes an object by force: finalizers would keep it as long as it is in use.
async fn force_delete(ground: &Fixture, kind: Kind, name: &str) -> Result<()> {
    ground.objects.delete(kind, "", name, PropagationPolicy::Background).await?;
    eventually("it is gone", async || {
        let Some(left) = ground.objects.get(kind, "", name).await? else { return Ok(()) };
        let uid = text(&left, "/metadata/uid").to_owned();
        let none = json!({"metadata": {"finalizers": null, "uid": uid}});
        let _ = ground.objects.merge(kind, "", name, &none).await;
        ensure!(ground.objects.get(kind, "", name).await?.is_none(), "it is there");
        Ok(())
    })
    .await
}
