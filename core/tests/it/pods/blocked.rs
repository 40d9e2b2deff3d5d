//! Pods of admitted Workloads that do not run: an event on the Workload says what keeps them from it.

use crate::fixtures::job_server::{JobServer, pod};
use serde_json::json;
use sluice_core::cache::Kind;

fn notes(server: &JobServer) -> Vec<&str> {
    let blocked = server.events.iter().filter(|event| event.reason == "PodsBlocked");
    blocked.map(|event| event.note.as_str()).collect()
}

/// A gate of another controller is no blocker before the admission. After it, it is reported once.
#[test]
fn foreign_gates_are_reported_after_the_admission() {
    let mut server = JobServer::new(&["pod"], "1");
    let mut gated = pod("p-0", Some(("group", 2)));
    let gates = gated["spec"]["schedulingGates"].as_array_mut().unwrap();
    gates.push(json!({"name": "example.com/license"}));
    server.create(Kind::Pod, gated);
    server.create(Kind::Pod, pod("p-1", Some(("group", 2))));
    assert!(!server.holds_quota() && notes(&server).is_empty(), "the group waits for quota");
    server.edit_queue("2");
    assert!(server.holds_quota());
    let text = "Admitted, but scheduling gates of other controllers (example.com/license) hold pod p-0";
    assert_eq!(notes(&server), [text]);
    server.edit(Kind::Pod, "p-0", |pod| pod["metadata"]["labels"]["changed"] = json!("true"));
    server.edit(Kind::Pod, "p-0", |pod| pod["spec"]["schedulingGates"] = json!([]));
    assert_eq!(notes(&server).len(), 1, "{:?}", notes(&server));
}

/// What the scheduler says of a pod is reported once, however often it tries again.
#[test]
fn pods_that_no_node_takes_are_reported_once() {
    let mut server = JobServer::new(&["pod"], "2");
    server.create(Kind::Pod, pod("p-0", Some(("group", 2))));
    server.create(Kind::Pod, pod("p-1", Some(("group", 2))));
    let refused = |message: String| {
        json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False",
            "reason": "Unschedulable", "message": message}]})
    };
    for nodes in 1..4 {
        server
            .edit(Kind::Pod, "p-1", |pod| pod["status"] = refused(format!("0/{nodes} nodes are available")));
    }
    assert_eq!(notes(&server), ["Admitted, but no node takes pod p-1: 0/1 nodes are available"]);
    server.run_pod("p-1");
    assert_eq!(notes(&server).len(), 1);
}
