//! Invalid nodes, pods and assignments: the outcome of each, without effect on other objects.

use super::topology::{
    ALL_NODES, GATE, HOST, REQUIRED, any_version, bind_pods, cluster_with_racks, is_admitted, job, job_pod,
    key, node, run_until, start_job, topology_assignment, ungated_hosts, unmanaged_pod, wait_until_ungated,
    workload,
};
use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use std::collections::BTreeMap;

fn pods_by_host(hosts: &[(&str, i32)]) -> BTreeMap<String, i32> {
    hosts.iter().map(|(host, pods)| ((*host).to_owned(), *pods)).collect()
}

/// Creates a Job of `pods` pods that requires one rack. Returns its assignment, which is empty if it has none.
fn place_job(world: &mut World, name: &str, pods: u32) -> BTreeMap<String, i32> {
    world.create(JOB, job(name, pods, &json!({REQUIRED: "rack"})));
    assert!(world.run_until_idle(20_000), "it did not settle");
    topology_assignment(world, name)
}

/// For each change of node a1: the placement of a Job of four pods, and then of one of three.
#[test]
fn invalid_nodes_do_not_affect_other_nodes() {
    type Row = (&'static str, fn(&mut Value), &'static [(&'static str, i32)], &'static [(&'static str, i32)]);
    const B: &[(&str, i32)] = &[("b1", 2), ("b2", 2)];
    let table: [Row; 7] = [
        ("valid", |_| {}, &[("a1", 2), ("a2", 2)], &[("b1", 2), ("b2", 1)]),
        ("a level is missing", |n| n["metadata"]["labels"]["rack"] = Value::Null, B, &[]),
        ("the host is missing", |n| n["metadata"]["labels"][HOST] = Value::Null, B, &[]),
        ("no status", |n| n["status"] = json!({}), B, &[]),
        ("nothing allocatable", |n| n["status"]["allocatable"] = json!({}), B, &[]),
        ("not a number", |n| n["status"]["allocatable"]["cpu"] = json!("lots"), B, &[]),
        ("unreadable", |n| n["spec"] = json!({"taints": "none"}), B, &[]),
    ];
    for (case, change, four, three) in table {
        let mut world = cluster_with_racks(1, &ALL_NODES[1..]);
        let mut invalid = node("a1", "a");
        change(&mut invalid);
        if let Some(labels) = invalid["metadata"]["labels"].as_object_mut() {
            labels.retain(|_, value| !value.is_null());
        }
        world.create(Kind::Node, invalid);
        assert_eq!(place_job(&mut world, "four", 4), pods_by_host(four), "{case}");
        assert_eq!(place_job(&mut world, "three", 3), pods_by_host(three), "{case}");
    }
}

/// Two nodes with the same hostname are one domain with the capacity of both, in the rack of the first.
#[test]
fn nodes_with_same_hostname_share_one_domain() {
    let mut world = cluster_with_racks(2, &ALL_NODES);
    let mut twin = node("b3", "b");
    twin["metadata"]["labels"][HOST] = json!("a1");
    world.create(Kind::Node, twin);
    assert_eq!(place_job(&mut world, "six", 6), pods_by_host(&[("a1", 4), ("a2", 2)]));
    // One of the two is deleted: the host still exists, so no node failure is reported.
    world.harness.server.delete(Kind::Node, &ObjectKey::cluster("b3"), world.now);
    assert!(world.run_until_idle(20_000) && workload(&world, "six")["status"]["unhealthyNodes"].is_null());
    assert_eq!(place_job(&mut world, "four", 4), pods_by_host(&[("b1", 2), ("b2", 2)]));
}

/// A node of two topologies is in a domain of each, and its capacity is granted once.
#[test]
fn node_capacity_is_shared_between_topologies() {
    let mut world = cluster_with_racks(3, &[("a1", "a")]);
    let levels = json!([{"nodeLabel": "pool"}, {"nodeLabel": HOST}]);
    world.create(Kind::Topology, json!({"metadata": {"name": "pools"}, "spec": {"levels": levels}}));
    let spec = json!({"nodeLabels": {"pool": "t"}, "topologyName": "pools"});
    world.create(Kind::ResourceFlavor, json!({"metadata": {"name": "u"}, "spec": spec}));
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "u", "resources": [{"name": "cpu", "nominalQuota": "100"}]}]}]);
    let spec = json!({"namespaceSelector": {}, "resourceGroups": groups});
    world.create(Kind::ClusterQueue, json!({"metadata": {"name": "u"}, "spec": spec}));
    let queue = json!({"metadata": {"name": "u", "namespace": "ns"}, "spec": {"clusterQueue": "u"}});
    world.create(Kind::LocalQueue, queue);
    assert_eq!(place_job(&mut world, "one", 1), pods_by_host(&[("a1", 1)]));
    for (name, expected) in [("two", true), ("three", false)] {
        let mut other = job(name, 1, &json!({REQUIRED: "pool"}));
        other["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("u");
        world.create(JOB, other);
        assert!(world.run_until_idle(20_000));
        assert_eq!(is_admitted(&world, name), expected, "{name}");
    }
}

/// Assignments that name missing nodes, or that are inconsistent, block neither other Jobs nor the manager.
#[test]
fn invalid_assignments_do_not_block_other_jobs() {
    let contradictory = json!({"levels": ["rack", HOST], "slices": [{"domainCount": 3, "valuesPerLevel": [],
        "podCounts": {"universal": 1}}]});
    let negative = json!({"levels": [HOST], "slices": [{"domainCount": 1,
        "valuesPerLevel": [{"universal": "a1"}], "podCounts": {"universal": -4}}]});
    let missing = json!({"levels": [HOST], "slices": [{"domainCount": 1,
        "valuesPerLevel": [{"universal": "gone"}], "podCounts": {"universal": 2}}]});
    for (case, assignment, reported) in
        [("contradictory", contradictory, false), ("negative", negative, false), ("gone", missing, true)]
    {
        let mut world = cluster_with_racks(4, &ALL_NODES);
        start_job(&mut world, "j", 2, &json!({REQUIRED: "rack"}));
        world.jobs_never_end = true;
        let workload_key = sluice_core::simulate::fake_api_server::key_of(&workload(&world, "j"));
        for pod in ["j-0", "j-1"] {
            world.harness.server.delete(Kind::Pod, &key(pod), world.now);
        }
        world.harness.server.edit(Kind::Workload, &workload_key, |w| {
            w["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = assignment.clone();
        });
        assert!(world.run_until_idle(20_000), "{case}");
        world.record_undelivered_versions();
        let reports_missing = |w: &Value| w["status"]["unhealthyNodes"] == json!([{"name": "gone"}]);
        assert_eq!(
            world.history.iter().any(reports_missing),
            reported,
            "{case}: {}",
            workload(&world, "j")["status"]
        );
        if !reported {
            let pod = job_pod(&world, "j", Some(0));
            world.create(Kind::Pod, pod);
            assert!(world.run_until_idle(20_000));
            assert_eq!(ungated_hosts(&world, "j")["j-0"], None, "{case}: it has no domain");
        }
        assert_eq!(place_job(&mut world, "other", 4).len(), 2, "{case}: other Jobs are assigned");
    }
}

/// Pods outside the granted count stay gated, or count as usage of their own.
#[test]
fn ungranted_pods_stay_gated_or_count_as_usage() {
    let mut world = cluster_with_racks(5, &ALL_NODES);
    start_job(&mut world, "j", 2, &json!({REQUIRED: "rack"}));
    let all_ungated =
        |world: &World| ungated_hosts(world, "j").values().filter(|host| host.is_some()).count() == 2;
    run_until(&mut world, "two pods are ungated", all_ungated);
    // One above the granted count, one with an invalid index, and one without an index.
    for index in [Some(2), Some(900), None] {
        let pod = job_pod(&world, "j", index);
        world.create(Kind::Pod, pod);
    }
    let mut unowned = job_pod(&world, "j", Some(0));
    unowned["metadata"]["name"] = json!("stranger");
    unowned["metadata"]["ownerReferences"] = json!([]);
    world.create(Kind::Pod, unowned);
    assert!(world.run_until_idle(20_000));
    assert!(all_ungated(&world), "{:?}", ungated_hosts(&world, "j"));
    let gated = world.harness.server.get(Kind::Pod, &key("stranger")).unwrap();
    assert_eq!(gated["spec"]["schedulingGates"], json!([{"name": GATE}]));
    // A pod that names a Workload which does not exist counts as usage of its own.
    let mut claims = unmanaged_pod("claims", "b1", "2");
    claims["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload": "missing", REQUIRED: "rack"});
    world.create(Kind::Pod, claims);
    assert_eq!(place_job(&mut world, "four", 4), pods_by_host(&[]));
}

#[test]
fn malformed_annotations_affect_only_annotated_job() {
    // An annotation that the webhook would refuse affects its Job alone.
    let mut world = cluster_with_racks(6, &ALL_NODES);
    let invalid = json!({"kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "x"});
    world.create(JOB, job("bad", 2, &invalid));
    world.create(JOB, job("unknown", 2, &json!({REQUIRED: "galaxy"})));
    assert_eq!(place_job(&mut world, "good", 4).len(), 2);
    assert!(workload(&world, "bad").is_null() && !is_admitted(&world, "unknown"));
    let is_reported = |world: &World| {
        world.events.iter().any(|(object, reason)| *object == key("bad") && reason == "Unreadable")
    };
    assert!(is_reported(&world));
    // The event may be lost with its manager; the next manager emits it, although it read the Job before it led.
    world.events.clear();
    world.restart();
    assert!(is_reported(&world));
    // Without a readable index, pods are assigned by number.
    let mut world = cluster_with_racks(7, &ALL_NODES);
    world.create(JOB, job("j", 3, &json!({REQUIRED: "rack"})));
    run_until(&mut world, "the job has started", |world| {
        world.harness.server.get(JOB, &key("j")).is_some_and(|job| job["spec"]["suspend"] == false)
    });
    for index in 0..3 {
        let mut pod = job_pod(&world, "j", Some(index));
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-index-offset"] = json!("many");
        world.create(Kind::Pod, pod);
    }
    run_until(&mut world, "all pods are ungated", |world| {
        ungated_hosts(world, "j").values().all(Option::is_some)
    });
    let mut by_host = BTreeMap::new();
    for host in ungated_hosts(&world, "j").into_values().flatten() {
        *by_host.entry(host).or_insert(0) += 1;
    }
    assert_eq!(by_host, topology_assignment(&world, "j"));
}

const DEVICE: &str = "example.com/gpu";

/// A Job whose pods request one device each.
fn device_job(name: &str, pods: u32) -> Value {
    let mut job = job(name, pods, &json!({}));
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"][DEVICE] = json!("1");
    job
}

/// A full node loses a device, all devices or all allocatable resources under running pods, and recovers: the pods stay
/// assigned, no other pod is placed there before, and then the node is used again.
#[test]
fn node_is_kept_when_allocatable_drops_and_recovers() {
    let full = json!({"cpu": "2", DEVICE: "2", "pods": "10"});
    let reduced = [
        json!({"cpu": "2", DEVICE: "1", "pods": "10"}),
        json!({"cpu": "2", DEVICE: "0", "pods": "10"}),
        json!({"cpu": "2", "pods": "10"}),
        json!({"cpu": "0", DEVICE: "0", "pods": "0"}),
        json!({}),
    ];
    for (seed, reduced) in (0..).zip(reduced) {
        let mut world = cluster_with_racks(seed, &ALL_NODES[..1]);
        let set_allocatable = |world: &mut World, allocatable: &Value| {
            world.harness.server.edit(Kind::Node, &ObjectKey::cluster("a1"), |node| {
                node["status"]["allocatable"] = allocatable.clone();
            });
        };
        set_allocatable(&mut world, &full);
        let quota = |name: &str| json!({"name": name, "nominalQuota": "100"});
        let groups = json!([{"coveredResources": ["cpu", DEVICE], "flavors": [
            {"name": "t", "resources": [quota("cpu"), quota(DEVICE)]}]}]);
        world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |queue| {
            queue["spec"]["resourceGroups"] = groups.clone();
        });
        world.create(JOB, device_job("runs", 2));
        run_until(&mut world, "the job has started", |world| {
            world.harness.server.get(JOB, &key("runs")).is_some_and(|job| job["spec"]["suspend"] == false)
        });
        for index in 0..2 {
            let pod = job_pod(&world, "runs", Some(index));
            world.create(Kind::Pod, pod);
        }
        wait_until_ungated(&mut world, "runs");
        bind_pods(&mut world, "runs");
        world.create(JOB, device_job("next", 2));
        for allocatable in [&reduced, &full, &reduced] {
            set_allocatable(&mut world, allocatable);
            assert!(world.run_until_idle(20_000), "{allocatable}: it did not settle");
            assert!(
                topology_assignment(&world, "runs").get("a1") == Some(&2) && is_admitted(&world, "runs"),
                "{allocatable}"
            );
            assert!(!is_admitted(&world, "next"), "{allocatable}: the node is full");
        }
        let marked =
            |w: &Value| condition(w, "Evicted") == Some("True") || !w["status"]["unhealthyNodes"].is_null();
        assert!(!any_version(&mut world, "runs", marked), "{reduced}: the node has not failed");
        let now = world.now;
        for pod in ["runs-0", "runs-1"] {
            world.harness.server.delete(Kind::Pod, &key(pod), now);
        }
        world.harness.server.delete(JOB, &key("runs"), now);
        assert!(
            world.run_until_idle(20_000) && !is_admitted(&world, "next"),
            "{reduced}: capacity is insufficient"
        );
        set_allocatable(&mut world, &full);
        run_until(&mut world, "the node is used again", |world| is_admitted(world, "next"));
        assert_eq!(topology_assignment(&world, "next").get("a1"), Some(&2));
    }
}
