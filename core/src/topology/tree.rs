//! The domain tree of one flavor: one level for each label of its Topology, with nodes below the narrowest level.
//!
//! Invariants: the domains of a level are sorted by their values, so the children of one parent are adjacent; a host has one
//! path, the first of the paths that its nodes claim; the layout depends only on the claimed paths and is rebuilt only when
//! one of these changes, never because of pods.

use super::leaf_capacity::CapacityId;
use super::pod_requirements::{DomainPath, HOSTNAME_LABEL};
use k8s_openapi::api::core::v1::Toleration;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// A ResourceFlavor with a topology.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlavorSpec {
    /// Labels of its nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Tolerations added to admitted pods.
    pub tolerations: Vec<Toleration>,
    /// Name of the Topology.
    pub topology: Arc<str>,
}

/// A domain. Its index within its level follows the order of the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    /// Domains of the level below.
    pub(super) children: Range<usize>,
    /// Narrowest domains within this one.
    pub(super) leaves: Range<usize>,
}

/// All domains by level, widest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DomainLayout {
    pub(super) levels: Vec<Vec<Domain>>,
    /// Leaf capacity of each narrowest domain.
    pub(super) capacity_ids: Vec<CapacityId>,
    /// Values of each narrowest domain.
    pub(super) paths: Vec<DomainPath>,
    /// The inverse of `capacity_ids`.
    leaf_by_capacity: BTreeMap<CapacityId, usize>,
}

impl DomainLayout {
    fn new(depth: usize, ordered_paths: &BTreeSet<(DomainPath, CapacityId)>) -> Self {
        let mut layout = Self { levels: vec![Vec::new(); depth], ..Self::default() };
        for (path, id) in ordered_paths {
            let leaf = layout.paths.len();
            let common = layout.paths.last().map_or(0, |last| common_prefix_len(last, path));
            // Every leaf is a domain of its own at the narrowest level, even with the same values as the one before it.
            for level in common.min(depth.saturating_sub(1))..depth {
                let child_count = layout.levels.get(level + 1).map_or(leaf, Vec::len);
                if let Some(domains) = layout.levels.get_mut(level) {
                    domains.push(Domain { children: child_count..child_count, leaves: leaf..leaf });
                }
            }
            for level in 0..depth {
                let child_count = layout.levels.get(level + 1).map_or(leaf + 1, Vec::len);
                if let Some(domain) = layout.levels.get_mut(level).and_then(|domains| domains.last_mut()) {
                    domain.children.end = child_count;
                    domain.leaves.end = leaf + 1;
                }
            }
            layout.paths.push(Arc::clone(path));
            layout.capacity_ids.push(*id);
            layout.leaf_by_capacity.insert(*id, leaf);
        }
        layout
    }

    pub(super) fn domain(&self, level: usize, index: usize) -> Option<&Domain> {
        self.levels.get(level)?.get(index)
    }

    pub(super) fn domain_count(&self, level: usize) -> usize {
        self.levels.get(level).map_or(0, Vec::len)
    }

    pub(super) fn leaf_of(&self, id: CapacityId) -> Option<usize> {
        self.leaf_by_capacity.get(&id).copied()
    }

    /// Returns the domain of `level` that contains the domain `child` of the level below.
    pub(super) fn parent(&self, level: usize, child: usize) -> Option<(usize, &Domain)> {
        let domains = self.levels.get(level)?;
        let index = domains.partition_point(|domain| domain.children.end <= child);
        Some((index, domains.get(index)?))
    }

    /// Returns the domain of `level` that contains a leaf.
    pub(super) fn ancestor(&self, level: usize, leaf: usize) -> Option<usize> {
        let domains = self.levels.get(level)?;
        let index = domains.partition_point(|domain| domain.leaves.end <= leaf);
        (index < domains.len()).then_some(index)
    }
}

fn common_prefix_len(a: &DomainPath, b: &DomainPath) -> usize {
    a.iter().zip(b.iter()).take_while(|(a, b)| a == b).count()
}

/// The domains of a flavor, with the nodes that define them.
#[derive(Clone, Debug)]
pub(super) struct TopologyTree {
    pub(super) levels: DomainPath,
    pub(super) flavor: FlavorSpec,
    /// Paths claimed by the nodes of a leaf capacity, with the node names. The first one applies.
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

    pub(super) fn level_index(&self, label: &str) -> Option<usize> {
        self.levels.iter().position(|level| **level == *label)
    }

    /// Returns the values of a node at every level. `None` if a label is missing or the node does not match the flavor.
    pub(super) fn path_of(&self, labels: &BTreeMap<String, String>) -> Option<DomainPath> {
        let own = self.flavor.node_labels.iter().all(|(key, value)| labels.get(key) == Some(value));
        let values = self.levels.iter().map(|level| labels.get(&**level).map(|value| Arc::from(&**value)));
        own.then(|| values.collect::<Option<Vec<Arc<str>>>>().map(Arc::from)).flatten()
    }

    /// Returns the values of a leaf capacity at every level.
    pub(super) fn claimed_path(&self, id: CapacityId) -> Option<&DomainPath> {
        self.claimed_paths.get(&id)?.first().map(|(path, _)| path)
    }

    pub(super) fn add_node(&mut self, id: CapacityId, node: &Arc<str>, path: DomainPath) {
        self.update_claimed_paths(id, |claims| {
            claims.insert((path, Arc::clone(node)));
        });
    }

    /// Removes a node. Returns whether the leaf capacity still has a node in this tree.
    pub(super) fn remove_node(&mut self, id: CapacityId, node: &str) -> bool {
        self.update_claimed_paths(id, |claims| claims.retain(|(_, name)| **name != *node));
        self.claimed_paths.contains_key(&id)
    }

    fn update_claimed_paths(
        &mut self,
        id: CapacityId,
        change: impl FnOnce(&mut BTreeSet<(DomainPath, Arc<str>)>),
    ) {
        let claims = self.claimed_paths.entry(id).or_default();
        let before = claims.first().map(|(path, _)| Arc::clone(path));
        change(claims);
        let after = claims.first().map(|(path, _)| Arc::clone(path));
        if claims.is_empty() {
            self.claimed_paths.remove(&id);
        }
        if before == after {
            return;
        }
        self.layout = None;
        if let Some(path) = before {
            self.ordered_paths.remove(&(path, id));
        }
        if let Some(path) = after {
            self.ordered_paths.insert((path, id));
        }
    }

    /// Returns whether `layout` is the current layout.
    pub(super) fn has_layout(&self, layout: &Arc<DomainLayout>) -> bool {
        self.layout.as_ref().is_some_and(|own| Arc::ptr_eq(own, layout))
    }

    /// Returns the current layout; builds it if paths changed since the last call.
    pub(super) fn layout(&mut self) -> Arc<DomainLayout> {
        let (depth, ordered_paths) = (self.levels.len(), &self.ordered_paths);
        Arc::clone(self.layout.get_or_insert_with(|| Arc::new(DomainLayout::new(depth, ordered_paths))))
    }
}
