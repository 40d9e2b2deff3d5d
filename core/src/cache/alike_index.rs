//! Workloads that have not finished, in groups of which all have the same queue, state and requests, for audits.
//!
//! Invariants: each is in one group, and one that decisions may treat otherwise, by an annotation, a gate or a check, is in a group of
//! its own; a clone is a pointer, and a change after it copies one path of a tree; a change of a Workload that stays in its group costs a
//! comparison; the groups cost what there is of them, not what is queued.

use super::records::WorkloadRecord;
use super::state_index::{is_pending, pending_reason};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::lifecycle::conditions;
use crate::queue::PodSet;
use crate::queue::order_tree::{Copies, OrderTree, Weighted};
use rpds::RedBlackTreeMapSync;
use std::sync::Arc;

impl Weighted for ObjectKey {
    fn weight(&self) -> u32 {
        1
    }
}

/// Workloads of one group.
#[derive(Clone, Debug)]
pub struct Alike<'a> {
    /// The first of them by name.
    pub first: &'a ObjectKey,
    /// All of them; `None` if there is no other.
    members: Option<&'a OrderTree<ObjectKey>>,
}

impl<'a> Alike<'a> {
    /// Returns their number.
    pub fn count(&self) -> usize {
        self.members.map_or(1, OrderTree::len)
    }

    /// Iterates over them by name.
    pub fn keys(&self) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        let alone = self.members.is_none().then_some(self.first);
        self.members.map(OrderTree::iter).into_iter().flatten().chain(alone)
    }
}

/// State of the Workloads of a group, with the name of a ClusterQueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupState<N> {
    /// They are pending with this reason.
    Waits(PendingReason),
    /// They have quota of this ClusterQueue.
    Reserves(N),
}

/// What the Workloads of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    /// Their LocalQueue; the one without a name if they name none.
    queue: ObjectKey,
    state: GroupState<Arc<str>>,
    /// Address of their requests, which are interned. The group keeps these, so that no others get the address.
    requests: usize,
}

#[derive(Clone, Debug, Default)]
struct Group {
    #[expect(dead_code, reason = "held, so that no other requests get their address")]
    requests: Option<Arc<[PodSet]>>,
    members: OrderTree<ObjectKey>,
}

/// The group of a Workload, as its record says it. It is derived twice at each change of a Workload, so it borrows and allocates
/// nothing; its key is made only if the group changes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct GroupOf<'r> {
    namespace: &'r Arc<str>,
    /// Name of the LocalQueue, if it is not empty.
    queue: Option<&'r Arc<str>>,
    state: GroupState<&'r str>,
    /// Address of the requests.
    requests: usize,
}

impl GroupOf<'_> {
    fn key(&self) -> GroupKey {
        GroupKey {
            queue: ObjectKey {
                namespace: Arc::clone(self.namespace),
                name: self.queue.cloned().unwrap_or_default(),
            },
            state: match self.state {
                GroupState::Waits(reason) => GroupState::Waits(reason),
                GroupState::Reserves(queue) => GroupState::Reserves(Arc::from(queue)),
            },
            requests: self.requests,
        }
    }
}

/// Where a Workload is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place<'r> {
    Grouped(GroupOf<'r>),
    Alone,
    Nowhere,
}

/// Returns whether decisions read nothing of a Workload but queue, priority, state and requests.
fn has_requests_alone(record: &WorkloadRecord) -> bool {
    let (annotations, status) = (&record.annotations, &record.status);
    let is_plain = annotations.variant.is_none()
        && annotations.replaces.is_none()
        && !annotations.is_slice
        && annotations.admission_gated_by.is_none();
    is_plain
        && record.active
        && record.preemption_gates.is_empty()
        && !record.meta.is_deleting()
        && status.admission_checks.is_empty()
        && status.reclaimable_pods.is_empty()
}

impl<'r> Place<'r> {
    fn of(record: &'r WorkloadRecord) -> Self {
        let is_true = |kind| conditions::is_true(&record.status, kind);
        if is_true(ConditionType::Finished) {
            return Self::Nowhere;
        }
        if !has_requests_alone(record) {
            return Self::Alone;
        }
        let state = match (is_pending(record), &record.status.admission) {
            (true, _) if !is_true(ConditionType::QuotaReserved) => GroupState::Waits(pending_reason(record)),
            (false, Some(admission)) => GroupState::Reserves(admission.cluster_queue.as_str()),
            _ => return Self::Alone,
        };
        let requests = record.effective_requests.pod_sets.as_ref();
        Self::Grouped(GroupOf {
            namespace: &record.meta.key.namespace,
            queue: record.queue_name.as_ref().filter(|name| !name.is_empty()),
            state,
            requests: requests.map_or(0, |sets| Arc::as_ptr(sets).cast::<()>().addr()),
        })
    }
}

/// The index.
#[derive(Clone, Debug, Default)]
pub(super) struct AlikeIndex {
    groups: RedBlackTreeMapSync<GroupKey, Group>,
    alone: OrderTree<ObjectKey>,
    copies: Copies,
}

impl AlikeIndex {
    /// Moves a Workload from where it was to where it is.
    pub(super) fn replace(&mut self, old: Option<&WorkloadRecord>, new: Option<&WorkloadRecord>) {
        let (before, after) = (old.map_or(Place::Nowhere, Place::of), new.map_or(Place::Nowhere, Place::of));
        if before == after {
            return;
        }
        if let Some(old) = old {
            self.remove(&old.meta.key, before);
        }
        if let Some(new) = new {
            self.insert(new, after);
        }
    }

    fn insert(&mut self, record: &WorkloadRecord, place: Place<'_>) {
        let key = record.meta.key.clone();
        match place {
            Place::Grouped(group) => {
                let group = group.key();
                if !self.groups.contains_key(&group) {
                    let requests = record.effective_requests.pod_sets.clone();
                    self.groups.insert_mut(group.clone(), Group { requests, ..Group::default() });
                }
                if let Some(group) = self.groups.get_mut(&group) {
                    group.members.insert(key, &mut self.copies);
                }
            }
            Place::Alone => drop(self.alone.insert(key, &mut self.copies)),
            Place::Nowhere => {}
        }
    }

    fn remove(&mut self, key: &ObjectKey, place: Place<'_>) {
        match place {
            Place::Grouped(of) => {
                let of = of.key();
                let Some(group) = self.groups.get_mut(&of) else { return };
                group.members.remove(key, &mut self.copies);
                if group.members.len() == 0 {
                    self.groups.remove_mut(&of);
                }
            }
            Place::Alone => drop(self.alone.remove(key, &mut self.copies)),
            Place::Nowhere => {}
        }
    }

    /// Returns the groups in the order of their first Workloads.
    pub(super) fn groups(&self) -> Vec<Alike<'_>> {
        let grouped = self.groups.iter().filter_map(|(_, group)| {
            let first = group.members.iter().next()?;
            Some(Alike { first, members: Some(&group.members) })
        });
        let alone = self.alone.iter().map(|first| Alike { first, members: None });
        let mut all: Vec<Alike<'_>> = grouped.chain(alone).collect();
        all.sort_unstable_by(|a, b| a.first.cmp(b.first));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::interned_templates::InternedTemplates;
    use crate::cache::records::EffectiveRequests;
    use crate::cache::workload_index::WorkloadIndex;
    use crate::cache::workload_object::WorkloadObject;
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    /// A Workload of one of two queues and requests: pending, kept out, deactivated, with quota, finished.
    fn record(number: u8, queue: u8, state: u8, requests: &[Arc<EffectiveRequests>]) -> Arc<WorkloadRecord> {
        let time = "2027-01-15T08:00:00Z";
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": time});
        let mut status = json!({"conditions": match state {
            0 => vec![],
            1 => vec![condition("QuotaReserved", "False", "Suspended")],
            2 => vec![condition("QuotaReserved", "False", "Deactivated")],
            3 => vec![condition("QuotaReserved", "True", "QuotaReserved")],
            _ => vec![condition("Finished", "True", "Succeeded")],
        }});
        if state == 3 {
            status["admission"] = json!({"clusterQueue": "cq", "podSetAssignments": []});
        }
        let object = json!({
            "metadata": {"name": format!("w{number}"), "namespace": "ns", "uid": format!("{number}"), "creationTimestamp": time},
            "spec": {"queueName": format!("lq{queue}"), "active": state != 2, "podSets": []}, "status": status,
        });
        let object = WorkloadObject::from_value(object).unwrap();
        let mut record = WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap();
        record.effective_requests = Arc::clone(&requests[usize::from(number % 2)]);
        Arc::new(record)
    }

    /// Requests of Workloads with an even and with an odd number.
    fn two_requests() -> [Arc<EffectiveRequests>; 2] {
        let requests = || {
            let sets: Arc<[PodSet]> = Arc::from([PodSet::default()]);
            Arc::new(EffectiveRequests { pod_sets: Some(sets), ..EffectiveRequests::default() })
        };
        [requests(), requests()]
    }

    /// While a snapshot has the index, a change copies what it replaces.
    #[test]
    fn a_version_of_the_same_group_copies_nothing() {
        let requests = two_requests();
        let mut index = AlikeIndex::default();
        for number in [0, 2, 4] {
            index.replace(None, Some(&record(number, 0, 0, &requests)));
        }
        let published = index.clone();
        let (old, same) = (record(2, 0, 0, &requests), record(2, 0, 0, &requests));
        index.replace(Some(&old), Some(&same));
        assert_eq!((index.copies.0, index.groups().len()), (0, 1));
        index.replace(Some(&same), Some(&record(2, 0, 1, &requests)));
        assert!(index.copies.0 > 0 && index.groups().len() == 2);
        assert_eq!(published.groups().iter().map(Alike::count).collect::<Vec<_>>(), [3]);
    }

    proptest! {
        /// The groups follow from the Workloads, whatever they were before.
        #[test]
        fn groups_follow_from_the_workloads(changes in prop::collection::vec((0_u8..9, 0_u8..2, 0_u8..6), 0..40)) {
            let requests = two_requests();
            let mut index = WorkloadIndex::default();
            for (number, queue, state) in changes {
                let new = record(number, queue, state, &requests);
                let known = index.get(&new.meta.key).cloned();
                match (state, known) {
                    (5, Some(known)) => index.remove(&known),
                    (5, None) => {}
                    _ => index.insert(&new),
                }
                let mut expected: BTreeMap<String, Vec<&ObjectKey>> = BTreeMap::new();
                for record in index.starting_at(0) {
                    match Place::of(record) {
                        Place::Grouped(group) => expected.entry(format!("{:?}", group.key())).or_default().push(&record.meta.key),
                        Place::Alone => expected.entry(record.meta.key.to_string()).or_default().push(&record.meta.key),
                        Place::Nowhere => {}
                    }
                }
                let mut expected: Vec<Vec<&ObjectKey>> = expected.into_values().collect();
                expected.sort();
                let groups = index.alike();
                let found: Vec<Vec<&ObjectKey>> = groups.iter().map(|group| group.keys().collect()).collect();
                prop_assert!(groups.iter().zip(&found).all(|(group, keys)| group.count() == keys.len() && group.first == keys[0]));
                prop_assert_eq!(found, expected);
            }
        }
    }
}
