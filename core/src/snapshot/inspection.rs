//! The core's answer to a request for its inner state: computed on request, never for a round.
//!
//! Invariant: every list is an excerpt of bounded length that names the number of omitted entries.

use crate::api::ObjectKey;
use crate::quota::{FlavorResource, NodeUsage};
use jiff::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The first entries of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Excerpt<T> {
    /// Number of all entries.
    pub total: usize,
    /// Number of entries that are omitted.
    pub more: usize,
    /// The first entries.
    pub first: Vec<T>,
}

impl<T> Excerpt<T> {
    /// Takes the first `limit` entries.
    pub fn of(entries: impl IntoIterator<Item = T>, limit: usize) -> Self {
        let mut entries = entries.into_iter();
        let first: Vec<T> = entries.by_ref().take(limit).collect();
        let more = entries.count();
        Self { total: first.len().saturating_add(more), more, first }
    }

    /// Converts the first entries.
    #[must_use]
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Excerpt<U> {
        let Self { total, more, first } = self;
        Excerpt { total, more, first: first.into_iter().map(convert).collect() }
    }
}

/// The inner state of the core.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The core's clock.
    pub time: Timestamp,
    /// Whether this replica may write.
    pub leading: bool,
    /// Whether all first lists are complete.
    pub synced: bool,
    /// Workloads that wait for a write slot, the most urgent first.
    pub write_queue: Excerpt<QueuedWrite>,
    /// Writes without a result, the oldest first.
    pub in_flight_writes: Excerpt<SentWrite>,
    /// Objects whose last write failed, by kind and name.
    pub failed_writes: Excerpt<FailedWrite>,
    /// Number of decisions to admit that are not confirmed by their write.
    pub assumed_admissions: usize,
    /// Number of objects that get a step with the next delta.
    pub due_now: usize,
    /// Steps that are due later.
    pub timers: TimerView,
}

/// A Workload that waits for a write slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedWrite {
    /// `namespace/name`.
    pub workload: String,
    /// What the write is for.
    pub class: &'static str,
    /// Priority of the Workload, or of its preemptor.
    pub priority: i64,
}

/// A write that was sent and has no result yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SentWrite {
    /// Plural name of the kind, with the subresource.
    pub resource: String,
    /// Name, with its namespace.
    pub object: String,
    /// Verb of the call.
    pub verb: &'static str,
    /// Seconds since it was decided.
    pub age_seconds: f64,
    /// Failures of the writes of the object since the last that landed.
    #[serde(flatten)]
    pub failures: FailureCounts,
}

/// An object whose last write failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedWrite {
    /// Plural name of the kind.
    pub resource: String,
    /// Name, with its namespace.
    pub object: String,
    /// Failures since the last write that landed.
    #[serde(flatten)]
    pub failures: FailureCounts,
    /// Seconds until the next write; 0 if it may be written now.
    pub backoff_seconds: f64,
}

/// Consecutive failures of the writes of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FailureCounts {
    /// Conflicts.
    pub conflicts: u32,
    /// Other errors.
    pub errors: u32,
}

/// Steps that are due later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimerView {
    /// Number of timers and next due time, by kind of object.
    pub by_kind: BTreeMap<&'static str, TimerCount>,
    /// The earliest timers.
    pub next: Excerpt<Timer>,
    /// Timers that belong to no object.
    pub alarms: BTreeMap<&'static str, Timestamp>,
    /// When the first capacity reservation expires.
    pub reservation_expiry: Option<Timestamp>,
}

/// The timers of a kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimerCount {
    /// Number of timers.
    pub count: usize,
    /// The earliest due time.
    pub next_due: Timestamp,
}

/// A step that is due later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Timer {
    /// Kind of the object.
    pub kind: &'static str,
    /// Name, with its namespace.
    pub object: String,
    /// When it is due.
    pub due: Timestamp,
}

/// The queues with the names of their workloads.
#[derive(Clone, Debug)]
pub struct QueueListing {
    /// ClusterQueues by name.
    pub cluster_queues: Vec<ClusterQueueListing>,
    /// Cohorts by name.
    pub cohorts: BTreeMap<Arc<str>, BTreeMap<FlavorResource, NodeUsage>>,
}

/// A ClusterQueue with the names of its workloads.
#[derive(Clone, Debug)]
pub struct ClusterQueueListing {
    /// Name of the ClusterQueue.
    pub name: Arc<str>,
    /// Name of the parent cohort; `None` without one.
    pub cohort: Option<Arc<str>>,
    /// Whether it admits workloads.
    pub active: bool,
    /// Workloads that will be nominated, in order.
    pub pending: Excerpt<ObjectKey>,
    /// Parked workloads, in order.
    pub inadmissible: Excerpt<ObjectKey>,
    /// Number of workloads that wait outside the queue: for a backoff, or for their job.
    pub waiting: usize,
    /// Workloads that hold quota, by name.
    pub workloads: Excerpt<ObjectKey>,
    /// Number of these workloads that are admitted.
    pub admitted: usize,
    /// Quota limits and current usage.
    pub usage: BTreeMap<FlavorResource, NodeUsage>,
}
