//! What is read off the tree to choose a flavor and to keep a claim (I3): the smallest subtree that could give an amount
//! without borrowing, parents, borrowing limits, and the generation that says that something became free.

use super::builders::{AmountRange, QUEUES, Step, config, step, tree};
use super::model::{Model, flavor_resources, queue_ref};
use proptest::prelude::*;
use sluice::quota::{NodeConfig, QuotaTree, UsageLayer};
use sluice::scheduler::{FlavorResource, NodeRef};

const LAYERS: [UsageLayer; 2] = [UsageLayer::Current, UsageLayer::Projected];

/// The model after the steps, and the tree that is configured and charged as the model says.
fn build_tree(steps: &[Step]) -> (QuotaTree, Model) {
    let (mut tree, mut model) = (QuotaTree::default(), Model::default());
    for step in steps {
        model.apply(step);
    }
    for (name, (parent, groups)) in &model.nodes {
        let parent = parent.as_ref().map(NodeRef::as_str);
        tree.configure(name, Some(NodeConfig { parent, groups, weight: 1.0 }));
    }
    for (at, usage) in model.charges.values() {
        let leaf = tree.ensure_leaf(QUEUES[*at]);
        for (pair, amount) in usage {
            let pair = tree.ensure_fr(pair);
            tree.add_usage(leaf, &vec![(pair, *amount)], &LAYERS);
        }
    }
    (tree, model)
}

fn height(model: &Model, node: &NodeRef) -> u32 {
    model.children(node).iter().map(|child| height(model, child) + 1).max().unwrap_or(0)
}

/// The first node on the way up that would use no more than its subtree owns, had the queue so much more; else the root.
fn lowest_subtree(model: &Model, queue: usize, pair: &FlavorResource, more: i128) -> (u32, bool) {
    let mut asked = model.clone();
    asked.charges.insert(usize::MAX, (queue, [(pair.clone(), more)].into()));
    let mut at = queue_ref(queue);
    loop {
        let up = model.parent(&at);
        if asked.usage(&at, pair) <= asked.subtree_quota(&at, pair) {
            return (height(model, &at), up.is_some());
        }
        match up {
            Some(up) => at = up,
            None => return (height(model, &at), false),
        }
    }
}

/// A tree without cycles, and charges.
fn charged() -> impl Strategy<Value = Vec<Step>> {
    let charges = prop::collection::vec(step(AmountRange::Small), 0..25);
    (tree(AmountRange::Small), charges).prop_map(|(mut steps, charges)| {
        steps.extend(charges.into_iter().filter(|step| matches!(step, Step::Charge(..))));
        steps
    })
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn i03_lowest_subtree_matches_model(steps in charged(), more in 1..40_i128) {
        let (mut tree, model) = build_tree(&steps);
        for (at, queue) in QUEUES.iter().enumerate() {
            let leaf = tree.leaf(queue).unwrap();
            for pair in flavor_resources() {
                let expected = lowest_subtree(&model, at, &pair, more);
                let id = tree.ensure_fr(&pair);
                for layer in LAYERS {
                    prop_assert_eq!(tree.lowest_subtree_for(leaf, id, more, layer), expected, "{:?} of {}", pair, queue);
                }
            }
        }
    }

    #[test]
    fn i03_parents_and_borrowing_limits_match_configuration(steps in tree(AmountRange::Small)) {
        let (mut tree, model) = build_tree(&steps);
        let found: Vec<_> = tree.nodes().map(|(name, parent)| (name.clone(), parent.cloned())).collect();
        let expected: Vec<_> = model.nodes.keys().map(|name| (name.clone(), model.parent(name))).collect();
        prop_assert_eq!(found, expected);
        for name in model.nodes.keys() {
            let node = tree.find(name).unwrap();
            for pair in flavor_resources() {
                let expected = model.limits(name, &pair).borrowing_limit.map(sluice::resources::Amount::to_i128);
                let id = tree.ensure_fr(&pair);
                prop_assert_eq!(tree.borrowing_limit(node, id), expected, "{:?} of {}", pair, name);
            }
        }
    }

    #[test]
    fn i08_only_release_raises_generation(steps in charged(), at in 0..QUEUES.len(), units in 1..9_i128) {
        let (mut tree, _) = build_tree(&steps);
        let (leaf, pair) = (tree.leaf(QUEUES[at]).unwrap(), tree.ensure_fr(&flavor_resources()[0]));
        let before = tree.generation(leaf);
        tree.add_usage(leaf, &vec![(pair, units)], &LAYERS);
        prop_assert_eq!(tree.generation(leaf), before);
        tree.add_usage(leaf, &vec![(pair, -units)], &LAYERS);
        prop_assert!(tree.generation(leaf) > before);
    }
}
