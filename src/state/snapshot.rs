//! What readers outside the core see: an immutable picture, shared by reference and renewed as the core goes.
//!
//! Parts that change rarely are rebuilt when they change; the tables of queues at most once in a while; the index of jobs
//! is a persistent map, so that publishing it costs nothing.

use super::records::OwnerRecord;
use super::tallies::{QueueCounts, UnadmittedKey};
use super::{Kind, Reconciler};
use crate::api::ObjectKey;
use crate::api::names;
use crate::jobs::JobView;
use crate::quota::{FlavorResource, NodeRef, NodeUsage};
use crate::resources::Amount;
use crate::scheduler::PendingCounts;
use jiff::{SignedDuration, Timestamp};
use rpds::RedBlackTreeMapSync;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Least time between two pictures for each queue in them, once there are hundreds.
const MIN_INTERVAL_PER_QUEUE: SignedDuration = SignedDuration::from_millis(1);
/// Stands for the queue of an object whose queue is known to its own controller alone.
const EXTERNAL_QUEUE: &str = "external";

/// An immutable picture of the core.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Whether this replica may write.
    pub leading: bool,
    /// Whether all lists are complete.
    pub synced: bool,
    /// Whether the lists that webhooks answer from are complete.
    pub reviews_synced: bool,
    /// Objects that reviews refer to.
    pub references: Arc<References>,
    /// Queues and cohorts with what they hold.
    pub queues: Arc<QueueView>,
    /// Quotas whose use in the ledger is not what the objects say, at the last comparison.
    pub ledger_drift: usize,
    /// Jobs, as owners of other jobs: by kind and key.
    pub owners: RedBlackTreeMapSync<(usize, ObjectKey), Arc<OwnerEntry>>,
    /// Objects of kinds that another controller queues for us and that own a Workload: by group, kind and key.
    pub external_owners: RedBlackTreeMapSync<(String, String, ObjectKey), Arc<OwnerEntry>>,
}

/// Objects that reviews refer to.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// Labels of the namespaces.
    pub namespaces: BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>>,
    /// LocalQueues, and whether each leads to other clusters.
    pub local_queues: BTreeMap<ObjectKey, bool>,
    /// Whether a WorkloadPriorityClass named `default` exists.
    pub default_priority_class: bool,
}

/// A job as the owner of other jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnerEntry {
    /// Its UID.
    pub uid: Arc<str>,
    /// Its LocalQueue.
    pub queue_name: Option<Arc<str>>,
    /// Its own controller.
    pub controller: Option<crate::jobs::OwnerRef>,
}

/// Queues and cohorts with what they hold.
#[derive(Clone, Debug, Default)]
pub struct QueueView {
    /// ClusterQueues by name.
    pub cluster_queues: BTreeMap<Arc<str>, ClusterQueueView>,
    /// LocalQueues by key.
    pub local_queues: BTreeMap<ObjectKey, LocalQueueView>,
    /// Cohorts by name.
    pub cohorts: BTreeMap<Arc<str>, CohortView>,
}

/// A ClusterQueue with what it holds.
#[derive(Clone, Debug, Default)]
pub struct ClusterQueueView {
    /// The cohort above it.
    pub parent: Option<Arc<str>>,
    /// Whether it admits.
    pub active: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Workloads that wait.
    pub pending: PendingCounts,
    /// Different scheduling hashes of workloads in the queue.
    pub pending_hashes: PendingCounts,
    /// Preemptors that the last cycle that skipped any has skipped, because others needed the same.
    pub preemption_skips: Option<usize>,
    /// Workloads that hold a reservation.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// Limits and usage.
    pub usage_by_flavor_resource: BTreeMap<FlavorResource, NodeUsage>,
    /// Usage by admitted workloads.
    pub admitted_usage: BTreeMap<FlavorResource, Amount>,
    /// Workloads that have finished and still exist.
    pub finished: usize,
    /// What workloads that wait ask for, by resource.
    pub pending_requests: BTreeMap<Arc<str>, Amount>,
    /// Workloads that are not admitted, by why.
    pub unadmitted: BTreeMap<UnadmittedKey, usize>,
    /// Weighted share, while fair sharing is on.
    pub weighted_share: Option<i64>,
}

/// A LocalQueue with what it holds.
#[derive(Clone, Debug, Default)]
pub struct LocalQueueView {
    /// Where it leads.
    pub cluster_queue: Arc<str>,
    /// Whether it admits.
    pub active: bool,
    /// Workloads that wait.
    pub pending: PendingCounts,
    /// Workloads that hold a reservation.
    pub reserving: usize,
    /// Workloads that are admitted.
    pub admitted: usize,
    /// Usage by workloads that hold a reservation.
    pub reserved_usage: BTreeMap<FlavorResource, Amount>,
    /// Usage by admitted workloads.
    pub admitted_usage: BTreeMap<FlavorResource, Amount>,
    /// Whether metrics tell of it.
    pub exported: bool,
    /// Workloads that have finished and still exist.
    pub finished: usize,
    /// Workloads that are not admitted, by why.
    pub unadmitted: BTreeMap<UnadmittedKey, usize>,
    /// What it has used by weight, while admission fair sharing is on.
    pub past_usage: Option<f64>,
}

/// A Cohort with what its subtree holds.
#[derive(Clone, Debug, Default)]
pub struct CohortView {
    /// The cohort above it.
    pub parent: Option<Arc<str>>,
    /// Limits and usage.
    pub usage_by_flavor_resource: BTreeMap<FlavorResource, NodeUsage>,
    /// Weighted share, while fair sharing is on.
    pub weighted_share: Option<i64>,
}

/// The parts of the last snapshot, and which of them are out of date.
#[derive(Clone, Debug, Default)]
pub(super) struct SnapshotBuilder {
    current: Snapshot,
    references_stale: bool,
    queues_updated_at: Option<Timestamp>,
    drift_checked_at: Option<Timestamp>,
}

impl SnapshotBuilder {
    pub(super) fn mark_references_stale(&mut self) {
        self.references_stale = true;
    }

    pub(super) fn set_job(&mut self, kind: usize, view: &JobView) {
        let entry = OwnerEntry {
            uid: view.uid.clone(),
            queue_name: view.queue_name.clone(),
            controller: view.controller.clone(),
        };
        let id = (kind, view.key.clone());
        if self.current.owners.get(&id).is_none_or(|known| **known != entry) {
            self.current.owners.insert_mut(id, Arc::new(entry));
        }
    }

    /// An object that another controller queues for us has a Workload, or has none any more.
    pub(super) fn set_external_owner(&mut self, namespace: &Arc<str>, owner: &OwnerRecord, queued: bool) {
        let key = ObjectKey { namespace: namespace.clone(), name: owner.name.clone() };
        let id = (owner.group().to_owned(), owner.kind.to_string(), key);
        if queued {
            let uid = owner.uid.clone();
            let entry = OwnerEntry { uid, queue_name: Some(Arc::from(EXTERNAL_QUEUE)), controller: None };
            self.current.external_owners.insert_mut(id, Arc::new(entry));
        } else if self.current.external_owners.get(&id).is_some_and(|known| known.uid == owner.uid) {
            self.current.external_owners.remove_mut(&id);
        }
    }

    pub(super) fn remove_job(&mut self, kind: usize, key: &ObjectKey) {
        self.current.owners.remove_mut(&(kind, key.clone()));
    }
}

impl Reconciler {
    /// The picture as of the last `apply`.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot_builder.current.clone()
    }

    /// Brings the picture up to date.
    pub(super) fn update_snapshot(&mut self, now: Timestamp) {
        let synced = self.is_synced();
        self.snapshot_builder.current.leading = self.leading;
        self.snapshot_builder.current.synced = synced;
        let mut for_reviews = self.kinds.iter().filter(|kind| kind.is_used_by_webhooks());
        self.snapshot_builder.current.reviews_synced =
            for_reviews.all(|kind| self.listed_kinds.contains(kind));
        if std::mem::take(&mut self.snapshot_builder.references_stale) {
            self.snapshot_builder.current.references = Arc::new(self.build_references());
        }
        // Many queues are renewed less often: the work for each second stays the same.
        let number = self.cluster_queues.len().saturating_add(self.local_queues.len());
        let pause = self
            .settings
            .snapshot_interval
            .max(MIN_INTERVAL_PER_QUEUE.saturating_mul(i32::try_from(number).unwrap_or(i32::MAX)));
        let due = self.snapshot_builder.queues_updated_at.is_none_or(|t| now.duration_since(t) >= pause);
        if synced && due {
            self.snapshot_builder.queues_updated_at = Some(now);
            self.snapshot_builder.current.queues = Arc::new(self.queue_view());
        }
        if synced
            && self
                .snapshot_builder
                .drift_checked_at
                .is_none_or(|t| now.duration_since(t) >= self.settings.drift_check_interval)
        {
            self.snapshot_builder.drift_checked_at = Some(now);
            self.snapshot_builder.current.ledger_drift = self.ledger_drift();
        }
    }

    /// Quotas of ClusterQueues whose use in the ledger is not the sum of what the objects say and of what is assumed.
    /// Before all lists are complete nothing is charged, and nothing has drifted.
    pub fn ledger_drift(&self) -> usize {
        if !self.is_synced() {
            return 0;
        }
        let mut sums: BTreeMap<Arc<str>, BTreeMap<FlavorResource, i128>> = BTreeMap::new();
        for (key, record) in &self.workloads {
            let assumed = || self.engine.charge_of(key).filter(|_| self.assumed.contains_key(key)).cloned();
            let Some(charge) = self.charge_from_admission(record).or_else(assumed) else { continue };
            let sum = sums.entry(charge.cluster_queue).or_default();
            for (cell, amount) in charge.usage {
                let slot = sum.entry(cell).or_default();
                *slot = slot.saturating_add(amount.to_i128());
            }
        }
        let mut drift = 0_usize;
        for name in self.cluster_queues.keys() {
            let mut told = sums.remove(name).unwrap_or_default();
            for (cell, usage) in self.engine.usage(&NodeRef::ClusterQueue(name.clone())) {
                let objects = told.remove(&cell).unwrap_or_default();
                drift =
                    drift.saturating_add(usize::from(Amount::saturating_from_i128(objects) != usage.usage));
            }
            drift = drift.saturating_add(told.values().filter(|left| **left != 0).count());
        }
        drift
    }

    fn build_references(&self) -> References {
        let remote = |target: &str| {
            self.cluster_queues.get(target).is_some_and(|q| {
                let rules = q.object.spec.admission_checks_strategy.iter().flat_map(|s| &s.admission_checks);
                rules
                    .filter_map(|rule| self.admission_checks.get(rule.name.as_str()))
                    .any(|check| check.object.spec.controller_name == names::MULTIKUEUE_CONTROLLER)
            })
        };
        References {
            namespaces: self.namespaces.clone(),
            local_queues: self
                .local_queues
                .iter()
                .filter(|(_, q)| !q.meta.deleting)
                .map(|(key, q)| {
                    (key.clone(), remote(q.object.spec.cluster_queue.as_deref().unwrap_or_default()))
                })
                .collect(),
            default_priority_class: self.workload_priority_classes.contains_key(names::DEFAULT_NAME),
        }
    }

    fn queue_view(&self) -> QueueView {
        QueueView {
            cluster_queues: self
                .cluster_queues
                .iter()
                .map(|(name, record)| {
                    let tally = self.queue_counts.cluster_queue(name);
                    let view = ClusterQueueView {
                        parent: record.object.spec.cohort_name.as_deref().map(Arc::from),
                        active: self.engine.inactive_reason(name).is_none(),
                        terminating: record.meta.deleting,
                        pending: with_waiting(self.engine.pending(name), tally),
                        pending_hashes: self.engine.pending_hashes(name),
                        preemption_skips: self.engine.preemption_skips(name),
                        reserving: tally.reserving,
                        admitted: tally.admitted,
                        usage_by_flavor_resource: self.engine.usage(&NodeRef::ClusterQueue(name.clone())),
                        admitted_usage: tally.admitted_usage.clone(),
                        finished: tally.finished,
                        pending_requests: tally.pending_requests(),
                        unadmitted: tally.unadmitted.clone(),
                        weighted_share: self.weighted_share(&NodeRef::ClusterQueue(name.clone())),
                    };
                    (name.clone(), view)
                })
                .collect(),
            local_queues: self
                .local_queues
                .iter()
                .map(|(key, r)| (key.clone(), self.local_queue_view(key, r)))
                .collect(),
            cohorts: self.cohort_views(),
        }
    }

    fn local_queue_view(&self, key: &ObjectKey, record: &super::LocalQueueRecord) -> LocalQueueView {
        let tally = self.queue_counts.local_queue(key);
        let target: Arc<str> = Arc::from(record.object.spec.cluster_queue.as_deref().unwrap_or_default());
        let stopped =
            record.object.spec.stop_policy.unwrap_or_default() != crate::api::v1beta2::StopPolicy::None;
        LocalQueueView {
            active: !stopped
                && self.cluster_queues.contains_key(&target)
                && self.engine.inactive_reason(&target).is_none(),
            pending: with_waiting(self.engine.local_pending(&target, key), tally),
            cluster_queue: target,
            exported: self.is_local_queue_exported(record),
            finished: tally.finished,
            unadmitted: tally.unadmitted.clone(),
            reserving: tally.reserving,
            admitted: tally.admitted,
            reserved_usage: self.engine.local_usage(&key.namespace, &key.name),
            admitted_usage: tally.admitted_usage.clone(),
            past_usage: self.engine.weighted_past_usage(key),
        }
    }

    fn cohort_views(&self) -> BTreeMap<Arc<str>, CohortView> {
        let view = |(node, parent): (&NodeRef, Option<&NodeRef>)| {
            let NodeRef::Cohort(name) = node else { return None };
            let parent = parent.and_then(|p| match p {
                NodeRef::Cohort(name) => Some(name.clone()),
                NodeRef::ClusterQueue(_) => None,
            });
            let cells = self.engine.usage(node);
            Some((
                name.clone(),
                CohortView {
                    parent,
                    usage_by_flavor_resource: cells,
                    weighted_share: self.weighted_share(node),
                },
            ))
        };
        self.engine.nodes().filter_map(view).collect()
    }
}

/// Those that wait for something else than their turn count with those that are parked.
fn with_waiting(pending: PendingCounts, tally: &QueueCounts) -> PendingCounts {
    PendingCounts { inadmissible: pending.inadmissible.saturating_add(tally.waiting), ..pending }
}

impl Snapshot {
    /// The entry of a job that an owner reference points at.
    pub fn owner(&self, namespace: &str, api_version: &str, kind: &str, name: &str) -> Option<&OwnerEntry> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let key = ObjectKey::new(namespace, name);
        let entry = match Kind::from_group_kind(group, kind) {
            Some(Kind::Job(index)) => self.owners.get(&(index, key)),
            _ => self.external_owners.get(&(group.to_owned(), kind.to_owned(), key)),
        };
        entry.map(AsRef::as_ref)
    }
}
