//! Pod templates of running jobs from which another client removes what their start has added, as a tool does that applies the
//! manifest: it is put back, and the jobs run on.

use crate::fixtures::job_samples::{related, submitted};
use crate::fixtures::job_server::{JobServer, kind};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, Role, framework, frameworks};
use sluice_core::reconciler::CoreSettings;

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

fn cluster() -> Value {
    json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [
        {"groupName": "a", "replicas": 1, "template": template()},
        {"groupName": "b", "replicas": 1, "template": template()}]})
}

/// Kinds with their framework and spec, of which some have several templates.
fn cases() -> Vec<(&'static Framework, Value)> {
    let wrapped = |spec: Value| json!({"template": {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": spec}});
    let case = |group: &str, kind: &str, spec: Value| (framework(group, kind).unwrap(), spec);
    let train_job = framework("trainer.kubeflow.org", "TrainJob").unwrap();
    vec![
        // Its start writes no template, but patches of it.
        (train_job, submitted(train_job)["spec"].clone()),
        case("ray.io", "RayCluster", cluster()),
        case(
            "ray.io",
            "RayJob",
            json!({"shutdownAfterJobFinishes": true, "submissionMode": "K8sJobMode", "rayClusterSpec": cluster()}),
        ),
        case("ray.io", "RayService", json!({"rayClusterConfig": cluster()})),
        case(
            "workload.codeflare.dev",
            "AppWrapper",
            json!({"components": [wrapped(cluster()), wrapped(cluster())]}),
        ),
        case(
            "kubeflow.org",
            "PyTorchJob",
            json!({"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template()},
                "Worker": {"replicas": 2, "template": template()}}}),
        ),
        case(
            "sparkoperator.k8s.io",
            "SparkApplication",
            json!({"type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0",
                "mainApplicationFile": "local:///a.jar", "driver": {"coreRequest": "1"},
                "executor": {"instances": 1, "coreRequest": "1"}}),
        ),
    ]
}

/// Those, and the sample of each other kind whose templates a start changes, and that can be changed while it runs.
fn every_case() -> Vec<(&'static Framework, Value)> {
    let mut all = cases();
    let changes = |row: &&'static Framework| row.role == Role::Suspended && row.fields.start_time.is_none();
    for row in frameworks().filter(changes) {
        if all.iter().all(|(known, _)| known.name != row.name) {
            all.push((row, submitted(row)["spec"].clone()));
        }
    }
    all
}

/// A job that runs on a flavor with labels and a toleration, as its start has left it, and its spec before it.
fn running(row: &'static Framework, spec: &Value) -> (JobServer, Kind, Value, Value) {
    running_with(row, spec, &json!({}))
}

fn running_with(
    row: &'static Framework,
    spec: &Value,
    annotations: &Value,
) -> (JobServer, Kind, Value, Value) {
    let mut server = JobServer::new(&[row.name], "20");
    let labelled = json!({"nodeLabels": {"zone": "z"}, "tolerations": [{"key": "t", "operator": "Exists"}]});
    server.create(Kind::ResourceFlavor, json!({"metadata": {"name": "g"}, "spec": labelled}));
    server.edit_cluster_object(Kind::ClusterQueue, "cq", |queue| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["name"] = json!("g");
    });
    let is_read = |kind: &Kind| row.related.iter().any(|related| Kind::Related(*related) == *kind);
    for (kind, object) in related().into_iter().filter(|(kind, _)| is_read(kind)) {
        server.create(kind, object);
    }
    let metadata = json!({"name": "j", "namespace": "ns", "annotations": annotations,
        "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    let object = server.admit(row, json!({"metadata": metadata, "spec": spec}), None).unwrap();
    let kind = kind(row.gvk.group, row.gvk.kind);
    server.create(kind, object.clone());
    let started = server.get(kind, "j").unwrap()["spec"].clone();
    assert!(server.holds_quota() && started != object["spec"], "{}", row.name);
    (server, kind, started, object["spec"].clone())
}

/// Gives a job a spec without what its start has added; it stays as suspended as it is.
fn apply(row: &Framework, job: &mut Value, spec: &Value) {
    let suspend = row.fields.suspend.unwrap();
    let now = job.pointer(suspend).cloned();
    job["spec"] = spec.clone();
    let (parent, field) = suspend.rsplit_once('/').unwrap();
    let parent = job.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match now {
        Some(now) => drop(parent.insert(field.to_owned(), now)),
        None => drop(parent.remove(field)),
    }
}

/// Replaces the manager by one that has not seen the job before, after a change of the job that none has seen.
fn restart_after(server: &mut JobServer, row: &Framework, kind: Kind, change: impl FnOnce(&mut Value)) {
    let settings = CoreSettings { frameworks: [row.name.to_owned()].into(), ..CoreSettings::default() };
    server.restart_after_edit(settings, (kind, "j"), change);
}

fn said(server: &JobServer, reason: &str) -> usize {
    server.events.iter().filter(|event| event.reason == reason).count()
}

#[test]
fn an_applied_manifest_leaves_a_job_on_its_flavor() {
    for (row, spec) in every_case() {
        let (mut server, kind, started, own) = running(row, &spec);
        for round in 1..=2 {
            let before = server.writes;
            server.edit(kind, "j", |job| apply(row, job, &own));
            assert_eq!(server.get(kind, "j").unwrap()["spec"], started, "{}", row.name);
            assert_eq!((server.writes - before, said(&server, "MarksRestored")), (1, round), "{}", row.name);
        }
        assert_eq!(said(&server, "Stopped"), 0, "{}", row.name);
    }
}

/// The pointers below which a start has added something, with what was there before it.
fn added(before: Option<&Value>, started: &Value, pointer: &str, found: &mut Vec<(String, Option<Value>)>) {
    if before == Some(started) {
        return;
    }
    let same_kind = match (before, started) {
        (Some(Value::Array(before)), Value::Array(started)) => before.len() == started.len(),
        (Some(Value::Object(_)), Value::Object(_)) | (None, _) => true,
        _ => false,
    };
    if before.is_none() || !same_kind {
        found.push((pointer.to_owned(), before.cloned()));
    }
    let mut below = |name: &str, started: &Value| {
        let escaped = name.replace('~', "~0").replace('/', "~1");
        let before = before.and_then(|before| match before {
            Value::Array(items) => items.get(name.parse::<usize>().ok()?),
            _ => before.get(name),
        });
        if same_kind {
            added(before, started, &format!("{pointer}/{escaped}"), found);
        }
    };
    match started {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| below(name, value)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| below(&at.to_string(), item));
        }
        _ => {}
    }
}

/// Sets what is at a pointer, or removes it.
fn replace(object: &mut Value, pointer: &str, value: Option<Value>) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let name = name.replace("~1", "/").replace("~0", "~");
    match (object.pointer_mut(parent).unwrap(), value) {
        (Value::Object(fields), None) => drop(fields.shift_remove(&name)),
        (Value::Object(fields), Some(value)) => drop(fields.insert(name, value)),
        (Value::Array(items), None) => drop(items.remove(name.parse::<usize>().unwrap())),
        (Value::Array(items), Some(value)) => items[name.parse::<usize>().unwrap()] = value,
        (other, _) => panic!("{other} at {parent}"),
    }
}

/// What else a start writes is the content of a template that it makes.
const PARTS: [&str; 8] = [
    "/metadata",
    "/labels",
    "/annotations",
    "/nodeSelector",
    "/tolerations",
    "/schedulingGates",
    "/runtimePatches",
    "/podSetInfos",
];

/// Whatever part of it is removed while no manager runs, and however, the next one puts it back.
#[test]
fn marks_that_no_manager_saw_removed_are_put_back() {
    let mut wrong = Vec::new();
    for (row, spec) in every_case() {
        let (mut server, kind, started, own) = running(row, &spec);
        restart_after(&mut server, row, kind, |job| apply(row, job, &own));
        assert_eq!(server.get(kind, "j").unwrap()["spec"], started, "{}", row.name);
        let suspend = row.fields.suspend.unwrap();
        let (mut marks, mut running) = (Vec::new(), json!({"spec": started}));
        let mut before = json!({"spec": own});
        for object in [&mut running, &mut before] {
            replace(object, suspend, None);
        }
        added(Some(&before), &running, "", &mut marks);
        // A setting may have added names of queues since, and a toleration that was changed is another one.
        marks.retain(|(pointer, _)| {
            PARTS.iter().any(|part| pointer.contains(part))
                && !pointer.ends_with("queue-name")
                && !pointer.contains("/tolerations/0/")
        });
        assert!(!marks.is_empty(), "{}", row.name);
        for (pointer, before) in marks {
            // An item that is emptied is another item.
            let is_item = pointer.ends_with(|last: char| last.is_ascii_digit());
            let empty = match running.pointer(&pointer).filter(|_| !is_item) {
                Some(Value::Object(_)) => Some(json!({})),
                Some(Value::Array(_)) => Some(json!([])),
                _ => None,
            };
            let null = empty.as_ref().map(|_| Value::Null);
            for value in [Some(before), empty.map(Some), null.map(Some)].into_iter().flatten() {
                let case = format!("{} {pointer}: {value:?}", row.name);
                restart_after(&mut server, row, kind, |job| replace(job, &pointer, value));
                let restored = server.get(kind, "j").unwrap()["spec"] == started && server.holds_quota();
                if !restored || said(&server, "Stopped") > 0 {
                    wrong.push(case);
                    restart_after(&mut server, row, kind, |job| job["spec"] = started.clone());
                    server.events.clear();
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The gate that holds the pods of a larger size is one of them: a cluster that has lost it grows with quota only.
#[test]
fn elastic_cluster_gets_its_gates_back() {
    let row = framework("ray.io", "RayCluster").unwrap();
    for part in ["schedulingGates", "annotations", "labels", "metadata", ""] {
        for restarts in [true, false] {
            let case = format!("{part} {restarts}");
            let (mut server, kind, started, own) = running_with(row, &cluster(), &json!({ELASTIC: "true"}));
            let edit = |job: &mut Value| match part {
                "" => apply(row, job, &without(&own, "schedulingGates")),
                part => job["spec"] = without(&job["spec"], part),
            };
            if restarts {
                restart_after(&mut server, row, kind, edit);
            } else {
                server.edit(kind, "j", edit);
            }
            assert_eq!(server.get(kind, "j").unwrap()["spec"], started, "{case}");
            assert_eq!(said(&server, "Stopped"), 0, "{case}: {:?}", server.events);
            server.edit(kind, "j", |job| job["spec"]["workerGroupSpecs"][0]["replicas"] = json!(90));
            let job = server.get(kind, "j").unwrap();
            assert_eq!(
                (&job["spec"]["suspend"], server.all(Kind::Workload).len()),
                (&json!(false), 2),
                "{case}"
            );
        }
    }
}

/// Removes a field wherever it is.
fn without(value: &Value, field: &str) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != field);
            kept.map(|(name, value)| (name.clone(), without(value, field)))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.iter().map(|item| without(item, field)).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

#[test]
fn each_part_is_put_back_by_itself() {
    for (row, spec) in cases() {
        for part in ["nodeSelector", "tolerations", "labels", "annotations", "metadata"] {
            let (mut server, kind, started, _) = running(row, &spec);
            server.edit(kind, "j", |job| {
                let wrapped = job["spec"]["components"].clone();
                job["spec"] = without(&job["spec"], part);
                if part == "metadata" && wrapped.is_array() {
                    // Names of wrapped objects are metadata as well.
                    job["spec"]["components"] = wrapped;
                }
            });
            assert_eq!(server.get(kind, "j").unwrap()["spec"], started, "{} without {part}", row.name);
            assert_eq!(said(&server, "Stopped"), 0, "{} without {part}", row.name);
        }
    }
}

/// A change that a user makes beside them, and a changed flavor, are no loss.
#[test]
fn nothing_else_is_written() {
    for (row, spec) in every_case() {
        let (mut server, kind, _, _) = running(row, &spec);
        let before = server.writes;
        server.edit(kind, "j", |job| job["metadata"]["annotations"]["x"] = json!("y"));
        restart_after(&mut server, row, kind, |job| job["metadata"]["annotations"]["x"] = json!("z"));
        server.edit_cluster_object(Kind::ResourceFlavor, "g", |flavor| {
            flavor["spec"]["nodeLabels"]["disk"] = json!("ssd");
        });
        server.edit(kind, "j", |job| job["metadata"]["annotations"]["x"] = json!("y"));
        restart_after(&mut server, row, kind, |job| job["metadata"]["annotations"]["x"] = json!("z"));
        assert_eq!((server.writes - before, said(&server, "MarksRestored")), (0, 0), "{}", row.name);
    }
}

/// A client that removes them each second is answered with back-off.
#[test]
fn marks_that_are_removed_again_and_again_cost_few_writes() {
    for (row, spec) in cases() {
        let (mut server, kind, started, own) = running(row, &spec);
        let before = server.writes;
        for _ in 0..300 {
            server.edit(kind, "j", |job| apply(row, job, &own));
            server.advance(SignedDuration::from_secs(1));
        }
        assert!(server.writes - before <= 20, "{}: {} writes", row.name, server.writes - before);
        assert_eq!(said(&server, "MarksRemovedRepeatedly"), 1, "{}", row.name);
        server.advance(SignedDuration::from_secs(60));
        assert_eq!(server.get(kind, "j").unwrap()["spec"], started, "{}", row.name);
    }
}
