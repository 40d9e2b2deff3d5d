//! A pending workload as the engine needs it.

use crate::api::ObjectKey;
use crate::resources::Requests;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelectorTerm, Toleration};
use std::cmp::Reverse;
use std::collections::BTreeMap;
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
    /// Labels that the node must have.
    pub node_selector: Arc<BTreeMap<String, String>>,
    /// Terms of the required node affinity, of which one must hold; none when empty.
    pub required_affinity: Vec<NodeSelectorTerm>,
    /// Taints that the pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Pod sets of one group get the same flavors.
    pub group: Option<Arc<str>>,
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
}

/// Place in a queue: higher priority first, then the earlier, then by uid; the name makes it strict for any input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderKey {
    /// Higher first.
    pub priority: Reverse<i64>,
    /// Earlier first.
    pub queued_since: Timestamp,
    /// Last word between equals.
    pub uid: Arc<str>,
    /// Keeps the order strict if two uids are equal.
    pub key: ObjectKey,
}

impl OrderKey {
    /// The place of the workload.
    pub fn of(workload: &Workload) -> Self {
        Self {
            priority: Reverse(workload.priority),
            queued_since: workload.queued_since,
            uid: Arc::clone(&workload.uid),
            key: workload.key.clone(),
        }
    }
}
