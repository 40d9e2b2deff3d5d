//! Errors of placements, in Kueue's words.

use super::TasGates;
use super::counts::{CountRequest, ResourceNeed, resource_needs};
use super::filter::{Exclusion, LabelMap};
use super::leaf_capacity::CapacityView;
use super::place::TasPodSetRequest;
use super::placement_params::PlacementParams;
use super::resource_vector::fit_count;
use super::tas_cache::TasCache;
use super::tree::TopologyTree;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why pods cannot be placed. The text is formatted only on demand, see `TasCache::explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The flavor has no topology, or its Topology does not exist.
    NoTopology,
    /// The topology has no such level.
    NoLevel(String),
    /// The topology has no such level for slices.
    NoSliceLevel(String),
    /// The slice level is wider than the level of the pod set.
    SliceAbovePodSetLevel(String, String),
    /// The slice size is missing or not positive.
    InvalidSliceSize,
    /// Slice layers whose levels or sizes do not nest.
    InvalidSliceLayers,
    /// A level, by index, has no domains.
    NoDomains(usize),
    /// Not enough capacity. Counts are slices if the pod set has slices, otherwise pods.
    InsufficientCapacity(CapacityShortage),
    /// A group does not consist of two pod sets.
    InvalidGroupSize(usize),
    /// The placement names a domain that no longer exists.
    StaleDomain(String),
    /// The topology has other levels or domains than those in which pods of an elastic job run.
    ChangedDomains,
    /// The pods of a failed node fit nowhere else.
    NoReplacement(String),
}

/// How many of the requested slices or pods fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityShortage {
    /// Number that fits.
    pub fit: i64,
    /// Number requested.
    pub requested: i64,
}

impl TasCache {
    /// Returns the message of an error.
    pub fn explain(
        &mut self,
        pod_set: &TasPodSetRequest,
        error: &PlacementError,
        view: CapacityView,
        gates: TasGates,
    ) -> String {
        match error {
            PlacementError::NoTopology => format!("no topology for flavor {}", pod_set.flavor),
            PlacementError::NoLevel(level) => format!("no requested topology level: {level}"),
            PlacementError::NoSliceLevel(level) => format!("no requested topology level for slices: {level}"),
            PlacementError::SliceAbovePodSetLevel(slice, level) => {
                format!("podset slice topology {slice} is above the podset topology {level}")
            }
            PlacementError::InvalidSliceSize => {
                "slice size must be set and positive where slices are requested".to_owned()
            }
            PlacementError::InvalidSliceLayers => {
                "each layer of slices must be below the one before it and divide its size".to_owned()
            }
            PlacementError::NoDomains(level) => {
                let label = self.trees.get(&pod_set.flavor).and_then(|tree| tree.levels.get(*level));
                format!("no topology domains at level: {}", label.map_or("", |label| label))
            }
            PlacementError::InvalidGroupSize(_) => "podset group must consist of two podsets".to_owned(),
            PlacementError::StaleDomain(domain) => format!(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {domain}"
            ),
            PlacementError::ChangedDomains => {
                "an elastic job cannot grow, because the levels or domains of the topology have changed since its pods were placed"
                    .to_owned()
            }
            PlacementError::NoReplacement(node) => {
                format!("cannot find replacement assignment for unhealthy node: {node}")
            }
            PlacementError::InsufficientCapacity(shortage) => {
                self.explain_insufficient_capacity(pod_set, *shortage, view, gates)
            }
        }
    }

    fn explain_insufficient_capacity(
        &mut self,
        pod_set: &TasPodSetRequest,
        shortage: CapacityShortage,
        view: CapacityView,
        gates: TasGates,
    ) -> String {
        let CapacityShortage { fit, requested } = shortage;
        let pod = self.resource_names.pod_requests(&pod_set.pods.requests);
        let Some(tree) = self.trees.get_mut(&pod_set.flavor) else {
            return String::new();
        };
        let (layout, name) = (tree.layout(), tree.flavor.topology.clone());
        let params = PlacementParams::resolve(&pod_set.pods, tree, gates);
        let sliced = params.as_ref().is_ok_and(|params| params.slice_size > 1);
        let unit = if sliced { "slice(s)" } else { "pod(s)" };
        let mut text = if fit <= 0 {
            format!("topology \"{name}\" doesn't allow to fit any of {requested} {unit}")
        } else {
            format!("topology \"{name}\" allows to fit only {fit} out of {requested} {unit}")
        };
        let Some(tree) = self.trees.get(&pod_set.flavor) else {
            return text;
        };
        let request = CountRequest {
            pods: &pod_set.pods,
            extra_tolerations: &tree.flavor.tolerations,
            needs: resource_needs(&pod, None),
            has_leader: false,
            view,
            respect_preferred_affinity: false,
            allowed_leaves: None,
            excluded_hosts: &[],
        };
        let mut excluded = self.count_exclusions(&request, &layout.capacity_ids, tree.is_by_host());
        let mut total = layout.capacity_ids.len();
        for (what, count) in self.nodes_outside(tree) {
            total += count;
            excluded.insert(what.to_owned(), count);
        }
        if !excluded.is_empty() {
            let list: Vec<String> = excluded.iter().map(|(what, count)| format!("{what}: {count}")).collect();
            let _ = write!(text, ". Total nodes: {total}; excluded: {}", list.join(", "));
        }
        text
    }

    /// Counts the nodes of a flavor that no domain of its topology contains, by reason. The domains of a topology that
    /// does not go down to hosts are no nodes.
    fn nodes_outside(&self, tree: &TopologyTree) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        let of_flavor = |labels: &LabelMap| {
            tree.flavor.node_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        };
        for entry in self.nodes.values().filter(|entry| tree.is_by_host() && of_flavor(&entry.spec.labels)) {
            if !entry.spec.usable {
                *counts.entry("cordoned or not ready").or_default() += 1;
            } else if tree.path_of(&entry.spec.labels).is_none() {
                *counts.entry("no topology label").or_default() += 1;
            }
        }
        counts
    }

    /// Counts excluded leaves by reason.
    fn count_exclusions(
        &self,
        request: &CountRequest,
        capacity_ids: &[usize],
        by_host: bool,
    ) -> BTreeMap<String, usize> {
        // There are many leaves and few reasons, so each reason is formatted once.
        let mut exclusions: BTreeMap<Exclusion, usize> = BTreeMap::new();
        let mut resources: BTreeMap<usize, usize> = BTreeMap::new();
        for capacity in capacity_ids.iter().filter_map(|id| self.leaf_capacities.get(*id)) {
            if let Some(exclusion) = request.find_exclusion(capacity).filter(|_| by_host) {
                *exclusions.entry(exclusion).or_default() += 1;
                continue;
            }
            let exceeds = |need: &&ResourceNeed| {
                fit_count(capacity.free(need.resource, request.view), need.per_pod) == 0
            };
            if let Some(need) = request.needs.iter().find(exceeds) {
                *resources.entry(need.resource).or_default() += 1;
            }
        }
        let describe = |exclusion| match exclusion {
            Exclusion::Affinity => "affinity".to_owned(),
            Exclusion::NodeSelector => "nodeSelector".to_owned(),
            Exclusion::Taint(taint) => format!("taint \"{taint}\""),
        };
        let resource = |resource_index| format!("resource \"{}\"", self.resource_names.name(resource_index));
        let exclusions = exclusions.into_iter().map(|(what, count)| (describe(what), count));
        exclusions
            .chain(resources.into_iter().map(|(resource_index, count)| (resource(resource_index), count)))
            .collect()
    }
}
