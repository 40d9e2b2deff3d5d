//! Counts and usage by queue, updated with each change of a Workload. Each Workload counts in one state; its previous
//! contribution is subtracted exactly before the new one is added.

use super::{QueueKey, QueueUpdates};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::workload::QueueMembership;
use crate::lifecycle::{conditions, reservation};
use crate::quota::FlavorResource;
use crate::reconciler::scheduler_input::SchedulerInput;
use crate::resources::Amount;
use crate::scheduler::PodSet;
use crate::snapshot::UnadmittedKey;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Counts and usage of the Workloads of a queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QueueCounts {
    /// Pending Workloads that are not queued.
    pub(crate) waiting: usize,
    pub(crate) reserving: usize,
    pub(crate) admitted: usize,
    pub(crate) admitted_usage: BTreeMap<FlavorResource, Amount>,
    pub(crate) finished: usize,
    pub(crate) unadmitted: BTreeMap<UnadmittedKey, usize>,
    /// Total requests of pending Workloads, queued or not.
    requested: BTreeMap<Arc<str>, i128>,
}

/// Contribution of a Workload to the counts of its queues.
#[derive(Clone, Debug, PartialEq)]
struct CountedWorkload {
    cluster_queue: Arc<str>,
    local_queue: ObjectKey,
    state: CountedState,
    unadmitted: Option<UnadmittedKey>,
}

#[derive(Clone, Debug, PartialEq)]
enum CountedState {
    /// In no queue, or a decision on the Workload is in flight.
    NotCounted,
    /// Queued, with these requests.
    Queued(Option<Arc<[PodSet]>>),
    /// Pending but not queued, with these requests.
    Waiting(Option<Arc<[PodSet]>>),
    /// Quota reserved, not admitted.
    Reserving,
    /// Admitted, with this usage.
    Admitted(BTreeMap<FlavorResource, Amount>),
    Finished,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct QueueCountIndex {
    by_cluster_queue: BTreeMap<Arc<str>, QueueCounts>,
    by_local_queue: BTreeMap<ObjectKey, QueueCounts>,
    /// Contribution of each Workload; neighbours by name with equal contributions share one value.
    entries: BTreeMap<ObjectKey, Arc<CountedWorkload>>,
    /// Counts of queues without Workloads.
    empty: QueueCounts,
}

impl QueueCountIndex {
    pub(crate) fn cluster_queue(&self, name: &str) -> &QueueCounts {
        self.by_cluster_queue.get(name).unwrap_or(&self.empty)
    }

    pub(crate) fn local_queue(&self, key: &ObjectKey) -> &QueueCounts {
        self.by_local_queue.get(key).unwrap_or(&self.empty)
    }

    /// Returns whether a Workload is counted as an admitted one.
    pub(crate) fn counts_as_admitted(&self, key: &ObjectKey) -> bool {
        self.entries.get(key).is_some_and(|entry| matches!(entry.state, CountedState::Admitted(_)))
    }

    /// Returns why workloads are not admitted, by LocalQueue.
    pub(crate) fn unadmitted(&self) -> impl Iterator<Item = (&ObjectKey, &BTreeMap<UnadmittedKey, usize>)> {
        let counts = self.by_local_queue.iter().map(|(key, counts)| (key, &counts.unadmitted));
        counts.filter(|(_, unadmitted)| !unadmitted.is_empty())
    }

    /// Returns the LocalQueues whose admitted usage changes if a Workload contributes `new`.
    fn queues_with_changed_usage(&self, key: &ObjectKey, new: Option<&CountedWorkload>) -> Vec<ObjectKey> {
        let old = self.entries.get(key).map(AsRef::as_ref);
        if old == new {
            return Vec::new();
        }
        let admitted = |entry: &&CountedWorkload| matches!(entry.state, CountedState::Admitted(_));
        old.into_iter().chain(new).filter(admitted).map(|entry| entry.local_queue.clone()).collect()
    }

    /// Sets or removes the contribution of a Workload. Returns the queues that it contributed to before, if it changed.
    fn set(&mut self, key: &ObjectKey, entry: Option<CountedWorkload>) -> Vec<QueueKey> {
        if self.entries.get(key).map(AsRef::as_ref) == entry.as_ref() {
            return Vec::new();
        }
        let old = match entry {
            Some(new) => {
                let new = self.shared_with_neighbours(key, new);
                self.entries.insert(key.clone(), new)
            }
            None => self.entries.remove(key),
        };
        let Self { by_cluster_queue: cluster, by_local_queue: local, entries, empty } = self;
        let removed = old.iter().map(|old| (old, Sign::Minus));
        for (entry, sign) in removed.chain(entries.get(key).map(|new| (new, Sign::Plus))) {
            update_queue(cluster, &entry.cluster_queue, entry, sign, empty);
            update_queue(local, &entry.local_queue, entry, sign, empty);
        }
        let previous = old.map(|old| {
            [QueueKey::ClusterQueue(old.cluster_queue.clone()), QueueKey::LocalQueue(old.local_queue.clone())]
        });
        previous.into_iter().flatten().collect()
    }

    /// Returns the entry of a neighbour by name if it is equal: Workloads with consecutive names often contribute
    /// equally.
    fn shared_with_neighbours(&self, key: &ObjectKey, entry: CountedWorkload) -> Arc<CountedWorkload> {
        let before = self.entries.range(..key).next_back();
        let after = self.entries.range((Bound::Excluded(key), Bound::Unbounded)).next();
        let equal = before.into_iter().chain(after).find(|(_, known)| ***known == entry);
        equal.map_or_else(|| Arc::new(entry), |(_, known)| Arc::clone(known))
    }
}

/// Whether an entry is added to counts or subtracted from them.
#[derive(Clone, Copy, Debug)]
enum Sign {
    Plus,
    Minus,
}

impl Sign {
    fn step(self, count: &mut usize) {
        *count = match self {
            Self::Plus => count.saturating_add(1),
            Self::Minus => count.saturating_sub(1),
        };
    }
}

/// Adds an entry to the counts of a queue, or subtracts it. Counts that become empty are removed.
fn update_queue<Q: Ord + Clone>(
    by_queue: &mut BTreeMap<Q, QueueCounts>,
    queue: &Q,
    entry: &CountedWorkload,
    sign: Sign,
    empty: &QueueCounts,
) {
    let counts = by_queue.entry(queue.clone()).or_default();
    counts.apply(entry, sign);
    if counts == empty {
        by_queue.remove(queue);
    }
}

impl QueueCounts {
    /// Returns the total requests of pending Workloads, by resource.
    pub(crate) fn pending_requests(&self) -> BTreeMap<Arc<str>, Amount> {
        self.requested.iter().map(|(name, sum)| (name.clone(), Amount::saturating_from_i128(*sum))).collect()
    }

    fn apply(&mut self, entry: &CountedWorkload, sign: Sign) {
        match &entry.state {
            CountedState::NotCounted => {}
            CountedState::Queued(pod_sets) => self.apply_requests(pod_sets.as_deref(), sign),
            CountedState::Waiting(pod_sets) => {
                sign.step(&mut self.waiting);
                self.apply_requests(pod_sets.as_deref(), sign);
            }
            CountedState::Reserving => sign.step(&mut self.reserving),
            CountedState::Admitted(usage) => {
                sign.step(&mut self.reserving);
                sign.step(&mut self.admitted);
                for (fr, amount) in usage {
                    let slot = self.admitted_usage.entry(fr.clone()).or_insert(Amount::ZERO);
                    *slot = match sign {
                        Sign::Plus => slot.plus(*amount),
                        Sign::Minus => slot.minus(*amount),
                    };
                }
                if self.admitted == 0 {
                    self.admitted_usage.clear();
                }
            }
            CountedState::Finished => sign.step(&mut self.finished),
        }
        if let Some(why) = entry.unadmitted {
            let slot = self.unadmitted.entry(why).or_default();
            sign.step(slot);
            if *slot == 0 {
                self.unadmitted.remove(&why);
            }
        }
    }

    fn apply_requests(&mut self, pod_sets: Option<&[PodSet]>, sign: Sign) {
        for set in pod_sets.into_iter().flatten() {
            for (resource, amount) in &set.requests {
                let total = amount.to_i128().saturating_mul(i128::from(set.count));
                let slot = self.requested.entry(resource.clone()).or_default();
                *slot = match sign {
                    Sign::Plus => slot.saturating_add(total),
                    Sign::Minus => slot.saturating_sub(total),
                };
                if *slot == 0 {
                    self.requested.remove(resource);
                }
            }
        }
    }
}

impl QueueUpdates<'_> {
    /// Updates the counts for a Workload as it is now. Marks the statuses of the queues that it counted in before and
    /// counts in now.
    pub(crate) fn update_counts(&mut self, key: &ObjectKey, membership: QueueMembership, now: Timestamp) {
        let entry = self.cache.workload(key).and_then(|record| self.to_counted_workload(record, membership));
        if self.settings.engine.admission_fair_sharing.is_some() {
            for local in self.queues.counts.queues_with_changed_usage(key, entry.as_ref()) {
                self.accrue_afs_usage(&local, now);
            }
        }
        for item in self.queues.counts.set(key, entry) {
            self.queues.mark_status_stale(item);
        }
        self.mark_queues_of(key);
    }

    fn to_counted_workload(
        &self,
        record: &WorkloadRecord,
        membership: QueueMembership,
    ) -> Option<CountedWorkload> {
        let key = &record.meta.key;
        let charge = self.engine.charge_of(key).filter(|c| c.uid == record.meta.uid);
        let charge = charge.filter(|_| reservation::holds_quota(&record.status));
        let name = charge.map(|c| &*c.cluster_queue).or_else(|| self.cache.cluster_queue_name(record));
        // A Workload whose LocalQueue is missing waits as well, although in no ClusterQueue.
        let name =
            name.or_else(|| (!conditions::is_true(&record.status, ConditionType::Finished)).then_some(""))?;
        let local_queue = charge.map(|c| c.local_queue.clone()).or_else(|| record.queue_name.clone())?;
        let input = SchedulerInput { cache: self.cache, settings: self.settings };
        let pod_sets = || input.pod_sets_left(record);
        let state = match (charge, membership) {
            _ if conditions::is_true(&record.status, ConditionType::Finished) => CountedState::Finished,
            (Some(charge), _) if conditions::is_true(&record.status, ConditionType::Admitted) => {
                CountedState::Admitted(charge.usage.clone())
            }
            (Some(_), _) => CountedState::Reserving,
            (None, QueueMembership::Queued) => CountedState::Queued(pod_sets()),
            (None, QueueMembership::Waiting) => CountedState::Waiting(pod_sets()),
            (None, QueueMembership::NotQueued) => CountedState::NotCounted,
        };
        let unadmitted = !matches!(state, CountedState::Finished | CountedState::Admitted(_));
        Some(CountedWorkload {
            cluster_queue: self.cache.interned_cluster_queue_name(name),
            local_queue: ObjectKey { namespace: key.namespace.clone(), name: local_queue },
            unadmitted: unadmitted.then(|| unadmitted_key(record)),
            state,
        })
    }
}

/// Returns why a Workload is not admitted, as the reasons of its conditions.
fn unadmitted_key(record: &WorkloadRecord) -> UnadmittedKey {
    const DELAYED: &str = "PendingDelayedTopologyRequests";
    if conditions::is_true(&record.status, ConditionType::QuotaReserved) {
        let delayed = conditions::reason(&record.status, ConditionType::Admitted) == DELAYED;
        let reason = if delayed { DELAYED } else { "UnsatisfiedAdmissionChecks" };
        return UnadmittedKey { reason, underlying_cause: "" };
    }
    let current = conditions::reason(&record.status, ConditionType::QuotaReserved);
    let cause = PendingReason::ALL.into_iter().find(|reason| reason.as_str() == current);
    let cause = cause.unwrap_or(PendingReason::PendingEvaluation);
    UnadmittedKey { reason: "NoReservation", underlying_cause: cause.as_str() }
}
