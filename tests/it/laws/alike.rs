//! Workloads that are judged alike: who is, who is not, and what is found for the first of them.

use super::world::{admitted, cohort, cpu, engine, key, limits, many, one, pods, queue, settle, workload};
use jiff::Timestamp;
use sluice::scheduler::{Engine, Flavor, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

#[test]
fn those_who_differ_only_in_their_local_queue_are_judged_once() {
    let mut engine = engine();
    engine.set_cluster_queue("q", Some(queue(None, one("red", "cpu", limits(1, None, None)))));
    for (second, local) in (0..).zip(["a", "b", "c"]) {
        engine.enqueue(Workload { local_queue: Arc::from(local), ..cpu(local, "q", second, 2) });
    }
    assert_eq!(settle(&mut engine).len(), 1);
    assert_eq!(engine.take_explained(9), [key("b"), key("c")]);
}

#[test]
fn workloads_that_ask_for_as_much_of_other_resources_are_judged_apart() {
    let mut engine = engine();
    let groups = [one("red", "cpu", limits(1, None, None)), one("blue", "gpu", limits(2, None, None))];
    engine.set_cluster_queue("q", Some(queue(None, groups.concat())));
    for (second, (name, resource)) in (0..).zip([("w", "cpu"), ("v", "gpu")]) {
        engine.enqueue(workload(name, "q", 0, second, vec![pods("main", 1, &[(resource, 2)])]));
    }
    assert_eq!(admitted(&settle(&mut engine)), ["v"]);
}

#[test]
fn workloads_that_may_go_to_different_nodes_are_judged_apart() {
    let mut engine = engine();
    let labels = |disk: &str| BTreeMap::from([("disk".to_owned(), disk.to_owned())]);
    engine.set_flavor("red", Some(Flavor { node_labels: labels("ssd"), ..Flavor::default() }));
    engine.set_cluster_queue("q", Some(queue(None, one("red", "cpu", limits(2, None, None)))));
    for (second, (name, disk)) in (0..).zip([("w", "hdd"), ("v", "ssd")]) {
        let mut set = pods("main", 1, &[("cpu", 2)]);
        Arc::make_mut(&mut set.pods).node_selector = labels(disk);
        engine.enqueue(workload(name, "q", 0, second, vec![set]));
    }
    assert_eq!(admitted(&settle(&mut engine)), ["v"]);
}

#[test]
fn one_that_is_enqueued_again_as_it_is_waits_on() {
    let mut engine = engine();
    engine.set_cluster_queue("q", Some(queue(None, one("red", "cpu", limits(1, None, None)))));
    engine.enqueue(cpu("w", "q", 0, 2));
    assert!(!engine.is_parked(&key("w")));
    settle(&mut engine);
    engine.enqueue(cpu("w", "q", 0, 2));
    assert!(engine.is_parked(&key("w")) && !engine.has_work());
    engine.enqueue(Workload { uid: Arc::from("made anew"), ..cpu("w", "q", 0, 2) });
    assert_eq!(settle(&mut engine).first().map(|decision| &*decision.uid), Some("made anew"));
}

#[test]
fn no_more_are_told_at_a_time_than_asked_for() {
    let mut engine = engine();
    for at in ["q", "r"] {
        engine.set_cluster_queue(at, Some(queue(None, one("red", "cpu", limits(1, None, None)))));
        for n in 0..3 {
            engine.enqueue(cpu(&format!("{at}{n}"), at, n, 2));
        }
    }
    settle(&mut engine);
    assert_eq!(engine.take_explained(3).len(), 3);
    assert_eq!(engine.take_explained(3).len(), 1);
}

/// Who joins those that wait is told what they were told, unless it has gone elsewhere meanwhile: in the new place nothing was
/// found out yet. Classes are numbered in each queue, so that the first of one has the number of the first of another.
#[test]
fn who_has_moved_on_is_not_told_what_was_said_to_those_it_left() {
    for (queue_after, amount_after) in [("r", 2), ("q", 1)] {
        let mut engine = engine();
        for at in ["q", "r"] {
            engine.set_cluster_queue(at, Some(queue(None, one("red", "cpu", limits(1, None, None)))));
        }
        engine.enqueue(cpu("first", "q", 0, 2));
        settle(&mut engine);
        engine.enqueue(cpu("w", "q", 1, 2));
        assert!(engine.has_news(), "it waits with the first");
        engine.enqueue(cpu("w", queue_after, 1, amount_after));
        assert_eq!(engine.take_explained(9), []);
    }
}

/// Of two like workloads of a queue the first found red, lost it to another queue, and is to go on with blue.
fn beaten_to_red() -> Engine {
    let mut engine = engine();
    engine.set_cohort("all", Some(cohort(None, one("red", "cpu", limits(2, None, None)))));
    engine.set_cluster_queue("other", Some(queue(Some("all"), one("red", "cpu", limits(0, None, None)))));
    let quotas = [limits(0, None, None), limits(2, None, None)];
    engine.set_cluster_queue("q", Some(queue(Some("all"), many(&["red", "blue"], "cpu", &quotas))));
    for (second, (name, at)) in (0..).zip([("fast", "other"), ("slow", "q"), ("next", "q")]) {
        engine.enqueue(cpu(name, at, second, 2));
    }
    assert_eq!(admitted(&engine.cycle(Timestamp::UNIX_EPOCH)), ["fast"]);
    engine
}

fn flavor_of(engine: &Engine, name: &str) -> Option<String> {
    engine.charge_of(&key(name))?.usage.keys().next().map(|pair| pair.flavor.to_string())
}

#[test]
fn one_that_lost_a_flavor_goes_on_with_the_next() {
    let mut engine = beaten_to_red();
    engine.release(&key("fast"));
    engine.cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(flavor_of(&engine, "slow").as_deref(), Some("blue"));
}

#[test]
fn the_next_of_a_class_begins_with_the_first_flavor() {
    let mut engine = beaten_to_red();
    engine.forget(&key("slow"));
    engine.release(&key("fast"));
    engine.cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(flavor_of(&engine, "next").as_deref(), Some("red"));
}

#[test]
fn a_search_that_missed_a_cycle_goes_on_only_where_quotas_are_the_same() {
    for (more, expected) in [(2, "blue"), (4, "red")] {
        let mut engine = beaten_to_red();
        engine.set_cohort("all", Some(cohort(None, one("red", "cpu", limits(more, None, None)))));
        engine.cycle_of(0, Timestamp::UNIX_EPOCH);
        engine.cycle(Timestamp::UNIX_EPOCH);
        assert_eq!(flavor_of(&engine, "slow").as_deref(), Some(expected));
    }
}
