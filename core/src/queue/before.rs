//! What is before a pending workload: the head that it waits behind, and the classes that come first.
//!
//! Invariants: nothing here changes the queues; whether a workload waits behind a head follows from the order as it is now, not from
//! what was said of it before.

use super::equivalence_class::{ClassId, EquivalenceClass, HeadOrder, Member};
use super::pending_queue::{PendingEntry, PendingQueue};
use super::queue_manager::QueueManager;
use super::{Alone, Verdict, Workload};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;

/// Workloads of a class that are before another one.
#[derive(Clone, Debug)]
pub struct ClassBefore {
    /// The class.
    pub class: ClassId,
    /// Its first workload.
    pub first: Arc<Workload>,
    /// How many of its workloads are before the other one.
    pub count: usize,
}

impl PendingQueue {
    /// The last verdict of a workload's class. A class without one, which was never nominated, waits behind the head of
    /// a StrictFIFO ClusterQueue if that was announced. A class that has one keeps it when it is overtaken: the condition is
    /// written once for each verdict, not for each change of the head.
    pub(super) fn verdict(&self, entry: &PendingEntry) -> Option<&Arc<Verdict>> {
        let own = self.classes.get(&entry.class)?.verdict.as_ref();
        let is_announced = || !self.announcements.contains(entry.class, &entry.workload.key);
        let behind = || self.announcements.behind_head.as_ref();
        own.or_else(|| behind().filter(|_| is_announced() && self.waits_behind(entry).is_some()))
    }

    /// The head of a StrictFIFO ClusterQueue that a workload waits behind, whatever was said of it before. One with a capacity
    /// reservation waits for its victims, and one that is never nominated blocks no queue and is blocked by none.
    pub(super) fn waits_behind(&self, entry: &PendingEntry) -> Option<&ObjectKey> {
        if self.strategy != QueueingStrategy::StrictFIFO {
            return None;
        }
        let class = self.classes.get(&entry.class)?;
        if class.key.isolated.is_some() || !class.is_head_candidate(self.strategy) {
            return None;
        }
        let head = &self.heads.first()?.first.workload.key;
        (*head != entry.workload.key).then_some(head)
    }

    /// How many workloads of a class are before an entry; all of them without one.
    fn count_before<'a>(
        &'a self,
        entry: Option<&PendingEntry>,
    ) -> impl Fn(&EquivalenceClass) -> usize + use<'a> {
        let own = entry.map(|entry| {
            let class = self.classes.get(&entry.class);
            let rank = class.map(|class| self.rank_of_class(class)).unwrap_or_default();
            ((rank, Reverse(entry.workload.priority)), Member::new(&entry.workload))
        });
        move |class| {
            let Some((order, member)) = &own else { return class.members.len() };
            match (self.rank_of_class(class), Reverse(class.key.priority)).cmp(order) {
                Ordering::Less => class.members.len(),
                Ordering::Equal => class.members.range(..member).count(),
                Ordering::Greater => 0,
            }
        }
    }

    /// Number of workloads before an entry.
    pub(super) fn ahead_of(&self, entry: &PendingEntry) -> usize {
        self.classes.values().map(self.count_before(Some(entry))).sum()
    }

    /// The classes with workloads before an entry, in order; all classes without one.
    fn classes_before(&self, entry: Option<&PendingEntry>) -> Vec<ClassBefore> {
        let before = self.count_before(entry);
        let mut found: Vec<(HeadOrder, usize)> = self
            .classes
            .iter()
            .filter_map(|(id, class)| {
                Some((class.head_order(self.rank_of_class(class), *id)?, before(class)))
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        found.sort();
        let class = |(order, count): (HeadOrder, usize)| ClassBefore {
            class: order.class,
            first: order.first.workload,
            count,
        };
        found.into_iter().map(class).collect()
    }
}

impl QueueManager {
    /// The last verdict of the workload's class, or that it waits behind the head of a StrictFIFO ClusterQueue.
    pub fn verdict(&self, key: &ObjectKey) -> Option<&Arc<Verdict>> {
        let (pending, entry) = self.entry(key)?;
        pending.verdict(entry)
    }

    /// The head of a StrictFIFO ClusterQueue that this workload waits behind.
    pub fn waits_behind(&self, key: &ObjectKey) -> Option<&ObjectKey> {
        let (pending, entry) = self.entry(key)?;
        pending.waits_behind(entry)
    }

    /// Number of workloads ahead of this one in its ClusterQueue.
    pub fn ahead_of(&self, key: &ObjectKey) -> Option<usize> {
        let (pending, entry) = self.entry(key)?;
        Some(pending.ahead_of(entry))
    }

    /// The class of a workload.
    pub fn class_of(&self, key: &ObjectKey) -> Option<ClassId> {
        self.entry(key).map(|(_, entry)| entry.class)
    }

    /// The classes with workloads before this one in its ClusterQueue, in order.
    pub fn classes_before(&self, key: &ObjectKey) -> Vec<ClassBefore> {
        self.entry(key).map(|(pending, entry)| pending.classes_before(Some(entry))).unwrap_or_default()
    }

    /// All classes of a ClusterQueue in order.
    pub fn classes_of(&self, queue: &str) -> Vec<ClassBefore> {
        self.queue(queue).map(|pending| pending.classes_before(None)).unwrap_or_default()
    }

    /// The ClusterQueues with workloads that may be nominated.
    pub fn queues(&self) -> Vec<Arc<str>> {
        self.queue_names().cloned().collect()
    }

    /// The head of a StrictFIFO ClusterQueue.
    pub fn strict_head(&self, queue: &str) -> Option<&Arc<Workload>> {
        let pending = self.queue(queue)?;
        let strict = pending.strategy == QueueingStrategy::StrictFIFO;
        pending.heads.first().filter(|_| strict).map(|head| &head.first.workload)
    }

    /// The number of workloads of a class that are behind a workload of another class.
    pub fn count_behind(&self, queue: &str, class: ClassId, first: &ObjectKey) -> usize {
        let found = self.queue(queue).and_then(|pending| Some((pending, pending.classes.get(&class)?)));
        let Some((pending, class)) = found else { return 0 };
        let Some((_, entry)) = self.entry(first) else { return 0 };
        class.members.len().saturating_sub(pending.count_before(Some(entry))(class))
    }

    /// What a class would get if nothing were in use, if that is known for this state of configuration and nodes.
    pub fn alone(&self, queue: &str, class: ClassId, state: u64) -> Option<&Arc<Alone>> {
        let known = self.queue(queue)?.classes.get(&class)?.alone.as_ref();
        known.filter(|(of, _)| *of == state).map(|(_, alone)| alone)
    }

    /// Keeps what a class would get if nothing were in use, for a state of configuration and nodes.
    pub fn set_alone(&mut self, queue: &str, class: ClassId, (state, alone): (u64, &Arc<Alone>)) {
        if let Some(class) = self.queue_mut(queue).and_then(|pending| pending.classes.get_mut(&class)) {
            class.alone = Some((state, Arc::clone(alone)));
        }
    }
}
