//! I1 conservation, I2 capacity, I3 ancestors, I4 arithmetic, I6 confluence.

use super::model::{Model, cohort_ref, pairs, queue_ref};
use super::world::{
    COHORTS, QUEUES, Scale, Step, apply, config, engine, key, pods, settle, step, tree, workload,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice::resources::Amount;
use sluice::scheduler::{Engine, FlavorResource, NodeRef, Outcome};
use std::collections::BTreeMap;

fn run(steps: &[Step]) -> (Engine, Model) {
    let (mut engine, mut model) = (engine(), Model::default());
    for step in steps {
        apply(&mut engine, step);
        model.apply(step);
    }
    (engine, model)
}

fn nodes() -> impl Iterator<Item = NodeRef> {
    (0..QUEUES.len()).map(queue_ref).chain((0..COHORTS.len()).map(cohort_ref))
}

/// Every node's figures are those of the model.
pub(super) fn same_figures(engine: &Engine, model: &Model) -> TestCaseResult {
    for node in nodes() {
        let figures = engine.usage(&node);
        for pair in pairs().iter().filter(|_| !model.cyclic(&node)) {
            let found = figures.get(pair).copied().unwrap_or_default();
            prop_assert_eq!(found.usage, Amount::from_wide(model.usage(&node, pair)), "usage of {}", node);
            prop_assert_eq!(
                found.subtree,
                Amount::from_wide(model.subtree(&node, pair)),
                "subtree of {}",
                node
            );
        }
        if let NodeRef::ClusterQueue(name) = &node {
            prop_assert_eq!(engine.inactive_reason(name).is_some(), model.cyclic(&node), "{} active", node);
            for pair in pairs().iter().filter(|_| model.nodes.contains_key(&node) && !model.cyclic(&node)) {
                let expected = Amount::from_wide(model.available(&node, pair).max(0));
                prop_assert_eq!(engine.available(name, pair), expected, "available to {}", node);
            }
        }
    }
    Ok(())
}

/// The configuration that a list of steps ends in, as steps of a fresh start in order of names.
fn last_words(model: &Model, steps: &[Step]) -> Vec<Step> {
    let mut config: BTreeMap<NodeRef, Step> = BTreeMap::new();
    let mut charges: BTreeMap<usize, Step> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Cohort(at, _) => drop(config.insert(cohort_ref(*at), step.clone())),
            Step::Queue(at, _) => drop(config.insert(queue_ref(*at), step.clone())),
            Step::Charge(who, ..) => drop(charges.insert(*who, step.clone())),
            Step::Release(_) => {}
        }
    }
    config.retain(|name, _| model.nodes.contains_key(name));
    charges.retain(|who, _| model.charges.contains_key(who));
    config.into_values().chain(charges.into_values()).collect()
}

fn figures(engine: &Engine) -> Vec<(NodeRef, BTreeMap<FlavorResource, sluice::quota::NodeUsage>)> {
    engine.nodes().map(|(node, _)| (node.clone(), engine.usage(node))).collect()
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn i1_usage_is_the_sum_of_charges_at_every_node(steps in prop::collection::vec(step(Scale::Small), 1..40)) {
        let (engine, model) = run(&steps);
        same_figures(&engine, &model)?;
    }

    #[test]
    fn i3_a_charge_and_its_release_touch_the_same_path(
        steps in prop::collection::vec(step(Scale::Small), 1..30), at in 0..QUEUES.len(), units in 0..30_i64,
    ) {
        let (mut engine, _) = run(&steps);
        let before = figures(&engine);
        let charge = super::world::charge(QUEUES[at], &[("red", "cpu", units), ("blue", "gpu", units)]);
        let extra = key("extra");
        engine.charge(&extra, charge.clone());
        let charged = figures(&engine);
        engine.charge(&extra, charge);
        prop_assert_eq!(&charged, &figures(&engine), "a charge twice is a charge once");
        engine.release(&extra);
        prop_assert_eq!(before, figures(&engine));
    }

    #[test]
    fn i4_no_amount_breaks_the_arithmetic(steps in prop::collection::vec(step(Scale::Extreme), 1..40)) {
        let (mut engine, model) = run(&steps);
        same_figures(&engine, &model)?;
        engine.enqueue(workload("w", "q0", 0, 0, vec![pods("main", i32::MAX, &[("cpu", i64::MAX)])]));
        settle(&mut engine);
    }

    #[test]
    fn i6_any_history_of_configuration_ends_like_a_fresh_start(steps in prop::collection::vec(step(Scale::Small), 1..40)) {
        let (mut old, model) = run(&steps);
        let (mut fresh, _) = run(&last_words(&model, &steps));
        prop_assert_eq!(figures(&old), figures(&fresh));
        for engine in [&mut old, &mut fresh] {
            for (at, queue) in QUEUES.iter().enumerate() {
                let priority = i64::try_from(at).unwrap();
                engine.enqueue(workload(&format!("w{at}"), queue, priority, 0, vec![pods("main", 2, &[("cpu", 3)])]));
            }
        }
        prop_assert_eq!(settle(&mut old), settle(&mut fresh));
    }

    #[test]
    fn i2_no_admission_passes_a_limit_of_any_ancestor(
        steps in tree(Scale::Small),
        wanted in prop::collection::vec((0..QUEUES.len(), 0..3_i64, 1..3_i32, 0..9_i64, 0..9_i64), 1..25),
    ) {
        let (mut engine, mut model) = run(&steps);
        for (n, (at, priority, count, cpu, gpu)) in wanted.iter().enumerate() {
            let second = i64::try_from(n).unwrap();
            let pod_sets = vec![pods("main", *count, &[("cpu", *cpu), ("gpu", *gpu)])];
            engine.enqueue(workload(&format!("w{n}"), QUEUES[*at], *priority, second, pod_sets));
        }
        for (n, decision) in settle(&mut engine).into_iter().enumerate() {
            let Outcome::Admitted(given) = decision.outcome else { continue };
            let at = QUEUES.iter().position(|q| **q == *given.cluster_queue).unwrap();
            let mut usage: BTreeMap<FlavorResource, i128> = BTreeMap::new();
            for set in &given.pod_sets {
                for (resource, flavor) in &set.flavors {
                    *usage.entry(FlavorResource::new(flavor, resource)).or_default() += set.usage[resource].wide();
                }
            }
            for (pair, amount) in &usage {
                prop_assert!(*amount <= model.available(&queue_ref(at), pair).max(0), "{:?} of {}", pair, decision.key);
            }
            model.charges.insert(100 + n, (at, usage.clone()));
            for pair in usage.iter().filter(|(_, amount)| **amount > 0).map(|(pair, _)| pair) {
                prop_assert_eq!(model.over_limit(&queue_ref(at), pair), None, "{:?} of {}", pair, decision.key);
            }
        }
        same_figures(&engine, &model)?;
    }
}
