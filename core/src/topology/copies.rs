//! How often the pod sets of a job would be placed one beside the other, as the scheduler places one such job after the other.
//!
//! Invariants: that many are placed, one more is not, unless the count was ended before; usage is simulated and restored before
//! returning; a flavor without a tree is counted node by node.

use super::TasGates;
use super::filter::{LabelMap, find_exclusion};
use super::flavor_capacity::AskedFlavor;
use super::leaf_capacity::{CapacityView, Footprint};
use super::place::TasPodSetRequest;
use super::resource_vector::{ResourceVector, add_scaled, amount_at, fit_count};
use super::tas_cache::TasCache;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Copies of pod sets that fit beside one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacedCopies {
    /// Their number.
    pub count: u64,
    /// Index of the pod set of which the next copy is not placed, and why; `None` if the count was ended before.
    pub failure: Option<(usize, String)>,
}

impl TasCache {
    /// Counts how often all pod sets are placed on what is free now. `keep_going` is asked before each copy.
    pub fn count_copies(
        &mut self,
        flavor: AskedFlavor<'_>,
        pod_sets: &[TasPodSetRequest],
        gates: TasGates,
        keep_going: &mut dyn FnMut(u64) -> bool,
    ) -> PlacedCopies {
        if !self.has_topology(flavor.name) {
            return self.count_copies_by_node(flavor, pod_sets, keep_going);
        }
        let (mut copies, mut simulated) = (PlacedCopies::default(), Vec::<Footprint>::new());
        while keep_going(copies.count) {
            let view = CapacityView::AvailableNow;
            match self.place_all(pod_sets, view, gates) {
                Ok(placements) => {
                    let placed = pod_sets.iter().zip(placements);
                    let occupancies: Vec<_> =
                        placed.map(|(pod_set, placement)| pod_set.occupancy(placement)).collect();
                    let footprint = self.footprint(&occupancies);
                    self.leaf_capacities.simulate_usage(&footprint, 1);
                    simulated.push(footprint);
                    copies.count = copies.count.saturating_add(1);
                }
                Err(failure) => {
                    let pod_set = pod_sets.get(failure.pod_set);
                    let text = pod_set.map(|pod_set| self.explain(pod_set, &failure.error, view, gates));
                    copies.failure = Some((failure.pod_set, text.unwrap_or_default()));
                    break;
                }
            }
        }
        for footprint in simulated.iter().rev() {
            self.leaf_capacities.simulate_usage(footprint, -1);
        }
        copies
    }

    /// Fills the nodes of a flavor without a tree in the order of their names.
    fn count_copies_by_node(
        &mut self,
        flavor: AskedFlavor<'_>,
        pod_sets: &[TasPodSetRequest],
        keep_going: &mut dyn FnMut(u64) -> bool,
    ) -> PlacedCopies {
        let needs: Vec<Vec<(usize, i128)>> =
            pod_sets.iter().map(|set| self.resource_names.pod_requests(&set.pods.requests)).collect();
        let resources = needs.iter().flatten().map(|(index, _)| *index).collect();
        let mut nodes = self.free_nodes(flavor, pod_sets, &resources);
        let mut copies = PlacedCopies::default();
        while keep_going(copies.count) {
            for (index, (set, need)) in pod_sets.iter().zip(&needs).enumerate() {
                let mut left = i64::from(set.count.max(0));
                for node in &mut nodes {
                    if node.excluded.get(index).copied().unwrap_or(true) {
                        continue;
                    }
                    let fits =
                        need.iter().map(|(at, per_pod)| fit_count(amount_at(&node.free, *at), *per_pod));
                    let taken = fits.min().unwrap_or(i64::MAX).clamp(0, left);
                    add_scaled(&mut node.free, need, -i128::from(taken));
                    left = left.saturating_sub(taken);
                }
                if left > 0 {
                    let placed = i64::from(set.count).saturating_sub(left);
                    copies.failure =
                        Some((index, format!("the nodes have room for {placed} of {} pods", set.count)));
                    return copies;
                }
            }
            copies.count = copies.count.saturating_add(1);
        }
        copies
    }

    /// Returns what is free of some resources on the schedulable nodes of a flavor without a tree, and which pod sets each takes.
    fn free_nodes(
        &self,
        flavor: AskedFlavor<'_>,
        pod_sets: &[TasPodSetRequest],
        resources: &BTreeSet<usize>,
    ) -> Vec<FreeNode> {
        let names: Vec<(usize, Arc<str>)> =
            resources.iter().map(|index| (*index, Arc::from(self.resource_names.name(*index)))).collect();
        let is_own = |labels: &LabelMap| {
            flavor.spec.node_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        let own = self.nodes.iter().filter(|(_, entry)| entry.spec.usable && is_own(&entry.spec.labels));
        own.map(|(name, entry)| {
            let free: Vec<(usize, i128)> =
                names.iter().map(|(index, resource)| (*index, self.free_on(name, entry, resource))).collect();
            let mut node = FreeNode::default();
            add_scaled(&mut node.free, &free, 1);
            let (labels, taints) = (&entry.spec.labels, &entry.spec.taints);
            let excluded = pod_sets.iter().map(|set| {
                find_exclusion(&set.pods, &flavor.spec.tolerations, name, labels, taints).is_some()
            });
            node.excluded = excluded.collect();
            node
        })
        .collect()
    }
}

/// A node of a flavor without a tree.
#[derive(Default)]
struct FreeNode {
    /// What is free, by resource.
    free: ResourceVector,
    /// Whether it does not take the pods, by pod set.
    excluded: Vec<bool>,
}
