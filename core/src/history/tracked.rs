//! State of each Workload that has not finished: the open episode, and sums over the ended ones.
//!
//! Invariant: small, because there is one for each pending Workload.

use super::record::{Amounts, Preemptor, Subject};
use super::series::Millis;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A Workload that has not finished.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) key: ObjectKey,
    /// Number of the ClusterQueue.
    pub(super) queue: u32,
    pub(super) priority: i64,
    /// Number of evictions.
    pub(super) evictions: u32,
    /// Number of waits that ended since the last eviction.
    pub(super) waits: u32,
    /// When quota was reserved last.
    pub(super) reserved_at: Millis,
    /// The last eviction that was recorded.
    pub(super) evicted_at: Millis,
    pub(super) phase: Phase,
    /// Sums over ended episodes; `None` if there are none.
    pub(super) sums: Option<Box<Sums>>,
}

/// The open episode.
#[derive(Clone, Debug, Default)]
pub(super) enum Phase {
    /// No open episode.
    #[default]
    Idle,
    /// The Workload waits for quota.
    Pending(Pending),
    /// The Workload has quota. The run is shared with views of the history, which costs nothing while it does not change.
    Running(Arc<OpenRun>),
}

/// An open pending episode.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) since: Millis,
    pub(super) reason: PendingReason,
    pub(super) reason_since: Millis,
    /// Milliseconds by earlier reasons. Most episodes have none: a pointer keeps them small.
    pub(super) earlier: Option<Box<Earlier>>,
}

/// Milliseconds by reason of a pending episode.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier(BTreeMap<PendingReason, Millis>);

/// A wait that has not ended. Times are milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenWait {
    /// When the wait began.
    pub since: i64,
    /// The present pending reason.
    pub reason: PendingReason,
    /// When that became the reason, or when the Workload was first observed.
    pub reason_since: i64,
    /// Milliseconds by reason before that, as far as they were observed.
    pub earlier: Box<[(PendingReason, i64)]>,
}

/// A run that has not ended: an open segment.
#[derive(Clone, Debug)]
pub struct OpenRun {
    /// The Workload.
    pub workload: Subject,
    /// When quota was reserved, in milliseconds since the epoch.
    pub start: i64,
    /// Amounts, as the ledger charges them.
    pub amounts: Amounts,
    /// Whether the Workload was evicted in this run; it has quota until its pods have stopped.
    pub evicted: bool,
}

/// Sums over the ended episodes of a Workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Milliseconds pending.
    pub waited: i64,
    /// Milliseconds with quota.
    pub ran: i64,
    /// Milliseconds of runs that a preemption ended.
    pub lost: i64,
    /// Number of runs.
    pub runs: u32,
}

impl Tracked {
    /// Returns the Workload as a preemptor.
    pub(super) fn as_preemptor(&self, cluster_queue: Arc<str>) -> Preemptor {
        Preemptor { key: self.key.clone(), cluster_queue, priority: Some(self.priority) }
    }

    /// Changes the sums.
    pub(super) fn add(&mut self, change: impl FnOnce(&mut Sums)) {
        change(self.sums.get_or_insert_default());
    }

    /// Adds the milliseconds of a wait to the sums.
    pub(super) fn add_wait(&mut self, waited: Millis) {
        if waited > 0 {
            self.add(|sums| sums.waited = sums.waited.saturating_add(waited));
        }
    }

    /// Returns the bytes of the entry in a map by UID.
    pub(super) fn bytes(&self) -> usize {
        let phase = match &self.phase {
            Phase::Idle => 0,
            Phase::Pending(pending) => pending.earlier.as_ref().map_or(0, |earlier| {
                earlier.0.len().saturating_mul(size_of::<(PendingReason, Millis)>()).saturating_add(88)
            }),
            // An `Arc` has two counters.
            Phase::Running(_) => size_of::<OpenRun>().saturating_add(2 * size_of::<usize>()),
        };
        let sums = self.sums.as_ref().map_or(0, |_| size_of::<Sums>());
        // A map is filled to two thirds.
        let slot = size_of::<(Arc<str>, Self)>().saturating_mul(3) / 2;
        slot.saturating_add(phase).saturating_add(sums)
    }
}

impl Pending {
    /// Creates an episode.
    pub(super) const fn new(since: Millis, reason: PendingReason) -> Self {
        Self { since, reason, reason_since: since, earlier: None }
    }

    /// Creates an episode that has lasted until `end` without an observed reason.
    pub(super) const fn unobserved(since: Millis, end: Millis) -> Self {
        Self { since, reason: PendingReason::PendingEvaluation, reason_since: end, earlier: None }
    }

    /// Changes the reason at `now`.
    pub(super) fn set_reason(&mut self, reason: PendingReason, now: Millis) {
        let time = self.earlier.get_or_insert_default().0.entry(self.reason).or_default();
        *time = time.saturating_add(now.saturating_sub(self.reason_since).max(0));
        self.reason = reason;
        self.reason_since = now.max(self.reason_since);
    }

    /// Returns the wait, as readers get it.
    pub(super) fn open(&self) -> OpenWait {
        let earlier = self.earlier.iter().flat_map(|earlier| &earlier.0);
        OpenWait {
            since: self.since,
            reason: self.reason,
            reason_since: self.reason_since,
            earlier: earlier.filter(|(_, time)| **time > 0).map(|(reason, time)| (*reason, *time)).collect(),
        }
    }

    /// Returns the milliseconds by reason, up to `end`.
    pub(super) fn by_reason(&self, end: Millis) -> Box<[(PendingReason, i64)]> {
        let mut times = self.earlier.as_ref().map(|earlier| earlier.0.clone()).unwrap_or_default();
        let time = times.entry(self.reason).or_default();
        *time = time.saturating_add(end.saturating_sub(self.reason_since).max(0));
        times.into_iter().filter(|(_, time)| *time > 0).collect()
    }
}
