//! Which pods belong to a Workload (I21): a pod that merely names one counts on its own node, and is neither ungated nor ended.

use super::topology::{
    ALL_NODES, GATE, HOST, REQUIRED, bind_pods, cluster_with_racks, is_admitted, job, key, run_until,
    start_job, topology_assignment, unmanaged_pod, wait_until_ungated, workload,
};
use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::cache::Kind;

const WORKLOAD: &str = "kueue.x-k8s.io/workload";
const POD_SET: &str = "kueue.x-k8s.io/podset";

fn controller(kind: &str, uid: &Value) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": "c", "uid": uid, "controller": true}])
}

/// A gated pod that names a Workload and its pod set.
fn naming_pod(name: &str, workload: &str, owners: &Value) -> Value {
    let mut pod = unmanaged_pod(name, "", "1");
    pod["metadata"]["annotations"] = json!({WORKLOAD: workload});
    pod["metadata"]["labels"] = json!({POD_SET: "main"});
    pod["metadata"]["ownerReferences"] = owners.clone();
    pod["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    pod["status"]["phase"] = json!("Pending");
    pod
}

fn bind(world: &mut World, pod: &str, node: &str) {
    world.harness.server.edit(Kind::Pod, &key(pod), |pod| {
        pod["spec"]["schedulingGates"] = Value::Null;
        pod["spec"]["nodeName"] = json!(node);
        pod["status"]["phase"] = json!("Running");
    });
}

fn is_gated(world: &World, pod: &str) -> bool {
    let pod = world.harness.server.get(Kind::Pod, &key(pod)).unwrap();
    pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

/// A Workload of two pods on one rack, without owner or owned by an object that is not a job.
fn create_workload(world: &mut World, owners: &Value) {
    let template = json!({
        "metadata": {"annotations": {}},
        "spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
    });
    world.create(
        Kind::Workload,
        json!({
            "metadata": {"name": "w", "namespace": "ns", "ownerReferences": owners},
            "spec": {"queueName": "q", "active": true, "podSets": [
                {"name": "main", "count": 2, "template": template, "topologyRequest": {"required": "rack"}}]},
        }),
    );
    run_until(world, "the Workload is admitted", |world| {
        let workload = world.harness.server.get(Kind::Workload, &key("w")).unwrap();
        condition(workload, "Admitted") == Some("True")
    });
}

#[test]
fn unrelated_pods_are_not_ungated_and_count_on_their_nodes() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &[("a1", "a"), ("a2", "a")]);
        world.create(JOB, job("other", 1, &json!({})));
        start_job(&mut world, "j", 2, &json!({REQUIRED: "rack"}));
        wait_until_ungated(&mut world, "j");
        bind_pods(&mut world, "j");
        let name = workload(&world, "j")["metadata"]["name"].as_str().unwrap().to_owned();
        let uid = |world: &World, name: &str| {
            world.harness.server.get(JOB, &key(name)).map(|job| job["metadata"]["uid"].clone()).unwrap()
        };
        let mut only_owner = controller("Job", &uid(&world, "j"));
        only_owner[0]["controller"] = json!(false);
        let unrelated = [
            ("alone", Value::Null),
            ("of-another-job", controller("Job", &uid(&world, "other"))),
            ("of-unknown-object", controller("Job", &json!("nowhere"))),
            ("owned-but-not-controlled", only_owner),
        ];
        for (pod, owners) in &unrelated {
            world.create(Kind::Pod, naming_pod(pod, &name, owners));
        }
        assert!(world.run_until_idle(20_000));
        for (pod, _) in &unrelated {
            assert!(is_gated(&world, pod), "seed {seed}: {pod} was ungated");
        }
        // "j" uses one node, "other" one CPU of the other: the unrelated pod takes what is left.
        let used = topology_assignment(&world, "j").into_keys().next().unwrap();
        let free = if used == "a1" { "a2" } else { "a1" };
        bind(&mut world, "alone", free);
        world.create(JOB, job("next", 1, &json!({})));
        assert!(world.run_until_idle(20_000));
        assert!(!is_admitted(&world, "next"), "seed {seed}: the unrelated pod was not charged");
        world.harness.server.delete(Kind::Pod, &key("alone"), world.now);
        run_until(&mut world, "the unrelated pod is deleted", |world| is_admitted(world, "next"));
    }
}

#[test]
fn unrelated_pod_is_charged_beside_the_workload() {
    let mut world = cluster_with_racks(0, &[("a1", "a")]);
    start_job(&mut world, "j", 1, &json!({REQUIRED: "rack"}));
    wait_until_ungated(&mut world, "j");
    bind_pods(&mut world, "j");
    let name = workload(&world, "j")["metadata"]["name"].as_str().unwrap().to_owned();
    world.create(Kind::Pod, naming_pod("unrelated", &name, &Value::Null));
    bind(&mut world, "unrelated", "a1");
    assert!(world.run_until_idle(20_000));
    world.create(JOB, job("next", 1, &json!({})));
    assert!(world.run_until_idle(20_000) && !is_admitted(&world, "next"));
}

/// A pod that waits for a node that failed is ended so that its job replaces it, but only a pod of the workload.
#[test]
fn unrelated_pod_that_selects_failed_node_is_not_ended() {
    let mut world = cluster_with_racks(0, &ALL_NODES);
    start_job(&mut world, "j", 2, &json!({REQUIRED: "rack"}));
    wait_until_ungated(&mut world, "j");
    let name = workload(&world, "j")["metadata"]["name"].as_str().unwrap().to_owned();
    let host = topology_assignment(&world, "j").into_keys().next().unwrap();
    let mut unrelated = naming_pod("unrelated", &name, &Value::Null);
    unrelated["spec"]["schedulingGates"] = Value::Null;
    unrelated["spec"]["nodeSelector"] = json!({HOST: host});
    world.create(Kind::Pod, unrelated);
    assert!(world.run_until_idle(20_000));
    world.harness.server.delete(Kind::Node, &sluice_core::api::ObjectKey::cluster(&host), world.now);
    let phase = |world: &World, pod: &str| {
        world
            .harness
            .server
            .get(Kind::Pod, &key(pod))
            .map(|pod| pod["status"]["phase"].clone())
            .unwrap_or_default()
    };
    run_until(&mut world, "a pod of the Workload is ended", |world| {
        ["j-0", "j-1"].iter().any(|pod| phase(world, pod) == "Failed")
    });
    assert!(world.run_until_idle(20_000));
    assert_eq!(phase(&world, "unrelated"), "Pending");
}

/// The owner of the Workload, here a pod, controls a Job, which controls the pods. The pods are known before that Job, and the Job
/// gets its controller late.
#[test]
fn pods_below_child_job_belong_to_workload() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        world.create(Kind::Pod, unmanaged_pod("top", "", "0"));
        let top = world.harness.server.get(Kind::Pod, &key("top")).unwrap()["metadata"]["uid"].clone();
        let mut owner = controller("Pod", &top);
        owner[0]["name"] = json!("top");
        create_workload(&mut world, &owner);
        let pods = ["p0", "p1"];
        for pod in pods {
            world.create(Kind::Pod, naming_pod(pod, "w", &controller("Job", &json!("child-1"))));
        }
        assert!(world.run_until_idle(20_000));
        assert!(pods.iter().all(|pod| is_gated(&world, pod)), "nothing controls their Job yet");
        let mut child = job("child", 2, &json!({}));
        child["metadata"]["labels"] = Value::Null;
        child["spec"]["suspend"] = json!(false);
        world.create(JOB, child);
        world.harness.server.edit(JOB, &key("child"), |job| job["metadata"]["uid"] = json!("child-1"));
        assert!(world.run_until_idle(20_000));
        assert!(pods.iter().all(|pod| is_gated(&world, pod)), "their Job has no controller yet");
        world.harness.server.edit(JOB, &key("child"), |job| {
            job["metadata"]["ownerReferences"] = owner.clone();
        });
        run_until(&mut world, "the pods are ungated", |world| pods.iter().all(|pod| !is_gated(world, pod)));
    }
}

/// A Workload without owner has no pods until one is named: the pod's author cannot claim it alone.
#[test]
fn workload_without_owner_has_no_pods() {
    let mut world = cluster_with_racks(0, &ALL_NODES);
    create_workload(&mut world, &Value::Null);
    world.create(Kind::Pod, naming_pod("p0", "w", &Value::Null));
    assert!(world.run_until_idle(20_000));
    assert!(is_gated(&world, "p0"));
    let uid = world.harness.server.get(Kind::Pod, &key("p0")).unwrap()["metadata"]["uid"].clone();
    world.harness.server.edit(Kind::Workload, &key("w"), |workload| {
        workload["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": uid}]);
    });
    run_until(&mut world, "the pod is ungated", |world| !is_gated(world, "p0"));
}
