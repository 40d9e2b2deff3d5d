//! Pods between which and their job are objects that the manager does not read as jobs: another pod, as the driver of a
//! SparkApplication, or objects of kinds that are not watched, as the ReplicaSet of a Deployment in an AppWrapper.

use crate::fixtures::job_samples::submitted;
use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;
use sluice_core::reconciler::CoreSettings;

const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
const HOST: &str = "kubernetes.io/hostname";

/// A manager of these frameworks on one node with a topology.
fn server(frameworks: &[&str]) -> JobServer {
    let frameworks = frameworks.iter().map(|name| (*name).to_owned()).collect();
    let core = CoreSettings { frameworks, ..CoreSettings::default() };
    let admission = AdmissionSettings { frameworks: core.frameworks.clone(), ..AdmissionSettings::default() };
    let mut server = JobServer::with_settings(core, admission, "10");
    let capacity = json!({"cpu": "10", "memory": "100Gi", "pods": "20"});
    server.create(
        Kind::Node,
        json!({"metadata": {"name": "n", "labels": {HOST: "n", "pool": "p"}}, "spec": {}, "status": {
            "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}}),
    );
    server.create(
        Kind::Topology,
        json!({"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": HOST}]}}),
    );
    server.edit_cluster_object(Kind::ResourceFlavor, "f", |flavor| {
        flavor["spec"] = json!({"nodeLabels": {"pool": "p"}, "topologyName": "t"});
    });
    server
}

/// A gated pod of a pod set that names the only Workload, as a controller makes it.
fn pod(server: &JobServer, name: &str, pod_set: &str, controller: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/podset": pod_set},
            "annotations": {"kueue.x-k8s.io/workload": server.workload_name()}, "ownerReferences": [controller]},
        "spec": {"schedulingGates": [{"name": TOPOLOGY_GATE}], "containers": [{"name": "c", "image": "i"}]},
    })
}

fn controller(api_version: &str, kind: &str, name: &str, uid: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true})
}

/// Returns the node that a pod was sent to, if its gate was removed.
fn node_of(server: &JobServer, name: &str) -> Option<String> {
    let pod = server.get(Kind::Pod, name).unwrap();
    let gates = pod["spec"]["schedulingGates"].as_array().map_or(0, Vec::len);
    pod["spec"]["nodeSelector"][HOST].as_str().filter(|_| gates == 0).map(str::to_owned)
}

fn submit(server: &mut JobServer, group: &str, name: &str) -> Value {
    let row = framework(group, name).unwrap();
    let mut job = submitted(row);
    job["metadata"] = json!({"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    server.submit(row, job).unwrap();
    assert!(server.holds_quota());
    server.get(kind(group, name), "j").unwrap()["metadata"]["uid"].clone()
}

/// In Spark the driver makes the executors, and is their controller.
#[test]
fn executors_below_the_driver_are_ungated() {
    let mut server = server(&["sparkoperator.k8s.io/sparkapplication"]);
    let uid = submit(&mut server, "sparkoperator.k8s.io", "SparkApplication");
    let application = controller("sparkoperator.k8s.io/v1beta2", "SparkApplication", "j", &uid);
    server.create(Kind::Pod, pod(&server, "driver", "driver", &application));
    assert_eq!(node_of(&server, "driver").as_deref(), Some("n"));
    let uid = server.get(Kind::Pod, "driver").unwrap()["metadata"]["uid"].clone();
    let driver = controller("v1", "Pod", "driver", &uid);
    server.create(Kind::Pod, pod(&server, "executor-1", "executor", &driver));
    assert_eq!(node_of(&server, "executor-1").as_deref(), Some("n"));
    // Another pod that names the Workload, whose controller is a pod of another application.
    let other = controller("v1", "Pod", "other", &json!("other"));
    server.create(Kind::Pod, pod(&server, "stranger", "executor", &other));
    assert_eq!(node_of(&server, "stranger"), None);
    // The driver has gone: nothing is above what it has left.
    server.delete(Kind::Pod, "driver");
    server.create(Kind::Pod, pod(&server, "executor-2", "executor", &driver));
    assert_eq!(node_of(&server, "executor-2"), None);
}

#[test]
fn pods_of_unwatched_objects_in_a_wrapper_are_ungated() {
    let mut server = server(&["workload.codeflare.dev/appwrapper"]);
    submit(&mut server, "workload.codeflare.dev", "AppWrapper");
    let replica_set = controller("apps/v1", "ReplicaSet", "r", &json!("unwatched"));
    server.create(Kind::Pod, pod(&server, "p", "j-0", &replica_set));
    assert_eq!(node_of(&server, "p").as_deref(), Some("n"));
    let mut alone = pod(&server, "alone", "j-0", &replica_set);
    alone["metadata"]["ownerReferences"] = json!([]);
    server.create(Kind::Pod, alone);
    assert_eq!(
        node_of(&server, "alone"),
        None,
        "a pod without a controller was made by no object of the wrapper"
    );
}

/// A Job makes pods alone: one whose controller is not the Job is not its pod.
#[test]
fn pods_of_unknown_objects_are_not_those_of_a_job() {
    for (frameworks, ungated) in [
        (&["jobset.x-k8s.io/jobset", "batch/job"][..], false),
        // The Jobs of a JobSet are not watched.
        (&["jobset.x-k8s.io/jobset"], true),
    ] {
        let mut server = server(frameworks);
        submit(&mut server, "jobset.x-k8s.io", "JobSet");
        let workload = server.get(Kind::Workload, &server.workload_name()).unwrap();
        let pod_set = workload["spec"]["podSets"][0]["name"].as_str().unwrap().to_owned();
        let job = controller("batch/v1", "Job", "unknown", &json!("unknown"));
        server.create(Kind::Pod, pod(&server, "p", &pod_set, &job));
        assert_eq!(node_of(&server, "p").is_some(), ungated, "{frameworks:?}");
    }
}
