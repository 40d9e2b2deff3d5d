//! What readers outside the core see: an immutable picture, shared by reference and renewed as the core goes.
//!
//! Parts that change rarely are rebuilt when they change; the tables of queues at most once in a while; the index of jobs
//! is a persistent map, so that publishing it costs nothing.

mod builder;

pub(crate) use builder::SnapshotBuilder;

use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::quota::{FlavorResource, NodeUsage};

use crate::resources::Amount;
use crate::scheduler::PendingCounts;
use rpds::RedBlackTreeMapSync;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    pub controller: Option<crate::frameworks::OwnerRef>,
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

/// Why a Workload is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnadmittedKey {
    /// Reason of `Admitted=False`.
    pub reason: &'static str,
    /// Reason of `QuotaReserved=False`, or empty.
    pub underlying_cause: &'static str,
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
