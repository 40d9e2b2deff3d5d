//! Workloads whose next write waits for room among those under way: what it says is decided only when its turn comes,
//! on the newest object, so that no write is overtaken while it waits.
//!
//! The order: first what admits or evicts, then what ends, since quota that is free already is worth more than quota that
//! will be; then what is left to do of those that have ended; last those in the queue, who can only be told why they wait.
//! Of one sort the more important Workload comes first, then whoever asked first.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::reconciler::Reconciler;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of pending reasons in flight, so that they never delay admissions.
const MAX_IN_FLIGHT_EXPLANATIONS: usize = 64;

/// What a write is for, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WritePriority {
    /// It admits, evicts, or lets go of quota for somebody else.
    AdmitOrEvict,
    /// Its job has ended, and its quota is to be given back.
    ReleaseQuota,
    /// It has ended.
    Cleanup,
    /// It can only be told why it waits.
    ExplainPending,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    write_priority: WritePriority,
    workload_priority: Reverse<i64>,
    sequence: u64,
}

/// The line.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadWriteQueue {
    next_sequence: u64,
    queue: BTreeMap<QueuePosition, ObjectKey>,
    positions: BTreeMap<ObjectKey, QueuePosition>,
    /// Those of them of whom the scheduler has decided that they are admitted or evicted.
    decided: BTreeSet<ObjectKey>,
}

impl WorkloadWriteQueue {
    /// Lines a Workload up. One that stands there already keeps its time, wherever it belongs by now.
    fn push(&mut self, key: &ObjectKey, sort: WritePriority, priority: i64, decided: bool) {
        if decided {
            self.decided.insert(key.clone());
        } else {
            self.decided.remove(key);
        }
        let known = self.positions.get(key).copied();
        let number = known.map_or(self.next_sequence, |rank| rank.sequence);
        let rank =
            QueuePosition { write_priority: sort, workload_priority: Reverse(priority), sequence: number };
        if known == Some(rank) {
            return;
        }
        match known {
            Some(old) => drop(self.queue.remove(&old)),
            None => self.next_sequence = self.next_sequence.saturating_add(1),
        }
        self.positions.insert(key.clone(), rank);
        self.queue.insert(rank, key.clone());
    }

    /// The first in the line.
    pub(crate) fn pop(&mut self) -> Option<ObjectKey> {
        let (_, key) = self.queue.pop_first()?;
        self.positions.remove(&key);
        self.decided.remove(&key);
        Some(key)
    }

    /// The first of those who can only be told why they wait.
    fn first_explanation(&self) -> Option<&ObjectKey> {
        let first = QueuePosition {
            write_priority: WritePriority::ExplainPending,
            workload_priority: Reverse(i64::MAX),
            sequence: 0,
        };
        self.queue.range(first..).next().map(|(_, key)| key)
    }

    /// Takes the first Workload that can only be given a pending reason.
    pub(crate) fn pop_explanation(&mut self) -> Option<ObjectKey> {
        let key = self.first_explanation()?.clone();
        self.remove(&key);
        Some(key)
    }

    fn remove(&mut self, key: &ObjectKey) {
        if let Some(rank) = self.positions.remove(key) {
            self.queue.remove(&rank);
            self.decided.remove(key);
        }
    }

    /// Whether somebody stands in line who can only be told why it waits.
    pub(crate) fn has_explanation(&self) -> bool {
        self.first_explanation().is_some()
    }

    /// Nobody stands in line any more.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.positions.clear();
        self.decided.clear();
    }
}

impl Reconciler {
    /// Lines a Workload up for its next write.
    pub(crate) fn enqueue_write(&mut self, key: &ObjectKey) {
        let own = || self.cache.workload(key).map_or(0, |record| i64::from(record.priority));
        let preemption = self.engine.preemption_of(key);
        let decided = preemption.is_some() || self.membership.assumed.contains(key);
        // A victim goes for the sake of another.
        let preemptor = preemption.and_then(|found| {
            let record = self.cache.workload(&found.preemptor)?;
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

    /// How many more pending reasons may be in flight: most slots are for admissions.
    pub(crate) fn explanation_budget(&self) -> usize {
        let share =
            self.settings.writes.max_in_flight_status_writes.map_or(usize::MAX, |limit| (limit / 8).max(1));
        MAX_IN_FLIGHT_EXPLANATIONS.min(share).saturating_sub(self.writes.explanation_count())
    }

    /// How many more decisions there will soon be room to write: none while more than half of what may be under way at a time
    /// stands in line decided, and else as many as fill the line up to that.
    pub(crate) fn decision_budget(&self) -> usize {
        let Some(limit) = self.settings.writes.max_in_flight_status_writes else { return usize::MAX };
        let line = self.workload_write_queue.decided.len();
        if line > limit / 2 { 0 } else { limit.saturating_sub(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_priority_order_and_stable_position() {
        let mut turns = WorkloadWriteQueue::default();
        let key = |name: &str| ObjectKey::new("ns", name);
        for (name, sort, priority) in [
            ("told", WritePriority::ExplainPending, 9),
            ("ended", WritePriority::Cleanup, 9),
            ("ends", WritePriority::ReleaseQuota, 9),
            ("a", WritePriority::AdmitOrEvict, 0),
            ("b", WritePriority::AdmitOrEvict, 0),
            ("high", WritePriority::AdmitOrEvict, 5),
        ] {
            turns.push(&key(name), sort, priority, false);
        }
        turns.push(&key("a"), WritePriority::AdmitOrEvict, 0, true);
        turns.push(&key("told"), WritePriority::AdmitOrEvict, 0, false);
        turns.push(&key("last"), WritePriority::ExplainPending, 9, true);
        assert_eq!(turns.first_explanation(), Some(&key("last")));
        turns.remove(&key("last"));
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).map(|key| key.name.to_string()).collect();
        assert_eq!(order, ["high", "told", "a", "b", "ends", "ended"]);
        assert!(turns.positions.is_empty() && turns.decided.is_empty());
    }
}
