//! Elastic RayClusters of which one group grows while another one shrinks: pods that are gone are not charged while the growth waits,
//! and pods that still run are.

use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;

const GATE: &str = "kueue.x-k8s.io/elastic-job";
const GROUPS: [&str; 2] = ["a", "b"];

/// A queue of 8 CPUs with an elastic RayCluster, which runs: a head and two groups of workers, each pod of one CPU.
fn running(sizes: [i64; 2]) -> JobServer {
    let mut server = JobServer::new(&["batch/job", "ray.io/raycluster"], "8");
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    let group = |(name, size)| json!({"groupName": name, "replicas": size, "template": template});
    let groups: Vec<Value> = GROUPS.into_iter().zip(sizes).map(group).collect();
    let cluster = json!({
        "metadata": {"name": "c", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {GATE: "true"}},
        "spec": {"suspend": false, "headGroupSpec": {"template": template}, "workerGroupSpecs": groups}});
    server.submit(framework("ray.io", "RayCluster").unwrap(), cluster).unwrap();
    assert_eq!(cluster_of(&server)["spec"]["suspend"], false);
    server
}

fn cluster_of(server: &JobServer) -> &Value {
    server.get(kind("ray.io", "RayCluster"), "c").unwrap()
}

fn resize(server: &mut JobServer, sizes: [i64; 2]) {
    server.edit(kind("ray.io", "RayCluster"), "c", |cluster| {
        for (index, size) in sizes.into_iter().enumerate() {
            cluster["spec"]["workerGroupSpecs"][index]["replicas"] = json!(size);
        }
    });
}

/// Makes pods of a group, as KubeRay does.
fn make_pods(server: &mut JobServer, group: usize, names: &[&str]) {
    let cluster = cluster_of(server).clone();
    let template = &cluster["spec"]["workerGroupSpecs"][group]["template"];
    for name in names {
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!("ns");
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c",
            "uid": cluster["metadata"]["uid"], "controller": true}]);
        server.create(Kind::Pod, pod);
    }
}

fn is_gated(server: &JobServer, pod: &str) -> bool {
    let gates = server.get(Kind::Pod, pod).unwrap()["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| !gates.is_empty())
}

fn is_true(workload: &Value, name: &str) -> bool {
    let conditions = workload["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == name && c["status"] == "True"))
}

/// Returns the sizes of the slices of the cluster that have not finished, that of the slice with quota first.
fn slices(server: &JobServer) -> Vec<(bool, [i64; 2])> {
    let workloads = server.all(Kind::Workload);
    let of_cluster = |workload: &&Value| workload["metadata"]["ownerReferences"][0]["kind"] == "RayCluster";
    let unfinished = workloads.iter().filter(of_cluster).filter(|workload| !is_true(workload, "Finished"));
    let size =
        |workload: &Value, index: usize| workload["spec"]["podSets"][index + 1]["count"].as_i64().unwrap();
    let mut slices: Vec<_> = unfinished
        .map(|workload| (is_true(workload, "QuotaReserved"), [size(workload, 0), size(workload, 1)]))
        .collect();
    slices.sort_unstable_by_key(|(reserves, _)| !reserves);
    slices
}

/// Submits a Job of as many pods of one CPU. Returns whether it starts at once.
fn starts_beside(server: &mut JobServer, pods: i64) -> bool {
    let job = json!({
        "metadata": {"name": "other", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"parallelism": pods, "suspend": false, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}});
    server.submit(framework("batch", "Job").unwrap(), job).unwrap();
    server.get(kind("batch", "Job"), "other").unwrap()["spec"]["suspend"] == false
}

/// With the head, 6 pods are charged; 10 are asked for.
#[test]
fn group_that_shrinks_gives_up_its_quota_while_another_one_waits_to_grow() {
    for edits in [&[[8, 1]][..], &[[8, 4], [8, 1]], &[[1, 1], [8, 1]]] {
        let mut server = running([1, 4]);
        for sizes in edits {
            resize(&mut server, *sizes);
        }
        assert_eq!(slices(&server), [(true, [1, 1]), (false, [8, 1])], "{edits:?}");
        assert!(starts_beside(&mut server, 5), "{edits:?}: the quota of the pods that are gone is free");
        server.edit_queue("15");
        assert_eq!(slices(&server)[0], (true, [8, 1]), "{edits:?}");
        assert_eq!(cluster_of(&server)["spec"]["suspend"], false);
    }
}

#[test]
fn pods_that_still_run_stay_charged_while_their_group_shrinks() {
    let mut server = running([1, 4]);
    make_pods(&mut server, 1, &["b0", "b1", "b2", "b3"]);
    for pod in ["b0", "b1", "b2", "b3"] {
        assert!(!is_gated(&server, pod), "{pod}");
        server.run_pod(pod);
    }
    resize(&mut server, [8, 2]);
    assert_eq!(slices(&server)[0], (true, [1, 4]));
    server.end_pod("b0");
    server.delete(Kind::Pod, "b0");
    assert_eq!(slices(&server)[0], (true, [1, 4]), "one more has to end");
    server.end_pod("b1");
    server.delete(Kind::Pod, "b1");
    assert_eq!(slices(&server), [(true, [1, 2]), (false, [8, 2])]);
    make_pods(&mut server, 1, &["b4"]);
    assert!(is_gated(&server, "b4"), "the group has its pods");
}

/// The pods of one group do not hold up another one.
#[test]
fn each_group_shrinks_when_its_own_pods_have_ended() {
    for grown in [false, true] {
        let mut server = running([3, 3]);
        make_pods(&mut server, 0, &["a0"]);
        make_pods(&mut server, 1, &["b0", "b1"]);
        for pod in ["a0", "b0", "b1"] {
            server.run_pod(pod);
        }
        if grown {
            resize(&mut server, [12, 3]);
        }
        resize(&mut server, [1, 1]);
        assert_eq!(slices(&server)[0], (true, [1, 3]), "grown: {grown}");
        server.end_pod("b1");
        server.delete(Kind::Pod, "b1");
        assert_eq!(slices(&server), [(true, [1, 1])], "grown: {grown}");
    }
}

/// A group takes the place of another one: its new pods wait until those of the other have ended, and no longer.
#[test]
fn group_that_grows_takes_the_quota_that_another_one_gives_up() {
    let mut server = running([1, 5]);
    make_pods(&mut server, 1, &["b0", "b1"]);
    for pod in ["b0", "b1"] {
        server.run_pod(pod);
    }
    resize(&mut server, [5, 1]);
    make_pods(&mut server, 0, &["a0", "a1"]);
    let gated = |server: &JobServer| ["a0", "a1"].iter().filter(|pod| is_gated(server, pod)).count();
    assert_eq!(gated(&server), 1, "{:?}", slices(&server));
    server.end_pod("b1");
    server.delete(Kind::Pod, "b1");
    assert_eq!(slices(&server), [(true, [5, 1])]);
    assert_eq!(gated(&server), 0);
}
