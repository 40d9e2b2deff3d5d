//! Node replacement: places the pods of a failed node again, beside the pods that stay.

use super::leaf_capacity::{CapacityId, CapacityKey, CapacityView};
use super::place::{PlacementRequest, PlacementResult, TasPodSetRequest};
use super::placement_params::{ConstraintMode, PlacementParams, SliceLayer};
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
    kept_leaves: Vec<KeptLeaf>,
    missing_pods: i64,
}

/// A leaf that is still in use.
struct KeptLeaf {
    leaf: usize,
    /// Pods on it.
    pods: i64,
}

impl TasCache {
    /// Places the pods of the first failed node; all other pods stay.
    pub(super) fn replace_failed_node(
        &mut self,
        pod_set: &TasPodSetRequest,
        (before, failed): (&Placement, &[String]),
        view: CapacityView,
        gates: TasGates,
    ) -> Result<PlacementResult, PlacementError> {
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
            let leaf = leaf.ok_or_else(|| PlacementError::StaleDomain(name()))?;
            leaves.push(KeptLeaf { leaf, pods: i64::from(*pods) });
        }
        Ok(RemainingPlacement { layout, params, kept_leaves: leaves, missing_pods: missing })
    }
}

impl RemainingPlacement {
    /// Returns the leaves to which the missing pods are restricted, and the slicing that applies there.
    fn replacement_constraints(&self) -> (Option<Range<usize>>, PlacementParams) {
        let params = self.params.clone();
        if !params.slice_layers.is_empty() && self.missing_pods % params.slice_size != 0 {
            let innermost_first = || params.slice_layers.iter().rev().copied();
            let incomplete = innermost_first().find(|layer| self.missing_pods % layer.size != 0);
            let allowed_leaves = incomplete.and_then(|layer| self.incomplete_slice_domain(layer));
            let complete = innermost_first().find(|layer| self.missing_pods % layer.size == 0);
            let lowest = self.layout.levels.len().saturating_sub(1);
            let layer = complete.unwrap_or(SliceLayer { level: lowest, size: 1 });
            return (allowed_leaves, params.with_slices(layer));
        }
        let first = self.kept_leaves.first().filter(|_| params.mode == ConstraintMode::Required);
        let allowed_leaves = first.and_then(|kept| self.enclosing_leaves(params.level, kept.leaf));
        (allowed_leaves, params)
    }

    fn enclosing_leaves(&self, level: usize, leaf: usize) -> Option<Range<usize>> {
        Some(self.layout.domain(level, self.layout.ancestor(level, leaf)?)?.leaves.clone())
    }

    /// Returns the leaves of the domain whose remaining pods form whole slices together with the missing ones.
    fn incomplete_slice_domain(&self, layer: SliceLayer) -> Option<Range<usize>> {
        self.kept_leaves.iter().find_map(|kept| {
            let leaves = self.enclosing_leaves(layer.level, kept.leaf)?;
            let inside = self.kept_leaves.iter().filter(|kept| leaves.contains(&kept.leaf));
            let pods: i64 = inside.map(|kept| kept.pods).sum();
            ((pods + self.missing_pods) % layer.size == 0).then_some(leaves)
        })
    }
}

/// Merges added domains into the kept ones. Added ones have only a host, so kept ones are reduced to theirs.
fn merge_placements(kept: Vec<(DomainPath, i32)>, added: Placement) -> Placement {
    let by_host = |domains: Vec<(DomainPath, i32)>| {
        let host = |values: DomainPath| values.last().cloned().into_iter().collect::<DomainPath>();
        domains.into_iter().map(|(values, pods)| (host(values), pods)).collect()
    };
    let levels = DomainPath::from([Arc::from(super::pod_requirements::HOSTNAME_LABEL)]);
    Placement { levels, domains: by_host(kept) }.with_added(by_host(added.domains))
}
