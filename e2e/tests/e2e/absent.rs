//! What can be done while no manager answers: those who opted in wait for one, and nobody else does (I26).

use crate::ground::{Ground, refused};
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::Manager;
use sluice_e2e::objects::{Kind, expect, text};
use sluice_e2e::wait::eventually;

const STAMP: &str = "2026-01-01T00:00:00Z";

/// Jobs that name a queue, and objects of ours, are refused as long as nobody reviews them; Jobs that name none run. Of a
/// Workload, conditions may be told that bear on nothing else; the manager takes them up when it is back.
pub(crate) async fn only_who_opted_in_waits(cluster: &mut Cluster, ground: &Ground) -> Result<()> {
    ground.queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "work:1", "resources": {"requests": {"cpu": "1"}}}]}});
    for name in ["ends", "stays"] {
        let sets = json!([{"name": "main", "count": 1, "template": template}]);
        let metadata = json!({"namespace": ground.name, "name": name});
        let body = json!({"metadata": metadata, "spec": {"queueName": "main", "podSets": sets}});
        ground.objects.create(Kind::WORKLOAD, &body).await?;
        let found = async || ground.objects.need(Kind::WORKLOAD, &ground.name, name).await;
        eventually("it is admitted", async || expect(&found().await?, "Admitted", "True", "Admitted"))
            .await?;
    }
    ground.counts("main", (0, 2, 2), &[("cpu", "2")]).await?;
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();

    unheard(ground.objects.create(Kind::JOB, ground.job("queued", "main", "1").body()).await)?;
    let flavor = json!({"metadata": {"name": ground.own("other")}, "spec": {}});
    unheard(ground.objects.create(Kind::FLAVOR, &flavor).await)?;
    let free =
        json!({"metadata": {"namespace": ground.name, "name": "free"}, "spec": {"template": template}});
    ground.objects.create(Kind::JOB, &free).await?;
    eventually("a Job of nobody's runs", async || {
        let job = ground.objects.need(Kind::JOB, &ground.name, "free").await?;
        ensure!(job["status"]["ready"] == 1, "{}", job["status"]);
        Ok(())
    })
    .await?;

    told(ground, "ends", "Finished", "True").await?;
    told(ground, "stays", "e2e.example/Seen", "True").await?;
    // What bears on quota is reviewed, and so is a name that only a review finds too long.
    unheard(told(ground, "stays", "QuotaReserved", "False").await)?;
    unheard(told(ground, "stays", &"a".repeat(64), "True").await)?;
    let none = json!({"status": {"admission": null}});
    unheard(ground.objects.merge_status(Kind::WORKLOAD, &ground.name, "stays", &none).await)?;
    let pods = json!({"status": {"reclaimablePods": [{"name": "main", "count": 1}]}});
    unheard(ground.objects.merge_status(Kind::WORKLOAD, &ground.name, "stays", &pods).await)?;
    unheard(
        ground.objects.merge(Kind::WORKLOAD, &ground.name, "stays", &json!({"spec": {"priority": 7}})).await,
    )?;

    let new = Manager::start(&cluster.plane, old.settings()).await?;
    new.ready().await?;
    cluster.put_manager(new);
    cluster.webhooks_answer().await?;
    ground.counts("main", (0, 1, 1), &[("cpu", "1")]).await?;
    ground.submit(ground.job("queued", "main", "1")).await?;
    ground.runs("queued").await?;
    ground.finish("queued").await?;
    ground.objects.delete(Kind::JOB, &ground.name, "free", PropagationPolicy::Background).await?;
    Ok(())
}

/// Adds a condition to those of a Workload, or changes it.
async fn told(ground: &Ground, name: &str, kind: &str, status: &str) -> kube::Result<Value> {
    let workload = ground.objects.get(Kind::WORKLOAD, &ground.name, name).await?.unwrap_or_default();
    let mut all = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|condition| text(condition, "/type") != kind);
    all.push(
        json!({"type": kind, "status": status, "reason": "Told", "message": "", "lastTransitionTime": STAMP}),
    );
    let patch = json!({"status": {"conditions": all}});
    ground.objects.merge_status(Kind::WORKLOAD, &ground.name, name, &patch).await
}

/// It was refused because nobody reviewed it.
fn unheard(outcome: kube::Result<Value>) -> Result<()> {
    let message = refused(outcome, 500)?;
    ensure!(message.contains("failed calling webhook"), "{message}");
    Ok(())
}
