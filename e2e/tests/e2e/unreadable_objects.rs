//! Objects that are too large, or that were stored without webhooks and cannot be decoded.

use crate::fixture::{Fixture, expect_refused};
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice::api::crd::pod_template;
use sluice_e2e::cluster::Cluster;
use sluice_e2e::control_plane::http_get;
use sluice_e2e::install::remove_webhooks;
use sluice_e2e::manager::Manager;
use sluice_e2e::objects::{Job, Kind, text};
use sluice_e2e::wait::eventually;

const CRD: &str = "workloads.kueue.x-k8s.io";
const PRIORITY_SCHEMA_PATH: &str =
    "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/priority";

/// The committed pod template schema equals the one that the API server publishes.
pub(crate) async fn pod_template_schema_matches_server(cluster: &Cluster, _: &Fixture) -> Result<()> {
    let document = cluster.objects.client().request::<Value>(http_get("/openapi/v3/api/v1")?).await?;
    let (server, ours) = (pod_template::from_openapi(&document), pod_template::shipped()?);
    ensure!(server["properties"]["spec"].is_object(), "the server publishes no pod template schema");
    ensure!(
        server == ours,
        "core/src/api/crd/pod-template.json is not the server's schema; CONTRIBUTING.md says how to update it"
    );
    Ok(())
}

/// Builds a Workload without an owner, with `ballast` in its environment.
fn workload(name: &str, namespace: &str, ballast: &str) -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}},
        "env": [{"name": "BALLAST", "value": ballast}]});
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}]},
    })
}

fn large_job(fixture: &Fixture, name: &str, bytes: usize) -> Job {
    let environment = json!([{"name": "BALLAST", "value": "x".repeat(bytes)}]);
    let container = json!([{"name": "main", "image": "work:1", "env": environment,
        "resources": {"requests": {"cpu": "1"}}}]);
    fixture.job(name, "main", "1").pod_spec("containers", container)
}

/// A large Job that the server accepts runs, larger objects are refused with the reason, and small Jobs are not
/// delayed.
pub(crate) async fn large_objects_delay_no_others(_: &Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "3", None)], json!({})).await?;
    fixture.submit(large_job(fixture, "large", 1_000_000)).await?;
    fixture.submit(fixture.job("small", "main", "1")).await?;
    fixture.wait_until_running("small").await?;
    fixture.wait_until_running("large").await?;

    let huge = workload("huge", &fixture.name, &"x".repeat(2_000_000));
    let message =
        fixture.objects.create(Kind::WORKLOAD, &huge).await.err().context("2 MB were stored")?.to_string();
    ensure!(message.contains("too large"), "the error does not name the cause: {message}");
    let mut noted = fixture.job("noted", "main", "1").body().clone();
    noted["metadata"]["annotations"] = json!({"note": "x".repeat(1_400_000)});
    let message = expect_refused(fixture.objects.create(Kind::JOB, &noted).await, 422)?;
    ensure!(message.contains("metadata.annotations: Too long"), "{message}");

    fixture.submit(fixture.job("after", "main", "1")).await?;
    fixture.wait_until_running("after").await?;
    for name in ["small", "large", "after"] {
        fixture.finish_job(name).await?;
    }
    fixture.wait_for_queue_counts("main", (0, 0, 0), &[("cpu", "0")]).await
}

/// A Job just below etcd's size limit, whose Workload with status exceeds it: an event reports it, and other Jobs run.
pub(crate) async fn too_large_workload_is_reported(_: &mut Cluster, fixture: &Fixture) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(large_job(fixture, "brim", 1_571_000)).await?;
    eventually("an event reports what is too large", async || {
        let events = fixture.objects.list(Kind::EVENT, &fixture.name, "").await?;
        let brim = events.iter().filter(|e| text(e, "/regarding/name").contains("brim"));
        let notes: Vec<&str> = brim.map(|e| text(e, "/note")).collect();
        ensure!(notes.iter().any(|note| note.contains("too large")), "the notes are {notes:?}");
        Ok(())
    })
    .await?;
    fixture.submit(fixture.job("small", "main", "1")).await?;
    fixture.wait_until_running("small").await?;
    fixture.finish_job("small").await
}

/// A Workload stored under another schema, without webhooks, blocks no other workload, before and after a restart.
pub(crate) async fn undecodable_workload_blocks_no_others(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    let strict = fixture.objects.must_get(Kind::CRD, "", CRD).await?;
    let strict = strict.pointer(PRIORITY_SCHEMA_PATH).context("no priority in the schema")?.clone();
    let webhooks = remove_webhooks(&fixture.objects).await?;
    ensure!(webhooks.len() >= 2, "only {} webhook configurations exist", webhooks.len());
    set_priority_schema(fixture, &json!({"x-kubernetes-int-or-string": true}))?;
    let mut body = workload("broken", &fixture.name, "");
    body["spec"]["priority"] = "very high".into();
    let stored = eventually("the undecodable Workload is stored", async || {
        Ok(fixture.objects.create(Kind::WORKLOAD, &body).await.map(drop)?)
    })
    .await;
    set_priority_schema(fixture, &strict)?;
    for (kind, object) in webhooks {
        fixture.objects.create(kind, &object).await?;
    }
    stored?;
    cluster.wait_for_webhooks().await?;

    for name in ["one", "two"] {
        fixture.submit(fixture.job(name, "main", "1")).await?;
        fixture.wait_until_running(name).await?;
        fixture.finish_job(name).await?;
        let old = cluster.take_manager().context("no manager")?;
        old.kill();
        let new = Manager::start(&cluster.plane, old.settings()).await?;
        new.wait_until_ready().await?;
        cluster.put_manager(new);
        cluster.wait_for_webhooks().await?;
    }
    eventually("an event reports the undecodable Workload", async || {
        let events = fixture.objects.list(Kind::EVENT, &fixture.name, "").await?;
        let event = events.iter().find(|e| text(e, "/reason") == "Unreadable").context("no such event")?;
        ensure!(text(event, "/regarding/name") == "broken", "it is about another object: {event}");
        ensure!(
            text(event, "/note").contains("priority") || text(event, "/note").contains("very high"),
            "{event}"
        );
        Ok(())
    })
    .await?;
    fixture.objects.delete(Kind::WORKLOAD, &fixture.name, "broken", PropagationPolicy::Background).await?;
    Ok(())
}

/// Sets the schema of `spec.priority` in the definition of Workloads.
fn set_priority_schema(fixture: &Fixture, schema: &Value) -> Result<()> {
    let patch = json!([{"op": "replace", "path": PRIORITY_SCHEMA_PATH, "value": schema}]).to_string();
    fixture.kubectl.run(&["patch", "crd", CRD, "--type=json", "-p", &patch]).map(drop)
}
