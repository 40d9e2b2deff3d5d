//! Pending Workloads by reason and wait, those with quota by what they use and by time, and finished ones by time, for readers outside
//! the core.
//!
//! Invariants: a place follows from the Workload alone, so that every replica has the same; a clone is a pointer, and a change after it
//! copies one path of a tree; the start of an order and a number cost the logarithm of the number of Workloads, for each namespace; a
//! list of some namespaces passes over no Workload of another one.

use super::records::WorkloadRecord;
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::Admission;
use crate::lifecycle::{conditions, reservation};
use crate::queue::order_tree::{Copies, OrderTree, Weighted, merged};
use crate::quota::FlavorResource;
use crate::resources::{self, Amount, Quantity};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use rpds::RedBlackTreeMapSync;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A pending Workload. The order is that of the wait, the longest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// Since when it waits.
    pub since: Timestamp,
    /// Its key.
    pub key: ObjectKey,
}

impl Weighted for Waiting {
    fn weight(&self) -> u32 {
        1
    }
}

/// A Workload with quota of a flavor-resource. The order is that of the amount, the largest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Using {
    amount: Reverse<i128>,
    key: ObjectKey,
}

impl Weighted for Using {
    fn weight(&self) -> u32 {
        1
    }
}

/// A Workload with quota, or a finished one. The order is that of the time since when it is so, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Recent {
    /// Since when it has quota, or is finished.
    pub since: Reverse<Timestamp>,
    /// Its key.
    pub key: ObjectKey,
}

impl Weighted for Recent {
    fn weight(&self) -> u32 {
        1
    }
}

impl Recent {
    fn new(key: &ObjectKey, since: Timestamp) -> Self {
        Self { since: Reverse(since), key: key.clone() }
    }
}

/// Which Workloads a list by time has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecentList {
    /// Those with quota.
    Reserving,
    /// Those that have finished.
    Finished,
}

/// Where a Workload stands in this index.
#[derive(Debug, PartialEq)]
enum Place {
    Waits(PendingReason, Timestamp),
    Uses(Arc<str>, BTreeMap<FlavorResource, i128>, Timestamp),
    Ended(Timestamp),
    Nowhere,
}

/// Number of pending Workloads of a reason, and the one that waits longest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonSummary {
    /// The reason.
    pub reason: PendingReason,
    /// Their number.
    pub count: usize,
    /// Since when the one that waits longest does.
    pub oldest: Timestamp,
}

/// The index.
#[derive(Clone, Debug, Default)]
pub(super) struct StateIndex {
    waiting: RedBlackTreeMapSync<(PendingReason, Arc<str>), OrderTree<Waiting>>,
    using: RedBlackTreeMapSync<(Arc<str>, FlavorResource), OrderTree<Using>>,
    recent: RedBlackTreeMapSync<(RecentList, Arc<str>), OrderTree<Recent>>,
    copies: Copies,
}

/// Adds an item to the tree of a key.
fn insert_in<K: Ord + Clone, T: Weighted>(
    trees: &mut RedBlackTreeMapSync<K, OrderTree<T>>,
    key: &K,
    item: T,
    copies: &mut Copies,
) {
    if !trees.contains_key(key) {
        trees.insert_mut(key.clone(), OrderTree::default());
    }
    if let Some(tree) = trees.get_mut(key) {
        tree.insert(item, copies);
    }
}

/// Removes an item from the tree of a key, and the tree if it was the last.
fn remove_from<K: Ord + Clone, T: Weighted>(
    trees: &mut RedBlackTreeMapSync<K, OrderTree<T>>,
    key: &K,
    item: &T,
    copies: &mut Copies,
) {
    let Some(tree) = trees.get_mut(key) else { return };
    tree.remove(item, copies);
    if tree.len() == 0 {
        trees.remove_mut(key);
    }
}

/// Returns whether a Workload is pending: it has no quota and is not finished.
pub(crate) fn is_pending(record: &WorkloadRecord) -> bool {
    !conditions::is_true(&record.status, ConditionType::Finished) && !reservation::holds_quota(&record.status)
}

/// Returns why a pending Workload waits, as its condition says it.
pub(super) fn pending_reason(record: &WorkloadRecord) -> PendingReason {
    let known = conditions::reason(&record.status, ConditionType::QuotaReserved);
    let reason = PendingReason::ALL.into_iter().find(|reason| reason.as_str() == known);
    reason.unwrap_or(PendingReason::PendingEvaluation)
}

/// Returns since when a pending Workload waits: since its creation, or the end of its last reservation.
pub fn pending_since(record: &WorkloadRecord) -> Timestamp {
    let evicted = conditions::true_since(&record.status, ConditionType::Evicted);
    evicted
        .and_then(|_| conditions::find(&record.status, ConditionType::QuotaReserved))
        .map_or(record.meta.created, |condition| condition.last_transition_time.0)
}

/// Returns an amount of an admission.
pub fn granted_amount(resource: &str, quantity: &ApiQuantity) -> i128 {
    Quantity::parse(&quantity.0).map_or(Amount::ZERO, |q| resources::amount(resource, &q)).to_i128()
}

/// Returns what an admission grants, by flavor-resource.
pub fn granted(admission: &Admission) -> BTreeMap<FlavorResource, i128> {
    let mut granted: BTreeMap<FlavorResource, i128> = BTreeMap::new();
    for set in &admission.pod_set_assignments {
        for (resource, quantity) in &set.resource_usage {
            let flavor = set.flavors.get(resource).map_or("", String::as_str);
            let sum = granted.entry(FlavorResource::new(flavor, resource)).or_default();
            *sum = sum.saturating_add(granted_amount(resource, quantity));
        }
    }
    granted
}

impl Place {
    fn of(record: &WorkloadRecord) -> Self {
        if is_pending(record) {
            return Self::Waits(pending_reason(record), pending_since(record));
        }
        let since = |condition| conditions::true_since(&record.status, condition);
        if let Some(ended) = since(ConditionType::Finished) {
            return Self::Ended(ended);
        }
        match &record.status.admission {
            Some(admission) => {
                let reserved = since(ConditionType::QuotaReserved).unwrap_or(record.meta.created);
                Self::Uses(Arc::from(admission.cluster_queue.as_str()), granted(admission), reserved)
            }
            None => Self::Nowhere,
        }
    }
}

impl StateIndex {
    /// Moves a Workload from where it stood to where it stands.
    pub(super) fn replace(&mut self, old: Option<&WorkloadRecord>, new: Option<&WorkloadRecord>) {
        if let (Some(old), Some(new)) = (old, new)
            && Arc::ptr_eq(&old.status, &new.status)
            && old.meta.created == new.meta.created
        {
            return;
        }
        let place = |record: Option<&WorkloadRecord>| record.map_or(Place::Nowhere, Place::of);
        let (before, after) = (place(old), place(new));
        if before == after {
            return;
        }
        if let Some(old) = old {
            self.remove(&old.meta.key, before);
        }
        if let Some(new) = new {
            self.insert(&new.meta.key, after);
        }
    }

    fn insert(&mut self, key: &ObjectKey, place: Place) {
        let namespace = || Arc::clone(&key.namespace);
        match place {
            Place::Waits(reason, since) => {
                let item = Waiting { since, key: key.clone() };
                insert_in(&mut self.waiting, &(reason, namespace()), item, &mut self.copies);
            }
            Place::Uses(queue, granted, since) => {
                let slot = (RecentList::Reserving, namespace());
                insert_in(&mut self.recent, &slot, Recent::new(key, since), &mut self.copies);
                for (fr, amount) in granted {
                    let item = Using { amount: Reverse(amount), key: key.clone() };
                    insert_in(&mut self.using, &(Arc::clone(&queue), fr), item, &mut self.copies);
                }
            }
            Place::Ended(since) => {
                let slot = (RecentList::Finished, namespace());
                insert_in(&mut self.recent, &slot, Recent::new(key, since), &mut self.copies);
            }
            Place::Nowhere => {}
        }
    }

    fn remove(&mut self, key: &ObjectKey, place: Place) {
        let namespace = || Arc::clone(&key.namespace);
        match place {
            Place::Waits(reason, since) => {
                let item = Waiting { since, key: key.clone() };
                remove_from(&mut self.waiting, &(reason, namespace()), &item, &mut self.copies);
            }
            Place::Uses(queue, granted, since) => {
                let slot = (RecentList::Reserving, namespace());
                remove_from(&mut self.recent, &slot, &Recent::new(key, since), &mut self.copies);
                for (fr, amount) in granted {
                    let item = Using { amount: Reverse(amount), key: key.clone() };
                    remove_from(&mut self.using, &(Arc::clone(&queue), fr), &item, &mut self.copies);
                }
            }
            Place::Ended(since) => {
                let slot = (RecentList::Finished, namespace());
                remove_from(&mut self.recent, &slot, &Recent::new(key, since), &mut self.copies);
            }
            Place::Nowhere => {}
        }
    }

    /// Returns the trees of a list, one for each namespace that is meant.
    fn of_list<F: Fn(&str) -> bool>(
        &self,
        list: RecentList,
        is_meant: F,
    ) -> impl Iterator<Item = &OrderTree<Recent>> + use<'_, F> {
        let start = (list, Arc::from(""));
        let trees = self.recent.range(start..).take_while(move |((of, _), _)| *of == list);
        trees.filter(move |((_, namespace), _)| is_meant(namespace)).map(|(_, tree)| tree)
    }

    /// Iterates over the Workloads of a list in namespaces, the newest first, after a place in that order.
    pub(super) fn newest<'a, F: Fn(&str) -> bool>(
        &'a self,
        list: RecentList,
        is_meant: F,
        after: Option<&Recent>,
    ) -> impl Iterator<Item = &'a Recent> + use<'a, F> {
        let runs: Vec<_> = self
            .of_list(list, is_meant)
            .map(|tree| match after {
                Some(after) => tree.iter_after(|item| after.cmp(item)),
                None => tree.iter(),
            })
            .collect();
        merged(runs)
    }

    /// Returns the number of Workloads of a list.
    pub(super) fn count(&self, list: RecentList) -> usize {
        self.of_list(list, |_| true).map(OrderTree::len).sum()
    }

    /// Returns the number of Workloads of a list before a place in its order.
    pub(super) fn count_newer(&self, list: RecentList, place: &Recent) -> usize {
        let before = |tree: &OrderTree<Recent>| tree.weight_before(|item| place.cmp(item));
        self.of_list(list, |_| true)
            .map(|tree| usize::try_from(before(tree)).unwrap_or(usize::MAX))
            .fold(0, usize::saturating_add)
    }

    /// Returns the pending Workloads by reason.
    pub(super) fn by_reason(&self) -> impl Iterator<Item = ReasonSummary> + use<> {
        let mut found: BTreeMap<PendingReason, ReasonSummary> = BTreeMap::new();
        for ((reason, _), tree) in &self.waiting {
            let Some(oldest) = tree.iter().next().map(|item| item.since) else { continue };
            let known = found.entry(*reason);
            let known = known.or_insert(ReasonSummary { reason: *reason, count: 0, oldest });
            known.count = known.count.saturating_add(tree.len());
            known.oldest = known.oldest.min(oldest);
        }
        found.into_values()
    }

    /// Iterates over the pending Workloads of reasons and namespaces, those that wait longest first, after a place in that order.
    pub(super) fn longest_waiting<'a, F: Fn(PendingReason, &str) -> bool>(
        &'a self,
        is_meant: F,
        after: Option<&Waiting>,
    ) -> impl Iterator<Item = &'a Waiting> + use<'a, F> {
        let trees = self.waiting.iter().filter(move |((reason, namespace), _)| is_meant(*reason, namespace));
        let runs: Vec<_> = trees
            .map(|(_, tree)| match after {
                Some(after) => tree.iter_after(|item| after.cmp(item)),
                None => tree.iter(),
            })
            .collect();
        merged(runs)
    }

    /// Returns the Workloads that have most quota of any flavor-resource of a ClusterQueue: `most` of each.
    pub(super) fn largest(&self, cluster_queue: &str, most: usize) -> BTreeSet<&ObjectKey> {
        let start = (Arc::from(cluster_queue), FlavorResource::new("", ""));
        let trees = self.using.range(start..).take_while(|((queue, _), _)| **queue == *cluster_queue);
        trees.flat_map(|(_, tree)| tree.iter().take(most).map(|using| &using.key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::interned_templates::InternedTemplates;
    use crate::cache::workload_index::WorkloadIndex;
    use crate::cache::workload_object::WorkloadObject;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn time(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn condition(kind: &str, holds: bool, reason: &str, at: i64) -> Value {
        let status = if holds { "True" } else { "False" };
        json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time(at)})
    }

    /// A Workload of one of two namespaces in one of six states.
    fn record(number: u8, state: u8, at: i64) -> Arc<WorkloadRecord> {
        let namespace = if number.is_multiple_of(2) { "ns" } else { "other" };
        let mut status = json!({"conditions": match state {
            0 => vec![],
            1 => vec![condition("QuotaReserved", false, "WaitingForQuota", at)],
            2 => vec![condition("QuotaReserved", false, "Suspended", at), condition("Evicted", true, "Preempted", at)],
            3 | 4 => vec![condition("QuotaReserved", true, "QuotaReserved", at)],
            _ => vec![condition("QuotaReserved", true, "QuotaReserved", at), condition("Finished", true, "Succeeded", at)],
        }});
        if state >= 3 {
            let usage = json!({"cpu": (i64::from(state) + at).to_string(), "memory": "1Gi"});
            status["admission"] = json!({"clusterQueue": if state == 4 { "b" } else { "a" }, "podSetAssignments": [
                {"name": "main", "count": 1, "flavors": {"cpu": "f", "memory": "f"}, "resourceUsage": usage}]});
        }
        let object = json!({
            "metadata": {"name": format!("w{number}"), "namespace": namespace, "uid": format!("{number}"), "creationTimestamp": time(i64::from(number))},
            "spec": {"queueName": "lq", "podSets": []}, "status": status,
        });
        let object = WorkloadObject::from_value(object).unwrap();
        Arc::new(WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap())
    }

    proptest! {
        /// The index has what the Workloads say, whatever they were before.
        #[test]
        fn places_follow_from_the_workloads(changes in prop::collection::vec((0_u8..6, 0_u8..7, 0_i64..4), 0..40)) {
            let mut index = WorkloadIndex::default();
            for (number, state, at) in changes {
                let before = index.clone();
                let new = record(number, state, at);
                let known = before.get(&new.meta.key).cloned();
                match (state, known) {
                    (6, Some(known)) => index.remove(&known),
                    (6, None) => {}
                    _ => index.insert(&new),
                }
                let all: Vec<&Arc<WorkloadRecord>> = index.starting_at(0).collect();
                let mut waiting: Vec<(Timestamp, &ObjectKey, PendingReason)> = Vec::new();
                let mut using: BTreeMap<Arc<str>, Vec<(Reverse<i128>, &ObjectKey)>> = BTreeMap::new();
                let (mut reserving, mut finished) = (Vec::new(), Vec::new());
                for record in &all {
                    match Place::of(record) {
                        Place::Waits(reason, since) => waiting.push((since, &record.meta.key, reason)),
                        Place::Uses(queue, granted, since) => {
                            reserving.push(Recent::new(&record.meta.key, since));
                            let cpu = granted[&FlavorResource::new("f", "cpu")];
                            using.entry(queue).or_default().push((Reverse(cpu), &record.meta.key));
                        }
                        Place::Ended(since) => finished.push(Recent::new(&record.meta.key, since)),
                        Place::Nowhere => {}
                    }
                }
                for (list, mut expected) in [(RecentList::Reserving, reserving), (RecentList::Finished, finished)] {
                    expected.sort();
                    prop_assert_eq!(index.count(list), expected.len());
                    prop_assert_eq!(index.newest(list, |_| true, None).cloned().collect::<Vec<_>>(), &expected[..]);
                    let own: Vec<_> = index.newest(list, |namespace| namespace == "ns", None).collect();
                    let of_namespace = expected.iter().filter(|item| *item.key.namespace == *"ns");
                    prop_assert_eq!(own, of_namespace.collect::<Vec<_>>());
                    if let Some(after) = expected.get(expected.len() / 2) {
                        let rest: Vec<_> = index.newest(list, |_| true, Some(after)).cloned().collect();
                        prop_assert_eq!(index.count_newer(list, after), expected.len() / 2);
                        prop_assert_eq!(&rest[..], &expected[expected.len() / 2 + 1..]);
                    }
                }
                waiting.sort();
                let found: Vec<_> = index.longest_waiting(|_, _| true, None).map(|item| (item.since, &item.key)).collect();
                let expected: Vec<_> = waiting.iter().map(|(since, key, _)| (*since, *key)).collect();
                prop_assert_eq!(&found, &expected);
                if let Some((since, key)) = expected.get(expected.len() / 2) {
                    let after = Waiting { since: *since, key: (*key).clone() };
                    let rest: Vec<_> =
                        index.longest_waiting(|_, _| true, Some(&after)).map(|item| (item.since, &item.key)).collect();
                    prop_assert_eq!(&rest[..], &expected[expected.len() / 2 + 1..]);
                    let own = index.longest_waiting(|_, namespace| namespace == "ns", Some(&after));
                    let own: Vec<_> = own.map(|item| (item.since, &item.key)).collect();
                    let of_namespace = rest.into_iter().filter(|(_, key)| *key.namespace == *"ns");
                    prop_assert_eq!(own, of_namespace.collect::<Vec<_>>());
                }
                for summary in index.pending_by_reason() {
                    let of_reason = || waiting.iter().filter(|(_, _, reason)| *reason == summary.reason);
                    prop_assert_eq!(summary.count, of_reason().count());
                    prop_assert_eq!(Some(summary.oldest), of_reason().map(|(since, ..)| *since).min());
                }
                prop_assert_eq!(index.pending_by_reason().map(|summary| summary.count).sum::<usize>(), waiting.len());
                for queue in ["a", "b"] {
                    let mut expected = using.remove(queue).unwrap_or_default();
                    expected.sort();
                    // All have the same memory, of which the first by name are taken.
                    let largest = index.largest(queue, 2);
                    prop_assert!(expected.iter().take(2).all(|(_, key)| largest.contains(key)));
                    prop_assert!(largest.len() <= 4 && largest.iter().all(|key| expected.iter().any(|(_, known)| known == key)));
                }
            }
        }
    }
}
