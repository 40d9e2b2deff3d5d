//! Status of ClusterQueues and LocalQueues: what they hold, at most once in an interval each, at once when the first
//! workload comes or the last goes. A status that says what the object says already is not written.

use super::interface::{Kind, Verb};
use super::writes::{Purpose, Request};
use super::{Item, State};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{FlavorUsage, ResourceUsage, StopPolicy};
use crate::lifecycle::{backoff, conditions};
use crate::quota::{FlavorResource, NodeRef};
use crate::resources::{self, Amount};
use crate::scheduler::PendingCounts;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Queues whose status may be out of date, and when each was last written.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    dirty: BTreeSet<Item>,
    written: BTreeMap<Item, Timestamp>,
}

impl Clock {
    pub(super) fn touch(&mut self, item: Item) {
        self.dirty.insert(item);
    }
}

/// How many workloads a queue has, and how much they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Waiting outside the queue.
    pub(super) waiting: usize,
    pub(super) reserving: usize,
    pub(super) admitted: usize,
    pub(super) admitted_usage: BTreeMap<FlavorResource, Amount>,
}

impl State {
    /// Notes that the queues of a Workload may have changed.
    pub(super) fn touch_queues_of(&mut self, key: &ObjectKey) {
        let Some(record) = self.workloads.get(key) else {
            return;
        };
        let cluster = self.cluster_queue_name(record).map(Arc::from);
        if let Some(queue) = record.local_queue() {
            self.queue_clock.touch(Item::LocalQueue(queue));
        }
        if let Some(name) = cluster {
            let deleting =
                self.cluster_queues.get(&name).is_some_and(|q: &super::ClusterQueueRecord| q.meta.deleting);
            if deleting {
                self.timers.wake(Item::ClusterQueue(name.clone()), Timestamp::UNIX_EPOCH);
            }
            self.queue_clock.touch(Item::ClusterQueue(name));
        }
    }

    /// Counts a Workload as it is now; the queues that it counted for before are touched as well.
    pub(super) fn tally(&mut self, key: &ObjectKey) {
        for item in self.tallies.update(key, self.workloads.get(key), &self.engine) {
            self.queue_clock.touch(item);
        }
        self.touch_queues_of(key);
    }

    /// Writes the statuses that are due.
    pub(super) fn flush_queue_status(&mut self, now: Timestamp) {
        for item in std::mem::take(&mut self.queue_clock.dirty) {
            let due = self
                .queue_clock
                .written
                .get(&item)
                .map(|t| backoff::after(*t, self.settings.queue_status_interval));
            let (kind, key) = match &item {
                Item::ClusterQueue(name) => (Kind::ClusterQueue, ObjectKey::cluster(name)),
                Item::LocalQueue(key) => (Kind::LocalQueue, key.clone()),
                _ => continue,
            };
            // Before its time only a change from or to zero, or of the queue's state, is worth the work.
            if let Some(due) = due.filter(|due| *due > now && !self.is_turning(kind, &key)) {
                self.queue_clock.dirty.insert(item.clone());
                self.timers.wake(item, due);
                continue;
            }
            let wanted = match kind {
                Kind::ClusterQueue => self.cluster_queue_status(&key.name, now),
                _ => self.local_queue_status(&key, now),
            };
            let Some((version, status)) = wanted else { continue };
            if !self.writes.may_write(kind, &key, now) {
                // The end of the write under way, or of the wait, brings it back.
                if let Some(until) = self.writes.waits_until(kind, &key).filter(|until| *until > now) {
                    self.queue_clock.dirty.insert(item.clone());
                    self.timers.wake(item, until);
                }
                continue;
            }
            self.queue_clock.written.insert(item, now);
            let body = json!({"metadata": {"resourceVersion": version}, "status": status});
            let purpose = Purpose::QueueStatus;
            let request = Request {
                kind,
                key,
                verb: Verb::Merge,
                subresource: Some("status"),
                body,
                purpose,
                tell: Vec::new(),
                on_behalf_of: None,
            };
            self.send(request);
        }
    }

    /// Whether a count comes from or goes to zero, or the queue becomes active or inactive.
    fn is_turning(&self, kind: Kind, key: &ObjectKey) -> bool {
        let (counts, conditions, active) = if kind == Kind::ClusterQueue {
            let Some(record) = self.cluster_queues.get(&key.name) else { return false };
            let status = &record.object.status;
            let tally = self.tallies.cluster_queue(&key.name);
            let waiting = count(self.engine.pending(&key.name)).saturating_add(tally.waiting);
            let counts = [
                (status.pending_workloads, waiting),
                (status.reserving_workloads, tally.reserving),
                (status.admitted_workloads, tally.admitted),
            ];
            (counts, &status.conditions, self.engine.inactive_reason(&key.name).is_none())
        } else {
            let Some(record) = self.local_queues.get(key) else { return false };
            let status = &record.object.status;
            let tally = self.tallies.local_queue(key);
            let waiting =
                count(self.engine.local_pending(&key.namespace, &key.name)).saturating_add(tally.waiting);
            let counts = [
                (status.pending_workloads, waiting),
                (status.reserving_workloads, tally.reserving),
                (status.admitted_workloads, tally.admitted),
            ];
            (counts, &status.conditions, self.local_queue_state(record).0)
        };
        let told = conditions.iter().any(|c| c.type_ == "Active" && (c.status == "True") == active);
        !told || counts.iter().any(|(old, new)| (*old == 0) != (*new == 0))
    }

    /// Whether a LocalQueue admits, and the words for it.
    fn local_queue_state(&self, record: &super::LocalQueueRecord) -> (bool, &'static str, &'static str) {
        let target = record.object.spec.cluster_queue.as_deref().unwrap_or_default();
        if record.object.spec.stop_policy.unwrap_or_default() != StopPolicy::None {
            (false, "Stopped", "LocalQueue is stopped")
        } else if !self.cluster_queues.contains_key(target) {
            (false, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
        } else if self.engine.inactive_reason(target).is_some() {
            (false, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
        } else {
            (true, "Ready", "Can submit new workloads to localQueue")
        }
    }

    /// Version and new status; nothing when the status stands already.
    fn cluster_queue_status(&self, name: &Arc<str>, now: Timestamp) -> Option<(String, Value)> {
        let record = self.cluster_queues.get(name)?;
        let old = &record.object.status;
        let pending = self.engine.pending(name);
        let tally = self.tallies.cluster_queue(name);
        let usage = self.engine.usage(&NodeRef::ClusterQueue(name.clone()));
        let reserved: BTreeMap<FlavorResource, Amount> =
            usage.iter().map(|(fr, u)| (fr.clone(), u.usage)).collect();
        let nominal: BTreeMap<FlavorResource, Amount> =
            usage.iter().map(|(fr, u)| (fr.clone(), u.subtree)).collect();
        let cohort = record.object.spec.cohort_name.is_some();
        let borrowed = |fr: &FlavorResource, used: Amount| {
            let own = nominal.get(fr).copied().unwrap_or(Amount::ZERO);
            Some(if cohort { used.minus(own).max(Amount::ZERO) } else { Amount::ZERO })
        };
        let cells: Vec<FlavorResource> = cells_of(&record.object.spec.resource_groups);
        let mut new = old.clone();
        new.flavors_reservation = usage_list(&cells, &reserved, borrowed);
        new.flavors_usage = usage_list(&cells, &tally.admitted_usage, borrowed);
        new.pending_workloads = int(count(pending).saturating_add(tally.waiting));
        new.reserving_workloads = int(tally.reserving);
        new.admitted_workloads = int(tally.admitted);
        let active = self.engine.inactive_reason(name);
        let (holds, reason, message) =
            active.as_ref().map_or((true, "Ready", "Can admit new workloads"), |i| {
                (false, i.reason.as_ref(), i.message.as_ref())
            });
        set_active(&mut new.conditions, holds, reason, message, record.meta.generation, now);
        if new == *old {
            return None;
        }
        Some((record.meta.resource_version.clone(), serde_json::to_value(&new).ok()?))
    }

    fn local_queue_status(&self, key: &ObjectKey, now: Timestamp) -> Option<(String, Value)> {
        let record = self.local_queues.get(key)?;
        let old = &record.object.status;
        let target = record.object.spec.cluster_queue.as_deref().unwrap_or_default();
        let queue = self.cluster_queues.get(target);
        let tally = self.tallies.local_queue(key);
        let mut new = old.clone();
        let (holds, reason, message) = self.local_queue_state(record);
        let cells = queue.map(|q| cells_of(&q.object.spec.resource_groups)).unwrap_or_default();
        let reserved = self.engine.local_usage(&key.namespace, &key.name);
        new.flavors_reservation = usage_list(&cells, &reserved, |_, _| None);
        new.flavors_usage = usage_list(&cells, &tally.admitted_usage, |_, _| None);
        new.pending_workloads =
            int(count(self.engine.local_pending(&key.namespace, &key.name)).saturating_add(tally.waiting));
        new.reserving_workloads = int(tally.reserving);
        new.admitted_workloads = int(tally.admitted);
        set_active(&mut new.conditions, holds, reason, message, record.meta.generation, now);
        if new == *old {
            return None;
        }
        Some((record.meta.resource_version.clone(), serde_json::to_value(&new).ok()?))
    }
}

/// Counts by queue, kept up with each change of a Workload.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    cluster: BTreeMap<Arc<str>, Tally>,
    local: BTreeMap<ObjectKey, Tally>,
    /// What each Workload counts for.
    entries: BTreeMap<ObjectKey, Entry>,
    /// Workloads that wait for something else than their turn.
    waiting: BTreeMap<ObjectKey, Queues>,
}

/// The queues of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Queues {
    cluster_queue: Arc<str>,
    local_queue: ObjectKey,
}

impl Queues {
    pub(super) fn of(record: &super::WorkloadRecord, cluster_queue: Option<&str>) -> Option<Self> {
        Some(Self { cluster_queue: Arc::from(cluster_queue?), local_queue: record.local_queue()? })
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    cluster_queue: Arc<str>,
    local_queue: ObjectKey,
    admitted: bool,
    usage: BTreeMap<FlavorResource, Amount>,
}

impl Tallies {
    /// Counts a Workload as it is now.
    pub(super) fn update(
        &mut self,
        key: &ObjectKey,
        record: Option<&super::WorkloadRecord>,
        engine: &crate::scheduler::Engine,
    ) -> Vec<Item> {
        let entry = record.and_then(|record| {
            let charge = engine.charge_of(key).filter(|c| c.uid == record.meta.uid)?;
            crate::lifecycle::reservation::holds_quota(&record.status).then(|| Entry {
                cluster_queue: charge.cluster_queue.clone(),
                local_queue: ObjectKey { namespace: key.namespace.clone(), name: charge.local_queue.clone() },
                admitted: conditions::is_true(&record.status, ConditionType::Admitted),
                usage: charge.usage.clone(),
            })
        });
        let mut touched = Vec::new();
        if self.entries.get(key) == entry.as_ref() {
            return touched;
        }
        if let Some(old) = self.entries.remove(key) {
            self.count(&old, false);
            touched.extend([Item::ClusterQueue(old.cluster_queue), Item::LocalQueue(old.local_queue)]);
        }
        if let Some(new) = entry {
            self.count(&new, true);
            self.entries.insert(key.clone(), new);
        }
        touched
    }

    /// Notes that a Workload waits outside the queue, or no longer does.
    pub(super) fn wait(&mut self, key: &ObjectKey, queues: Option<Queues>) {
        if self.waiting.get(key) == queues.as_ref() {
            return;
        }
        if let Some(old) = self.waiting.remove(key) {
            self.count_waiting(&old, false);
        }
        if let Some(new) = queues {
            self.count_waiting(&new, true);
            self.waiting.insert(key.clone(), new);
        }
    }

    fn count_waiting(&mut self, queues: &Queues, add: bool) {
        let cluster = self.cluster.entry(queues.cluster_queue.clone()).or_default();
        let local = self.local.entry(queues.local_queue.clone()).or_default();
        for tally in [cluster, local] {
            tally.waiting =
                if add { tally.waiting.saturating_add(1) } else { tally.waiting.saturating_sub(1) };
        }
    }

    pub(super) fn cluster_queue(&self, name: &str) -> Tally {
        self.cluster.get(name).cloned().unwrap_or_default()
    }

    pub(super) fn local_queue(&self, key: &ObjectKey) -> Tally {
        self.local.get(key).cloned().unwrap_or_default()
    }

    fn count(&mut self, entry: &Entry, add: bool) {
        let cluster = self.cluster.entry(entry.cluster_queue.clone()).or_default();
        let local = self.local.entry(entry.local_queue.clone()).or_default();
        for tally in [cluster, local] {
            let step = |n: &mut usize| *n = if add { n.saturating_add(1) } else { n.saturating_sub(1) };
            step(&mut tally.reserving);
            if entry.admitted {
                step(&mut tally.admitted);
                for (cell, amount) in &entry.usage {
                    let slot = tally.admitted_usage.entry(cell.clone()).or_insert(Amount::ZERO);
                    *slot = if add { slot.plus(*amount) } else { slot.minus(*amount) };
                }
            }
        }
    }
}

fn cells_of(groups: &[crate::api::v1beta2::ResourceGroup]) -> Vec<FlavorResource> {
    let of_flavor = |f: &crate::api::v1beta2::FlavorQuotas| {
        let flavor: Arc<str> = Arc::from(f.name.as_str());
        let cell = |r: &crate::api::v1beta2::ResourceQuota| FlavorResource {
            flavor: flavor.clone(),
            resource: Arc::from(r.name.as_str()),
        };
        f.resources.iter().map(cell).collect::<Vec<_>>()
    };
    groups.iter().flat_map(|g| g.flavors.iter().flat_map(of_flavor)).collect()
}

/// Usage in the order of the queue's flavors.
fn usage_list(
    cells: &[FlavorResource],
    used: &BTreeMap<FlavorResource, Amount>,
    borrowed: impl Fn(&FlavorResource, Amount) -> Option<Amount>,
) -> Vec<FlavorUsage> {
    let mut list: Vec<FlavorUsage> = Vec::new();
    for cell in cells {
        let amount = used.get(cell).copied().unwrap_or(Amount::ZERO);
        let text = |a: Amount| Quantity(resources::quantity_text(&cell.resource, a));
        let usage = ResourceUsage {
            name: cell.resource.to_string(),
            total: Some(text(amount)),
            borrowed: borrowed(cell, amount).map(text),
        };
        match list.iter_mut().find(|f| *f.name == *cell.flavor) {
            Some(flavor) => flavor.resources.push(usage),
            None => list.push(FlavorUsage { name: cell.flavor.to_string(), resources: vec![usage] }),
        }
    }
    list
}

fn set_active(
    list: &mut Vec<Condition>,
    holds: bool,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    let status = if holds { "True" } else { "False" };
    let fresh = |time| Condition {
        type_: "Active".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: time,
        observed_generation: Some(generation),
    };
    match list.iter_mut().find(|c| c.type_ == "Active") {
        Some(c) if c.status == status && c.reason == reason && c.message == message => {}
        Some(c) => {
            let time =
                if c.status == status { c.last_transition_time.clone() } else { conditions::stored(now) };
            *c = fresh(time);
        }
        None => list.push(fresh(conditions::stored(now))),
    }
}

fn count(pending: PendingCounts) -> usize {
    pending.active.saturating_add(pending.inadmissible)
}

fn int(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
