//! Requests while no manager runs: only objects that opted in depend on it, all others are unaffected (I26).

use crate::fixture::{Fixture, expect_refused};
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::Manager;
use sluice_e2e::objects::{Kind, condition, expect_condition, text};
use sluice_e2e::wait::eventually;

const STAMP: &str = "2026-01-01T00:00:00Z";

/// Without a manager, Jobs with a queue name and objects of Kueue's kinds are refused; Jobs without a queue name run. A
/// new Workload is stored if no validation rule applies to it, and conditions that affect nothing else may be written.
/// The manager processes all of it when it is restarted.
pub(crate) async fn unmanaged_jobs_run(cluster: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "2", None)], json!({})).await?;
    fixture.create_queue("plain", "", &[("cpu", "2", None)], json!({})).await?;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "work:1", "resources": {"requests": {"cpu": "1"}}}]}});
    for name in ["ends", "stays"] {
        let sets = json!([{"name": "main", "count": 1, "template": template}]);
        let metadata = json!({"namespace": fixture.name, "name": name});
        let body = json!({"metadata": metadata, "spec": {"queueName": "main", "podSets": sets}});
        fixture.objects.create(Kind::WORKLOAD, &body).await?;
        let found = async || fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, name).await;
        eventually("the Workload is admitted", async || {
            expect_condition(&found().await?, "Admitted", "True", "Admitted")
        })
        .await?;
    }
    fixture.wait_for_queue_counts("main", (0, 2, 2), &[("cpu", "2")]).await?;
    let old = cluster.take_manager().context("no manager")?;
    old.terminate();

    expect_webhook_unavailable(
        fixture.objects.create(Kind::JOB, fixture.job("queued", "main", "1").body()).await,
    )?;
    let flavor = json!({"metadata": {"name": fixture.own_name("other")}, "spec": {}});
    expect_webhook_unavailable(fixture.objects.create(Kind::FLAVOR, &flavor).await)?;
    let free =
        json!({"metadata": {"namespace": fixture.name, "name": "free"}, "spec": {"template": template}});
    fixture.objects.create(Kind::JOB, &free).await?;
    eventually("the Job without a queue name is running", async || {
        let job = fixture.objects.must_get(Kind::JOB, &fixture.name, "free").await?;
        ensure!(job["status"]["ready"] == 1, "{}", job["status"]);
        Ok(())
    })
    .await?;

    write_condition(fixture, "ends", "Finished", "True").await?;
    write_condition(fixture, "stays", "e2e.example/Seen", "True").await?;
    // Changes that affect quota need a review, and so does a condition type that only the webhook finds too long.
    expect_webhook_unavailable(write_condition(fixture, "stays", "QuotaReserved", "False").await)?;
    expect_webhook_unavailable(write_condition(fixture, "stays", &"a".repeat(64), "True").await)?;
    let none = json!({"status": {"admission": null}});
    expect_webhook_unavailable(
        fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, "stays", &none).await,
    )?;
    let pods = json!({"status": {"reclaimablePods": [{"name": "main", "count": 1}]}});
    expect_webhook_unavailable(
        fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, "stays", &pods).await,
    )?;
    expect_webhook_unavailable(
        fixture
            .objects
            .merge(Kind::WORKLOAD, &fixture.name, "stays", &json!({"spec": {"priority": 7}}))
            .await,
    )?;
    check_new_workloads(fixture).await?;

    let new = Manager::start(&cluster.plane, old.settings()).await?;
    new.wait_until_ready().await?;
    cluster.put_manager(new);
    cluster.wait_for_webhooks().await?;
    fixture.wait_for_queue_counts("main", (0, 1, 1), &[("cpu", "1")]).await?;
    for at in 0..UNREVIEWED.len() {
        let name = format!("plain-{at}");
        eventually("the Workload is queued", async || {
            let workload = fixture.objects.must_get(Kind::WORKLOAD, &fixture.name, &name).await?;
            ensure!(!condition(&workload, "QuotaReserved").status.is_empty(), "{}", workload["status"]);
            Ok(())
        })
        .await?;
    }
    fixture.submit(fixture.job("queued", "main", "1")).await?;
    fixture.wait_until_running("queued").await?;
    fixture.finish_job("queued").await?;
    fixture.objects.delete(Kind::JOB, &fixture.name, "free", PropagationPolicy::Background).await?;
    Ok(())
}

/// Merge patches of a new Workload to which no validation rule applies.
const UNREVIEWED: [&str; 9] = [
    "{}",
    r#"{"metadata": {"annotations": {"example.com/owner": "me"}, "labels": {"a": "b"}}}"#,
    r#"{"spec": {"priority": 7, "active": true}}"#,
    r#"{"spec": {"podSets": [{"name": "main", "count": 1, "topologyRequest": {"unconstrained": true}, "template": {"spec": {
        "containers": [{"name": "c", "image": "work:1"}]}}}]}}"#,
    r#"{"spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [
        {"name": "c", "image": "work:1", "resources": {"requests": {"cpu": 1, "memory": "0.5Gi"}, "limits": {"cpu": "7"}}},
        {"name": "d", "image": "work:1", "resources": {"limits": {"example.com/gpu": 0, "memory": "12M"}}}]}}}]}}"#,
    r#"{"spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [
        {"name": "c", "image": "work:1", "resources": {}}]}}}]}}"#,
    r#"{"spec": {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "work:1", "resources": {"requests": {"cpu": null}, "limits": null}}]}}}]}}"#,
    r#"{"spec": {"podSets": [{"name": "main", "count": 1, "template": {"metadata": {}, "spec": {"containers": [
        {"name": "c", "image": "work:1"}]}}}]}}"#,
    r#"{"spec": {"podSets": [{"name": "a", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}},
        {"name": "b", "count": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}]}}"#,
];

/// Merge patches of the only pod set of a new Workload to which a validation rule applies.
const REVIEWED: [&str; 14] = [
    r#"{"minCount": 1}"#,
    r#"{"topologyRequest": {"required": "rack", "podSetSliceSize": 1}}"#,
    r#"{"topologyRequest": {"required": "rack", "podSetSliceRequiredTopology": "rack"}}"#,
    r#"{"topologyRequest": {"required": "rack", "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 1}]}}"#,
    r#"{"template": {"metadata": {"labels": {"a": "b"}}}}"#,
    r#"{"template": {"metadata": {"annotations": {"a": "b"}}}}"#,
    r#"{"template": {"spec": {"resources": {"requests": {"cpu": "1"}}}}}"#,
    r#"{"template": {"spec": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "-1"}}}]}}}"#,
    r#"{"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "-1"}}}]}}}"#,
    r#"{"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": -1}}}]}}}"#,
    r#"{"template": {"spec": {"containers": [{"name": "c"}, {"name": "d", "resources": {"limits": {"cpu": "-1m"}}}]}}}"#,
    r#"{"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"pods": "1"}}}]}}}"#,
    r#"{"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"pods": 1}}}]}}}"#,
    r#"{"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1e3"}}}]}}}"#,
];

/// Checks which new Workloads are stored without a review and which are refused.
async fn check_new_workloads(fixture: &Fixture) -> Result<()> {
    let set = json!({"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "work:1"}]}}});
    let plain = |name: String| json!({"metadata": {"namespace": fixture.name, "name": name}, "spec": {"queueName": "plain", "podSets": [set]}});
    for (at, change) in UNREVIEWED.iter().enumerate() {
        let mut body = plain(format!("plain-{at}"));
        json_patch::merge(&mut body, &serde_json::from_str(change)?);
        fixture.objects.create(Kind::WORKLOAD, &body).await.with_context(|| (*change).to_owned())?;
    }
    for change in REVIEWED {
        let mut body = plain("reviewed".to_owned());
        json_patch::merge(&mut body["spec"]["podSets"][0], &serde_json::from_str(change)?);
        expect_webhook_unavailable(fixture.objects.create(Kind::WORKLOAD, &body).await).context(change)?;
    }
    for annotation in ["admission-gated-by", "priority-boost", "elastic-job"] {
        let mut body = plain("reviewed".to_owned());
        body["metadata"]["annotations"] = json!({format!("kueue.x-k8s.io/{annotation}"): "1"});
        expect_webhook_unavailable(fixture.objects.create(Kind::WORKLOAD, &body).await)
            .context(annotation)?;
    }
    Ok(())
}

/// Adds or replaces a condition of a Workload.
async fn write_condition(fixture: &Fixture, name: &str, kind: &str, status: &str) -> kube::Result<Value> {
    let workload = fixture.objects.get(Kind::WORKLOAD, &fixture.name, name).await?.unwrap_or_default();
    let mut all = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.retain(|condition| text(condition, "/type") != kind);
    all.push(
        json!({"type": kind, "status": status, "reason": "Told", "message": "", "lastTransitionTime": STAMP}),
    );
    let patch = json!({"status": {"conditions": all}});
    fixture.objects.merge_status(Kind::WORKLOAD, &fixture.name, name, &patch).await
}

/// Checks that the request was refused because no webhook answered.
fn expect_webhook_unavailable(outcome: kube::Result<Value>) -> Result<()> {
    let message = expect_refused(outcome, 500)?;
    ensure!(message.contains("failed calling webhook"), "{message}");
    Ok(())
}
