//! Where pods can stand: one spot for each host, whichever flavors see it, and one for each narrowest domain of a
//! topology that does not go down to hosts.
//!
//! Invariants: what is in use at a spot is the sum of what stands there, whether a node is there or not, so that a node
//! which goes and comes back finds its usage; a spot without nodes and without usage is forgotten; nobody changes a spot
//! without its being noted.

use super::cluster::NodeSpec;
use super::pods::{Occupancy, Path};
use super::vector::{Names, Parts, Vector, add, at, is_zero};
use crate::resources::Layer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// When it was added, in changes of all spots: no two are born at once.
    born: u64,
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
    const fn new(born: u64) -> Self {
        Self {
            born,
            capacity: Vector::new(),
            held: Vector::new(),
            planned: Vector::new(),
            trial: Vector::new(),
            nodes: BTreeMap::new(),
            tainted: false,
            flavors: BTreeSet::new(),
        }
    }

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

/// What is taken of one spot.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) key: SpotKey,
    pub(super) parts: Parts,
    /// Where the spot was last and when it was born: looked at before it is searched for.
    last: Option<(SpotId, u64)>,
}

impl PartialEq for Cell {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.parts == other.parts
    }
}

impl Eq for Cell {}

/// What somebody takes, spot by spot: computed once, added and taken off many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub(super) cells: Vec<Cell>,
}

impl Footprint {
    /// Whether nothing is taken anywhere.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// How much is taken in all.
    pub(super) fn total(&self) -> Vector {
        let mut sum = Vector::new();
        for cell in &self.cells {
            add(&mut sum, &cell.parts, 1);
        }
        sum
    }

    /// What these take together.
    pub(super) fn of(occupancies: &[Occupancy], names: &mut Names, spots: &Spots) -> Self {
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
        let last = |key: &SpotKey| {
            let id = spots.find(key)?;
            Some((id, spots.get(id)?.born))
        };
        let cell = |(key, vector)| Cell { last: last(&key), parts: parts(vector), key };
        Self { cells: sums.into_iter().map(cell).collect() }
    }
}

/// Changes that are remembered.
const LATEST: usize = 1024;

/// When a spot last changed, in changes of all spots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed {
    /// In its nodes.
    pub(super) nodes: u64,
    /// In its nodes or in what is free.
    pub(super) any: u64,
}

/// All spots.
#[derive(Clone, Debug, Default)]
pub(super) struct Spots {
    by_key: BTreeMap<SpotKey, SpotId>,
    all: Vec<Option<Spot>>,
    vacant: Vec<SpotId>,
    /// By spot; apart from the spots, so that what changed since is found without a look at them.
    changed: Vec<Changed>,
    /// Number of changes so far.
    changes: u64,
    /// Spots of the last changes, the last at the end.
    latest: VecDeque<SpotId>,
}

impl Spots {
    pub(super) fn get(&self, id: SpotId) -> Option<&Spot> {
        self.all.get(id)?.as_ref()
    }

    /// A spot whose nodes are to change.
    pub(super) fn get_mut(&mut self, id: SpotId) -> Option<&mut Spot> {
        self.note(id, true);
        self.all.get_mut(id)?.as_mut()
    }

    /// A spot of which more or less is to be free, on the same nodes.
    pub(super) fn room_mut(&mut self, id: SpotId) -> Option<&mut Spot> {
        self.note(id, false);
        self.all.get_mut(id)?.as_mut()
    }

    /// Notes a change.
    fn note(&mut self, id: SpotId, nodes: bool) {
        self.changes += 1;
        if self.latest.len() == LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(id);
        if let Some(changed) = self.changed.get_mut(id) {
            changed.any = self.changes;
            if nodes {
                changed.nodes = self.changes;
            }
        }
    }

    /// Spots that changed since, some of them more than once; none if that is too long ago.
    pub(super) fn changed_since(&self, seen: u64) -> Option<impl Iterator<Item = SpotId>> {
        let number = usize::try_from(self.changes.checked_sub(seen)?).ok()?;
        let first = self.latest.len().checked_sub(number)?;
        Some(self.latest.range(first..).copied())
    }

    /// When a spot last changed.
    pub(super) fn changed(&self, id: SpotId) -> Changed {
        self.changed.get(id).copied().unwrap_or_default()
    }

    /// Number of changes so far.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn find(&self, key: &SpotKey) -> Option<SpotId> {
        self.by_key.get(key).copied()
    }

    /// The spot of a cell.
    fn find_cell(&self, cell: &Cell) -> Option<SpotId> {
        let there =
            |(id, born): (SpotId, u64)| self.get(id).is_some_and(|spot| spot.born == born).then_some(id);
        cell.last.and_then(there).or_else(|| self.find(&cell.key))
    }

    /// The spot of a cell.
    pub(super) fn of(&self, cell: &Cell) -> Option<&Spot> {
        self.get(self.find_cell(cell)?)
    }

    pub(super) fn find_or_add(&mut self, key: &SpotKey) -> SpotId {
        if let Some(id) = self.find(key) {
            return id;
        }
        let id = self.vacant.pop().unwrap_or(self.all.len());
        if id == self.all.len() {
            self.all.push(None);
            self.changed.push(Changed::default());
        }
        self.note(id, true);
        if let Some(place) = self.all.get_mut(id) {
            *place = Some(Spot::new(self.changes));
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
        for cell in &footprint.cells {
            let id = self.find_cell(cell).unwrap_or_else(|| self.find_or_add(&cell.key));
            let Some(spot) = self.room_mut(id) else { continue };
            add(of(spot), &cell.parts, sign);
            if spot.is_idle() {
                self.tidy(&cell.key);
            }
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
