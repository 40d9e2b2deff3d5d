//! Pod groups that run a Workload which someone else has written: pods beyond it end the Workload as out of sync, and none is removed.

use crate::fixtures::job_server::{JobServer, pod};
use serde_json::{Value, json};
use sluice_core::cache::Kind;

/// A queue with the Workload `w` for two pods of one CPU, and these pods, which are made for it.
fn server(names: &[&str]) -> JobServer {
    let mut server = JobServer::new(&["pod"], "10");
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    server.create(
        Kind::Workload,
        json!({"metadata": {"name": "w", "namespace": "ns",
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}},
            "spec": {"active": true, "queueName": "lq", "priority": 0,
                "podSets": [{"name": "role", "count": 2, "template": template}]}}),
    );
    for name in names {
        make(&mut server, name, &json!({}));
    }
    server
}

fn make(server: &mut JobServer, name: &str, metadata: &Value) {
    let mut pod = pod(name, Some(("w", 2)));
    pod["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("w");
    json_patch::merge(&mut pod["metadata"], metadata);
    server.create(Kind::Pod, pod);
}

/// Returns a pod that exists and is not deleted.
fn left<'a>(server: &'a JobServer, name: &str) -> Option<&'a Value> {
    server.get(Kind::Pod, name).filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
}

fn waits(server: &JobServer, name: &str) -> bool {
    let pod = left(server, name).unwrap_or_else(|| panic!("{name} is deleted"));
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

fn finished(server: &JobServer) -> Option<String> {
    let (status, reason) = server.condition("Finished")?;
    (status == "True").then_some(reason)
}

/// The containers of a pod end; its node has nothing more to do for it.
fn end(server: &mut JobServer, name: &str, phase: &str) {
    server.edit(Kind::Pod, name, |pod| {
        pod["status"]["phase"] = json!(phase);
        let finalizers = pod["metadata"]["finalizers"].as_array().unwrap();
        let rest: Vec<&Value> = finalizers.iter().filter(|name| **name != "test/kubelet").collect();
        pod["metadata"]["finalizers"] = json!(rest);
    });
}

fn running() -> JobServer {
    let mut server = server(&["a", "b"]);
    for name in ["a", "b"] {
        assert!(!waits(&server, name), "{name}");
        server.run_pod(name);
    }
    server
}

#[test]
fn pod_beyond_the_workload_ends_it_out_of_sync() {
    let fast = json!({"annotations": {"kueue.x-k8s.io/pod-group-fast-admission": "true"}});
    for (phase, marks) in [("Failed", json!({})), ("Succeeded", json!({})), ("Failed", fast)] {
        let mut server = server(&[]);
        for name in ["a", "b"] {
            make(&mut server, name, &marks);
        }
        for name in ["a", "b"] {
            assert!(!waits(&server, name), "{name} {marks}");
            server.run_pod(name);
        }
        make(&mut server, "c", &marks);
        assert!(left(&server, "a").is_none() && left(&server, "b").is_none(), "they must not run on");
        assert!(waits(&server, "c") && finished(&server).is_none() && server.holds_quota(), "{phase}");
        end(&mut server, "a", phase);
        assert!(
            waits(&server, "c") && finished(&server).is_none() && server.holds_quota(),
            "b runs: {phase}"
        );
        end(&mut server, "b", phase);
        assert_eq!(finished(&server).as_deref(), Some("OutOfSync"), "{phase}");
        assert!(waits(&server, "c"), "it is not removed: {phase}");
        assert!(server.get(Kind::Pod, "a").is_none() && server.get(Kind::Pod, "b").is_none(), "{phase}");
    }
}

/// No pod of the group starts, and none is removed.
#[test]
fn group_that_is_too_large_from_the_start_is_out_of_sync() {
    let mut server = server(&[]);
    server.edit_queue("0");
    for name in ["a", "b", "c"] {
        make(&mut server, name, &json!({}));
    }
    assert_eq!(finished(&server).as_deref(), Some("OutOfSync"));
    assert!(["a", "b", "c"].iter().all(|name| waits(&server, name)));
}

/// A pod of a role that the Workload does not have is beyond it as well.
#[test]
fn pod_of_another_role_ends_the_workload_out_of_sync() {
    let mut server = running();
    make(&mut server, "c", &json!({"annotations": {"kueue.x-k8s.io/role-hash": "other"}}));
    for name in ["a", "b"] {
        end(&mut server, name, "Failed");
    }
    assert_eq!(finished(&server).as_deref(), Some("OutOfSync"));
    assert!(waits(&server, "c"));
}

/// It is not beyond the Workload once its predecessor has ended.
#[test]
fn replacement_waits_for_the_end_of_its_predecessor() {
    for phase in ["Failed", "Running"] {
        let mut server = running();
        server.delete_member("a");
        if phase == "Failed" {
            end(&mut server, "a", phase);
        }
        make(&mut server, "c", &json!({}));
        assert!(finished(&server).is_none() && left(&server, "b").is_some(), "{phase}");
        if phase == "Running" {
            assert!(waits(&server, "c"));
            end(&mut server, "a", "Failed");
        }
        assert!(!waits(&server, "c"), "{phase}");
        assert!(finished(&server).is_none() && left(&server, "b").is_some(), "{phase}");
    }
}

/// Its controller would answer its end by another one.
#[test]
fn pod_of_a_controller_waits_for_a_place() {
    let mut server = running();
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true});
    make(&mut server, "c", &json!({"ownerReferences": [owner]}));
    assert!(waits(&server, "c") && finished(&server).is_none());
    assert!(left(&server, "a").is_some() && left(&server, "b").is_some());
}

/// All of its pods have ended, and none is left that counts.
#[test]
fn evicted_group_waits_for_its_replacements() {
    let mut server = running();
    server.deactivate();
    for name in ["a", "b"] {
        end(&mut server, name, "Failed");
    }
    assert!(finished(&server).is_none() && !server.holds_quota());
    server.edit(Kind::Workload, "w", |workload| workload["spec"]["active"] = json!(true));
    assert!(!server.holds_quota(), "it has no pods");
    for name in ["c", "d"] {
        make(&mut server, name, &json!({}));
    }
    assert!(finished(&server).is_none() && !waits(&server, "c") && !waits(&server, "d"));
}
