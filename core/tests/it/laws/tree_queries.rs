//! I3: queries of the quota tree that choose flavors and limit head claims: the smallest subtree that can provide an amount
//! without borrowing, parents, borrowing limits, and the generation, which only a release raises.

use super::model::{Model, flavor_resources, queue_ref};
use crate::fixtures::builders::{AmountRange, QUEUES, Step, config, step, tree};
use proptest::prelude::*;
use sluice_core::quota::{NodeConfig, QuotaTree, UsageLayer};
use sluice_core::scheduler::{FlavorResource, NodeRef};

const LAYERS: [UsageLayer; 2] = [UsageLayer::Current, UsageLayer::Projected];

/// Returns the model after the steps, and a tree with the same configuration and charges.
fn build_tree(steps: &[Step]) -> (QuotaTree, Model) {
    let (mut tree, mut model) = (QuotaTree::default(), Model::default());
    for step in steps {
        model.apply(step);
    }
    for (name, (parent, groups)) in &model.nodes {
        let parent = parent.as_ref().map(NodeRef::as_str);
        tree.configure(name, Some(NodeConfig { parent, groups, weight: 1.0 }));
    }
    for (queue, usage) in model.charges.values() {
        let leaf = tree.ensure_leaf(QUEUES[*queue]);
        for (fr, amount) in usage {
            let fr = tree.ensure_fr(fr);
            tree.add_usage(leaf, &vec![(fr, *amount)], &LAYERS);
        }
    }
    (tree, model)
}

fn height(model: &Model, node: &NodeRef) -> u32 {
    model.children(node).iter().map(|child| height(model, child) + 1).max().unwrap_or(0)
}

/// Returns the height of the first node upwards whose subtree quota covers its usage plus `more`, else of the root; and whether
/// such a node exists below the root.
fn lowest_subtree(model: &Model, queue: usize, fr: &FlavorResource, more: i128) -> (u32, bool) {
    let mut charged = model.clone();
    charged.charges.insert(usize::MAX, (queue, [(fr.clone(), more)].into()));
    let mut node = queue_ref(queue);
    loop {
        let parent = model.parent(&node);
        if charged.usage(&node, fr) <= charged.subtree_quota(&node, fr) {
            return (height(model, &node), parent.is_some());
        }
        match parent {
            Some(parent) => node = parent,
            None => return (height(model, &node), false),
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
        for (index, queue) in QUEUES.iter().enumerate() {
            let leaf = tree.leaf(queue).unwrap();
            for fr in flavor_resources() {
                let expected = lowest_subtree(&model, index, &fr, more);
                let id = tree.ensure_fr(&fr);
                for layer in LAYERS {
                    let found = tree.lowest_subtree_for(leaf, id, more, layer);
                    prop_assert_eq!((found.height, found.has_parent), expected, "{:?} of {}", fr, queue);
                }
            }
        }
    }

    #[test]
    fn i03_parents_and_borrowing_limits_match_configuration(steps in tree(AmountRange::Small)) {
        let (mut tree, model) = build_tree(&steps);
        let actual: Vec<_> = tree.nodes().map(|(name, parent)| (name.clone(), parent.cloned())).collect();
        let expected: Vec<_> = model.nodes.keys().map(|name| (name.clone(), model.parent(name))).collect();
        prop_assert_eq!(actual, expected);
        for name in model.nodes.keys() {
            let node = tree.find(name).unwrap();
            for fr in flavor_resources() {
                let expected = model.limits(name, &fr).borrowing_limit.map(sluice_core::resources::Amount::to_i128);
                let id = tree.ensure_fr(&fr);
                prop_assert_eq!(tree.borrowing_limit(node, id), expected, "{:?} of {}", fr, name);
            }
        }
    }

    #[test]
    fn i08_only_release_raises_generation(steps in charged(), queue in 0..QUEUES.len(), units in 1..9_i128) {
        let (mut tree, _) = build_tree(&steps);
        let (leaf, fr) = (tree.leaf(QUEUES[queue]).unwrap(), tree.ensure_fr(&flavor_resources()[0]));
        let before = tree.generation(leaf);
        tree.add_usage(leaf, &vec![(fr, units)], &LAYERS);
        prop_assert_eq!(tree.generation(leaf), before);
        tree.add_usage(leaf, &vec![(fr, -units)], &LAYERS);
        prop_assert!(tree.generation(leaf) > before);
    }
}
