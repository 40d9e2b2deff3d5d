//! Counts by queue, kept up with each change of a Workload: each counts in one way, and what it counted for before is
//! taken back exactly.

use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::workload::QueueMembership;
use crate::lifecycle::{conditions, reservation};
use crate::quota::FlavorResource;
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::resources::Amount;
use crate::scheduler::PodSet;
use crate::snapshot::UnadmittedKey;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What the Workloads of a queue come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct QueueCounts {
    /// Waiting outside the queue.
    pub(crate) waiting: usize,
    pub(crate) reserving: usize,
    pub(crate) admitted: usize,
    pub(crate) admitted_usage: BTreeMap<FlavorResource, Amount>,
    pub(crate) finished: usize,
    pub(crate) unadmitted: BTreeMap<UnadmittedKey, usize>,
    /// Asked for by those that wait, in the queue or outside.
    requested: BTreeMap<Arc<str>, i128>,
}

/// How a Workload counts.
#[derive(Clone, Debug, PartialEq)]
struct CountedWorkload {
    cluster_queue: Arc<str>,
    local_queue: ObjectKey,
    state: CountedState,
    unadmitted: Option<UnadmittedKey>,
}

#[derive(Clone, Debug, PartialEq)]
enum CountedState {
    /// In no queue, or a decision about it is under way.
    NotCounted,
    /// In the queue, asking for this.
    Queued(Option<Arc<[PodSet]>>),
    /// Waiting for something else than its turn.
    Waiting(Option<Arc<[PodSet]>>),
    /// Holding quota.
    Reserving,
    /// Admitted, holding this.
    Admitted(BTreeMap<FlavorResource, Amount>),
    /// Over.
    Finished,
}

/// Counts by queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueueCountIndex {
    by_cluster_queue: BTreeMap<Arc<str>, QueueCounts>,
    by_local_queue: BTreeMap<ObjectKey, QueueCounts>,
    /// How each Workload counts; neighbours that count alike share it.
    entries: BTreeMap<ObjectKey, Arc<CountedWorkload>>,
    /// Of queues without Workloads.
    empty: QueueCounts,
}

impl QueueCountIndex {
    pub(crate) fn cluster_queue(&self, name: &str) -> &QueueCounts {
        self.by_cluster_queue.get(name).unwrap_or(&self.empty)
    }

    pub(crate) fn local_queue(&self, key: &ObjectKey) -> &QueueCounts {
        self.by_local_queue.get(key).unwrap_or(&self.empty)
    }

    /// LocalQueues whose admitted usage changes when a Workload counts in this way.
    fn queues_with_changed_usage(&self, key: &ObjectKey, new: Option<&CountedWorkload>) -> Vec<ObjectKey> {
        let old = self.entries.get(key).map(AsRef::as_ref);
        if old == new {
            return Vec::new();
        }
        let admitted = |entry: &&CountedWorkload| matches!(entry.state, CountedState::Admitted(_));
        old.into_iter().chain(new).filter(admitted).map(|entry| entry.local_queue.clone()).collect()
    }

    /// Counts a Workload in this way from now on. Returns the queues that it counted for before.
    fn set(&mut self, key: &ObjectKey, entry: Option<CountedWorkload>) -> Vec<ReconcileKey> {
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
        let Self { by_cluster_queue: cluster, by_local_queue: local, entries, empty: nothing } = self;
        for (entry, add) in old.iter().map(|old| (old, false)).chain(entries.get(key).map(|new| (new, true)))
        {
            update_queue(cluster, &entry.cluster_queue, entry, add, nothing);
            update_queue(local, &entry.local_queue, entry, add, nothing);
        }
        let touched = old.map(|old| {
            [
                ReconcileKey::ClusterQueue(old.cluster_queue.clone()),
                ReconcileKey::LocalQueue(old.local_queue.clone()),
            ]
        });
        touched.into_iter().flatten().collect()
    }

    /// The entry of a neighbour by name if it is the same: Workloads of one series mostly count alike.
    fn shared_with_neighbours(&self, key: &ObjectKey, entry: CountedWorkload) -> Arc<CountedWorkload> {
        let before = self.entries.range(..key).next_back();
        let after = self.entries.range((Bound::Excluded(key), Bound::Unbounded)).next();
        let alike = before.into_iter().chain(after).find(|(_, known)| ***known == entry);
        alike.map_or_else(|| Arc::new(entry), |(_, known)| Arc::clone(known))
    }
}

/// Counts an entry for a queue; one that nothing counts for is not kept.
fn update_queue<Q: Ord + Clone>(
    tallies: &mut BTreeMap<Q, QueueCounts>,
    queue: &Q,
    entry: &CountedWorkload,
    add: bool,
    nothing: &QueueCounts,
) {
    let tally = tallies.entry(queue.clone()).or_default();
    tally.apply(entry, add);
    if tally == nothing {
        tallies.remove(queue);
    }
}

impl QueueCounts {
    /// What those that wait ask for.
    pub(crate) fn pending_requests(&self) -> BTreeMap<Arc<str>, Amount> {
        self.requested.iter().map(|(name, sum)| (name.clone(), Amount::saturating_from_i128(*sum))).collect()
    }

    fn apply(&mut self, entry: &CountedWorkload, add: bool) {
        let step = |n: &mut usize| *n = if add { n.saturating_add(1) } else { n.saturating_sub(1) };
        match &entry.state {
            CountedState::NotCounted => {}
            CountedState::Queued(asked) => self.apply_requests(asked.as_deref(), add),
            CountedState::Waiting(asked) => {
                step(&mut self.waiting);
                self.apply_requests(asked.as_deref(), add);
            }
            CountedState::Reserving => step(&mut self.reserving),
            CountedState::Admitted(usage) => {
                step(&mut self.reserving);
                step(&mut self.admitted);
                for (cell, amount) in usage {
                    let slot = self.admitted_usage.entry(cell.clone()).or_insert(Amount::ZERO);
                    *slot = if add { slot.plus(*amount) } else { slot.minus(*amount) };
                }
                if self.admitted == 0 {
                    self.admitted_usage.clear();
                }
            }
            CountedState::Finished => step(&mut self.finished),
        }
        if let Some(why) = entry.unadmitted {
            let slot = self.unadmitted.entry(why).or_default();
            step(slot);
            if *slot == 0 {
                self.unadmitted.remove(&why);
            }
        }
    }

    fn apply_requests(&mut self, pod_sets: Option<&[PodSet]>, add: bool) {
        for set in pod_sets.into_iter().flatten() {
            for (resource, amount) in &set.requests {
                let total = amount.to_i128().saturating_mul(i128::from(set.count));
                let slot = self.requested.entry(resource.clone()).or_default();
                *slot = if add { slot.saturating_add(total) } else { slot.saturating_sub(total) };
                if *slot == 0 {
                    self.requested.remove(resource);
                }
            }
        }
    }
}

impl Reconciler {
    /// Counts a Workload as it is now; the queues that it counted for before are touched as well.
    pub(crate) fn update_counts(&mut self, key: &ObjectKey, place: QueueMembership, now: Timestamp) {
        let entry = self.cache.workload(key).and_then(|record| self.to_counted_workload(record, place));
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
        place: QueueMembership,
    ) -> Option<CountedWorkload> {
        let key = &record.meta.key;
        let charge = self.engine.charge_of(key).filter(|c| c.uid == record.meta.uid);
        let charge = charge.filter(|_| reservation::holds_quota(&record.status));
        let name = charge.map(|c| &*c.cluster_queue).or_else(|| self.cache.cluster_queue_name(record))?;
        let local_queue = charge.map(|c| c.local_queue.clone()).or_else(|| record.queue_name.clone())?;
        let asked = || record.effective_requests.pod_sets.clone();
        let standing = match (charge, place) {
            _ if conditions::is_true(&record.status, ConditionType::Finished) => CountedState::Finished,
            (Some(charge), _) if conditions::is_true(&record.status, ConditionType::Admitted) => {
                CountedState::Admitted(charge.usage.clone())
            }
            (Some(_), _) => CountedState::Reserving,
            (None, QueueMembership::Queued) => CountedState::Queued(asked()),
            (None, QueueMembership::Waiting) => CountedState::Waiting(asked()),
            (None, QueueMembership::NotQueued) => CountedState::NotCounted,
        };
        let over = matches!(standing, CountedState::Finished | CountedState::Admitted(_));
        Some(CountedWorkload {
            cluster_queue: self.cache.interned_cluster_queue_name(name),
            local_queue: ObjectKey { namespace: key.namespace.clone(), name: local_queue },
            unadmitted: (!over).then(|| unadmitted_key(record)),
            state: standing,
        })
    }
}

/// Why a Workload is not admitted, in the words of its conditions.
fn unadmitted_key(record: &WorkloadRecord) -> UnadmittedKey {
    const DELAYED: &str = "PendingDelayedTopologyRequests";
    if conditions::is_true(&record.status, ConditionType::QuotaReserved) {
        let delayed = conditions::reason(&record.status, ConditionType::Admitted) == DELAYED;
        let reason = if delayed { DELAYED } else { "UnsatisfiedAdmissionChecks" };
        return UnadmittedKey { reason, underlying_cause: "" };
    }
    let said = conditions::reason(&record.status, ConditionType::QuotaReserved);
    let cause = PendingReason::ALL.into_iter().find(|reason| reason.as_str() == said);
    let cause = cause.unwrap_or(PendingReason::PendingEvaluation);
    UnadmittedKey { reason: "NoReservation", underlying_cause: cause.as_str() }
}
