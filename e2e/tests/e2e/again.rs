//! What queues stand on, deleted and made again under the same name, while one workload runs and another waits.

use crate::ground::Ground;
use crate::history::History;
use crate::watches::most_held;
use anyhow::{Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::objects::{self, Kind, condition, holds, text};
use sluice_e2e::wait::eventually;

const HOST: &str = "kubernetes.io/hostname";
const LABEL: &str = "e2e.example/again";

/// The one that runs keeps what it holds, and is charged for it after as before; the one that waits gets it afterwards.
pub(crate) async fn what_queues_stand_on_under_the_same_name(_: &Cluster, ground: &Ground) -> Result<()> {
    // The late one comes last even if it is made within the same second.
    ground.priority("low", -1).await?;
    let history = History::start(&ground.objects, Kind::WORKLOAD, &ground.name).await?;
    let wrong: Vec<String> = futures::future::join_all([
        story(ground, "queue", Kind::CLUSTER_QUEUE),
        story(ground, "cohort", Kind::COHORT),
        story(ground, "flavor", Kind::FLAVOR),
        story(ground, "topology", Kind::TOPOLOGY),
    ])
    .await
    .into_iter()
    .zip(["queue", "cohort", "flavor", "topology"])
    .filter_map(|(outcome, name)| outcome.err().map(|error| format!("{name}: {error:#}")))
    .collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    ensure!(most_held(&history.revisions()?, 1)? == 1, "nobody held anything");
    Ok(())
}

async fn story(ground: &Ground, name: &str, kind: Kind) -> Result<()> {
    let (runs, waits, late) = (format!("runs-{name}"), format!("waits-{name}"), format!("late-{name}"));
    prepare(ground, name).await?;
    ground.submit(ground.job(&runs, name, "1")).await?;
    ground.runs(&runs).await?;
    ground.submit(ground.job(&waits, name, "1")).await?;
    ground.waits(&waits, "WaitingForQuota").await?;
    ground.counts(name, (1, 1, 1), &[("cpu", "1")]).await?;

    let full = ground.own(name);
    let body = fresh(&ground.objects.need(kind, "", &full).await?);
    take_away(ground, kind, &full).await?;
    // Whatever it makes of this, nobody starts, and nobody stops.
    ground.submit(ground.job(&late, name, "1").priority(&ground.own("low"))).await?;
    eventually("the late one is known", async || ground.workload(&late).await.map(drop)).await?;
    ground.still_waits(&waits).await?;
    ground.still_waits(&late).await?;
    ground.objects.create(kind, &body).await?;
    ground.active(name).await?;
    ground.counts(name, (2, 1, 1), &[("cpu", "1")]).await?;
    let workload = ground.workload(&runs).await?;
    ensure!(holds(&workload, "Admitted"), "the one that ran does not: {}", workload["status"]);
    ensure!(condition(&workload, "Evicted").status.is_empty(), "it was stopped: {}", workload["status"]);
    ground.still_waits(&waits).await?;
    ground.still_waits(&late).await?;

    ground.finish(&runs).await?;
    ground.runs(&waits).await?;
    ground.counts(name, (1, 1, 1), &[("cpu", "1")]).await?;
    ground.finish(&waits).await?;
    ground.runs(&late).await?;
    ground.finish(&late).await?;
    ground.counts(name, (0, 0, 0), &[("cpu", "0")]).await
}

/// A queue whose quota is its cohort's, of a flavor with a topology of one node.
async fn prepare(ground: &Ground, name: &str) -> Result<()> {
    let full = ground.own(name);
    let room = json!({"cpu": "4", "memory": "8Gi", "pods": "20"});
    let taint = json!({"key": LABEL, "value": full, "effect": "NoSchedule"});
    let node = json!({
        "metadata": {"name": full, "labels": {LABEL: full, HOST: full}}, "spec": {"taints": [taint]},
        "status": {"capacity": room, "allocatable": room},
    });
    ground.keep(Kind::NODE, node).await?;
    let levels = json!([{"nodeLabel": HOST}]);
    ground.keep(Kind::TOPOLOGY, json!({"metadata": {"name": full}, "spec": {"levels": levels}})).await?;
    let toleration = json!({"key": LABEL, "operator": "Exists"});
    let spec = json!({"nodeLabels": {LABEL: full}, "tolerations": [toleration], "topologyName": full});
    ground.flavor(name, spec).await?;
    let cohort = objects::cohort(&full, "", &full, &[("cpu", "1", None)]);
    ground.keep(Kind::COHORT, cohort).await?;
    let queue = objects::cluster_queue(&full, &full, &full, &[("cpu", "0", None)]);
    ground.keep(Kind::CLUSTER_QUEUE, queue).await?;
    ground.objects.create(Kind::LOCAL_QUEUE, &objects::local_queue(&ground.name, name, &full)).await?;
    ground.active(name).await
}

/// What somebody would apply again.
fn fresh(object: &Value) -> Value {
    json!({"metadata": {"name": object["metadata"]["name"]}, "spec": object["spec"]})
}

/// Deletes an object by force: finalizers would keep it as long as it is in use.
async fn take_away(ground: &Ground, kind: Kind, name: &str) -> Result<()> {
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
