//! Equivalence classes: workloads that the scheduler evaluates alike, and their members in order.
//!
//! Only the first member of a class is ever nominated; its outcome holds for all members.

use super::{Alone, Verdict, Workload};
use crate::api::ObjectKey;
use crate::api::v1beta2::QueueingStrategy;
use crate::quota::Usage;
use crate::topology::Footprint;
use jiff::Timestamp;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Id of a class within its ClusterQueue; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassId(pub(super) u64);

/// Same namespace, LocalQueue, priority and equivalence hash. A workload with a capacity reservation forms its own
/// class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EquivalenceKey {
    pub(super) namespace: Arc<str>,
    pub(super) local_queue: Arc<str>,
    pub(super) priority: i64,
    pub(super) equivalence_hash: [u8; 32],
    pub(super) isolated: Option<ObjectKey>,
}

/// Everything that nomination reads of a class: its key without the LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CrossQueueKey {
    namespace: Arc<str>,
    priority: i64,
    equivalence_hash: [u8; 32],
    isolated: Option<ObjectKey>,
}

impl EquivalenceKey {
    pub(super) fn cross_queue_key(&self) -> CrossQueueKey {
        CrossQueueKey {
            namespace: Arc::clone(&self.namespace),
            priority: self.priority,
            equivalence_hash: self.equivalence_hash,
            isolated: self.isolated.clone(),
        }
    }
}

/// Position of a LocalQueue in its ClusterQueue: its past usage as float bits, which order like the number because it
/// is not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsageRank(u64);

impl UsageRank {
    /// Converts past usage to a rank.
    pub fn from_usage(usage: f64) -> Self {
        Self(if usage > 0.0 { usage.to_bits() } else { 0 })
    }
}

/// Where the next cycle's flavor scan starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorCursor {
    /// Index of the flavor tried last, by pod set and resource.
    pub last_tried: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Number of scans so far.
    pub scans: usize,
    /// Whether another head took the capacity found: the scan has not seen all flavors in their current state.
    pub lost_race: bool,
    /// The cycle that set it.
    pub cycle: u64,
    /// Generation of the ClusterQueue's quota at that time.
    pub generation: u64,
}

/// Capacity that a blocked StrictFIFO head withholds from other heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadClaim {
    /// Requested usage.
    pub usage: Usage,
    /// Height of the smallest subtree that could provide it; 0 without borrowing.
    pub borrowing_level: u32,
    /// Leaf capacity that it would take.
    pub footprint: Arc<Footprint>,
}

/// Why a class is parked, and until when.
#[derive(Clone, Debug)]
pub struct Parked {
    /// Whether the class never blocks its ClusterQueue, not even a StrictFIFO one.
    pub never_blocks_queue: bool,
    /// Capacity that it withholds while it is the head of a StrictFIFO ClusterQueue.
    pub claim: Option<HeadClaim>,
    /// What wakes it.
    pub wake_conditions: super::WakeConditions,
}

/// A workload in its class, ordered by queue position; all members have one priority.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Copy of the workload's field: most comparisons end here without following the pointer.
    pub(super) queued_since: Timestamp,
    pub(super) workload: Arc<Workload>,
}

impl Member {
    pub(super) fn new(workload: &Arc<Workload>) -> Self {
        Self { queued_since: workload.queued_since, workload: Arc::clone(workload) }
    }
}

/// Position of a class in its ClusterQueue: that of its first member. The order of the fields is the order of
/// precedence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeadOrder {
    rank: UsageRank,
    priority: Reverse<i64>,
    pub(super) first: Member,
    pub(super) class: ClassId,
}

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
    /// What it would get if nothing were in use, and the state of configuration and nodes for which that holds.
    pub(super) alone: Option<(u64, Arc<Alone>)>,
}

impl EquivalenceClass {
    pub(super) fn head_order(&self, rank: UsageRank, id: ClassId) -> Option<HeadOrder> {
        let (priority, first) = (Reverse(self.key.priority), self.members.first()?.clone());
        Some(HeadOrder { rank, priority, first, class: id })
    }

    pub(super) fn is_active(&self) -> bool {
        self.parked.is_none()
    }

    /// Whether the class can be the head; in StrictFIFO also a parked class, unless it never blocks.
    pub(super) fn is_head_candidate(&self, strategy: QueueingStrategy) -> bool {
        let blocks = |parked: &Parked| strategy == QueueingStrategy::StrictFIFO && !parked.never_blocks_queue;
        self.parked.as_ref().is_none_or(blocks)
    }
}
