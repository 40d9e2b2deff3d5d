//! Nodes, the pods of others on them, and what workloads take, kept up by events.
//!
//! Invariants: an event costs what it touches, and one that changes nothing costs a comparison; capacity and usage are
//! exact sums of any sign, so that a node may be short of one resource without being short of another (I4); what
//! workloads take is known by host or domain, whether the node is there or not.

use super::leaf_capacity::{CapacityKey, Footprint, FootprintEntry, LeafCapacities};
use super::pod_requirements::{DomainPath, PodRequirements};
use super::resource_vector::{ResourceNames, ResourceVector, SparseVector, add_scaled};
use super::tree::{FlavorSpec, TopologyTree};
use crate::api::ObjectKey;
use crate::resources::{Amount, Quantity, Requests, UsageLayer, amount};
use k8s_openapi::api::core::v1::{Node, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSpec {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is ready and takes pods.
    pub usable: bool,
    /// What it has for pods.
    pub allocatable: Requests,
}

impl NodeSpec {
    /// What the object says. A quantity that cannot be read counts as nothing.
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

#[derive(Clone, Debug, Default)]
struct NodeEntry {
    spec: Arc<NodeSpec>,
    allocatable: SparseVector,
    /// Spots that it belongs to, and the flavors that see it there.
    leaf_capacities: BTreeMap<CapacityKey, BTreeSet<Arc<str>>>,
}

/// All that placement is decided on.
#[derive(Clone, Debug, Default)]
pub struct TasCache {
    pub(super) resource_names: ResourceNames,
    topologies: BTreeMap<Arc<str>, DomainPath>,
    flavors: BTreeMap<Arc<str>, FlavorSpec>,
    pub(super) trees: BTreeMap<Arc<str>, TopologyTree>,
    nodes: BTreeMap<Arc<str>, NodeEntry>,
    non_tas_pods: BTreeMap<ObjectKey, (Arc<str>, SparseVector)>,
    /// What pods of others take, by node, known or not.
    non_tas_usage: BTreeMap<Arc<str>, ResourceVector>,
    pub(super) leaf_capacities: LeafCapacities,
    pub(super) count_cache: super::count_cache::CountCache,
}

impl TasCache {
    /// Sets the levels of a Topology, or removes it. Answers whether anything changed.
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

    /// Sets what is known of a flavor with a topology, or removes it. Answers whether anything changed.
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

    /// Makes the tree of a flavor anew from the nodes.
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

    /// Sets what is known of a node, or removes it. Answers with the flavors that see a change.
    pub fn set_node(&mut self, name: &str, spec: Option<NodeSpec>) -> BTreeSet<Arc<str>> {
        let known = self.nodes.get(name).map(|entry| &*entry.spec);
        if known == spec.as_ref() {
            return BTreeSet::new();
        }
        let name: Arc<str> = Arc::from(name);
        let mut touched = self.flavors_of_node(&name);
        self.detach_node(&name, None);
        let Some(spec) = spec else {
            self.nodes.remove(&name);
            return touched;
        };
        let allocatable = self.resource_names.sparse(&spec.allocatable);
        let entry = NodeEntry { spec: Arc::new(spec), allocatable, leaf_capacities: BTreeMap::new() };
        self.nodes.insert(Arc::clone(&name), entry);
        self.attach_node(&name, None);
        touched.extend(self.flavors_of_node(&name));
        touched
    }

    fn flavors_of_node(&self, name: &str) -> BTreeSet<Arc<str>> {
        self.nodes
            .get(name)
            .into_iter()
            .flat_map(|entry| entry.leaf_capacities.values().flatten().cloned())
            .collect()
    }

    /// Puts a node where trees want it.
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
            let fresh = flavors.is_empty();
            flavors.insert(Arc::clone(flavor));
            if let Some(spot) = self.leaf_capacities.get_mut(id) {
                spot.flavors.insert(Arc::clone(flavor));
                if fresh {
                    spot.nodes.insert(Arc::clone(name), Arc::clone(&entry.spec));
                    spot.tainted =
                        spot.nodes.values().any(|n| n.taints.iter().any(super::filter::prevents_scheduling));
                    add_scaled(&mut spot.capacity, &entry.allocatable, 1);
                    if let Some(foreign) = self.non_tas_usage.get(name) {
                        add_scaled(&mut spot.capacity, &to_sparse(foreign), -1);
                    }
                }
            }
        }
        self.nodes.insert(Arc::clone(name), entry);
    }

    /// Takes a node out of all trees, or of one.
    fn detach_node(&mut self, name: &Arc<str>, only: Option<&Arc<str>>) {
        let Some(mut entry) = self.nodes.remove(name) else {
            return;
        };
        for (key, flavors) in &mut entry.leaf_capacities {
            let Some(id) = self.leaf_capacities.find(key) else { continue };
            let gone = |flavor: &&Arc<str>| only.is_none_or(|only| only == *flavor);
            for flavor in flavors.iter().filter(gone) {
                let remains = self.trees.get_mut(flavor).is_some_and(|tree| tree.remove_node(id, name));
                if let Some(spot) = self.leaf_capacities.get_mut(id).filter(|_| !remains) {
                    spot.flavors.remove(flavor);
                }
            }
            flavors.retain(|flavor| !gone(&flavor));
            if let Some(spot) = self.leaf_capacities.get_mut(id).filter(|_| flavors.is_empty()) {
                spot.nodes.remove(name);
                spot.tainted =
                    spot.nodes.values().any(|n| n.taints.iter().any(super::filter::prevents_scheduling));
                add_scaled(&mut spot.capacity, &entry.allocatable, -1);
                if let Some(foreign) = self.non_tas_usage.get(name) {
                    add_scaled(&mut spot.capacity, &to_sparse(foreign), 1);
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

    /// Sets what a pod takes of a node, if it is no workload's of a topology, or removes it. Answers with the flavors that
    /// see a change.
    pub fn set_non_tas_pod(
        &mut self,
        key: &ObjectKey,
        takes: Option<(Arc<str>, Requests)>,
    ) -> BTreeSet<Arc<str>> {
        let takes = takes.map(|(node, requests)| (node, self.resource_names.pod_requests(&requests)));
        let mut touched = BTreeSet::new();
        if self.non_tas_pods.get(key) == takes.as_ref() {
            return touched;
        }
        if let Some((node, parts)) = self.non_tas_pods.remove(key) {
            touched.extend(self.shift_non_tas_usage(&node, &parts, -1));
        }
        if let Some((node, parts)) = takes {
            touched.extend(self.shift_non_tas_usage(&node, &parts, 1));
            self.non_tas_pods.insert(key.clone(), (node, parts));
        }
        touched
    }

    fn shift_non_tas_usage(
        &mut self,
        node: &Arc<str>,
        parts: &SparseVector,
        sign: i128,
    ) -> BTreeSet<Arc<str>> {
        let sum = self.non_tas_usage.entry(Arc::clone(node)).or_default();
        add_scaled(sum, parts, sign);
        if super::resource_vector::is_zero(sum) {
            self.non_tas_usage.remove(node);
        }
        let keys: Vec<CapacityKey> = self
            .nodes
            .get(node)
            .map(|entry| entry.leaf_capacities.keys().cloned().collect())
            .unwrap_or_default();
        for key in keys {
            let spot = self.leaf_capacities.find(&key).and_then(|id| self.leaf_capacities.usage_mut(id));
            if let Some(spot) = spot {
                add_scaled(&mut spot.capacity, parts, -sign);
            }
        }
        self.flavors_of_node(node)
    }

    /// What occupancies take, to be added and taken off as often as needed.
    pub fn footprint(&mut self, occupancies: &[super::Occupancy]) -> Footprint {
        Footprint::from_occupancies(occupancies, &mut self.resource_names, &self.leaf_capacities)
    }

    /// Adds or takes off a footprint in a layer.
    pub fn shift_usage(&mut self, footprint: &Footprint, sign: i128, layer: UsageLayer) {
        self.leaf_capacities.shift_usage(footprint, sign, layer);
    }

    /// Whether every spot of the footprint could take it beside what is there.
    pub fn footprint_fits(&self, footprint: &Footprint, layer: UsageLayer) -> bool {
        footprint.entries.iter().all(|cell| {
            let Some(spot) = self.leaf_capacities.get_entry(cell) else {
                return false;
            };
            cell.amounts.iter().all(|(number, amount)| *amount <= spot.free_in(*number, layer))
        })
    }

    /// Whether what stands in the plan could stay there, and takes no less than another.
    pub fn still_valid_at(&self, standing: &Footprint, other: &Footprint) -> bool {
        let sound = |cell: &FootprintEntry| {
            let spot = self.leaf_capacities.get_entry(cell).filter(|spot| !spot.nodes.is_empty());
            let stays = |number| spot.is_some_and(|spot| spot.free_in(number, UsageLayer::Projected) >= 0);
            spot.is_some() && cell.amounts.iter().all(|(number, _)| stays(*number))
        };
        standing.entries.iter().all(sound) && standing.total() == other.total()
    }

    /// Flavors that see any spot of the footprint.
    pub fn flavors_of(&self, footprint: &Footprint) -> BTreeSet<Arc<str>> {
        let spots = footprint.entries.iter().filter_map(|cell| self.leaf_capacities.get_entry(cell));
        spots.flat_map(|spot| spot.flavors.iter().cloned()).collect()
    }

    /// Whether a flavor has a topology that is known.
    pub fn has_topology(&self, flavor: &str) -> bool {
        self.trees.contains_key(flavor)
    }

    /// Why the flavor cannot give what the pods ask for, whatever is free: a level that its topology does not have.
    pub fn lacks_level(&self, flavor: &str, pods: &PodRequirements) -> bool {
        let (Some(tree), Some(request)) = (self.trees.get(flavor), &pods.request) else {
            return !self.trees.contains_key(flavor);
        };
        let layers = request.pod_set_slice_required_topology_constraints.iter().map(|layer| &layer.topology);
        let levels = request.required.iter().chain(&request.preferred).chain(layers);
        !levels.chain(&request.pod_set_slice_required_topology).all(|level| tree.level_index(level).is_some())
    }

    /// Adds and counts up everything again from nodes, pods and these footprints, and answers whether that is what is known.
    pub fn equals_recount<'a>(&self, held: impl Iterator<Item = &'a Footprint>) -> bool {
        let mut usage: BTreeMap<CapacityKey, ResourceVector> = BTreeMap::new();
        for cell in held.flat_map(|footprint| &footprint.entries) {
            add_scaled(usage.entry(cell.key.clone()).or_default(), &cell.amounts, 1);
        }
        let mut foreign: BTreeMap<&str, ResourceVector> = BTreeMap::new();
        for (node, parts) in self.non_tas_pods.values() {
            add_scaled(foreign.entry(node).or_default(), parts, 1);
        }
        let same = |a: &[i128], b: &[i128]| {
            (0..a.len().max(b.len()))
                .all(|n| super::resource_vector::amount_at(a, n) == super::resource_vector::amount_at(b, n))
        };
        let right = |key: &CapacityKey, layer| {
            let (sum, known) =
                (usage.get(key), self.leaf_capacities.find(key).and_then(|id| self.leaf_capacities.get(id)));
            same(sum.map_or(&[], |s| &s[..]), known.map_or(&[], |spot| spot.usage(layer)))
        };
        let capacity_right = self.leaf_capacities.iter().all(|(_, spot)| {
            let mut sum = ResourceVector::new();
            for name in spot.nodes.keys() {
                let entry = self.nodes.get(name);
                add_scaled(&mut sum, entry.map_or(&[], |entry| &entry.allocatable[..]), 1);
                add_scaled(&mut sum, &foreign.get(&**name).map(to_sparse).unwrap_or_default(), -1);
            }
            same(&sum, &spot.capacity) && super::resource_vector::is_zero(&spot.simulated_usage)
        });
        let both = [UsageLayer::Current, UsageLayer::Projected];
        let known = both.iter().flat_map(|layer| self.leaf_capacities.usage_by_key(*layer).into_keys());
        let mut keys = usage.keys().cloned().chain(known);
        let usage_right = keys.all(|key| both.iter().all(|layer| right(&key, *layer)));
        capacity_right && usage_right && self.count_cache_is_consistent()
    }
}

fn to_sparse(vector: &ResourceVector) -> SparseVector {
    vector.iter().copied().enumerate().filter(|(_, amount)| *amount != 0).collect()
}
