//! Pods that are changed while they wait, and Workloads that a client edits meanwhile: no pod runs on more than its Workload is
//! charged, and none is deleted for it.

use crate::fixtures::job_server::{JobServer, kind, pod};
use crate::fixtures::leading_core::{Core, JOB, job, writes};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;
use sluice_core::reconciler::Effect;

const GROUP: &str = "g";

fn request(workload: &Value) -> &Value {
    &workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
}

fn edit_request(server: &mut JobServer, cpu: &str) {
    let name = server.workload_name();
    server.edit(Kind::Workload, &name, |workload| {
        let container = &mut workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
        container["resources"]["requests"]["cpu"] = json!(cpu);
    });
}

/// Resizes a pod, as its subresource does: no webhook sees it.
fn resize(server: &mut JobServer, name: &str, cpu: &str) {
    server.edit(Kind::Pod, name, |pod| {
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        pod["metadata"]["generation"] = json!(2);
    });
}

fn is_started(server: &JobServer, name: &str) -> bool {
    let pod = server.get(Kind::Pod, name).unwrap_or_else(|| panic!("{name} was deleted"));
    assert!(pod["metadata"]["deletionTimestamp"].is_null(), "{name} is deleted");
    pod["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty)
}

fn exceeds(server: &JobServer, name: &str) -> bool {
    let mut events = server.events.iter();
    events.any(|event| *event.key.name == *name && event.reason == "PodExceedsWorkload")
}

/// Pods of a queue that has no room, of a group or alone.
fn waiting(grouped: bool) -> (JobServer, Vec<&'static str>) {
    let mut server = JobServer::new(&["pod"], "0");
    let names = if grouped { vec!["a", "b"] } else { vec!["a"] };
    for name in &names {
        server.create(Kind::Pod, pod(name, grouped.then_some((GROUP, 2))));
    }
    (server, names)
}

#[test]
fn pods_outlive_an_edited_workload() {
    for grouped in [false, true] {
        let (mut server, names) = waiting(grouped);
        edit_request(&mut server, "1m");
        let name = server.workload_name();
        assert_eq!(request(server.get(Kind::Workload, &name).unwrap()), "1", "grouped: {grouped}");
        assert!(names.iter().all(|name| !is_started(&server, name)), "grouped: {grouped}");
        server.edit_queue("2");
        assert!(names.iter().all(|name| is_started(&server, name)), "grouped: {grouped}");
    }
}

/// The first of a role says what its pods request; the others wait if they ask for more.
#[test]
fn resized_pods_of_a_group_are_charged_or_wait() {
    let (mut server, _) = waiting(true);
    resize(&mut server, "a", "2");
    let name = server.workload_name();
    assert_eq!(request(server.get(Kind::Workload, &name).unwrap()), "2");
    resize(&mut server, "b", "3");
    server.edit_queue("9");
    assert!(is_started(&server, "a") && !is_started(&server, "b"));
    assert!(exceeds(&server, "b") && !exceeds(&server, "a"));
    resize(&mut server, "b", "2");
    assert!(is_started(&server, "b"));
}

#[test]
fn resized_pod_alone_is_charged() {
    let (mut server, _) = waiting(false);
    resize(&mut server, "a", "3");
    server.edit_queue("2");
    assert!(!is_started(&server, "a"), "there is no room for 3");
    server.edit_queue("3");
    assert!(is_started(&server, "a"));
}

/// A set says what its pods request: a Workload that a client has edited is put right, a pod that was resized waits.
#[test]
fn resized_pod_of_a_set_waits() {
    let mut server = JobServer::new(&["pod", "statefulset"], "0");
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "s"}}, "serviceName": "s",
            "template": {"metadata": {"labels": {"app": "s"}}, "spec": {"containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}});
    server.submit(framework("apps", "StatefulSet").unwrap(), set).unwrap();
    let uid = server.get(kind("apps", "StatefulSet"), "s").unwrap()["metadata"]["uid"].clone();
    for name in ["s-0", "s-1"] {
        let mut member = pod(name, None);
        member["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
        member["metadata"]["labels"] = json!({"app": "s"});
        member["metadata"]["finalizers"] = Value::Null;
        member["metadata"]["ownerReferences"] = json!([
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": uid, "controller": true}]);
        server.create(Kind::Pod, member);
    }
    edit_request(&mut server, "1m");
    let name = server.workload_name();
    assert_eq!(request(server.get(Kind::Workload, &name).unwrap()), "1");
    resize(&mut server, "s-0", "3");
    server.edit_queue("2");
    assert!(!is_started(&server, "s-0") && exceeds(&server, "s-0"));
    assert!(is_started(&server, "s-1"));
}

/// A pod of an elastic Job that was resized while it waited for a larger slice keeps its gate.
#[test]
fn resized_pod_of_an_elastic_job_waits() {
    const GATE: &str = "kueue.x-k8s.io/elastic-job";
    let marks = |name: &Value| {
        json!({"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {
            "kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/workload-slice-name": name}})
    };
    let mut core = Core::new(sluice_core::reconciler::CoreSettings::default());
    let mut elastic = job("a");
    elastic["metadata"]["annotations"][GATE] = json!("true");
    elastic["spec"]["parallelism"] = json!(2);
    elastic["spec"]["completions"] = Value::Null;
    elastic["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    let mut workload = Value::Null;
    let effects = core.put(JOB, elastic.clone());
    let effects = core.land(&effects, &mut workload);
    core.land(&effects, &mut workload);
    let name = &workload["metadata"]["name"];
    elastic["metadata"]["generation"] = json!(3);
    elastic["spec"]["suspend"] = json!(false);
    elastic["spec"]["template"]["metadata"] = marks(name);
    core.put(JOB, elastic);
    for (generation, cpu, ungated) in [(2, "2", 0), (2, "1", 1)] {
        let mut member = json!({"metadata": marks(name), "spec": {"schedulingGates": [{"name": GATE}],
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}});
        let metadata = &mut member["metadata"];
        metadata["name"] = json!(format!("a-{generation}-{cpu}"));
        metadata["namespace"] = json!("ns");
        metadata["generation"] = json!(generation);
        metadata["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "jobs-a", "controller": true}]);
        let effects = core.put(Kind::Pod, member);
        assert_eq!(writes(&effects, Kind::Pod).len(), ungated, "{generation} {cpu}: {effects:?}");
        let is_said =
            |effect: &Effect| matches!(effect, Effect::Event(event) if event.reason == "PodExceedsWorkload");
        assert_eq!(effects.iter().any(is_said), ungated == 0, "{effects:?}");
    }
}
