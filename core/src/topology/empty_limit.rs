//! What the empty nodes of a flavor lack for pods that no placement on them holds.
//!
//! Invariants: other workloads play no part, and neither do their pods, in whichever queue: a node is empty but for the pods that
//! stay when all that holds quota ends; asking changes nothing but cached counts.

use super::TasGates;
use super::leaf_capacity::{CapacityView, LeafCapacity};
use super::place::{PlacementRequest, PriorPlacement, TasPodSetRequest};
use super::pod_requirements::PodRequirements;
use super::tas_cache::TasCache;
use crate::resources::Amount;
use std::sync::Arc;

/// What the empty nodes of a flavor lack for a pod set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyLimit {
    /// The flavor.
    pub flavor: Arc<str>,
    /// The pod set.
    pub pod_set: Arc<str>,
    /// Number of its pods.
    pub pods: i64,
    /// Label of the level within one domain of which all pods must be; empty for anywhere.
    pub level: Arc<str>,
    /// Most pods that fit there.
    pub most: i64,
    /// Label of the narrowest wider level within one domain of which all pods would fit; empty for anywhere, absent if they fit
    /// nowhere.
    pub wider: Option<Arc<str>>,
    /// Label of the narrowest level.
    pub narrowest: Arc<str>,
    /// A resource of which one pod asks for more than the largest of the narrowest domains has: name, request, largest.
    pub too_large: Option<(Arc<str>, Amount, Amount)>,
    /// Whether pods that stay when all that holds quota ends use a resource on these nodes that the pod set lacks there.
    pub beside_others: bool,
    /// The message of the placement.
    pub text: Arc<str>,
}

impl TasCache {
    /// Returns what the empty nodes lack for a pod set that is not placed on them; `text` is the message of the placement.
    pub fn empty_limit(&mut self, pod_set: &TasPodSetRequest, text: Arc<str>) -> TopologyLimit {
        let mut found = TopologyLimit {
            flavor: Arc::clone(&pod_set.flavor),
            pod_set: Arc::clone(&pod_set.name),
            pods: pod_set.count.into(),
            text,
            ..TopologyLimit::default()
        };
        let required = pod_set.pods.request.as_ref().and_then(|request| request.required.as_deref());
        found.level = required.map(Arc::from).unwrap_or_default();
        let anywhere = TasPodSetRequest {
            pods: Arc::new(PodRequirements { request: None, ..(*pod_set.pods).clone() }),
            count: 1,
            group: None,
            prior: PriorPlacement::None,
            ..pod_set.clone()
        };
        let request = PlacementRequest::new(&anywhere, None);
        let Ok((layout, counts)) = self.count(&request, CapacityView::Released, TasGates::default()) else {
            return found;
        };
        let levels = self.trees.get(&pod_set.flavor).map(|tree| Arc::clone(&tree.levels)).unwrap_or_default();
        found.narrowest = levels.last().cloned().unwrap_or_default();
        let most_at = |level: usize| counts.fits.level(level).iter().map(|fit| fit.pods).max().unwrap_or(0);
        let sum = counts.fits.level(0).iter().fold(0, |sum: i64, fit| sum.saturating_add(fit.pods));
        let own = levels.iter().position(|label| *label == found.level);
        found.most = own.map_or(sum, most_at);
        let wider = (0..own.unwrap_or(0)).rev().find(|level| most_at(*level) >= found.pods);
        let wider = wider.and_then(|level| levels.get(level).cloned());
        found.wider = wider.or_else(|| (own.is_some() && sum >= found.pods).then(Arc::default));
        let taken =
            layout.capacity_ids.iter().zip(&counts.excluded_leaves).filter(|(_, excluded)| !**excluded);
        let leaves: Vec<&LeafCapacity> = taken.filter_map(|(id, _)| self.leaf_capacities.get(*id)).collect();
        let too_large = counts.needs.iter().filter(|_| sum == 0).find_map(|need| {
            let free = |leaf: &&LeafCapacity| leaf.free(need.resource, CapacityView::Released);
            let largest = leaves.iter().map(free).max()?;
            (need.per_pod > largest).then_some((need, largest))
        });
        let is_used = |resource: usize| {
            let mut nodes = leaves.iter().flat_map(|leaf| leaf.nodes.keys());
            nodes.any(|node| self.keeps_usage(node, resource))
        };
        found.beside_others = match too_large {
            Some((need, _)) => is_used(need.resource),
            None => counts.needs.iter().any(|need| is_used(need.resource)),
        };
        found.too_large = too_large.map(|(need, largest)| {
            let (name, amount) = (self.resource_names.name(need.resource), Amount::saturating_from_i128);
            (Arc::from(name), amount(need.per_pod), amount(largest.max(0)))
        });
        self.count_cache.insert(counts);
        found
    }
}
