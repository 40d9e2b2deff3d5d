//! Why pods have no place, in Kueue's words.

use super::TasGates;
use super::counts::{CountRequest, ResourceNeed, resource_needs};
use super::filter::Exclusion;
use super::leaf_capacity::CapacityView;
use super::place::TasPodSetRequest;
use super::placement_params::PlacementParams;
use super::resource_vector::fit_count;
use super::tas_cache::TasCache;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why pods have no place. The text is made when somebody asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The flavor has no topology that is known.
    NoTopology,
    /// The topology has no such level.
    NoLevel(String),
    /// The topology has no such level for slices.
    NoSliceLevel(String),
    /// Slices are to be wider than what they are part of.
    SliceAbovePodSetLevel(String, String),
    /// Slices of no size.
    InvalidSliceSize,
    /// Layers of slices that do not fit into each other.
    InvalidSliceLayers,
    /// A level without domains.
    NoDomains(usize),
    /// Not enough room: so many pods or slices of so many.
    InsufficientCapacity {
        /// How many fit.
        fit: i64,
        /// Of how many.
        requested: i64,
    },
    /// A group of another number of pod sets than two.
    InvalidGroupSize(usize),
    /// A domain of the placement is no more.
    StaleDomain(String),
    /// No place for the pods of a failed node.
    NoReplacement(String),
}

impl TasCache {
    /// The text of a refusal.
    pub fn explain(
        &mut self,
        part: &TasPodSetRequest,
        refusal: &PlacementError,
        view: CapacityView,
        rules: TasGates,
    ) -> String {
        match refusal {
            PlacementError::NoTopology => format!("no topology for flavor {}", part.flavor),
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
                let label = self.trees.get(&part.flavor).and_then(|tree| tree.levels.get(*level));
                format!("no topology domains at level: {}", label.map_or("", |label| label))
            }
            PlacementError::InvalidGroupSize(_) => "podset group must consist of two podsets".to_owned(),
            PlacementError::StaleDomain(domain) => format!(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {domain}"
            ),
            PlacementError::NoReplacement(node) => {
                format!("cannot find replacement assignment for unhealthy node: {node}")
            }
            PlacementError::InsufficientCapacity { fit, requested: of } => {
                self.explain_insufficient_capacity(part, *fit, *of, view, rules)
            }
        }
    }

    fn explain_insufficient_capacity(
        &mut self,
        part: &TasPodSetRequest,
        fit: i64,
        of: i64,
        view: CapacityView,
        rules: TasGates,
    ) -> String {
        let pod = self.resource_names.pod_requests(&part.pods.requests);
        let Some(tree) = self.trees.get_mut(&part.flavor) else {
            return String::new();
        };
        let (shape, name) = (tree.layout(), tree.flavor.topology.clone());
        let terms = PlacementParams::resolve(&part.pods, tree, rules);
        let sliced = terms.as_ref().is_ok_and(|terms| terms.slice_size > 1);
        let unit = if sliced { "slice(s)" } else { "pod(s)" };
        let mut text = if fit <= 0 {
            format!("topology \"{name}\" doesn't allow to fit any of {of} {unit}")
        } else {
            format!("topology \"{name}\" allows to fit only {fit} out of {of} {unit}")
        };
        let Some(tree) = self.trees.get(&part.flavor) else {
            return text;
        };
        let ask = CountRequest {
            pods: &part.pods,
            extra_tolerations: &tree.flavor.tolerations,
            needs: resource_needs(&pod, None),
            has_leader: false,
            view,
            respect_preferred_affinity: false,
            allowed_leaves: None,
            excluded_hosts: &[],
        };
        let excluded = self.count_exclusions(&ask, &shape.capacity_ids, tree.is_by_host());
        if !excluded.is_empty() {
            let list: Vec<String> = excluded.iter().map(|(what, count)| format!("{what}: {count}")).collect();
            let total = shape.capacity_ids.len();
            let _ = write!(text, ". Total nodes: {total}; excluded: {}", list.join(", "));
        }
        text
    }

    /// How many of the narrowest domains are of no use, by what keeps pods from them.
    fn count_exclusions(
        &self,
        ask: &CountRequest,
        spots: &[usize],
        by_host: bool,
    ) -> BTreeMap<String, usize> {
        // There are many domains and few reasons: each is put into words once.
        let mut obstacles: BTreeMap<Exclusion, usize> = BTreeMap::new();
        let mut resources: BTreeMap<usize, usize> = BTreeMap::new();
        for spot in spots.iter().filter_map(|id| self.leaf_capacities.get(*id)) {
            if let Some(obstacle) = ask.find_exclusion(spot).filter(|_| by_host) {
                *obstacles.entry(obstacle).or_default() += 1;
                continue;
            }
            let short =
                |(number, need, _): &&ResourceNeed| fit_count(spot.free(*number, ask.view), *need) == 0;
            if let Some((number, _, _)) = ask.needs.iter().find(short) {
                *resources.entry(*number).or_default() += 1;
            }
        }
        let obstacle = |obstacle| match obstacle {
            Exclusion::Affinity => "affinity".to_owned(),
            Exclusion::NodeSelector => "nodeSelector".to_owned(),
            Exclusion::Taint(taint) => format!("taint \"{taint}\""),
        };
        let resource = |number| format!("resource \"{}\"", self.resource_names.name(number));
        let obstacles = obstacles.into_iter().map(|(what, count)| (obstacle(what), count));
        obstacles.chain(resources.into_iter().map(|(number, count)| (resource(number), count))).collect()
    }
}
