//! Pending workloads of one ClusterQueue, grouped into equivalence classes.
//!
//! Invariants: only the first workload of a class is nominated; its outcome holds for the class. In a BestEffortFIFO
//! ClusterQueue a parked class is not among the heads. A StrictFIFO ClusterQueue has one head, the first of all
//! classes, parked or not; classes with capacity reservations are heads beside it.

use super::announcements::Announcements;
use super::equivalence_class::{
    ClassId, CrossQueueKey, EquivalenceClass, EquivalenceKey, FlavorCursor, HeadClaim, HeadOrder, Member,
    Parked, UsageRank,
};
use super::hash_counts::HashCounts;
use super::{Verdict, Workload};
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::QueueingStrategy;
use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

/// Number of pending workloads, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCounts {
    /// Waiting for nomination.
    pub active: usize,
    /// Parked until something changes.
    pub inadmissible: usize,
}

impl PendingCounts {
    /// Total of both states.
    pub const fn total(self) -> usize {
        self.active.saturating_add(self.inadmissible)
    }

    /// Moves `number` workloads to active or inadmissible.
    const fn set_active(&mut self, number: usize, active: bool) {
        let (from, to) = if active {
            (&mut self.inadmissible, &mut self.active)
        } else {
            (&mut self.active, &mut self.inadmissible)
        };
        *from = from.saturating_sub(number);
        *to = to.saturating_add(number);
    }
}

/// The first workload of a class, to be nominated.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// Its class.
    pub class: ClassId,
    /// The workload.
    pub workload: &'a Arc<Workload>,
    /// Where its flavor scan starts.
    pub cursor: Option<&'a FlavorCursor>,
    /// Its head claim, if it is a blocked head of a StrictFIFO ClusterQueue.
    pub claim: Option<&'a HeadClaim>,
}

/// Position of a class in its ClusterQueue, and whether it can be a head there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    order: HeadOrder,
    is_head_candidate: bool,
}

/// Pending workloads of one ClusterQueue.
#[derive(Debug, Default)]
pub(super) struct PendingQueue {
    /// Whether the ClusterQueue is configured and active.
    pub(super) active: bool,
    pub(super) strategy: QueueingStrategy,
    /// Whether a workload may evict newer ones of its priority, so that an earlier workload may preempt more than a later
    /// one with the same requests.
    pub(super) preempts_newer: bool,
    next_id: u64,
    by_key: BTreeMap<EquivalenceKey, ClassId>,
    /// Classes that differ only in their LocalQueue.
    by_cross_queue_key: BTreeMap<CrossQueueKey, BTreeSet<ClassId>>,
    pub(super) classes: BTreeMap<ClassId, EquivalenceClass>,
    /// Order of all classes that can be heads.
    pub(super) heads: BTreeSet<HeadOrder>,
    /// Order of all other classes.
    parked: BTreeSet<HeadOrder>,
    /// Classes of workloads with a capacity reservation.
    isolated: BTreeSet<ClassId>,
    /// Non-default ranks of LocalQueues, by namespace and name.
    ranks: BTreeMap<(Arc<str>, Arc<str>), UsageRank>,
    pub(super) announcements: Announcements,
    pub(super) counts: PendingCounts,
    pub(super) hash_counts: HashCounts,
    pub(super) local_counts: BTreeMap<(Arc<str>, Arc<str>), PendingCounts>,
}

/// A pending workload with its class, hashed and compared by the workload's key.
#[derive(Clone, Debug)]
pub(super) struct PendingEntry {
    pub(super) workload: Arc<Workload>,
    pub(super) class: ClassId,
}

impl PendingEntry {
    /// Its ClusterQueue.
    pub(super) fn queue(&self) -> &Arc<str> {
        &self.workload.cluster_queue
    }
}

impl Borrow<ObjectKey> for PendingEntry {
    fn borrow(&self) -> &ObjectKey {
        &self.workload.key
    }
}

/// Same hash as the key, as `Borrow` requires.
impl Hash for PendingEntry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.workload.key.hash(state);
    }
}

impl PartialEq for PendingEntry {
    fn eq(&self, other: &Self) -> bool {
        self.workload.key == other.workload.key
    }
}

impl Eq for PendingEntry {}

impl PendingQueue {
    pub(super) fn set_strategy(&mut self, strategy: QueueingStrategy) {
        if self.strategy == strategy {
            return;
        }
        self.strategy = strategy;
        let positions: Vec<Position> = self.classes.keys().filter_map(|id| self.position_of(*id)).collect();
        self.heads.clear();
        self.parked.clear();
        for position in positions {
            self.orders_of(&position).insert(position.order);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The next head to nominate.
    pub(super) fn head(&self) -> Option<Head<'_>> {
        let class = match self.strategy {
            QueueingStrategy::BestEffortFIFO => &self.heads.first()?.class,
            QueueingStrategy::StrictFIFO => {
                // Reserved capacity is available to its preemptor only: waiting behind earlier heads could deadlock.
                let active = |id: &&ClassId| self.classes.get(id).is_some_and(|class| class.parked.is_none());
                let first = || self.heads.first().map(|head| &head.class).filter(active);
                self.isolated.iter().find(active).or_else(first)?
            }
        };
        self.head_of(*class)
    }

    /// The blocked head of a StrictFIFO ClusterQueue that has a head claim.
    pub(super) fn blocked_head(&self) -> Option<Head<'_>> {
        let class = &self.heads.first().filter(|_| self.strategy == QueueingStrategy::StrictFIFO)?.class;
        self.head_of(*class).filter(|head| head.claim.is_some())
    }

    /// The first workloads of up to `limit` classes in order, parked or not, of which none has to wait for another one:
    /// in a StrictFIFO ClusterQueue the head and workloads with capacity reservations.
    pub(super) fn first_in_order(&self, limit: usize) -> Vec<Head<'_>> {
        let classes: Vec<ClassId> = match self.strategy {
            QueueingStrategy::BestEffortFIFO => {
                let mut first: Vec<&HeadOrder> =
                    self.heads.iter().take(limit).chain(self.parked.iter().take(limit)).collect();
                first.sort();
                first.into_iter().map(|order| order.class).take(limit).collect()
            }
            QueueingStrategy::StrictFIFO => {
                let first = self.heads.first().map(|order| order.class);
                let isolated = self.isolated.iter().copied().filter(|id| Some(*id) != first);
                first.into_iter().chain(isolated).take(limit).collect()
            }
        };
        classes.into_iter().filter_map(|id| self.head_of(id)).collect()
    }

    /// Records that the head of a StrictFIFO ClusterQueue blocks it.
    pub(super) fn announce_wait_behind_head(&mut self, queue: &str) {
        if self.announcements.behind_head.is_none() && self.strategy == QueueingStrategy::StrictFIFO {
            let text = format!("behind the head of the StrictFIFO ClusterQueue {queue}");
            let verdict = Verdict::without_blockers(PendingReason::WaitingForQuota, &text);
            self.announcements.behind_head = Some(Arc::new(verdict));
        }
    }

    fn head_of(&self, id: ClassId) -> Option<Head<'_>> {
        let class = self.classes.get(&id)?;
        let claim = class.parked.as_ref().and_then(|parked| parked.claim.as_ref());
        let workload = &class.members.first()?.workload;
        Some(Head { class: id, workload, cursor: class.cursor.as_ref(), claim })
    }

    /// Adds a workload to its class. Returns the class.
    pub(super) fn insert(&mut self, key: EquivalenceKey, workload: &Arc<Workload>) -> ClassId {
        let id = self.by_key.get(&key).copied().unwrap_or_else(|| {
            self.next_id += 1;
            ClassId(self.next_id)
        });
        let before = self.position_of(id);
        let class = self.classes.entry(id).or_insert_with(|| {
            self.by_key.insert(key.clone(), id);
            self.by_cross_queue_key.entry(key.cross_queue_key()).or_default().insert(id);
            self.hash_counts.add(&key, false);
            if key.isolated.is_some() {
                self.isolated.insert(id);
            }
            EquivalenceClass {
                key,
                members: BTreeSet::new(),
                parked: None,
                verdict: None,
                cursor: None,
                alone: None,
            }
        });
        class.members.insert(Member::new(workload));
        self.announcements.add(id, &workload.key);
        self.update_counts(id, usize::saturating_add);
        self.reindex(id, before);
        id
    }

    /// Replaces a member by a newer version of it with the same position and class.
    pub(super) fn replace(&mut self, id: ClassId, workload: &Arc<Workload>) {
        if let Some(class) = self.classes.get_mut(&id) {
            class.members.replace(Member::new(workload));
        }
    }

    /// Whether a workload that joined a parked class precedes all other members, and may preempt more than they may.
    pub(super) fn leads_parked_class(&self, id: ClassId, workload: &Workload) -> bool {
        let class = self.classes.get(&id).filter(|class| class.parked.is_some() && self.preempts_newer);
        let mut first = class.into_iter().flat_map(|class| class.members.iter().take(2));
        first.next().is_some_and(|member| member.workload.key == workload.key)
            && first.next().is_some_and(|second| workload.queued_since < second.queued_since)
    }

    /// Removes a workload. Returns the parking state of its class if the class is now empty and was parked.
    pub(super) fn remove(&mut self, entry: &PendingEntry) -> Option<Parked> {
        let before = self.position_of(entry.class);
        self.announcements.remove(entry.class, &entry.workload.key);
        self.update_counts(entry.class, usize::saturating_sub);
        let class = self.classes.get_mut(&entry.class)?;
        let member = Member::new(&entry.workload);
        if class.members.first() == Some(&member) {
            class.cursor = None;
        }
        class.members.remove(&member);
        let is_empty = class.members.is_empty();
        self.reindex(entry.class, before);
        if is_empty {
            let class = self.classes.remove(&entry.class)?;
            self.by_key.remove(&class.key);
            self.hash_counts.remove(&class.key, class.parked.is_some());
            self.isolated.remove(&entry.class);
            let cross_queue_key = class.key.cross_queue_key();
            if let Some(classes) = self.by_cross_queue_key.get_mut(&cross_queue_key) {
                classes.remove(&entry.class);
                if classes.is_empty() {
                    self.by_cross_queue_key.remove(&cross_queue_key);
                }
            }
            return class.parked;
        }
        None
    }

    /// Changes the state of a class, but not its members, and updates the indexes.
    pub(super) fn update<T>(
        &mut self,
        id: ClassId,
        change: impl FnOnce(&mut EquivalenceClass) -> T,
    ) -> Option<T> {
        let before = self.position_of(id);
        let class = self.classes.get_mut(&id)?;
        let was_active = class.is_active();
        let result = change(class);
        let active = class.is_active();
        if was_active != active {
            self.hash_counts.remove(&class.key, !was_active);
            self.hash_counts.add(&class.key, !active);
            let number = class.members.len();
            let name = (Arc::clone(&class.key.namespace), Arc::clone(&class.key.local_queue));
            self.counts.set_active(number, active);
            self.local_counts.entry(name).or_default().set_active(number, active);
        }
        self.reindex(id, before);
        Some(result)
    }

    /// Other active classes with the same scheduling outcome; empty for a StrictFIFO ClusterQueue, where they wait
    /// anyway.
    pub(super) fn equivalent_classes(&self, id: ClassId) -> Vec<ClassId> {
        // As many keys as classes: no two classes share a key.
        if self.by_cross_queue_key.len() == self.classes.len() {
            return Vec::new();
        }
        let best_effort = self.strategy == QueueingStrategy::BestEffortFIFO;
        let class = self.classes.get(&id).filter(|_| best_effort);
        let candidates = class
            .and_then(|class| self.by_cross_queue_key.get(&class.key.cross_queue_key()))
            .into_iter()
            .flatten();
        let since = |class: &EquivalenceClass| class.members.first().map(|member| member.queued_since);
        let alike = |other: &EquivalenceClass| {
            let as_old = class.is_some_and(|class| since(class) <= since(other));
            other.parked.is_none() && (as_old || !self.preempts_newer)
        };
        let active = |other: &&ClassId| **other != id && self.classes.get(other).is_some_and(alike);
        candidates.filter(active).copied().collect()
    }

    /// The rank of the LocalQueue of a class.
    pub(super) fn rank_of_class(&self, class: &EquivalenceClass) -> UsageRank {
        self.rank_of(&class.key.namespace, &class.key.local_queue)
    }

    /// The rank of a LocalQueue.
    pub(super) fn rank_of(&self, namespace: &Arc<str>, local_queue: &Arc<str>) -> UsageRank {
        if self.ranks.is_empty() {
            return UsageRank::default();
        }
        let name = (Arc::clone(namespace), Arc::clone(local_queue));
        self.ranks.get(&name).copied().unwrap_or_default()
    }

    /// Sets the rank of a LocalQueue; the default rank comes first.
    pub(super) fn set_rank(&mut self, local_queue: &ObjectKey, rank: UsageRank) {
        let name = (Arc::clone(&local_queue.namespace), Arc::clone(&local_queue.name));
        if self.ranks.get(&name).copied().unwrap_or_default() == rank {
            return;
        }
        let matches =
            |class: &EquivalenceClass| (&class.key.namespace, &class.key.local_queue) == (&name.0, &name.1);
        let ids: Vec<ClassId> =
            self.classes.iter().filter(|(_, class)| matches(class)).map(|(id, _)| *id).collect();
        let before: Vec<(ClassId, Option<Position>)> =
            ids.into_iter().map(|id| (id, self.position_of(id))).collect();
        if rank == UsageRank::default() {
            self.ranks.remove(&name);
        } else {
            self.ranks.insert(name, rank);
        }
        for (id, before) in before {
            self.reindex(id, before);
        }
    }

    fn position_of(&self, id: ClassId) -> Option<Position> {
        let class = self.classes.get(&id)?;
        let order = class.head_order(self.rank_of_class(class), id)?;
        Some(Position { order, is_head_candidate: class.is_head_candidate(self.strategy) })
    }

    /// The set that a class with this position is in.
    const fn orders_of(&mut self, position: &Position) -> &mut BTreeSet<HeadOrder> {
        if position.is_head_candidate { &mut self.heads } else { &mut self.parked }
    }

    /// Updates the position of a class.
    fn reindex(&mut self, id: ClassId, before: Option<Position>) {
        let after = self.position_of(id);
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.orders_of(&before).remove(&before.order);
        }
        if let Some(after) = after {
            self.orders_of(&after).insert(after.order);
        }
    }

    /// Counts one workload of a class more or less.
    fn update_counts(&mut self, id: ClassId, apply: impl Fn(usize, usize) -> usize) {
        let Some(class) = self.classes.get(&id) else {
            return;
        };
        let change = |counts: &mut PendingCounts| {
            let side = if class.is_active() { &mut counts.active } else { &mut counts.inadmissible };
            *side = apply(*side, 1);
        };
        change(&mut self.counts);
        match self.local_counts.entry((Arc::clone(&class.key.namespace), Arc::clone(&class.key.local_queue)))
        {
            Entry::Vacant(new) => change(new.insert(PendingCounts::default())),
            Entry::Occupied(mut known) => {
                change(known.get_mut());
                if *known.get() == PendingCounts::default() {
                    known.remove();
                }
            }
        }
    }

    /// All workloads in order.
    pub(super) fn in_order(&self) -> Vec<&Workload> {
        let ranked = |class: &'_ EquivalenceClass| self.rank_of_class(class);
        let mut members: Vec<(UsageRank, Reverse<i64>, &Member)> = Vec::with_capacity(self.counts.total());
        for class in self.classes.values() {
            let rank = (ranked(class), Reverse(class.key.priority));
            members.extend(class.members.iter().map(|member| (rank.0, rank.1, member)));
        }
        members.sort();
        members.into_iter().map(|(_, _, member)| &*member.workload).collect()
    }

    /// Whether a class is parked; in a StrictFIFO ClusterQueue only if it never blocks.
    pub(super) fn is_parked(&self, id: ClassId) -> bool {
        let parked = self.classes.get(&id).and_then(|class| class.parked.as_ref());
        parked.is_some_and(|parked| {
            parked.never_blocks_queue || self.strategy == QueueingStrategy::BestEffortFIFO
        })
    }

    /// Parked classes of a namespace, or all.
    pub(super) fn parked_ids(&self, namespace: Option<&str>) -> Vec<ClassId> {
        let matches = |class: &EquivalenceClass| {
            class.parked.is_some() && namespace.is_none_or(|ns| *class.key.namespace == *ns)
        };
        self.classes.iter().filter(|(_, class)| matches(class)).map(|(id, _)| *id).collect()
    }

    /// Returns up to `limit` members of a class after `from`.
    pub(super) fn members_after(&self, id: ClassId, from: Option<&Member>, limit: usize) -> Vec<Member> {
        let Some(class) = self.classes.get(&id) else {
            return Vec::new();
        };
        let start = from.map_or(Bound::Unbounded, Bound::Excluded);
        class.members.range((start, Bound::Unbounded)).take(limit).cloned().collect()
    }
}
