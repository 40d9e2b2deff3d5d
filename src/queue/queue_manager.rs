//! The pending workloads of all ClusterQueues, with what wakes them.

use super::equivalence_class::{ClassId, EquivalenceKey, Member, Parked, UsageRank};
use super::equivalence_hash::equivalence_hash;
use super::pending_queue::{Head, PendingCounts, PendingEntry, PendingQueue};
use super::wake_index::WakeIndex;
use super::{FlavorCursor, Verdict, Workload};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::quota::{FlavorResourceId, NodeId};
use indexmap::IndexSet;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Workloads whose message changed without being judged themselves.
#[derive(Debug)]
struct MessageUpdate {
    queue: Arc<str>,
    class: ClassId,
    after: Option<Member>,
    only: Option<ObjectKey>,
}

/// Pending workloads of all ClusterQueues.
#[derive(Debug, Default)]
pub struct QueueManager {
    by_name: BTreeMap<Arc<str>, PendingQueue>,
    entries: IndexSet<PendingEntry>,
    wake_index: WakeIndex,
    /// Open queues with a head to be judged.
    ready: BTreeSet<Arc<str>>,
    /// The claiming head of each queue that has one.
    blocked_heads: BTreeMap<Arc<str>, (ClassId, Arc<Workload>)>,
    message_updates: VecDeque<MessageUpdate>,
    /// Parked classes that are worth another look only because somebody took quota: a loss may turn the choice of a flavor.
    /// They are woken when nobody else is to be judged.
    retry_when_idle: Vec<(Arc<str>, ClassId)>,
}

impl QueueManager {
    /// Opens a queue with its strategy, or closes it. What waits in a closed queue stays.
    pub fn configure(&mut self, queue: &str, open: Option<QueueingStrategy>) {
        let name: Arc<str> = Arc::from(queue);
        if let Some(strategy) = open {
            let pending = self.by_name.entry(Arc::clone(&name)).or_default();
            pending.set_strategy(strategy);
            pending.active = true;
        } else if let Some(pending) = self.by_name.get_mut(&name) {
            pending.active = false;
        }
        self.refresh(&name);
    }

    /// Inserts or replaces; a workload that joins a parked class waits with it.
    pub fn insert(&mut self, workload: Workload) {
        self.insert_into_class(workload, false);
    }

    /// Takes a workload out of its class, so that it waits for itself alone. Answers with its own class.
    pub fn isolate(&mut self, key: &ObjectKey) -> Option<ClassId> {
        let workload = self.workload(key)?.clone();
        self.insert_into_class(workload, true);
        self.entries.get(key).map(|place| place.class)
    }

    /// Puts a workload that waited for itself alone back among its like.
    pub fn rejoin_class(&mut self, key: &ObjectKey) {
        if let Some(workload) = self.workload(key).cloned() {
            self.insert_into_class(workload, false);
        }
    }

    fn insert_into_class(&mut self, workload: Workload, alone: bool) {
        let class_key = EquivalenceKey {
            namespace: Arc::clone(&workload.key.namespace),
            local_queue: Arc::clone(&workload.local_queue),
            priority: workload.priority,
            equivalence_hash: equivalence_hash(&workload),
            isolated: alone.then(|| workload.key.clone()),
        };
        let queue = Arc::clone(&workload.cluster_queue);
        if let Some(place) = self.entries.get(&workload.key) {
            let pending = self.by_name.get(place.queue());
            let class = pending.and_then(|pending| pending.classes.get(&place.class));
            if *place.queue() == queue
                && place.workload.same_position(&workload)
                && class.is_some_and(|class| class.key == class_key)
            {
                return;
            }
            self.remove(&workload.key);
        }
        let workload = Arc::new(workload);
        let pending = self.by_name.entry(Arc::clone(&queue)).or_default();
        let class = pending.insert(class_key, &workload);
        if pending.classes.get(&class).is_some_and(|class| class.parked.is_some()) {
            let only = Some(workload.key.clone());
            self.message_updates.push_back(MessageUpdate {
                queue: Arc::clone(&queue),
                class,
                after: None,
                only,
            });
        }
        self.entries.insert(PendingEntry { workload, class });
        self.refresh(&queue);
    }

    /// Takes a workload out and answers with the queue that it waited in.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<str>> {
        let place = self.entries.swap_take(key)?;
        let queue = place.queue();
        if let Some(parked) = self.by_name.get_mut(queue).and_then(|pending| pending.remove(&place)) {
            self.wake_index.remove(queue, place.class, &parked.wake_conditions);
        }
        self.refresh(queue);
        Some(Arc::clone(queue))
    }

    /// Parks a class with the verdict of its head, and with it those that differ only in their LocalQueue.
    pub fn park(&mut self, queue: &Arc<str>, class: ClassId, verdict: &Arc<Verdict>, parked: Parked) {
        let like =
            self.by_name.get(queue).map(|pending| pending.equivalent_classes(class)).unwrap_or_default();
        for other in like {
            self.park_class(queue, other, verdict, Parked { claim: None, ..parked.clone() }, false);
        }
        self.park_class(queue, class, verdict, parked, true);
    }

    /// Parks one class; its first member is told by whoever judged it, if it was.
    fn park_class(
        &mut self,
        queue: &Arc<str>,
        class: ClassId,
        verdict: &Arc<Verdict>,
        parked: Parked,
        judged: bool,
    ) {
        self.wake_index.add(queue, class, &parked.wake_conditions);
        let Some(pending) = self.by_name.get_mut(queue) else {
            return;
        };
        let changed = pending.update(class, |class| {
            let told = class.verdict.replace(Arc::clone(verdict));
            class.parked = Some(parked);
            class.cursor = None;
            told.is_none_or(|told| !told.same_message(verdict))
        });
        let first = pending.members_after(class, None, 1).pop().filter(|_| judged);
        if changed == Some(true) {
            self.message_updates.push_back(MessageUpdate {
                queue: Arc::clone(queue),
                class,
                after: first,
                only: None,
            });
        }
        self.refresh(queue);
    }

    /// Keeps a class active that was told why it waits, with the place where its search goes on.
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

    /// Keeps a class active, with the place where its search goes on.
    pub fn keep_active(&mut self, queue: &str, class: ClassId, cursor: Option<FlavorCursor>) {
        if let Some(class) = self.by_name.get_mut(queue).and_then(|pending| pending.classes.get_mut(&class)) {
            class.cursor = cursor;
        }
    }

    /// Usage of a flavor and resource changed in a tree: wakes those whose need is met now.
    pub fn usage_changed(
        &mut self,
        tree: NodeId,
        pair: FlavorResourceId,
        freed: bool,
        available: impl Fn(&str) -> i128,
    ) {
        let spot = (tree, pair);
        let mut woken = self.wake_index.waiting_for_usage_change(&spot, freed);
        if freed {
            woken.extend(self.wake_index.satisfied(&spot, available));
            self.wake(woken);
        } else {
            self.retry_when_idle.extend(woken);
        }
    }

    /// Nodes of these flavors, or what stands on them, changed: wakes those who wait for room there.
    pub fn topology_changed<'a>(&mut self, flavors: impl IntoIterator<Item = &'a Arc<str>>) {
        for flavor in flavors {
            let woken = self.wake_index.waiting_for_topology(flavor);
            self.wake(woken);
        }
    }

    /// Wakes those in doubt.
    pub fn wake_idle_retries(&mut self) {
        let doubtful = std::mem::take(&mut self.retry_when_idle);
        self.wake(doubtful);
    }

    /// Whether anybody is to be judged, be it on a mere doubt.
    pub fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.retry_when_idle.is_empty()
    }

    /// Configuration changed: wakes all parked classes of a queue, or those of one namespace.
    pub fn config_changed(&mut self, queue: &str, namespace: Option<&str>) {
        let Some((name, pending)) = self.by_name.get_key_value(queue) else {
            return;
        };
        let name = Arc::clone(name);
        let ids = pending.parked_ids(namespace);
        self.wake(ids.into_iter().map(|id| (Arc::clone(&name), id)).collect());
    }

    fn wake(&mut self, classes: Vec<(Arc<str>, ClassId)>) {
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

    /// Keeps `ready` and `claims` in step with a queue, and forgets a closed one that nobody waits in; a claim that ends wakes
    /// those that it kept out.
    fn refresh(&mut self, queue: &Arc<str>) {
        let Some(pending) = self.by_name.get_mut(queue) else {
            return;
        };
        let ready = pending.active && pending.head().is_some();
        if !ready {
            self.ready.remove(queue);
        } else if !self.ready.contains(queue) {
            self.ready.insert(Arc::clone(queue));
        }
        let claimant = pending.blocked_head().filter(|_| pending.active);
        let claim = claimant.map(|head| (head.class, Arc::clone(head.workload)));
        if !pending.active && pending.is_empty() {
            self.by_name.remove(queue);
        }
        self.set_blocked_head(queue, claim);
    }

    fn set_blocked_head(&mut self, queue: &Arc<str>, claim: Option<(ClassId, Arc<Workload>)>) {
        let stays = |(class, workload): &(ClassId, Arc<Workload>)| {
            claim.as_ref().is_some_and(|(new, head)| new == class && head.same_position(workload))
        };
        let ends = self.blocked_heads.get(queue).is_some_and(|before| !stays(before));
        match claim {
            Some(claim) => drop(self.blocked_heads.insert(Arc::clone(queue), claim)),
            None => drop(self.blocked_heads.remove(queue)),
        }
        if ends {
            let kept = self.wake_index.waiting_for_claim_end(queue);
            self.wake(kept);
        }
    }

    /// Names of the queues that have a head to be judged.
    pub fn ready(&self) -> &BTreeSet<Arc<str>> {
        &self.ready
    }

    /// Names of the queues whose blocked head has a claim.
    pub fn blocked_heads(&self) -> impl Iterator<Item = &Arc<str>> {
        self.blocked_heads.keys()
    }

    /// The workload of a queue to be judged next.
    pub fn head(&self, queue: &str) -> Option<Head<'_>> {
        self.by_name.get(queue)?.head()
    }

    /// The blocked head of a StrictFIFO queue that has a claim.
    pub fn blocked_head(&self, queue: &str) -> Option<Head<'_>> {
        self.by_name.get(queue)?.blocked_head()
    }

    /// Sets what a LocalQueue's past usage makes of its place in a ClusterQueue.
    pub fn set_rank(&mut self, queue: &str, local_queue: &ObjectKey, rank: UsageRank) {
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
        self.entries.get(key).map(|place| &*place.workload)
    }

    /// What was last found for the workload's class.
    pub fn verdict(&self, key: &ObjectKey) -> Option<&Arc<Verdict>> {
        let place = self.entries.get(key)?;
        self.by_name.get(place.queue())?.classes.get(&place.class)?.verdict.as_ref()
    }

    /// Whether there are workloads whose message changed without being judged themselves.
    pub fn has_message_updates(&self) -> bool {
        !self.message_updates.is_empty()
    }

    /// Up to `limit` workloads whose message changed without being judged themselves.
    pub fn take_message_updates(&mut self, limit: usize) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        while let Some(mut news) = self.message_updates.pop_front() {
            let Some(pending) = self.by_name.get(&news.queue) else {
                continue;
            };
            if let Some(only) = news.only {
                let here = |place: &PendingEntry| place.class == news.class && *place.queue() == news.queue;
                let known = self.entries.get(&only).is_some_and(here);
                keys.extend(known.then_some(only));
            } else {
                let members = pending.members_after(news.class, news.after.as_ref(), limit - keys.len());
                if let Some(last) = members.last() {
                    news.after = Some(last.clone());
                    keys.extend(members.iter().map(|member| member.workload.key.clone()));
                    self.message_updates.push_front(news);
                }
            }
            if keys.len() >= limit {
                break;
            }
        }
        keys
    }

    /// Pending workloads of a ClusterQueue by state.
    pub fn counts(&self, queue: &str) -> PendingCounts {
        self.by_name.get(queue).map(|pending| pending.counts).unwrap_or_default()
    }

    /// How many different scheduling hashes they have, by state.
    pub fn hash_counts(&self, queue: &str) -> PendingCounts {
        self.by_name.get(queue).map(|pending| pending.hash_counts.counts(pending.active)).unwrap_or_default()
    }

    /// Those of them that came by a LocalQueue.
    pub fn local_counts(&self, queue: &str, local_queue: &ObjectKey) -> PendingCounts {
        let name = (Arc::clone(&local_queue.namespace), Arc::clone(&local_queue.name));
        self.by_name
            .get(queue)
            .and_then(|pending| pending.local_counts.get(&name))
            .copied()
            .unwrap_or_default()
    }

    /// Pending workloads of a ClusterQueue in order.
    pub fn in_order(&self, queue: &str) -> Vec<&Workload> {
        self.by_name.get(queue).map(PendingQueue::in_order).unwrap_or_default()
    }

    /// Whether the workload takes no turns until something changes.
    pub fn is_parked(&self, key: &ObjectKey) -> bool {
        let place = self.entries.get(key);
        place.is_some_and(|place| self.by_name.get(place.queue()).is_some_and(|p| p.is_parked(place.class)))
    }

    /// How many workloads of the same ClusterQueue come first.
    pub fn ahead_of(&self, key: &ObjectKey) -> Option<usize> {
        let place = self.entries.get(key)?;
        Some(self.by_name.get(place.queue())?.ahead_of(place))
    }
}
