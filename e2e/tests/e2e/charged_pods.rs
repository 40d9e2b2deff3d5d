//! What the API server makes of the pods of a template: the table with which `core/tests/it/laws/charged_pods.rs` compares its
//! model and the charges. With `SLUICE_WRITE` set, the table is written instead of compared.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use sluice_e2e::wait::eventually;
use std::fs;

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/pods-made-by-api-server.json");

pub(crate) async fn server_makes_pods_as_recorded(_: &Cluster, fixture: &Fixture) -> Result<()> {
    let mut rows: Vec<Value> = serde_json::from_str(&fs::read_to_string(TABLE)?)?;
    if std::env::var_os("SLUICE_WRITE").is_some() {
        for (index, row) in rows.iter_mut().enumerate() {
            row["made"] = make_pod(fixture, index, row).await?;
        }
        let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
        return Ok(fs::write(TABLE, format!("[\n{}\n]\n", lines.join(",\n")))?);
    }
    for (index, row) in rows.iter().enumerate() {
        // A new LimitRange or RuntimeClass may reach the server's cache late.
        eventually(row["case"].to_string(), async || {
            let made = make_pod(fixture, index, row).await?;
            ensure!(made == row["made"], "{made} instead of {}", row["made"]);
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Returns the requests of a pod that the server would create, or "refused". Nothing is created but what the pod meets.
async fn make_pod(fixture: &Fixture, index: usize, row: &Value) -> Result<Value> {
    let name = fixture.own_name(&index.to_string());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let mut objects = vec![namespace];
    for (at, item) in row["limitRanges"].as_array().into_iter().flatten().enumerate() {
        objects.push(json!({"apiVersion": "v1", "kind": "LimitRange", "spec": {"limits": [item]},
            "metadata": {"name": format!("range-{at}"), "namespace": name}}));
    }
    let mut spec = row["spec"].clone();
    if let Some(overhead) = row.get("overhead") {
        objects
            .push(json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
            "handler": "any", "overhead": {"podFixed": overhead}}));
        spec["runtimeClassName"] = json!(name);
    }
    for list in ["initContainers", "containers"] {
        for (at, container) in spec[list].as_array_mut().into_iter().flatten().enumerate() {
            container["name"] = json!(format!("{}-{at}", list.to_lowercase()));
            container["image"] = json!("registry.example/pause:1");
        }
    }
    let text: Vec<String> = objects.iter().map(Value::to_string).collect();
    fixture.kubectl.apply(&text.join("\n---\n"))?;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": name}, "spec": spec});
    let created = loop {
        let arguments = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        match fixture.kubectl.run_with(&arguments, &pod.to_string()) {
            Err(error) if format!("{error:#}").contains("serviceaccount") => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
            outcome => break outcome,
        }
    };
    let made = match created {
        Ok(text) => requests_of(&serde_json::from_str(&text).context("the created pod")?),
        Err(_) => json!("refused"),
    };
    for object in objects.iter().filter(|object| object["kind"] != "LimitRange") {
        let kind = object["kind"].as_str().unwrap_or_default();
        fixture.kubectl.run(&["delete", "--wait=false", kind, &name])?;
    }
    Ok(made)
}

fn requests_of(pod: &Value) -> Value {
    let of_containers = |list: &str| -> Vec<Value> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|container| container["resources"]["requests"].clone()).collect()
    };
    json!({
        "containers": of_containers("containers"), "initContainers": of_containers("initContainers"),
        "resources": pod["spec"]["resources"]["requests"], "overhead": pod["spec"]["overhead"],
    })
}
