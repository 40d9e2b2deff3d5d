//! Queues deleted, recreated and moved between cohorts, and cohorts deleted, with reserving and pending workloads: usage
//! matches the model (I1), no workload misses the change that admits it (I8), and none is lost.

use super::conservation::assert_matches_model;
use super::model::Model;
use crate::fixtures::builders::{
    AmountRange, COHORTS, FLAVORS, QUEUES, RESOURCES, Step, admitted_names, apply_step, config, engine,
    groups, key, limits, pod_set, queue, run_until_idle, workload,
};
use proptest::prelude::*;
use sluice_core::api::v1beta2::QueueingStrategy;
use sluice_core::quota::{FlavorQuotas, ResourceGroup};
use sluice_core::scheduler::{ClusterQueue, Engine, Workload};
use std::collections::BTreeMap;
use std::sync::Arc;

const WORKLOADS: usize = 12;

/// One step of a history; the last two queues are StrictFIFO whenever they exist.
#[derive(Clone, Debug)]
enum Event {
    Config(Step),
    Enqueue(Workload),
    Finish(usize),
    Cycle,
}

/// Deletion, creation and moves of queues and cohorts; parents are drawn freely, cycles included.
fn config_step() -> impl Strategy<Value = Step> {
    let node = || {
        let parent = proptest::option::weighted(0.8, 0..4_usize);
        proptest::option::weighted(0.7, (parent, groups(AmountRange::Small)))
    };
    prop_oneof![
        (0..4_usize, node()).prop_map(|(index, node)| Step::Cohort(index, node)),
        (0..QUEUES.len(), node()).prop_map(|(index, node)| Step::Queue(index, node)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let spec = (0..WORKLOADS, 0..QUEUES.len(), 0..3_i64, 0..6_i64, 0..8_i64, 0..8_i64);
    let enqueue = spec.prop_map(|(index, queue, priority, second, cpu, gpu)| {
        let sets = vec![pod_set("main", 1, &[("cpu", cpu), ("gpu", gpu)])];
        Event::Enqueue(workload(&format!("w{index}"), QUEUES[queue], priority, second, sets))
    });
    prop_oneof![
        4 => config_step().prop_map(Event::Config),
        4 => enqueue,
        1 => (0..WORKLOADS).prop_map(Event::Finish),
        4 => Just(Event::Cycle),
    ]
}

fn configure(engine: &mut Engine, step: &Step) {
    match step {
        Step::Queue(index, Some((parent, groups))) if is_strict(*index) => {
            let strategy = QueueingStrategy::StrictFIFO;
            let spec =
                ClusterQueue { strategy, ..queue(parent.map(|parent| COHORTS[parent]), groups.clone()) };
            engine.set_cluster_queue(QUEUES[*index], Some(spec));
        }
        _ => apply_step(engine, step),
    }
}

const fn is_strict(queue: usize) -> bool {
    queue >= 2
}

fn apply_event(engine: &mut Engine, event: &Event, steps: &mut Vec<Step>) {
    match event {
        Event::Config(step) => {
            configure(engine, step);
            steps.push(step.clone());
        }
        Event::Enqueue(workload) => engine.enqueue(workload.clone()),
        Event::Finish(index) => engine.release(&key(&format!("w{index}"))),
        Event::Cycle => drop(engine.run_cycle(jiff::Timestamp::UNIX_EPOCH)),
    }
}

fn model_of(engine: &Engine, steps: &[Step]) -> Model {
    let mut model = Model::default();
    for step in steps {
        model.apply(step);
    }
    for (n, (_, charge)) in engine.charges().enumerate() {
        let queue_index = QUEUES.iter().position(|queue| *queue == &*charge.cluster_queue).unwrap();
        let usage = charge.usage.iter().map(|(fr, amount)| (fr.clone(), amount.to_i128())).collect();
        model.charges.insert(n, (queue_index, usage));
    }
    model
}

/// A queue without a cohort, with more quota than all workloads request.
fn ample_quota(index: usize) -> Step {
    let quotas = |flavor: &&str| FlavorQuotas {
        name: Arc::from(*flavor),
        limits: RESOURCES
            .iter()
            .map(|r| (Arc::from(*r), limits(1000, None, None)))
            .collect::<BTreeMap<_, _>>(),
    };
    Step::Queue(index, Some((None, vec![ResourceGroup::from_flavors(FLAVORS.iter().map(quotas).collect())])))
}

proptest! {
    #![proptest_config(config(250))]

    #[test]
    fn i01_usage_matches_model_under_queue_churn(events in prop::collection::vec(event(), 1..50)) {
        let (mut engine, mut steps) = (engine(), Vec::new());
        for event in &events {
            apply_event(&mut engine, event, &mut steps);
            assert_matches_model(&engine, &model_of(&engine, &steps))?;
        }
    }

    /// A fresh engine built from the final state admits no pending workload (of a StrictFIFO queue: no head), alone beside the
    /// heads of the StrictFIFO queues.
    #[test]
    fn i08_queue_churn_wakes_admissible_workloads(events in prop::collection::vec(event(), 1..50)) {
        let (mut old, mut steps) = (engine(), Vec::new());
        for event in &events {
            apply_event(&mut old, event, &mut steps);
        }
        run_until_idle(&mut old);
        let strict_heads: Vec<&Workload> = (0..QUEUES.len())
            .filter(|index| is_strict(*index))
            .filter_map(|index| old.pending_in_order(QUEUES[index]).first().copied())
            .collect();
        let others = (0..QUEUES.len()).filter(|index| !is_strict(*index)).flat_map(|index| old.pending_in_order(QUEUES[index]));
        for pending in others.map(Some).chain([None]) {
            let mut fresh = engine();
            for step in &steps {
                configure(&mut fresh, step);
            }
            for (key, charge) in old.charges() {
                fresh.charge(key, charge.clone());
            }
            for workload in strict_heads.iter().copied().chain(pending) {
                fresh.enqueue(workload.clone());
            }
            let admitted = admitted_names(&run_until_idle(&mut fresh));
            prop_assert_eq!(admitted, Vec::<String>::new(), "beside {:?}", pending.map(|w| &w.key));
        }
    }

    #[test]
    fn workloads_survive_queue_churn(events in prop::collection::vec(event(), 1..50)) {
        let (mut engine, mut steps) = (engine(), Vec::new());
        for event in &events {
            apply_event(&mut engine, event, &mut steps);
        }
        let pending: Vec<Workload> = QUEUES.iter().flat_map(|q| engine.pending_in_order(q)).cloned().collect();
        for index in 0..QUEUES.len() {
            configure(&mut engine, &ample_quota(index));
        }
        run_until_idle(&mut engine);
        for workload in pending {
            prop_assert!(engine.charge_of(&workload.key).is_some(), "{} is still pending", workload.key);
        }
    }
}
