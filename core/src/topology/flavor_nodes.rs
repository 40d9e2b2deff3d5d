//! What the nodes of a flavor look like, for audits: sizes, taints, and values of the labels that the flavor asks for.
//!
//! Invariant: the answer is bounded, whatever the number of nodes.

use super::filter::{prevents_scheduling, tolerates};
use super::flavor_capacity::AskedFlavor;
use super::tas_cache::TasCache;
use crate::resources::Requests;
use k8s_openapi::api::core::v1::Taint;
use std::collections::{BTreeMap, BTreeSet};

/// Most sizes of nodes of a flavor.
const MAX_SHAPES: usize = 128;
/// Most values of a label, and most taints.
const MAX_VALUES: usize = 256;

/// What the nodes of a flavor look like.
#[derive(Clone, Debug, Default)]
pub struct FlavorNodes {
    /// Allocatable amounts of schedulable nodes, of which none has everything that another has.
    pub shapes: Vec<Requests>,
    /// Whether there are more of them.
    pub has_more_shapes: bool,
    /// Taints that keep pods away and that the flavor does not tolerate, with the number of its nodes that have them.
    pub taints: Vec<(Taint, usize)>,
    /// Values that nodes of the cluster have for the labels of the flavor, by label; only if the flavor has no node.
    pub label_values: BTreeMap<String, BTreeSet<String>>,
}

impl TasCache {
    /// Returns what the nodes of a flavor look like.
    pub fn flavor_nodes(&self, flavor: AskedFlavor<'_>) -> FlavorNodes {
        let (mut found, mut has_nodes) = (FlavorNodes::default(), false);
        for entry in self.nodes.values() {
            let spec = &entry.spec;
            if !flavor.spec.node_labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value)) {
                continue;
            }
            has_nodes = true;
            if !spec.usable {
                continue;
            }
            found.add_shape(&spec.allocatable);
            let tolerated = |taint: &Taint| flavor.spec.tolerations.iter().any(|one| tolerates(one, taint));
            for taint in spec.taints.iter().filter(|taint| prevents_scheduling(taint) && !tolerated(taint)) {
                found.add_taint(taint);
            }
        }
        if !has_nodes {
            found.label_values = self.label_values(flavor.spec.node_labels.keys());
        }
        found
    }

    fn label_values<'a>(&self, keys: impl Iterator<Item = &'a String>) -> BTreeMap<String, BTreeSet<String>> {
        let mut all = BTreeMap::new();
        for key in keys {
            let values = self.nodes.values().filter_map(|entry| entry.spec.labels.get(key));
            let mut distinct = BTreeSet::new();
            for value in values {
                if distinct.len() < MAX_VALUES {
                    distinct.insert(value.clone());
                }
            }
            all.insert(key.clone(), distinct);
        }
        all
    }
}

impl FlavorNodes {
    fn add_shape(&mut self, allocatable: &Requests) {
        let covers = |a: &Requests, b: &Requests| {
            b.iter().all(|(resource, amount)| a.get(resource).is_some_and(|own| own >= amount))
        };
        if self.shapes.iter().any(|shape| covers(shape, allocatable)) {
            return;
        }
        self.shapes.retain(|shape| !covers(allocatable, shape));
        if self.shapes.len() < MAX_SHAPES {
            self.shapes.push(allocatable.clone());
        } else {
            self.has_more_shapes = true;
        }
    }

    fn add_taint(&mut self, taint: &Taint) {
        let same = |(known, _): &&mut (Taint, usize)| {
            known.key == taint.key && known.value == taint.value && known.effect == taint.effect
        };
        if let Some((_, nodes)) = self.taints.iter_mut().find(same) {
            *nodes = nodes.saturating_add(1);
        } else if self.taints.len() < MAX_VALUES {
            self.taints.push((taint.clone(), 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Amount;
    use std::sync::Arc;

    #[test]
    fn only_the_largest_shapes_are_kept() {
        let shape = |cpu: i64, gpu: i64| -> Requests {
            [("cpu", cpu), ("gpu", gpu)].map(|(name, amount)| (Arc::from(name), Amount::new(amount))).into()
        };
        let mut found = FlavorNodes::default();
        for (cpu, gpu) in [(1, 1), (2, 0), (2, 2), (8, 0), (2, 2), (1, 2)] {
            found.add_shape(&shape(cpu, gpu));
        }
        assert_eq!(found.shapes, [shape(2, 2), shape(8, 0)]);
    }
}
