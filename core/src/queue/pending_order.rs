//! The order of the pending workloads of each ClusterQueue, for readers: positions, and pages from any position.
//!
//! Invariants: the order is the one in which heads are taken, over all workloads that count as pending, also parked ones and
//! those that wait outside the queue; a position or the start of a page costs the logarithm of their number; a clone is a
//! pointer, and a change after it copies one path of a tree. One change of rank costs more: the workloads of a LocalQueue that
//! shares its rank with others are sorted in or out.

use super::Workload;
use super::equivalence_class::UsageRank;
use super::order_tree::{Copies, OrderTree, Weighted, merged};
use crate::api::ObjectKey;
use jiff::Timestamp;
use rpds::RedBlackTreeMapSync;
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Inserting one item costs as much as passing this many in a rebuild.
const INSERT_COST: usize = 16;

/// A pending workload. The order is that of `Workload::order`; most comparisons end without following the pointer.
#[derive(Clone, Debug)]
struct Listed {
    priority: Reverse<i64>,
    queued_since: Timestamp,
    workload: Arc<Workload>,
}

impl Listed {
    fn new(workload: &Arc<Workload>) -> Self {
        let priority = Reverse(workload.priority);
        Self { priority, queued_since: workload.queued_since, workload: Arc::clone(workload) }
    }

    /// Compares a workload with this one.
    fn compare(&self, workload: &Workload) -> Ordering {
        let first =
            (Reverse(workload.priority), workload.queued_since).cmp(&(self.priority, self.queued_since));
        let (a, b) = (workload, &self.workload);
        first.then_with(|| (&a.uid, &a.key).cmp(&(&b.uid, &b.key)))
    }
}

impl Ord for Listed {
    fn cmp(&self, other: &Self) -> Ordering {
        other.compare(&self.workload)
    }
}

impl PartialOrd for Listed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Listed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Listed {}

impl Weighted for Listed {
    fn weight(&self) -> u32 {
        1
    }
}

type Members = OrderTree<Listed>;

/// The workloads of all LocalQueues with one rank. As long as that is one LocalQueue, it is the tree of that LocalQueue.
#[derive(Clone, Debug)]
struct RankGroup {
    rank: UsageRank,
    members: Members,
}

impl Ord for RankGroup {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for RankGroup {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for RankGroup {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for RankGroup {}

impl Weighted for RankGroup {
    fn weight(&self) -> u32 {
        self.members.weight()
    }
}

/// The workloads of one LocalQueue.
#[derive(Clone, Debug, Default)]
struct LocalOrder {
    rank: UsageRank,
    members: Members,
}

type LocalName = (Arc<str>, Arc<str>);

#[derive(Clone, Debug, Default)]
struct ClusterQueueOrder {
    groups: OrderTree<RankGroup>,
    local_queues: RedBlackTreeMapSync<LocalName, LocalOrder>,
}

/// A pending workload with its positions, which start at 0.
#[derive(Clone, Debug)]
pub struct PendingPosition<'a> {
    /// The workload.
    pub workload: &'a Arc<Workload>,
    /// Number of workloads before it in its ClusterQueue.
    pub in_cluster_queue: usize,
    /// Number of workloads of its LocalQueue before it.
    pub in_local_queue: usize,
}

/// The pending workloads of all ClusterQueues in order.
#[derive(Clone, Debug, Default)]
pub struct PendingOrder {
    by_queue: RedBlackTreeMapSync<Arc<str>, ClusterQueueOrder>,
    copies: Copies,
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn local_name(workload: &Workload) -> LocalName {
    (Arc::clone(&workload.key.namespace), Arc::clone(&workload.local_queue))
}

fn members_up_to(members: &Members, workload: &Workload) -> usize {
    let before = to_usize(members.weight_before(|other| other.compare(workload)));
    before.saturating_add(usize::from(members.get(|other| other.compare(workload)).is_some()))
}

/// Removes the items of one tree from another.
fn subtract(all: &mut Members, part: &Members, copies: &mut Copies) {
    if part.len().saturating_mul(INSERT_COST) < all.len() {
        part.iter().for_each(|item| drop(all.remove(item, copies)));
        return;
    }
    let mut gone = part.iter().peekable();
    let left = all.iter().filter(|item| gone.next_if(|next| next == item).is_none());
    *all = Members::from_sorted(left.cloned().collect());
}

/// Adds the items of one tree to another.
fn merge(all: &mut Members, part: &Members, copies: &mut Copies) {
    if all.len() == 0 {
        all.clone_from(part);
    } else if part.len().saturating_mul(INSERT_COST) < all.len() {
        part.iter().for_each(|item| drop(all.insert(item.clone(), copies)));
    } else {
        let mut merged: Vec<Listed> = all.iter().chain(part.iter()).cloned().collect();
        // Two sorted runs: the sort merges them.
        merged.sort();
        *all = Members::from_sorted(merged);
    }
}

impl ClusterQueueOrder {
    fn take_group(&mut self, rank: UsageRank, copies: &mut Copies) -> RankGroup {
        let empty = RankGroup { rank, members: Members::default() };
        self.groups.remove(&empty, copies).unwrap_or(empty)
    }

    fn put_group(&mut self, group: RankGroup, copies: &mut Copies) {
        if group.members.len() > 0 {
            self.groups.insert(group, copies);
        }
    }

    /// Changes the workloads of a LocalQueue, and of its group alike.
    fn change(&mut self, name: &LocalName, copies: &mut Copies, change: impl Fn(&mut Members, &mut Copies)) {
        let Some(rank) = self.local_queues.get(name).map(|local| local.rank) else { return };
        let mut group = self.take_group(rank, copies);
        let Some(local) = self.local_queues.get_mut(name) else { return };
        if group.members.is_same(&local.members) {
            // Otherwise the change would copy what the group holds too.
            group.members = Members::default();
        } else {
            change(&mut group.members, copies);
        }
        change(&mut local.members, copies);
        if group.members.len() <= local.members.len() {
            group.members = local.members.clone();
        }
        if local.members.len() == 0 {
            self.local_queues.remove_mut(name);
        }
        self.put_group(group, copies);
    }

    fn set_rank(&mut self, name: &LocalName, rank: UsageRank, copies: &mut Copies) {
        let Some(local) = self.local_queues.get(name).filter(|local| local.rank != rank) else { return };
        let (old_rank, members) = (local.rank, local.members.clone());
        let mut old = self.take_group(old_rank, copies);
        if !old.members.is_same(&members) {
            subtract(&mut old.members, &members, copies);
            self.put_group(old, copies);
        }
        let mut new = self.take_group(rank, copies);
        merge(&mut new.members, &members, copies);
        self.put_group(new, copies);
        self.local_queues.insert_mut(name.clone(), LocalOrder { rank, members });
    }

    /// Number of workloads of lower ranks.
    fn before_rank(&self, rank: UsageRank) -> u32 {
        self.groups.weight_before(|group| rank.cmp(&group.rank))
    }
}

impl PendingOrder {
    /// Adds a workload, or replaces one with the same position. `rank` is that of its LocalQueue.
    pub(super) fn insert(&mut self, workload: &Arc<Workload>, rank: UsageRank) {
        let (name, item) = (local_name(workload), Listed::new(workload));
        if !self.by_queue.contains_key(&workload.cluster_queue) {
            self.by_queue.insert_mut(Arc::clone(&workload.cluster_queue), ClusterQueueOrder::default());
        }
        let Some(queue) = self.by_queue.get_mut(&workload.cluster_queue) else { return };
        if queue.local_queues.contains_key(&name) {
            queue.set_rank(&name, rank, &mut self.copies);
        } else {
            queue.local_queues.insert_mut(name.clone(), LocalOrder { rank, members: Members::default() });
        }
        queue.change(&name, &mut self.copies, |members, copies| drop(members.insert(item.clone(), copies)));
    }

    /// Removes a workload that was inserted with this position.
    pub(super) fn remove(&mut self, workload: &Arc<Workload>) {
        let item = Listed::new(workload);
        let Some(queue) = self.by_queue.get_mut(&workload.cluster_queue) else { return };
        let remove = |members: &mut Members, copies: &mut Copies| drop(members.remove(&item, copies));
        queue.change(&local_name(workload), &mut self.copies, remove);
        if queue.groups.len() == 0 {
            self.by_queue.remove_mut(&workload.cluster_queue);
        }
    }

    /// Sets the rank of a LocalQueue in a ClusterQueue.
    pub(super) fn set_rank(&mut self, cluster_queue: &str, local_queue: &ObjectKey, rank: UsageRank) {
        let name = (Arc::clone(&local_queue.namespace), Arc::clone(&local_queue.name));
        let known = self.by_queue.get(cluster_queue).and_then(|queue| queue.local_queues.get(&name));
        if known.is_some_and(|local| local.rank != rank)
            && let Some(queue) = self.by_queue.get_mut(cluster_queue)
        {
            queue.set_rank(&name, rank, &mut self.copies);
        }
    }

    /// Number of tree nodes that changes have copied because a clone still had them: the cost of all clones so far.
    pub const fn copied_nodes(&self) -> u64 {
        self.copies.0
    }

    /// Number of pending workloads of a ClusterQueue.
    pub fn len(&self, cluster_queue: &str) -> usize {
        self.by_queue.get(cluster_queue).map_or(0, |queue| to_usize(queue.groups.weight()))
    }

    /// Number of pending workloads of a LocalQueue in a ClusterQueue.
    pub fn local_len(&self, cluster_queue: &str, local_queue: &ObjectKey) -> usize {
        let name = (Arc::clone(&local_queue.namespace), Arc::clone(&local_queue.name));
        let queue = self.by_queue.get(cluster_queue);
        queue.and_then(|queue| queue.local_queues.get(&name)).map_or(0, |local| local.members.len())
    }

    /// Positions, in its ClusterQueue and its LocalQueue, of the workload with the order of this one; `None` if it is not pending.
    pub fn position(&self, workload: &Workload) -> Option<(usize, usize)> {
        let queue = self.by_queue.get(&workload.cluster_queue)?;
        let local = queue.local_queues.get(&local_name(workload))?;
        local.members.get(|other| other.compare(workload))?;
        let in_local_queue = to_usize(local.members.weight_before(|other| other.compare(workload)));
        let group = queue.groups.get(|group| local.rank.cmp(&group.rank))?;
        let in_group = group.members.weight_before(|other| other.compare(workload));
        let before = queue.before_rank(local.rank);
        Some((to_usize(before.saturating_add(in_group)), in_local_queue))
    }

    /// The workload with the order of this one, if it is pending.
    pub fn get(&self, workload: &Workload) -> Option<&Arc<Workload>> {
        let local = self.by_queue.get(&workload.cluster_queue)?.local_queues.get(&local_name(workload))?;
        local.members.get(|other| other.compare(workload)).map(|item| &item.workload)
    }

    /// Number of workloads of the ClusterQueue up to the place of this one, which may no longer be pending: where a page
    /// continues after it. Of a LocalQueue without pending workloads the place is that of one without past usage.
    pub fn up_to(&self, workload: &Workload) -> usize {
        let Some(queue) = self.by_queue.get(&workload.cluster_queue) else { return 0 };
        let rank = queue.local_queues.get(&local_name(workload)).map(|local| local.rank).unwrap_or_default();
        let before = to_usize(queue.before_rank(rank));
        let group = queue.groups.get(|group| rank.cmp(&group.rank));
        before.saturating_add(group.map_or(0, |group| members_up_to(&group.members, workload)))
    }

    /// The same in its LocalQueue.
    pub fn local_up_to(&self, workload: &Workload) -> usize {
        let queue = self.by_queue.get(&workload.cluster_queue);
        let local = queue.and_then(|queue| queue.local_queues.get(&local_name(workload)));
        local.map_or(0, |local| members_up_to(&local.members, workload))
    }

    /// Number of workloads of a LocalQueue whose position in the ClusterQueue is before this one.
    pub fn local_before(&self, cluster_queue: &str, local_queue: &ObjectKey, position: usize) -> usize {
        let (mut low, mut high) = (0, self.local_len(cluster_queue, local_queue));
        while low < high {
            let middle = usize::midpoint(low, high);
            let found = self.local_from_position(cluster_queue, local_queue, middle).next();
            if found.is_some_and(|found| found.in_cluster_queue < position) {
                low = middle.saturating_add(1);
            } else {
                high = middle;
            }
        }
        low
    }

    /// The workloads of a ClusterQueue from a position on.
    pub fn from_position<'a>(
        &'a self,
        cluster_queue: &str,
        offset: usize,
    ) -> impl Iterator<Item = PendingPosition<'a>> + use<'a> {
        let queue = self.by_queue.get(cluster_queue);
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let members = queue.into_iter().flat_map(move |queue| {
            let (groups, mut skipped) = queue.groups.iter_from(offset);
            groups.flat_map(move |group| group.members.iter_from(std::mem::take(&mut skipped)).0)
        });
        // The next one of a LocalQueue in the ClusterQueue's order is the next one of the LocalQueue.
        let mut next_local: BTreeMap<LocalName, usize> = BTreeMap::new();
        members.enumerate().map(move |(index, item)| {
            let name = local_name(&item.workload);
            let next = next_local.entry(name).or_insert_with_key(|name: &LocalName| {
                let local = queue.and_then(|queue| queue.local_queues.get(name));
                local.map_or(0, |local| {
                    to_usize(local.members.weight_before(|other| other.compare(&item.workload)))
                })
            });
            let in_local_queue = *next;
            *next = next.saturating_add(1);
            let in_cluster_queue = index.saturating_add(to_usize(offset));
            PendingPosition { workload: &item.workload, in_cluster_queue, in_local_queue }
        })
    }

    /// The workloads of a LocalQueue in a ClusterQueue, from a position in the LocalQueue on.
    pub fn local_from_position<'a>(
        &'a self,
        cluster_queue: &str,
        local_queue: &ObjectKey,
        offset: usize,
    ) -> impl Iterator<Item = PendingPosition<'a>> + use<'a> {
        let name = (Arc::clone(&local_queue.namespace), Arc::clone(&local_queue.name));
        let queue = self.by_queue.get(cluster_queue);
        let local = queue.and_then(|queue| Some((queue, queue.local_queues.get(&name)?)));
        local.into_iter().flat_map(move |(queue, local)| {
            let before = queue.before_rank(local.rank);
            let group = queue.groups.get(|group| local.rank.cmp(&group.rank));
            let (items, _) = local.members.iter_from(u32::try_from(offset).unwrap_or(u32::MAX));
            items.enumerate().map(move |(index, item)| {
                let in_local_queue = index.saturating_add(offset);
                let in_group = group.map_or(0, |group| {
                    if group.members.is_same(&local.members) {
                        return in_local_queue;
                    }
                    to_usize(group.members.weight_before(|other| other.compare(&item.workload)))
                });
                let in_cluster_queue = to_usize(before).saturating_add(in_group);
                PendingPosition { workload: &item.workload, in_cluster_queue, in_local_queue }
            })
        })
    }

    /// The ClusterQueues with pending workloads by name, from this name on.
    pub fn cluster_queues_from<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<str>> + use<'a> {
        self.by_queue.range(Arc::<str>::from(name)..).map(|(name, _)| name)
    }

    /// The workloads of ClusterQueues by priority and, of one priority, by time, after a place in that order; of the LocalQueues of
    /// these namespaces alone, if they are named. It costs a look into each queue, and then what is read.
    pub fn by_priority<'a>(
        &'a self,
        cluster_queue: Option<&str>,
        namespaces: Option<&[&str]>,
        after: Option<&Workload>,
    ) -> impl Iterator<Item = &'a Arc<Workload>> + use<'a> {
        let mut runs = Vec::new();
        let mut add = |members: &'a Members| {
            runs.push(match after {
                Some(after) => members.iter_after(|other| other.compare(after)),
                None => members.iter(),
            });
        };
        let queues = self.by_queue.iter();
        for (_, queue) in queues.filter(|(name, _)| cluster_queue.is_none_or(|wanted| ***name == *wanted)) {
            let Some(namespaces) = namespaces else {
                queue.groups.iter().for_each(|group| add(&group.members));
                continue;
            };
            for namespace in namespaces {
                let start = (Arc::from(*namespace), Arc::from(""));
                let locals = queue.local_queues.range(start..);
                let locals = locals.take_while(|((of, _), _)| **of == **namespace);
                locals.for_each(|(_, local)| add(&local.members));
            }
        }
        merged(runs).map(|item| &item.workload)
    }
}
