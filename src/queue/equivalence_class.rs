//! Classes of workloads that the scheduler evaluates alike, and their members in order.
//!
//! Only the first member of a class is ever nominated; its outcome holds for all of them.

use super::{Verdict, Workload};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::quota::Usage;
use crate::topology::Footprint;
use jiff::Timestamp;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Handle of a class within its queue; never used again for another class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(pub(super) u64);

/// What makes workloads alike: same place of origin, same priority, same pods. One for whom room is kept is alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EquivalenceKey {
    pub(super) namespace: Arc<str>,
    pub(super) local_queue: Arc<str>,
    pub(super) priority: i64,
    pub(super) equivalence_hash: [u8; 32],
    pub(super) isolated: Option<ObjectKey>,
}

/// Namespace, priority, shape and whether alone: what judging looks at of a class.
pub(super) type CrossQueueKey = (Arc<str>, i64, [u8; 32], Option<ObjectKey>);

impl EquivalenceKey {
    pub(super) fn cross_queue_key(&self) -> CrossQueueKey {
        (Arc::clone(&self.namespace), self.priority, self.equivalence_hash, self.isolated.clone())
    }
}

/// Place of a LocalQueue among those of its ClusterQueue: what it used, as the bits of a number that is not negative, which
/// order like the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageRank(u64);

impl UsageRank {
    /// The rank of past usage.
    pub fn from_usage(usage: f64) -> Self {
        Self(if usage > 0.0 { usage.to_bits() } else { 0 })
    }
}

/// Where the search over flavors goes on in the next cycle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorCursor {
    /// Index of the flavor last tried, by pod set and resource.
    pub last_tried: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// How often the search has gone on so far.
    pub scans: usize,
    /// Whether something was found on the way that somebody else took: the search has not seen all flavors as they are now.
    pub lost_race: bool,
    /// The cycle that set it.
    pub cycle: u64,
    /// Generation of the queue's quota at that time.
    pub generation: u64,
}

/// What a blocked head of a StrictFIFO queue keeps others from taking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadClaim {
    /// What it asks for.
    pub usage: Usage,
    /// Height of the smallest subtree that could give it; 0 without borrowing.
    pub borrowing_level: u32,
    /// Room on nodes that it would take.
    pub footprint: Arc<Footprint>,
}

/// Why and how long a class is parked.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Whether the class is passed over even in a StrictFIFO queue.
    pub never_blocks_queue: bool,
    /// What it keeps from others while it is the head of a StrictFIFO queue.
    pub claim: Option<HeadClaim>,
    /// What wakes it.
    pub wake_conditions: super::WakeConditions,
}

/// A workload among those of its class, which have one priority: in the order of their places in the queue.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The time of the workload, beside it because comparing mostly ends there.
    queued_since: Timestamp,
    pub(super) workload: Arc<Workload>,
}

impl Member {
    pub(super) fn new(workload: &Arc<Workload>) -> Self {
        Self { queued_since: workload.queued_since, workload: Arc::clone(workload) }
    }
}

/// Place of a class among those of its queue: that of its first member.
pub(super) type HeadOrder = (UsageRank, Reverse<i64>, Member, ClassId);

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
pub(super) struct EquivalenceClass {
    pub(super) key: EquivalenceKey,
    pub(super) members: BTreeSet<Member>,
    pub(super) parked: Option<Parked>,
    pub(super) verdict: Option<Arc<Verdict>>,
    pub(super) cursor: Option<FlavorCursor>,
}

impl EquivalenceClass {
    pub(super) fn head_order(&self, rank: UsageRank, id: ClassId) -> Option<HeadOrder> {
        Some((rank, Reverse(self.key.priority), self.members.first()?.clone(), id))
    }

    pub(super) fn is_active(&self) -> bool {
        self.parked.is_none()
    }

    /// Whether it is among those that may be first: a StrictFIFO queue can be blocked by any that is not passed over.
    pub(super) fn is_head_candidate(&self, strategy: QueueingStrategy) -> bool {
        let blocks = |parked: &Parked| strategy == QueueingStrategy::StrictFIFO && !parked.never_blocks_queue;
        self.parked.as_ref().is_none_or(blocks)
    }
}
