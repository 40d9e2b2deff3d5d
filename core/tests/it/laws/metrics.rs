//! Scheduler metrics: overlapping preemption targets and equivalence hashes.

use crate::fixtures::builders::{
    charge, config, cpu_workload, engine_with, key, limits, pod_set, queue, single_flavor_group, workload,
};
use jiff::Timestamp;
use proptest::prelude::*;
use sluice_core::api::v1beta2::{ClusterQueuePreemption, ReclaimPolicy};
use sluice_core::scheduler::{
    ClusterQueue, Engine, EngineGates, EngineSettings, PendingCounts, Recomputation, Workload,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Queues `a` and `b` own one CPU each, which workloads of `c` borrow and `a` and `b` may reclaim.
fn borrowed_quota_engine(recompute_on_overlap: bool, borrowed: &[(&str, i64)]) -> Engine {
    let gates = EngineGates { recompute_on_overlap, ..EngineGates::default() };
    let mut engine = engine_with(EngineSettings { gates, ..EngineSettings::default() });
    let reclaim_within_cohort = Some(ReclaimPolicy::Any);
    let preemption = ClusterQueuePreemption { reclaim_within_cohort, ..ClusterQueuePreemption::default() };
    for (name, nominal) in [("a", 1), ("b", 1), ("c", 0)] {
        let base = queue(Some("all"), single_flavor_group("red", "cpu", limits(nominal, None, None)));
        engine.set_cluster_queue(name, Some(ClusterQueue { preemption: preemption.clone(), ..base }));
    }
    for (name, amount) in borrowed {
        engine.charge(&key(name), charge("c", &[("red", "cpu", *amount)]));
    }
    for (second, name) in (0..).zip(["a", "b"]) {
        engine.enqueue(cpu_workload(&format!("of-{name}"), name, second, 1));
    }
    engine
}

fn preemption_skips(engine: &Engine) -> [Option<usize>; 3] {
    ["a", "b", "c"].map(|name| engine.preemption_skips(name))
}

#[test]
fn overlapping_targets_are_recomputed_and_counted() {
    let two = [("x", 1), ("y", 1)];
    for (borrowed, result) in
        [(&two[..], Recomputation::NewTargets), (&[("x", 2)], Recomputation::DeferredFit)]
    {
        let mut engine = borrowed_quota_engine(true, borrowed);
        engine.run_cycle(Timestamp::UNIX_EPOCH);
        assert_eq!(engine.take_recomputations(), [(Arc::from("b"), result)]);
        assert_eq!(engine.take_recomputations(), [], "it is reported once");
        assert_eq!(preemption_skips(&engine), [None; 3]);
    }
}

#[test]
fn preemptor_is_skipped_when_recomputation_is_disabled() {
    let mut engine = borrowed_quota_engine(false, &[("x", 2)]);
    engine.run_cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(engine.take_recomputations(), []);
    assert_eq!(preemption_skips(&engine), [None, Some(1), None]);
    engine.release(&key("x"));
    engine.run_cycle(Timestamp::UNIX_EPOCH);
    assert_eq!(preemption_skips(&engine), [None, Some(1), None], "the count stays until the next skip");
    engine.set_cluster_queue("b", None);
    assert_eq!(preemption_skips(&engine), [None; 3]);
}

#[derive(Clone, Debug)]
enum Event {
    Enqueue { name: u8, amount: i64, priority: i64, local_queue: bool },
    Remove(u8),
    Cycle,
    Quota(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..12_u8, 1..4_i64, 0..2_i64, any::<bool>()).prop_map(
            |(name, amount, priority, local_queue)| Event::Enqueue { name, amount, priority, local_queue }
        ),
        2 => (0..12_u8).prop_map(Event::Remove),
        2 => Just(Event::Cycle),
        1 => (0..4_i64).prop_map(Event::Quota),
    ]
}

fn apply_event(engine: &mut Engine, event: &Event) {
    match event {
        Event::Enqueue { name, amount, priority, local_queue } => {
            let sets = vec![pod_set("main", 1, &[("cpu", *amount)])];
            let local_queue = Arc::from(if *local_queue { "lq" } else { "other" });
            let name = format!("w{name}");
            engine.enqueue(Workload { local_queue, ..workload(&name, "q", *priority, 0, sets) });
        }
        Event::Remove(name) => {
            let name = key(&format!("w{name}"));
            engine.release(&name);
            engine.remove_pending(&name);
        }
        Event::Cycle => drop(engine.run_cycle(Timestamp::UNIX_EPOCH)),
        Event::Quota(quota) => {
            engine.set_cluster_queue(
                "q",
                Some(queue(None, single_flavor_group("red", "cpu", limits(*quota, None, None)))),
            );
        }
    }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn pending_hash_counts_match_recount(events in proptest::collection::vec(event(), 1..40)) {
        let mut engine = engine_with(EngineSettings::default());
        apply_event(&mut engine, &Event::Quota(2));
        for event in &events {
            apply_event(&mut engine, event);
            let all = engine.pending_in_order("q");
            let hashes = |parked: bool| {
                let selected = all.iter().filter(|workload| engine.is_parked(&workload.key) == parked);
                selected.map(|workload| (workload.priority, workload.pod_sets[0].requests.clone())).collect::<BTreeSet<_>>()
            };
            let expected = PendingCounts { active: hashes(false).len(), inadmissible: hashes(true).len() };
            prop_assert_eq!(engine.pending_hashes("q"), expected, "after {:?}", event);
        }
        engine.set_cluster_queue("q", None);
        let all: BTreeSet<_> = engine.pending_in_order("q").iter()
            .map(|workload| (workload.priority, workload.pod_sets[0].requests.clone())).collect();
        prop_assert_eq!(engine.pending_hashes("q"), PendingCounts { active: 0, inadmissible: all.len() });
    }
}
