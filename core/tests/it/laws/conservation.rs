//! I1 conservation, I2 capacity, I3 ancestors, I4 arithmetic, I6 confluence.

use super::model::{Model, cohort_ref, flavor_resources, queue_ref};
use crate::fixtures::builders;
use crate::fixtures::builders::{
    AmountRange, COHORTS, QUEUES, Step, apply_step, config, engine, key, pod_set, run_until_idle, step, tree,
    workload,
};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use sluice_core::resources::Amount;
use sluice_core::scheduler::{Engine, FlavorResource, NodeRef, Outcome};
use std::collections::BTreeMap;

fn run_steps(steps: &[Step]) -> (Engine, Model) {
    let (mut engine, mut model) = (engine(), Model::default());
    for step in steps {
        apply_step(&mut engine, step);
        model.apply(step);
    }
    (engine, model)
}

fn nodes() -> impl Iterator<Item = NodeRef> {
    (0..QUEUES.len()).map(queue_ref).chain((0..COHORTS.len()).map(cohort_ref))
}

/// Compares usage, subtree quota and availability of every node with the model.
pub(super) fn assert_matches_model(engine: &Engine, model: &Model) -> TestCaseResult {
    for node in nodes() {
        let usage = engine.usage(&node);
        for fr in flavor_resources().iter().filter(|_| !model.is_cyclic(&node)) {
            let actual = usage.get(fr).copied().unwrap_or_default();
            prop_assert_eq!(
                actual.usage,
                Amount::saturating_from_i128(model.usage(&node, fr)),
                "usage of {}",
                node
            );
            prop_assert_eq!(
                actual.subtree_quota,
                Amount::saturating_from_i128(model.subtree_quota(&node, fr)),
                "subtree of {}",
                node
            );
        }
        if let NodeRef::ClusterQueue(name) = &node {
            prop_assert_eq!(
                engine.inactive_reason(name).is_some(),
                model.is_cyclic(&node),
                "{} active",
                node
            );
            for fr in flavor_resources()
                .iter()
                .filter(|_| model.nodes.contains_key(&node) && !model.is_cyclic(&node))
            {
                let expected = Amount::saturating_from_i128(model.available(&node, fr).max(0));
                prop_assert_eq!(engine.available(name, fr), expected, "available to {}", node);
            }
        }
    }
    Ok(())
}

/// Returns the final configuration and charges as steps of a fresh start, in order of names.
fn final_steps(model: &Model, steps: &[Step]) -> Vec<Step> {
    let mut config: BTreeMap<NodeRef, Step> = BTreeMap::new();
    let mut charges: BTreeMap<usize, Step> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Cohort(index, _) => drop(config.insert(cohort_ref(*index), step.clone())),
            Step::Queue(index, _) => drop(config.insert(queue_ref(*index), step.clone())),
            Step::Charge(number, ..) => drop(charges.insert(*number, step.clone())),
            Step::Release(_) => {}
        }
    }
    config.retain(|name, _| model.nodes.contains_key(name));
    charges.retain(|number, _| model.charges.contains_key(number));
    config.into_values().chain(charges.into_values()).collect()
}

fn usage_by_node(engine: &Engine) -> Vec<(NodeRef, BTreeMap<FlavorResource, sluice_core::quota::NodeUsage>)> {
    engine.nodes().map(|(node, _)| (node.clone(), engine.usage(node))).collect()
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn i01_usage_equals_sum_of_charges(steps in prop::collection::vec(step(AmountRange::Small), 1..40)) {
        let (engine, model) = run_steps(&steps);
        assert_matches_model(&engine, &model)?;
    }

    #[test]
    fn i03_release_undoes_charge_on_whole_path(
        steps in prop::collection::vec(step(AmountRange::Small), 1..30), queue in 0..QUEUES.len(), units in 0..30_i64,
    ) {
        let (mut engine, _) = run_steps(&steps);
        let before = usage_by_node(&engine);
        let charge = builders::charge(QUEUES[queue], &[("red", "cpu", units), ("blue", "gpu", units)]);
        let extra = key("extra");
        engine.charge(&extra, charge.clone());
        let charged = usage_by_node(&engine);
        engine.charge(&extra, charge);
        prop_assert_eq!(&charged, &usage_by_node(&engine), "charging twice equals charging once");
        engine.release(&extra);
        prop_assert_eq!(before, usage_by_node(&engine));
    }

    #[test]
    fn i04_extreme_amounts_match_model(steps in prop::collection::vec(step(AmountRange::Extreme), 1..40)) {
        let (mut engine, model) = run_steps(&steps);
        assert_matches_model(&engine, &model)?;
        engine.enqueue(workload("w", "q0", 0, 0, vec![pod_set("main", i32::MAX, &[("cpu", i64::MAX)])]));
        run_until_idle(&mut engine);
    }

    #[test]
    fn i06_configuration_history_equals_fresh_start(steps in prop::collection::vec(step(AmountRange::Small), 1..40)) {
        let (mut old, model) = run_steps(&steps);
        let (mut fresh, _) = run_steps(&final_steps(&model, &steps));
        prop_assert_eq!(usage_by_node(&old), usage_by_node(&fresh));
        for engine in [&mut old, &mut fresh] {
            for (index, queue) in QUEUES.iter().enumerate() {
                let priority = i64::try_from(index).unwrap();
                engine.enqueue(workload(&format!("w{index}"), queue, priority, 0, vec![pod_set("main", 2, &[("cpu", 3)])]));
            }
        }
        prop_assert_eq!(run_until_idle(&mut old), run_until_idle(&mut fresh));
    }

    #[test]
    fn i02_admissions_respect_limits_of_all_ancestors(
        steps in tree(AmountRange::Small),
        requests in prop::collection::vec((0..QUEUES.len(), 0..3_i64, 1..3_i32, 0..9_i64, 0..9_i64), 1..25),
    ) {
        let (mut engine, mut model) = run_steps(&steps);
        for (n, (queue, priority, count, cpu, gpu)) in requests.iter().enumerate() {
            let second = i64::try_from(n).unwrap();
            let pod_sets = vec![pod_set("main", *count, &[("cpu", *cpu), ("gpu", *gpu)])];
            engine.enqueue(workload(&format!("w{n}"), QUEUES[*queue], *priority, second, pod_sets));
        }
        for (n, decision) in run_until_idle(&mut engine).into_iter().enumerate() {
            let Outcome::Admitted(admission) = decision.outcome else { continue };
            let queue = QUEUES.iter().position(|q| **q == *admission.cluster_queue).unwrap();
            let mut usage: BTreeMap<FlavorResource, i128> = BTreeMap::new();
            for set in &admission.pod_sets {
                for (resource, flavor) in &set.flavors {
                    *usage.entry(FlavorResource::new(flavor, resource)).or_default() += set.usage[resource].to_i128();
                }
            }
            for (fr, amount) in &usage {
                prop_assert!(*amount <= model.available(&queue_ref(queue), fr).max(0), "{:?} of {}", fr, decision.key);
            }
            model.charges.insert(100 + n, (queue, usage.clone()));
            for fr in usage.iter().filter(|(_, amount)| **amount > 0).map(|(fr, _)| fr) {
                prop_assert_eq!(model.node_over_limit(&queue_ref(queue), fr), None, "{:?} of {}", fr, decision.key);
            }
        }
        assert_matches_model(&engine, &model)?;
    }
}
