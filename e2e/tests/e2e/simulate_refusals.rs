//! `sluice simulate` refuses the objects that this API server refuses, with the server's texts, and accepts the others.

use crate::fixture::Fixture;
use anyhow::{Context as _, Result, ensure};
use http::Request;
use serde_json::{Value, json};
use sluice_e2e::cluster::Cluster;
use std::path::Path;

/// Exit code of `simulate` if it skipped objects.
const INCOMPLETE_EXIT_CODE: i32 = 3;
const JOBS: &str = "/apis/batch/v1/namespaces/NAMESPACE/jobs";

/// An object, and how server and simulation should answer.
struct Row {
    name: &'static str,
    /// Path of its collection.
    path: &'static str,
    object: Value,
    /// A merge patch of the object, which is what is refused.
    change: Option<Value>,
    expected: Expected,
}

enum Expected {
    Accepted,
    /// Refused by both, with texts that differ: the server's names its source code or prints the whole object.
    Refused,
    /// Refused by both with a text that contains this one.
    Text(&'static str),
}
use Expected::{Accepted, Refused, Text};

pub(crate) async fn same_refusals_as_server(cluster: &Cluster, fixture: &Fixture) -> Result<()> {
    let folder = cluster.plane.folder().join("simulate-refusals");
    std::fs::create_dir_all(&folder)?;
    let rows = [jobs(), pods(), changed_jobs(), other_kinds(), kueue_kinds()].into_iter().flatten();
    let mut faults = Vec::new();
    for row in rows {
        let name = row.name;
        if let Err(fault) = check(cluster, fixture, &folder, row).await {
            faults.push(format!("{name}: {fault:#}"));
        }
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// Checks one row on the server, where only objects that a row changes are stored, and in the simulation.
async fn check(cluster: &Cluster, fixture: &Fixture, folder: &Path, row: Row) -> Result<()> {
    let path = row.path.replace("NAMESPACE", &fixture.name);
    let mut object = row.object;
    object["metadata"]
        .as_object_mut()
        .context("no metadata")?
        .entry("name")
        .or_insert_with(|| fixture.own_name(row.name).into());
    if row.path.contains("NAMESPACE") {
        object["metadata"]["namespace"] = json!(fixture.name);
    }
    let query = "dryRun=All&fieldValidation=Strict";
    let (server, changed) = match &row.change {
        None => (send(cluster, "POST", &format!("{path}?{query}"), &object).await?, None),
        Some(change) => {
            send(cluster, "POST", &path, &object)
                .await?
                .err()
                .map_or(Ok(()), |refusal| Err(anyhow::anyhow!(refusal)))?;
            let name = object["metadata"]["name"].as_str().context("no name")?.to_owned();
            let outcome = send(cluster, "PATCH", &format!("{path}/{name}?{query}"), change).await?;
            send(cluster, "DELETE", &format!("{path}/{name}"), &json!({})).await?.ok();
            let mut changed = change.clone();
            for field in ["apiVersion", "kind"] {
                changed[field] = object[field].clone();
            }
            let metadata = json!({"name": name, "namespace": object["metadata"]["namespace"]});
            json_patch::merge(&mut changed, &json!({"metadata": metadata}));
            (outcome, Some(changed))
        }
    };
    let simulated = simulate(cluster, folder, &object, changed.as_ref()).await?;
    match row.expected {
        Accepted => {
            ensure!(server.is_ok() && simulated.is_ok(), "server: {server:?}, simulate: {simulated:?}");
        }
        Refused => {
            ensure!(server.is_err() && simulated.is_err(), "server: {server:?}, simulate: {simulated:?}");
        }
        Text(text) => {
            let server = server.err().context("the server accepts it")?;
            let reason = simulated.err().context("simulate accepts it")?;
            ensure!(reason.contains(text), "simulate says {reason}");
            let same = reason
                .trim_start_matches('[')
                .trim_end_matches(']')
                .split(", spec.")
                .next()
                .unwrap_or_default();
            ensure!(server.contains(same), "the server says {server}\nsimulate says {reason}");
        }
    }
    Ok(())
}

/// Sends a request; returns the server's message if it refuses.
async fn send(cluster: &Cluster, method: &str, path: &str, body: &Value) -> Result<Result<(), String>> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
    let request = request.body(body.to_string().into_bytes())?;
    match cluster.objects.client().request::<Value>(request).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) => Ok(Err(status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

/// Simulates an object, and then its change; returns the reason if one is refused.
async fn simulate(
    cluster: &Cluster,
    folder: &Path,
    object: &Value,
    changed: Option<&Value>,
) -> Result<Result<(), String>> {
    let (first, second) = (folder.join("object.json"), folder.join("change.json"));
    std::fs::write(&first, object.to_string())?;
    let mut command = tokio::process::Command::new(&cluster.manager()?.settings().program);
    command.arg("simulate").arg(&first);
    if let Some(changed) = changed {
        std::fs::write(&second, changed.to_string())?;
        command.arg("--then").arg(&second);
    }
    let output = command.output().await?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Ok(Ok(())),
        Some(INCOMPLETE_EXIT_CODE) => {
            let subject = format!("{}: ", object["metadata"]["name"].as_str().context("no name")?);
            let reason = stderr.split_once(&subject).map(|(_, reason)| reason.trim_end().to_owned());
            Ok(Err(reason.with_context(|| stderr.clone())?))
        }
        code => anyhow::bail!("{code:?}: {stderr}"),
    }
}

/// A Job without a queue, changed by a merge patch.
fn job(name: &'static str, patch: &Value, expected: Expected) -> Row {
    let mut object = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}}});
    json_patch::merge(&mut object, patch);
    Row { name, path: JOBS, object, change: None, expected }
}

/// A Job with a patched container.
fn container(name: &'static str, patch: &Value, expected: Expected) -> Row {
    let mut container = json!({"name": "c", "image": "x"});
    json_patch::merge(&mut container, patch);
    job(name, &json!({"spec": {"template": {"spec": {"containers": [container]}}}}), expected)
}

fn pod_spec(name: &'static str, patch: &Value, expected: Expected) -> Row {
    job(name, &json!({"spec": {"template": {"spec": patch}}}), expected)
}

fn jobs() -> Vec<Row> {
    let spec = |name, patch: Value, expected| job(name, &json!({"spec": patch}), expected);
    let long = "j".repeat(64);
    vec![
        spec("plain", json!({}), Accepted),
        spec("unknown-field", json!({"paralelism": 4}), Refused),
        spec("unknown-nested-field", json!({"template": {"spec": {"restartPolice": "Never"}}}), Refused),
        spec("text-for-number", json!({"parallelism": "4"}), Refused),
        spec("number-beyond-32-bits", json!({"parallelism": 3_000_000_000_i64}), Refused),
        spec(
            "null-is-absent",
            json!({"parallelism": 1, "completions": 1, "template": {"metadata": {}}}),
            Accepted,
        ),
        job("bad-time", &json!({"metadata": {"creationTimestamp": "yesterday"}}), Refused),
        job("unknown-metadata", &json!({"metadata": {"lables": {}}}), Refused),
        job(
            "name-above-63",
            &json!({"metadata": {"name": long}}),
            Text("spec.template.labels: Invalid value"),
        ),
        job("bad-name", &json!({"metadata": {"name": "Bad_Name"}}), Text("metadata.name: Invalid value")),
        job(
            "bad-label",
            &json!({"metadata": {"labels": {"a": "b c"}}}),
            Text("metadata.labels: Invalid value"),
        ),
        job(
            "bad-annotation",
            &json!({"metadata": {"annotations": {"a b": "c"}}}),
            Text("metadata.annotations: Invalid value"),
        ),
        pod_spec(
            "always",
            &json!({"restartPolicy": "Always"}),
            Text("restartPolicy: Required value: valid values"),
        ),
        pod_spec(
            "no-policy",
            &json!({"restartPolicy": null}),
            Text("restartPolicy: Required value: valid values"),
        ),
        pod_spec(
            "bad-policy",
            &json!({"restartPolicy": "Sometimes"}),
            Text("Unsupported value: \"Sometimes\""),
        ),
        spec("limit-per-index", json!({"backoffLimitPerIndex": 1}), Text("requires indexed completion mode")),
        spec(
            "indexed-without-completions",
            json!({"completionMode": "Indexed", "parallelism": 2}),
            Text("when completion mode is Indexed"),
        ),
        spec("bad-mode", json!({"completionMode": "Sorted"}), Text("spec.completionMode: Unsupported value")),
        spec(
            "negative",
            json!({"parallelism": -1}),
            Text("spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
        ),
        spec(
            "failed-indexes",
            json!({"completionMode": "Indexed", "completions": 2, "maxFailedIndexes": 1}),
            Text("when maxFailedIndexes is specified"),
        ),
        spec(
            "many-failed-indexes",
            json!({"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1, "maxFailedIndexes": 3}),
            Text("must be less than or equal to completions"),
        ),
        spec("managed-by", json!({"managedBy": "controller"}), Text("must be a domain-prefixed path")),
        spec(
            "replacement",
            json!({"podReplacementPolicy": "Never"}),
            Text("podReplacementPolicy: Unsupported value"),
        ),
    ]
}

fn pods() -> Vec<Row> {
    let resources = |name, requests: Value, limits: Value, expected| {
        container(name, &json!({"resources": {"requests": requests, "limits": limits}}), expected)
    };
    vec![
        pod_spec(
            "no-containers",
            &json!({"containers": []}),
            Text("spec.template.spec.containers: Required value"),
        ),
        container("no-image", &json!({"image": null}), Text("containers[0].image: Required value")),
        container("no-name", &json!({"name": null}), Text("containers[0].name: Required value")),
        container("bad-container", &json!({"name": "C_"}), Text("containers[0].name: Invalid value")),
        pod_spec(
            "same-container",
            &json!({"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]}),
            Text("containers[1].name: Duplicate value: \"c\""),
        ),
        resources(
            "above-limit",
            json!({"cpu": "2"}),
            json!({"cpu": "1"}),
            Text("must be less than or equal to cpu limit of 1"),
        ),
        resources(
            "gpu-without-limit",
            json!({"example.com/gpu": "1"}),
            json!({}),
            Text("Limit must be set for non overcommitable resources"),
        ),
        resources(
            "gpu-unlike-limit",
            json!({"example.com/gpu": "1"}),
            json!({"example.com/gpu": "2"}),
            Text("must be equal to example.com/gpu limit of 2"),
        ),
        resources("part-of-gpu", json!({}), json!({"example.com/gpu": "500m"}), Text("must be an integer")),
        resources(
            "negative-cpu",
            json!({"cpu": "-1"}),
            json!({}),
            Text("must be greater than or equal to 0"),
        ),
        resources("unknown-resource", json!({"gpu": "1"}), json!({}), Refused),
        resources("not-a-quantity", json!({"cpu": "much"}), json!({}), Refused),
        resources("number-as-quantity", json!({"cpu": 1}), json!({"cpu": 1.5}), Accepted),
        pod_spec(
            "toleration",
            &json!({"tolerations": [{"operator": "Equal"}]}),
            Text("operator must be Exists when `key` is empty"),
        ),
        pod_spec(
            "toleration-time",
            &json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]}),
            Text("effect must be 'NoExecute' when `tolerationSeconds` is set"),
        ),
        pod_spec(
            "node-selector",
            &json!({"nodeSelector": {"a": "b c"}}),
            Text("nodeSelector: Invalid value"),
        ),
    ]
}

fn changed_jobs() -> Vec<Row> {
    let changed = |name, spec: Value, change: Value, expected| {
        let row = job(name, &json!({"spec": spec}), expected);
        Row { change: Some(json!({"spec": change})), ..row }
    };
    let image = json!({"template": {"spec": {"containers": [{"name": "c", "image": "y"}]}}});
    let cpu = json!({"template": {"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}});
    let selector = json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}});
    vec![
        changed("more-pods", json!({"parallelism": 1}), json!({"parallelism": 3}), Accepted),
        changed(
            "more-completions",
            json!({"completions": 1}),
            json!({"completions": 3}),
            Text("spec.completions: Invalid value: 3: field is immutable"),
        ),
        changed(
            "default-completions",
            json!({}),
            json!({"completions": 3}),
            Text("spec.completions: Invalid value: 3: field is immutable"),
        ),
        changed(
            "indexed-alone",
            json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}),
            json!({"completions": 3}),
            Text("can only be modified in tandem with spec.parallelism"),
        ),
        changed(
            "indexed-together",
            json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2}),
            json!({"completions": 3, "parallelism": 3}),
            Accepted,
        ),
        changed(
            "other-mode",
            json!({"completions": 1}),
            json!({"completionMode": "Indexed"}),
            Text("spec.completionMode: Invalid value: \"Indexed\": field is immutable"),
        ),
        changed("other-image", json!({}), image.clone(), Refused),
        changed("other-image-suspended", json!({"suspend": true}), image, Refused),
        changed("other-cpu", json!({}), cpu, Refused),
        changed("selector-suspended", json!({"suspend": true}), selector.clone(), Accepted),
        changed("selector-running", json!({}), selector, Refused),
        changed(
            "other-controller",
            json!({"managedBy": "a.example/b"}),
            json!({"managedBy": "a.example/c"}),
            Text("spec.managedBy: Invalid value: \"a.example/c\": field is immutable"),
        ),
    ]
}

fn other_kinds() -> Vec<Row> {
    let row = |name, path, object: Value, expected| Row { name, path, object, change: None, expected };
    let ranges = "/api/v1/namespaces/NAMESPACE/limitranges";
    let range = |name, limit: Value, expected| {
        row(
            name,
            ranges,
            json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {}, "spec": {"limits": [limit]}}),
            expected,
        )
    };
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name, fields: Value, expected| {
        let mut object = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {}, "value": 1});
        json_patch::merge(&mut object, &fields);
        row(name, classes, object, expected)
    };
    let runtimes = "/apis/node.k8s.io/v1/runtimeclasses";
    let runtime = |name, fields: Value, expected| {
        let mut object =
            json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {}, "handler": "h"});
        json_patch::merge(&mut object, &fields);
        row(name, runtimes, object, expected)
    };
    vec![
        range("range", json!({"type": "Container", "max": {"cpu": "3"}}), Accepted),
        range("range-typo", json!({"type": "Container", "maximum": {"cpu": "3"}}), Refused),
        range(
            "min-above-max",
            json!({"type": "Container", "min": {"cpu": "4"}, "max": {"cpu": "3"}}),
            Text("min value 4 is greater than max value 3"),
        ),
        range(
            "default-above-max",
            json!({"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "3"}}),
            Text("default value 4 is greater than max value 3"),
        ),
        range(
            "default-of-pod",
            json!({"type": "Pod", "default": {"cpu": "4"}}),
            Text("may not be specified when `type` is 'Pod'"),
        ),
        range(
            "ratio",
            json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}),
            Text("ratio 500m is less than 1"),
        ),
        class("class", json!({}), Accepted),
        class("class-typo", json!({"globaldefault": true}), Refused),
        class(
            "high-class",
            json!({"value": 1_000_000_001}),
            Text("value: Forbidden: maximum allowed value of a user defined priority is 1000000000"),
        ),
        class(
            "class-policy",
            json!({"preemptionPolicy": "Sometimes"}),
            Text("preemptionPolicy: Unsupported value"),
        ),
        Row {
            change: Some(json!({"value": 2})),
            ..class("class-value", json!({}), Text("value: Forbidden: may not be changed in an update."))
        },
        runtime("runtime", json!({"overhead": {"podFixed": {"cpu": "1"}}}), Accepted),
        runtime("no-handler", json!({"handler": ""}), Text("handler: Required value")),
        runtime("bad-handler", json!({"handler": "A_"}), Text("handler: Invalid value")),
        row(
            "namespace.with.dots",
            "/api/v1/namespaces",
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}}),
            Text("metadata.name: Invalid value"),
        ),
    ]
}

fn kueue_kinds() -> Vec<Row> {
    let row = |name, path, kind: &str, spec: Value, expected| {
        let object =
            json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {}, "spec": spec});
        Row { name, path, object, change: None, expected }
    };
    let workloads = "/apis/kueue.x-k8s.io/v1beta2/namespaces/NAMESPACE/workloads";
    let pods = json!({"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}});
    let mut minimum = pods.clone();
    minimum["minCount"] = json!(5);
    let topologies = "/apis/kueue.x-k8s.io/v1beta2/topologies";
    let levels = |names: &[&str]| json!({"levels": names.iter().map(|name| json!({"nodeLabel": name})).collect::<Vec<_>>()});
    let flavors = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors";
    let queues = "/apis/kueue.x-k8s.io/v1beta2/namespaces/NAMESPACE/localqueues";
    let queue = row("moved-queue", queues, "LocalQueue", json!({"clusterQueue": "a"}), Refused);
    vec![
        row("workload", workloads, "Workload", json!({"podSets": [pods]}), Accepted),
        row(
            "same-pod-set",
            workloads,
            "Workload",
            json!({"podSets": [pods, pods]}),
            Text("spec.podSets[1]: Duplicate value: {\"name\":\"main\"}"),
        ),
        row("min-count", workloads, "Workload", json!({"podSets": [minimum]}), Refused),
        row(
            "class-without-priority",
            workloads,
            "Workload",
            json!({"podSets": [pods], "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "a"}}),
            Refused,
        ),
        row("topology", topologies, "Topology", levels(&["rack", "kubernetes.io/hostname"]), Accepted),
        row("same-level", topologies, "Topology", levels(&["rack", "rack"]), Refused),
        row("host-not-last", topologies, "Topology", levels(&["kubernetes.io/hostname", "rack"]), Refused),
        row("topology-without-label", flavors, "ResourceFlavor", json!({"topologyName": "t"}), Refused),
        row(
            "bad-taint",
            flavors,
            "ResourceFlavor",
            json!({"nodeTaints": [{"key": "a", "effect": "Never"}]}),
            Refused,
        ),
        row(
            "bad-toleration",
            flavors,
            "ResourceFlavor",
            json!({"tolerations": [{"operator": "Equal"}]}),
            Refused,
        ),
        Row { change: Some(json!({"spec": {"clusterQueue": "b"}})), ..queue },
    ]
}
