//! A pending workload as the engine needs it.

use super::Verdict;
use crate::api::ObjectKey;
use crate::resources::Requests;
use crate::topology::PodRequirements;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pods that are alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSet {
    /// Its name.
    pub name: Arc<str>,
    /// How many pods.
    pub count: i32,
    /// How few would do.
    pub min_count: Option<i32>,
    /// What one pod asks for.
    pub requests: Requests,
    /// Pod sets of one group get the same flavors.
    pub group: Option<Arc<str>>,
    /// What they ask of nodes.
    pub pod_requirements: Arc<PodRequirements>,
}

/// One of several alternatives of one workload, of which one is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Name of the workload that stands for all of them, in the same namespace.
    pub parent: Arc<str>,
    /// Flavors that this one may use.
    pub flavors: BTreeSet<Arc<str>>,
}

/// A workload that asks for quota.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Identity.
    pub uid: Arc<str>,
    /// The ClusterQueue that its LocalQueue points to.
    pub cluster_queue: Arc<str>,
    /// The LocalQueue, in the workload's namespace.
    pub local_queue: Arc<str>,
    /// Effective priority.
    pub priority: i64,
    /// The time that counts for its place in the queue.
    pub queued_since: Timestamp,
    /// Its pods.
    pub pod_sets: Arc<[PodSet]>,
    /// Whether a closed gate keeps it from preempting.
    pub preemption_gated: bool,
    /// What it is one of several alternatives of.
    pub variant: Option<Arc<Variant>>,
    /// The admitted slice of the same job that it takes over from.
    pub replaces: Option<ObjectKey>,
    /// What keeps it from being judged at all; it takes its turn like any other and says so.
    pub precheck_failure: Option<Arc<Verdict>>,
}

impl Workload {
    /// Place in a queue: higher priority first, then the earlier, then by uid; the name makes it strict for any input.
    pub fn order(&self) -> (Reverse<i64>, Timestamp, &str, &ObjectKey) {
        (Reverse(self.priority), self.queued_since, &self.uid, &self.key)
    }

    /// Whether the two have one place in the order.
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
            replaces: None,
            precheck_failure: None,
        }
    }
}
