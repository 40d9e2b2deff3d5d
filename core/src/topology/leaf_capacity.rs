//! Leaf capacities: capacity and usage of each host, shared by all flavors that contain it, and of each narrowest domain of a
//! topology that does not go down to hosts.
//!
//! Invariants: usage is the sum of all assigned pods, whether or not a node exists, so a node that is deleted and created
//! again finds its usage; an entry without nodes and usage is removed; every change is recorded in the change log, which
//! cached counts rely on.

use super::pod_requirements::{DomainPath, Occupancy};
use super::resource_vector::{
    ResourceNames, ResourceVector, SparseVector, add_scaled, amount_at, is_zero, to_sparse,
};
use super::tas_cache::NodeSpec;
use crate::resources::UsageLayer;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Index of a leaf capacity; reused after removal.
pub(super) type CapacityId = usize;

/// Key of a leaf capacity. A host needs no flavor, because flavors share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CapacityKey {
    Host(Arc<str>),
    Domain(Arc<str>, DomainPath),
}

impl CapacityKey {
    /// Returns the key of one domain of an occupancy.
    fn from_occupancy(occupancy: &Occupancy, values: &DomainPath) -> Option<Self> {
        if occupancy.placement.is_by_host() {
            values.last().map(|host| Self::Host(Arc::clone(host)))
        } else {
            Some(Self::Domain(Arc::clone(&occupancy.flavor), Arc::clone(values)))
        }
    }
}

/// Which usage a placement is computed against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityView {
    /// Projected usage.
    Projected,
    /// The larger of current and projected usage: free now and not reserved for another workload.
    AvailableNow,
    /// No TAS usage at all: what would fit into an empty topology, beside the pods outside topology assignments.
    Empty,
    /// Neither TAS usage nor pods that end with what holds quota: what would fit if all of that ended.
    Released,
}

/// What pods outside topology assignments use on a node.
#[derive(Clone, Debug, Default)]
pub(super) struct NonTasUsage {
    /// All of it.
    pub(super) all: ResourceVector,
    /// The part of it that ends with what holds quota.
    pub(super) ending: ResourceVector,
}

impl NonTasUsage {
    /// Adds (`sign` 1) or subtracts (-1) what a pod uses.
    pub(super) fn shift(&mut self, amounts: &[(usize, i128)], ends: bool, sign: i128) {
        add_scaled(&mut self.all, amounts, sign);
        if ends {
            add_scaled(&mut self.ending, amounts, sign);
        }
    }
}

/// Capacity and usage of a host or of a narrowest domain.
#[derive(Clone, Debug)]
pub(super) struct LeafCapacity {
    /// Change count when it was added. Unique, so it detects a reused index.
    created_at_change: u64,
    /// Allocatable resources of its nodes minus non-TAS usage.
    pub(super) capacity: ResourceVector,
    /// The part of non-TAS usage that ends with what holds quota.
    pub(super) ending_usage: ResourceVector,
    pub(super) current_usage: ResourceVector,
    pub(super) projected_usage: ResourceVector,
    /// Usage of a placement being simulated; zero otherwise.
    pub(super) simulated_usage: ResourceVector,
    pub(super) nodes: BTreeMap<Arc<str>, Arc<NodeSpec>>,
    /// Whether a node has a taint that prevents scheduling.
    pub(super) tainted: bool,
    /// Flavors whose tree contains it.
    pub(super) flavors: BTreeSet<Arc<str>>,
}

impl LeafCapacity {
    const fn new(change: u64) -> Self {
        Self {
            created_at_change: change,
            capacity: ResourceVector::new(),
            ending_usage: ResourceVector::new(),
            current_usage: ResourceVector::new(),
            projected_usage: ResourceVector::new(),
            simulated_usage: ResourceVector::new(),
            nodes: BTreeMap::new(),
            tainted: false,
            flavors: BTreeSet::new(),
        }
    }

    pub(super) fn free(&self, resource: usize, view: CapacityView) -> i128 {
        let used = match view {
            CapacityView::Projected => amount_at(&self.projected_usage, resource),
            CapacityView::AvailableNow => {
                amount_at(&self.current_usage, resource).max(amount_at(&self.projected_usage, resource))
            }
            CapacityView::Empty => 0,
            // The capacity is what they leave.
            CapacityView::Released => -amount_at(&self.ending_usage, resource),
        };
        self.free_after(resource, used)
    }

    /// Adds (`sign` 1) or subtracts (-1) what pods outside topology assignments use on a node.
    pub(super) fn shift_non_tas_usage(&mut self, usage: &NonTasUsage, sign: i128) {
        add_scaled(&mut self.capacity, &to_sparse(&usage.all), -sign);
        add_scaled(&mut self.ending_usage, &to_sparse(&usage.ending), sign);
    }

    pub(super) fn free_in(&self, resource: usize, layer: UsageLayer) -> i128 {
        self.free_after(resource, amount_at(self.usage(layer), resource))
    }

    fn free_after(&self, resource: usize, used: i128) -> i128 {
        amount_at(&self.capacity, resource) - used - amount_at(&self.simulated_usage, resource)
    }

    pub(super) const fn usage(&self, layer: UsageLayer) -> &ResourceVector {
        match layer {
            UsageLayer::Current => &self.current_usage,
            UsageLayer::Projected => &self.projected_usage,
        }
    }

    /// Returns whether current usage exceeds projected usage in any resource: victims still have to release capacity.
    pub(super) fn has_pending_release(&self) -> bool {
        self.current_usage
            .iter()
            .enumerate()
            .any(|(resource, current)| *current > amount_at(&self.projected_usage, resource))
    }

    fn is_idle(&self) -> bool {
        self.nodes.is_empty()
            && is_zero(&self.current_usage)
            && is_zero(&self.projected_usage)
            && is_zero(&self.simulated_usage)
    }
}

/// Usage of one leaf capacity.
#[derive(Clone, Debug)]
pub(super) struct FootprintEntry {
    pub(super) key: CapacityKey,
    pub(super) amounts: SparseVector,
    /// Index and `created_at_change` of the leaf capacity at the last lookup; tried before the search by key.
    last_location: Option<(CapacityId, u64)>,
}

impl PartialEq for FootprintEntry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.amounts == other.amounts
    }
}

impl Eq for FootprintEntry {}

/// Usage of occupancies by leaf capacity: computed once, added and subtracted many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    pub(super) entries: Vec<FootprintEntry>,
}

impl Footprint {
    /// Returns whether there is no usage at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the sum over all leaf capacities.
    pub(super) fn total(&self) -> ResourceVector {
        let mut sum = ResourceVector::new();
        for entry in &self.entries {
            add_scaled(&mut sum, &entry.amounts, 1);
        }
        sum
    }

    /// Returns the usage of several occupancies together.
    pub(super) fn from_occupancies(
        occupancies: &[Occupancy],
        names: &mut ResourceNames,
        leaf_capacities: &LeafCapacities,
    ) -> Self {
        let mut sums: BTreeMap<CapacityKey, ResourceVector> = BTreeMap::new();
        for occupancy in occupancies {
            let pod_requests = names.pod_requests(&occupancy.requests_per_pod);
            for (values, pods) in &occupancy.placement.domains {
                if let Some(key) = CapacityKey::from_occupancy(occupancy, values) {
                    add_scaled(sums.entry(key).or_default(), &pod_requests, i128::from((*pods).max(0)));
                }
            }
        }
        let to_amounts =
            |vector: ResourceVector| vector.into_iter().enumerate().filter(|(_, a)| *a != 0).collect();
        let last_location = |key: &CapacityKey| {
            let id = leaf_capacities.find(key)?;
            Some((id, leaf_capacities.get(id)?.created_at_change))
        };
        let to_entry = |(key, vector)| FootprintEntry {
            last_location: last_location(&key),
            amounts: to_amounts(vector),
            key,
        };
        Self { entries: sums.into_iter().map(to_entry).collect() }
    }
}

/// Length of the change log. A reader that is further behind counts all leaves again.
const MAX_RECENT_CHANGES: usize = 1024;

/// When a leaf capacity last changed, as a value of `change_count`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastChange {
    /// Last change of its nodes.
    pub(super) nodes: u64,
    /// Last change of its nodes, capacity or usage.
    pub(super) nodes_or_usage: u64,
}

/// All leaf capacities, with their change log.
#[derive(Clone, Debug, Default)]
pub(super) struct LeafCapacities {
    by_key: BTreeMap<CapacityKey, CapacityId>,
    slots: Vec<Option<LeafCapacity>>,
    vacant_ids: Vec<CapacityId>,
    /// By index. Kept outside the slots, so that a check for changes does not load a `LeafCapacity`.
    last_changes: Vec<LastChange>,
    change_count: u64,
    /// Indexes of the last changes, newest last.
    recent_changes: VecDeque<CapacityId>,
}

impl LeafCapacities {
    pub(super) fn get(&self, id: CapacityId) -> Option<&LeafCapacity> {
        self.slots.get(id)?.as_ref()
    }

    /// Returns a leaf capacity for a change of its nodes, and records that change.
    pub(super) fn get_mut(&mut self, id: CapacityId) -> Option<&mut LeafCapacity> {
        self.record_change(id, true);
        self.slots.get_mut(id)?.as_mut()
    }

    /// Returns a leaf capacity for a change of its free capacity alone, and records that change.
    pub(super) fn usage_mut(&mut self, id: CapacityId) -> Option<&mut LeafCapacity> {
        self.record_change(id, false);
        self.slots.get_mut(id)?.as_mut()
    }

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

    /// Returns the indexes changed since `seen`, possibly with duplicates. `None` if the log does not go back that far.
    pub(super) fn changed_since(&self, seen: u64) -> Option<impl Iterator<Item = CapacityId>> {
        let count = usize::try_from(self.change_count.checked_sub(seen)?).ok()?;
        let first = self.recent_changes.len().checked_sub(count)?;
        Some(self.recent_changes.range(first..).copied())
    }

    pub(super) fn last_change(&self, id: CapacityId) -> LastChange {
        self.last_changes.get(id).copied().unwrap_or_default()
    }

    pub(super) const fn change_count(&self) -> u64 {
        self.change_count
    }

    pub(super) fn find(&self, key: &CapacityKey) -> Option<CapacityId> {
        self.by_key.get(key).copied()
    }

    fn find_entry(&self, entry: &FootprintEntry) -> Option<CapacityId> {
        let if_same = |(id, created): (CapacityId, u64)| {
            self.get(id).is_some_and(|capacity| capacity.created_at_change == created).then_some(id)
        };
        entry.last_location.and_then(if_same).or_else(|| self.find(&entry.key))
    }

    pub(super) fn get_entry(&self, entry: &FootprintEntry) -> Option<&LeafCapacity> {
        self.get(self.find_entry(entry)?)
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
        if let Some(slot) = self.slots.get_mut(id) {
            *slot = Some(LeafCapacity::new(self.change_count));
        }
        self.by_key.insert(key.clone(), id);
        id
    }

    /// Removes a leaf capacity that has neither nodes nor usage.
    pub(super) fn remove_if_idle(&mut self, key: &CapacityKey) {
        let Some(id) = self.find(key).filter(|id| self.get(*id).is_some_and(LeafCapacity::is_idle)) else {
            return;
        };
        self.by_key.remove(key);
        if let Some(slot) = self.slots.get_mut(id) {
            *slot = None;
        }
        self.vacant_ids.push(id);
    }

    /// Adds (`sign` 1) or subtracts (-1) a footprint in one layer. The two undo each other exactly.
    pub(super) fn shift_usage(&mut self, footprint: &Footprint, sign: i128, layer: UsageLayer) {
        self.apply_footprint(footprint, sign, |capacity| match layer {
            UsageLayer::Current => &mut capacity.current_usage,
            UsageLayer::Projected => &mut capacity.projected_usage,
        });
    }

    /// Adds or subtracts simulated usage, which every view counts.
    pub(super) fn simulate_usage(&mut self, footprint: &Footprint, sign: i128) {
        self.apply_footprint(footprint, sign, |capacity| &mut capacity.simulated_usage);
    }

    fn apply_footprint(
        &mut self,
        footprint: &Footprint,
        sign: i128,
        usage_field: impl Fn(&mut LeafCapacity) -> &mut ResourceVector,
    ) {
        for entry in &footprint.entries {
            let id = self.find_entry(entry).unwrap_or_else(|| self.find_or_add(&entry.key));
            let Some(capacity) = self.usage_mut(id) else { continue };
            add_scaled(usage_field(capacity), &entry.amounts, sign);
            if capacity.is_idle() {
                self.remove_if_idle(&entry.key);
            }
        }
    }

    /// Returns the usage of all leaf capacities that have any.
    pub(super) fn usage_by_key(&self, layer: UsageLayer) -> BTreeMap<CapacityKey, ResourceVector> {
        let usage =
            |id: &CapacityId| self.get(*id).map(|capacity| capacity.usage(layer).clone()).unwrap_or_default();
        let all = self.by_key.iter().map(|(key, id)| (key.clone(), usage(id)));
        all.filter(|(_, vector)| !is_zero(vector)).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&CapacityKey, &LeafCapacity)> {
        self.by_key.iter().filter_map(|(key, id)| Some((key, self.get(*id)?)))
    }
}
