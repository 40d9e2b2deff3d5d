//! Places instead of those on a node that has failed: which nodes are none, whom the old ones belong to until the new ones
//! are written, and who is left alone.

use super::topology::{
    ALL_NODES, HOST, any_version, bind_pods, cluster_with_racks, job, key, run_until, start_job,
    topology_assignment, unmanaged_pod, wait_until_ungated,
};
use super::topology::{is_admitted, workload};
use super::world::{Faults, World, condition};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::simulate::fake_api_server::key_of;
use sluice::state::Kind;
use std::collections::BTreeMap;

const TAINT: &str = "e2e.example/shaky";

/// A node that pods may come to, and must leave at once.
fn add_no_execute_taint(world: &mut World, host: &str) {
    let taint = json!({"key": TAINT, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
    world.server.edit(Kind::Node, &ObjectKey::cluster(host), |node| node["spec"]["taints"] = json!([taint]));
}

fn set_node_ready(world: &mut World, host: &str, status: &str) {
    world.server.edit(Kind::Node, &ObjectKey::cluster(host), |node| {
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
    let want = json!([{"name": host}]);
    move |w: &Value| w["status"]["unhealthyNodes"] == want
}

fn is_listed_unhealthy(world: &World, job: &str, host: &str) -> bool {
    lists_unhealthy_node(host)(&workload(world, job))
}

/// Lets so many milliseconds pass.
fn advance_millis(world: &mut World, milliseconds: i64) {
    let end = world.now.checked_add(SignedDuration::from_millis(milliseconds)).unwrap();
    while world.now < end {
        world.step();
    }
}

/// Pods could go back to the node, whose taint they tolerate for a while: it is none of the places that are looked at.
#[test]
fn failed_node_is_excluded_from_replacement() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        world.create(Kind::Job(0), with_toleration(job("j", 1, &json!({})), Some(1)));
        run_until(&mut world, "it is admitted", |world| is_admitted(world, "j"));
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        add_no_execute_taint(&mut world, &host);
        assert!(world.run_until_idle(20_000), "seed {seed}: it goes round in circles");
        assert!(any_version(&mut world, "j", lists_unhealthy_node(&host)), "seed {seed}: nobody was told");
        let now = topology_assignment(&world, "j");
        assert!(!now.contains_key(&host) && now.len() == 1, "seed {seed}: {host} -> {now:?}");
        assert!(is_admitted(&world, "j"));
    }
}

/// Its node is well again before anything was written: it stays there, although there is no other room.
#[test]
fn workload_stays_when_node_recovers() {
    for seed in 0..8 {
        let mut world = cluster_with_racks(seed, &ALL_NODES[..1]);
        start_job(&mut world, "j", 2, &json!({}));
        wait_until_ungated(&mut world, "j");
        set_node_ready(&mut world, "a1", "False");
        run_until(&mut world, "the node is listed", |world| is_listed_unhealthy(world, "j", "a1"));
        // No write lands until the pass is due.
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

/// Before it is admitted nothing of it can be on a node: it keeps its place, and is given another when it is admitted.
#[test]
fn node_replacement_waits_for_admission() {
    for seed in 0..4 {
        let mut world = cluster_with_racks(seed, &ALL_NODES);
        let gate = json!({"metadata": {"name": "gate"}, "spec": {"controllerName": "example.com/gate"},
            "status": {"conditions": [{"type": "Active", "status": "True", "reason": "Active", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        world.create(Kind::AdmissionCheck, gate);
        world.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("q"), |queue| {
            queue["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "gate"}]});
        });
        world.create(Kind::Job(0), job("j", 1, &json!({})));
        run_until(&mut world, "it waits for the check", |world| {
            workload(world, "j")["status"]["admissionChecks"][0]["state"] == "Pending"
        });
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        let id = key_of(&workload(&world, "j"));
        set_node_ready(&mut world, &host, "False");
        world.server.edit(Kind::Workload, &id, |w| w["status"]["unhealthyNodes"] = json!([{"name": host}]));
        assert!(world.run_until_idle(20_000), "seed {seed}: it goes round in circles");
        let waits = workload(&world, "j");
        assert!(
            topology_assignment(&world, "j").contains_key(&host) && lists_unhealthy_node(&host)(&waits),
            "seed {seed}: {waits}"
        );
        world
            .server
            .edit(Kind::Workload, &id, |w| w["status"]["admissionChecks"][0]["state"] = json!("Ready"));
        assert!(world.run_until_idle(20_000), "seed {seed}: it goes round in circles");
        assert!(
            is_admitted(&world, "j") && !topology_assignment(&world, "j").contains_key(&host),
            "seed {seed}"
        );
    }
}

/// Pods by host of all who hold quota, as their objects say.
fn reserved_pods_by_host(world: &World) -> BTreeMap<String, i32> {
    let mut taken = BTreeMap::new();
    for name in ["j", "waits"] {
        let found = workload(world, name);
        if condition(&found, "QuotaReserved") == Some("True") && condition(&found, "Finished") != Some("True")
        {
            for (host, pods) in topology_assignment(world, name) {
                *taken.entry(host).or_insert(0) += pods;
            }
        }
    }
    taken
}

/// Somebody waits for the very node that another is leaving: it is not given twice, whichever write is lost.
#[test]
fn old_domain_stays_charged_until_replacement_is_written() {
    let mut lost = 0;
    for seed in 0..30 {
        let mut world = cluster_with_racks(seed, &ALL_NODES[..2]);
        world.create(Kind::Job(0), with_toleration(job("j", 2, &json!({})), Some(1)));
        run_until(&mut world, "it is admitted", |world| is_admitted(world, "j"));
        let host = topology_assignment(&world, "j").into_keys().next().unwrap();
        let mut waits = with_toleration(job("waits", 2, &json!({})), None);
        waits["spec"]["template"]["spec"]["nodeSelector"] = json!({HOST: host});
        world.create(Kind::Job(0), waits);
        assert!(world.run_until_idle(20_000) && !is_admitted(&world, "waits"), "seed {seed}");
        add_no_execute_taint(&mut world, &host);
        run_until(&mut world, "the node is listed", |world| is_listed_unhealthy(world, "j", &host));
        world.faults = Faults { dropped_writes: 500, ..Faults::default() };
        for _ in 0..1_000 {
            world.step();
            let taken = reserved_pods_by_host(&world);
            assert!(taken.values().all(|pods| *pods <= 2), "seed {seed}: {taken:?}");
            lost += u32::from(is_listed_unhealthy(&world, "j", &host));
        }
        world.faults = Faults::default();
        run_until(&mut world, "it is found when it is left", |world| is_admitted(world, "waits"));
        assert!(
            is_admitted(&world, "j") && !topology_assignment(&world, "j").contains_key(&host),
            "seed {seed}"
        );
    }
    assert!(lost > 0, "no write was ever lost");
}

/// Places were found and their write was lost; before it is sent again, its queue is drained: it is not sent.
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
        world.server.edit(Kind::ClusterQueue, &queue, |q| q["spec"]["stopPolicy"] = json!("HoldAndDrain"));
        while !world.server.watch_events.is_empty() {
            world.step();
        }
        // What is on its way does not arrive either.
        advance_millis(&mut world, 600);
        world.faults = Faults::default();
        assert!(world.run_until_idle(20_000));
        let moved = any_version(&mut world, "j", |w| {
            let admission = &w["status"]["admission"];
            !admission.is_null() && !admission.to_string().contains(&host)
        });
        assert!(!moved, "seed {seed}: it was given places while it goes");
        assert!(condition(&workload(&world, "j"), "QuotaReserved") == Some("False"), "seed {seed}");
    }
}

/// Two lose their nodes at once, and there is one other place: one has it, the other is evicted and told why.
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
        world.server.delete(Kind::Pod, &key("other"), world.now);
        for host in ["a1", "a2"] {
            world.server.delete(Kind::Node, &ObjectKey::cluster(host), world.now);
        }
        let over = |world: &World| {
            let gone = |name| condition(&workload(world, name), "QuotaReserved") == Some("False");
            let moved = |name| topology_assignment(world, name).contains_key("b1");
            (gone("j") && moved("k")) || (gone("k") && moved("j"))
        };
        run_until(&mut world, "one has the place, and the other none", over);
        assert!(world.run_until_idle(20_000) && over(&world), "seed {seed}");
        world.record_undelivered_versions();
        let told = |w: &Value| {
            let all = w["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.iter().any(|c| c["type"] == "Evicted" && c["reason"] == "NodeFailures")
        };
        let evicted: Vec<_> = world.history.iter().filter(|w| told(w)).map(key_of).collect();
        assert!(!evicted.is_empty() && evicted.windows(2).all(|pair| pair[0] == pair[1]), "{evicted:?}");
    }
}
