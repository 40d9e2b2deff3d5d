//! I8: a flavor search whose result was taken by another workload is not over until all flavors were evaluated again.

use crate::fixtures::builders::{
    admitted_names, charge, cohort, cpu_gpu_group, cpu_workload, engine, engine_with, flavor_group, key,
    limits, pod_set, queue, run_until_idle, workload,
};
use jiff::Timestamp;
use sluice_core::scheduler::{Engine, EngineGates, EngineSettings, Outcome, Workload};

/// A workload of two pod sets: the second fits on red alone, next to the first only if that uses little red.
fn two_pod_sets(name: &str, cpu: i64, gpu: [i64; 2]) -> Workload {
    let sets = vec![
        pod_set("a", 1, &[("cpu", 0), ("gpu", gpu[0])]),
        pod_set("b", 1, &[("cpu", cpu), ("gpu", gpu[1])]),
    ];
    workload(name, "asks", 0, 0, sets)
}

/// A workload of one pod that requests gpus.
fn gpu_pod(name: &str, queue: &str, priority: i64, gpu: i64) -> Workload {
    workload(name, queue, priority, 0, vec![pod_set("main", 1, &[("cpu", 0), ("gpu", gpu)])])
}

fn engine_with_quotas(red: i64, lends: &[(&str, i64, i64)]) -> Engine {
    let mut engine = engine();
    engine.set_cohort("all", Some(cohort(None, cpu_gpu_group(&[("red", 0, red)]))));
    engine
        .set_cluster_queue("asks", Some(queue(Some("all"), cpu_gpu_group(&[("red", 5, 0), ("blue", 4, 0)]))));
    engine.set_cluster_queue("lends", Some(queue(Some("all"), cpu_gpu_group(lends))));
    engine
}

#[test]
fn second_flavor_is_retried_when_claim_ends() {
    let mut engine = engine_with_quotas(14, &[("blue", 0, 14)]);
    engine.charge(&key("holds"), charge("lends", &[("blue", "gpu", 2)]));
    engine.enqueue(gpu_pod("claims", "lends", 1, 14));
    engine.enqueue(gpu_pod("first", "lends", 2, 0));
    engine.enqueue(two_pod_sets("w", 5, [3, 12]));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["first", "w"]);
}

#[test]
fn alternative_flavor_is_used_when_first_is_taken() {
    let mut engine = engine_with_quotas(16, &[("red", 0, 0), ("blue", 0, 4)]);
    engine.enqueue(two_pod_sets("w", 0, [4, 12]));
    engine.enqueue(gpu_pod("first", "lends", 1, 1));
    assert_eq!(admitted_names(&run_until_idle(&mut engine)), ["first", "w"]);
}

/// A workload whose flavor another one has taken goes on behind it, or starts at the first flavor again.
#[test]
fn scan_goes_on_after_a_lost_race_with_fungibility_alone() {
    for (fungible, expected) in [(true, "blue"), (false, "red")] {
        let gates = EngineGates {
            flavor_fungibility: fungible,
            preserve_scan_progress: fungible,
            ..EngineGates::default()
        };
        let mut engine = engine_with(EngineSettings { gates, ..EngineSettings::default() });
        for (name, red, blue) in [("one", 0, 0), ("two", 0, 1), ("lends", 1, 0)] {
            let quotas = [limits(red, None, None), limits(blue, None, None)];
            let groups = flavor_group(&["red", "blue"], "cpu", &quotas);
            engine.set_cluster_queue(name, Some(queue(Some("all"), groups)));
        }
        engine.enqueue(cpu_workload("takes", "one", 0, 1));
        engine.enqueue(cpu_workload("loses", "two", 1, 1));
        assert_eq!(admitted_names(&engine.run_cycle(Timestamp::UNIX_EPOCH)), ["takes"]);
        engine.release(&key("takes"));
        let decisions = engine.run_cycle(Timestamp::UNIX_EPOCH);
        let flavors: Vec<String> = decisions
            .into_iter()
            .filter_map(|decision| match decision.outcome {
                Outcome::Admitted(assignment) => {
                    assignment.pod_sets[0].flavors.get("cpu").map(ToString::to_string)
                }
                _ => None,
            })
            .collect();
        assert_eq!(flavors, [expected], "fungibility: {fungible}");
    }
}
