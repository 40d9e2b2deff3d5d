//! Objects of the server, as recordings show them.

use super::super::pod_groups::{shown, wanted};
use super::super::{plain, text};
use super::plane::Plane;
use serde_json::{Map, Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::JobKind;

/// Compares what the server has with a recorded state. An error shows the objects that differ.
pub(super) fn compare(plane: &mut Plane, state: &Value) -> Result<(), String> {
    let (mut mine, mut theirs) = (objects_of(plane), recorded_objects(state, plane.kind.gvk.kind));
    if plane.kind.gvk.kind == "SparkApplication" {
        // They are charged in full here. Unit tests of the kind compare amounts.
        for (_, shape) in mine.iter_mut().chain(&mut theirs) {
            *shape = plain(&without_charge(shape));
        }
    }
    let list = |objects: &[(String, Value)]| {
        let mut lines: Vec<String> =
            objects.iter().map(|(name, shape)| format!("{name} {}", sorted(shape))).collect();
        lines.sort();
        lines.join("\n")
    };
    let (mine, theirs) = (list(&mine), list(&theirs));
    if mine == theirs {
        return Ok(());
    }
    let only = |lines: &str, others: &str| {
        let others: Vec<&str> = others.lines().collect();
        lines.lines().filter(|line| !others.contains(line)).collect::<Vec<_>>().join("\n")
    };
    Err(format!("--- is\n{}\n--- recorded\n{}", only(&mine, &theirs), only(&theirs, &mine)))
}

/// Returns a value without amounts of cpu and memory, and their flavors.
fn without_charge(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().map(|(name, value)| {
                let mut value = without_charge(value);
                if let ("requests" | "resourceUsage" | "flavors", Some(amounts)) =
                    (name.as_str(), value.as_object_mut())
                {
                    amounts.retain(|resource, _| resource != "cpu" && resource != "memory");
                }
                (name.clone(), value)
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(without_charge).collect(),
        other => other.clone(),
    }
}

/// Text of a value with sorted keys.
fn sorted(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

/// Objects of a recorded state. Those of equal names are told apart by a number at the end.
fn recorded_objects(state: &Value, plane_kind: &str) -> Vec<(String, Value)> {
    let mut objects = Vec::new();
    for (name, shape) in state.as_object().unwrap() {
        let name = name.split(" (").next().unwrap().to_owned();
        let kind = name.split(' ').next().unwrap();
        let shape = match kind {
            "Workload" => recorded_workload(shape),
            "Pod" => wanted(shape),
            "Job" if kind != plane_kind => json!({"suspend": shape["spec"]["suspend"]}),
            "Deployment" => json!({"template": plain(&shape["spec"]["template"]["metadata"])}),
            _ => json!({"spec": plain(&shape["spec"])}),
        };
        objects.push((name, shape));
    }
    objects
}

fn recorded_workload(shape: &Value) -> Value {
    let mut shape = plain(shape);
    let finished = shape["conditions"]["Finished"][0] == "True";
    let fields = shape.as_object_mut().unwrap();
    if finished {
        fields.shift_remove("reclaimablePods");
    }
    let admitted = fields.get("admission").is_some();
    let conditions = fields.get_mut("conditions").and_then(Value::as_object_mut);
    if let Some(conditions) = conditions {
        let unready = conditions.get("PodsReady").is_some_and(|condition| condition[0] == "False");
        if unready && !admitted {
            conditions.shift_remove("PodsReady");
        }
        // The message of Finished repeats the operator's words; it is compared where it is recorded.
        for condition in conditions.values_mut() {
            condition.as_array_mut().unwrap().truncate(2);
        }
    }
    plain(&shape)
}

fn objects_of(plane: &mut Plane) -> Vec<(String, Value)> {
    let pods: Vec<Value> = plane.harness.server.all(Kind::Pod).cloned().collect();
    let mut names: Vec<(String, String)> = Vec::new();
    let pod_name = |pod: &Value| match pod["deployment"].as_str() {
        Some(deployment) => format!("{deployment}-*"),
        None => text(&pod["metadata"]["name"]).to_owned(),
    };
    for pod in &pods {
        names.push((text(&pod["metadata"]["uid"]).to_owned(), format!("uid(Pod/{})", pod_name(pod))));
        names.push((text(&pod["metadata"]["name"]).to_owned(), pod_name(pod)));
    }
    let jobs: Vec<Value> = plane.harness.server.all(Kind::Job(plane.kind)).cloned().collect();
    let children = plane.harness.server.all(Kind::Job(JobKind::BATCH_JOB));
    let children: Vec<Value> = children.filter(|_| plane.kind != JobKind::BATCH_JOB).cloned().collect();
    for job in jobs.iter().chain(&children) {
        let name = format!("uid({}/{})", text(&job["kind"]), text(&job["metadata"]["name"]));
        names.push((text(&job["metadata"]["uid"]).to_owned(), name));
    }
    let real = |name: &str| {
        names
            .iter()
            .find(|(real, _)| real == name)
            .map_or_else(|| name.to_owned(), |(_, shown)| shown.clone())
    };
    let workloads: Vec<Value> = plane.harness.server.all(Kind::Workload).cloned().collect();
    for workload in &workloads {
        let (name, owner) =
            (text(&workload["metadata"]["name"]), &workload["metadata"]["ownerReferences"][0]);
        let own = owner["controller"] == true;
        let kind = text(&owner["kind"]);
        let shown = if own {
            let slice = workload["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] == "true";
            let of_owner = format!("workload({kind}/{}#", real(text(&owner["name"])));
            let earlier = plane.shown_names.values().filter(|shown| shown.starts_with(&of_owner)).count();
            let number = if slice { format!("#{}", earlier + 1) } else { String::new() };
            format!("workload({kind}/{}{number})", real(text(&owner["name"])))
        } else if let Some(index) =
            workload["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"].as_str()
        {
            format!("workload({kind}/{}-{index})", text(&owner["name"]))
        } else {
            name.to_owned()
        };
        plane.shown_names.entry(name.to_owned()).or_insert(shown);
    }
    let mut objects: Vec<(String, Value)> = Vec::new();
    for pod in &pods {
        objects.push((format!("Pod {}", pod_name(pod)), shown(pod)));
    }
    for job in &jobs {
        let name = format!("{} {}", text(&job["kind"]), text(&job["metadata"]["name"]));
        let mut spec = plain(&job["spec"]);
        if let Some(pod) = spec.pointer_mut("/template/spec").and_then(Value::as_object_mut) {
            // Of a Job only what a queueing system touches is recorded.
            pod.shift_remove("restartPolicy");
        }
        objects.push((name, json!({"spec": spec})));
    }
    for job in &children {
        let name = format!("Job {}", text(&job["metadata"]["name"]));
        objects.push((name, json!({"suspend": job["spec"]["suspend"]})));
    }
    for workload in &workloads {
        let name = &plane.shown_names[text(&workload["metadata"]["name"])];
        objects.push((format!("Workload {name}"), shown_workload(workload)));
    }
    for (name, deployment) in &plane.deployments {
        let template = plain(&deployment["spec"]["template"]["metadata"]);
        objects.push((format!("Deployment {name}"), json!({"template": template})));
    }
    names.extend(plane.shown_names.iter().map(|(real, shown)| (real.clone(), shown.clone())));
    // Longer names first: one may be the beginning of another.
    names.sort_by_key(|(real, _)| std::cmp::Reverse(real.len()));
    let rename = |shape: Value| {
        let mut words = shape.to_string();
        for (real, shown) in &names {
            words = words.replace(&format!("\"{real}\""), &format!("\"{shown}\""));
            words = words.replace(&format!("/{real}\""), &format!("/{shown}\""));
        }
        serde_json::from_str(&words).unwrap()
    };
    objects.into_iter().map(|(name, shape)| (name, rename(shape))).collect()
}

fn shown_workload(workload: &Value) -> Value {
    let (metadata, status) = (&workload["metadata"], &workload["status"]);
    let mut conditions = Map::new();
    for condition in status["conditions"].as_array().into_iter().flatten() {
        let pair = json!([condition["status"], condition["reason"]]);
        conditions.insert(text(&condition["type"]).to_owned(), pair);
    }
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten().map(|owner| {
        json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["name"],
            "controller": owner["controller"],
        })
    });
    let mut owners: Vec<Value> = owners.collect();
    owners.sort_by_key(sorted);
    // Of Workloads of sets, the recorded manager leaves the finalizers to a race.
    let of_set =
        owners.iter().any(|owner| owner["kind"] == "StatefulSet" || owner["kind"] == "LeaderWorkerSet");
    let finalizers = if of_set { &Value::Null } else { &metadata["finalizers"] };
    recorded_workload(&plain(&json!({
        "conditions": conditions, "finalizers": finalizers, "labels": metadata["labels"],
        "annotations": metadata["annotations"], "owners": owners,
        "spec": workload["spec"], "admission": status["admission"],
        "reclaimablePods": status["reclaimablePods"],
        "deleting": metadata.get("deletionTimestamp").map(|_| true),
    })))
}
