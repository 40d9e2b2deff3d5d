//! Priority queue of Workloads waiting for a free in-flight write slot. The status is computed when the slot is
//! granted, from the newest object, so that no write becomes stale while it waits.
//!
//! The order: first Workloads to admit or evict; then Workloads whose job has finished, because quota that is already
//! free is worth more than quota that will be free; then the cleanup of finished Workloads; last pending Workloads,
//! whose write can only set the pending reason. Of eight Workloads at least one releases quota and one is cleaned up, if
//! such wait; pending Workloads have slots of their own. Within one class, the Workload with the higher priority comes
//! first; among equal ones namespaces take turns, so that the end of a thousand jobs of one namespace does not delay the
//! release of another's quota.

use super::assumed::AssumedAdmissions;
use super::round_queue::{Place, RoundQueue};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Cache;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::reconciler::WriteLimits;
use crate::scheduler::Engine;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

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

/// The class that comes first, by number of the Workload taken: however many Workloads are admitted, quota is released too.
const TURNS: [WritePriority; 8] = [
    WritePriority::AdmitOrEvict,
    WritePriority::AdmitOrEvict,
    WritePriority::AdmitOrEvict,
    WritePriority::ReleaseQuota,
    WritePriority::AdmitOrEvict,
    WritePriority::AdmitOrEvict,
    WritePriority::AdmitOrEvict,
    WritePriority::Cleanup,
];

/// Class of a write, and priority of the Workload.
type Urgency = (WritePriority, Reverse<i64>);

/// Workloads waiting for a write slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorkloadWriteQueue {
    queue: RoundQueue<Urgency, ObjectKey>,
    places: BTreeMap<ObjectKey, Place<Urgency>>,
    /// Queued Workloads that the scheduler has decided to admit or to evict.
    decided: BTreeSet<ObjectKey>,
    /// Index into [`TURNS`].
    turn: usize,
}

impl WorkloadWriteQueue {
    /// Adds a Workload, or moves it if class or priority changed.
    fn push(&mut self, key: &ObjectKey, write_priority: WritePriority, priority: i64, decided: bool) {
        if decided {
            self.decided.insert(key.clone());
        } else {
            self.decided.remove(key);
        }
        let urgency = (write_priority, Reverse(priority));
        if let Some(known) = self.places.get(key).copied() {
            if known.class == urgency {
                return;
            }
            self.queue.remove(known);
        }
        let place = self.queue.push(urgency, &key.namespace, key.clone());
        self.places.insert(key.clone(), place);
    }

    /// Returns the Workloads, the most urgent first, each with the class of its write and its priority.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&ObjectKey, &'static str, i64)> {
        self.queue.iter().map(|(place, key)| {
            let (write_priority, Reverse(priority)) = place.class;
            (key, write_priority.as_str(), priority)
        })
    }

    /// Removes and returns the next Workload.
    pub(crate) fn pop(&mut self) -> Option<ObjectKey> {
        let in_turn = TURNS.get(self.turn).and_then(|class| self.first_of(*class));
        self.turn = self.turn.saturating_add(1).checked_rem(TURNS.len()).unwrap_or_default();
        self.take(in_turn.or_else(|| self.queue.first())?)
    }

    /// Returns the first Workload of a class.
    fn first_of(&self, write_priority: WritePriority) -> Option<Place<Urgency>> {
        let first = self.queue.first_from((write_priority, Reverse(i64::MAX)))?;
        (first.class.0 == write_priority).then_some(first)
    }

    /// Removes and returns the first Workload whose write can only set the pending reason.
    pub(crate) fn pop_explanation(&mut self) -> Option<ObjectKey> {
        let place = self.first_of(WritePriority::ExplainPending)?;
        self.take(place)
    }

    fn take(&mut self, place: Place<Urgency>) -> Option<ObjectKey> {
        let (_, key) = self.queue.take_first(place.class)?;
        self.places.remove(&key);
        self.decided.remove(&key);
        Some(key)
    }

    /// Returns whether a Workload is queued whose write can only set the pending reason.
    pub(crate) fn has_explanation(&self) -> bool {
        self.first_of(WritePriority::ExplainPending).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.places.clear();
        self.decided.clear();
    }

    /// Adds a Workload. A victim gets the priority of its preemptor.
    pub(crate) fn enqueue(
        &mut self,
        key: &ObjectKey,
        cache: &Cache,
        engine: &Engine,
        assumed: &AssumedAdmissions,
    ) {
        let own = || cache.workload(key).map_or(0, |record| record.effective_priority());
        let preemption = engine.preemption_of(key);
        let is_assumed = assumed.contains(key);
        let decided = preemption.is_some() || is_assumed;
        // The preemptor waits for the eviction of its victim: the write is as urgent as the preemptor.
        let preemptor = preemption.and_then(|preemption| {
            let record = cache.workload(&preemption.preemptor)?;
            Some(record.effective_priority())
        });
        let write_priority =
            if is_assumed { WritePriority::AdmitOrEvict } else { write_priority(key, cache, engine) };
        self.push(key, write_priority, preemptor.unwrap_or_else(own), decided);
    }

    /// Returns how many decisions can soon be written: 0 while the decided Workloads in the queue exceed half of the write slots,
    /// otherwise the number of slots minus these Workloads.
    pub(crate) fn decision_budget(&self, limits: &WriteLimits) -> usize {
        let Some(limit) = limits.max_in_flight_status_writes else { return usize::MAX };
        let decided = self.decided.len();
        if decided > limit / 2 { 0 } else { limit.saturating_sub(decided) }
    }
}

/// Returns the class of the next write of a Workload without a decision to admit.
fn write_priority(key: &ObjectKey, cache: &Cache, engine: &Engine) -> WritePriority {
    if engine.workload(key).is_some() {
        return WritePriority::ExplainPending;
    }
    let is_job_finished =
        |record: &WorkloadRecord| cache.job_of(record).is_some_and(|(_, job)| job.status.finished.is_some());
    match cache.workload(key) {
        Some(record) if conditions::is_true(&record.status, ConditionType::Finished) => {
            WritePriority::Cleanup
        }
        Some(record) if is_job_finished(record) => WritePriority::ReleaseQuota,
        _ => WritePriority::AdmitOrEvict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(queue: &mut WorkloadWriteQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).map(|key| key.name.to_string()).collect()
    }

    #[test]
    fn write_priority_order_and_stable_position() {
        let mut queue = WorkloadWriteQueue::default();
        let key = |name: &str| ObjectKey::new("ns", name);
        for (name, write_priority, priority) in [
            ("explained", WritePriority::ExplainPending, 9),
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
        assert_eq!(queue.pop_explanation(), Some(key("explained")));
        assert_eq!(order(&mut queue), ["high", "a", "b", "finishing", "pending", "finished", "last"]);
        assert!(queue.places.is_empty() && queue.decided.is_empty());
    }

    #[test]
    fn quota_is_released_while_workloads_are_admitted() {
        let mut queue = WorkloadWriteQueue::default();
        for number in 0..1000 {
            queue.push(&ObjectKey::new("noisy", &format!("a{number}")), WritePriority::AdmitOrEvict, 0, true);
            queue.push(
                &ObjectKey::new("noisy", &format!("r{number}")),
                WritePriority::ReleaseQuota,
                0,
                false,
            );
        }
        queue.push(&ObjectKey::new("quiet", "finishing"), WritePriority::ReleaseQuota, 0, false);
        queue.push(&ObjectKey::new("quiet", "finished"), WritePriority::Cleanup, 0, false);
        let first: Vec<String> = order(&mut queue).into_iter().take(2 * TURNS.len()).collect();
        assert!(
            ["finishing", "finished"].iter().all(|name| first.iter().any(|taken| taken == name)),
            "{first:?}"
        );
    }
}
