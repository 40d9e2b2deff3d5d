//! A pending workload as the scheduler needs it.

use super::Verdict;
use crate::api::{ObjectKey, OwnerRecord};
use crate::resources::Requests;
use crate::topology::PodRequirements;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pods with the same template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSet {
    /// Name of the pod set.
    pub name: Arc<str>,
    /// Number of pods.
    pub count: i32,
    /// Minimum number of pods for partial admission.
    pub min_count: Option<i32>,
    /// Requests of one pod.
    pub requests: Requests,
    /// Pod sets of one group get the same flavors.
    pub group: Option<Arc<str>>,
    /// Requirements on nodes.
    pub pod_requirements: Arc<PodRequirements>,
}

impl PodSet {
    /// Whether the pod set is one of these, which are separated by commas as in a blocker.
    pub fn is_named(&self, names: &str) -> bool {
        names.split(',').any(|name| *self.name == *name.trim())
    }

    /// Returns what the pod sets after the named ones request of a resource. A blocker has the request of its own and of the earlier
    /// pod sets, so that both together are the request of all; 0 if none has such a name.
    pub fn later_request(sets: &[Self], names: &str, resource: &str) -> i128 {
        let Some(last) = sets.iter().rposition(|set| set.is_named(names)) else { return 0 };
        let mut sum = 0_i128;
        for set in sets.iter().skip(last.saturating_add(1)) {
            let amount = set.requests.get(resource).map_or(0, |amount| amount.to_i128());
            sum = sum.saturating_add(amount.saturating_mul(set.count.into()));
        }
        sum
    }
}

/// One of several alternatives of a workload, of which only one runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Name of the workload that all variants belong to, in the same namespace.
    pub parent: Arc<str>,
    /// Flavors that this variant may use.
    pub flavors: BTreeSet<Arc<str>>,
}

/// What lists of pending workloads show of a workload beside its position; no decision reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedFields {
    /// When the object was created.
    pub created: Timestamp,
    /// Priority of its spec, without a boost.
    pub spec_priority: i32,
    /// Its first owner.
    pub owner: Option<Arc<OwnerRecord>>,
    /// All other owners.
    pub other_owners: Arc<[Arc<OwnerRecord>]>,
}

impl ListedFields {
    /// All owners.
    pub fn owners(&self) -> impl Iterator<Item = &OwnerRecord> {
        self.owner.iter().chain(&*self.other_owners).map(AsRef::as_ref)
    }
}

impl Default for ListedFields {
    fn default() -> Self {
        let (owner, other_owners) = (None, Arc::default());
        Self { created: Timestamp::UNIX_EPOCH, spec_priority: 0, owner, other_owners }
    }
}

/// A workload that requests quota.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
    /// The ClusterQueue that its LocalQueue points to.
    pub cluster_queue: Arc<str>,
    /// The LocalQueue, in the workload's namespace.
    pub local_queue: Arc<str>,
    /// Effective priority.
    pub priority: i64,
    /// Timestamp that determines its queue position.
    pub queued_since: Timestamp,
    /// Its pod sets.
    pub pod_sets: Arc<[PodSet]>,
    /// Whether a closed preemption gate prevents it from preempting.
    pub preemption_gated: bool,
    /// The set of variants that it belongs to.
    pub variant: Option<Arc<Variant>>,
    /// Whether it is a slice of an elastic job.
    pub is_slice: bool,
    /// The admitted slice of the same job that it replaces.
    pub replaces: Option<ObjectKey>,
    /// Reason why it cannot be assigned at all; it is nominated like any other workload and gets this verdict.
    pub precheck_failure: Option<Arc<Verdict>>,
    /// What lists show of it.
    pub listed: ListedFields,
}

impl Workload {
    /// Queue position: priority, then time, then UID; the key makes the order strict for any input.
    pub fn order(&self) -> (Reverse<i64>, Timestamp, &str, &ObjectKey) {
        (Reverse(self.priority), self.queued_since, &self.uid, &self.key)
    }

    /// Whether both ask for the same, at the same position: they differ at most in what lists show.
    pub fn is_same_request(&self, other: &Self) -> bool {
        let Self {
            key,
            uid,
            cluster_queue,
            local_queue,
            priority,
            queued_since,
            pod_sets,
            preemption_gated,
            variant,
            is_slice,
            replaces,
            precheck_failure,
            listed: _,
        } = self;
        (key, uid, cluster_queue, local_queue, priority, queued_since)
            == (
                &other.key,
                &other.uid,
                &other.cluster_queue,
                &other.local_queue,
                &other.priority,
                &other.queued_since,
            )
            && (pod_sets, preemption_gated, variant)
                == (&other.pod_sets, &other.preemption_gated, &other.variant)
            && (is_slice, replaces, precheck_failure)
                == (&other.is_slice, &other.replaces, &other.precheck_failure)
    }

    /// Whether both have the same queue position.
    pub(super) fn same_position(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            key: ObjectKey::new("", ""),
            uid: Arc::default(),
            cluster_queue: Arc::default(),
            local_queue: Arc::default(),
            priority: 0,
            queued_since: Timestamp::UNIX_EPOCH,
            pod_sets: Arc::from([]),
            preemption_gated: false,
            variant: None,
            is_slice: false,
            replaces: None,
            precheck_failure: None,
            listed: ListedFields::default(),
        }
    }
}
