//! Workloads for pods that the manager has not made: they are taken if they ask for what the pods request.

use crate::fixtures::job_server::{JobServer, pod};
use serde_json::{Value, json};
use sluice_core::cache::Kind;

const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

/// A Workload that a user has written, for two pods of a group or for one pod.
fn workload(name: &str, group: bool, template: &Value) -> Value {
    let (set, count) = if group { ("role", 2) } else { ("main", 1) };
    let mut workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"active": true, "queueName": "lq", "podSets": [
            {"name": set, "count": count, "template": {"spec": template}}]}});
    if group {
        workload["metadata"]["annotations"] = json!({"kueue.x-k8s.io/is-group-workload": "true"});
    }
    workload
}

fn template(resources: &Value) -> Value {
    json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": resources}]})
}

fn cpus(requests: &str) -> Value {
    template(&json!({"requests": {"cpu": requests}}))
}

/// Returns the only Workload, with what it is charged.
fn charged(server: &JobServer) -> (Value, Value) {
    let workload = server.get(Kind::Workload, &server.workload_name()).unwrap();
    let usage = &workload["status"]["admission"]["podSetAssignments"][0]["resourceUsage"]["cpu"];
    (workload.clone(), usage.clone())
}

fn are_gated(server: &JobServer) -> bool {
    let gates =
        |pod: &Value| pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    server.all(Kind::Pod).iter().all(gates)
}

/// The pods of a group are charged in full: a Workload that asks for less is not that of the group, whenever it comes.
#[test]
fn group_is_charged_what_its_pods_request() {
    for first in [0, 1] {
        let mut server = JobServer::new(&["pod"], "10");
        for number in 0..3 {
            if number == first {
                server.create(Kind::Workload, workload("g", true, &cpus("1m")));
            } else {
                server.create(Kind::Pod, pod(&format!("p-{number}"), Some(("g", 2))));
            }
        }
        let (_, usage) = charged(&server);
        assert_eq!(usage, "2", "{first}");
        assert!(!are_gated(&server), "{first}");
    }
}

/// A Workload that asks for enough is taken, however it says so.
#[test]
fn workload_that_asks_for_enough_is_taken() {
    let defaulted = json!({"metadata": {"name": "defaults", "namespace": "ns"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}});
    for (spec, range, usage) in [
        (cpus("1000m"), None, "2"),
        (cpus("2"), None, "4"),
        (template(&json!({"limits": {"cpu": "1"}})), None, "2"),
        (template(&json!({})), Some(&defaulted), "2"),
    ] {
        let mut server = JobServer::new(&["pod"], "10");
        if let Some(range) = range {
            server.create(Kind::LimitRange, range.clone());
        }
        server.create(Kind::Workload, workload("g", true, &spec));
        let uid = charged(&server).0["metadata"]["uid"].clone();
        for name in ["p-0", "p-1"] {
            server.create(Kind::Pod, pod(name, Some(("g", 2))));
        }
        let (workload, charged) = charged(&server);
        assert_eq!((&workload["metadata"]["uid"], charged), (&uid, json!(usage)), "{spec}");
        assert!(!are_gated(&server), "{spec}");
    }
}

/// A prebuilt Workload that asks for less is out of sync with its pods, as with any other job.
#[test]
fn prebuilt_workload_that_asks_for_less_than_its_pods() {
    for group in [true, false] {
        for (requests, enough) in [("1m", false), ("1", true)] {
            let mut server = JobServer::new(&["pod"], "10");
            let names: &[&str] = if group { &["p-0", "p-1"] } else { &["p-0"] };
            for name in names {
                let mut pod = pod(name, group.then_some(("w", 2)));
                pod["metadata"]["annotations"][PREBUILT] = json!("w");
                server.create(Kind::Pod, pod);
            }
            let mut prebuilt = workload("w", group, &cpus(requests));
            if !group {
                let uid = &server.get(Kind::Pod, "p-0").unwrap()["metadata"]["uid"];
                prebuilt["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod",
                    "name": "p-0", "uid": uid, "controller": true}]);
            }
            server.create(Kind::Workload, prebuilt);
            let finished = server.condition("Finished");
            let expected = (!enough).then(|| ("True".to_owned(), "OutOfSync".to_owned()));
            assert_eq!((finished, are_gated(&server)), (expected, !enough), "group {group}, {requests}");
        }
    }
}

/// Pods that were started are not compared: their requests may have been changed since.
#[test]
fn pod_that_was_resized_runs_on() {
    let mut server = JobServer::new(&["pod"], "10");
    for name in ["p-0", "p-1"] {
        server.create(Kind::Pod, pod(name, Some(("g", 2))));
    }
    server.run_pod("p-0");
    server.run_pod("p-1");
    let uid = charged(&server).0["metadata"]["uid"].clone();
    server.edit(Kind::Pod, "p-0", |pod| {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3");
    });
    assert_eq!(charged(&server).0["metadata"]["uid"], uid);
    assert!(server.all(Kind::Pod).iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null()));
}
