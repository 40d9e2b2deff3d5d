//! Nodes, pods and assignments that should not be as they are: each row says what comes of it, and others are unaffected.

use super::topology::{
    ALL_NODES, GATE, HOST, REQUIRED, any_version, bind_pods, cluster_with_racks, is_admitted, job, job_pod,
    key, node, run_until, start_job, topology_assignment, ungated_hosts, unmanaged_pod, wait_until_ungated,
    workload,
};
use super::world::{World, condition};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::state::Kind;
use std::collections::BTreeMap;

fn pods_by_host(pairs: &[(&str, i32)]) -> BTreeMap<String, i32> {
    pairs.iter().map(|(host, pods)| ((*host).to_owned(), *pods)).collect()
}

/// Where a Job of so many pods that wants one rack is placed; nowhere is said by nothing.
fn place_job(world: &mut World, name: &str, pods: u32) -> BTreeMap<String, i32> {
    world.create(Kind::Job(0), job(name, pods, &json!({REQUIRED: "rack"})));
    assert!(world.run_until_idle(20_000), "it does not come to rest");
    topology_assignment(world, name)
}

/// What is done to rack a, and where then a Job of four pods goes, and one of three after it.
#[test]
fn invalid_nodes_do_not_affect_other_nodes() {
    type Row = (&'static str, fn(&mut Value), &'static [(&'static str, i32)], &'static [(&'static str, i32)]);
    const B: &[(&str, i32)] = &[("b1", 2), ("b2", 2)];
    let table: [Row; 7] = [
        ("as it should be", |_| {}, &[("a1", 2), ("a2", 2)], &[("b1", 2), ("b2", 1)]),
        ("a level is missing", |n| n["metadata"]["labels"]["rack"] = Value::Null, B, &[]),
        ("the host is missing", |n| n["metadata"]["labels"][HOST] = Value::Null, B, &[]),
        ("no status", |n| n["status"] = json!({}), B, &[]),
        ("nothing to give", |n| n["status"]["allocatable"] = json!({}), B, &[]),
        ("no number", |n| n["status"]["allocatable"]["cpu"] = json!("lots"), B, &[]),
        ("unreadable", |n| n["spec"] = json!({"taints": "none"}), B, &[]),
    ];
    for (what, change, four, three) in table {
        let mut world = cluster_with_racks(1, &ALL_NODES[1..]);
        let mut bad = node("a1", "a");
        change(&mut bad);
        if let Some(labels) = bad["metadata"]["labels"].as_object_mut() {
            labels.retain(|_, value| !value.is_null());
        }
        world.create(Kind::Node, bad);
        assert_eq!(place_job(&mut world, "four", 4), pods_by_host(four), "{what}");
        assert_eq!(place_job(&mut world, "three", 3), pods_by_host(three), "{what}");
    }
}

/// Two nodes that call themselves by one host name are one host with the room of both, in the first of their racks.
#[test]
fn nodes_with_same_hostname_share_one_domain() {
    let mut world = cluster_with_racks(2, &ALL_NODES);
    let mut twin = node("b3", "b");
    twin["metadata"]["labels"][HOST] = json!("a1");
    world.create(Kind::Node, twin);
    assert_eq!(place_job(&mut world, "six", 6), pods_by_host(&[("a1", 4), ("a2", 2)]));
    // One of them goes: the host is there, and nobody is told that it has failed.
    world.server.delete(Kind::Node, &ObjectKey::cluster("b3"), world.now);
    assert!(world.run_until_idle(20_000) && workload(&world, "six")["status"]["unhealthyNodes"].is_null());
    assert_eq!(place_job(&mut world, "four", 4), pods_by_host(&[("b1", 2), ("b2", 2)]));
}

/// A node that two topologies see is in a domain of each, and its room is given once.
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
    for (name, wanted) in [("two", true), ("three", false)] {
        let mut other = job(name, 1, &json!({REQUIRED: "pool"}));
        other["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("u");
        world.create(Kind::Job(0), other);
        assert!(world.run_until_idle(20_000));
        assert_eq!(is_admitted(&world, name), wanted, "{name}");
    }
}

/// Assignments that name nodes that are gone, or that contradict themselves, hold up neither others nor the manager.
#[test]
fn invalid_assignments_do_not_block_other_jobs() {
    let contradictory = json!({"levels": ["rack", HOST], "slices": [{"domainCount": 3, "valuesPerLevel": [],
        "podCounts": {"universal": 1}}]});
    let negative = json!({"levels": [HOST], "slices": [{"domainCount": 1,
        "valuesPerLevel": [{"universal": "a1"}], "podCounts": {"universal": -4}}]});
    let gone = json!({"levels": [HOST], "slices": [{"domainCount": 1,
        "valuesPerLevel": [{"universal": "gone"}], "podCounts": {"universal": 2}}]});
    for (what, assignment, told) in
        [("contradictory", contradictory, false), ("negative", negative, false), ("gone", gone, true)]
    {
        let mut world = cluster_with_racks(4, &ALL_NODES);
        start_job(&mut world, "j", 2, &json!({REQUIRED: "rack"}));
        world.jobs_never_end = true;
        let found = sluice::simulate::fake_api_server::key_of(&workload(&world, "j"));
        for pod in ["j-0", "j-1"] {
            world.server.delete(Kind::Pod, &key(pod), world.now);
        }
        world.server.edit(Kind::Workload, &found, |w| {
            w["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = assignment.clone();
        });
        assert!(world.run_until_idle(20_000), "{what}");
        world.record_undelivered_versions();
        let names = |w: &Value| w["status"]["unhealthyNodes"] == json!([{"name": "gone"}]);
        assert_eq!(world.history.iter().any(names), told, "{what}: {}", workload(&world, "j")["status"]);
        if !told {
            let pod = job_pod(&world, "j", Some(0));
            world.create(Kind::Pod, pod);
            assert!(world.run_until_idle(20_000));
            assert_eq!(ungated_hosts(&world, "j")["j-0"], None, "{what}: it has no place");
        }
        assert_eq!(place_job(&mut world, "other", 4).len(), 2, "{what}: others have places");
    }
}

/// Pods that nobody granted stay at the gate, or count as what they are.
#[test]
fn ungranted_pods_stay_gated_or_count_as_usage() {
    let mut world = cluster_with_racks(5, &ALL_NODES);
    start_job(&mut world, "j", 2, &json!({REQUIRED: "rack"}));
    let all_sent =
        |world: &World| ungated_hosts(world, "j").values().filter(|host| host.is_some()).count() == 2;
    run_until(&mut world, "two pods are sent", all_sent);
    // One more than was granted, one of a made-up rank, and one that only claims to be the Job's.
    for index in [Some(2), Some(900), None] {
        let pod = job_pod(&world, "j", index);
        world.create(Kind::Pod, pod);
    }
    let mut stranger = job_pod(&world, "j", Some(0));
    stranger["metadata"]["name"] = json!("stranger");
    stranger["metadata"]["ownerReferences"] = json!([]);
    world.create(Kind::Pod, stranger);
    assert!(world.run_until_idle(20_000));
    assert!(all_sent(&world), "{:?}", ungated_hosts(&world, "j"));
    let left = world.server.get(Kind::Pod, &key("stranger")).unwrap();
    assert_eq!(left["spec"]["schedulingGates"], json!([{"name": GATE}]));
    // A pod that names a Workload which does not exist takes its room by itself.
    let mut claims = unmanaged_pod("claims", "b1", "2");
    claims["metadata"]["annotations"] = json!({"kueue.x-k8s.io/workload": "nobody", REQUIRED: "rack"});
    world.create(Kind::Pod, claims);
    assert_eq!(place_job(&mut world, "four", 4), pods_by_host(&[]));
}

#[test]
fn malformed_annotations_affect_only_annotated_job() {
    // What the webhook would refuse concerns its Job alone.
    let mut world = cluster_with_racks(6, &ALL_NODES);
    let bad = json!({"kueue.x-k8s.io/podset-slice-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": "x"});
    world.create(Kind::Job(0), job("bad", 2, &bad));
    world.create(Kind::Job(0), job("unknown", 2, &json!({REQUIRED: "galaxy"})));
    assert_eq!(place_job(&mut world, "good", 4).len(), 2);
    assert!(workload(&world, "bad").is_null() && !is_admitted(&world, "unknown"));
    let is_told =
        |world: &World| world.events.iter().any(|(of, reason)| *of == key("bad") && reason == "Unreadable");
    assert!(is_told(&world));
    // The event of a manager that died may be lost: the next one read the Job before it led.
    world.events.clear();
    world.restart();
    assert!(is_told(&world));
    // Without an index that can be read pods go by number.
    let mut world = cluster_with_racks(7, &ALL_NODES);
    world.create(Kind::Job(0), job("j", 3, &json!({REQUIRED: "rack"})));
    run_until(&mut world, "it starts", |world| {
        world.server.get(Kind::Job(0), &key("j")).is_some_and(|job| job["spec"]["suspend"] == false)
    });
    for index in 0..3 {
        let mut pod = job_pod(&world, "j", Some(index));
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-index-offset"] = json!("many");
        world.create(Kind::Pod, pod);
    }
    run_until(&mut world, "all are sent", |world| ungated_hosts(world, "j").values().all(Option::is_some));
    let mut by_host = BTreeMap::new();
    for host in ungated_hosts(&world, "j").into_values().flatten() {
        *by_host.entry(host).or_insert(0) += 1;
    }
    assert_eq!(by_host, topology_assignment(&world, "j"));
}

const DEVICE: &str = "example.com/gpu";

/// A Job whose pods ask for a device each.
fn device_job(name: &str, pods: u32) -> Value {
    let mut job = job(name, pods, &json!({}));
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"][DEVICE] = json!("1");
    job
}

/// A full node loses a device, all devices or all that it has under running pods, and has them back: the pods stay where they
/// are, nothing is placed there meanwhile, and the node is used again.
#[test]
fn node_is_kept_when_allocatable_drops_and_recovers() {
    let whole = json!({"cpu": "2", DEVICE: "2", "pods": "10"});
    let less = [
        json!({"cpu": "2", DEVICE: "1", "pods": "10"}),
        json!({"cpu": "2", DEVICE: "0", "pods": "10"}),
        json!({"cpu": "2", "pods": "10"}),
        json!({"cpu": "0", DEVICE: "0", "pods": "0"}),
        json!({}),
    ];
    for (seed, less) in (0..).zip(less) {
        let mut world = cluster_with_racks(seed, &ALL_NODES[..1]);
        let set = |world: &mut World, allocatable: &Value| {
            world.server.edit(Kind::Node, &ObjectKey::cluster("a1"), |node| {
                node["status"]["allocatable"] = allocatable.clone();
            });
        };
        set(&mut world, &whole);
        let quota = |name: &str| json!({"name": name, "nominalQuota": "100"});
        let groups = json!([{"coveredResources": ["cpu", DEVICE], "flavors": [
            {"name": "t", "resources": [quota("cpu"), quota(DEVICE)]}]}]);
        world.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |queue| {
            queue["spec"]["resourceGroups"] = groups.clone();
        });
        world.create(Kind::Job(0), device_job("runs", 2));
        run_until(&mut world, "the job has started", |world| {
            world.server.get(Kind::Job(0), &key("runs")).is_some_and(|job| job["spec"]["suspend"] == false)
        });
        for index in 0..2 {
            let pod = job_pod(&world, "runs", Some(index));
            world.create(Kind::Pod, pod);
        }
        wait_until_ungated(&mut world, "runs");
        bind_pods(&mut world, "runs");
        world.create(Kind::Job(0), device_job("next", 2));
        for allocatable in [&less, &whole, &less] {
            set(&mut world, allocatable);
            assert!(world.run_until_idle(20_000), "{allocatable}: it goes round in circles");
            assert!(
                topology_assignment(&world, "runs").get("a1") == Some(&2) && is_admitted(&world, "runs"),
                "{allocatable}"
            );
            assert!(!is_admitted(&world, "next"), "{allocatable}: the node is full");
        }
        let marked =
            |w: &Value| condition(w, "Evicted") == Some("True") || !w["status"]["unhealthyNodes"].is_null();
        assert!(!any_version(&mut world, "runs", marked), "{less}: the node has not failed");
        let now = world.now;
        for pod in ["runs-0", "runs-1"] {
            world.server.delete(Kind::Pod, &key(pod), now);
        }
        world.server.delete(Kind::Job(0), &key("runs"), now);
        assert!(world.run_until_idle(20_000) && !is_admitted(&world, "next"), "{less}: there is not enough");
        set(&mut world, &whole);
        run_until(&mut world, "the node is used again", |world| is_admitted(world, "next"));
        assert_eq!(topology_assignment(&world, "next").get("a1"), Some(&2));
    }
}
