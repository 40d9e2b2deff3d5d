//! Replacement of topology domains on failed nodes: which nodes are excluded, how long the old domains stay charged, and which
//! workloads stay as they are.

use super::topology::{
    ALL_NODES, HOST, PREFERRED, any_version, bind_pods, cluster_with_racks, job, job_pod, key,
    racks_with_settings, run_until, start_job, topology_assignment, ungated_hosts, unmanaged_pod,
    wait_until_ungated,
};
use super::topology::{is_admitted, workload};
use super::world::{Faults, World, condition};
use crate::fixtures::leading_core::JOB;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::JobKind;
use sluice_core::reconciler::CoreSettings;
use sluice_core::simulate::fake_api_server::key_of;
use std::collections::{BTreeMap, BTreeSet};

const TAINT: &str = "e2e.example/shaky";

/// Adds a NoExecute taint: pods that tolerate it for a time may be scheduled to the node, but must leave it.
fn add_no_execute_taint(world: &mut World, host: &str) {
    let taint = json!({"key": TAINT, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    world
        .harness
        .server
        .edit(Kind::Node, &ObjectKey::cluster(host), |node| node["spec"]["taints"] = json!([taint]));
}

fn set_node_ready(world: &mut World, host: &str, status: &str) {
    world.harness.server.edit(Kind::Node, &ObjectKey::cluster(host), |node| {
        node["status"]["conditions"][0]["status"] = json!(status);
    });
}

fn with_toleration(mut job: Value, seconds: Option<i64>) -> Value {
    let mut toleration = json!({"key": TAINT, "operator": "Exists"});
    if let Some(seconds) = seconds {
        toleration["effect"] = json!("NoExecute");
        toleration["tolerationSeconds"] = json!(seconds);
    }
    job["spec"]["template"]["spec"]["tolerations"] = json!([toleration]);
    job
}

fn lists_unhealthy_node(host: &str) -> impl Fn(&Value) -> bool {
    let expected = json!([{"name": host}]);
    move |w: &Value| w["status"]["unhealthyNodes"] == expected
}

fn is_listed_unhealthy(world: &World, job: &str, host: &str) -> bool {
    lists_unhealthy_node(host)(&workload(world, job))
}

/// Advances the simulation by this many milliseconds.
fn advance_millis(world: &mut World, milliseconds: i64) {
    let end = world.now.checked_add(SignedDuration::from_millis(milliseconds)).unwrap();
    while world.now < end {
        world.step();
    }
}

/// Pods could return to the failed node, whose taint they tolerate for a time: it is excluded from the search.
#[test]
fn failed_node_is_excluded_from_replacement() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        world.create(JOB, with_toleration(job("j", 1, &json!({})), Some(1)));
        run_until(&mut world, "it is admitted", |world| is_admitted(world, "j"));
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        add_no_execute_taint(&mut world, &host);
        assert!(world.run_until_idle(20_000), "seed {seed}: it did not settle");
        assert!(
            any_version(&mut world, "j", lists_unhealthy_node(&host)),
            "seed {seed}: the failed node was not reported"
        );
        let assignment = topology_assignment(&world, "j");
        assert!(
            !assignment.contains_key(&host) && assignment.len() == 1,
            "seed {seed}: {host} -> {assignment:?}"
        );
        assert!(is_admitted(&world, "j"));
    }
}

/// The node recovers before anything was written: the workload stays there, although no other capacity exists.
#[test]
fn workload_stays_when_node_recovers() {
    for seed in 0..8 {
        let mut world = cluster_with_racks(seed, &ALL_NODES[..1]);
        start_job(&mut world, "j", 2, &json!({}));
        wait_until_ungated(&mut world, "j");
        set_node_ready(&mut world, "a1", "False");
        run_until(&mut world, "the node is listed", |world| is_listed_unhealthy(world, "j", "a1"));
        // All writes fail until the second pass is due.
        world.faults = Faults { dropped_writes: 1000, ..Faults::default() };
        advance_millis(&mut world, 400);
        set_node_ready(&mut world, "a1", "True");
        advance_millis(&mut world, 2_000);
        world.faults = Faults::default();
        assert!(world.run_until_idle(20_000));
        assert!(workload(&world, "j")["status"]["unhealthyNodes"].is_null(), "seed {seed}");
        let evicted = any_version(&mut world, "j", |w| condition(w, "Evicted") == Some("True"));
        assert!(
            !evicted && topology_assignment(&world, "j").contains_key("a1"),
            "seed {seed}: it was evicted"
        );
    }
}

/// Where no other node has room and the gate that evicts at once is off, an event says so, and the workload keeps its place.
#[test]
fn failed_replacement_is_reported() {
    let mut settings = CoreSettings::default();
    settings.engine.gates.fail_fast = false;
    let mut world = racks_with_settings(3, &ALL_NODES[..1], &settings);
    start_job(&mut world, "j", 2, &json!({}));
    wait_until_ungated(&mut world, "j");
    set_node_ready(&mut world, "a1", "False");
    run_until(&mut world, "an event says that the pass failed", |world| {
        world.events.iter().any(|(_, reason)| reason == "SecondPassFailed")
    });
    assert!(is_admitted(&world, "j") && topology_assignment(&world, "j").contains_key("a1"));
}

/// A pod cannot move to another node: its Workload keeps the place, the node stays listed as failed, and no pass tries again.
#[test]
fn single_pods_keep_their_placement() {
    let frameworks = BTreeSet::from(["batch/job", "pod"].map(str::to_owned));
    let settings =
        CoreSettings { frameworks, added_job_kinds: [JobKind::POD].into(), ..CoreSettings::default() };
    for seed in 0..4 {
        let mut world = racks_with_settings(seed, &ALL_NODES, &settings);
        let labels = json!({"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/managed": "true"});
        let containers = json!([{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]);
        world.create(
            Kind::Pod,
            json!({
                "metadata": {"name": "p", "namespace": "ns", "labels": labels, "finalizers": ["kueue.x-k8s.io/managed"]},
                "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": containers},
                "status": {"phase": "Pending"},
            }),
        );
        run_until(&mut world, "it is admitted", |world| is_admitted(world, "p"));
        assert!(world.run_until_idle(20_000), "seed {seed}: it did not settle");
        let placed = topology_assignment(&world, "p");
        let host = placed.keys().next().unwrap();
        set_node_ready(&mut world, host, "False");
        run_until(&mut world, "the node is listed", |world| is_listed_unhealthy(world, "p", host));
        assert!(world.run_until_idle(20_000), "seed {seed}: it did not settle");
        assert!(is_admitted(&world, "p") && is_listed_unhealthy(&world, "p", host), "seed {seed}");
        assert_eq!(topology_assignment(&world, "p"), placed, "seed {seed}");
        let evicted = any_version(&mut world, "p", |w| condition(w, "Evicted") == Some("True"));
        assert!(!evicted, "seed {seed}");
        assert!(world.events.iter().all(|(_, reason)| reason != "SecondPassFailed"), "seed {seed}");
    }
}

/// Without admission there are no pods: a workload keeps its failed domain, and gets another one when it is admitted.
#[test]
fn node_replacement_waits_for_admission() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        let gate = json!({"metadata": {"name": "gate"}, "spec": {"controllerName": "example.com/gate"},
            "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        world.create(Kind::AdmissionCheck, gate);
        world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |queue| {
            queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "gate"}]});
        });
        world.create(JOB, job("j", 1, &json!({})));
        run_until(&mut world, "it waits for the check", |world| {
            workload(world, "j")["status"]["admissionChecks"][0]["state"] == "Pending"
        });
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        let id = key_of(&workload(&world, "j"));
        set_node_ready(&mut world, &host, "False");
        world
            .harness
            .server
            .edit(Kind::Workload, &id, |w| w["status"]["unhealthyNodes"] = json!([{"name": host}]));
        assert!(world.run_until_idle(20_000), "seed {seed}: it did not settle");
        let object = workload(&world, "j");
        assert!(
            topology_assignment(&world, "j").contains_key(&host) && lists_unhealthy_node(&host)(&object),
            "seed {seed}: {object}"
        );
        world
            .harness
            .server
            .edit(Kind::Workload, &id, |w| w["status"]["admissionChecks"][0]["state"] = json!("Ready"));
        assert!(world.run_until_idle(20_000), "seed {seed}: it did not settle");
        assert!(
            is_admitted(&world, "j") && !topology_assignment(&world, "j").contains_key(&host),
            "seed {seed}"
        );
    }
}

/// Pods by host of all reserving workloads, according to their objects.
fn reserved_pods_by_host(world: &World) -> BTreeMap<String, i32> {
    let mut reserved = BTreeMap::new();
    for name in ["j", "waits"] {
        let object = workload(world, name);
        if condition(&object, "QuotaReserved") == Some("True")
            && condition(&object, "Finished") != Some("True")
        {
            for (host, pods) in topology_assignment(world, name) {
                *reserved.entry(host).or_insert(0) += pods;
            }
        }
    }
    reserved
}

/// A workload waits for the node that another one leaves: it is never assigned twice, whichever write is lost.
#[test]
fn old_domain_stays_charged_until_replacement_is_written() {
    let mut lost = 0;
    for seed in 0..30 {
        let mut world = cluster_with_racks(seed, &ALL_NODES[..2]);
        world.create(JOB, with_toleration(job("j", 2, &json!({})), Some(1)));
        run_until(&mut world, "it is admitted", |world| is_admitted(world, "j"));
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        let mut waiting_job = with_toleration(job("waits", 2, &json!({})), None);
        waiting_job["spec"]["template"]["spec"]["nodeSelector"] = json!({HOST: host});
        world.create(JOB, waiting_job);
        assert!(world.run_until_idle(20_000) && !is_admitted(&world, "waits"), "seed {seed}");
        add_no_execute_taint(&mut world, &host);
        run_until(&mut world, "the node is listed", |world| is_listed_unhealthy(world, "j", &host));
        world.faults = Faults { dropped_writes: 500, ..Faults::default() };
        for _ in 0..1_000 {
            world.step();
            let reserved = reserved_pods_by_host(&world);
            assert!(reserved.values().all(|pods| *pods <= 2), "seed {seed}: {reserved:?}");
            lost += u32::from(is_listed_unhealthy(&world, "j", &host));
        }
        world.faults = Faults::default();
        run_until(&mut world, "the released node is assigned", |world| is_admitted(world, "waits"));
        assert!(
            is_admitted(&world, "j") && !topology_assignment(&world, "j").contains_key(&host),
            "seed {seed}"
        );
    }
    assert!(lost > 0, "no write was ever lost");
}

/// A replacement was found and its write was lost; before the retry, its queue is drained: it is not written.
#[test]
fn replacement_is_rechecked_before_write() {
    for seed in 0..8 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        start_job(&mut world, "j", 2, &json!({}));
        wait_until_ungated(&mut world, "j");
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        set_node_ready(&mut world, &host, "False");
        run_until(&mut world, "the node is listed", |world| is_listed_unhealthy(world, "j", &host));
        world.faults = Faults { dropped_writes: 1000, ..Faults::default() };
        advance_millis(&mut world, 2_500);
        assert!(is_listed_unhealthy(&world, "j", &host), "nothing can have been written");
        let queue = ObjectKey::cluster("q");
        world
            .harness
            .server
            .edit(Kind::ClusterQueue, &queue, |q| q["spec"]["stopPolicy"] = json!("HoldAndDrain"));
        while !world.harness.server.watch_events.is_empty() {
            world.step();
        }
        // Writes that are in flight fail too.
        advance_millis(&mut world, 600);
        world.faults = Faults::default();
        assert!(world.run_until_idle(20_000));
        let moved = any_version(&mut world, "j", |w| {
            let admission = &w["status"]["admission"];
            !admission.is_null() && !admission.to_string().contains(&host)
        });
        assert!(!moved, "seed {seed}: a replacement was written during the drain");
        assert!(condition(&workload(&world, "j"), "QuotaReserved") == Some("False"), "seed {seed}");
    }
}

/// Two workloads lose their nodes at once, and one other domain exists: one gets it, the other is evicted with the reason.
#[test]
fn last_domain_is_assigned_to_one_workload() {
    for seed in 0..8 {
        let mut world = cluster_with_racks(seed, &[("a1", "a"), ("a2", "a"), ("b1", "b")]);
        world.create(Kind::Pod, unmanaged_pod("other", "b1", "2"));
        for name in ["j", "k"] {
            start_job(&mut world, name, 2, &json!({}));
            wait_until_ungated(&mut world, name);
            bind_pods(&mut world, name);
        }
        assert!(world.run_until_idle(20_000));
        world.harness.server.delete(Kind::Pod, &key("other"), world.now);
        for host in ["a1", "a2"] {
            world.harness.server.delete(Kind::Node, &ObjectKey::cluster(host), world.now);
        }
        let is_decided = |world: &World| {
            let released = |name| condition(&workload(world, name), "QuotaReserved") == Some("False");
            let moved = |name| topology_assignment(world, name).contains_key("b1");
            (released("j") && moved("k")) || (released("k") && moved("j"))
        };
        run_until(&mut world, "one workload has the domain, and the other is evicted", is_decided);
        assert!(world.run_until_idle(20_000) && is_decided(&world), "seed {seed}");
        world.record_undelivered_versions();
        let evicted_for_node = |w: &Value| {
            let all = w["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.iter().any(|c| c["type"] == "Evicted" && c["reason"] == "NodeFailures")
        };
        let evicted: Vec<_> = world.history.iter().filter(|w| evicted_for_node(w)).map(key_of).collect();
        assert!(!evicted.is_empty() && evicted.windows(2).all(|pair| pair[0] == pair[1]), "{evicted:?}");
    }
}

/// Of two pods on a cordoned node one is replaced: the other still runs there, so the node is kept, as in Kueue, and an
/// event names it. It moves when that pod is gone as well.
#[test]
fn pod_that_waits_for_cordoned_node_is_reported_once() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        start_job(&mut world, "j", 2, &json!({PREFERRED: "rack"}));
        wait_until_ungated(&mut world, "j");
        bind_pods(&mut world, "j");
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        let cordon = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        world.harness.server.edit(Kind::Node, &ObjectKey::cluster(&host), |node| {
            node["spec"] = json!({"unschedulable": true, "taints": cordon});
        });
        assert!(world.run_until_idle(20_000));
        let reports = |world: &World| world.events.iter().filter(|(_, why)| why == "PodsStayGated").count();
        assert_eq!(reports(&world), 0, "seed {seed}: both pods run");
        world.harness.server.delete(Kind::Pod, &key("j-1"), world.now);
        let pod = job_pod(&world, "j", Some(1));
        world.create(Kind::Pod, pod);
        assert!(world.run_until_idle(20_000));
        assert_eq!(ungated_hosts(&world, "j")["j-1"], None, "seed {seed}: it stays gated");
        assert_eq!(reports(&world), 1, "seed {seed}: it is said once");
        let note = format!(
            "Pods stay gated: node {host} has the taint node.kubernetes.io/unschedulable:NoSchedule, until no pod of \
             the Workload runs there"
        );
        assert!(world.event_notes.contains(&note), "seed {seed}: {:?}", world.event_notes);
        // Steps without a change of the obstacle say nothing new.
        world
            .harness
            .server
            .edit(Kind::Pod, &key("j-0"), |pod| pod["metadata"]["labels"]["note"] = json!("x"));
        assert!(world.run_until_idle(20_000));
        assert_eq!(reports(&world), 1, "seed {seed}");
        world.harness.server.delete(Kind::Pod, &key("j-0"), world.now);
        let pod = job_pod(&world, "j", Some(0));
        world.create(Kind::Pod, pod);
        assert!(world.run_until_idle(20_000));
        assert!(ungated_hosts(&world, "j").values().all(|other| other.as_ref().is_some_and(|o| *o != host)));
        assert_eq!(reports(&world), 1, "seed {seed}");
    }
}
