//! What is read off the tree to choose a flavor and to keep a claim (I3): the smallest subtree that could give an amount
//! without borrowing, parents, borrowing limits, and the generation that says that something became free.

use super::model::{Model, pairs, queue_ref};
use super::world::{QUEUES, Scale, Step, config, step, tree};
use proptest::prelude::*;
use sluice::quota::{Layer, NodeConfig, Tree};
use sluice::scheduler::{FlavorResource, NodeRef};

const LAYERS: [Layer; 2] = [Layer::Held, Layer::Planned];

/// The model after the steps, and the tree that is configured and charged as the model says.
fn run(steps: &[Step]) -> (Tree, Model) {
    let (mut tree, mut model) = (Tree::default(), Model::default());
    for step in steps {
        model.apply(step);
    }
    for (name, (parent, groups)) in &model.nodes {
        let parent = parent.as_ref().map(NodeRef::as_str);
        tree.configure(name, Some(NodeConfig { parent, groups, weight: 1.0 }));
    }
    for (at, usage) in model.charges.values() {
        let leaf = tree.leaf_or_new(QUEUES[*at]);
        for (pair, amount) in usage {
            let pair = tree.pair_or_new(pair);
            tree.hold(leaf, &vec![(pair, *amount)], &LAYERS);
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
        if asked.usage(&at, pair) <= asked.subtree(&at, pair) {
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
    let charges = prop::collection::vec(step(Scale::Small), 0..25);
    (tree(Scale::Small), charges).prop_map(|(mut steps, charges)| {
        steps.extend(charges.into_iter().filter(|step| matches!(step, Step::Charge(..))));
        steps
    })
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn i3_the_smallest_subtree_is_the_first_that_owns_enough(steps in charged(), more in 1..40_i128) {
        let (mut tree, model) = run(&steps);
        for (at, queue) in QUEUES.iter().enumerate() {
            let leaf = tree.leaf(queue).unwrap();
            for pair in pairs() {
                let expected = lowest_subtree(&model, at, &pair, more);
                let id = tree.pair_or_new(&pair);
                for layer in LAYERS {
                    prop_assert_eq!(tree.lowest_subtree_for(leaf, id, more, layer), expected, "{:?} of {}", pair, queue);
                }
            }
        }
    }

    #[test]
    fn i3_parents_and_borrowing_limits_are_those_configured(steps in tree(Scale::Small)) {
        let (mut tree, model) = run(&steps);
        let found: Vec<_> = tree.nodes().map(|(name, parent)| (name.clone(), parent.cloned())).collect();
        let expected: Vec<_> = model.nodes.keys().map(|name| (name.clone(), model.parent(name))).collect();
        prop_assert_eq!(found, expected);
        for name in model.nodes.keys() {
            let node = tree.find(name).unwrap();
            for pair in pairs() {
                let expected = model.limits(name, &pair).borrowing.map(sluice::resources::Amount::wide);
                let id = tree.pair_or_new(&pair);
                prop_assert_eq!(tree.borrowing_limit(node, id), expected, "{:?} of {}", pair, name);
            }
        }
    }

    #[test]
    fn i8_a_release_raises_the_generation_and_a_charge_does_not(steps in charged(), at in 0..QUEUES.len(), units in 1..9_i128) {
        let (mut tree, _) = run(&steps);
        let (leaf, pair) = (tree.leaf(QUEUES[at]).unwrap(), tree.pair_or_new(&pairs()[0]));
        let before = tree.generation(leaf);
        tree.hold(leaf, &vec![(pair, units)], &LAYERS);
        prop_assert_eq!(tree.generation(leaf), before);
        tree.hold(leaf, &vec![(pair, -units)], &LAYERS);
        prop_assert!(tree.generation(leaf) > before);
    }
}
