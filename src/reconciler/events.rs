//! Constructors of events on Workloads, and durations as counters take them.

use super::messages::{Effect, Event};
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::backoff;
use jiff::Timestamp;
use std::time::Duration;

/// Creates an event on a Workload.
pub(crate) fn workload_event(record: &WorkloadRecord, warning: bool, reason: &str, note: String) -> Effect {
    Effect::Event(Event {
        kind: Kind::Workload,
        key: record.meta.key.clone(),
        uid: record.meta.uid.to_string(),
        warning,
        reason: reason.to_owned(),
        note,
        once: false,
    })
}

/// Returns the time since `since`, or zero if `since` is in the future.
pub(crate) fn elapsed_duration(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(backoff::elapsed(since, now)).unwrap_or_default()
}
