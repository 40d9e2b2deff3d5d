//! Admission fair sharing: past usage of LocalQueues, which orders their workloads within the ClusterQueue.
//!
//! Invariants: past usage is the integral of usage, decayed by half per half-life, however samples and changes are
//! interleaved; therefore callers pass the old usage to `accrue` before they change it. An admitted workload counts
//! at once by its entry penalty, which becomes part of past usage when its admission is complete. A ledger that does not lead
//! follows the past usage that the leader writes, so that it can go on from there.

use super::config::{AdmissionFairSharing, LocalQueue};
use super::reserving_workloads::ReservingWorkload;
use crate::api::ObjectKey;
use crate::quota::FlavorResource;
use crate::resources::{Amount, to_f64};
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Usage by resource in whole units: cores, bytes.
type UsageByResource = BTreeMap<Arc<str>, f64>;

#[derive(Clone, Debug, Default)]
struct LocalQueueEntry {
    config: LocalQueue,
    /// Penalties of workloads whose admission is not complete yet.
    penalties: BTreeMap<ObjectKey, UsageByResource>,
    /// Past usage as its status has it.
    stored: UsageByResource,
    /// Penalties in past usage that its status does not have yet.
    unstored: Vec<CommittedPenalty>,
    /// Weighted usage as of its last use for an order.
    ordered_by: Option<f64>,
}

/// The entry penalty of a workload whose admission is complete.
#[derive(Clone, Debug)]
struct CommittedPenalty {
    /// When the admission was complete, in whole seconds.
    admitted_at: Timestamp,
    amounts: UsageByResource,
}

/// Past usage of all LocalQueues.
#[derive(Clone, Debug, Default)]
pub(super) struct AfsUsageLedger {
    local_queues: BTreeMap<ObjectKey, LocalQueueEntry>,
    by_cluster_queue: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
    /// LocalQueues by the workloads that they have penalties for.
    penalized_local_queues: BTreeMap<ObjectKey, ObjectKey>,
    /// Whether another ledger leads: past usage follows the statuses that it writes.
    pub(super) follows: bool,
}

impl AfsUsageLedger {
    /// Sets or removes a LocalQueue. A ledger that leads keeps past usage from here, which is newer than the caller's. One that
    /// follows takes that of a newer status, and adds the penalties that are newer still.
    pub(super) fn set(&mut self, key: &ObjectKey, config: Option<LocalQueue>) {
        let old = self.local_queues.remove(key);
        let known = old.is_some();
        if let Some(local_queues) =
            old.as_ref().and_then(|old| self.by_cluster_queue.get_mut(&old.config.cluster_queue))
        {
            local_queues.remove(key);
        }
        let Some(mut config) = config else {
            return;
        };
        self.by_cluster_queue.entry(Arc::clone(&config.cluster_queue)).or_default().insert(key.clone());
        let mut entry = old.unwrap_or_default();
        entry.unstored.retain(|penalty| Some(penalty.admitted_at) > config.stored_at);
        // Several statuses may be of one second.
        let newer = config.stored_at >= entry.config.stored_at
            && (config.stored_at != entry.config.stored_at || config.consumed != entry.stored);
        entry.stored.clone_from(&config.consumed);
        if known && self.follows && newer {
            config.sampled_at = config.stored_at;
            add_all(&mut config.consumed, entry.unstored.iter().flat_map(|penalty| &penalty.amounts));
        } else if known {
            (config.consumed, config.sampled_at) = (entry.config.consumed, entry.config.sampled_at);
        }
        entry.config = config;
        self.local_queues.insert(key.clone(), entry);
    }

    /// LocalQueues that point to a ClusterQueue.
    pub(super) fn local_queues_of(&self, cluster_queue: &str) -> Vec<ObjectKey> {
        self.by_cluster_queue.get(cluster_queue).into_iter().flatten().cloned().collect()
    }

    pub(super) fn get(&self, key: &ObjectKey) -> Option<&LocalQueue> {
        self.local_queues.get(key).map(|local| &local.config)
    }

    /// Past usage of a LocalQueue with penalties, weighted; `None` if it is unknown. It is infinite, never NaN, where there is no number:
    /// such a LocalQueue is the last in order.
    pub(super) fn weighted_usage(&self, key: &ObjectKey, settings: &AdmissionFairSharing) -> Option<f64> {
        let local = self.local_queues.get(key)?;
        let weight = local.config.weight.unwrap_or(1.0);
        if weight <= 0.0 {
            return Some(f64::INFINITY);
        }
        let mut sums = local.config.consumed.clone();
        add_all(&mut sums, local.penalties.values().flatten());
        let weight_of = |resource: &Arc<str>| settings.resource_weights.get(resource).copied().unwrap_or(1.0);
        let sum: f64 = sums.iter().map(|(resource, amount)| weight_of(resource) * amount).sum();
        // The sum of nothing is a negative zero.
        let usage = sum / weight + 0.0;
        Some(if usage.is_nan() { f64::INFINITY } else { usage })
    }

    /// Records the weighted usage by which the workloads of a LocalQueue are ordered from now on. Returns whether it
    /// changed.
    pub(super) fn record_order(&mut self, key: &ObjectKey, usage: Option<f64>) -> bool {
        let Some(local) = self.local_queues.get_mut(key) else {
            return false;
        };
        std::mem::replace(&mut local.ordered_by, usage) != usage
    }

    /// Like `weighted_usage`, for the LocalQueue of a workload with quota.
    pub(super) fn weighted_usage_for(
        &self,
        workload: &ReservingWorkload,
        settings: &AdmissionFairSharing,
    ) -> Option<f64> {
        let name = Arc::clone(&workload.charge.local_queue);
        self.weighted_usage(&ObjectKey { namespace: Arc::clone(&workload.key.namespace), name }, settings)
    }

    /// Adds the entry penalty of a workload that is being admitted.
    pub(super) fn add_penalty(
        &mut self,
        local: &ObjectKey,
        workload: &ObjectKey,
        usage: &BTreeMap<FlavorResource, Amount>,
        settings: &AdmissionFairSharing,
    ) {
        let factor = decayed_fraction(settings.sampling_interval, settings.half_life);
        let mut penalty = UsageByResource::new();
        for (fr, amount) in usage {
            *penalty.entry(Arc::clone(&fr.resource)).or_default() +=
                round_down_to_nano(in_whole_units(&fr.resource, *amount) * factor);
        }
        self.remove_penalty(workload);
        self.local_queues.entry(local.clone()).or_default().penalties.insert(workload.clone(), penalty);
        self.penalized_local_queues.insert(workload.clone(), local.clone());
    }

    /// Removes a penalty. Returns the LocalQueue that had it.
    pub(super) fn remove_penalty(&mut self, workload: &ObjectKey) -> Option<ObjectKey> {
        let local = self.penalized_local_queues.remove(workload)?;
        self.local_queues.get_mut(&local)?.penalties.remove(workload)?;
        Some(local)
    }

    /// The LocalQueue with a penalty for a workload.
    pub(super) fn penalized_local_queue(&self, workload: &ObjectKey) -> Option<&ObjectKey> {
        self.penalized_local_queues.get(workload)
    }

    /// Moves the penalty of a completely admitted workload to past usage. Returns the LocalQueue that had it.
    pub(super) fn commit_penalty(
        &mut self,
        workload: &ObjectKey,
        admitted_at: Timestamp,
    ) -> Option<ObjectKey> {
        let key = self.penalized_local_queues.remove(workload)?;
        let local = self.local_queues.get_mut(&key)?;
        let amounts = local.penalties.remove(workload)?;
        add_all(&mut local.config.consumed, &amounts);
        if amounts.values().any(|amount| *amount > 0.0) {
            local.unstored.push(CommittedPenalty { admitted_at, amounts });
        }
        Some(key)
    }

    /// Adds usage since the last update to past usage. With a half-life of zero it does nothing: past usage then
    /// consists of penalties only, until the next sample clears them.
    pub(super) fn accrue(
        &mut self,
        local: &ObjectKey,
        usage: &BTreeMap<FlavorResource, Amount>,
        settings: &AdmissionFairSharing,
        now: Timestamp,
    ) {
        if let Some(local) = self.local_queues.get_mut(local).filter(|_| !settings.half_life.is_zero()) {
            local.config.accrue(&by_resource(usage), settings.half_life, now);
        }
    }

    /// Starts sampling now unless it has started.
    pub(super) fn begin_sampling(&mut self, local: &ObjectKey, now: Timestamp) {
        if let Some(local) = self.local_queues.get_mut(local) {
            local.config.sampled_at.get_or_insert(now);
        }
    }

    /// Takes a sample of the usage.
    pub(super) fn sample(
        &mut self,
        local: &ObjectKey,
        usage: &BTreeMap<FlavorResource, Amount>,
        settings: &AdmissionFairSharing,
        now: Timestamp,
    ) {
        let Some(local) = self.local_queues.get_mut(local) else { return };
        if settings.half_life.is_zero() {
            local.config.consumed.clear();
            local.config.sampled_at = Some(now);
        } else {
            local.config.accrue(&by_resource(usage), settings.half_life, now);
        }
    }
}

fn add_all<'a>(sums: &mut UsageByResource, amounts: impl IntoIterator<Item = (&'a Arc<str>, &'a f64)>) {
    for (resource, amount) in amounts {
        *sums.entry(Arc::clone(resource)).or_default() += amount;
    }
}

impl LocalQueue {
    /// Updates past usage to `now`, with constant usage `used` since the last update.
    fn accrue(&mut self, used: &UsageByResource, half_life: SignedDuration, now: Timestamp) {
        let since = self.sampled_at.unwrap_or(now);
        let decayed = decayed_fraction(now.duration_since(since).max(SignedDuration::ZERO), half_life);
        for amount in self.consumed.values_mut() {
            *amount *= 1.0 - decayed;
        }
        for (resource, amount) in used {
            *self.consumed.entry(Arc::clone(resource)).or_default() += decayed * amount;
        }
        // A clock set back must not count the same time twice.
        self.sampled_at = Some(since.max(now));
    }
}

fn by_resource(usage: &BTreeMap<FlavorResource, Amount>) -> UsageByResource {
    let mut used = UsageByResource::new();
    for (fr, amount) in usage {
        *used.entry(Arc::clone(&fr.resource)).or_default() += in_whole_units(&fr.resource, *amount);
    }
    used
}

/// Fraction of past usage that decays within `elapsed`.
fn decayed_fraction(elapsed: SignedDuration, half_life: SignedDuration) -> f64 {
    if half_life.is_zero() {
        return 0.0;
    }
    1.0 - 0.5_f64.powf(elapsed.as_secs_f64() / half_life.as_secs_f64())
}

/// Rounds down to 1e-9, as Kueue does, so that ties are the same.
fn round_down_to_nano(amount: f64) -> f64 {
    (amount * 1e9).floor() / 1e9
}

fn in_whole_units(resource: &str, amount: Amount) -> f64 {
    to_f64(amount.to_i128()) / if resource == "cpu" { 1000.0 } else { 1.0 }
}
