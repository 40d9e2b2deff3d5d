//! Pending Workloads of each LocalQueue by what they ask for, for readers outside the core.
//!
//! Invariants: a place follows from the Workload alone, so that every replica has the same; a clone is a pointer, and a change after it
//! copies one path of a tree; the start of an order and a number cost the logarithm of the number of Workloads, for each LocalQueue.

use super::records::WorkloadRecord;
use super::state_index::is_pending;
use crate::api::ObjectKey;
use crate::queue::order_tree::{Copies, OrderTree, Weighted, merged};
use rpds::RedBlackTreeMapSync;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the pods of a Workload ask for together: the most of one kind of device, CPU, memory. Devices decide: CPU and memory come with
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Size([i64; 3]);

impl Size {
    fn of(record: &WorkloadRecord) -> Self {
        let mut totals: BTreeMap<&str, i128> = BTreeMap::new();
        for set in record.effective_requests.pod_sets.iter().flat_map(|sets| sets.iter()) {
            for (resource, amount) in &set.requests {
                let total = totals.entry(resource).or_default();
                *total = total.saturating_add(amount.to_i128().saturating_mul(set.count.into()));
            }
        }
        let written = |total: i128| i64::try_from(total).unwrap_or(i64::MAX);
        let of = |resource: &str| totals.get(resource).copied().map_or(0, written);
        let devices = totals.iter().filter(|(resource, _)| resource.contains('/'));
        Self([devices.map(|(_, total)| written(*total)).max().unwrap_or_default(), of("cpu"), of("memory")])
    }
}

/// A pending Workload. The order is that of the size, the largest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requesting {
    size: Reverse<Size>,
    /// Its key.
    pub key: ObjectKey,
}

impl Requesting {
    /// Returns the place of a Workload in the order.
    pub const fn new(size: Size, key: ObjectKey) -> Self {
        Self { size: Reverse(size), key }
    }

    /// What it asks for.
    pub const fn size(&self) -> Size {
        self.size.0
    }
}

impl Weighted for Requesting {
    fn weight(&self) -> u32 {
        1
    }
}

/// The index: of each LocalQueue its Workloads. Those without a queue name have the empty one.
#[derive(Clone, Debug, Default)]
pub(super) struct SizeIndex {
    queues: RedBlackTreeMapSync<ObjectKey, OrderTree<Requesting>>,
    copies: Copies,
}

/// Whether both have the same place.
fn is_same_place(old: &WorkloadRecord, new: &WorkloadRecord) -> bool {
    Arc::ptr_eq(&old.effective_requests, &new.effective_requests)
        && old.queue_name == new.queue_name
        && (Arc::ptr_eq(&old.status, &new.status) || is_pending(old) == is_pending(new))
}

fn place(record: &WorkloadRecord) -> Option<(ObjectKey, Requesting)> {
    let key = &record.meta.key;
    let queue = ObjectKey {
        namespace: Arc::clone(&key.namespace),
        name: record.queue_name.clone().unwrap_or_default(),
    };
    is_pending(record).then(|| (queue, Requesting::new(Size::of(record), key.clone())))
}

impl SizeIndex {
    /// Moves a Workload from where it stood to where it stands.
    pub(super) fn replace(&mut self, old: Option<&WorkloadRecord>, new: Option<&WorkloadRecord>) {
        if old.zip(new).is_some_and(|(old, new)| is_same_place(old, new)) {
            return;
        }
        let (before, after) = (old.and_then(place), new.and_then(place));
        if before == after {
            return;
        }
        if let Some((queue, item)) = before
            && let Some(tree) = self.queues.get_mut(&queue)
        {
            tree.remove(&item, &mut self.copies);
            if tree.len() == 0 {
                self.queues.remove_mut(&queue);
            }
        }
        if let Some((queue, item)) = after {
            if !self.queues.contains_key(&queue) {
                self.queues.insert_mut(queue.clone(), OrderTree::default());
            }
            if let Some(tree) = self.queues.get_mut(&queue) {
                tree.insert(item, &mut self.copies);
            }
        }
    }

    fn trees<F: Fn(&ObjectKey) -> bool>(
        &self,
        is_meant: F,
    ) -> impl Iterator<Item = &OrderTree<Requesting>> + use<'_, F> {
        self.queues.iter().filter(move |(queue, _)| is_meant(queue)).map(|(_, tree)| tree)
    }

    /// Iterates over the pending Workloads of LocalQueues, the largest first, after a place in that order. It costs a look into each
    /// queue, and then what is read.
    pub(super) fn largest_first<'a, F: Fn(&ObjectKey) -> bool>(
        &'a self,
        is_meant: F,
        after: Option<&Requesting>,
    ) -> impl Iterator<Item = &'a Requesting> + use<'a, F> {
        let runs: Vec<_> = self
            .trees(is_meant)
            .map(|tree| match after {
                Some(after) => tree.iter_after(|item| after.cmp(item)),
                None => tree.iter(),
            })
            .collect();
        merged(runs)
    }

    /// Returns the number of pending Workloads of LocalQueues behind a place in that order.
    pub(super) fn count_after(&self, is_meant: impl Fn(&ObjectKey) -> bool, place: &Requesting) -> usize {
        let behind = |tree: &OrderTree<Requesting>| {
            let before = usize::try_from(tree.weight_before(|item| place.cmp(item))).unwrap_or(usize::MAX);
            let at_place = usize::from(tree.get(|item| place.cmp(item)).is_some());
            tree.len().saturating_sub(before).saturating_sub(at_place)
        };
        self.trees(is_meant).map(behind).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::interned_templates::InternedTemplates;
    use crate::cache::records::EffectiveRequests;
    use crate::cache::workload_index::WorkloadIndex;
    use crate::cache::workload_object::WorkloadObject;
    use crate::resources::Amount;
    use crate::scheduler::PodSet;
    use proptest::prelude::*;
    use serde_json::json;

    /// A Workload in a LocalQueue of two or in none, pending unless it is finished.
    fn record(number: u8, queue: u8, pods: i32, finished: bool) -> Arc<WorkloadRecord> {
        let time = "2027-01-15T08:00:00Z";
        let condition = json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": time});
        let conditions = if finished { vec![condition] } else { Vec::new() };
        let mut object = json!({
            "metadata": {"name": format!("w{number}"), "namespace": "ns", "uid": format!("{number}"), "creationTimestamp": time},
            "spec": {"podSets": []}, "status": {"conditions": conditions},
        });
        if queue < 2 {
            object["spec"]["queueName"] = format!("lq{queue}").into();
        }
        let object = WorkloadObject::from_value(object).unwrap();
        let mut record = WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap();
        let requests = |resource: &str, amount: i64| (Arc::from(resource), Amount::new(amount));
        let set = |count, requests| PodSet { count, requests, ..PodSet::default() };
        let sets = [set(pods, [requests("cpu", 2)].into()), set(1, [requests("memory", 1)].into())];
        let effective = EffectiveRequests { pod_sets: Some(Arc::from(sets)), ..EffectiveRequests::default() };
        record.effective_requests = Arc::new(effective);
        Arc::new(record)
    }

    #[test]
    fn devices_decide_before_cpu_and_memory() {
        let sized = |requests: &[(&str, i64)], count: i32| {
            let mut record = (*record(0, 0, 0, false)).clone();
            let requests = requests.iter().map(|(name, amount)| (Arc::from(*name), Amount::new(*amount)));
            let set = PodSet { count, requests: requests.collect(), ..PodSet::default() };
            record.effective_requests = Arc::new(EffectiveRequests {
                pod_sets: Some(Arc::from([set])),
                ..EffectiveRequests::default()
            });
            Size::of(&record)
        };
        let ordered = [
            sized(&[("cpu", 9_000)], 1),
            sized(&[("cpu", 9_000), ("memory", 1)], 1),
            sized(&[("cpu", 4_000)], 3),
            sized(&[("cpu", 100), ("nvidia.com/gpu", 1)], 1),
            // Devices of several kinds come together: the most of one counts.
            sized(&[("cpu", 1), ("nvidia.com/gpu", 4), ("example.com/nic", 4)], 2),
            sized(&[("nvidia.com/gpu", 9)], 1),
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b), "{ordered:?}");
        assert_eq!(sized(&[], 1), Size::default());
    }

    proptest! {
        /// The index has what the Workloads say, whatever they were before, and goes on after any place.
        #[test]
        fn places_follow_from_the_workloads(
            changes in prop::collection::vec((0_u8..8, 0_u8..3, 0_i32..4, 0_u8..4), 0..40),
        ) {
            let mut index = WorkloadIndex::default();
            for (number, queue, pods, state) in changes {
                let before = index.clone();
                let new = record(number, queue, pods, state == 1);
                let known = before.get(&new.meta.key).cloned();
                match (state, known) {
                    (0, Some(known)) => index.remove(&known),
                    (0, None) => {}
                    _ => index.insert(&new),
                }
            }
            for wanted in ["lq0", "lq1", "", "*"] {
                let is_meant = |queue: &ObjectKey| wanted == "*" || *queue.name == *wanted;
                let all = index.starting_at(0).filter_map(|record| place(record));
                let mut expected: Vec<Requesting> =
                    all.filter(|(queue, _)| is_meant(queue)).map(|(_, item)| item).collect();
                expected.sort();
                let found: Vec<_> = index.largest_first(is_meant, None).cloned().collect();
                prop_assert_eq!(&found, &expected);
                for (position, item) in expected.iter().enumerate() {
                    let rest: Vec<_> = index.largest_first(is_meant, Some(item)).cloned().collect();
                    prop_assert_eq!(&rest[..], &expected[position + 1..]);
                    prop_assert_eq!(index.count_after(is_meant, item), rest.len());
                }
            }
        }
    }
}
