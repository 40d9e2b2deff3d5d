//! Objects of a kind that is configured, but not served by this version: they run without quota, and say so.

use crate::fixture::Fixture;
use crate::runtime::wait_for_missing_permission;
use anyhow::{Context as _, Result, ensure};
use kube::api::PropagationPolicy;
use serde_json::{Value, json};
use sluice::frameworks::{Gvk, frameworks};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::manager::ManagerSettings;
use sluice_e2e::objects::{Kind, text};
use sluice_e2e::wait::eventually;
use sluice_e2e::{definitions, install};
use std::fs;

const COMPONENT: &str = "rbac/unserved-frameworks";
const ROLE: &str = "unserved-frameworks-role";

/// Without the permission to read the kind, and without its definition, the manager is ready and Jobs run. With both, each
/// object that names a queue gets one warning, also if the label comes later or the leader changes.
pub(crate) async fn each_queued_object_is_warned_once(
    cluster: &mut Cluster,
    fixture: &Fixture,
) -> Result<()> {
    let mut unserved = frameworks().filter(|row| !row.is_served() && row.fields.suspend.is_some());
    let row = unserved.next().context("every kind with a suspend field is served: remove this case")?;
    let Gvk { group, version, kind, plural } = row.gvk;
    let api = Kind::new(group, version, kind, plural);
    let resource = format!("resource={plural:?}");
    let mut settings = cluster.manager()?.settings().clone();
    settings.configuration["integrations"] = json!({"frameworks": ["batch/job", row.name]});
    settings = ManagerSettings {
        name: "unserved".to_owned(),
        flags: vec!["--metrics-insecure".to_owned()],
        ..settings
    };
    let before = cluster.replace_manager(&settings).await?;
    let manager = cluster.manager()?;
    wait_for_missing_permission(manager, &resource, r#"verb="list""#, true).await?;
    manager.is_ready().await?;
    fixture.create_queue("main", "", &[("cpu", "1", None)], json!({})).await?;
    fixture.submit(fixture.job("served", "main", "1")).await?;
    fixture.wait_until_running("served").await?;

    let role = install::manifests_with(&fixture.kubectl, &[COMPONENT])?
        .into_iter()
        .filter(|object| text(object, "/metadata/name").contains("unserved-frameworks"))
        .collect::<Vec<Value>>();
    ensure!(role.len() == 2, "the component has {} objects", role.len());
    install::apply(&fixture.kubectl, &role)?;
    wait_for_missing_permission(manager, &resource, r#"verb="list""#, false).await?;
    let log = fs::read_to_string(manager.log())?;
    ensure!(log.matches("missing RBAC permissions; apply").count() == 1, "not reported once:\n{log}");

    definitions::permissive(&fixture.kubectl, &fixture.objects, api).await?;
    create(fixture, api, "queued", true).await?;
    create(fixture, api, "free", false).await?;
    let event = wait_for_warning(fixture, kind, "queued").await?;
    ensure!(text(&event, "/type") == "Warning", "{event}");
    ensure!(text(&event, "/note").contains(row.name), "{event}");
    ensure!(warnings(fixture, kind, "free").await?.is_empty(), "an object without a queue is reported");
    fixture.objects.merge(api, &fixture.name, "free", &metadata(true)).await?;
    wait_for_warning(fixture, kind, "free").await?;

    cluster.replace_manager(&settings).await?;
    create(fixture, api, "later", true).await?;
    wait_for_warning(fixture, kind, "later").await?;
    for name in ["queued", "free"] {
        let events = warnings(fixture, kind, name).await?;
        ensure!(events.len() == 1 && events[0]["series"].is_null(), "{events:?}");
    }
    fixture.finish_job("served").await?;
    fixture.objects.delete(Kind::CRD, "", &api.resource(), PropagationPolicy::Background).await?;
    fixture.kubectl.run(&["delete", "clusterrole", &format!("kueue-{ROLE}")])?;
    fixture.kubectl.run(&["delete", "clusterrolebinding", &format!("kueue-{ROLE}binding")])?;
    cluster.replace_manager(&before).await.map(drop)
}

fn metadata(queued: bool) -> Value {
    if queued { json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "main"}}}) } else { json!({}) }
}

async fn create(fixture: &Fixture, kind: Kind, name: &str, queued: bool) -> Result<()> {
    let mut body = metadata(queued);
    body["metadata"]["namespace"] = json!(fixture.name);
    body["metadata"]["name"] = json!(name);
    let template = json!({"metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    body["spec"] = json!({"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": template});
    fixture.objects.create(kind, &body).await?;
    Ok(())
}

async fn warnings(fixture: &Fixture, kind: &str, name: &str) -> Result<Vec<Value>> {
    let mut events = fixture.objects.list(Kind::EVENT, &fixture.name, "").await?;
    events.retain(|event| {
        text(event, "/reason") == "FrameworkNotServed"
            && text(event, "/regarding/kind") == kind
            && text(event, "/regarding/name") == name
    });
    Ok(events)
}

async fn wait_for_warning(fixture: &Fixture, kind: &str, name: &str) -> Result<Value> {
    eventually(format!("{kind} {name} is warned"), async || {
        let mut events = warnings(fixture, kind, name).await?;
        ensure!(events.len() == 1, "{} events", events.len());
        Ok(events.remove(0))
    })
    .await
}
