//! A search over flavors that had found something which somebody else took: it is not over before all flavors were looked at as
//! they are then (I8).

use super::world::{admitted, both, charge, cohort, engine, key, pods, queue, settle, workload};
use sluice::scheduler::{Engine, Workload};

/// A workload of two pod sets, the second of which fits on red alone, and there beside the first only if nobody takes any.
fn two_sets(name: &str, cpu: i64, gpu: [i64; 2]) -> Workload {
    let sets =
        vec![pods("a", 1, &[("cpu", 0), ("gpu", gpu[0])]), pods("b", 1, &[("cpu", cpu), ("gpu", gpu[1])])];
    workload(name, "asks", 0, 0, sets)
}

/// One pod that asks for gpus.
fn one_set(name: &str, queue: &str, priority: i64, gpu: i64) -> Workload {
    workload(name, queue, priority, 0, vec![pods("main", 1, &[("cpu", 0), ("gpu", gpu)])])
}

fn made(red: i64, lends: &[(&str, i64, i64)]) -> Engine {
    let mut engine = engine();
    engine.set_cohort("all", Some(cohort(None, both(&[("red", 0, red)]))));
    engine.set_cluster_queue("asks", Some(queue(Some("all"), both(&[("red", 5, 0), ("blue", 4, 0)]))));
    engine.set_cluster_queue("lends", Some(queue(Some("all"), both(lends))));
    engine
}

#[test]
fn one_whose_second_choice_was_kept_from_it_gets_it_when_it_is_not_any_more() {
    let mut engine = made(14, &[("blue", 0, 14)]);
    engine.charge(&key("holds"), charge("lends", &[("blue", "gpu", 2)]));
    engine.enqueue(one_set("claims", "lends", 1, 14));
    engine.enqueue(one_set("first", "lends", 2, 0));
    engine.enqueue(two_sets("w", 5, [3, 12]));
    assert_eq!(admitted(&settle(&mut engine)), ["first", "w"]);
}

#[test]
fn one_whose_first_choice_somebody_took_gets_another() {
    let mut engine = made(16, &[("red", 0, 0), ("blue", 0, 4)]);
    engine.enqueue(two_sets("w", 0, [4, 12]));
    engine.enqueue(one_set("first", "lends", 1, 1));
    assert_eq!(admitted(&settle(&mut engine)), ["first", "w"]);
}
