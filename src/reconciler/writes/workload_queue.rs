//! Priority queue of Workloads waiting for a free in-flight write slot. The status is computed when the slot is
//! granted, from the newest object, so that no write becomes stale while it waits.
//!
//! The order: first Workloads to admit or evict; then Workloads whose job has finished, because quota that is already
//! free is worth more than quota that will be free; then the cleanup of finished Workloads; last pending Workloads,
//! whose write can only set the pending reason. Within one class, the Workload with the higher priority comes first,
//! then the one that was enqueued first.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::reconciler::Reconciler;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pending reasons in flight, so that they never delay admissions.
const MAX_IN_FLIGHT_EXPLANATIONS: usize = 64;

/// Class of a write, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WritePriority {
    /// Admits or evicts a Workload, or releases its quota for another one.
    AdmitOrEvict,
    /// The job has finished, and the quota must be released.
    ReleaseQuota,
    /// The Workload has finished.
    Cleanup,
    /// The Workload is pending: the write can only set the pending reason.
    ExplainPending,
}

impl WritePriority {
    /// Returns the name under which it is shown.
    const fn as_str(self) -> &'static str {
        match self {
            Self::AdmitOrEvict => "admitOrEvict",
            Self::ReleaseQuota => "releaseQuota",
            Self::Cleanup => "cleanup",
            Self::ExplainPending => "explainPending",
        }
    }
}

/// Sort key of a Workload in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    write_priority: WritePriority,
    workload_priority: Reverse<i64>,
    sequence: u64,
}

/// Workloads waiting for a write slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadWriteQueue {
    next_sequence: u64,
    queue: BTreeMap<QueuePosition, ObjectKey>,
    positions: BTreeMap<ObjectKey, QueuePosition>,
    /// Queued Workloads that the scheduler has decided to admit or to evict.
    decided: BTreeSet<ObjectKey>,
}

impl WorkloadWriteQueue {
    /// Adds a Workload, or moves it if class or priority changed; it then keeps its sequence number.
    fn push(&mut self, key: &ObjectKey, write_priority: WritePriority, priority: i64, decided: bool) {
        if decided {
            self.decided.insert(key.clone());
        } else {
            self.decided.remove(key);
        }
        let known = self.positions.get(key).copied();
        let sequence = known.map_or(self.next_sequence, |position| position.sequence);
        let position = QueuePosition { write_priority, workload_priority: Reverse(priority), sequence };
        if known == Some(position) {
            return;
        }
        match known {
            Some(old) => drop(self.queue.remove(&old)),
            None => self.next_sequence = self.next_sequence.saturating_add(1),
        }
        self.positions.insert(key.clone(), position);
        self.queue.insert(position, key.clone());
    }

    /// Returns the Workloads in order, each with the class of its write and its priority.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&ObjectKey, &'static str, i64)> {
        self.queue.iter().map(|(position, key)| {
            let Reverse(priority) = position.workload_priority;
            (key, position.write_priority.as_str(), priority)
        })
    }

    /// Removes and returns the first Workload.
    pub(crate) fn pop(&mut self) -> Option<ObjectKey> {
        let (_, key) = self.queue.pop_first()?;
        self.positions.remove(&key);
        self.decided.remove(&key);
        Some(key)
    }

    /// Returns the first Workload whose write can only set the pending reason.
    fn first_explanation(&self) -> Option<&ObjectKey> {
        let first = QueuePosition {
            write_priority: WritePriority::ExplainPending,
            workload_priority: Reverse(i64::MAX),
            sequence: 0,
        };
        self.queue.range(first..).next().map(|(_, key)| key)
    }

    /// Removes and returns the first Workload whose write can only set the pending reason.
    pub(crate) fn pop_explanation(&mut self) -> Option<ObjectKey> {
        let key = self.first_explanation()?.clone();
        self.remove(&key);
        Some(key)
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(position) = self.positions.remove(key) {
            self.queue.remove(&position);
            self.decided.remove(key);
        }
    }

    /// Returns whether a Workload is queued whose write can only set the pending reason.
    pub(crate) fn has_explanation(&self) -> bool {
        self.first_explanation().is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.positions.clear();
        self.decided.clear();
    }
}

impl Reconciler {
    /// Adds a Workload to the write queue. A victim gets the priority of its preemptor.
    pub(crate) fn enqueue_write(&mut self, key: &ObjectKey) {
        let own = || self.cache.workload(key).map_or(0, |record| i64::from(record.priority));
        let preemption = self.engine.preemption_of(key);
        let decided = preemption.is_some() || self.membership.assumed.contains(key);
        // The preemptor waits for the eviction of its victim: the write is as urgent as the preemptor.
        let preemptor = preemption.and_then(|preemption| {
            let record = self.cache.workload(&preemption.preemptor)?;
            Some(i64::from(record.priority))
        });
        self.workload_write_queue.push(key, self.write_priority(key), preemptor.unwrap_or_else(own), decided);
    }

    fn write_priority(&self, key: &ObjectKey) -> WritePriority {
        if self.membership.assumed.contains(key) {
            return WritePriority::AdmitOrEvict;
        }
        if self.engine.workload(key).is_some() {
            return WritePriority::ExplainPending;
        }
        match self.cache.workload(key) {
            Some(record) if conditions::is_true(&record.status, ConditionType::Finished) => {
                WritePriority::Cleanup
            }
            Some(record) if self.is_job_finished(record) => WritePriority::ReleaseQuota,
            _ => WritePriority::AdmitOrEvict,
        }
    }

    fn is_job_finished(&self, record: &WorkloadRecord) -> bool {
        self.cache.job_of(record).is_some_and(|(_, job)| job.status.finished.is_some())
    }

    /// Returns how many more pending reasons may be in flight: at most an eighth of the slots, because most are for
    /// admissions.
    pub(crate) fn explanation_budget(&self) -> usize {
        let share =
            self.settings.writes.max_in_flight_status_writes.map_or(usize::MAX, |limit| (limit / 8).max(1));
        MAX_IN_FLIGHT_EXPLANATIONS.min(share).saturating_sub(self.writes.explanation_count())
    }

    /// Returns how many more decisions can soon be written: 0 while the decided Workloads in the write queue are more
    /// than half of the write slots, otherwise the number of slots minus these Workloads.
    pub(crate) fn decision_budget(&self) -> usize {
        let Some(limit) = self.settings.writes.max_in_flight_status_writes else { return usize::MAX };
        let decided = self.workload_write_queue.decided.len();
        if decided > limit / 2 { 0 } else { limit.saturating_sub(decided) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_priority_order_and_stable_position() {
        let mut queue = WorkloadWriteQueue::default();
        let key = |name: &str| ObjectKey::new("ns", name);
        for (name, write_priority, priority) in [
            ("pending", WritePriority::ExplainPending, 9),
            ("finished", WritePriority::Cleanup, 9),
            ("finishing", WritePriority::ReleaseQuota, 9),
            ("a", WritePriority::AdmitOrEvict, 0),
            ("b", WritePriority::AdmitOrEvict, 0),
            ("high", WritePriority::AdmitOrEvict, 5),
        ] {
            queue.push(&key(name), write_priority, priority, false);
        }
        queue.push(&key("a"), WritePriority::AdmitOrEvict, 0, true);
        queue.push(&key("pending"), WritePriority::AdmitOrEvict, 0, false);
        queue.push(&key("last"), WritePriority::ExplainPending, 9, true);
        assert_eq!(queue.first_explanation(), Some(&key("last")));
        queue.remove(&key("last"));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|key| key.name.to_string()).collect();
        assert_eq!(order, ["high", "pending", "a", "b", "finishing", "finished"]);
        assert!(queue.positions.is_empty() && queue.decided.is_empty());
    }
}
