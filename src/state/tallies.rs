//! Counts by queue, kept up with each change of a Workload: each counts in one way, and what it counted for before is
//! taken back exactly.

use super::records::WorkloadRecord;
use super::{Item, State};
use crate::api::ObjectKey;
use crate::api::reason::{ConditionType, PendingReason};
use crate::lifecycle::workload::Place;
use crate::lifecycle::{conditions, reservation};
use crate::quota::FlavorResource;
use crate::resources::Amount;
use crate::scheduler::PodSet;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Why a Workload is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unadmitted {
    /// Reason of `Admitted=False`.
    pub reason: &'static str,
    /// Reason of `QuotaReserved=False`, or empty.
    pub underlying_cause: &'static str,
}

/// What the Workloads of a queue come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// Waiting outside the queue.
    pub(super) waiting: usize,
    pub(super) reserving: usize,
    pub(super) admitted: usize,
    pub(super) admitted_usage: BTreeMap<FlavorResource, Amount>,
    pub(super) finished: usize,
    pub(super) unadmitted: BTreeMap<Unadmitted, usize>,
    /// Asked for by those that wait, in the queue or outside.
    requests: BTreeMap<Arc<str>, i128>,
}

/// How a Workload counts.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    cluster_queue: Arc<str>,
    local_queue: ObjectKey,
    standing: Standing,
    unadmitted: Option<Unadmitted>,
}

#[derive(Clone, Debug, PartialEq)]
enum Standing {
    /// In no queue, or a decision about it is under way.
    Out,
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
pub(super) struct Tallies {
    cluster: BTreeMap<Arc<str>, Tally>,
    local: BTreeMap<ObjectKey, Tally>,
    /// How each Workload counts; neighbours that count alike share it.
    entries: BTreeMap<ObjectKey, Arc<Entry>>,
    /// Of queues without Workloads.
    nothing: Tally,
}

impl Tallies {
    pub(super) fn cluster_queue(&self, name: &str) -> &Tally {
        self.cluster.get(name).unwrap_or(&self.nothing)
    }

    pub(super) fn local_queue(&self, key: &ObjectKey) -> &Tally {
        self.local.get(key).unwrap_or(&self.nothing)
    }

    /// LocalQueues whose admitted usage changes when a Workload counts in this way.
    fn changed_usage(&self, key: &ObjectKey, new: Option<&Entry>) -> Vec<ObjectKey> {
        let old = self.entries.get(key).map(AsRef::as_ref);
        if old == new {
            return Vec::new();
        }
        let admitted = |entry: &&Entry| matches!(entry.standing, Standing::Admitted(_));
        old.into_iter().chain(new).filter(admitted).map(|entry| entry.local_queue.clone()).collect()
    }

    /// Counts a Workload in this way from now on. Returns the queues that it counted for before.
    fn count(&mut self, key: &ObjectKey, entry: Option<Entry>) -> Vec<Item> {
        if self.entries.get(key).map(AsRef::as_ref) == entry.as_ref() {
            return Vec::new();
        }
        let old = match entry {
            Some(new) => {
                let new = self.like_neighbours(key, new);
                self.entries.insert(key.clone(), new)
            }
            None => self.entries.remove(key),
        };
        let Self { cluster, local, entries, nothing } = self;
        for (entry, add) in old.iter().map(|old| (old, false)).chain(entries.get(key).map(|new| (new, true)))
        {
            count_in(cluster, &entry.cluster_queue, entry, add, nothing);
            count_in(local, &entry.local_queue, entry, add, nothing);
        }
        let touched = old.map(|old| {
            [Item::ClusterQueue(old.cluster_queue.clone()), Item::LocalQueue(old.local_queue.clone())]
        });
        touched.into_iter().flatten().collect()
    }

    /// The entry of a neighbour by name if it is the same: Workloads of one series mostly count alike.
    fn like_neighbours(&self, key: &ObjectKey, entry: Entry) -> Arc<Entry> {
        let before = self.entries.range(..key).next_back();
        let after = self.entries.range((Bound::Excluded(key), Bound::Unbounded)).next();
        let alike = before.into_iter().chain(after).find(|(_, known)| ***known == entry);
        alike.map_or_else(|| Arc::new(entry), |(_, known)| Arc::clone(known))
    }
}

/// Counts an entry for a queue; one that nothing counts for is not kept.
fn count_in<Q: Ord + Clone>(
    tallies: &mut BTreeMap<Q, Tally>,
    queue: &Q,
    entry: &Entry,
    add: bool,
    nothing: &Tally,
) {
    let tally = tallies.entry(queue.clone()).or_default();
    tally.add(entry, add);
    if tally == nothing {
        tallies.remove(queue);
    }
}

impl Tally {
    /// What those that wait ask for.
    pub(super) fn pending_requests(&self) -> BTreeMap<Arc<str>, Amount> {
        self.requests.iter().map(|(name, sum)| (name.clone(), Amount::from_wide(*sum))).collect()
    }

    fn add(&mut self, entry: &Entry, add: bool) {
        let step = |n: &mut usize| *n = if add { n.saturating_add(1) } else { n.saturating_sub(1) };
        match &entry.standing {
            Standing::Out => {}
            Standing::Queued(asked) => self.ask(asked.as_deref(), add),
            Standing::Waiting(asked) => {
                step(&mut self.waiting);
                self.ask(asked.as_deref(), add);
            }
            Standing::Reserving => step(&mut self.reserving),
            Standing::Admitted(usage) => {
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
            Standing::Finished => step(&mut self.finished),
        }
        if let Some(why) = entry.unadmitted {
            let slot = self.unadmitted.entry(why).or_default();
            step(slot);
            if *slot == 0 {
                self.unadmitted.remove(&why);
            }
        }
    }

    fn ask(&mut self, pod_sets: Option<&[PodSet]>, add: bool) {
        for set in pod_sets.into_iter().flatten() {
            for (resource, amount) in &set.requests {
                let total = amount.wide().saturating_mul(i128::from(set.count));
                let slot = self.requests.entry(resource.clone()).or_default();
                *slot = if add { slot.saturating_add(total) } else { slot.saturating_sub(total) };
                if *slot == 0 {
                    self.requests.remove(resource);
                }
            }
        }
    }
}

impl State {
    /// Counts a Workload as it is now; the queues that it counted for before are touched as well.
    pub(super) fn tally(&mut self, key: &ObjectKey, place: Place, now: Timestamp) {
        let entry = self.workloads.get(key).and_then(|record| self.entry_of(record, place));
        if self.settings.engine.admission_fair_sharing.is_some() {
            for local in self.tallies.changed_usage(key, entry.as_ref()) {
                self.accrue(&local, now);
            }
        }
        for item in self.tallies.count(key, entry) {
            self.queue_clock.touch(item);
        }
        self.touch_queues_of(key);
    }

    fn entry_of(&self, record: &WorkloadRecord, place: Place) -> Option<Entry> {
        let key = &record.meta.key;
        let charge = self.engine.charge_of(key).filter(|c| c.uid == record.meta.uid);
        let charge = charge.filter(|_| reservation::holds_quota(&record.status));
        let name = charge.map(|c| &*c.cluster_queue).or_else(|| self.cluster_queue_name(record))?;
        let known = self.cluster_queues.get_key_value(name).map(|(name, _)| name.clone());
        let local_queue = charge.map(|c| c.local_queue.clone()).or_else(|| record.queue_name.clone())?;
        let asked = || record.effective.pod_sets.clone();
        let standing = match (charge, place) {
            _ if conditions::is_true(&record.status, ConditionType::Finished) => Standing::Finished,
            (Some(charge), _) if conditions::is_true(&record.status, ConditionType::Admitted) => {
                Standing::Admitted(charge.usage.clone())
            }
            (Some(_), _) => Standing::Reserving,
            (None, Place::Queued) => Standing::Queued(asked()),
            (None, Place::Waiting) => Standing::Waiting(asked()),
            (None, Place::Out) => Standing::Out,
        };
        let over = matches!(standing, Standing::Finished | Standing::Admitted(_));
        Some(Entry {
            cluster_queue: known.unwrap_or_else(|| Arc::from(name)),
            local_queue: ObjectKey { namespace: key.namespace.clone(), name: local_queue },
            unadmitted: (!over).then(|| unadmitted(record)),
            standing,
        })
    }
}

/// Why a Workload is not admitted, in the words of its conditions.
fn unadmitted(record: &WorkloadRecord) -> Unadmitted {
    const DELAYED: &str = "PendingDelayedTopologyRequests";
    if conditions::is_true(&record.status, ConditionType::QuotaReserved) {
        let delayed = conditions::reason(&record.status, ConditionType::Admitted) == DELAYED;
        let reason = if delayed { DELAYED } else { "UnsatisfiedAdmissionChecks" };
        return Unadmitted { reason, underlying_cause: "" };
    }
    let said = conditions::reason(&record.status, ConditionType::QuotaReserved);
    let cause = PendingReason::ALL.into_iter().find(|reason| reason.as_str() == said);
    let cause = cause.unwrap_or(PendingReason::PendingEvaluation);
    Unadmitted { reason: "NoReservation", underlying_cause: cause.as_str() }
}
