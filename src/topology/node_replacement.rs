//! Node replacement: places the pods of a failed node again, beside the pods that stay.

use super::leaf_capacity::{CapacityId, CapacityKey, CapacityView};
use super::place::{PlacementRequest, PlacementResult, TasPodSetRequest};
use super::placement_params::{ConstraintMode, PlacementParams};
use super::pod_requirements::{DomainPath, Placement};
use super::tas_cache::TasCache;
use super::tree::DomainLayout;
use super::{PlacementError, TasGates};
use std::ops::Range;
use std::sync::Arc;

/// A placement without the pods of the failed node.
struct RemainingPlacement {
    layout: Arc<DomainLayout>,
    params: PlacementParams,
    /// Leaves still in use, with their pods.
    kept_leaves: Vec<(usize, i64)>,
    missing_pods: i64,
}

impl TasCache {
    /// Places the pods of the first failed node; all other pods stay.
    pub(super) fn replace_failed_node(
        &mut self,
        pod_set: &TasPodSetRequest,
        leader: Option<&TasPodSetRequest>,
        view: CapacityView,
        gates: TasGates,
    ) -> Result<PlacementResult, PlacementError> {
        let (Some((before, failed)), None) = (&pod_set.replacement, leader) else {
            return Err(PlacementError::InvalidGroupSize(2));
        };
        let Some(node) = failed.first() else {
            return Ok(PlacementResult { workers: before.clone(), leader: None });
        };
        let is_failed = |values: &DomainPath| values.last().is_some_and(|value| **value == **node);
        let (lost, kept): (Vec<_>, Vec<_>) =
            before.domains.iter().cloned().partition(|(values, _)| is_failed(values));
        let missing = lost.iter().fold(0_i32, |sum, (_, pods)| sum.saturating_add(*pods));
        if missing == 0 {
            return Err(PlacementError::NoReplacement(node.clone()));
        }
        let remaining = self.remaining_placement(pod_set, &kept, i64::from(missing), gates)?;
        let (allowed_leaves, params) = remaining.replacement_constraints();
        // Nodes in `unhealthyNodes` are never replacements, even when schedulable again.
        let (count, excluded_hosts) = (remaining.missing_pods, failed);
        let request = PlacementRequest {
            workers: pod_set,
            leader: None,
            count,
            allowed_leaves,
            excluded_hosts,
            params: Some(params),
        };
        let mut result = self
            .place_request(&request, view, TasGates { balanced_placement: false, ..gates })
            .map_err(|_| PlacementError::NoReplacement(node.clone()))?;
        if result.workers.pod_count() < missing {
            return Err(PlacementError::NoReplacement(node.clone()));
        }
        result.workers = merge_placements(kept, result.workers);
        Ok(result)
    }

    fn remaining_placement(
        &mut self,
        pod_set: &TasPodSetRequest,
        kept: &[(DomainPath, i32)],
        missing: i64,
        gates: TasGates,
    ) -> Result<RemainingPlacement, PlacementError> {
        let tree = self.trees.get_mut(&pod_set.flavor).ok_or(PlacementError::NoTopology)?;
        let params = PlacementParams::resolve(&pod_set.pods, tree, gates)?;
        let layout = tree.layout();
        let mut leaves = Vec::new();
        for (values, pods) in kept {
            let host = values.last().map(|host| CapacityKey::Host(Arc::clone(host)));
            let id: Option<CapacityId> = host.and_then(|key| self.leaf_capacities.find(&key));
            let leaf = id.and_then(|id| layout.leaf_of(id));
            let name = || values.last().map(ToString::to_string).unwrap_or_default();
            leaves.push((leaf.ok_or_else(|| PlacementError::StaleDomain(name()))?, i64::from(*pods)));
        }
        Ok(RemainingPlacement { layout, params, kept_leaves: leaves, missing_pods: missing })
    }
}

impl RemainingPlacement {
    /// Returns the leaves to which the missing pods are restricted, and the slicing that applies there.
    fn replacement_constraints(&self) -> (Option<Range<usize>>, PlacementParams) {
        let params = self.params.clone();
        if !params.slice_layers.is_empty() && self.missing_pods % params.slice_size != 0 {
            let incomplete = params.slice_layers.iter().rev().find(|(_, size)| self.missing_pods % size != 0);
            let allowed_leaves =
                incomplete.and_then(|(level, size)| self.incomplete_slice_domain(*level, *size));
            let complete =
                params.slice_layers.iter().rev().find(|(_, size)| self.missing_pods % size == 0).copied();
            let lowest = self.layout.levels.len().saturating_sub(1);
            let (level, size) = complete.unwrap_or((lowest, 1));
            return (allowed_leaves, params.with_slices(level, size));
        }
        let first = self.kept_leaves.first().filter(|_| params.mode == ConstraintMode::Required);
        let allowed_leaves = first.and_then(|(leaf, _)| self.enclosing_leaves(params.level, *leaf));
        (allowed_leaves, params)
    }

    fn enclosing_leaves(&self, level: usize, leaf: usize) -> Option<Range<usize>> {
        Some(self.layout.domain(level, self.layout.ancestor(level, leaf)?)?.leaves.clone())
    }

    /// Returns the leaves of the domain whose remaining pods form whole slices together with the missing ones.
    fn incomplete_slice_domain(&self, level: usize, size: i64) -> Option<Range<usize>> {
        self.kept_leaves.iter().find_map(|(leaf, _)| {
            let leaves = self.enclosing_leaves(level, *leaf)?;
            let inside = self.kept_leaves.iter().filter(|(leaf, _)| leaves.contains(leaf));
            let pods: i64 = inside.map(|(_, pods)| pods).sum();
            ((pods + self.missing_pods) % size == 0).then_some(leaves)
        })
    }
}

/// Merges added domains into the kept ones, sorted. Added ones have only a host, so kept ones are reduced to theirs.
fn merge_placements(kept: Vec<(DomainPath, i32)>, added: Placement) -> Placement {
    let host = |values: DomainPath| values.last().cloned().into_iter().collect::<DomainPath>();
    let mut domains: Vec<(DomainPath, i32)> =
        kept.into_iter().map(|(values, pods)| (host(values), pods)).collect();
    for (values, pods) in added.domains {
        let values = host(values);
        match domains.iter().position(|(existing, _)| *existing == values) {
            Some(index) => {
                if let Some((_, sum)) = domains.get_mut(index) {
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
