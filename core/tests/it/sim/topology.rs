//! Nodes, pods and topologies as objects: which pods are ungated to which hosts, what counts as usage, and which failed nodes
//! are reported.

use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Observation};
use sluice_core::simulate::fake_api_server::key_of;
use std::collections::BTreeMap;

pub(super) const GATE: &str = "kueue.x-k8s.io/topology";
pub(super) const HOST: &str = "kubernetes.io/hostname";
pub(super) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
pub(super) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A ready node of the pool with 2 CPUs.
pub(super) fn node(name: &str, rack: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"pool": "t", "rack": rack, HOST: name}},
        "status": {"allocatable": {"cpu": "2", "pods": "10"}, "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

/// A running pod on a node, without owner and queue.
pub(super) fn unmanaged_pod(name: &str, node: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    })
}

/// Racks a (a1, a2) and b (b1, b2), and a queue with quota for all of them.
pub(super) fn cluster_with_racks(seed: u64, nodes: &[(&str, &str)]) -> World {
    racks_with_settings(seed, nodes, &CoreSettings::default())
}

/// The same, with these settings.
pub(super) fn racks_with_settings(seed: u64, nodes: &[(&str, &str)], settings: &CoreSettings) -> World {
    let mut world = World::new(seed, settings);
    world.jobs_never_end = true;
    world.create(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
    let levels = json!([{"nodeLabel": "rack"}, {"nodeLabel": HOST}]);
    world.create(Kind::Topology, json!({"metadata": {"name": "racks"}, "spec": {"levels": levels}}));
    let spec = json!({"nodeLabels": {"pool": "t"}, "topologyName": "racks"});
    world.create(Kind::ResourceFlavor, json!({"metadata": {"name": "t"}, "spec": spec}));
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "t", "resources": [{"name": "cpu", "nominalQuota": "100"}]}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    world.create(Kind::ClusterQueue, json!({"metadata": {"name": "q"}, "spec": spec}));
    let queue = json!({"metadata": {"name": "q", "namespace": "ns"}, "spec": {"clusterQueue": "q"}});
    world.create(Kind::LocalQueue, queue);
    for (name, rack) in nodes {
        world.create(Kind::Node, node(name, rack));
    }
    world
}

pub(super) const ALL_NODES: [(&str, &str); 4] = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")];

/// A Job whose pods request 1 CPU each and have these annotations.
pub(super) fn job(name: &str, pods: u32, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
    })
}

pub(super) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

/// Steps until the condition holds. Fails after 6000 steps.
pub(super) fn run_until(world: &mut World, description: &str, holds: impl Fn(&World) -> bool) {
    for _ in 0..6_000 {
        if holds(world) {
            return;
        }
        world.step();
    }
    let all: Vec<&Value> = world.harness.server.all(Kind::Workload).map(|w| &w["status"]).collect();
    panic!("not reached: {description}: {all:#?}");
}

/// The Workload of a job.
pub(super) fn workload(world: &World, job: &str) -> Value {
    let owner = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == job;
    world.harness.server.all(Kind::Workload).find(owner).cloned().unwrap_or_default()
}

pub(super) fn is_admitted(world: &World, job: &str) -> bool {
    condition(&workload(world, job), "Admitted") == Some("True")
}

/// Pods by host, from the topology assignment of the Job's Workload.
pub(super) fn topology_assignment(world: &World, job: &str) -> BTreeMap<String, i32> {
    let object = workload(world, job);
    let assignment = &object["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    let parsed = serde_json::from_value(assignment.clone()).ok();
    let placement = parsed.and_then(|parsed| sluice_core::topology::decode(&parsed));
    let host =
        |(values, pods): (sluice_core::topology::DomainPath, i32)| (values.last().unwrap().to_string(), pods);
    placement.into_iter().flat_map(|placement| placement.domains).map(host).collect()
}

/// Returns a pod as the Job controller creates it from the template of a started Job.
pub(super) fn job_pod(world: &World, job: &str, index: Option<u32>) -> Value {
    let job = world.harness.server.get(JOB, &key(job)).unwrap();
    let name = job["metadata"]["name"].as_str().unwrap();
    let mut pod = job["spec"]["template"].clone();
    pod["metadata"]["namespace"] = json!("ns");
    pod["metadata"]["name"] = json!(format!("{name}-{}", index.map_or("x".into(), |i| i.to_string())));
    if let Some(index) = index {
        pod["metadata"]["labels"][INDEX] = json!(index.to_string());
    }
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name,
        "uid": job["metadata"]["uid"], "controller": true}]);
    pod["status"] = json!({"phase": "Pending"});
    pod
}

/// Creates a Job, waits until it is started, and creates all its pods.
pub(super) fn start_job(world: &mut World, name: &str, pods: u32, annotations: &Value) {
    world.create(JOB, job(name, pods, annotations));
    run_until(world, "the job has started", |world| {
        world.harness.server.get(JOB, &key(name)).is_some_and(|job| job["spec"]["suspend"] == false)
    });
    for index in 0..pods {
        let pod = job_pod(world, name, Some(index));
        world.create(Kind::Pod, pod);
    }
}

/// Host of each pod of a Job, by pod name; `None` for gated pods.
pub(super) fn ungated_hosts(world: &World, job: &str) -> BTreeMap<String, Option<String>> {
    let ours = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["name"] == job;
    let host = |pod: &Value| {
        let all = pod["spec"]["schedulingGates"].as_array().cloned().unwrap_or_default();
        let gated = all.iter().any(|gate| gate["name"] == GATE);
        let host_name = pod["spec"]["nodeSelector"][HOST].as_str().map(str::to_owned);
        assert_eq!(gated, host_name.is_none(), "a pod is ungated exactly when it has a host: {pod}");
        (pod["metadata"]["name"].as_str().unwrap().to_owned(), host_name)
    };
    world.harness.server.all(Kind::Pod).filter(ours).map(host).collect()
}

/// Binds the ungated pods of a Job, as the Kubernetes scheduler does.
pub(super) fn bind_pods(world: &mut World, job: &str) {
    for (name, host) in ungated_hosts(world, job) {
        world.harness.server.edit(Kind::Pod, &key(&name), |pod| {
            pod["spec"]["nodeName"] = json!(host);
            pod["status"]["phase"] = json!("Running");
        });
    }
}

pub(super) fn wait_until_ungated(world: &mut World, job: &'static str) {
    run_until(world, "all pods are ungated", |world| ungated_hosts(world, job).values().all(Option::is_some));
}

/// Whether any version of the Job's Workload satisfies the predicate.
pub(super) fn any_version(world: &mut World, job: &str, predicate: impl Fn(&Value) -> bool) -> bool {
    world.record_undelivered_versions();
    let ours = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == job;
    world.history.iter().filter(ours).any(predicate)
}

#[test]
fn pods_are_ungated_by_rank() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        start_job(&mut world, "j", 4, &json!({REQUIRED: "rack"}));
        wait_until_ungated(&mut world, "j");
        let expected = [("j-0", "a1"), ("j-1", "a1"), ("j-2", "a2"), ("j-3", "a2")];
        let expected = expected.into_iter().map(|(pod, host)| (pod.to_owned(), Some(host.to_owned())));
        assert_eq!(ungated_hosts(&world, "j"), expected.collect());
        assert!(world.run_until_idle(20_000));
        let removed = |o: &&Observation| match o {
            Observation::GateRemoved { gate, cluster_queue, .. } => {
                (*gate, cluster_queue.as_str()) == (GATE, "q")
            }
            _ => false,
        };
        assert_eq!(world.observed.iter().filter(removed).count(), 4, "each gate is timed once");
        let template = &world.harness.server.get(JOB, &key("j")).unwrap()["spec"]["template"];
        assert_eq!(template["spec"]["schedulingGates"], json!([{"name": GATE}]));
    }
}

/// A Job without a topology request gets one where all flavors have a topology; its template is restored when it stops.
#[test]
fn implicit_topology_annotates_template_and_is_reverted() {
    let mut world = cluster_with_racks(1, &ALL_NODES);
    world.create(JOB, job("j", 2, &json!({})));
    run_until(&mut world, "it is admitted", |world| is_admitted(world, "j"));
    let template =
        |world: &World| world.harness.server.get(JOB, &key("j")).unwrap()["spec"]["template"].clone();
    run_until(&mut world, "its template is annotated", |world| {
        let annotation =
            &template(world)["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"];
        annotation == "true"
    });
    assert_eq!(template(&world)["spec"]["schedulingGates"], json!([{"name": GATE}]));
    let workload_key = key_of(&workload(&world, "j"));
    world.harness.server.edit(Kind::Workload, &workload_key, |w| w["spec"]["active"] = json!(false));
    run_until(&mut world, "it is stopped and restored", |world| {
        let restored = template(world);
        restored["spec"].get("schedulingGates").is_none_or(Value::is_null)
            && restored["metadata"]["annotations"]["kueue.x-k8s.io/podset-unconstrained-topology"].is_null()
    });
}

/// Pods without a topology assignment count as usage; the pods of a workload itself count once.
#[test]
fn own_pods_are_charged_once() {
    let mut world = cluster_with_racks(2, &ALL_NODES);
    world.create(Kind::Pod, unmanaged_pod("other", "a1", "1"));
    start_job(&mut world, "j", 4, &json!({REQUIRED: "rack"}));
    wait_until_ungated(&mut world, "j");
    assert_eq!(
        topology_assignment(&world, "j").into_keys().collect::<Vec<_>>(),
        ["b1", "b2"],
        "rack a has capacity for 3 pods"
    );
    bind_pods(&mut world, "j");
    world.create(JOB, job("next", 3, &json!({PREFERRED: "rack"})));
    run_until(&mut world, "the rest of rack a is assigned", |world| is_admitted(world, "next"));
    let expected = BTreeMap::from([("a1".to_owned(), 1), ("a2".to_owned(), 2)]);
    assert_eq!(topology_assignment(&world, "next"), expected);
    // All capacity is used: the last Job waits until the unmanaged pod is deleted.
    world.create(JOB, job("last", 1, &json!({})));
    assert!(world.run_until_idle(20_000) && !is_admitted(&world, "last"));
    world.harness.server.delete(Kind::Pod, &key("other"), world.now);
    run_until(&mut world, "the released capacity is assigned", |world| is_admitted(world, "last"));
    // Pods whose Workload was deleted count as usage of their own.
    let job = key("j");
    world.harness.server.delete(JOB, &job, world.now);
    run_until(&mut world, "the Workload is deleted", |world| workload(world, "j").is_null());
    world.create(JOB, self::job("late", 4, &json!({REQUIRED: "rack"})));
    assert!(world.run_until_idle(20_000) && !is_admitted(&world, "late"));
}

/// An overcommitted node is not used; other nodes are unaffected.
#[test]
fn overcommitted_node_does_not_affect_other_nodes() {
    let mut world = cluster_with_racks(3, &ALL_NODES);
    world.create(Kind::Pod, unmanaged_pod("huge", "a1", "7"));
    start_job(&mut world, "j", 2, &json!({REQUIRED: "rack"}));
    wait_until_ungated(&mut world, "j");
    world.create(JOB, job("k", 4, &json!({REQUIRED: "rack"})));
    run_until(&mut world, "rack b is assigned", |world| is_admitted(world, "k"));
    assert!(
        !topology_assignment(&world, "j").contains_key("a1")
            && !topology_assignment(&world, "k").contains_key("a1")
    );
}

#[test]
fn one_failed_node_is_reported_two_evict() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        // All other capacity is used, so that there is no replacement.
        world.create(Kind::Pod, unmanaged_pod("f1", "b1", "2"));
        world.create(Kind::Pod, unmanaged_pod("f2", "b2", "2"));
        start_job(&mut world, "j", 4, &json!({REQUIRED: "rack"}));
        wait_until_ungated(&mut world, "j");
        bind_pods(&mut world, "j");
        // A heartbeat, and an unready node whose pods still run, are not reported.
        world.harness.server.edit(Kind::Node, &ObjectKey::cluster("a1"), |node| {
            node["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-02T00:00:00Z");
        });
        world.harness.server.edit(Kind::Node, &ObjectKey::cluster("a2"), |node| {
            node["status"]["conditions"][0]["status"] = json!("Unknown");
        });
        assert!(world.run_until_idle(20_000));
        assert!(workload(&world, "j")["status"]["unhealthyNodes"].is_null(), "its pods still run");
        for pod in ["j-2", "j-3"] {
            let now = world.timestamp_text();
            world.harness.server.edit(Kind::Pod, &key(pod), |pod| {
                pod["metadata"]["deletionTimestamp"] = json!(now);
                pod["metadata"]["finalizers"] = json!(["kept"]);
            });
        }
        let reports = |host: &str| {
            let expected = json!([{"name": host}]);
            move |w: &Value| w["status"]["unhealthyNodes"] == expected
        };
        assert!(world.run_until_idle(20_000));
        assert!(any_version(&mut world, "j", reports("a2")), "seed {seed}: its pods are terminating");
        world.harness.server.delete(Kind::Node, &ObjectKey::cluster("a1"), world.now);
        assert!(world.run_until_idle(20_000));
        let evicted = |w: &Value| {
            condition(w, "Evicted") == Some("True")
                && w["status"]["conditions"].as_array().unwrap().iter().any(|c| c["reason"] == "NodeFailures")
        };
        assert!(any_version(&mut world, "j", evicted), "seed {seed}: a second node has failed");
    }
}

/// A node that recovers is removed from the unhealthy nodes.
#[test]
fn recovered_node_leaves_unhealthy_list() {
    let settings = CoreSettings::default();
    assert!(settings.gates.node_failures.is_some());
    let mut world = cluster_with_racks(5, &ALL_NODES);
    start_job(&mut world, "j", 1, &json!({}));
    wait_until_ungated(&mut world, "j");
    let host = topology_assignment(&world, "j").into_keys().next().unwrap();
    world.harness.server.edit(Kind::Node, &ObjectKey::cluster(&host), |node| {
        node["status"]["conditions"][0]["status"] = json!("False");
    });
    assert!(world.run_until_idle(20_000));
    assert!(any_version(&mut world, "j", |w| w["status"]["unhealthyNodes"] == json!([{"name": host}])));
    world.harness.server.edit(Kind::Node, &ObjectKey::cluster(&host), |node| {
        node["status"]["conditions"][0]["status"] = json!("True");
    });
    assert!(world.run_until_idle(20_000));
    assert!(workload(&world, "j")["status"]["unhealthyNodes"].is_null());
}

/// A pod that was ungated for a node which is deleted before the pod runs is failed, so that its Job creates another.
#[test]
fn pod_bound_for_deleted_node_is_terminated() {
    let mut world = cluster_with_racks(6, &ALL_NODES);
    start_job(&mut world, "j", 1, &json!({}));
    wait_until_ungated(&mut world, "j");
    let host = topology_assignment(&world, "j").into_keys().next().unwrap();
    world.harness.server.delete(Kind::Node, &ObjectKey::cluster(&host), world.now);
    run_until(&mut world, "its pod has failed", |world| {
        let pod = world.harness.server.get(Kind::Pod, &key("j-0")).unwrap();
        pod["status"]["phase"] == "Failed" && condition(pod, "TerminatedByKueue") == Some("True")
    });
    run_until(&mut world, "an event says so", |world| {
        world.events.iter().any(|(_, reason)| reason == "PodTerminatedByKueue")
    });
}

/// With the gates off, neither nodes nor pods are watched, and nothing waits for their lists. Elastic jobs need pods, and so do kinds
/// whose status does not say when their pods have ended.
#[test]
fn disabled_gates_watch_no_nodes_or_pods() {
    let mut settings = CoreSettings::default();
    settings.engine.gates.topology = false;
    let watches = |settings: &CoreSettings, kind| settings.kinds().contains(&kind);
    assert!(!watches(&settings, Kind::Node) && watches(&settings, Kind::Pod));
    settings.gates.elastic_jobs = false;
    assert!(!watches(&settings, Kind::Node) && watches(&settings, Kind::Pod));
    settings.frameworks = ["batch/job".to_owned()].into();
    assert!(!watches(&settings, Kind::Node) && !watches(&settings, Kind::Pod));
    assert!(CoreSettings::default().kinds().contains(&Kind::Node));
}

/// No webhook has reviewed these Jobs. A pod without a domain would keep its gate for ever.
#[test]
fn pods_beyond_whole_slices_are_placed() {
    for (pods, size) in [(5, "2"), (3, "4"), (1, "3"), (4, "2")] {
        let mut world = cluster_with_racks(5, &ALL_NODES);
        let annotations = json!({PREFERRED: "rack", "kueue.x-k8s.io/podset-slice-required-topology": "rack",
            "kueue.x-k8s.io/podset-slice-size": size});
        world.create(JOB, job("j", pods, &annotations));
        run_until(&mut world, "admitted", |world| is_admitted(world, "j"));
        let assigned: i32 = topology_assignment(&world, "j").values().sum();
        assert_eq!(assigned, i32::try_from(pods).unwrap(), "slices of {size}");
    }
    // Partial admission shrinks the count to one that the slices do not divide.
    let mut world = cluster_with_racks(5, &[("a1", "a"), ("b1", "b")]);
    let annotations = json!({PREFERRED: "rack", "kueue.x-k8s.io/podset-slice-required-topology": HOST,
        "kueue.x-k8s.io/podset-slice-size": "2"});
    let mut shrinking = job("j", 6, &annotations);
    shrinking["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "3"});
    world.create(JOB, shrinking);
    run_until(&mut world, "admitted", |world| is_admitted(world, "j"));
    let granted = workload(&world, "j")["status"]["admission"]["podSetAssignments"][0]["count"].clone();
    let assigned: i32 = topology_assignment(&world, "j").values().sum();
    assert_eq!((json!(assigned), assigned), (granted, 4));
}
