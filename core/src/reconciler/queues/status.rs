//! Status of ClusterQueues, LocalQueues and Cohorts. Counts and usage are written at most once per interval and queue,
//! and less often while the rate limit is exhausted; a change of the condition `Active` is written immediately. A
//! status that the object already has is not written.

use super::counts::QueueCounts;
use super::{QueueKey, QueueState, QueueStatuses, QueueUpdates};
use crate::api::ObjectKey;
use crate::api::v1beta2::{FlavorUsage, ResourceUsage, StopPolicy};
use crate::cache::records::{LocalQueueRecord, Meta};
use crate::cache::{Cache, Kind};
use crate::lifecycle::{backoff, conditions};
use crate::quota::{FlavorResource, NodeRef, borrowed};
use crate::reconciler::CoreSettings;
use crate::reconciler::messages::{Verb, WriteClass};
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use crate::reconciler::writes::in_flight::Writes;
use crate::reconciler::writes::request::{WritePurpose, WriteRequest};
use crate::reconciler::writes::status_rate_limit::StatusRateLimiter;
use crate::resources::{self, Amount};
use crate::scheduler::{Engine, PendingCounts};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum backoff of a queue's status in intervals: also while the rate limit stays exhausted, each status is written
/// that often.
const MAX_BACKOFF_FACTOR: i32 = 4;

/// Queues whose status may be out of date, and when each was last written.
#[derive(Clone, Debug, Default)]
pub(super) struct StatusSchedule {
    stale: BTreeSet<QueueKey>,
    last_writes: BTreeMap<QueueKey, LastWrite>,
}

/// The last write of a queue's status.
#[derive(Clone, Copy, Debug)]
struct LastWrite {
    at: Timestamp,
    /// Minimum time from this write to the next.
    backoff: SignedDuration,
}

impl StatusSchedule {
    pub(super) fn mark_stale(&mut self, queue: QueueKey) {
        self.stale.insert(queue);
    }

    fn take_stale(&mut self) -> BTreeSet<QueueKey> {
        std::mem::take(&mut self.stale)
    }

    /// Returns when the next write is permitted; `None` if none was sent before.
    fn next_write_at(&self, queue: &QueueKey) -> Option<Timestamp> {
        self.last_writes.get(queue).map(|written| backoff::after(written.at, written.backoff))
    }

    fn record_write(&mut self, queue: QueueKey, interval: SignedDuration, now: Timestamp) {
        self.last_writes.insert(queue, LastWrite { at: now, backoff: interval });
    }

    /// Doubles the backoff after the last write, up to the maximum. Returns its end if that is in the future.
    fn extend_backoff(
        &mut self,
        queue: &QueueKey,
        interval: SignedDuration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let written = self.last_writes.get_mut(queue)?;
        let longest = interval.saturating_mul(MAX_BACKOFF_FACTOR);
        written.backoff = written.backoff.saturating_mul(2).min(longest);
        Some(backoff::after(written.at, written.backoff)).filter(|due| *due > now)
    }
}

/// Numbers of workloads in the status of a queue.
#[derive(Clone, Copy, Debug)]
struct StatusCounts {
    pending: i32,
    reserving: i32,
    admitted: i32,
}

impl StatusCounts {
    fn new(pending: PendingCounts, counts: &QueueCounts) -> Self {
        let pending = pending.active.saturating_add(pending.inadmissible).saturating_add(counts.waiting);
        Self {
            pending: to_i32(pending),
            reserving: to_i32(counts.reserving),
            admitted: to_i32(counts.admitted),
        }
    }
}

impl QueueUpdates<'_> {
    /// Marks the statuses that depend on a Workload, or on the quota of a removed one.
    pub(crate) fn mark_queues_of(&mut self, key: &ObjectKey) {
        let Some(record) = self.cache.workload(key).or_else(|| self.cache.vanished(key)) else {
            return;
        };
        let cluster_queue: Option<Arc<str>> = self.cache.cluster_queue_name(record).map(Arc::from);
        if let Some(queue) = record.local_queue() {
            self.queues.mark_status_stale(QueueKey::LocalQueue(queue));
        }
        if let Some(name) = cluster_queue {
            if self.cache.cluster_queue(&name).is_some_and(|queue| queue.meta.is_deleting()) {
                self.work_queue.add_at(ReconcileKey::named(Kind::ClusterQueue, &name), Timestamp::UNIX_EPOCH);
            }
            self.mark_ancestor_cohorts(&name);
            self.queues.mark_status_stale(QueueKey::ClusterQueue(name));
        }
    }
}

/// What is needed to send the statuses of queues.
pub(crate) struct StatusFlush<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
    pub(crate) engine: &'a Engine,
    pub(crate) queues: &'a mut QueueState,
    pub(crate) writes: &'a mut Writes,
    pub(crate) work_queue: &'a mut WorkQueue,
    pub(crate) rate_limiter: &'a mut StatusRateLimiter,
}

impl StatusFlush<'_> {
    const fn statuses(&self) -> QueueStatuses<'_> {
        QueueStatuses { cache: self.cache, settings: self.settings, engine: self.engine, queues: self.queues }
    }

    /// Sends the stale statuses that may be written now. The others are added to the work queue for later.
    pub(crate) fn run(&mut self, now: Timestamp) {
        let stale = self.queues.status_schedule.take_stale();
        let Some(interval) = self.settings.writes.queue_status_interval else { return };
        for queue in stale {
            self.send(queue, interval, now);
        }
    }

    fn send(&mut self, queue: QueueKey, interval: SignedDuration, now: Timestamp) {
        let item = queue.reconcile_key();
        // A timer marks the queue again when the status is due: until then no status is computed.
        let due = self.queues.status_schedule.next_write_at(&queue).filter(|due| *due > now);
        let activity_changed = self.statuses().activity_changed(&queue);
        if let Some(due) = due.filter(|_| !activity_changed) {
            return self.work_queue.add_at(item, due);
        }
        let statuses = self.statuses();
        let body = match &queue {
            QueueKey::ClusterQueue(name) => statuses.cluster_queue_status(name, now),
            QueueKey::Cohort(name) => statuses.cohort_status(name),
            QueueKey::LocalQueue(key) => statuses.local_queue_status(key, now),
        };
        let Some(body) = body else { return };
        if !activity_changed
            && self.rate_limiter.available(now) == 0
            && let Some(due) = self.queues.status_schedule.extend_backoff(&queue, interval, now)
        {
            return self.work_queue.add_at(item, due);
        }
        let (kind, key) = item.written_object();
        if !self.writes.may_write(kind, &key, now) {
            return self.writes.retry_after_backoff((kind, &key), item, self.work_queue, now);
        }
        self.queues.status_schedule.record_write(queue, interval, now);
        self.rate_limiter.consume(now);
        let request = WriteRequest::new(kind, key, Verb::Merge, body).of_status();
        let (purpose, class) = (WritePurpose::QueueStatus, WriteClass::QueueStatus);
        self.writes.start(WriteRequest { purpose, class, ..request }, now);
    }
}

impl QueueStatuses<'_> {
    fn cluster_queue_status_counts(&self, name: &str) -> StatusCounts {
        StatusCounts::new(self.engine.pending(name), self.queues.cluster_queue_counts(name))
    }

    fn local_queue_status_counts(&self, key: &ObjectKey) -> StatusCounts {
        let target =
            self.cache.local_queue(key).and_then(|record| record.object.spec.cluster_queue.as_deref());
        let pending = self.engine.local_pending(target.unwrap_or_default(), key);
        StatusCounts::new(pending, self.queues.local_queue_counts(key))
    }

    /// Returns whether the condition `Active` must change its status.
    fn activity_changed(&self, queue: &QueueKey) -> bool {
        let (conditions, active) = match queue {
            QueueKey::ClusterQueue(name) => {
                let Some(record) = self.cache.cluster_queue(name) else { return false };
                (&record.object.status.conditions, self.engine.inactive_reason(name).is_none())
            }
            QueueKey::LocalQueue(key) => {
                let Some(record) = self.cache.local_queue(key) else { return false };
                (&record.object.status.conditions, self.local_queue_activity(record).active)
            }
            QueueKey::Cohort(_) => return false,
        };
        !conditions.iter().any(|c| c.type_ == "Active" && (c.status == "True") == active)
    }

    fn local_queue_activity(&self, record: &LocalQueueRecord) -> ActiveCondition<'static> {
        let target = record.object.spec.cluster_queue.as_deref().unwrap_or_default();
        let (active, reason, message) =
            if self.cache.unreadable().problem(Kind::LocalQueue, &record.meta.key).is_some() {
                (false, "Unreadable", "LocalQueue cannot be read; an event names the field")
            } else if record.object.spec.stop_policy.unwrap_or_default() != StopPolicy::None {
                (false, "Stopped", "LocalQueue is stopped")
            } else if self.cache.cluster_queue(target).is_none() {
                (false, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
            } else if self.engine.inactive_reason(target).is_some() {
                (false, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
            } else {
                (true, "Ready", "Can submit new workloads to localQueue")
            };
        ActiveCondition { active, reason, message }
    }

    /// Returns the patch of the status; `None` if the object already has that status.
    fn cluster_queue_status(&self, name: &Arc<str>, now: Timestamp) -> Option<Value> {
        let record = self.cache.cluster_queue(name)?;
        let old = &record.object.status;
        let counts = self.cluster_queue_status_counts(name);
        let queue_counts = self.queues.cluster_queue_counts(name);
        let usage = self.engine.usage(&NodeRef::ClusterQueue(name.clone()));
        let reserved: BTreeMap<FlavorResource, Amount> =
            usage.iter().map(|(fr, u)| (fr.clone(), u.usage)).collect();
        let nominal: BTreeMap<FlavorResource, Amount> =
            usage.iter().map(|(fr, u)| (fr.clone(), u.subtree_quota)).collect();
        let cohort = record.object.spec.cohort_name.is_some();
        let borrows = |fr: &FlavorResource, used: Amount| {
            let own = nominal.get(fr).copied().unwrap_or(Amount::ZERO);
            Some(Amount::saturating_from_i128(borrowed(used.to_i128(), own.to_i128(), cohort)))
        };
        let flavor_resources: Vec<FlavorResource> = flavor_resources_of(record.object.quota_groups());
        let mut new = old.clone();
        new.flavors_reservation = usage_list(&flavor_resources, &reserved, borrows);
        new.flavors_usage = usage_list(&flavor_resources, &queue_counts.admitted_usage, borrows);
        new.fair_sharing = self.weighted_share_status(&NodeRef::ClusterQueue(name.clone()));
        new.pending_workloads = counts.pending;
        new.reserving_workloads = counts.reserving;
        new.admitted_workloads = counts.admitted;
        let inactive = self.engine.inactive_reason(name);
        let ready = ActiveCondition { active: true, reason: "Ready", message: "Can admit new workloads" };
        let condition = inactive.as_ref().map_or(ready, |inactive| ActiveCondition {
            active: false,
            reason: &inactive.reason,
            message: &inactive.message,
        });
        set_active_condition(&mut new.conditions, condition, record.meta.generation, now);
        let dropped = new.fair_sharing.is_none() && old.fair_sharing.is_some();
        let share = if dropped { Share::Dropped } else { Share::Kept };
        (new != *old).then(|| to_merge_patch(&record.meta, &new, share)).flatten()
    }

    fn local_queue_status(&self, key: &ObjectKey, now: Timestamp) -> Option<Value> {
        let record = self.cache.local_queue(key)?;
        let old = &record.object.status;
        let target = record.object.spec.cluster_queue.as_deref().unwrap_or_default();
        let queue = self.cache.cluster_queue(target);
        let queue_counts = self.queues.local_queue_counts(key);
        let mut new = old.clone();
        let condition = self.local_queue_activity(record);
        let flavor_resources =
            queue.map(|q| flavor_resources_of(q.object.quota_groups())).unwrap_or_default();
        let reserved = self.engine.local_usage(&key.namespace, &key.name);
        new.flavors_reservation = usage_list(&flavor_resources, &reserved, |_, _| None);
        new.flavors_usage = usage_list(&flavor_resources, &queue_counts.admitted_usage, |_, _| None);
        new.fair_sharing = self.past_usage_status(key, old.fair_sharing.as_ref());
        let counts = self.local_queue_status_counts(key);
        new.pending_workloads = counts.pending;
        new.reserving_workloads = counts.reserving;
        new.admitted_workloads = counts.admitted;
        set_active_condition(&mut new.conditions, condition, record.meta.generation, now);
        let dropped = new.fair_sharing.is_none() && old.fair_sharing.is_some();
        let share = if dropped { Share::Dropped } else { Share::Kept };
        (new != *old).then(|| to_merge_patch(&record.meta, &new, share)).flatten()
    }
}

/// Whether a status has the weighted share that the object has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    Kept,
    Dropped,
}

/// Returns the merge patch of a status. A dropped share is set to null explicitly: a merge patch keeps missing fields.
pub(super) fn to_merge_patch(meta: &Meta, status: &impl Serialize, share: Share) -> Option<Value> {
    let mut status = serde_json::to_value(status).ok()?;
    if share == Share::Dropped {
        status.as_object_mut()?.insert("fairSharing".to_owned(), Value::Null);
    }
    Some(json!({"metadata": {"resourceVersion": meta.resource_version}, "status": status}))
}

fn flavor_resources_of(groups: &[crate::api::v1beta2::ResourceGroup]) -> Vec<FlavorResource> {
    let of_flavor = |f: &crate::api::v1beta2::FlavorQuotas| {
        let flavor: Arc<str> = Arc::from(f.name.as_str());
        let flavor_resource = |r: &crate::api::v1beta2::ResourceQuota| FlavorResource {
            flavor: flavor.clone(),
            resource: Arc::from(r.name.as_str()),
        };
        f.resources.iter().map(flavor_resource).collect::<Vec<_>>()
    };
    groups.iter().flat_map(|g| g.flavors.iter().flat_map(of_flavor)).collect()
}

/// Returns usage in the order of the queue's flavors and resources.
fn usage_list(
    flavor_resources: &[FlavorResource],
    used: &BTreeMap<FlavorResource, Amount>,
    borrowed: impl Fn(&FlavorResource, Amount) -> Option<Amount>,
) -> Vec<FlavorUsage> {
    let mut list: Vec<FlavorUsage> = Vec::new();
    for fr in flavor_resources {
        let amount = used.get(fr).copied().unwrap_or(Amount::ZERO);
        let text = |a: Amount| Quantity(resources::format_quantity(&fr.resource, a));
        let usage = ResourceUsage {
            name: fr.resource.to_string(),
            total: Some(text(amount)),
            borrowed: borrowed(fr, amount).map(text),
        };
        match list.iter_mut().find(|f| *f.name == *fr.flavor) {
            Some(flavor) => flavor.resources.push(usage),
            None => list.push(FlavorUsage { name: fr.flavor.to_string(), resources: vec![usage] }),
        }
    }
    list
}

/// The condition `Active` of a queue, a check or a MultiKueueCluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveCondition<'a> {
    pub(super) active: bool,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

/// Sets the condition `Active`. The transition time changes only with the status.
pub(super) fn set_active_condition(
    conditions: &mut Vec<Condition>,
    new: ActiveCondition<'_>,
    generation: i64,
    now: Timestamp,
) {
    let ActiveCondition { active, reason, message } = new;
    let status = if active { "True" } else { "False" };
    let condition_at = |last_transition_time| Condition {
        type_: "Active".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time,
        observed_generation: Some(generation),
    };
    match conditions.iter_mut().find(|c| c.type_ == "Active") {
        Some(c) if c.status == status && c.reason == reason && c.message == message => {}
        Some(c) => {
            let time = if c.status == status {
                c.last_transition_time.clone()
            } else {
                conditions::to_api_time(now)
            };
            *c = condition_at(time);
        }
        None => conditions.push(condition_at(conditions::to_api_time(now))),
    }
}

fn to_i32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
