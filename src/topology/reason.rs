//! Why pods have no place, in Kueue's words.

use super::Rules;
use super::cluster::Cluster;
use super::counts::{Ask, Need, needs};
use super::filter::Obstacle;
use super::place::Part;
use super::spots::View;
use super::terms::Terms;
use super::vector::times;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why pods have no place. The text is made when somebody asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The flavor has no topology that is known.
    NoTopology,
    /// The topology has no such level.
    NoLevel(String),
    /// The topology has no such level for slices.
    NoSliceLevel(String),
    /// Slices are to be wider than what they are part of.
    SliceAbove(String, String),
    /// Slices of no size.
    SliceSize,
    /// Layers of slices that do not fit into each other.
    Layers,
    /// A level without domains.
    NoDomains(usize),
    /// Not enough room: so many pods or slices of so many.
    TooFew {
        /// How many fit.
        fit: i64,
        /// Of how many.
        of: i64,
    },
    /// A group of another number of pod sets than two.
    Group(usize),
    /// A domain of the placement is no more.
    Stale(String),
    /// No place for the pods of a failed node.
    NoReplacement(String),
}

impl Cluster {
    /// The text of a refusal.
    pub fn explain(&mut self, part: &Part, refusal: &Refusal, view: View, rules: Rules) -> String {
        match refusal {
            Refusal::NoTopology => format!("no topology for flavor {}", part.flavor),
            Refusal::NoLevel(level) => format!("no requested topology level: {level}"),
            Refusal::NoSliceLevel(level) => format!("no requested topology level for slices: {level}"),
            Refusal::SliceAbove(slice, level) => {
                format!("podset slice topology {slice} is above the podset topology {level}")
            }
            Refusal::SliceSize => "slice size must be set and positive where slices are requested".to_owned(),
            Refusal::Layers => {
                "each layer of slices must be below the one before it and divide its size".to_owned()
            }
            Refusal::NoDomains(level) => {
                let label = self.trees.get(&part.flavor).and_then(|tree| tree.levels.get(*level));
                format!("no topology domains at level: {}", label.map_or("", |label| label))
            }
            Refusal::Group(_) => "podset group must consist of two podsets".to_owned(),
            Refusal::Stale(domain) => format!(
                "Cannot replace the node, because the existing topologyAssignment is invalid, as it contains the stale domain {domain}"
            ),
            Refusal::NoReplacement(node) => {
                format!("cannot find replacement assignment for unhealthy node: {node}")
            }
            Refusal::TooFew { fit, of } => self.too_few(part, *fit, *of, view, rules),
        }
    }

    fn too_few(&mut self, part: &Part, fit: i64, of: i64, view: View, rules: Rules) -> String {
        let pod = self.names.pod(&part.pods.requests);
        let Some(tree) = self.trees.get_mut(&part.flavor) else {
            return String::new();
        };
        let (shape, name) = (tree.shape(), tree.flavor.topology.clone());
        let terms = Terms::of(&part.pods, tree, rules);
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
        let ask = Ask {
            pods: &part.pods,
            beside: &tree.flavor.tolerations,
            needs: needs(&pod, None),
            has_leader: false,
            view,
            scores: false,
            within: None,
            barred: &[],
        };
        let excluded = self.excluded(&ask, &shape.spots, tree.is_by_host());
        if !excluded.is_empty() {
            let list: Vec<String> = excluded.iter().map(|(what, count)| format!("{what}: {count}")).collect();
            let total = shape.spots.len();
            let _ = write!(text, ". Total nodes: {total}; excluded: {}", list.join(", "));
        }
        text
    }

    /// How many of the narrowest domains are of no use, by what keeps pods from them.
    fn excluded(&self, ask: &Ask, spots: &[usize], by_host: bool) -> BTreeMap<String, usize> {
        // There are many domains and few reasons: each is put into words once.
        let mut obstacles: BTreeMap<Obstacle, usize> = BTreeMap::new();
        let mut resources: BTreeMap<usize, usize> = BTreeMap::new();
        for spot in spots.iter().filter_map(|id| self.spots.get(*id)) {
            if let Some(obstacle) = ask.obstacle(spot).filter(|_| by_host) {
                *obstacles.entry(obstacle).or_default() += 1;
                continue;
            }
            let short = |(number, need, _): &&Need| times(spot.free(*number, ask.view), *need) == 0;
            if let Some((number, _, _)) = ask.needs.iter().find(short) {
                *resources.entry(*number).or_default() += 1;
            }
        }
        let obstacle = |obstacle| match obstacle {
            Obstacle::Affinity => "affinity".to_owned(),
            Obstacle::NodeSelector => "nodeSelector".to_owned(),
            Obstacle::Taint(taint) => format!("taint \"{taint}\""),
        };
        let resource = |number| format!("resource \"{}\"", self.names.name(number));
        let obstacles = obstacles.into_iter().map(|(what, count)| (obstacle(what), count));
        obstacles.chain(resources.into_iter().map(|(number, count)| (resource(number), count))).collect()
    }
}
