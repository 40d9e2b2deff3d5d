//! Second passes as seen in the objects: a topology assignment is written only to a live reservation, at the version that it was
//! decided on; no domain is assigned twice, and nothing else of the status is lost.

use super::laws::{check_transitions, job, seeds};
use super::world::{Faults, World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::api::v1beta2::TopologyAssignment;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;
use sluice_core::simulate::fake_api_server::key_of;
use std::collections::{BTreeMap, BTreeSet};

const HOSTS: usize = 4;
const CPU_OF_HOST: i32 = 3;
const HOST: &str = "kubernetes.io/hostname";

/// Two racks of two hosts. Queue `a` delays topology until the check of another controller is ready; queue `b` does not.
fn cluster_with_hosts(seed: u64) -> World {
    let mut world = World::new(seed, &CoreSettings::default());
    let host = |n: usize| {
        json!({"metadata": {"name": format!("h{n}"),
            "labels": {"pool": "p", "rack": format!("r{}", n / 2), HOST: format!("h{n}")}},
            "status": {"allocatable": {"cpu": CPU_OF_HOST.to_string(), "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let levels = json!([{"nodeLabel": "rack"}, {"nodeLabel": HOST}]);
    let topology = json!({"metadata": {"name": "t"}, "spec": {"levels": levels}});
    world.create(Kind::Topology, topology);
    for n in 0..HOSTS {
        world.create(Kind::Node, host(n));
    }
    world.create(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
    let spec = json!({"nodeLabels": {"pool": "p"}, "topologyName": "t"});
    world.create(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": spec}));
    let spec = json!({"provisioningClassName": "any", "managedResources": ["example.com/none"]});
    world.create(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "config"}, "spec": spec}));
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"});
    let provisioning =
        json!({"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters});
    world.create(Kind::AdmissionCheck, json!({"metadata": {"name": "room"}, "spec": provisioning}));
    let active = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": world.timestamp_text()}]});
    let gate =
        json!({"metadata": {"name": "gate"}, "spec": {"controllerName": "sim/gate"}, "status": active});
    world.create(Kind::AdmissionCheck, gate);
    let group = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}]);
    for name in ["a", "b"] {
        let mut spec = json!({"namespaceSelector": {}, "resourceGroups": group.clone(),
            "preemption": {"withinClusterQueue": "LowerPriority"}});
        if name == "a" {
            spec["admissionChecksStrategy"] =
                json!({"admissionChecks": [{"name": "gate"}, {"name": "room"}]});
        }
        world.create(Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": spec}));
        let spec = json!({"clusterQueue": name});
        world.create(Kind::LocalQueue, json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}));
    }
    for (name, value) in [("low", -10), ("high", 10)] {
        world.create(Kind::WorkloadPriorityClass, json!({"metadata": {"name": name}, "value": value}));
    }
    world
}

fn topology_job(world: &mut World, name: &str) -> Value {
    let queue = if world.random_below(2) == 0 { "a" } else { "b" };
    let class = if world.random_below(3) == 0 { "high" } else { "low" };
    let mut job = job(name, queue, 1 + world.random_below(3));
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(class);
    let mode = ["required", "preferred"][usize::try_from(world.random_below(2)).unwrap()];
    let annotation = format!("kueue.x-k8s.io/podset-{mode}-topology");
    job["spec"]["template"]["metadata"]["annotations"] = json!({annotation: "rack"});
    job
}

/// Pods by host, as an admission assigns them.
fn pods_by_host(workload: &Value) -> BTreeMap<String, i32> {
    let mut hosts = BTreeMap::new();
    let sets = workload.pointer("/status/admission/podSetAssignments").and_then(Value::as_array);
    for set in sets.into_iter().flatten() {
        let Some(assignment) = set.get("topologyAssignment").filter(|a| !a.is_null()) else { continue };
        let assignment: TopologyAssignment = serde_json::from_value(assignment.clone()).unwrap();
        for (path, pods) in sluice_core::topology::decode(&assignment).unwrap().domains {
            *hosts.entry(path.last().unwrap().to_string()).or_default() += pods;
        }
    }
    hosts
}

/// I21: no host is overcommitted, according to the objects.
fn check_host_capacity(world: &World, seed: u64) {
    let mut assigned: BTreeMap<String, i32> = BTreeMap::new();
    let live = |w: &&Value| {
        condition(w, "QuotaReserved") == Some("True") && condition(w, "Finished") != Some("True")
    };
    for (host, pods) in world.harness.server.all(Kind::Workload).filter(live).flat_map(pods_by_host) {
        *assigned.entry(host).or_default() += pods;
    }
    assert!(assigned.values().all(|pods| *pods <= CPU_OF_HOST), "seed {seed}: {assigned:?}");
}

/// Counts delayed assignments and replacements in the versions of Workloads. Fails on an illegal one.
fn count_second_passes(history: &[Value]) -> Result<(u32, u32), String> {
    let mut last: BTreeMap<String, &Value> = BTreeMap::new();
    let (mut delayed, mut replaced) = (0, 0);
    for after in history {
        let Some(before) = last.insert(after["metadata"]["uid"].to_string(), after) else { continue };
        let (old, new) = (&before["status"]["admission"], &after["status"]["admission"]);
        if old.is_null() || new.is_null() || old == new {
            continue;
        }
        if pods_by_host(before).is_empty() {
            delayed += 1;
        } else {
            replaced += 1;
        }
        let is = |kind| condition(before, kind) == Some("True");
        let is_live = is("QuotaReserved")
            && !is("Evicted")
            && !is("Finished")
            && !is("DeactivationTarget")
            && before["spec"]["active"] != false
            && before["metadata"]["deletionTimestamp"].is_null();
        let checks = before["status"]["admissionChecks"].as_array().cloned().unwrap_or_default();
        let checks_ready = checks.iter().all(|check| check["state"] == "Ready");
        if !is_live || (!checks_ready && pods_by_host(before).is_empty()) {
            return Err(format!("topology was assigned without a live reservation: {before} -> {after}"));
        }
        let failed: BTreeSet<&str> = before["status"]["unhealthyNodes"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|node| node["name"].as_str())
            .filter(|name| pods_by_host(before).contains_key(*name))
            .collect();
        if pods_by_host(after).keys().any(|host| failed.contains(host.as_str())) {
            return Err(format!("a failed node was assigned: {before} -> {after}"));
        }
        for kind in ["QuotaReserved", "Evicted", "Preempted", "Requeued", "PodsReady"] {
            if condition(before, kind) != condition(after, kind) {
                return Err(format!("a second pass changed {kind}: {before} -> {after}"));
            }
        }
    }
    Ok((delayed, replaced))
}

/// Plays the controller of the check, fails nodes, and acts as a user.
fn apply_interference(world: &mut World, kind: u32) {
    recover_unused_nodes(world);
    let runs = |w: &Value| condition(w, "Admitted") == Some("True") && condition(w, "Finished").is_none();
    let eligible = |w: &&Value| kind / 7 != 1 || (runs(w) && !pods_by_host(w).is_empty());
    let keys: Vec<_> = world.harness.server.all(Kind::Workload).filter(eligible).map(key_of).collect();
    let count = u32::try_from(keys.len()).unwrap();
    if count == 0 {
        return;
    }
    let key = keys[usize::try_from(world.random_below(count)).unwrap()].clone();
    let workload = world.harness.server.get(Kind::Workload, &key).unwrap().clone();
    let now = world.now;
    match kind {
        0..=5 => set_check_state(world, &key, "Ready"),
        6 => set_check_state(world, &key, "Retry"),
        // One node at a time, so that there is capacity for its pods.
        7..=13
            if world.harness.server.all(Kind::Node).all(|node| condition(node, "Ready") == Some("True")) =>
        {
            if let Some(host) = pods_by_host(&workload).into_keys().next() {
                set_node_ready(world, &ObjectKey::cluster(&host), "Unknown");
            }
        }
        7..=13 => {}
        14 => world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(false)),
        15 => world.harness.server.delete(Kind::Workload, &key, now),
        16 => {
            let jobs: Vec<_> = world.harness.server.all(JOB).map(key_of).collect();
            let index = world.random_below(u32::try_from(jobs.len()).unwrap());
            if let Some(job) = jobs.get(usize::try_from(index).unwrap()) {
                world.harness.server.delete(JOB, job, now);
            }
        }
        17 => set_stop_policy(world, "HoldAndDrain"),
        _ => undo_interference(world),
    }
}

fn set_check_state(world: &mut World, key: &ObjectKey, state: &str) {
    let stamp = world.timestamp_text();
    world.harness.server.edit(Kind::Workload, key, |w| {
        let checks = w.pointer_mut("/status/admissionChecks").and_then(Value::as_array_mut);
        for check in checks.into_iter().flatten().filter(|check| check["name"] == "gate") {
            if check["state"] != state {
                check["state"] = json!(state);
                check["lastTransitionTime"] = json!(stamp);
            }
        }
    });
}

fn set_node_ready(world: &mut World, node: &ObjectKey, status: &str) {
    world
        .harness
        .server
        .edit(Kind::Node, node, |node| node["status"]["conditions"][0]["status"] = json!(status));
}

/// Makes nodes ready again to which no pods are assigned.
fn recover_unused_nodes(world: &mut World) {
    let live = |w: &&Value| {
        condition(w, "QuotaReserved") == Some("True") && condition(w, "Finished") != Some("True")
    };
    let used: BTreeSet<String> = world
        .harness
        .server
        .all(Kind::Workload)
        .filter(live)
        .flat_map(pods_by_host)
        .map(|(host, _)| host)
        .collect();
    let nodes: Vec<_> = world.harness.server.all(Kind::Node).map(key_of).collect();
    for node in nodes.iter().filter(|node| !used.contains(&*node.name)) {
        set_node_ready(world, node, "True");
    }
}

fn set_stop_policy(world: &mut World, policy: &str) {
    for name in ["a", "b"] {
        let key = ObjectKey::cluster(name);
        world.harness.server.edit(Kind::ClusterQueue, &key, |q| q["spec"]["stopPolicy"] = json!(policy));
    }
}

fn undo_interference(world: &mut World) {
    set_stop_policy(world, "None");
    let keys: Vec<_> = world.harness.server.all(Kind::Workload).map(key_of).collect();
    for key in keys {
        world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(true));
    }
}

fn run_history(seed: u64, faults: Faults) -> (u32, u32) {
    let mut world = cluster_with_hosts(seed);
    world.faults = faults;
    world.jobs_never_end = seed.is_multiple_of(2);
    for n in 0..10_u32 {
        let job = topology_job(&mut world, &format!("j{n}"));
        world.create(JOB, job);
        for _ in 0..40 + world.random_below(80) {
            world.step();
            check_host_capacity(&world, seed);
            if world.random_below(8) == 0 {
                let kind = world.random_below(19);
                apply_interference(&mut world, kind);
            }
        }
    }
    world.jobs_never_end = false;
    undo_interference(&mut world);
    let finished = (0..300).any(|_| {
        let keys: Vec<_> = world.harness.server.all(Kind::Workload).map(key_of).collect();
        for key in &keys {
            set_check_state(&mut world, key, "Ready");
        }
        recover_unused_nodes(&mut world);
        world.run_until_finished(400)
    });
    let unfinished: Vec<&Value> = world
        .harness
        .server
        .all(Kind::Workload)
        .filter(|w| condition(w, "Finished") != Some("True"))
        .collect();
    assert!(finished, "seed {seed}: did not finish: {unfinished:#?}");
    world.record_undelivered_versions();
    check_transitions(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    count_second_passes(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
}

#[test]
fn i13_second_pass_writes_only_to_live_reservations() {
    let (mut delayed, mut replaced) = (0, 0);
    for seed in seeds(400..420) {
        let (l, i) = run_history(seed, Faults::default());
        (delayed, replaced) = (delayed + l, replaced + i);
    }
    assert!(
        seeds(0..2).len() == 1 || (delayed > 20 && replaced > 10),
        "only {delayed} and {replaced} second passes"
    );
}

#[test]
fn i21_second_pass_never_double_books_under_faults() {
    for seed in seeds(500..515) {
        run_history(
            seed,
            Faults { lost_responses: 80, dropped_writes: 80, manager_kills: 4, concurrent_writes: 30 },
        );
    }
}
