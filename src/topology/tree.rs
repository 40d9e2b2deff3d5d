//! The domains of one flavor: a level for each label of its Topology, nodes below them.
//!
//! Invariants: domains stand in the order of their values, so that those of one parent are neighbours; a host has one
//! place, the first of those that its nodes claim; the shape follows from the members and is made anew only after nodes
//! came or went, never for what pods do.

use super::leaf_capacity::CapacityId;
use super::pod_requirements::{DomainPath, HOSTNAME_LABEL};
use k8s_openapi::api::core::v1::Toleration;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// What is known of a flavor with a topology.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlavorSpec {
    /// Labels of its nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Tolerations that admitted pods are given.
    pub tolerations: Vec<Toleration>,
    /// Name of the Topology.
    pub topology: Arc<str>,
}

/// A domain: its place among those of its level goes by the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    /// Domains of the level below.
    pub(super) children: Range<usize>,
    /// Narrowest domains in it.
    pub(super) leaves: Range<usize>,
}

/// All domains by level, widest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainLayout {
    pub(super) levels: Vec<Vec<Domain>>,
    /// Spot of each narrowest domain.
    pub(super) capacity_ids: Vec<CapacityId>,
    /// Values of each narrowest domain.
    pub(super) paths: Vec<DomainPath>,
    /// Narrowest domain of each spot.
    leaf_by_capacity: BTreeMap<CapacityId, usize>,
}

impl DomainLayout {
    fn new(depth: usize, order: &BTreeSet<(DomainPath, CapacityId)>) -> Self {
        let mut shape = Self { levels: vec![Vec::new(); depth], ..Self::default() };
        for (path, spot) in order {
            let leaf = shape.paths.len();
            let common = shape.paths.last().map_or(0, |last| common_prefix_len(last, path));
            // The narrowest level is new for every leaf, whatever its values are.
            for level in common.min(depth.saturating_sub(1))..depth {
                let below = shape.levels.get(level + 1).map_or(leaf, Vec::len);
                if let Some(domains) = shape.levels.get_mut(level) {
                    domains.push(Domain { children: below..below, leaves: leaf..leaf });
                }
            }
            for level in 0..depth {
                let below = shape.levels.get(level + 1).map_or(leaf + 1, Vec::len);
                if let Some(domain) = shape.levels.get_mut(level).and_then(|domains| domains.last_mut()) {
                    domain.children.end = below;
                    domain.leaves.end = leaf + 1;
                }
            }
            shape.paths.push(Arc::clone(path));
            shape.capacity_ids.push(*spot);
            shape.leaf_by_capacity.insert(*spot, leaf);
        }
        shape
    }

    pub(super) fn domain(&self, level: usize, at: usize) -> Option<&Domain> {
        self.levels.get(level)?.get(at)
    }

    /// Number of domains of a level.
    pub(super) fn domain_count(&self, level: usize) -> usize {
        self.levels.get(level).map_or(0, Vec::len)
    }

    /// The leaf with this spot.
    pub(super) fn leaf_of(&self, spot: CapacityId) -> Option<usize> {
        self.leaf_by_capacity.get(&spot).copied()
    }

    /// The domain of a level in which a domain of the level below is.
    pub(super) fn parent(&self, level: usize, child: usize) -> Option<(usize, &Domain)> {
        let domains = self.levels.get(level)?;
        let at = domains.partition_point(|domain| domain.children.end <= child);
        Some((at, domains.get(at)?))
    }

    /// The domain of a level in which a leaf is.
    pub(super) fn ancestor(&self, level: usize, leaf: usize) -> Option<usize> {
        let domains = self.levels.get(level)?;
        let at = domains.partition_point(|domain| domain.leaves.end <= leaf);
        (at < domains.len()).then_some(at)
    }
}

/// Number of values that two paths begin with alike.
fn common_prefix_len(a: &DomainPath, b: &DomainPath) -> usize {
    a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count()
}

/// The domains of a flavor.
#[derive(Clone, Debug)]
pub(super) struct TopologyTree {
    pub(super) levels: DomainPath,
    pub(super) flavor: FlavorSpec,
    /// Places that the nodes of a spot claim.
    claimed_paths: BTreeMap<CapacityId, BTreeSet<(DomainPath, Arc<str>)>>,
    ordered_paths: BTreeSet<(DomainPath, CapacityId)>,
    layout: Option<Arc<DomainLayout>>,
}

impl TopologyTree {
    pub(super) fn new(levels: DomainPath, flavor: FlavorSpec) -> Self {
        Self { levels, flavor, claimed_paths: BTreeMap::new(), ordered_paths: BTreeSet::new(), layout: None }
    }

    pub(super) fn is_by_host(&self) -> bool {
        self.levels.last().is_some_and(|level| **level == *HOSTNAME_LABEL)
    }

    /// Place of a level by its label.
    pub(super) fn level_index(&self, label: &str) -> Option<usize> {
        self.levels.iter().position(|level| **level == *label)
    }

    /// Values of a node at every level; none if one is missing or the node is of another flavor.
    pub(super) fn path_of(&self, labels: &BTreeMap<String, String>) -> Option<DomainPath> {
        let own = self.flavor.node_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        let values = self.levels.iter().map(|level| labels.get(&**level).map(|value| Arc::from(&**value)));
        own.then(|| values.collect::<Option<Vec<Arc<str>>>>().map(Arc::from)).flatten()
    }

    pub(super) fn add_node(&mut self, spot: CapacityId, node: &Arc<str>, path: DomainPath) {
        self.update_claimed_paths(spot, |members| {
            members.insert((path, Arc::clone(node)));
        });
    }

    /// Whether the spot is still one of the tree's.
    pub(super) fn remove_node(&mut self, spot: CapacityId, node: &str) -> bool {
        self.update_claimed_paths(spot, |members| members.retain(|(_, name)| **name != *node));
        self.claimed_paths.contains_key(&spot)
    }

    fn update_claimed_paths(
        &mut self,
        spot: CapacityId,
        change: impl FnOnce(&mut BTreeSet<(DomainPath, Arc<str>)>),
    ) {
        let members = self.claimed_paths.entry(spot).or_default();
        let before = members.first().map(|(path, _)| Arc::clone(path));
        change(members);
        let after = members.first().map(|(path, _)| Arc::clone(path));
        if members.is_empty() {
            self.claimed_paths.remove(&spot);
        }
        if before == after {
            return;
        }
        self.layout = None;
        if let Some(path) = before {
            self.ordered_paths.remove(&(path, spot));
        }
        if let Some(path) = after {
            self.ordered_paths.insert((path, spot));
        }
    }

    /// Whether these are the domains as they stand.
    pub(super) fn has_layout(&self, shape: &Arc<DomainLayout>) -> bool {
        self.layout.as_ref().is_some_and(|own| Arc::ptr_eq(own, shape))
    }

    /// The domains as they stand.
    pub(super) fn layout(&mut self) -> Arc<DomainLayout> {
        let (depth, order) = (self.levels.len(), &self.ordered_paths);
        Arc::clone(self.layout.get_or_insert_with(|| Arc::new(DomainLayout::new(depth, order))))
    }
}
