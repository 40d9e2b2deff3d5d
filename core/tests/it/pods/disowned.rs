//! Pods that name a queued object as their controller, which does not take them for its own: they need quota as any other pod.

use crate::fixtures::job_server::{JobServer, kind};
use crate::fixtures::leading_core::{JOB, job};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;

const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A queue of 4 CPUs with a Job of one that runs, and selects its pods by these labels, or else as the API server makes it select.
fn server(selector: Option<&Value>) -> JobServer {
    let mut server = JobServer::new(&["batch/job", "pod"], "4");
    server.create(JOB, job("o"));
    let uid = uid(&server);
    let labels = selector.cloned().unwrap_or_else(|| json!({UID_LABEL: uid}));
    server.edit(JOB, "o", |job| job["spec"]["selector"] = json!({"matchLabels": labels}));
    assert_eq!(server.get(JOB, "o").unwrap()["spec"]["suspend"], false);
    server
}

fn uid(server: &JobServer) -> Value {
    server.get(JOB, "o").unwrap()["metadata"]["uid"].clone()
}

/// A pod of 64 CPUs in the queue that names the Job as its controller, with labels beside that.
fn pod(server: &JobServer, labels: &Value) -> Value {
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": uid(server), "controller": true});
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "labels": {QUEUE: "lq"}, "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "64"}}}]},
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut pod["metadata"]["labels"], labels);
    pod
}

fn is_gated(server: &JobServer) -> bool {
    let pod = server.get(Kind::Pod, "p").unwrap();
    pod["spec"]["schedulingGates"].to_string().contains("kueue.x-k8s.io/admission")
}

fn submit(server: &mut JobServer, labels: &Value) {
    let pod = pod(server, labels);
    server.submit(framework("", "Pod").unwrap(), pod).unwrap();
}

fn release(server: &mut JobServer) {
    server.edit(Kind::Pod, "p", |pod| pod["metadata"]["ownerReferences"] = json!([]));
}

fn said(server: &JobServer) -> usize {
    server.events.iter().filter(|event| event.reason == "NotQueued" && *event.key.name == *"p").count()
}

/// The controller of the Job lets go of it before or after the manager has seen it.
#[test]
fn pod_that_is_none_of_its_job_waits_for_quota() {
    for selector in [None, Some(json!({"app": "o"}))] {
        let mut server = server(selector.as_ref());
        submit(&mut server, &json!({"app": "other"}));
        assert!(is_gated(&server), "{selector:?}");
        assert_eq!(server.all(Kind::Workload).len(), 2, "{selector:?}: it has one of its own");
        release(&mut server);
        server.advance(SignedDuration::from_mins(1));
        assert!(is_gated(&server), "{selector:?}");
        server.edit_queue("65");
        assert!(!is_gated(&server), "{selector:?}: there is quota for it");
    }
}

#[test]
fn pod_of_a_job_runs_on_the_quota_of_the_job() {
    for selector in [None, Some(json!({"app": "o"}))] {
        let mut server = server(selector.as_ref());
        let labels = selector.clone().unwrap_or_else(|| json!({UID_LABEL: uid(&server)}));
        submit(&mut server, &labels);
        assert!(!is_gated(&server), "{selector:?}");
        assert_eq!(server.all(Kind::Workload).len(), 1, "{selector:?}");
        assert_eq!(said(&server), 0, "{selector:?}");
    }
}

/// Without a webhook it runs. It is not stopped, as it may be one that its controller left behind, but said.
#[test]
fn pod_that_runs_without_quota_is_said() {
    let mut server = server(None);
    let unseen = pod(&server, &json!({}));
    server.create(Kind::Pod, unseen);
    assert_eq!(said(&server), 0, "it has a controller");
    release(&mut server);
    server.run_pod("p");
    assert_eq!(said(&server), 1);
    assert!(server.get(Kind::Pod, "p").unwrap()["metadata"]["deletionTimestamp"].is_null());
}

/// What a Job leaves behind runs on, and has its quota as long as its Workload does.
#[test]
fn pod_that_a_job_leaves_behind_runs_on() {
    let mut server = server(None);
    let mut left = pod(&server, &json!({UID_LABEL: uid(&server)}));
    left["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload": server.workload_name()});
    server.create(Kind::Pod, left);
    release(&mut server);
    assert_eq!(said(&server), 0);
    assert!(server.get(Kind::Pod, "p").unwrap()["metadata"]["deletionTimestamp"].is_null());
}

/// A ReplicaSet lets go of pods of other templates.
#[test]
fn pod_that_is_none_of_a_replica_set_waits() {
    let mut server = JobServer::new(&["pod", "deployment", "workload.codeflare.dev/appwrapper"], "4");
    let wrapper = json!({"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": "w", "uid": "w",
        "controller": true});
    let template = json!({"metadata": {}, "spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "ns", "uid": "d", "ownerReferences": [wrapper]},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template}});
    server.load(
        kind("workload.codeflare.dev", "AppWrapper"),
        json!({"metadata": {"name": "w", "namespace": "ns", "uid": "w", "labels": {QUEUE: "lq"}},
            "spec": {"suspend": true, "components": [{"template": deployment}]}}),
    );
    server.load(kind("apps", "Deployment"), deployment);
    server.load(
        Kind::ReplicaSet,
        json!({"metadata": {"name": "d-1", "namespace": "ns", "uid": "d-1", "labels": {"pod-template-hash": "1"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true}]}}),
    );
    for (hash, app, gated) in [("1", "d", false), ("2", "d", true), ("1", "other", true)] {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "d-1", "uid": "d-1", "controller": true});
        let pod = json!({
            "metadata": {"name": format!("d-{hash}"), "namespace": "ns",
                "labels": {QUEUE: "lq", "pod-template-hash": hash, "app": app}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending"},
        });
        let held = server.admit(framework("", "Pod").unwrap(), pod, None).unwrap();
        assert_eq!(held["spec"]["schedulingGates"].is_array(), gated, "{hash} {app}: {held}");
    }
}
