//! Placing the pods of a failed node anew, beside those that stay where they are.

use super::leaf_capacity::{CapacityId, CapacityKey, CapacityView};
use super::place::{PlacementRequest, PlacementResult, TasPodSetRequest};
use super::placement_params::{ConstraintMode, PlacementParams};
use super::pod_requirements::{DomainPath, Placement};
use super::tas_cache::TasCache;
use super::tree::DomainLayout;
use super::{PlacementError, TasGates};
use std::ops::Range;
use std::sync::Arc;

/// What remains of a placement.
struct RemainingPlacement {
    layout: Arc<DomainLayout>,
    params: PlacementParams,
    /// Leaves that stay in use with their pods.
    kept_leaves: Vec<(usize, i64)>,
    missing_pods: i64,
}

impl TasCache {
    /// Places the pods that stood on the first failed node; everything else stays.
    pub(super) fn replace_failed_node(
        &mut self,
        part: &TasPodSetRequest,
        leader: Option<&TasPodSetRequest>,
        view: CapacityView,
        rules: TasGates,
    ) -> Result<PlacementResult, PlacementError> {
        let (Some((before, failed)), None) = (&part.replacement, leader) else {
            return Err(PlacementError::InvalidGroupSize(2));
        };
        let Some(node) = failed.first() else {
            return Ok(PlacementResult { workers: before.clone(), leader: None });
        };
        let gone = |values: &DomainPath| values.last().is_some_and(|value| **value == **node);
        let (lost, kept): (Vec<_>, Vec<_>) =
            before.domains.iter().cloned().partition(|(values, _)| gone(values));
        let missing = lost.iter().fold(0_i32, |sum, (_, pods)| sum.saturating_add(*pods));
        if missing == 0 {
            return Err(PlacementError::NoReplacement(node.clone()));
        }
        let remains = self.remaining_placement(part, &kept, i64::from(missing), rules)?;
        let (within, terms) = remains.replacement_constraints();
        // One that is listed is no place for anybody until it is taken off the list, even if it takes pods again.
        let (count, barred) = (remains.missing_pods, failed);
        let party = PlacementRequest {
            workers: part,
            leader: None,
            count,
            allowed_leaves: within,
            excluded_hosts: barred,
            params: Some(terms),
        };
        let mut found = self
            .place_request(&party, view, TasGates { balanced_placement: false, ..rules })
            .map_err(|_| PlacementError::NoReplacement(node.clone()))?;
        if found.workers.pod_count() < missing {
            return Err(PlacementError::NoReplacement(node.clone()));
        }
        found.workers = merge_placements(kept, found.workers);
        Ok(found)
    }

    fn remaining_placement(
        &mut self,
        part: &TasPodSetRequest,
        kept: &[(DomainPath, i32)],
        missing: i64,
        rules: TasGates,
    ) -> Result<RemainingPlacement, PlacementError> {
        let tree = self.trees.get_mut(&part.flavor).ok_or(PlacementError::NoTopology)?;
        let terms = PlacementParams::resolve(&part.pods, tree, rules)?;
        let shape = tree.layout();
        let mut leaves = Vec::new();
        for (values, pods) in kept {
            let host = values.last().map(|host| CapacityKey::Host(Arc::clone(host)));
            let spot: Option<CapacityId> = host.and_then(|key| self.leaf_capacities.find(&key));
            let leaf = spot.and_then(|spot| shape.leaf_of(spot));
            let name = || values.last().map(ToString::to_string).unwrap_or_default();
            leaves.push((leaf.ok_or_else(|| PlacementError::StaleDomain(name()))?, i64::from(*pods)));
        }
        Ok(RemainingPlacement { layout: shape, params: terms, kept_leaves: leaves, missing_pods: missing })
    }
}

impl RemainingPlacement {
    /// Where the missing pods have to go, and how they are sliced there.
    fn replacement_constraints(&self) -> (Option<Range<usize>>, PlacementParams) {
        let terms = self.params.clone();
        if !terms.slice_layers.is_empty() && self.missing_pods % terms.slice_size != 0 {
            let broken = terms.slice_layers.iter().rev().find(|(_, size)| self.missing_pods % size != 0);
            let home = broken.and_then(|(level, size)| self.incomplete_slice_domain(*level, *size));
            let whole =
                terms.slice_layers.iter().rev().find(|(_, size)| self.missing_pods % size == 0).copied();
            let lowest = self.layout.levels.len().saturating_sub(1);
            let (level, size) = whole.unwrap_or((lowest, 1));
            return (home, terms.with_slices(level, size));
        }
        let first = self.kept_leaves.first().filter(|_| terms.mode == ConstraintMode::Required);
        let home = first.and_then(|(leaf, _)| self.enclosing_leaves(terms.level, *leaf));
        (home, terms)
    }

    fn enclosing_leaves(&self, level: usize, leaf: usize) -> Option<Range<usize>> {
        Some(self.layout.domain(level, self.layout.ancestor(level, leaf)?)?.leaves.clone())
    }

    /// The domain whose pods make whole slices again with those that are missing.
    fn incomplete_slice_domain(&self, level: usize, size: i64) -> Option<Range<usize>> {
        self.kept_leaves.iter().find_map(|(leaf, _)| {
            let around = self.enclosing_leaves(level, *leaf)?;
            let here = self.kept_leaves.iter().filter(|(leaf, _)| around.contains(leaf));
            let pods: i64 = here.map(|(_, pods)| pods).sum();
            ((pods + self.missing_pods) % size == 0).then_some(around)
        })
    }
}

/// Adds new domains to those that stay, in the order of values. New ones are named by host alone; so are all then.
fn merge_placements(kept: Vec<(DomainPath, i32)>, fresh: Placement) -> Placement {
    let host = |values: DomainPath| values.last().cloned().into_iter().collect::<DomainPath>();
    let mut domains: Vec<(DomainPath, i32)> =
        kept.into_iter().map(|(values, pods)| (host(values), pods)).collect();
    for (values, pods) in fresh.domains {
        let values = host(values);
        match domains.iter().position(|(known, _)| *known == values) {
            Some(at) => {
                if let Some((_, sum)) = domains.get_mut(at) {
                    *sum = sum.saturating_add(pods);
                }
            }
            None => domains.push((values, pods)),
        }
    }
    domains.sort();
    let levels = DomainPath::from([Arc::from(super::pod_requirements::HOSTNAME_LABEL)]);
    Placement { levels, domains }
}
