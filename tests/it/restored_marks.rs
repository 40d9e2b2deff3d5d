//! Pod templates of running jobs from which another client removes what their start has added, as a tool does that applies the
//! manifest: it is put back, and the jobs run on.

use crate::job_samples::{related, submitted};
use crate::job_server::{JobServer, kind};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::frameworks::{Framework, framework};

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn cluster() -> Value {
    json!({"headGroupSpec": {"template": template()}, "workerGroupSpecs": [
        {"groupName": "a", "replicas": 1, "template": template()},
        {"groupName": "b", "replicas": 1, "template": template()}]})
}

/// Kinds with their framework and spec.
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

/// A job that runs on a flavor with labels and a toleration, as its start has left it, and its spec before it.
fn running(row: &'static Framework, spec: &Value) -> (JobServer, Kind, Value, Value) {
    let mut server = JobServer::new(&[row.name], "20");
    server.edit_cluster_object(Kind::ResourceFlavor, "f", |flavor| {
        flavor["spec"] =
            json!({"nodeLabels": {"zone": "z"}, "tolerations": [{"key": "t", "operator": "Exists"}]});
    });
    let is_read = |kind: &Kind| row.related.iter().any(|related| Kind::Related(*related) == *kind);
    for (kind, object) in related().into_iter().filter(|(kind, _)| is_read(kind)) {
        server.create(kind, object);
    }
    let metadata = json!({"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
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

fn said(server: &JobServer, reason: &str) -> usize {
    server.events.iter().filter(|event| event.reason == reason).count()
}

#[test]
fn an_applied_manifest_leaves_a_job_on_its_flavor() {
    for (row, spec) in cases() {
        let (mut server, kind, started, own) = running(row, &spec);
        for round in 1..=2 {
            let before = server.writes;
            server.edit(kind, "j", |job| apply(row, job, &own));
            assert_eq!(server.get(kind, "j").unwrap()["spec"], started, "{}", row.name);
            assert_eq!((server.writes - before, said(&server, "MarksRestored")), (1, round), "{}", row.name);
        }
        if row.gvk.kind == "TrainJob" {
            // A list of patches that is empty does not tell a manager that has not seen it before that it was not.
            continue;
        }
        // Also by a manager that has not seen it before.
        server.edit_unseen(kind, "j", |job| apply(row, job, &own));
        server.restart(sluice::reconciler::CoreSettings {
            frameworks: [row.name.to_owned()].into(),
            ..Default::default()
        });
        assert_eq!(server.get(kind, "j").unwrap()["spec"], started, "{}", row.name);
        assert_eq!(said(&server, "Stopped"), 0, "{}", row.name);
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
    for (row, spec) in cases() {
        let (mut server, kind, _, _) = running(row, &spec);
        let before = server.writes;
        server.edit(kind, "j", |job| job["metadata"]["annotations"]["x"] = json!("y"));
        server.edit_cluster_object(Kind::ResourceFlavor, "f", |flavor| {
            flavor["spec"]["nodeLabels"]["disk"] = json!("ssd");
        });
        server.edit(kind, "j", |job| job["metadata"]["annotations"]["x"] = json!("z"));
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
