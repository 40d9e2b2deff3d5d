//! Equivalence classes: which workloads share one, and what is decided for its head.

use crate::fixtures::builders::{
    admitted_names, cohort, cpu_workload, engine, flavor_group, key, limits, pod_set, queue, run_until_idle,
    single_flavor_group, workload,
};
use jiff::Timestamp;
use sluice_core::scheduler::{Engine, Flavor, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn local_queue_does_not_split_equivalence_class() {
    let mut engine = engine();
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "cpu", limits(1, None, None)))));
    for (second, local) in (0..).zip(["a", "b", "c"]) {
        engine.enqueue(Workload { local_queue: Arc::from(local), ..cpu_workload(local, "q", second, 2) });
    }
    assert_eq!(run_until_idle(&mut engine).len(), 1);
    assert_eq!(engine.take_message_updates(9), [key("b"), key("c")]);
}

#[test]
fn different_resources_split_equivalence_class() {
    let mut engine = engine();
    let groups = [
        single_flavor_group("red", "cpu", limits(1, None, None)),
        single_flavor_group("blue", "gpu", limits(2, None, None)),
    ];
    engine.set_cluster_queue("q", Some(queue(None, groups.concat())));
    for (second, (name, resource)) in (0..).zip([("w", "cpu"), ("v", "gpu")]) {
        engine.enqueue(workload(name, "q", 0, second, vec![pod_set("main", 1, &[(resource, 2)])]));
    }
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["v"]);
}

#[test]
fn different_node_selectors_split_equivalence_class() {
    let mut engine = engine();
    let labels = |disk: &str| BTreeMap::from([("disk".to_owned(), disk.to_owned())]);
    engine.set_flavor("red", Some(Flavor { node_labels: labels("ssd"), ..Flavor::default() }));
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "cpu", limits(2, None, None)))));
    for (second, (name, disk)) in (0..).zip([("w", "hdd"), ("v", "ssd")]) {
        let mut set = pod_set("main", 1, &[("cpu", 2)]);
        Arc::make_mut(&mut set.pod_requirements).node_selector = labels(disk);
        engine.enqueue(workload(name, "q", 0, second, vec![set]));
    }
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["v"]);
}

#[test]
fn unchanged_workload_stays_parked_when_enqueued_again() {
    let mut engine = engine();
    engine
        .set_cluster_queue("q", Some(queue(None, single_flavor_group("red", "cpu", limits(1, None, None)))));
    engine.enqueue(cpu_workload("w", "q", 0, 2));
    assert!(!engine.is_parked(&key("w")));
    run_until_idle(&mut engine);
    engine.enqueue(cpu_workload("w", "q", 0, 2));
    assert!(engine.is_parked(&key("w")) && !engine.has_work());
    engine.enqueue(Workload { uid: Arc::from("recreated"), ..cpu_workload("w", "q", 0, 2) });
    assert_eq!(run_until_idle(&mut engine).first().map(|decision| &*decision.uid), Some("recreated"));
}

#[test]
fn take_message_updates_respects_limit() {
    let mut engine = engine();
    for name in ["q", "r"] {
        engine.set_cluster_queue(
            name,
            Some(queue(None, single_flavor_group("red", "cpu", limits(1, None, None)))),
        );
        for n in 0..3 {
            engine.enqueue(cpu_workload(&format!("{name}{n}"), name, n, 2));
        }
    }
    run_until_idle(&mut engine);
    assert_eq!(engine.take_message_updates(3).len(), 3);
    assert_eq!(engine.take_message_updates(3).len(), 1);
}

/// A workload that joins a parked class gets its message, unless it moves to another class first: there, nothing was evaluated
/// yet. Class numbers are per queue, so the first class of one queue has the number of the first class of another.
#[test]
fn moved_workload_skips_stale_message_update() {
    for (queue_after, amount_after) in [("r", 2), ("q", 1)] {
        let mut engine = engine();
        for name in ["q", "r"] {
            engine.set_cluster_queue(
                name,
                Some(queue(None, single_flavor_group("red", "cpu", limits(1, None, None)))),
            );
        }
        engine.enqueue(cpu_workload("first", "q", 0, 2));
        run_until_idle(&mut engine);
        engine.enqueue(cpu_workload("w", "q", 1, 2));
        assert!(engine.has_message_updates(), "it is parked with the first");
        engine.enqueue(cpu_workload("w", queue_after, 1, amount_after));
        assert_eq!(engine.take_message_updates(9), []);
    }
}

/// Of two equivalent workloads of a queue, the first was nominated with red, lost it to another queue and continues with blue.
fn engine_after_lost_flavor_race() -> Engine {
    let mut engine = engine();
    engine.set_cohort("all", Some(cohort(None, single_flavor_group("red", "cpu", limits(2, None, None)))));
    engine.set_cluster_queue(
        "other",
        Some(queue(Some("all"), single_flavor_group("red", "cpu", limits(0, None, None)))),
    );
    let quotas = [limits(0, None, None), limits(2, None, None)];
    engine.set_cluster_queue("q", Some(queue(Some("all"), flavor_group(&["red", "blue"], "cpu", &quotas))));
    for (second, (name, cluster_queue)) in (0..).zip([("fast", "other"), ("slow", "q"), ("next", "q")]) {
        engine.enqueue(cpu_workload(name, cluster_queue, second, 2));
    }
    assert_eq!(admitted_names(&engine.run_cycle(Timestamp::UNIX_EPOCH)), ["fast"]);
    engine
}

fn charged_flavor(engine: &Engine, name: &str) -> Option<String> {
    engine.charge_of(&key(name))?.usage.keys().next().map(|fr| fr.flavor.to_string())
}

#[test]
fn lost_flavor_race_resumes_with_next_flavor() {
    let mut engine = engine_after_lost_flavor_race();
    engine.release(&key("fast"));
    engine.run_cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(charged_flavor(&engine, "slow").as_deref(), Some("blue"));
}

#[test]
fn next_class_member_restarts_flavor_scan() {
    let mut engine = engine_after_lost_flavor_race();
    engine.remove_pending(&key("slow"));
    engine.release(&key("fast"));
    engine.run_cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(charged_flavor(&engine, "next").as_deref(), Some("red"));
}

#[test]
fn flavor_scan_restarts_when_quota_changes() {
    for (nominal, expected) in [(2, "blue"), (4, "red")] {
        let mut engine = engine_after_lost_flavor_race();
        engine.set_cohort(
            "all",
            Some(cohort(None, single_flavor_group("red", "cpu", limits(nominal, None, None)))),
        );
        engine.run_cycle_limited(0, Timestamp::UNIX_EPOCH);
        engine.run_cycle(Timestamp::UNIX_EPOCH);
        assert_eq!(charged_flavor(&engine, "slow").as_deref(), Some(expected));
    }
}
