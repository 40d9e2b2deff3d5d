//! Pods of jobs that were read from a cluster: nothing but the simulation can end them.

use crate::fixtures::simulate_cluster::{
    KUEUE_API_VERSION, empty_simulation, history, job, manifests, queue, report,
};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::JobKind;
use sluice_core::simulate::{Edit, Simulation, Until};

/// A node with 2 CPU below a Topology, and a queue that preempts.
fn racks() -> Vec<Value> {
    let mut objects = vec![
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "Topology", "metadata": {"name": "t"},
            "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}}),
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "f"},
            "spec": {"nodeLabels": {"pool": "p"}, "topologyName": "t"}}),
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "n", "labels": {"pool": "p", "kubernetes.io/hostname": "n"}},
            "status": {"allocatable": {"cpu": "2", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10}),
    ];
    objects.extend(queue("q", "2", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}})));
    objects
}

/// What pods have done on a node is lost with it: the job keeps its quota, and runs its whole length on the other node.
#[test]
fn a_job_runs_again_when_its_node_is_drained() {
    let mut objects = racks();
    let mut other = objects[2].clone();
    other["metadata"] = json!({"name": "o", "labels": {"pool": "p", "kubernetes.io/hostname": "o"}});
    let mut long = job("long", "q", 2, &json!({"sluice.dev/run-for": "10m"}));
    long["spec"]["template"]["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}});
    objects.push(long);
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&objects));
    simulation.run_until_stable();
    simulation.apply_change("node", manifests(&[other]));
    simulation.run(Until::After(SignedDuration::from_mins(5)));
    simulation.apply_edit(&Edit::drained_node("--drain", "n").unwrap(), "team").unwrap();
    simulation.run(Until::Settled);
    let end = report(&mut simulation);
    let events = history(&end);
    assert!(!events.iter().any(|event| event.contains("evicted")), "{events:?}");
    let finished: Vec<&String> = events.iter().filter(|event| event.contains("finished")).collect();
    assert_eq!(finished, ["900.0 finished team/long"]);
    assert_eq!(
        end["notes"][0],
        "Node n has pods of team/long (2): they are deleted, and begin again on other nodes where there is room"
    );
}

/// A pod of a Job, as it is in a cluster.
fn pod(owner: &str, workload: &str, index: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("{owner}-{index}"), "namespace": "team", "uid": format!("pod-{owner}-{index}"),
            "labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload": workload},
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": format!("uid-of-{owner}"), "controller": true}]},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Running"}})
}

/// A Job of two pods that ran in the cluster.
fn running(annotations: &Value) -> Simulation {
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests(&racks()));
    let mut low = job("low", "q", 2, annotations);
    low["metadata"]["namespace"] = json!("team");
    low["metadata"]["uid"] = json!("uid-of-low");
    low["spec"]["suspend"] = json!(true);
    simulation.load_stored(Kind::Job(JobKind::BATCH_JOB), low);
    simulation.run(Until::After(SignedDuration::from_secs(1)));
    let admitted = &report(&mut simulation)["admitted"][0];
    assert_eq!(admitted["job"], "team/low");
    let workload = admitted["workload"].as_str().unwrap().trim_start_matches("team/");
    for index in 0..2 {
        simulation.load_stored(Kind::Pod, pod("low", workload, index));
    }
    simulation
}

fn high() -> Value {
    let mut high = job("high", "q", 2, &json!({}));
    high["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("high");
    high
}

#[test]
fn pods_of_a_preempted_job_leave_their_nodes() {
    let mut simulation = running(&json!({}));
    simulation.apply_change("high", manifests(&[high()]));
    simulation.run(Until::Settled);
    let report = report(&mut simulation);
    assert_eq!(report["admitted"][0]["job"], "team/high", "{report:#}");
    assert_eq!(report["pending"][0]["job"], "team/low", "{report:#}");
}

#[test]
fn pods_of_a_finished_or_deleted_job_leave_their_nodes() {
    let next = || manifests(&[job("next", "q", 2, &json!({}))]);
    let mut simulation = running(&json!({"sluice.dev/run-for": "10m"}));
    simulation.apply_change("next", next());
    simulation.run(Until::Settled);
    let ended = report(&mut simulation);
    assert_eq!(ended["admitted"][0]["job"], "team/next", "{ended:#}");

    let mut simulation = running(&json!({}));
    let mut gone = job("low", "q", 2, &json!({}));
    gone["metadata"]["deletionTimestamp"] = json!("2027-01-01T00:00:00Z");
    simulation.apply_change("delete", manifests(&[gone]));
    simulation.apply_change("next", next());
    simulation.run(Until::Settled);
    let deleted = report(&mut simulation);
    assert_eq!(deleted["admitted"][0]["job"], "team/next", "{deleted:#}");
}

/// A Workload that ran in the cluster in a queue without a topology, of an object that is not simulated, with a pod on the node.
fn of_other_kind() -> [Value; 2] {
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Custom", "name": "custom", "uid": "uid-of-custom",
        "controller": true}]);
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    let set = json!({"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}});
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2027-01-15T08:00:00Z"});
    let assigned =
        json!({"name": "main", "count": 1, "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": "1"}});
    let workload = json!({"apiVersion": KUEUE_API_VERSION, "kind": "Workload",
        "metadata": {"name": "custom", "namespace": "team", "uid": "uid-of-workload", "ownerReferences": owner},
        "spec": {"queueName": "plain", "podSets": [set]},
        "status": {"admission": {"clusterQueue": "plain", "podSetAssignments": [assigned]},
            "conditions": [condition("QuotaReserved"), condition("Admitted")]}});
    let mut pod = pod("custom", "custom", 0);
    pod["metadata"]["ownerReferences"] = owner;
    [workload, pod]
}

#[test]
fn pods_of_an_object_that_is_not_simulated_end_with_its_workload() {
    let mut objects = racks();
    objects.push(
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "plain"}}),
    );
    let flavors = json!([{"name": "plain", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
    objects.extend(queue("plain", "2", &json!({"resourceGroups": groups})));
    for workload_first in [true, false] {
        let mut simulation = empty_simulation();
        simulation.apply_all(manifests(&objects));
        let [workload, pod] = of_other_kind();
        let mut loaded = [(Kind::Workload, workload), (Kind::Pod, pod)];
        if !workload_first {
            loaded.reverse();
        }
        for (kind, object) in loaded {
            simulation.load_stored(kind, object);
        }
        simulation.apply_change("next", manifests(&[job("next", "q", 2, &json!({}))]));
        simulation.run_until_stable();
        let before = report(&mut simulation);
        assert_eq!(before["admitted"][0]["workload"], "team/custom", "{before:#}");
        assert_eq!(before["pending"][0]["job"], "team/next", "{before:#}");
        assert_eq!(before["pending"][0]["stuck"], false, "its pods end with it: {before:#}");
        let gone = json!({"apiVersion": KUEUE_API_VERSION, "kind": "Workload", "spec": {},
            "metadata": {"name": "custom", "namespace": "team", "deletionTimestamp": "2027-01-15T09:00:00Z"}});
        simulation.apply_change("ends", manifests(&[gone]));
        simulation.run_until_stable();
        let after = report(&mut simulation);
        assert_eq!(after["admitted"][0]["job"], "team/next", "{after:#}");
    }
}
