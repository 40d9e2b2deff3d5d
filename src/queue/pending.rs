//! The pending workloads of one ClusterQueue, in classes of workloads that are judged alike.
//!
//! Within a class only the first workload is ever judged; what is found for it holds for all. A class leaves the set of
//! heads while it is parked. In a StrictFIFO queue the first head of all classes, parked or not, is the only one, beside those
//! for whom room is kept.

use super::hashes::Hashes;
use super::{Verdict, Workload};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::quota::Usage;
use crate::topology::Footprint;
use jiff::Timestamp;
use std::borrow::Borrow;
use std::cmp::{Ordering, Reverse};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::ops::Bound;
use std::sync::Arc;

/// Handle of a class within its queue; never used again for another class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(u64);

/// What makes workloads alike: same place of origin, same priority, same pods. One for whom room is kept is alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClassKey {
    pub(super) namespace: Arc<str>,
    pub(super) local_queue: Arc<str>,
    pub(super) priority: i64,
    pub(super) shape: [u8; 32],
    pub(super) alone: Option<ObjectKey>,
}

/// Namespace, priority, shape and whether alone: what judging looks at of a class.
type Likeness = (Arc<str>, i64, [u8; 32], Option<ObjectKey>);

impl ClassKey {
    fn likeness(&self) -> Likeness {
        (Arc::clone(&self.namespace), self.priority, self.shape, self.alone.clone())
    }
}

/// Place of a LocalQueue among those of its ClusterQueue: what it used, as the bits of a number that is not negative, which
/// order like the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u64);

impl Rank {
    /// The rank of past usage.
    pub fn of(usage: f64) -> Self {
        Self(if usage > 0.0 { usage.to_bits() } else { 0 })
    }
}

/// Where the search over flavors goes on in the next cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Index of the flavor last tried, by pod set and resource.
    pub tried: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// How often the search has gone on so far.
    pub rounds: usize,
    /// Whether something was found on the way that somebody else took: the search has not seen all flavors as they are now.
    pub interrupted: bool,
    /// The cycle that set it.
    pub cycle: u64,
    /// Generation of the queue's quota at that time.
    pub generation: u64,
}

/// What a blocked head of a StrictFIFO queue keeps others from taking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// What it asks for.
    pub usage: Usage,
    /// Height of the smallest subtree that could give it; 0 without borrowing.
    pub borrows: u32,
    /// Room on nodes that it would take.
    pub stand: Arc<Footprint>,
}

/// Why and how long a class is parked.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Whether the class is passed over even in a StrictFIFO queue.
    pub aside: bool,
    /// What it keeps from others while it is the head of a StrictFIFO queue.
    pub claim: Option<Claim>,
    /// What wakes it.
    pub waits: super::Waits,
}

/// A workload among those of its class, which have one priority: in the order of their places in the queue.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The time of the workload, beside it because comparing mostly ends there.
    queued_since: Timestamp,
    pub(super) workload: Arc<Workload>,
}

impl Member {
    fn of(workload: &Arc<Workload>) -> Self {
        Self { queued_since: workload.queued_since, workload: Arc::clone(workload) }
    }
}

/// Place of a class among those of its queue: that of its first member.
type Turn = (Rank, Reverse<i64>, Member, ClassId);

impl Ord for Member {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (&self.workload, &other.workload);
        let by_name = || (&a.uid, &a.key).cmp(&(&b.uid, &b.key));
        self.queued_since.cmp(&other.queued_since).then_with(by_name)
    }
}

impl PartialOrd for Member {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Member {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Member {}

#[derive(Debug)]
pub(super) struct Class {
    pub(super) key: ClassKey,
    pub(super) members: BTreeSet<Member>,
    pub(super) parked: Option<Parked>,
    pub(super) verdict: Option<Arc<Verdict>>,
    pub(super) cursor: Option<Cursor>,
}

impl Class {
    fn turn(&self, rank: Rank, id: ClassId) -> Option<Turn> {
        Some((rank, Reverse(self.key.priority), self.members.first()?.clone(), id))
    }

    fn is_active(&self) -> bool {
        self.parked.is_none()
    }

    /// Whether it is among those that may be first: a StrictFIFO queue can be blocked by any that is not passed over.
    fn takes_turns(&self, strategy: QueueingStrategy) -> bool {
        let blocks = |parked: &Parked| strategy == QueueingStrategy::StrictFIFO && !parked.aside;
        self.parked.as_ref().is_none_or(blocks)
    }
}

/// How many workloads wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCounts {
    /// To be judged at the queue's next turns.
    pub active: usize,
    /// Parked until something changes.
    pub inadmissible: usize,
}

impl PendingCounts {
    /// All of them.
    pub const fn total(self) -> usize {
        self.active.saturating_add(self.inadmissible)
    }

    /// So many are active from now on, or not any more.
    const fn turn(&mut self, number: usize, active: bool) {
        let (from, to) = if active {
            (&mut self.inadmissible, &mut self.active)
        } else {
            (&mut self.active, &mut self.inadmissible)
        };
        *from = from.saturating_sub(number);
        *to = to.saturating_add(number);
    }
}

/// The first workload of a class, to be judged.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// Its class.
    pub class: ClassId,
    /// The workload.
    pub workload: &'a Arc<Workload>,
    /// Where its search over flavors goes on.
    pub cursor: Option<&'a Cursor>,
    /// Its claim, if it is a blocked head of a StrictFIFO queue.
    pub claim: Option<&'a Claim>,
}

/// Pending workloads of one ClusterQueue.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Whether heads may be taken: the queue is configured and active.
    pub(super) open: bool,
    strategy: QueueingStrategy,
    next: u64,
    by_key: BTreeMap<ClassKey, ClassId>,
    /// Classes that differ in nothing but their LocalQueue.
    alike: BTreeMap<Likeness, BTreeSet<ClassId>>,
    pub(super) classes: BTreeMap<ClassId, Class>,
    /// First members of the classes that take turns.
    turns: BTreeSet<Turn>,
    /// Classes of workloads for which room is kept.
    alone: BTreeSet<ClassId>,
    /// Ranks of LocalQueues where past usage counts.
    ranks: BTreeMap<(Arc<str>, Arc<str>), Rank>,
    pub(super) counts: PendingCounts,
    pub(super) hashes: Hashes,
    pub(super) local: BTreeMap<(Arc<str>, Arc<str>), PendingCounts>,
}

/// Place of a pending workload: found by its key.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) workload: Arc<Workload>,
    pub(super) class: ClassId,
}

impl Place {
    /// Its ClusterQueue.
    pub(super) fn queue(&self) -> &Arc<str> {
        &self.workload.cluster_queue
    }
}

impl Borrow<ObjectKey> for Place {
    fn borrow(&self) -> &ObjectKey {
        &self.workload.key
    }
}

/// As that of its key.
impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.workload.key.hash(state);
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.workload.key == other.workload.key
    }
}

impl Eq for Place {}

impl Pending {
    pub(super) fn set_strategy(&mut self, strategy: QueueingStrategy) {
        if self.strategy == strategy {
            return;
        }
        self.strategy = strategy;
        self.turns = self.classes.keys().filter_map(|id| self.turn_of(*id)).collect();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.classes.is_empty()
    }

    /// The next to be judged.
    pub(super) fn head(&self) -> Option<Head<'_>> {
        let class = match self.strategy {
            QueueingStrategy::BestEffortFIFO => &self.turns.first()?.3,
            QueueingStrategy::StrictFIFO => {
                // Room that is kept is nobody else's: waiting for those ahead would be waiting for itself.
                let active = |id: &&ClassId| self.classes.get(id).is_some_and(|class| class.parked.is_none());
                let first = || self.turns.first().map(|(.., id)| id).filter(active);
                self.alone.iter().find(active).or_else(first)?
            }
        };
        self.head_of(*class)
    }

    /// The blocked head of a StrictFIFO queue with its claim.
    pub(super) fn claimant(&self) -> Option<Head<'_>> {
        let class = &self.turns.first().filter(|_| self.strategy == QueueingStrategy::StrictFIFO)?.3;
        self.head_of(*class).filter(|head| head.claim.is_some())
    }

    fn head_of(&self, id: ClassId) -> Option<Head<'_>> {
        let class = self.classes.get(&id)?;
        let claim = class.parked.as_ref().and_then(|parked| parked.claim.as_ref());
        let workload = &class.members.first()?.workload;
        Some(Head { class: id, workload, cursor: class.cursor.as_ref(), claim })
    }

    /// Adds a workload to its class and answers with the class.
    pub(super) fn insert(&mut self, key: ClassKey, workload: &Arc<Workload>) -> ClassId {
        let id = self.by_key.get(&key).copied().unwrap_or_else(|| {
            self.next += 1;
            ClassId(self.next)
        });
        let before = self.turn_of(id);
        let class = self.classes.entry(id).or_insert_with(|| {
            self.by_key.insert(key.clone(), id);
            self.alike.entry(key.likeness()).or_default().insert(id);
            self.hashes.add(&key, false);
            if key.alone.is_some() {
                self.alone.insert(id);
            }
            Class { key, members: BTreeSet::new(), parked: None, verdict: None, cursor: None }
        });
        class.members.insert(Member::of(workload));
        self.count(id, usize::saturating_add);
        self.relist(id, before);
        id
    }

    /// Removes a workload; answers with what a class that is now gone was parked by.
    pub(super) fn remove(&mut self, place: &Place) -> Option<Parked> {
        let before = self.turn_of(place.class);
        self.count(place.class, usize::saturating_sub);
        let class = self.classes.get_mut(&place.class)?;
        let member = Member::of(&place.workload);
        if class.members.first() == Some(&member) {
            class.cursor = None;
        }
        class.members.remove(&member);
        let is_over = class.members.is_empty();
        self.relist(place.class, before);
        if is_over {
            let class = self.classes.remove(&place.class)?;
            self.by_key.remove(&class.key);
            self.hashes.remove(&class.key, class.parked.is_some());
            self.alone.remove(&place.class);
            let likeness = class.key.likeness();
            if let Some(all) = self.alike.get_mut(&likeness) {
                all.remove(&place.class);
                if all.is_empty() {
                    self.alike.remove(&likeness);
                }
            }
            return class.parked;
        }
        None
    }

    /// Changes what is known of a class, not its members, with the indexes kept in step as far as they are concerned.
    pub(super) fn update<T>(&mut self, id: ClassId, change: impl FnOnce(&mut Class) -> T) -> Option<T> {
        let before = self.turn_of(id);
        let class = self.classes.get_mut(&id)?;
        let was_active = class.is_active();
        let answer = change(class);
        let active = class.is_active();
        if was_active != active {
            self.hashes.remove(&class.key, !was_active);
            self.hashes.add(&class.key, !active);
            let number = class.members.len();
            let name = (Arc::clone(&class.key.namespace), Arc::clone(&class.key.local_queue));
            self.counts.turn(number, active);
            self.local.entry(name).or_default().turn(number, active);
        }
        self.relist(id, before);
        Some(answer)
    }

    /// Active classes of which whatever is found for one holds as well; none in a StrictFIFO queue, where they wait anyway.
    pub(super) fn like(&self, id: ClassId) -> Vec<ClassId> {
        // As many likenesses as classes: every class is the only one of its kind.
        if self.alike.len() == self.classes.len() {
            return Vec::new();
        }
        let best_effort = self.strategy == QueueingStrategy::BestEffortFIFO;
        let class = self.classes.get(&id).filter(|_| best_effort);
        let all = class.and_then(|class| self.alike.get(&class.key.likeness())).into_iter().flatten();
        let active = |other: &&ClassId| {
            **other != id && self.classes.get(other).is_some_and(|class| class.parked.is_none())
        };
        all.filter(active).copied().collect()
    }

    fn rank(&self, key: &ClassKey) -> Rank {
        if self.ranks.is_empty() {
            return Rank::default();
        }
        let name = (Arc::clone(&key.namespace), Arc::clone(&key.local_queue));
        self.ranks.get(&name).copied().unwrap_or_default()
    }

    /// Sets the rank of a LocalQueue; without one it comes first.
    pub(super) fn set_rank(&mut self, local_queue: &ObjectKey, rank: Rank) {
        let name = (Arc::clone(&local_queue.namespace), Arc::clone(&local_queue.name));
        if self.ranks.get(&name).copied().unwrap_or_default() == rank {
            return;
        }
        let of = |class: &Class| (&class.key.namespace, &class.key.local_queue) == (&name.0, &name.1);
        let ids: Vec<ClassId> =
            self.classes.iter().filter(|(_, class)| of(class)).map(|(id, _)| *id).collect();
        let before: Vec<(ClassId, Option<Turn>)> = ids.into_iter().map(|id| (id, self.turn_of(id))).collect();
        if rank == Rank::default() {
            self.ranks.remove(&name);
        } else {
            self.ranks.insert(name, rank);
        }
        for (id, before) in before {
            self.relist(id, before);
        }
    }

    /// The turn of a class, if it takes turns.
    fn turn_of(&self, id: ClassId) -> Option<Turn> {
        let class = self.classes.get(&id).filter(|class| class.takes_turns(self.strategy))?;
        class.turn(self.rank(&class.key), id)
    }

    /// Brings a class whose turn may have changed to its place.
    fn relist(&mut self, id: ClassId, before: Option<Turn>) {
        let after = self.turn_of(id);
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.turns.remove(&before);
        }
        self.turns.extend(after);
    }

    /// Counts one workload of a class more or less.
    fn count(&mut self, id: ClassId, apply: impl Fn(usize, usize) -> usize) {
        let Some(class) = self.classes.get(&id) else {
            return;
        };
        let change = |counts: &mut PendingCounts| {
            let side = if class.is_active() { &mut counts.active } else { &mut counts.inadmissible };
            *side = apply(*side, 1);
        };
        change(&mut self.counts);
        match self.local.entry((Arc::clone(&class.key.namespace), Arc::clone(&class.key.local_queue))) {
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
        let ranked = |class: &'_ Class| self.rank(&class.key);
        let mut all: Vec<(Rank, Reverse<i64>, &Member)> = Vec::with_capacity(self.counts.total());
        for class in self.classes.values() {
            let rank = (ranked(class), Reverse(class.key.priority));
            all.extend(class.members.iter().map(|member| (rank.0, rank.1, member)));
        }
        all.sort();
        all.into_iter().map(|(_, _, member)| &*member.workload).collect()
    }

    /// Whether a class takes no turns; a StrictFIFO queue keeps the place of all that are not passed over.
    pub(super) fn is_parked(&self, id: ClassId) -> bool {
        let parked = self.classes.get(&id).and_then(|class| class.parked.as_ref());
        parked.is_some_and(|parked| parked.aside || self.strategy == QueueingStrategy::BestEffortFIFO)
    }

    /// How many come before a place.
    pub(super) fn ahead_of(&self, place: &Place) -> usize {
        let own = self.classes.get(&place.class).map(|class| self.rank(&class.key)).unwrap_or_default();
        let own = (own, Reverse(place.workload.priority));
        let member = Member::of(&place.workload);
        let ahead = |class: &Class| match (self.rank(&class.key), Reverse(class.key.priority)).cmp(&own) {
            Ordering::Less => class.members.len(),
            Ordering::Equal => class.members.range(..&member).count(),
            Ordering::Greater => 0,
        };
        self.classes.values().map(ahead).sum()
    }

    /// Parked classes of a namespace, or all.
    pub(super) fn parked_ids(&self, namespace: Option<&str>) -> Vec<ClassId> {
        let of =
            |class: &Class| class.parked.is_some() && namespace.is_none_or(|ns| *class.key.namespace == *ns);
        self.classes.iter().filter(|(_, class)| of(class)).map(|(id, _)| *id).collect()
    }

    /// Up to `limit` members of a class that come after a place.
    pub(super) fn members_from(&self, id: ClassId, from: Option<&Member>, limit: usize) -> Vec<Member> {
        let Some(class) = self.classes.get(&id) else {
            return Vec::new();
        };
        let start = from.map_or(Bound::Unbounded, Bound::Excluded);
        class.members.range((start, Bound::Unbounded)).take(limit).cloned().collect()
    }
}
