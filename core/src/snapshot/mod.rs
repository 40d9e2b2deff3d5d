//! The snapshot for readers outside the core: an immutable view, shared by reference and replaced after each change.
//!
//! Parts that change rarely are rebuilt when they change, the view of the queues at most once per interval. The index
//! of jobs is a persistent map, so that publishing it copies nothing.

mod audit_facts;
mod builder;
mod inspection;
mod no_workload;
mod queue_facts;
mod shared_pods;

pub use audit_facts::{AuditFacts, AuditedFlavor, covers};
pub(crate) use builder::SnapshotBuilder;
pub use inspection::{
    ClusterQueueListing, Excerpt, FailedWrite, FailureCounts, Inspection, QueueListing, QueuedWrite,
    SentWrite, Timer, TimerCount, TimerView,
};
pub use no_workload::{JobName, NoWorkload};
pub use queue_facts::{ClusterQueueFacts, CohortFacts, ObjectFacts, QueueFacts};
pub use shared_pods::SharedPods;

use crate::api::ObjectKey;
use crate::cache::related::RelatedObjects;
use crate::cache::{Kind, OwnerEntry, WorkloadIndex};
use crate::frameworks::{ChildGroup, OwnerRef, SizedChild};
use crate::history::HistoryStats;
use crate::quota::{FlavorResource, NodeUsage};
use crate::resources::Amount;
use crate::scheduler::{Inactive, PendingCounts, PendingOrder, QueueStanding};
use jiff::Timestamp;
use rpds::RedBlackTreeMapSync;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An immutable view of the core's state.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Number of the publication, starting at 1; 0 before the first.
    pub version: u64,
    /// When it was published; nothing is published while nothing changes.
    pub published_at: Option<Timestamp>,
    /// Whether this replica may write.
    pub leading: bool,
    /// Whether all lists are complete.
    pub synced: bool,
    /// Whether the lists that webhooks need are complete.
    pub reviews_synced: bool,
    /// Objects that admission reviews look up.
    pub references: Arc<References>,
    /// Queues and cohorts with counts and usage.
    pub queues: Arc<QueueView>,
    /// Pending workloads in order, shared with the queues of the core. They are complete once `synced` is set.
    pub pending: PendingOrder,
    /// Workloads by namespace and name, shared with the cache of the core.
    pub workloads: WorkloadIndex,
    /// Facts about the objects of queues, for lists.
    pub facts: Arc<QueueFacts>,
    /// Number of flavor-resources whose usage in the ledger differed from the sum over the objects at the last
    /// comparison.
    pub ledger_drift: usize,
    /// Numbers about the history.
    pub history: Arc<HistoryStats>,
    /// Objects as possible owners of others, by kind and key: jobs, and objects that may stand between a queued object and its
    /// pods. Pods are included only if they are in a queue or have a known controller.
    pub owners: RedBlackTreeMapSync<(Kind, ObjectKey), Arc<OwnerEntry>>,
    /// Kinds whose objects cannot be read: an owner of such a kind may exist although it is not known.
    pub unread_kinds: Arc<BTreeSet<Kind>>,
    /// More about owners, and about the objects below them.
    pub families: Families,
}

/// Objects that reviews look up by another key than kind and name.
#[derive(Clone, Debug, Default)]
pub struct Families {
    /// Objects of external frameworks (kinds whose Workloads another controller creates) that own a Workload, by group,
    /// kind and key.
    pub external_owners: RedBlackTreeMapSync<(String, String, ObjectKey), Arc<OwnerEntry>>,
    /// Objects that are sized apart from the job above them and ask for its quota, by the UID of their controller, key and kind.
    pub children: RedBlackTreeMapSync<(String, ObjectKey, Kind), Arc<SizedChild>>,
    /// Pods of objects that share the size of the job above them.
    pub shared_pods: SharedPods,
}

/// Objects that admission reviews look up.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// Labels by namespace.
    pub namespaces: BTreeMap<Arc<str>, Arc<BTreeMap<String, String>>>,
    /// LocalQueues that are not being deleted.
    pub local_queues: BTreeMap<ObjectKey, LocalQueueReference>,
    /// Names of the ClusterQueues.
    pub cluster_queues: BTreeSet<Arc<str>>,
    /// Whether a WorkloadPriorityClass named `default` exists.
    pub default_priority_class: bool,
    /// Objects of other kinds from which jobs are made.
    pub related: RelatedObjects,
}

/// The facts about a LocalQueue that reviews look up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalQueueReference {
    /// Name of the ClusterQueue, which may not exist.
    pub cluster_queue: Arc<str>,
    /// Whether its stop policy keeps workloads out of the queue.
    pub stopped: bool,
    /// Whether its ClusterQueue has a MultiKueue check.
    pub is_remote: bool,
}

/// Queues and cohorts with counts and usage.
#[derive(Clone, Debug, Default)]
pub struct QueueView {
    /// ClusterQueues by name.
    pub cluster_queues: BTreeMap<Arc<str>, ClusterQueueView>,
    /// LocalQueues by key.
    pub local_queues: BTreeMap<ObjectKey, LocalQueueView>,
    /// Cohorts by name.
    pub cohorts: BTreeMap<Arc<str>, CohortView>,
    /// For each ClusterQueue, the obstacles that keep pending workloads out even if all reserving workloads end.
    pub standings: BTreeMap<Arc<str>, Arc<QueueStanding>>,
    /// Reason and message of each inactive ClusterQueue, by name.
    pub inactive: BTreeMap<Arc<str>, Inactive>,
    /// Number of workloads that wait for a LocalQueue or ClusterQueue that does not exist, by LocalQueue and reason.
    pub without_queue: BTreeMap<ObjectKey, BTreeMap<UnadmittedKey, usize>>,
}

/// A ClusterQueue with counts and usage.
#[derive(Clone, Debug, Default)]
pub struct ClusterQueueView {
    /// Parent cohort.
    pub parent: Option<Arc<str>>,
    /// Whether the queue is active, that is, admits workloads.
    pub active: bool,
    /// Whether the ClusterQueue is being deleted.
    pub terminating: bool,
    /// Number of pending workloads.
    pub pending: PendingCounts,
    /// Number of distinct scheduling hashes of pending workloads.
    pub pending_hashes: PendingCounts,
    /// Number of preemptors skipped because of other preemptors of the cycle, in the last cycle that skipped any.
    pub preemption_skips: Option<usize>,
    /// Number of reserving workloads.
    pub reserving: usize,
    /// Number of admitted workloads.
    pub admitted: usize,
    /// Quota limits and current usage.
    pub usage_by_flavor_resource: BTreeMap<FlavorResource, NodeUsage>,
    /// Usage by admitted workloads.
    pub admitted_usage: BTreeMap<FlavorResource, Amount>,
    /// Number of existing finished workloads.
    pub finished: usize,
    /// Total requests of pending workloads, by resource.
    pub pending_requests: BTreeMap<Arc<str>, Amount>,
    /// Number of workloads that are not admitted, by reason.
    pub unadmitted: BTreeMap<UnadmittedKey, usize>,
    /// Weighted dominant resource share, if fair sharing is enabled.
    pub weighted_share: Option<i64>,
    /// The head, if it fits and is not admitted.
    pub waiting_head: Option<WaitingHead>,
}

/// A head that fits and is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingHead {
    /// The Workload.
    pub workload: ObjectKey,
    /// Time from which on the head fits and is not admitted.
    pub since: Timestamp,
}

/// Why a Workload is not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnadmittedKey {
    /// Reason of `Admitted=False`.
    pub reason: &'static str,
    /// Reason of `QuotaReserved=False`, or empty.
    pub underlying_cause: &'static str,
}

/// A LocalQueue with counts and usage.
#[derive(Clone, Debug, Default)]
pub struct LocalQueueView {
    /// ClusterQueue of the LocalQueue.
    pub cluster_queue: Arc<str>,
    /// Whether the queue is active, that is, admits workloads.
    pub active: bool,
    /// Number of pending workloads.
    pub pending: PendingCounts,
    /// Number of reserving workloads.
    pub reserving: usize,
    /// Number of admitted workloads.
    pub admitted: usize,
    /// Usage by reserving workloads.
    pub reserved_usage: BTreeMap<FlavorResource, Amount>,
    /// Usage by admitted workloads.
    pub admitted_usage: BTreeMap<FlavorResource, Amount>,
    /// Whether metrics include this LocalQueue.
    pub exported: bool,
    /// Number of existing finished workloads.
    pub finished: usize,
    /// Number of workloads that are not admitted, by reason.
    pub unadmitted: BTreeMap<UnadmittedKey, usize>,
    /// Weighted past usage, if admission fair sharing is enabled.
    pub past_usage: Option<f64>,
}

/// A Cohort with the usage of its subtree.
#[derive(Clone, Debug, Default)]
pub struct CohortView {
    /// Parent cohort.
    pub parent: Option<Arc<str>>,
    /// Quota limits and current usage.
    pub usage_by_flavor_resource: BTreeMap<FlavorResource, NodeUsage>,
    /// Weighted dominant resource share, if fair sharing is enabled.
    pub weighted_share: Option<i64>,
}

impl Snapshot {
    /// Returns the objects below a controller that share its quota, in their order.
    pub fn children(&self, controller: &str) -> Vec<SizedChild> {
        let first = (controller.to_owned(), ObjectKey::new("", ""), Kind::Namespace);
        let all = self.families.children.range(first..);
        let own = all.take_while(|((above, ..), _)| above == controller);
        let mut children: Vec<SizedChild> = own.map(|(_, child)| SizedChild::clone(child)).collect();
        children.sort();
        children
    }

    /// Returns the pods of the objects below a controller that share the size of the job above them, without the pods of one of
    /// the objects.
    pub fn groups_beside(&self, controller: &str, child: &(Kind, ObjectKey)) -> Vec<ChildGroup> {
        self.families.shared_pods.beside(controller, child)
    }

    /// Returns the object that an owner reference names.
    pub fn owner(&self, namespace: &str, owner: &OwnerRef) -> Option<&OwnerEntry> {
        let (group, kind) = (owner.group(), owner.kind.as_str());
        let key = ObjectKey::new(namespace, &owner.name);
        let entry = match Kind::from_group_kind(group, kind) {
            Some(kind @ (Kind::Job(_) | Kind::Pod | Kind::ReplicaSet)) => self.owners.get(&(kind, key)),
            _ => self.families.external_owners.get(&(group.to_owned(), kind.to_owned(), key)),
        };
        entry.map(AsRef::as_ref)
    }
}
