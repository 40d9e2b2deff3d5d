//! I7 partition, I8 no lost wake-up, I9 total order, I10 determinism, I11 bounded work.

use crate::fixtures::builders;
use crate::fixtures::builders::{
    AmountRange, QUEUES, Step, apply_step, charge, config, cpu_workload, engine, key, limits, pod_set, queue,
    run_until_idle, single_flavor_group, step, tree, workload,
};
use proptest::prelude::*;
use sluice_core::api::v1beta2::{
    ClusterQueuePreemption, QueueingStrategy, ReclaimPolicy, WithinClusterQueuePolicy,
};
use sluice_core::scheduler::{ClusterQueue, Engine, PodSet, Workload};
use std::collections::BTreeSet;

/// One step of a history between cycles.
#[derive(Clone, Debug)]
enum Event {
    Config(Step),
    Enqueue(Workload),
    Forget(usize),
    /// The n-th reserving workload finishes; n is taken modulo their number.
    Finish(usize),
    Cycle,
}

fn workload_name(index: usize) -> String {
    format!("w{index}")
}

fn pod_sets() -> impl Strategy<Value = Vec<PodSet>> {
    let set = |name: &'static str| {
        (1..4_i32, 0..8_i64, 0..8_i64, prop::option::weighted(0.3, 1..3_i32)).prop_map(
            move |(count, cpu, gpu, least)| {
                let min_count = least.map(|least| least.min(count));
                PodSet { min_count, ..pod_set(name, count, &[("cpu", cpu), ("gpu", gpu)]) }
            },
        )
    };
    prop_oneof![3 => set("main").prop_map(|main| vec![main]), 1 => (set("a"), set("b")).prop_map(|(a, b)| vec![a, b])]
}

fn any_workload() -> impl Strategy<Value = Workload> {
    (0..12_usize, 0..QUEUES.len(), 0..3_i64, 0..6_i64, pod_sets()).prop_map(
        |(index, queue, priority, second, sets)| {
            workload(&workload_name(index), QUEUES[queue], priority, second, sets)
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        1 => step(AmountRange::Small).prop_map(Event::Config),
        5 => any_workload().prop_map(Event::Enqueue),
        1 => (0..12_usize).prop_map(Event::Forget),
        3 => (0..12_usize).prop_map(Event::Finish),
        3 => Just(Event::Cycle),
    ]
}

fn apply_event(engine: &mut Engine, event: &Event) {
    match event {
        Event::Config(step) => apply_step(engine, step),
        Event::Enqueue(workload) => engine.enqueue(workload.clone()),
        Event::Forget(index) => engine.remove_pending(&key(&workload_name(*index))),
        Event::Finish(index) => {
            let reserving: Vec<_> = engine.charges().map(|(key, _)| key.clone()).collect();
            if let Some(key) = reserving.get(index % reserving.len().max(1)) {
                engine.release(key);
            }
        }
        Event::Cycle => drop(engine.run_cycle(jiff::Timestamp::UNIX_EPOCH)),
    }
}

/// Configures some queues of a tree as StrictFIFO and some with preemption.
fn configure_queues(engine: &mut Engine, steps: &[Step], rules: &[(bool, bool)]) {
    for (index, (strict, any)) in rules.iter().enumerate() {
        let Some(Step::Queue(_, Some((parent, groups)))) =
            steps.iter().find(|s| matches!(s, Step::Queue(q, _) if *q == index))
        else {
            continue;
        };
        let reclaim_within_cohort = any.then_some(ReclaimPolicy::Any);
        let queue = ClusterQueue {
            strategy: if *strict { QueueingStrategy::StrictFIFO } else { QueueingStrategy::BestEffortFIFO },
            preemption: ClusterQueuePreemption { reclaim_within_cohort, ..ClusterQueuePreemption::default() },
            ..builders::queue(parent.map(|index| builders::COHORTS[index]), groups.clone())
        };
        engine.set_cluster_queue(QUEUES[index], Some(queue));
    }
}

fn start(steps: &[Step], rules: &[(bool, bool)]) -> Engine {
    let mut engine = engine();
    for step in steps {
        apply_step(&mut engine, step);
    }
    configure_queues(&mut engine, steps, rules);
    engine
}

/// Runs cycles until no work is left and no capacity is reserved. Victims finish.
fn run_until_victims_left(engine: &mut Engine) {
    run_until_idle(engine);
    while engine.reservations().next().is_some() {
        let charges = engine.charges().map(|(key, _)| key);
        let victims: Vec<_> = charges.filter(|key| engine.preemption_of(key).is_some()).cloned().collect();
        assert!(!victims.is_empty(), "capacity is reserved for nothing");
        for victim in victims {
            engine.release(&victim);
        }
        run_until_idle(engine);
    }
}

fn worlds() -> impl Strategy<Value = (Vec<Step>, Vec<(bool, bool)>)> {
    (
        tree(AmountRange::Small),
        prop::collection::vec((prop::bool::weighted(0.3), any::<bool>()), QUEUES.len()),
    )
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn i07_workload_is_counted_once_pending_or_reserving(
        world in worlds(), events in prop::collection::vec(event(), 1..60),
    ) {
        let mut engine = start(&world.0, &world.1);
        for event in &events {
            apply_event(&mut engine, event);
            for index in 0..12 {
                let key = key(&workload_name(index));
                prop_assert!(engine.workload(&key).is_none() || engine.charge_of(&key).is_none());
            }
            let pending = (0..12).filter(|index| engine.workload(&key(&workload_name(*index))).is_some()).count();
            let counted: usize = QUEUES.iter().map(|q| engine.pending(q).total()).sum();
            let listed: usize = QUEUES.iter().map(|q| engine.pending_in_order(q).len()).sum();
            prop_assert_eq!((pending, pending), (counted, listed));
            let local: usize = QUEUES.iter().map(|q| engine.local_pending(q, &key("lq")).total()).sum();
            prop_assert_eq!(local, pending);
        }
    }

    /// In BestEffortFIFO queues, where a parked workload blocks no other.
    #[test]
    fn i07_parked_workloads_count_as_inadmissible(
        steps in tree(AmountRange::Small), events in prop::collection::vec(event(), 1..60),
    ) {
        let mut engine = start(&steps, &[]);
        for event in &events {
            apply_event(&mut engine, event);
            for queue in QUEUES {
                let pending = engine.pending_in_order(queue);
                let parked = pending.iter().filter(|workload| engine.is_parked(&workload.key)).count();
                let counts = engine.pending(queue);
                prop_assert_eq!((counts.active, counts.inadmissible), (pending.len() - parked, parked));
                prop_assert_eq!(engine.local_pending(queue, &key("lq")), counts);
            }
        }
    }

    /// A fresh engine built from the final state admits no parked workload, alone beside the heads of the StrictFIFO queues.
    /// Victims have left by then: a fresh engine does not know what is reserved for their preemptors.
    #[test]
    fn i08_fresh_engine_admits_no_parked_workload(world in worlds(), events in prop::collection::vec(event(), 1..50)) {
        let events: Vec<Event> = events.into_iter().filter(|e| !matches!(e, Event::Config(_))).collect();
        let mut engine = start(&world.0, &world.1);
        for event in &events {
            apply_event(&mut engine, event);
        }
        run_until_victims_left(&mut engine);
        let strict_heads = || QUEUES.iter().zip(&world.1).filter(|(_, rule)| rule.0);
        let strict_heads: Vec<&Workload> =
            strict_heads().filter_map(|(q, _)| engine.pending_in_order(q).first().copied()).collect();
        for (index, queue) in QUEUES.iter().enumerate() {
            for pending in engine.pending_in_order(queue) {
                if world.1[index].0 && !strict_heads.contains(&pending) {
                    continue;
                }
                let mut fresh = start(&world.0, &world.1);
                for (key, charge) in engine.charges() {
                    fresh.charge(key, charge.clone());
                }
                for head in &strict_heads {
                    fresh.enqueue((*head).clone());
                }
                fresh.enqueue(pending.clone());
                let decisions = run_until_idle(&mut fresh);
                prop_assert_eq!(builders::admitted_names(&decisions), Vec::<String>::new(), "{} is pending", pending.key);
            }
        }
    }

    #[test]
    fn i08_config_change_wakes_admissible_workloads(world in worlds(), events in prop::collection::vec(event(), 1..50)) {
        let mut engine = start(&world.0, &[]);
        let mut config = world.0.clone();
        for event in &events {
            apply_event(&mut engine, event);
            if let Event::Config(step) = event && !matches!(step, Step::Charge(..) | Step::Release(_)) {
                config.push(step.clone());
            }
        }
        run_until_idle(&mut engine);
        for pending in QUEUES.iter().flat_map(|queue| engine.pending_in_order(queue)) {
            let mut fresh = start(&config, &[]);
            for (key, charge) in engine.charges() {
                fresh.charge(key, charge.clone());
            }
            fresh.enqueue(pending.clone());
            let decisions = run_until_idle(&mut fresh);
            prop_assert_eq!(builders::admitted_names(&decisions), Vec::<String>::new(), "{} is pending", pending.key);
        }
    }

    #[test]
    fn i09_order_is_independent_of_arrival(
        world in worlds(), arrivals in prop::collection::vec(any_workload(), 1..20).prop_shuffle(),
    ) {
        let mut workloads: std::collections::BTreeMap<_, _> = arrivals.iter().map(|w| (w.key.clone(), w.clone())).collect();
        let (mut in_order, mut by_key) = (start(&world.0, &world.1), start(&world.0, &world.1));
        for workload in &arrivals {
            in_order.enqueue(workload.clone());
        }
        while let Some((_, workload)) = workloads.pop_last() {
            by_key.enqueue(workload);
        }
        for queue in QUEUES {
            prop_assert_eq!(in_order.pending_in_order(queue), by_key.pending_in_order(queue));
        }
        prop_assert_eq!(run_until_idle(&mut in_order), run_until_idle(&mut by_key));
    }

    #[test]
    fn i10_same_events_give_same_decisions(world in worlds(), events in prop::collection::vec(event(), 1..50)) {
        let run = || {
            let mut engine = start(&world.0, &world.1);
            for event in &events {
                apply_event(&mut engine, event);
            }
            let decisions = run_until_idle(&mut engine);
            (format!("{decisions:?}"), engine.take_message_updates(100))
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn i11_settled_engine_is_idle_with_verdicts(
        world in worlds(), events in prop::collection::vec(event(), 1..50),
    ) {
        let mut engine = start(&world.0, &world.1);
        let mut published = BTreeSet::new();
        for event in &events {
            // A workload that is created or changed has no condition yet.
            if let Event::Enqueue(workload) = event
                && engine.workload(&workload.key) != Some(workload)
            {
                published.remove(&workload.key);
            }
            if let Event::Cycle = event {
                let decisions = engine.run_cycle(jiff::Timestamp::UNIX_EPOCH);
                published.extend(decisions.into_iter().map(|decision| decision.key));
            } else {
                apply_event(&mut engine, event);
            }
        }
        published.extend(run_until_idle(&mut engine).into_iter().map(|decision| decision.key));
        published.extend(engine.take_message_updates(usize::MAX));
        prop_assert!(!engine.has_work());
        prop_assert_eq!(engine.run_cycle(jiff::Timestamp::UNIX_EPOCH).len(), 0);
        for queue in QUEUES {
            for workload in engine.pending_in_order(queue) {
                prop_assert!(engine.verdict(&workload.key).is_some(), "{} has no pending reason", workload.key);
                // The reason of an inactive ClusterQueue is published by the steps of its workloads.
                let active = engine.cluster_queues().any(|name| **name == *queue)
                    && engine.inactive_reason(queue).is_none();
                prop_assert!(
                    !active || published.contains(&workload.key),
                    "the reason of {} is not published",
                    workload.key
                );
            }
        }
    }
}

/// I11: wake conditions that no longer apply do not wake. A workload that may preempt is retried at every release; once its
/// queue forbids preemption, only when enough capacity is available.
#[test]
fn removed_wake_condition_does_not_wake() {
    let mut engine = engine();
    let set_policy = |engine: &mut Engine, policy| {
        let within_cluster_queue = Some(policy);
        let preemption = ClusterQueuePreemption { within_cluster_queue, ..ClusterQueuePreemption::default() };
        let base = queue(None, single_flavor_group("red", "cpu", limits(4, None, None)));
        engine.set_cluster_queue("q", Some(ClusterQueue { preemption, ..base }));
    };
    set_policy(&mut engine, WithinClusterQueuePolicy::LowerPriority);
    for (name, amount) in [("a", 1), ("b", 1), ("c", 2)] {
        engine.charge(&key(name), charge("q", &[("red", "cpu", amount)]));
    }
    engine.enqueue(cpu_workload("w", "q", 0, 4));
    run_until_idle(&mut engine);
    engine.release(&key("a"));
    assert!(engine.has_work(), "the release may make preemption possible");
    run_until_idle(&mut engine);
    set_policy(&mut engine, WithinClusterQueuePolicy::Never);
    run_until_idle(&mut engine);
    engine.release(&key("b"));
    assert!(!engine.has_work(), "capacity is still insufficient");
    engine.release(&key("c"));
    assert!(engine.has_work());
}
