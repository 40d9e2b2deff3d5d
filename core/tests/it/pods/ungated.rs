//! Pods that reach the manager without the gate of the webhook.

use crate::fixtures::job_server::{JobServer, kind, pod};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;

const REASON: &str = "PodsWithoutGate";

/// A Deployment with a ReplicaSet, whose template was marked while there were webhooks.
fn server() -> JobServer {
    let mut server = JobServer::new(&["pod", "deployment"], "4");
    let template = json!({"metadata": {"labels": labels()}, "spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    server.load(
        kind("apps", "Deployment"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "d", "namespace": "ns", "uid": "d", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template}}),
    );
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true});
    server.load(
        Kind::ReplicaSet,
        json!({"metadata": {"name": "d-1", "namespace": "ns", "uid": "d-1",
            "labels": {"pod-template-hash": "1"}, "ownerReferences": [owner]}}),
    );
    server
}

fn labels() -> Value {
    json!({"app": "d", "pod-template-hash": "1", "kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "lq"})
}

/// A pod of the ReplicaSet as it is without webhooks.
fn ungated(name: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "d-1", "uid": "d-1", "controller": true});
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": labels(), "ownerReferences": [owner]},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    })
}

fn said(server: &JobServer) -> usize {
    server.events.iter().filter(|event| event.reason == REASON).count()
}

#[test]
fn pods_without_a_gate_are_deleted_and_their_deployment_says_why_once_a_minute() {
    let mut server = server();
    let begun = server.now();
    let mut number = 0;
    let mut replace = |server: &mut JobServer| {
        number += 1;
        let name = format!("d-1-{number}");
        server.create(Kind::Pod, ungated(&name));
        assert!(server.get(Kind::Pod, &name).is_none(), "{name} may not run");
    };
    while server.now().duration_since(begun) < SignedDuration::from_secs(50) {
        replace(&mut server);
        server.advance(SignedDuration::from_secs(2));
    }
    assert!(server.deletions.len() > 10, "{:?}", server.deletions);
    assert_eq!(said(&server), 1, "{:?}", server.events);
    let event = server.events.iter().find(|event| event.reason == REASON).unwrap();
    assert_eq!((event.kind, &*event.key.name, &*event.uid), (kind("apps", "Deployment"), "d", "d"));
    assert!(event.is_warning() && event.note.contains("Install the webhooks again"), "{}", event.note);
    server.advance(SignedDuration::from_mins(1));
    replace(&mut server);
    assert_eq!(said(&server), 2, "in the next minute");
    assert!(server.all(Kind::Workload).is_empty());
}

/// The manager has taken its gate, so that it has none when it is stopped.
#[test]
fn a_pod_that_is_evicted_had_a_gate() {
    let mut server = JobServer::new(&["pod"], "4");
    server.create(Kind::Pod, pod("p", None));
    server.run_pod("p");
    server.deactivate();
    assert!(server.get(Kind::Pod, "p").unwrap()["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(said(&server), 0, "{:?}", server.events);
}
