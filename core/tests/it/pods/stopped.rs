//! Pods of a group that end with exit code 0 because they were stopped: they have not done their work, and are replaced.

use crate::fixtures::job_server::{JobServer, pod};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sluice_core::cache::Kind;

/// A group of two pods that run.
fn running() -> JobServer {
    let mut server = JobServer::new(&["pod"], "10");
    for name in ["a", "b"] {
        server.create(Kind::Pod, pod(name, Some(("g", 2))));
    }
    for name in ["a", "b"] {
        server.run_pod(name);
    }
    server
}

/// The containers of a pod end with exit code 0, at a time if its status says one.
fn succeed(server: &mut JobServer, name: &str, at: Option<Timestamp>) {
    server.edit(Kind::Pod, name, |pod| {
        pod["status"]["phase"] = json!("Succeeded");
        if let Some(at) = at {
            let state = json!({"terminated": {"exitCode": 0, "finishedAt": at.to_string()}});
            pod["status"]["containerStatuses"] = json!([{"name": "c", "state": state}]);
        }
        pod["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/managed"]);
    });
}

fn is_stopped(server: &JobServer, name: &str) -> bool {
    let pod = server.get(Kind::Pod, name).unwrap_or_else(|| panic!("{name} is gone"));
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn is(server: &JobServer, condition: &str) -> bool {
    server.condition(condition).is_some_and(|(status, _)| status == "True")
}

fn activate(server: &mut JobServer) {
    let name = server.workload_name();
    server.edit(Kind::Workload, &name, |workload| workload["spec"]["active"] = json!(true));
}

#[test]
fn evicted_group_is_not_finished_by_pods_that_end_well() {
    for says_when in [true, false] {
        let mut server = running();
        server.deactivate();
        assert!(is_stopped(&server, "a") && is_stopped(&server, "b"));
        let at = says_when.then(|| server.now());
        succeed(&mut server, "a", at);
        assert!(server.holds_quota(), "b runs");
        succeed(&mut server, "b", at);
        assert!(!is(&server, "Finished") && !server.holds_quota());
        let workload = server.get(Kind::Workload, &server.workload_name()).unwrap().clone();
        assert!(workload["status"]["reclaimablePods"].as_array().is_none_or(Vec::is_empty), "{workload}");
        activate(&mut server);
        assert!(is(&server, "WaitingForReplacementPods") && !server.holds_quota());
        for name in ["c", "d"] {
            server.create(Kind::Pod, pod(name, Some(("g", 2))));
        }
        assert!(is(&server, "Admitted") && !is(&server, "WaitingForReplacementPods"));
        for name in ["c", "d"] {
            let gates = server.get(Kind::Pod, name).unwrap()["spec"]["schedulingGates"].clone();
            assert!(gates.as_array().is_none_or(Vec::is_empty), "{name}");
        }
        assert!(server.get(Kind::Pod, "a").is_none() && server.get(Kind::Pod, "b").is_none());
    }
}

/// It ended before it was stopped, and the manager had not seen it.
#[test]
fn pod_that_had_ended_before_it_was_stopped_has_done_its_work() {
    let mut server = running();
    let before = server.now().checked_sub(SignedDuration::from_secs(2)).unwrap();
    server.deactivate();
    succeed(&mut server, "a", Some(before));
    let now = server.now();
    succeed(&mut server, "b", Some(now));
    let workload = server.get(Kind::Workload, &server.workload_name()).unwrap();
    assert_eq!(workload["status"]["reclaimablePods"], json!([{"name": "role", "count": 1}]));
    activate(&mut server);
    server.create(Kind::Pod, pod("c", Some(("g", 2))));
    server.run_pod("c");
    assert!(server.get(Kind::Pod, "a").is_some() && server.get(Kind::Pod, "b").is_none(), "b is replaced");
    succeed(&mut server, "c", None);
    assert!(is(&server, "Finished"));
}

/// Its user has deleted it: as in Kueue, its success counts.
#[test]
fn pod_that_its_user_deletes_counts_as_succeeded() {
    let mut server = running();
    server.delete_member("a");
    succeed(&mut server, "a", None);
    succeed(&mut server, "b", None);
    assert!(is(&server, "Finished"));
}
