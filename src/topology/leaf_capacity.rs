//! Where pods can stand: one spot for each host, whichever flavors see it, and one for each narrowest domain of a
//! topology that does not go down to hosts.
//!
//! Invariants: what is in use at a spot is the sum of what stands there, whether a node is there or not, so that a node
//! which goes and comes back finds its usage; a spot without nodes and without usage is forgotten; nobody changes a spot
//! without its being noted.

use super::pod_requirements::{DomainPath, Occupancy};
use super::resource_vector::{ResourceNames, ResourceVector, SparseVector, add_scaled, amount_at, is_zero};
use super::tas_cache::NodeSpec;
use crate::resources::UsageLayer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Number of a spot while it is known.
pub(super) type CapacityId = usize;

/// What a spot is known by: a host by its name alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CapacityKey {
    Host(Arc<str>),
    Domain(Arc<str>, DomainPath),
}

impl CapacityKey {
    /// The spot of a domain of an occupancy.
    fn from_occupancy(occupancy: &Occupancy, values: &DomainPath) -> Option<Self> {
        if occupancy.placement.is_by_host() {
            values.last().map(|host| Self::Host(Arc::clone(host)))
        } else {
            Some(Self::Domain(Arc::clone(&occupancy.flavor), Arc::clone(values)))
        }
    }
}

/// What counts as free where places are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityView {
    /// With those gone who must go, and those in for whom room is kept.
    Projected,
    /// What is free so and in fact: it can be had at once, and nobody was promised it.
    AvailableNow,
    /// As if no workload stood anywhere.
    Empty,
}

/// A spot.
#[derive(Clone, Debug)]
pub(super) struct LeafCapacity {
    /// When it was added, in changes of all spots: no two are born at once.
    created_at_change: u64,
    /// What its nodes have, without what pods of others take.
    pub(super) capacity: ResourceVector,
    pub(super) current_usage: ResourceVector,
    pub(super) projected_usage: ResourceVector,
    /// What was tried out.
    pub(super) simulated_usage: ResourceVector,
    /// Nodes by name.
    pub(super) nodes: BTreeMap<Arc<str>, Arc<NodeSpec>>,
    /// Whether one of the nodes has a taint that keeps pods away.
    pub(super) tainted: bool,
    /// Flavors that see it.
    pub(super) flavors: BTreeSet<Arc<str>>,
}

impl LeafCapacity {
    const fn new(born: u64) -> Self {
        Self {
            created_at_change: born,
            capacity: ResourceVector::new(),
            current_usage: ResourceVector::new(),
            projected_usage: ResourceVector::new(),
            simulated_usage: ResourceVector::new(),
            nodes: BTreeMap::new(),
            tainted: false,
            flavors: BTreeSet::new(),
        }
    }

    /// What is free of a resource.
    pub(super) fn free(&self, number: usize, view: CapacityView) -> i128 {
        let used = match view {
            CapacityView::Projected => amount_at(&self.projected_usage, number),
            CapacityView::AvailableNow => {
                amount_at(&self.current_usage, number).max(amount_at(&self.projected_usage, number))
            }
            CapacityView::Empty => 0,
        };
        self.free_after(number, used)
    }

    /// What is free in a layer.
    pub(super) fn free_in(&self, number: usize, layer: UsageLayer) -> i128 {
        self.free_after(number, amount_at(self.usage(layer), number))
    }

    fn free_after(&self, number: usize, used: i128) -> i128 {
        amount_at(&self.capacity, number) - used - amount_at(&self.simulated_usage, number)
    }

    /// What is in use.
    pub(super) const fn usage(&self, layer: UsageLayer) -> &ResourceVector {
        match layer {
            UsageLayer::Current => &self.current_usage,
            UsageLayer::Projected => &self.projected_usage,
        }
    }

    /// Whether more is free in the plan than in fact.
    pub(super) fn has_pending_release(&self) -> bool {
        self.current_usage
            .iter()
            .enumerate()
            .any(|(number, held)| *held > amount_at(&self.projected_usage, number))
    }

    fn is_idle(&self) -> bool {
        self.nodes.is_empty()
            && is_zero(&self.current_usage)
            && is_zero(&self.projected_usage)
            && is_zero(&self.simulated_usage)
    }
}

/// What is taken of one spot.
#[derive(Clone, Debug)]
pub(super) struct FootprintEntry {
    pub(super) key: CapacityKey,
    pub(super) amounts: SparseVector,
    /// Where the spot was last and when it was born: looked at before it is searched for.
    last_location: Option<(CapacityId, u64)>,
}

impl PartialEq for FootprintEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.amounts == other.amounts
    }
}

impl Eq for FootprintEntry {}

/// What somebody takes, spot by spot: computed once, added and taken off many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub(super) entries: Vec<FootprintEntry>,
}

impl Footprint {
    /// Whether nothing is taken anywhere.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How much is taken in all.
    pub(super) fn total(&self) -> ResourceVector {
        let mut sum = ResourceVector::new();
        for cell in &self.entries {
            add_scaled(&mut sum, &cell.amounts, 1);
        }
        sum
    }

    /// What these take together.
    pub(super) fn from_occupancies(
        occupancies: &[Occupancy],
        names: &mut ResourceNames,
        spots: &LeafCapacities,
    ) -> Self {
        let mut sums: BTreeMap<CapacityKey, ResourceVector> = BTreeMap::new();
        for occupancy in occupancies {
            let each = names.pod_requests(&occupancy.requests_per_pod);
            for (values, pods) in &occupancy.placement.domains {
                if let Some(key) = CapacityKey::from_occupancy(occupancy, values) {
                    add_scaled(sums.entry(key).or_default(), &each, i128::from((*pods).max(0)));
                }
            }
        }
        let parts =
            |vector: ResourceVector| vector.into_iter().enumerate().filter(|(_, a)| *a != 0).collect();
        let last = |key: &CapacityKey| {
            let id = spots.find(key)?;
            Some((id, spots.get(id)?.created_at_change))
        };
        let cell = |(key, vector)| FootprintEntry { last_location: last(&key), amounts: parts(vector), key };
        Self { entries: sums.into_iter().map(cell).collect() }
    }
}

/// Changes that are remembered.
const MAX_RECENT_CHANGES: usize = 1024;

/// When a spot last changed, in changes of all spots.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastChange {
    /// In its nodes.
    pub(super) nodes: u64,
    /// In its nodes or in what is free.
    pub(super) nodes_or_usage: u64,
}

/// All spots.
#[derive(Clone, Debug, Default)]
pub(super) struct LeafCapacities {
    by_key: BTreeMap<CapacityKey, CapacityId>,
    slots: Vec<Option<LeafCapacity>>,
    vacant_ids: Vec<CapacityId>,
    /// By spot; apart from the spots, so that what changed since is found without a look at them.
    last_changes: Vec<LastChange>,
    /// Number of changes so far.
    change_count: u64,
    /// Spots of the last changes, the last at the end.
    recent_changes: VecDeque<CapacityId>,
}

impl LeafCapacities {
    pub(super) fn get(&self, id: CapacityId) -> Option<&LeafCapacity> {
        self.slots.get(id)?.as_ref()
    }

    /// A spot whose nodes are to change.
    pub(super) fn get_mut(&mut self, id: CapacityId) -> Option<&mut LeafCapacity> {
        self.record_change(id, true);
        self.slots.get_mut(id)?.as_mut()
    }

    /// A spot of which more or less is to be free, on the same nodes.
    pub(super) fn usage_mut(&mut self, id: CapacityId) -> Option<&mut LeafCapacity> {
        self.record_change(id, false);
        self.slots.get_mut(id)?.as_mut()
    }

    /// Notes a change.
    fn record_change(&mut self, id: CapacityId, nodes: bool) {
        self.change_count += 1;
        if self.recent_changes.len() == MAX_RECENT_CHANGES {
            self.recent_changes.pop_front();
        }
        self.recent_changes.push_back(id);
        if let Some(changed) = self.last_changes.get_mut(id) {
            changed.nodes_or_usage = self.change_count;
            if nodes {
                changed.nodes = self.change_count;
            }
        }
    }

    /// Spots that changed since, some of them more than once; none if that is too long ago.
    pub(super) fn changed_since(&self, seen: u64) -> Option<impl Iterator<Item = CapacityId>> {
        let number = usize::try_from(self.change_count.checked_sub(seen)?).ok()?;
        let first = self.recent_changes.len().checked_sub(number)?;
        Some(self.recent_changes.range(first..).copied())
    }

    /// When a spot last changed.
    pub(super) fn last_change(&self, id: CapacityId) -> LastChange {
        self.last_changes.get(id).copied().unwrap_or_default()
    }

    /// Number of changes so far.
    pub(super) const fn change_count(&self) -> u64 {
        self.change_count
    }

    pub(super) fn find(&self, key: &CapacityKey) -> Option<CapacityId> {
        self.by_key.get(key).copied()
    }

    /// The spot of a cell.
    fn find_entry(&self, cell: &FootprintEntry) -> Option<CapacityId> {
        let there = |(id, born): (CapacityId, u64)| {
            self.get(id).is_some_and(|spot| spot.created_at_change == born).then_some(id)
        };
        cell.last_location.and_then(there).or_else(|| self.find(&cell.key))
    }

    /// The spot of a cell.
    pub(super) fn get_entry(&self, cell: &FootprintEntry) -> Option<&LeafCapacity> {
        self.get(self.find_entry(cell)?)
    }

    pub(super) fn find_or_add(&mut self, key: &CapacityKey) -> CapacityId {
        if let Some(id) = self.find(key) {
            return id;
        }
        let id = self.vacant_ids.pop().unwrap_or(self.slots.len());
        if id == self.slots.len() {
            self.slots.push(None);
            self.last_changes.push(LastChange::default());
        }
        self.record_change(id, true);
        if let Some(place) = self.slots.get_mut(id) {
            *place = Some(LeafCapacity::new(self.change_count));
        }
        self.by_key.insert(key.clone(), id);
        id
    }

    /// Forgets a spot that is of no use any more.
    pub(super) fn remove_if_idle(&mut self, key: &CapacityKey) {
        let Some(id) = self.find(key).filter(|id| self.get(*id).is_some_and(LeafCapacity::is_idle)) else {
            return;
        };
        self.by_key.remove(key);
        if let Some(place) = self.slots.get_mut(id) {
            *place = None;
        }
        self.vacant_ids.push(id);
    }

    /// Adds or takes off a footprint in one layer. What is tried out in the plan and taken back leaves all as it was.
    pub(super) fn shift_usage(&mut self, footprint: &Footprint, sign: i128, layer: UsageLayer) {
        self.apply_footprint(footprint, sign, |spot| match layer {
            UsageLayer::Current => &mut spot.current_usage,
            UsageLayer::Projected => &mut spot.projected_usage,
        });
    }

    /// Adds or takes off what is tried out, on top of every view.
    pub(super) fn simulate_usage(&mut self, footprint: &Footprint, sign: i128) {
        self.apply_footprint(footprint, sign, |spot| &mut spot.simulated_usage);
    }

    fn apply_footprint(
        &mut self,
        footprint: &Footprint,
        sign: i128,
        of: impl Fn(&mut LeafCapacity) -> &mut ResourceVector,
    ) {
        for cell in &footprint.entries {
            let id = self.find_entry(cell).unwrap_or_else(|| self.find_or_add(&cell.key));
            let Some(spot) = self.usage_mut(id) else { continue };
            add_scaled(of(spot), &cell.amounts, sign);
            if spot.is_idle() {
                self.remove_if_idle(&cell.key);
            }
        }
    }

    /// What is in use by spot, of spots where anything is.
    pub(super) fn usage_by_key(&self, layer: UsageLayer) -> BTreeMap<CapacityKey, ResourceVector> {
        let used = |id: &CapacityId| self.get(*id).map(|spot| spot.usage(layer).clone()).unwrap_or_default();
        let all = self.by_key.iter().map(|(key, id)| (key.clone(), used(id)));
        all.filter(|(_, vector)| !is_zero(vector)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&CapacityKey, &LeafCapacity)> {
        self.by_key.iter().filter_map(|(key, id)| Some((key, self.get(*id)?)))
    }
}
