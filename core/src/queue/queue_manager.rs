//! Pending workloads of all ClusterQueues, and the index of what wakes them.
//!
//! Neighbours: `pending_queue` orders one ClusterQueue, `wake_index` maps changes to parked classes, `scheduler`
//! calls.

use super::announcements::MessageUpdate;
use super::equivalence_class::{ClassId, EquivalenceKey, Parked, UsageRank};
use super::equivalence_hash::equivalence_hash;
use super::pending_order::PendingOrder;
use super::pending_queue::{Head, PendingCounts, PendingEntry, PendingQueue};
use super::wake_index::WakeIndex;
use super::{FlavorCursor, Verdict, Workload};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::quota::{FlavorResourceId, NodeId};
use indexmap::IndexSet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// How one class is parked.
struct Parking<'a> {
    class: ClassId,
    verdict: &'a Arc<Verdict>,
    parked: Parked,
    /// Whether its first member was nominated: that workload has a decision of its own and needs no message update.
    nominated: bool,
}

/// Pending workloads of all ClusterQueues.
#[derive(Debug, Default)]
pub struct QueueManager {
    by_name: BTreeMap<Arc<str>, PendingQueue>,
    entries: IndexSet<PendingEntry>,
    /// Workloads that count as pending and are not nominated.
    waiting: BTreeMap<ObjectKey, Arc<Workload>>,
    /// All of both, in order.
    order: PendingOrder,
    wake_index: WakeIndex,
    /// Active ClusterQueues with a head to nominate.
    ready: BTreeSet<Arc<str>>,
    /// Blocked head with a head claim, by ClusterQueue.
    blocked_heads: BTreeMap<Arc<str>, (ClassId, Arc<Workload>)>,
    message_updates: VecDeque<MessageUpdate>,
    /// Number of all changes of queues, and that of the last one by ClusterQueue.
    changes: (u64, BTreeMap<Arc<str>, u64>),
    /// Parked classes to retry only when no head is ready: usage grew, which may change the preferred flavor but
    /// rarely lets a workload fit.
    retry_when_idle: Vec<(Arc<str>, ClassId)>,
    /// Flavor-resources of which the preemption candidates changed in a way that rarely lets a workload preempt. The
    /// classes that may preempt there are retried only when no head is ready.
    candidates_changed: BTreeSet<(NodeId, FlavorResourceId)>,
    /// Whether a test makes parked classes miss the changes that wake them; without effect in released builds.
    pub drops_wakeups: bool,
}

impl QueueManager {
    /// Activates a ClusterQueue with its strategy, or deactivates it. Its pending workloads stay. `preempts_newer` says
    /// whether its policies let a workload evict newer ones of its priority.
    pub fn configure(&mut self, queue: &str, open: Option<QueueingStrategy>, preempts_newer: bool) {
        let name: Arc<str> = Arc::from(queue);
        if let Some(strategy) = open {
            let pending = self.by_name.entry(Arc::clone(&name)).or_default();
            pending.set_strategy(strategy);
            pending.preempts_newer = preempts_newer;
            pending.active = true;
        } else if let Some(pending) = self.by_name.get_mut(&name) {
            pending.active = false;
        }
        self.refresh(&name);
    }

    /// Inserts or replaces a workload; one that joins a parked class is parked with it.
    pub fn insert(&mut self, workload: Workload) {
        self.insert_into_class(workload, false);
    }

    /// Moves a workload to a class of its own. Returns that class.
    pub fn isolate(&mut self, key: &ObjectKey) -> Option<ClassId> {
        let workload = self.workload(key)?.clone();
        self.insert_into_class(workload, true);
        self.entries.get(key).map(|entry| entry.class)
    }

    /// Moves an isolated workload back to its equivalence class.
    pub fn rejoin_class(&mut self, key: &ObjectKey) {
        if let Some(workload) = self.workload(key).cloned() {
            self.insert_into_class(workload, false);
        }
    }

    /// Adds a workload that counts as pending but is not nominated. It is in the order alone.
    pub fn wait(&mut self, workload: Workload) {
        self.remove(&workload.key);
        let pending = self.by_name.get(&workload.cluster_queue);
        let local_queue = (&workload.key.namespace, &workload.local_queue);
        let rank = pending.map(|pending| pending.rank_of(local_queue.0, local_queue.1)).unwrap_or_default();
        let workload = Arc::new(workload);
        self.order.insert(&workload, rank);
        self.waiting.insert(workload.key.clone(), workload);
    }

    fn insert_into_class(&mut self, workload: Workload, isolated: bool) {
        let class_key = EquivalenceKey {
            namespace: Arc::clone(&workload.key.namespace),
            local_queue: Arc::clone(&workload.local_queue),
            priority: workload.priority,
            equivalence_hash: equivalence_hash(&workload),
            isolated: isolated.then(|| workload.key.clone()),
        };
        let queue = Arc::clone(&workload.cluster_queue);
        if let Some(entry) = self.entries.get(&workload.key) {
            let pending = self.by_name.get(entry.queue());
            let class = pending.and_then(|pending| pending.classes.get(&entry.class));
            if *entry.queue() == queue
                && entry.workload.same_position(&workload)
                && class.is_some_and(|class| class.key == class_key)
            {
                if entry.workload.listed != workload.listed {
                    self.replace_listed(PendingEntry { class: entry.class, workload: Arc::new(workload) });
                }
                return;
            }
        }
        self.remove(&workload.key);
        let workload = Arc::new(workload);
        let pending = self.by_name.entry(Arc::clone(&queue)).or_default();
        let rank = pending.rank_of(&class_key.namespace, &class_key.local_queue);
        self.order.insert(&workload, rank);
        let class = pending.insert(class_key, &workload);
        if pending.leads_parked_class(class, &workload) {
            // It may preempt workloads that are newer than itself, but not newer than the member nominated before.
            self.wake(vec![(Arc::clone(&queue), class)]);
        } else if pending.classes.get(&class).is_some_and(|class| class.parked.is_some()) {
            let announced = pending.announcements.take_class(class).into_iter();
            self.message_updates
                .extend(announced.map(|(class, key)| MessageUpdate::of_one(&queue, class, key)));
        }
        self.entries.insert(PendingEntry { workload, class });
        self.refresh(&queue);
    }

    /// Replaces a workload by a version with the same position and class, of which lists show other fields.
    fn replace_listed(&mut self, entry: PendingEntry) {
        let Some(pending) = self.by_name.get_mut(entry.queue()) else { return };
        pending.replace(entry.class, &entry.workload);
        let rank = pending.rank_of(&entry.workload.key.namespace, &entry.workload.local_queue);
        self.order.insert(&entry.workload, rank);
        self.entries.replace(entry);
    }

    /// Removes a workload, also one that waits. Returns the ClusterQueue that nominated it.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<str>> {
        if let Some(waiting) = self.waiting.remove(key) {
            self.order.remove(&waiting);
        }
        let entry = self.entries.swap_take(key)?;
        self.order.remove(&entry.workload);
        let queue = entry.queue();
        if let Some(parked) = self.by_name.get_mut(queue).and_then(|pending| pending.remove(&entry)) {
            self.wake_index.remove(queue, entry.class, &parked.wake_conditions);
        }
        self.refresh(queue);
        Some(Arc::clone(queue))
    }

    /// Parks a class with the verdict of its head, together with classes that differ only in their LocalQueue.
    pub fn park(&mut self, queue: &Arc<str>, class: ClassId, verdict: &Arc<Verdict>, parked: Parked) {
        let equivalent =
            self.by_name.get(queue).map(|pending| pending.equivalent_classes(class)).unwrap_or_default();
        for other in equivalent {
            let parked = Parked { claim: None, ..parked.clone() };
            self.park_class(queue, Parking { class: other, verdict, parked, nominated: false });
        }
        self.park_class(queue, Parking { class, verdict, parked, nominated: true });
    }

    fn park_class(&mut self, queue: &Arc<str>, parking: Parking) {
        let Parking { class, verdict, parked, nominated } = parking;
        self.wake_index.add(queue, class, &parked.wake_conditions);
        let Some(pending) = self.by_name.get_mut(queue) else {
            return;
        };
        let changed = pending.update(class, |class| {
            let old_verdict = class.verdict.replace(Arc::clone(verdict));
            class.parked = Some(parked);
            class.cursor = None;
            old_verdict.is_none_or(|old_verdict| !old_verdict.same_message(verdict))
        });
        let first = pending.members_after(class, None, 1).pop().filter(|_| nominated);
        let joined = pending.announcements.take_class(class).into_iter();
        if changed == Some(false) {
            let updates = joined.map(|(class, key)| MessageUpdate::of_one(queue, class, key));
            self.message_updates.extend(updates);
        } else if changed == Some(true) {
            self.message_updates.push_back(MessageUpdate {
                queue: Arc::clone(queue),
                class,
                after: first,
                only: None,
            });
        }
        self.refresh(queue);
    }

    /// Keeps a class active, with a new verdict and the position where its flavor scan resumes.
    pub fn keep_active_with(
        &mut self,
        queue: &str,
        class: ClassId,
        verdict: &Arc<Verdict>,
        cursor: Option<FlavorCursor>,
    ) {
        if let Some(class) = self.by_name.get_mut(queue).and_then(|pending| pending.classes.get_mut(&class)) {
            class.verdict = Some(Arc::clone(verdict));
            class.cursor = cursor;
        }
    }

    /// Keeps a class active, with the position where its flavor scan resumes.
    pub fn keep_active(&mut self, queue: &str, class: ClassId, cursor: Option<FlavorCursor>) {
        if let Some(class) = self.by_name.get_mut(queue).and_then(|pending| pending.classes.get_mut(&class)) {
            class.cursor = cursor;
        }
    }

    /// Wakes classes after usage of a flavor-resource changed in a tree; after an increase only when no head is
    /// ready.
    pub fn usage_changed(
        &mut self,
        tree: NodeId,
        fr: FlavorResourceId,
        freed: bool,
        available: impl Fn(&str) -> i128,
    ) {
        let key = (tree, fr);
        let mut woken = self.wake_index.waiting_for_usage_change(&key, freed);
        if freed {
            woken.extend(self.wake_index.satisfied(&key, available));
            self.wake(woken);
        } else {
            self.retry_when_idle.extend(woken);
        }
    }

    /// Wakes the classes that may preempt, after a preemption candidate that uses a flavor-resource changed. `rarely_helps`
    /// delays that until no head is ready.
    pub fn candidate_changed(&mut self, tree: NodeId, fr: FlavorResourceId, rarely_helps: bool) {
        let key = (tree, fr);
        if !rarely_helps {
            let woken = self.wake_index.waiting_for_usage_change(&key, true);
            self.wake(woken);
        } else if self.wake_index.waits_for_release(&key) {
            self.candidates_changed.insert(key);
        }
    }

    /// Wakes the classes of a tree that may preempt when no head is ready, after the order of preemption candidates
    /// changed.
    pub fn candidate_order_changed(&mut self, tree: NodeId) {
        self.candidates_changed.extend(self.wake_index.release_keys_of(tree));
    }

    /// Wakes classes that wait for nodes of the given flavors, after these nodes or their usage changed.
    pub fn topology_changed<'a>(&mut self, flavors: impl IntoIterator<Item = &'a Arc<str>>) {
        for flavor in flavors {
            let woken = self.wake_index.waiting_for_topology(flavor);
            self.wake(woken);
        }
    }

    /// Wakes the classes that are retried when no head is ready.
    pub fn wake_idle_retries(&mut self) {
        let mut retries = std::mem::take(&mut self.retry_when_idle);
        for key in std::mem::take(&mut self.candidates_changed) {
            retries.extend(self.wake_index.waiting_for_usage_change(&key, true));
        }
        self.wake(retries);
    }

    /// Whether a head is ready or an idle retry is due.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.retry_when_idle.is_empty() || !self.candidates_changed.is_empty()
    }

    /// Wakes all parked classes of a ClusterQueue after a configuration change, or those of one namespace.
    pub fn config_changed(&mut self, queue: &str, namespace: Option<&str>) {
        let Some((name, pending)) = self.by_name.get_key_value(queue) else {
            return;
        };
        let name = Arc::clone(name);
        let ids = pending.parked_ids(namespace);
        self.wake(ids.into_iter().map(|id| (Arc::clone(&name), id)).collect());
    }

    fn wake(&mut self, classes: Vec<(Arc<str>, ClassId)>) {
        if cfg!(debug_assertions) && self.drops_wakeups {
            return;
        }
        for (queue, class) in classes {
            let Some(pending) = self.by_name.get_mut(&queue) else {
                continue;
            };
            if let Some(parked) = pending.update(class, |class| class.parked.take()).flatten() {
                self.wake_index.remove(&queue, class, &parked.wake_conditions);
                self.refresh(&queue);
            }
        }
    }

    /// Updates `ready` and `blocked_heads` for a ClusterQueue and drops it if it is inactive and empty. The end of a
    /// head claim wakes the classes that it blocked.
    fn refresh(&mut self, queue: &Arc<str>) {
        let Some(pending) = self.by_name.get_mut(queue) else {
            return;
        };
        self.changes.0 += 1;
        self.changes.1.insert(Arc::clone(queue), self.changes.0);
        let ready = pending.active && pending.head().is_some();
        if !ready {
            self.ready.remove(queue);
        } else if !self.ready.contains(queue) {
            self.ready.insert(Arc::clone(queue));
        }
        if pending.active && !ready {
            // In a StrictFIFO ClusterQueue, workloads that were never nominated wait behind the head.
            pending.announce_wait_behind_head(queue);
            let waiting = pending.announcements.take_all().into_iter();
            let updates = waiting.map(|(class, key)| MessageUpdate::of_one(queue, class, key));
            self.message_updates.extend(updates);
        }
        let blocked_head = pending.blocked_head().filter(|_| pending.active);
        let claim = blocked_head.map(|head| (head.class, Arc::clone(head.workload)));
        if !pending.active && pending.is_empty() {
            self.changes.1.remove(queue);
            self.by_name.remove(queue);
        }
        self.set_blocked_head(queue, claim);
    }

    fn set_blocked_head(&mut self, queue: &Arc<str>, claim: Option<(ClassId, Arc<Workload>)>) {
        let unchanged = |(class, workload): &(ClassId, Arc<Workload>)| {
            claim.as_ref().is_some_and(|(new, head)| new == class && head.same_position(workload))
        };
        let ends = self.blocked_heads.get(queue).is_some_and(|before| !unchanged(before));
        match claim {
            Some(claim) => drop(self.blocked_heads.insert(Arc::clone(queue), claim)),
            None => drop(self.blocked_heads.remove(queue)),
        }
        if ends {
            let blocked = self.wake_index.waiting_for_claim_end(queue);
            self.wake(blocked);
        }
    }

    /// ClusterQueues with a head to nominate.
    pub fn ready(&self) -> &BTreeSet<Arc<str>> {
        &self.ready
    }

    /// ClusterQueues whose blocked head has a head claim.
    pub fn blocked_heads(&self) -> impl Iterator<Item = &Arc<str>> {
        self.blocked_heads.keys()
    }

    /// The next workload of a ClusterQueue to nominate.
    pub fn head(&self, queue: &str) -> Option<Head<'_>> {
        self.by_name.get(queue)?.head()
    }

    /// The blocked head of a StrictFIFO ClusterQueue with a head claim.
    pub fn blocked_head(&self, queue: &str) -> Option<Head<'_>> {
        self.by_name.get(queue)?.blocked_head()
    }

    /// The first workloads of up to `limit` classes of an active ClusterQueue in order, whether they are parked or not.
    /// None of them has to wait for another one.
    pub fn first_in_order(&self, queue: &str, limit: usize) -> Vec<Head<'_>> {
        let pending = self.by_name.get(queue).filter(|pending| pending.active);
        pending.map(|pending| pending.first_in_order(limit)).unwrap_or_default()
    }

    /// Whether no workload is pending.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the rank of a LocalQueue in a ClusterQueue.
    pub fn set_rank(&mut self, queue: &str, local_queue: &ObjectKey, rank: UsageRank) {
        self.order.set_rank(queue, local_queue, rank);
        let Some(name) = self.by_name.get_key_value(queue).map(|(name, _)| Arc::clone(name)) else {
            return;
        };
        if let Some(pending) = self.by_name.get_mut(&name) {
            pending.set_rank(local_queue, rank);
        }
        self.refresh(&name);
    }

    /// The pending workload.
    pub fn workload(&self, key: &ObjectKey) -> Option<&Workload> {
        self.entries.get(key).map(|entry| &*entry.workload)
    }

    /// A pending workload with its queue.
    pub(super) fn entry(&self, key: &ObjectKey) -> Option<(&PendingQueue, &PendingEntry)> {
        let entry = self.entries.get(key)?;
        Some((self.by_name.get(entry.queue())?, entry))
    }

    /// Number of the last change of a ClusterQueue: of its members, their order or states.
    pub fn last_change(&self, queue: &str) -> u64 {
        self.changes.1.get(queue).copied().unwrap_or_default()
    }

    pub(super) fn queue_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    pub(super) fn queue(&self, name: &str) -> Option<&PendingQueue> {
        self.by_name.get(name)
    }

    pub(super) fn queue_mut(&mut self, name: &str) -> Option<&mut PendingQueue> {
        self.by_name.get_mut(name)
    }

    /// Whether `take_message_updates` would return any workload.
    pub fn has_message_updates(&self) -> bool {
        !self.message_updates.is_empty()
    }

    /// Returns up to `limit` workloads whose message changed without an own decision.
    pub fn take_message_updates(&mut self, limit: usize) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        while let Some(mut update) = self.message_updates.pop_front() {
            let Some(pending) = self.by_name.get(&update.queue) else {
                continue;
            };
            if let Some(only) = update.only {
                let in_same_class =
                    |entry: &PendingEntry| entry.class == update.class && *entry.queue() == update.queue;
                let known = self.entries.get(&only).is_some_and(in_same_class);
                keys.extend(known.then_some(only));
            } else {
                let members = pending.members_after(update.class, update.after.as_ref(), limit - keys.len());
                if let Some(last) = members.last() {
                    update.after = Some(last.clone());
                    keys.extend(members.iter().map(|member| member.workload.key.clone()));
                    self.message_updates.push_front(update);
                }
            }
            if keys.len() >= limit {
                break;
            }
        }
        keys
    }

    /// Number of pending workloads of a ClusterQueue, by state.
    pub fn counts(&self, queue: &str) -> PendingCounts {
        self.by_name.get(queue).map(|pending| pending.counts).unwrap_or_default()
    }

    /// Number of their distinct scheduling hashes, by state.
    pub fn hash_counts(&self, queue: &str) -> PendingCounts {
        self.by_name.get(queue).map(|pending| pending.hash_counts.counts(pending.active)).unwrap_or_default()
    }

    /// Number of pending workloads of a ClusterQueue that came through one LocalQueue.
    pub fn local_counts(&self, queue: &str, local_queue: &ObjectKey) -> PendingCounts {
        let name = (Arc::clone(&local_queue.namespace), Arc::clone(&local_queue.name));
        self.by_name
            .get(queue)
            .and_then(|pending| pending.local_counts.get(&name))
            .copied()
            .unwrap_or_default()
    }

    /// The order of all workloads that count as pending; a clone of it copies nothing.
    pub const fn order(&self) -> &PendingOrder {
        &self.order
    }

    /// Pending workloads of a ClusterQueue in order.
    pub fn in_order(&self, queue: &str) -> Vec<&Workload> {
        self.by_name.get(queue).map(PendingQueue::in_order).unwrap_or_default()
    }

    /// Whether the workload is parked.
    pub fn is_parked(&self, key: &ObjectKey) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| self.by_name.get(entry.queue()).is_some_and(|p| p.is_parked(entry.class)))
    }
}
