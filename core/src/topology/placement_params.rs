//! Resolves a topology request against the levels of one topology.

use super::pod_requirements::PodRequirements;
use super::tree::TopologyTree;
use super::{PlacementError, TasGates};
use crate::api::v1beta2::PodSetTopologyRequest;

/// Strictness of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConstraintMode {
    /// All pods in one domain of the level, or no placement.
    Required,
    /// One domain of the level or of a wider one, else several domains of the widest level.
    Preferred,
    /// Any domains.
    Unconstrained,
}

/// A layer of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SliceLayer {
    /// Level of the domains that a slice must not leave.
    pub(super) level: usize,
    /// Pods of a slice.
    pub(super) size: i64,
}

/// A request with its levels as indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacementParams {
    pub(super) mode: ConstraintMode,
    /// Level at which domains are selected first.
    pub(super) level: usize,
    /// Level of the outermost slices.
    pub(super) slice_level: usize,
    pub(super) slice_size: i64,
    /// Size of inner slices at each level; 1 if the level has none.
    pub(super) inner_slice_sizes: Vec<i64>,
    /// Layers as requested, outermost first.
    pub(super) slice_layers: Vec<SliceLayer>,
    /// Whether to prefer the smallest domain that suffices; otherwise the least free domains are filled first.
    pub(super) best_fit: bool,
}

impl PlacementParams {
    /// Resolves the request of the pods. Pods without a request are unconstrained.
    pub(super) fn resolve(
        pods: &PodRequirements,
        tree: &TopologyTree,
        gates: TasGates,
    ) -> Result<Self, PlacementError> {
        let nothing = PodSetTopologyRequest::default();
        let request = pods.request.as_ref().unwrap_or(&nothing);
        let lowest = tree.levels.len().saturating_sub(1);
        let find = |label: &str| tree.level_index(label);
        let layers = resolve_slice_layers(request, find)?;
        let level_of = |label: &String| find(label).ok_or_else(|| PlacementError::NoLevel(label.clone()));
        let (mode, level) = match (&request.required, &request.preferred) {
            (Some(label), _) => (ConstraintMode::Required, level_of(label)?),
            (None, Some(label)) => (ConstraintMode::Preferred, level_of(label)?),
            (None, None) if !layers.is_empty() && request.unconstrained != Some(true) => {
                (ConstraintMode::Unconstrained, 0)
            }
            (None, None) => (ConstraintMode::Unconstrained, lowest),
        };
        let SliceLayer { level: slice_level, size: slice_size } =
            layers.first().copied().unwrap_or(SliceLayer { level: lowest, size: 1 });
        if slice_level < level {
            let label = |level: usize| tree.levels.get(level).map(ToString::to_string).unwrap_or_default();
            return Err(PlacementError::SliceAbovePodSetLevel(label(slice_level), label(level)));
        }
        let mut inner_slice_sizes = vec![1; tree.levels.len()];
        for (outer, inner) in layers.iter().zip(layers.iter().skip(1)) {
            let ordered = inner.level > outer.level && inner.size > 0 && outer.size % inner.size == 0;
            if !ordered {
                return Err(PlacementError::InvalidSliceLayers);
            }
            for size in inner_slice_sizes.iter_mut().take(inner.level + 1).skip(outer.level + 1) {
                *size = inner.size;
            }
        }
        let best_fit = mode != ConstraintMode::Unconstrained || !gates.mixed_profile;
        Ok(Self { mode, level, slice_level, slice_size, inner_slice_sizes, slice_layers: layers, best_fit })
    }

    /// Returns the same parameters with slices of one size at one level only.
    pub(super) fn with_slices(mut self, layer: SliceLayer) -> Self {
        (self.slice_level, self.slice_size) = (layer.level, layer.size);
        self.inner_slice_sizes.fill(1);
        self.slice_layers = vec![layer];
        self
    }
}

/// Returns the slice layers, outermost first.
fn resolve_slice_layers(
    request: &PodSetTopologyRequest,
    find: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<SliceLayer>, PlacementError> {
    let level_of = |label: &str| find(label).ok_or_else(|| PlacementError::NoSliceLevel(label.to_owned()));
    let size = |size: i32| if size > 0 { Ok(i64::from(size)) } else { Err(PlacementError::InvalidSliceSize) };
    let constraints = &request.pod_set_slice_required_topology_constraints;
    if !constraints.is_empty() {
        let layer = |c: &crate::api::v1beta2::PodSetSliceTopologyConstraint| {
            Ok(SliceLayer { level: level_of(&c.topology)?, size: size(c.size)? })
        };
        return constraints.iter().map(layer).collect();
    }
    match &request.pod_set_slice_required_topology {
        None => Ok(Vec::new()),
        Some(label) => {
            let level = level_of(label)?;
            let size = size(request.pod_set_slice_size.ok_or(PlacementError::InvalidSliceSize)?)?;
            Ok(vec![SliceLayer { level, size }])
        }
    }
}
