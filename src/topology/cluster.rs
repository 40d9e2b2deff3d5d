//! Nodes, the pods of others on them, and what workloads take, kept up by events.
//!
//! Invariants: an event costs what it touches, and one that changes nothing costs a comparison; capacity and usage are
//! exact sums of any sign, so that a node may be short of one resource without being short of another (I4); what
//! workloads take is known by host or domain, whether the node is there or not.

use super::pods::{Path, Pods};
use super::spots::{Cell, Footprint, SpotKey, Spots};
use super::tree::{FlavorSpec, Tree};
use super::vector::{Names, Parts, Vector, add};
use crate::api::ObjectKey;
use crate::resources::{Amount, Layer, Quantity, Requests, amount};
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
    pub fn of(node: &Node) -> Self {
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
    allocatable: Parts,
    /// Spots that it belongs to, and the flavors that see it there.
    spots: BTreeMap<SpotKey, BTreeSet<Arc<str>>>,
}

/// All that placement is decided on.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub(super) names: Names,
    topologies: BTreeMap<Arc<str>, Path>,
    flavors: BTreeMap<Arc<str>, FlavorSpec>,
    pub(super) trees: BTreeMap<Arc<str>, Tree>,
    nodes: BTreeMap<Arc<str>, NodeEntry>,
    pods: BTreeMap<ObjectKey, (Arc<str>, Parts)>,
    /// What pods of others take, by node, known or not.
    foreign: BTreeMap<Arc<str>, Vector>,
    pub(super) spots: Spots,
    pub(super) tallies: super::tally::Tallies,
}

impl Cluster {
    /// Sets the levels of a Topology, or removes it. Answers whether anything changed.
    pub fn set_topology(&mut self, name: &str, levels: Option<Path>) -> bool {
        if self.topologies.get(name) == levels.as_ref() {
            return false;
        }
        match levels {
            Some(levels) => self.topologies.insert(Arc::from(name), levels),
            None => self.topologies.remove(name),
        };
        let users = self.flavors.iter().filter(|(_, flavor)| *flavor.topology == *name);
        for flavor in users.map(|(flavor, _)| Arc::clone(flavor)).collect::<Vec<_>>() {
            self.replant(&flavor);
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
        self.replant(&Arc::from(name));
        true
    }

    /// Makes the tree of a flavor anew from the nodes.
    fn replant(&mut self, flavor: &Arc<str>) {
        let names: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        for name in &names {
            self.detach(name, Some(flavor));
        }
        self.trees.remove(flavor);
        let Some(spec) = self.flavors.get(flavor) else {
            return;
        };
        if let Some(levels) = self.topologies.get(&spec.topology).filter(|levels| !levels.is_empty()) {
            self.trees.insert(Arc::clone(flavor), Tree::new(Arc::clone(levels), spec.clone()));
            for name in &names {
                self.attach(name, Some(flavor));
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
        self.detach(&name, None);
        let Some(spec) = spec else {
            self.nodes.remove(&name);
            return touched;
        };
        let allocatable = self.names.parts(&spec.allocatable);
        let entry = NodeEntry { spec: Arc::new(spec), allocatable, spots: BTreeMap::new() };
        self.nodes.insert(Arc::clone(&name), entry);
        self.attach(&name, None);
        touched.extend(self.flavors_of_node(&name));
        touched
    }

    fn flavors_of_node(&self, name: &str) -> BTreeSet<Arc<str>> {
        self.nodes.get(name).into_iter().flat_map(|entry| entry.spots.values().flatten().cloned()).collect()
    }

    /// Puts a node where trees want it.
    fn attach(&mut self, name: &Arc<str>, only: Option<&Arc<str>>) {
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
                Some(host) => SpotKey::Host(Arc::clone(host)),
                None => SpotKey::Domain(Arc::clone(flavor), Arc::clone(&path)),
            };
            let id = self.spots.find_or_add(&key);
            tree.add(id, name, path);
            let flavors = entry.spots.entry(key).or_default();
            let fresh = flavors.is_empty();
            flavors.insert(Arc::clone(flavor));
            if let Some(spot) = self.spots.get_mut(id) {
                spot.flavors.insert(Arc::clone(flavor));
                if fresh {
                    spot.nodes.insert(Arc::clone(name), Arc::clone(&entry.spec));
                    spot.tainted = spot.nodes.values().any(|n| n.taints.iter().any(super::filter::is_hard));
                    add(&mut spot.capacity, &entry.allocatable, 1);
                    if let Some(foreign) = self.foreign.get(name) {
                        add(&mut spot.capacity, &parts_of(foreign), -1);
                    }
                }
            }
        }
        self.nodes.insert(Arc::clone(name), entry);
    }

    /// Takes a node out of all trees, or of one.
    fn detach(&mut self, name: &Arc<str>, only: Option<&Arc<str>>) {
        let Some(mut entry) = self.nodes.remove(name) else {
            return;
        };
        for (key, flavors) in &mut entry.spots {
            let Some(id) = self.spots.find(key) else { continue };
            let gone = |flavor: &&Arc<str>| only.is_none_or(|only| only == *flavor);
            for flavor in flavors.iter().filter(gone) {
                let remains = self.trees.get_mut(flavor).is_some_and(|tree| tree.remove(id, name));
                if let Some(spot) = self.spots.get_mut(id).filter(|_| !remains) {
                    spot.flavors.remove(flavor);
                }
            }
            flavors.retain(|flavor| !gone(&flavor));
            if let Some(spot) = self.spots.get_mut(id).filter(|_| flavors.is_empty()) {
                spot.nodes.remove(name);
                spot.tainted = spot.nodes.values().any(|n| n.taints.iter().any(super::filter::is_hard));
                add(&mut spot.capacity, &entry.allocatable, -1);
                if let Some(foreign) = self.foreign.get(name) {
                    add(&mut spot.capacity, &parts_of(foreign), 1);
                }
            }
        }
        let empty: Vec<SpotKey> = entry
            .spots
            .iter()
            .filter(|(_, flavors)| flavors.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        for key in empty {
            entry.spots.remove(&key);
            self.spots.tidy(&key);
        }
        self.nodes.insert(Arc::clone(name), entry);
    }

    /// Sets what a pod takes of a node, if it is no workload's of a topology, or removes it. Answers with the flavors that
    /// see a change.
    pub fn set_pod(&mut self, key: &ObjectKey, takes: Option<(Arc<str>, Requests)>) -> BTreeSet<Arc<str>> {
        let takes = takes.map(|(node, requests)| (node, self.names.pod(&requests)));
        let mut touched = BTreeSet::new();
        if self.pods.get(key) == takes.as_ref() {
            return touched;
        }
        if let Some((node, parts)) = self.pods.remove(key) {
            touched.extend(self.burden(&node, &parts, -1));
        }
        if let Some((node, parts)) = takes {
            touched.extend(self.burden(&node, &parts, 1));
            self.pods.insert(key.clone(), (node, parts));
        }
        touched
    }

    fn burden(&mut self, node: &Arc<str>, parts: &Parts, sign: i128) -> BTreeSet<Arc<str>> {
        let sum = self.foreign.entry(Arc::clone(node)).or_default();
        add(sum, parts, sign);
        if super::vector::is_zero(sum) {
            self.foreign.remove(node);
        }
        let keys: Vec<SpotKey> =
            self.nodes.get(node).map(|entry| entry.spots.keys().cloned().collect()).unwrap_or_default();
        for key in keys {
            let spot = self.spots.find(&key).and_then(|id| self.spots.room_mut(id));
            if let Some(spot) = spot {
                add(&mut spot.capacity, parts, -sign);
            }
        }
        self.flavors_of_node(node)
    }

    /// What occupancies take, to be added and taken off as often as needed.
    pub fn footprint(&mut self, occupancies: &[super::Occupancy]) -> Footprint {
        Footprint::of(occupancies, &mut self.names, &self.spots)
    }

    /// Adds or takes off a footprint in a layer.
    pub fn shift(&mut self, footprint: &Footprint, sign: i128, layer: Layer) {
        self.spots.shift(footprint, sign, layer);
    }

    /// Whether every spot of the footprint could take it beside what is there.
    pub fn can_take(&self, footprint: &Footprint, layer: Layer) -> bool {
        footprint.cells.iter().all(|cell| {
            let Some(spot) = self.spots.of(cell) else {
                return false;
            };
            cell.parts.iter().all(|(number, amount)| *amount <= spot.free_in(*number, layer))
        })
    }

    /// Whether what stands in the plan could stay there, and takes no less than another.
    pub fn can_stay(&self, standing: &Footprint, other: &Footprint) -> bool {
        let sound = |cell: &Cell| {
            let spot = self.spots.of(cell).filter(|spot| !spot.nodes.is_empty());
            let stays = |number| spot.is_some_and(|spot| spot.free_in(number, Layer::Planned) >= 0);
            spot.is_some() && cell.parts.iter().all(|(number, _)| stays(*number))
        };
        standing.cells.iter().all(sound) && standing.total() == other.total()
    }

    /// Flavors that see any spot of the footprint.
    pub fn flavors_of(&self, footprint: &Footprint) -> BTreeSet<Arc<str>> {
        let spots = footprint.cells.iter().filter_map(|cell| self.spots.of(cell));
        spots.flat_map(|spot| spot.flavors.iter().cloned()).collect()
    }

    /// Whether a flavor has a topology that is known.
    pub fn has_topology(&self, flavor: &str) -> bool {
        self.trees.contains_key(flavor)
    }

    /// Why the flavor cannot give what the pods ask for, whatever is free: a level that its topology does not have.
    pub fn lacks_level(&self, flavor: &str, pods: &Pods) -> bool {
        let (Some(tree), Some(request)) = (self.trees.get(flavor), &pods.request) else {
            return !self.trees.contains_key(flavor);
        };
        let layers = request.pod_set_slice_required_topology_constraints.iter().map(|layer| &layer.topology);
        let levels = request.required.iter().chain(&request.preferred).chain(layers);
        !levels.chain(&request.pod_set_slice_required_topology).all(|level| tree.level(level).is_some())
    }

    /// Adds and counts up everything again from nodes, pods and these footprints, and answers whether that is what is known.
    pub fn equals_recount<'a>(&self, held: impl Iterator<Item = &'a Footprint>) -> bool {
        let mut usage: BTreeMap<SpotKey, Vector> = BTreeMap::new();
        for cell in held.flat_map(|footprint| &footprint.cells) {
            add(usage.entry(cell.key.clone()).or_default(), &cell.parts, 1);
        }
        let mut foreign: BTreeMap<&str, Vector> = BTreeMap::new();
        for (node, parts) in self.pods.values() {
            add(foreign.entry(node).or_default(), parts, 1);
        }
        let same = |a: &[i128], b: &[i128]| {
            (0..a.len().max(b.len())).all(|n| super::vector::at(a, n) == super::vector::at(b, n))
        };
        let right = |key: &SpotKey, layer| {
            let (sum, known) = (usage.get(key), self.spots.find(key).and_then(|id| self.spots.get(id)));
            same(sum.map_or(&[], |s| &s[..]), known.map_or(&[], |spot| spot.sums(layer)))
        };
        let capacity_right = self.spots.iter().all(|(_, spot)| {
            let mut sum = Vector::new();
            for name in spot.nodes.keys() {
                let entry = self.nodes.get(name);
                add(&mut sum, entry.map_or(&[], |entry| &entry.allocatable[..]), 1);
                add(&mut sum, &foreign.get(&**name).map(parts_of).unwrap_or_default(), -1);
            }
            same(&sum, &spot.capacity) && super::vector::is_zero(&spot.trial)
        });
        let both = [Layer::Held, Layer::Planned];
        let known = both.iter().flat_map(|layer| self.spots.usage(*layer).into_keys());
        let mut keys = usage.keys().cloned().chain(known);
        let usage_right = keys.all(|key| both.iter().all(|layer| right(&key, *layer)));
        capacity_right && usage_right && self.tallies_are_right()
    }
}

fn parts_of(vector: &Vector) -> Parts {
    vector.iter().copied().enumerate().filter(|(_, amount)| *amount != 0).collect()
}
