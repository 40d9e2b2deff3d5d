//! Quota is released when pods have ended, where their kind says so too early or too late.

use crate::fixtures::job_server::{JobServer, kind, pod};
use crate::fixtures::leading_core;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;

/// A single pod that is evicted holds its quota while it terminates, but not for ever: a lost node never ends it.
#[test]
fn quota_of_a_pod_is_kept_until_it_has_ended() {
    for ends in [true, false] {
        let mut server = JobServer::new(&["pod"], "2");
        server.create(Kind::Pod, pod("p", None));
        server.run_pod("p");
        server.deactivate();
        let deleted = server.get(Kind::Pod, "p").unwrap();
        assert!(deleted["metadata"]["deletionTimestamp"].is_string(), "{deleted}");
        server.advance(SignedDuration::from_mins(2));
        assert!(server.holds_quota(), "its containers may run");
        if ends {
            server.edit(Kind::Pod, "p", |pod| pod["status"]["phase"] = json!("Failed"));
        } else {
            server.advance(SignedDuration::from_mins(4));
        }
        let finished = server.condition("Finished").is_some();
        assert!(finished == ends && (ends || !server.holds_quota()), "{:?}", server.all(Kind::Workload));
    }
}

fn set(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "template": {
            "metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
    })
}

/// A StatefulSet that is scaled to zero holds its quota while a pod of it terminates.
#[test]
fn quota_of_a_set_is_kept_until_its_pods_have_ended() {
    let mut server = JobServer::new(&["statefulset"], "2");
    run_set(&mut server);
    server.edit(kind("apps", "StatefulSet"), "s", |set| set["spec"]["replicas"] = json!(0));
    server.delete(Kind::Pod, "s-0");
    assert!(server.holds_quota(), "its pod terminates");
    server.end_pod("s-0");
    let released = server.condition("QuotaReserved");
    assert_eq!(released, Some(("False".to_owned(), "OnHold".to_owned())));
}

/// Creates a StatefulSet with one pod, which runs.
fn run_set(server: &mut JobServer) {
    let set_kind = kind("apps", "StatefulSet");
    server.create(set_kind, set(1));
    let uid = server.get(set_kind, "s").unwrap()["metadata"]["uid"].clone();
    let mut made = pod("s-0", None);
    made["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    made["metadata"]["labels"] = json!({"apps.kubernetes.io/pod-index": "0"});
    made["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": uid, "controller": true}]);
    server.create(Kind::Pod, made);
    let started = server.get(Kind::Pod, "s-0").unwrap();
    assert!(started["spec"].get("schedulingGates").is_none(), "{started}");
    server.run_pod("s-0");
}

/// A StatefulSet that is deleted in the background is gone before its pods have ended.
#[test]
fn quota_of_a_deleted_set_is_kept_until_its_pods_have_ended() {
    let set_kind = kind("apps", "StatefulSet");
    let mut server = JobServer::new(&["pod", "statefulset"], "2");
    run_set(&mut server);
    server.delete(set_kind, "s");
    assert!(server.get(set_kind, "s").is_none());
    server.delete(Kind::Pod, "s-0");
    assert!(server.holds_quota(), "its pod terminates");
    server.end_pod("s-0");
    assert_eq!(server.all(Kind::Workload), Vec::<Value>::new());
}

/// A RayCluster whose pods start up, and which is therefore not ready, holds its quota until its operator has deleted them.
#[test]
fn quota_of_a_starting_cluster_is_kept_until_its_pods_have_ended() {
    let cluster_kind = kind("ray.io", "RayCluster");
    let mut server = JobServer::new(&["ray.io/raycluster"], "2");
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    server.create(
        cluster_kind,
        json!({
            "metadata": {"name": "r", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
            "spec": {"suspend": true, "headGroupSpec": {"rayStartParams": {}, "template": template}},
        }),
    );
    assert_eq!(server.get(cluster_kind, "r").unwrap()["spec"]["suspend"], false, "it is admitted");
    let suspended = |status: &'static str, state: &'static str| {
        move |cluster: &mut Value| {
            let condition = json!({"type": "RayClusterSuspended", "status": status});
            cluster["status"] = json!({"state": state, "conditions": [condition]});
        }
    };
    server.edit(cluster_kind, "r", suspended("False", ""));
    server.deactivate();
    assert_eq!(server.get(cluster_kind, "r").unwrap()["spec"]["suspend"], true);
    assert!(server.holds_quota(), "its pods terminate");
    server.edit(cluster_kind, "r", suspended("True", "suspended"));
    assert!(!server.holds_quota());
}

/// A StatefulSet that grows again asks for its pods of now, whatever it asked for before: with less quota than they need, none runs.
#[test]
fn set_that_grows_again_waits_for_all_of_its_quota() {
    let set_kind = kind("apps", "StatefulSet");
    let mut server = JobServer::new(&["batch/job", "statefulset"], "5");
    server.create(set_kind, set(3));
    assert!(server.holds_quota());
    server.edit(set_kind, "s", |set| set["spec"]["replicas"] = json!(0));
    assert!(!server.holds_quota());
    let name = server.workload_name();
    server.create(Kind::Job(sluice_core::frameworks::JobKind::BATCH_JOB), leading_core::job("j"));
    server.edit(set_kind, "s", |set| set["spec"]["replicas"] = json!(5));
    let workload = server.get(Kind::Workload, &name).unwrap();
    assert!(workload["status"].get("admission").is_none(), "{workload}");
    assert_eq!(workload["spec"]["podSets"][0]["count"], 5);
}

/// The definition of a kind is deleted with its objects: the quota of one that ran is free when its pods have ended.
#[test]
fn quota_of_a_job_without_definition_is_free_when_its_pods_have_ended() {
    let cluster_kind = kind("ray.io", "RayCluster");
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    for forbidden_first in [false, true] {
        let mut server = JobServer::new(&["ray.io/raycluster"], "2");
        server.create(
            cluster_kind,
            json!({
                "metadata": {"name": "r", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
                "spec": {"suspend": true, "headGroupSpec": {"rayStartParams": {}, "template": template}},
            }),
        );
        let uid = server.get(cluster_kind, "r").unwrap()["metadata"]["uid"].clone();
        let owner = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "r", "uid": uid, "controller": true}]);
        server.create(
            Kind::Pod,
            json!({"metadata": {"name": "head", "namespace": "ns", "ownerReferences": owner,
                "annotations": {"kueue.x-k8s.io/workload": server.workload_name()}}, "spec": {"containers": []}}),
        );
        server.run_pod("head");
        if forbidden_first {
            server.forbid(cluster_kind);
        }
        server.delete(cluster_kind, "r");
        server.forbid(cluster_kind);
        assert!(server.holds_quota(), "its pod runs: {forbidden_first}");
        server.end_pod("head");
        server.delete(Kind::Pod, "head");
        assert_eq!(server.all(Kind::Workload), Vec::<Value>::new(), "{forbidden_first}");
    }
}
