//! The TAS cache: nodes, non-TAS usage and the usage of workloads, maintained from events.
//!
//! Invariants: an event costs time only for what it touches, and one without effect costs a comparison; capacity and usage
//! are exact signed sums, so a node can be overcommitted in one resource and free in another (I4); the usage of workloads is
//! kept by host or domain, whether or not the node exists.

use super::leaf_capacity::{CapacityKey, Footprint, FootprintEntry, LeafCapacities, NonTasUsage};
use super::pod_requirements::{DomainPath, PodRequirements};
use super::resource_vector::{ResourceNames, ResourceVector, SparseVector, add_scaled, is_zero, to_sparse};
use super::tree::{FlavorSpec, TopologyTree};
use crate::api::ObjectKey;
use crate::resources::{Amount, Quantity, Requests, UsageLayer, amount};
use k8s_openapi::api::core::v1::{Node, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What placement needs of a Node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSpec {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is ready and schedulable.
    pub usable: bool,
    /// `status.allocatable`.
    pub allocatable: Requests,
}

impl NodeSpec {
    /// Reads a Node. An invalid quantity counts as 0.
    pub fn from_node(node: &Node) -> Self {
        let spec = node.spec.clone().unwrap_or_default();
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        let quantity = |(name, quantity): (&String, &_)| {
            let exact = Quantity::try_from(quantity).map_or(Amount::ZERO, |q| amount(name, &q));
            (Arc::from(name.as_str()), exact)
        };
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        Self {
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: spec.taints.unwrap_or_default(),
            usable: ready && spec.unschedulable != Some(true),
            allocatable: allocatable.into_iter().flatten().map(quantity).collect(),
        }
    }
}

/// A pod outside topology assignments that is bound to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NonTasPod {
    /// The node.
    pub node: Arc<str>,
    /// What it requests.
    pub requests: Requests,
    /// Whether it goes when all that holds quota ends.
    pub ends: bool,
}

/// What a `NonTasPod` uses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NonTasPodUsage {
    node: Arc<str>,
    amounts: SparseVector,
    ends: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct NodeEntry {
    pub(super) spec: Arc<NodeSpec>,
    allocatable: SparseVector,
    /// Leaf capacities it contributes to, with the flavors that see it there.
    leaf_capacities: BTreeMap<CapacityKey, BTreeSet<Arc<str>>>,
}

/// All inputs of a placement.
#[derive(Clone, Debug, Default)]
pub struct TasCache {
    pub(super) resource_names: ResourceNames,
    topologies: BTreeMap<Arc<str>, DomainPath>,
    flavors: BTreeMap<Arc<str>, FlavorSpec>,
    pub(super) trees: BTreeMap<Arc<str>, TopologyTree>,
    pub(super) nodes: BTreeMap<Arc<str>, NodeEntry>,
    non_tas_pods: BTreeMap<ObjectKey, NonTasPodUsage>,
    /// Number of them that end with what holds quota.
    ending_pods: usize,
    /// Usage of pods outside topology assignments by node name, whether or not the node exists.
    non_tas_usage: BTreeMap<Arc<str>, NonTasUsage>,
    pub(super) leaf_capacities: LeafCapacities,
    pub(super) count_cache: super::count_cache::CountCache,
}

impl TasCache {
    /// Sets the levels of a Topology, or removes it. Returns whether anything changed.
    pub fn set_topology(&mut self, name: &str, levels: Option<DomainPath>) -> bool {
        if self.topologies.get(name) == levels.as_ref() {
            return false;
        }
        match levels {
            Some(levels) => self.topologies.insert(Arc::from(name), levels),
            None => self.topologies.remove(name),
        };
        let users = self.flavors.iter().filter(|(_, flavor)| *flavor.topology == *name);
        for flavor in users.map(|(flavor, _)| Arc::clone(flavor)).collect::<Vec<_>>() {
            self.rebuild_tree(&flavor);
        }
        true
    }

    /// Sets a flavor that has a topology, or removes it. Returns whether anything changed.
    pub fn set_flavor(&mut self, name: &str, flavor: Option<FlavorSpec>) -> bool {
        if self.flavors.get(name) == flavor.as_ref() {
            return false;
        }
        match flavor {
            Some(flavor) => self.flavors.insert(Arc::from(name), flavor),
            None => self.flavors.remove(name),
        };
        self.rebuild_tree(&Arc::from(name));
        true
    }

    /// Builds the tree of a flavor again from all nodes.
    fn rebuild_tree(&mut self, flavor: &Arc<str>) {
        let names: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        for name in &names {
            self.detach_node(name, Some(flavor));
        }
        self.trees.remove(flavor);
        let Some(spec) = self.flavors.get(flavor) else {
            return;
        };
        if let Some(levels) = self.topologies.get(&spec.topology).filter(|levels| !levels.is_empty()) {
            self.trees.insert(Arc::clone(flavor), TopologyTree::new(Arc::clone(levels), spec.clone()));
            for name in &names {
                self.attach_node(name, Some(flavor));
            }
        }
    }

    /// Sets a node, or removes it. Returns the flavors affected.
    pub fn set_node(&mut self, name: &str, spec: Option<NodeSpec>) -> BTreeSet<Arc<str>> {
        let current = self.nodes.get(name).map(|entry| &*entry.spec);
        if current == spec.as_ref() {
            return BTreeSet::new();
        }
        let name: Arc<str> = Arc::from(name);
        let mut changed_flavors = self.flavors_of_node(&name);
        self.detach_node(&name, None);
        let Some(spec) = spec else {
            self.nodes.remove(&name);
            return changed_flavors;
        };
        let allocatable = self.resource_names.sparse(&spec.allocatable);
        let entry = NodeEntry { spec: Arc::new(spec), allocatable, leaf_capacities: BTreeMap::new() };
        self.nodes.insert(Arc::clone(&name), entry);
        self.attach_node(&name, None);
        changed_flavors.extend(self.flavors_of_node(&name));
        changed_flavors
    }

    fn flavors_of_node(&self, name: &str) -> BTreeSet<Arc<str>> {
        self.nodes
            .get(name)
            .into_iter()
            .flat_map(|entry| entry.leaf_capacities.values().flatten().cloned())
            .collect()
    }

    /// Adds a node to all trees, or only to the tree of flavor `only`.
    fn attach_node(&mut self, name: &Arc<str>, only: Option<&Arc<str>>) {
        let Some(mut entry) = self.nodes.remove(name) else {
            return;
        };
        for (flavor, tree) in &mut self.trees {
            if !entry.spec.usable || only.is_some_and(|only| only != flavor) {
                continue;
            }
            let Some(path) = tree.path_of(&entry.spec.labels) else {
                continue;
            };
            let key = match path.last().filter(|_| tree.is_by_host()) {
                Some(host) => CapacityKey::Host(Arc::clone(host)),
                None => CapacityKey::Domain(Arc::clone(flavor), Arc::clone(&path)),
            };
            let id = self.leaf_capacities.find_or_add(&key);
            tree.add_node(id, name, path);
            let flavors = entry.leaf_capacities.entry(key).or_default();
            let is_new = flavors.is_empty();
            flavors.insert(Arc::clone(flavor));
            if let Some(leaf) = self.leaf_capacities.get_mut(id) {
                leaf.flavors.insert(Arc::clone(flavor));
                if is_new {
                    leaf.nodes.insert(Arc::clone(name), Arc::clone(&entry.spec));
                    leaf.tainted =
                        leaf.nodes.values().any(|n| n.taints.iter().any(super::filter::prevents_scheduling));
                    add_scaled(&mut leaf.capacity, &entry.allocatable, 1);
                    if let Some(usage) = self.non_tas_usage.get(name) {
                        leaf.shift_non_tas_usage(usage, 1);
                    }
                }
            }
        }
        self.nodes.insert(Arc::clone(name), entry);
    }

    /// Removes a node from all trees, or only from the tree of flavor `only`.
    fn detach_node(&mut self, name: &Arc<str>, only: Option<&Arc<str>>) {
        let Some(mut entry) = self.nodes.remove(name) else {
            return;
        };
        for (key, flavors) in &mut entry.leaf_capacities {
            let Some(id) = self.leaf_capacities.find(key) else { continue };
            let is_selected = |flavor: &&Arc<str>| only.is_none_or(|only| only == *flavor);
            for flavor in flavors.iter().filter(is_selected) {
                let remains = self.trees.get_mut(flavor).is_some_and(|tree| tree.remove_node(id, name));
                if let Some(leaf) = self.leaf_capacities.get_mut(id).filter(|_| !remains) {
                    leaf.flavors.remove(flavor);
                }
            }
            flavors.retain(|flavor| !is_selected(&flavor));
            if let Some(leaf) = self.leaf_capacities.get_mut(id).filter(|_| flavors.is_empty()) {
                leaf.nodes.remove(name);
                leaf.tainted =
                    leaf.nodes.values().any(|n| n.taints.iter().any(super::filter::prevents_scheduling));
                add_scaled(&mut leaf.capacity, &entry.allocatable, -1);
                if let Some(usage) = self.non_tas_usage.get(name) {
                    leaf.shift_non_tas_usage(usage, -1);
                }
            }
        }
        let empty: Vec<CapacityKey> = entry
            .leaf_capacities
            .iter()
            .filter(|(_, flavors)| flavors.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        for key in empty {
            entry.leaf_capacities.remove(&key);
            self.leaf_capacities.remove_if_idle(&key);
        }
        self.nodes.insert(Arc::clone(name), entry);
    }

    /// Sets a non-TAS pod, or removes it. Returns the flavors affected.
    pub fn set_non_tas_pod(&mut self, key: &ObjectKey, pod: Option<NonTasPod>) -> BTreeSet<Arc<str>> {
        let pod = pod.map(|NonTasPod { node, requests, ends }| NonTasPodUsage {
            node,
            amounts: self.resource_names.pod_requests(&requests),
            ends,
        });
        let mut changed_flavors = BTreeSet::new();
        if self.non_tas_pods.get(key) == pod.as_ref() {
            return changed_flavors;
        }
        if let Some(before) = self.non_tas_pods.remove(key) {
            self.ending_pods = self.ending_pods.saturating_sub(usize::from(before.ends));
            changed_flavors.extend(self.shift_non_tas_usage(&before, -1));
        }
        if let Some(pod) = pod {
            self.ending_pods = self.ending_pods.saturating_add(usize::from(pod.ends));
            changed_flavors.extend(self.shift_non_tas_usage(&pod, 1));
            self.non_tas_pods.insert(key.clone(), pod);
        }
        changed_flavors
    }

    fn shift_non_tas_usage(&mut self, pod: &NonTasPodUsage, sign: i128) -> BTreeSet<Arc<str>> {
        let NonTasPodUsage { node, amounts, ends } = pod;
        let sum = self.non_tas_usage.entry(Arc::clone(node)).or_default();
        sum.shift(amounts, *ends, sign);
        if is_zero(&sum.all) {
            self.non_tas_usage.remove(node);
        }
        let keys: Vec<CapacityKey> = self
            .nodes
            .get(node)
            .map(|entry| entry.leaf_capacities.keys().cloned().collect())
            .unwrap_or_default();
        for key in keys {
            let leaf = self.leaf_capacities.find(&key).and_then(|id| self.leaf_capacities.usage_mut(id));
            if let Some(leaf) = leaf {
                add_scaled(&mut leaf.capacity, amounts, -sign);
                if *ends {
                    add_scaled(&mut leaf.ending_usage, amounts, sign);
                }
            }
        }
        self.flavors_of_node(node)
    }

    /// Returns whether pods outside topology assignments end with what holds quota, on any node.
    pub const fn has_ending_pods(&self) -> bool {
        self.ending_pods > 0
    }

    /// Returns what pods outside topology assignments use on a node.
    pub(super) fn non_tas_usage_of(&self, node: &str) -> &[i128] {
        self.non_tas_usage.get(node).map(|usage| usage.all.as_slice()).unwrap_or_default()
    }

    /// Returns whether pods that stay when all that holds quota ends use a resource on a node.
    pub(super) fn keeps_usage(&self, node: &str, resource: usize) -> bool {
        let of = |usage: &ResourceVector| super::resource_vector::amount_at(usage, resource);
        self.non_tas_usage.get(node).is_some_and(|usage| of(&usage.all) > of(&usage.ending))
    }

    /// Returns the usage of occupancies in a form that is cheap to add and subtract repeatedly.
    pub fn footprint(&mut self, occupancies: &[super::Occupancy]) -> Footprint {
        Footprint::from_occupancies(occupancies, &mut self.resource_names, &self.leaf_capacities)
    }

    /// Adds (`sign` 1) or subtracts (-1) a footprint in a layer.
    pub fn shift_usage(&mut self, footprint: &Footprint, sign: i128, layer: UsageLayer) {
        self.leaf_capacities.shift_usage(footprint, sign, layer);
    }

    /// Returns whether the footprint fits into the free capacity of the layer.
    pub fn footprint_fits(&self, footprint: &Footprint, layer: UsageLayer) -> bool {
        footprint.entries.iter().all(|entry| {
            let Some(leaf) = self.leaf_capacities.get_entry(entry) else {
                return false;
            };
            entry.amounts.iter().all(|(resource, amount)| *amount <= leaf.free_in(*resource, layer))
        })
    }

    /// Returns whether a capacity reservation is still usable: its nodes exist, nothing it uses is overcommitted in projected
    /// usage, and its total equals that of `other`.
    pub fn still_valid_at(&self, reserved: &Footprint, other: &Footprint) -> bool {
        let still_fits = |entry: &FootprintEntry| {
            let leaf = self.leaf_capacities.get_entry(entry).filter(|leaf| !leaf.nodes.is_empty());
            let has_capacity =
                |resource| leaf.is_some_and(|leaf| leaf.free_in(resource, UsageLayer::Projected) >= 0);
            leaf.is_some() && entry.amounts.iter().all(|(resource, _)| has_capacity(*resource))
        };
        reserved.entries.iter().all(still_fits) && reserved.total() == other.total()
    }

    /// Returns the flavors that contain any leaf of the footprint.
    pub fn flavors_of(&self, footprint: &Footprint) -> BTreeSet<Arc<str>> {
        let capacities = footprint.entries.iter().filter_map(|entry| self.leaf_capacities.get_entry(entry));
        capacities.flat_map(|leaf| leaf.flavors.iter().cloned()).collect()
    }

    /// Returns whether the flavor has a tree: its Topology exists and has levels.
    pub fn has_topology(&self, flavor: &str) -> bool {
        self.trees.contains_key(flavor)
    }

    /// Returns whether the flavor's topology lacks a level that the pods request, or does not exist.
    pub fn lacks_level(&self, flavor: &str, pods: &PodRequirements) -> bool {
        let (Some(tree), Some(request)) = (self.trees.get(flavor), &pods.request) else {
            return !self.trees.contains_key(flavor);
        };
        let layers = request.pod_set_slice_required_topology_constraints.iter().map(|layer| &layer.topology);
        let levels = request.required.iter().chain(&request.preferred).chain(layers);
        !levels.chain(&request.pod_set_slice_required_topology).all(|level| tree.level_index(level).is_some())
    }

    /// Recomputes capacity and usage from nodes, non-TAS pods and `footprints`. Returns whether the cache agrees.
    pub fn equals_recount<'a>(&self, footprints: impl Iterator<Item = &'a Footprint>) -> bool {
        let mut usage: BTreeMap<CapacityKey, ResourceVector> = BTreeMap::new();
        for entry in footprints.flat_map(|footprint| &footprint.entries) {
            add_scaled(usage.entry(entry.key.clone()).or_default(), &entry.amounts, 1);
        }
        let mut non_tas_usage: BTreeMap<&str, NonTasUsage> = BTreeMap::new();
        for pod in self.non_tas_pods.values() {
            non_tas_usage.entry(&pod.node).or_default().shift(&pod.amounts, pod.ends, 1);
        }
        let ending_pods = self.non_tas_pods.values().filter(|pod| pod.ends).count();
        let same = |a: &[i128], b: &[i128]| {
            (0..a.len().max(b.len()))
                .all(|n| super::resource_vector::amount_at(a, n) == super::resource_vector::amount_at(b, n))
        };
        let usage_matches = |key: &CapacityKey, layer| {
            let (sum, leaf_keys) =
                (usage.get(key), self.leaf_capacities.find(key).and_then(|id| self.leaf_capacities.get(id)));
            same(sum.map_or(&[], |s| &s[..]), leaf_keys.map_or(&[], |leaf| leaf.usage(layer)))
        };
        let capacity_ok = self.leaf_capacities.iter().all(|(_, leaf)| {
            let (mut sum, mut ending) = (ResourceVector::new(), ResourceVector::new());
            for name in leaf.nodes.keys() {
                let node = self.nodes.get(name);
                add_scaled(&mut sum, node.map_or(&[], |node| &node.allocatable[..]), 1);
                if let Some(used) = non_tas_usage.get(&**name) {
                    add_scaled(&mut sum, &to_sparse(&used.all), -1);
                    add_scaled(&mut ending, &to_sparse(&used.ending), 1);
                }
            }
            same(&sum, &leaf.capacity) && same(&ending, &leaf.ending_usage) && is_zero(&leaf.simulated_usage)
        });
        let both = [UsageLayer::Current, UsageLayer::Projected];
        let leaf_keys = both.iter().flat_map(|layer| self.leaf_capacities.usage_by_key(*layer).into_keys());
        let mut keys = usage.keys().cloned().chain(leaf_keys);
        let usage_ok = keys.all(|key| both.iter().all(|layer| usage_matches(&key, *layer)));
        let pods_ok = ending_pods == self.ending_pods;
        capacity_ok && usage_ok && pods_ok && self.count_cache_is_consistent()
    }
}
