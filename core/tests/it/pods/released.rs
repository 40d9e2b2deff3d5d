//! Pods that nothing else would release: in a namespace that is being deleted no replacement comes, and a pod whose label was
//! taken away has its finalizer still.

use crate::fixtures::job_server::{JobServer, pod};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;

const MANAGED: &str = "kueue.x-k8s.io/managed";

fn server() -> JobServer {
    JobServer::new(&["pod"], "2")
}

fn is_started(server: &JobServer, name: &str) -> bool {
    let pod = server.get(Kind::Pod, name).unwrap_or_else(|| panic!("{name} is gone"));
    pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

/// The containers of a pod end; its node has nothing more to do for it.
fn end(server: &mut JobServer, name: &str, phase: &str) {
    server.edit(Kind::Pod, name, |pod| {
        pod["status"] = json!({"phase": phase});
        let finalizers = pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let rest: Vec<Value> = finalizers.into_iter().filter(|name| name != "test/kubelet").collect();
        pod["metadata"]["finalizers"] = json!(rest);
    });
}

fn exists(server: &JobServer, name: &str) -> bool {
    server.get(Kind::Pod, name).is_some()
}

/// A server deletes the pods of a namespace before its Workloads, and waits for their finalizers.
#[test]
fn group_in_a_deleted_namespace_is_released_when_its_pods_have_ended() {
    for (phase, seen_late) in [("Failed", false), ("Succeeded", false), ("Failed", true)] {
        let case = format!("{phase}, late: {seen_late}");
        let mut server = server();
        for name in ["a", "b"] {
            server.create(Kind::Pod, pod(name, Some(("runs", 2))));
        }
        for name in ["c", "d"] {
            server.create(Kind::Pod, pod(name, Some(("waits", 2))));
        }
        for name in ["a", "b"] {
            assert!(is_started(&server, name), "{case}");
            server.run_pod(name);
        }
        if !seen_late {
            server.delete_namespace();
        }
        for name in ["a", "b", "c", "d"] {
            server.delete_member(name);
        }
        assert!(exists(&server, "a") && exists(&server, "b"), "{case}: they run");
        for name in ["a", "b"] {
            end(&mut server, name, phase);
        }
        if seen_late {
            assert!(exists(&server, "a") && exists(&server, "c"), "a replacement may come");
            server.delete_namespace();
        }
        let left: Vec<Value> = server.all(Kind::Pod);
        assert!(left.is_empty(), "{case}: {left:#?}");
        for workload in ["runs", "waits"] {
            server.delete(Kind::Workload, workload);
            assert!(server.get(Kind::Workload, workload).is_none(), "{case}: {workload}");
        }
    }
}

/// While a pod of the group runs, those that have ended are released.
#[test]
fn pods_in_a_deleted_namespace_are_released_one_by_one() {
    let mut server = server();
    for name in ["a", "b"] {
        server.create(Kind::Pod, pod(name, Some(("g", 2))));
    }
    for name in ["a", "b"] {
        server.run_pod(name);
        server.delete_member(name);
    }
    server.delete_namespace();
    end(&mut server, "a", "Failed");
    assert!(!exists(&server, "a") && exists(&server, "b"));
    assert!(server.holds_quota(), "a pod runs");
    end(&mut server, "b", "Failed");
    assert!(!exists(&server, "b"));
}

fn without_label(pod: &Value) -> Value {
    let mut changed = pod.clone();
    changed["metadata"]["labels"].as_object_mut().unwrap().shift_remove(MANAGED);
    changed
}

/// Nothing would start or release a pod without the label, for managers that know only that.
#[test]
fn label_of_a_held_pod_must_stay() {
    let row = framework("", "Pod").unwrap();
    for (finalizer, gate, refused) in
        [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
    {
        let server = server();
        let mut held = pod("s", None);
        if !finalizer {
            held["metadata"]["finalizers"] = json!([]);
        }
        if !gate {
            held["spec"]["schedulingGates"] = json!([]);
        }
        let answer = server.admit(row, without_label(&held), Some(&held));
        assert_eq!(answer.is_err(), refused, "finalizer {finalizer}, gate {gate}: {answer:?}");
        if let Err(text) = answer {
            assert!(text.contains("metadata.labels[kueue.x-k8s.io/managed]"), "{text}");
        }
    }
}

/// The webhook did not answer when the label was taken away: the pod ends as the others do.
#[test]
fn pod_without_its_label_is_released() {
    for group in [None, Some(("g", 1))] {
        for runs in [true, false] {
            let case = format!("{group:?}, runs: {runs}");
            let mut server = server();
            if !runs {
                server.edit_queue("0");
            }
            server.create(Kind::Pod, pod("s", group));
            assert_eq!(is_started(&server, "s"), runs, "{case}");
            if runs {
                server.run_pod("s");
            }
            server.edit(Kind::Pod, "s", |pod| *pod = without_label(pod));
            if !runs {
                server.edit_queue("2");
                assert!(is_started(&server, "s"), "{case}: it starts when there is quota");
                server.run_pod("s");
            }
            assert!(server.holds_quota(), "{case}");
            end(&mut server, "s", "Succeeded");
            let finalizers = &server.get(Kind::Pod, "s").unwrap()["metadata"]["finalizers"];
            assert!(finalizers.as_array().is_none_or(Vec::is_empty), "{case}: {finalizers}");
            server.delete(Kind::Pod, "s");
            assert!(!exists(&server, "s"), "{case}");
        }
    }
}

/// A pod that waits, without its label, goes when it is deleted.
#[test]
fn waiting_pod_without_its_label_can_be_deleted() {
    let mut server = server();
    server.edit_queue("0");
    server.create(Kind::Pod, pod("s", None));
    server.edit(Kind::Pod, "s", |pod| *pod = without_label(pod));
    server.delete(Kind::Pod, "s");
    assert!(!exists(&server, "s"));
}
