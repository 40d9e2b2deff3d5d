//! The number of replicas of a StatefulSet, changed by the subresource `scale`, as `kubectl scale` and autoscalers do: it has the
//! rules of a change of the object.

use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::frameworks::framework;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

fn server(queue: &str) -> JobServer {
    let mut server = JobServer::new(&["pod", "statefulset"], "9");
    let mut set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "ns", "labels": {"app": "s"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "s"}}, "serviceName": "s",
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}});
    if !queue.is_empty() {
        set["metadata"]["labels"][QUEUE] = json!(queue);
    }
    server.submit(framework("apps", "StatefulSet").unwrap(), set).unwrap();
    server
}

/// A Scale as a server writes it: a zero is left out.
fn scale(replicas: i32, pods: i32) -> Value {
    let mut scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "s", "namespace": "ns", "uid": "u"},
        "spec": {"replicas": replicas}, "status": {"replicas": pods, "selector": "app=s"}});
    if replicas == 0 {
        scale["spec"].as_object_mut().unwrap().shift_remove("replicas");
    }
    scale
}

/// Scales the set; `pods` is the number of its pods before.
fn scaled(server: &JobServer, (from, to): (i32, i32), pods: i32) -> (bool, String) {
    let request = json!({"uid": "r", "operation": "UPDATE", "namespace": "ns", "name": "s",
        "kind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
        "resource": {"group": "apps", "version": "v1", "resource": "statefulsets"}, "subResource": "scale",
        "object": scale(to, pods), "oldObject": scale(from, pods)});
    server.review("/validate-apps-v1-statefulset", &request)
}

#[test]
fn scale_has_the_rules_of_a_change_of_replicas() {
    let server = server("lq");
    for ((from, to), pods, allowed, part) in [
        ((2, 4), 2, false, "spec.replicas: Invalid value: 4"),
        ((2, 1), 2, false, "spec.replicas: Invalid value: 1"),
        ((2, 2), 2, true, ""),
        ((2, 0), 2, true, ""),
        ((0, 4), 0, true, ""),
        ((0, 4), 1, false, "scaling down is still in progress"),
    ] {
        let (is_allowed, message) = scaled(&server, (from, to), pods);
        assert_eq!(is_allowed, allowed, "{from} to {to} with {pods} pods: {message}");
        assert!(message.contains(part), "{from} to {to} with {pods} pods: {message}");
        // A change of the object itself gets the same answer.
        let set = server.get(kind("apps", "StatefulSet"), "s").unwrap();
        let with = |replicas: i32| {
            let mut set = set.clone();
            set["spec"]["replicas"] = json!(replicas);
            set["status"] = json!({"replicas": pods});
            set
        };
        let patched = server.admit(framework("apps", "StatefulSet").unwrap(), with(to), Some(&with(from)));
        assert_eq!(patched.is_ok(), allowed, "{patched:?}");
    }
}

#[test]
fn sets_without_a_queue_scale_freely() {
    for (from, to) in [(2, 4), (2, 1)] {
        assert_eq!(scaled(&server(""), (from, to), 2), (true, String::new()));
    }
}

/// The webhook of the subresource lets changes pass while no manager answers.
#[test]
fn set_that_was_scaled_past_the_webhook_says_how_to_go_on() {
    for to in [4, 1] {
        let mut server = server("lq");
        assert!(server.holds_quota());
        server.edit(kind("apps", "StatefulSet"), "s", |set| set["spec"]["replicas"] = json!(to));
        let mut warnings = server.events.iter().filter(|event| event.reason == "ScalingWaits");
        let warning = warnings.next().expect("a warning");
        assert!(warning.note.contains(&format!("asks for {to} pods")) && warning.note.contains("for 2,"));
        assert!(warnings.next().is_none(), "it is said once");
        // The way that it names.
        server.edit(kind("apps", "StatefulSet"), "s", |set| set["spec"]["replicas"] = json!(0));
        server.edit(kind("apps", "StatefulSet"), "s", |set| set["spec"]["replicas"] = json!(to));
        let workload = server.get(sluice_core::cache::Kind::Workload, &server.workload_name()).unwrap();
        assert_eq!(workload["spec"]["podSets"][0]["count"], to);
    }
}
