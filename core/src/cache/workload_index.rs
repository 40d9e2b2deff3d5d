//! Workloads by namespace and name, for readers outside the core.
//!
//! Invariants: it has every Workload of the cache, in the version that the cache has; a clone is a pointer, and a change after it
//! copies one path of a tree; the start of a page and a look-up cost the logarithm of the number of Workloads.

use super::alike_index::{Alike, AlikeIndex};
use super::records::WorkloadRecord;
use super::size_index::{Requesting, SizeIndex};
use super::state_index::{ReasonSummary, Recent, RecentList, StateIndex, Waiting};
use super::submitter_index::SubmitterIndex;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::frameworks::submitter_name;
use crate::queue::order_tree::{Copies, OrderTree, Weighted};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Indexed(Arc<WorkloadRecord>);

impl Indexed {
    fn key(&self) -> &ObjectKey {
        &self.0.meta.key
    }
}

impl Ord for Indexed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl PartialOrd for Indexed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Indexed {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Indexed {}

impl Weighted for Indexed {
    fn weight(&self) -> u32 {
        1
    }
}

/// Workloads in order of namespace and name.
#[derive(Clone, Debug, Default)]
pub struct WorkloadIndex {
    tree: OrderTree<Indexed>,
    states: StateIndex,
    sizes: SizeIndex,
    submitters: SubmitterIndex,
    alike: AlikeIndex,
    copies: Copies,
    /// Whether the submitters of Workloads are read.
    reads_submitters: bool,
}

impl WorkloadIndex {
    /// Adds a Workload, in place of one with the same key.
    pub fn insert(&mut self, record: &Arc<WorkloadRecord>) {
        let old = self.tree.insert(Indexed(Arc::clone(record)), &mut self.copies);
        let old = old.as_ref().map(|old| &*old.0);
        self.states.replace(old, Some(record));
        self.sizes.replace(old, Some(record));
        self.submitters.replace(old, Some(record));
        self.alike.replace(old, Some(record));
    }

    pub(super) fn remove(&mut self, record: &Arc<WorkloadRecord>) {
        let old = self.tree.remove(&Indexed(Arc::clone(record)), &mut self.copies);
        let old = old.as_ref().map(|old| &*old.0);
        self.states.replace(old, None);
        self.sizes.replace(old, None);
        self.submitters.replace(old, None);
        self.alike.replace(old, None);
    }

    pub(super) const fn set_reads_submitters(&mut self, reads: bool) {
        self.reads_submitters = reads;
    }

    /// Whether the submitters of Workloads are read: without, a list of what a user submitted says nothing.
    pub const fn reads_submitters(&self) -> bool {
        self.reads_submitters
    }

    /// Number of Workloads.
    pub fn len(&self) -> usize {
        self.tree.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a Workload.
    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<WorkloadRecord>> {
        self.tree.get(|item| key.cmp(item.key())).map(|item| &item.0)
    }

    /// Returns the number of Workloads whose key is not greater than this one.
    pub fn up_to(&self, key: &ObjectKey) -> usize {
        let before = self.tree.weight_before(|item| key.cmp(item.key()));
        usize::try_from(before).unwrap_or(usize::MAX).saturating_add(usize::from(self.get(key).is_some()))
    }

    /// Iterates in order from this position.
    pub fn starting_at(&self, position: usize) -> impl Iterator<Item = &Arc<WorkloadRecord>> {
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        self.tree.iter_from(position).0.map(|item| &item.0)
    }

    /// Iterates over the keys of the Workloads that a user submitted, in order, from a key on; none where submitters are not read.
    pub fn of_submitter<'a>(
        &'a self,
        user: &str,
        first: ObjectKey,
    ) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.submitters.starting_at(submitter_name(user), first)
    }

    /// Returns the number of pending Workloads by reason, with the oldest of each.
    pub fn pending_by_reason(&self) -> impl Iterator<Item = ReasonSummary> {
        self.states.by_reason()
    }

    /// Iterates over the pending Workloads of reasons and namespaces, those that wait longest first, after a place in that order. It
    /// costs a look at each reason and namespace, and then what is read.
    pub fn longest_waiting<'a, F: Fn(PendingReason, &str) -> bool>(
        &'a self,
        is_meant: F,
        after: Option<&Waiting>,
    ) -> impl Iterator<Item = &'a Waiting> + use<'a, F> {
        self.states.longest_waiting(is_meant, after)
    }

    /// Iterates over the Workloads with quota, or the finished ones, of namespaces, the newest first, after a place in that order. It
    /// costs a look at each namespace, and then what is read.
    pub fn newest<'a, F: Fn(&str) -> bool>(
        &'a self,
        list: RecentList,
        is_meant: F,
        after: Option<&Recent>,
    ) -> impl Iterator<Item = &'a Recent> + use<'a, F> {
        self.states.newest(list, is_meant, after)
    }

    /// Returns the number of Workloads with quota, or of finished ones.
    pub fn count(&self, list: RecentList) -> usize {
        self.states.count(list)
    }

    /// Returns the number of those before a place in their order.
    pub fn count_newer(&self, list: RecentList, place: &Recent) -> usize {
        self.states.count_newer(list, place)
    }

    /// Returns the Workloads that have most quota of any flavor-resource of a ClusterQueue: `most` of each.
    pub fn largest(&self, cluster_queue: &str, most: usize) -> BTreeSet<&ObjectKey> {
        self.states.largest(cluster_queue, most)
    }

    /// Returns the Workloads that have not finished in groups of the same queue, state and requests, in the order of their first ones.
    pub fn alike(&self) -> Vec<Alike<'_>> {
        self.alike.groups()
    }

    /// Iterates over the pending Workloads of LocalQueues, the largest first, after a place in that order.
    pub fn largest_first<'a, F: Fn(&ObjectKey) -> bool>(
        &'a self,
        is_meant: F,
        after: Option<&Requesting>,
    ) -> impl Iterator<Item = &'a Requesting> + use<'a, F> {
        self.sizes.largest_first(is_meant, after)
    }

    /// Returns the number of pending Workloads of LocalQueues behind a place in that order.
    pub fn count_after(&self, is_meant: impl Fn(&ObjectKey) -> bool, place: &Requesting) -> usize {
        self.sizes.count_after(is_meant, place)
    }
}
