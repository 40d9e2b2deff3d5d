//! Where pods can stand: one spot for each host, whichever flavors see it, and one for each narrowest domain of a
//! topology that does not go down to hosts.
//!
//! Invariants: what is in use at a spot is the sum of what stands there, whether a node is there or not, so that a node
//! which goes and comes back finds its usage; a spot without nodes and without usage is forgotten.

use super::cluster::NodeSpec;
use super::pods::{Occupancy, Path};
use super::vector::{Names, Parts, Vector, add, at, is_zero};
use crate::resources::Layer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Number of a spot while it is known.
pub(super) type SpotId = usize;

/// What a spot is known by: a host by its name alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SpotKey {
    Host(Arc<str>),
    Domain(Arc<str>, Path),
}

impl SpotKey {
    /// The spot of a domain of an occupancy.
    fn of(occupancy: &Occupancy, values: &Path) -> Option<Self> {
        if occupancy.placement.is_by_host() {
            values.last().map(|host| Self::Host(Arc::clone(host)))
        } else {
            Some(Self::Domain(Arc::clone(&occupancy.flavor), Arc::clone(values)))
        }
    }
}

/// What counts as free where places are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// With those gone who must go, and those in for whom room is kept.
    Planned,
    /// What is free so and in fact: it can be had at once, and nobody was promised it.
    Both,
    /// As if no workload stood anywhere.
    Empty,
}

/// A spot.
#[derive(Clone, Debug, Default)]
pub(super) struct Spot {
    /// What its nodes have, without what pods of others take.
    pub(super) capacity: Vector,
    pub(super) held: Vector,
    pub(super) planned: Vector,
    /// What was tried out.
    pub(super) trial: Vector,
    /// Nodes by name.
    pub(super) nodes: BTreeMap<Arc<str>, Arc<NodeSpec>>,
    /// Whether one of the nodes has a taint that keeps pods away.
    pub(super) tainted: bool,
    /// Flavors that see it.
    pub(super) flavors: BTreeSet<Arc<str>>,
}

impl Spot {
    /// What is free of a resource.
    pub(super) fn free(&self, number: usize, view: View) -> i128 {
        let used = match view {
            View::Planned => at(&self.planned, number),
            View::Both => at(&self.held, number).max(at(&self.planned, number)),
            View::Empty => 0,
        };
        self.left(number, used)
    }

    /// What is free in a layer.
    pub(super) fn free_in(&self, number: usize, layer: Layer) -> i128 {
        self.left(number, at(self.sums(layer), number))
    }

    fn left(&self, number: usize, used: i128) -> i128 {
        at(&self.capacity, number) - used - at(&self.trial, number)
    }

    /// What is in use.
    pub(super) const fn sums(&self, layer: Layer) -> &Vector {
        match layer {
            Layer::Held => &self.held,
            Layer::Planned => &self.planned,
        }
    }

    /// Whether more is free in the plan than in fact.
    pub(super) fn is_freed(&self) -> bool {
        self.held.iter().enumerate().any(|(number, held)| *held > at(&self.planned, number))
    }

    fn is_idle(&self) -> bool {
        self.nodes.is_empty() && is_zero(&self.held) && is_zero(&self.planned) && is_zero(&self.trial)
    }
}

/// What somebody takes, spot by spot: computed once, added and taken off many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub(super) cells: Vec<(SpotKey, Parts)>,
}

impl Footprint {
    /// Whether nothing is taken anywhere.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// How much is taken in all.
    pub(super) fn total(&self) -> Vector {
        let mut sum = Vector::new();
        for (_, parts) in &self.cells {
            add(&mut sum, parts, 1);
        }
        sum
    }

    /// What these take together.
    pub(super) fn of(occupancies: &[Occupancy], names: &mut Names) -> Self {
        let mut sums: BTreeMap<SpotKey, Vector> = BTreeMap::new();
        for occupancy in occupancies {
            let each = names.pod(&occupancy.each);
            for (values, pods) in &occupancy.placement.domains {
                if let Some(key) = SpotKey::of(occupancy, values) {
                    add(sums.entry(key).or_default(), &each, i128::from((*pods).max(0)));
                }
            }
        }
        let parts = |vector: Vector| vector.into_iter().enumerate().filter(|(_, a)| *a != 0).collect();
        Self { cells: sums.into_iter().map(|(key, vector)| (key, parts(vector))).collect() }
    }
}

/// All spots.
#[derive(Clone, Debug, Default)]
pub(super) struct Spots {
    by_key: BTreeMap<SpotKey, SpotId>,
    all: Vec<Option<Spot>>,
    vacant: Vec<SpotId>,
}

impl Spots {
    pub(super) fn get(&self, id: SpotId) -> Option<&Spot> {
        self.all.get(id)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: SpotId) -> Option<&mut Spot> {
        self.all.get_mut(id)?.as_mut()
    }

    pub(super) fn find(&self, key: &SpotKey) -> Option<SpotId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn find_or_add(&mut self, key: &SpotKey) -> SpotId {
        if let Some(id) = self.find(key) {
            return id;
        }
        let id = self.vacant.pop().unwrap_or(self.all.len());
        if id == self.all.len() {
            self.all.push(None);
        }
        if let Some(place) = self.all.get_mut(id) {
            *place = Some(Spot::default());
        }
        self.by_key.insert(key.clone(), id);
        id
    }

    /// Forgets a spot that is of no use any more.
    pub(super) fn tidy(&mut self, key: &SpotKey) {
        let Some(id) = self.find(key).filter(|id| self.get(*id).is_some_and(Spot::is_idle)) else {
            return;
        };
        self.by_key.remove(key);
        if let Some(place) = self.all.get_mut(id) {
            *place = None;
        }
        self.vacant.push(id);
    }

    /// Adds or takes off a footprint in one layer. What is tried out in the plan and taken back leaves all as it was.
    pub(super) fn shift(&mut self, footprint: &Footprint, sign: i128, layer: Layer) {
        self.change(footprint, sign, |spot| match layer {
            Layer::Held => &mut spot.held,
            Layer::Planned => &mut spot.planned,
        });
    }

    /// Adds or takes off what is tried out, on top of every view.
    pub(super) fn try_out(&mut self, footprint: &Footprint, sign: i128) {
        self.change(footprint, sign, |spot| &mut spot.trial);
    }

    fn change(&mut self, footprint: &Footprint, sign: i128, of: impl Fn(&mut Spot) -> &mut Vector) {
        for (key, parts) in &footprint.cells {
            let id = self.find_or_add(key);
            if let Some(spot) = self.get_mut(id) {
                add(of(spot), parts, sign);
            }
            self.tidy(key);
        }
    }

    /// What is in use by spot, of spots where anything is.
    pub(super) fn usage(&self, layer: Layer) -> BTreeMap<SpotKey, Vector> {
        let used = |id: &SpotId| self.get(*id).map(|spot| spot.sums(layer).clone()).unwrap_or_default();
        let all = self.by_key.iter().map(|(key, id)| (key.clone(), used(id)));
        all.filter(|(_, vector)| !is_zero(vector)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&SpotKey, &Spot)> {
        self.by_key.iter().filter_map(|(key, id)| Some((key, self.get(*id)?)))
    }
}
