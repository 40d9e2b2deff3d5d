//! The facade.

use super::config::{Charge, ClusterQueue, Cohort, Decision, EngineSettings, Flavor, Inactive};
use crate::api::ObjectKey;
use crate::queue::{Verdict, Workload};
use crate::quota::{FlavorResource, NodeRef, NodeUsage, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Quota, queues and decisions.
#[derive(Debug, Default)]
pub struct Engine {
    settings: EngineSettings,
    tree: Tree,
}

/// How many workloads of a queue wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCounts {
    /// To be judged at the queue's next turns.
    pub active: usize,
    /// Parked until something changes.
    pub inadmissible: usize,
}

impl Engine {
    /// An empty engine.
    pub fn new(settings: EngineSettings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Sets the labels of a namespace, or removes it.
    pub fn set_namespace(&mut self, _name: &str, _labels: Option<BTreeMap<String, String>>) {}

    /// Sets or removes a flavor.
    pub fn set_flavor(&mut self, _name: &str, _flavor: Option<Flavor>) {}

    /// Sets or removes a cohort.
    pub fn set_cohort(&mut self, _name: &str, _cohort: Option<Cohort>) {}

    /// Sets or removes a ClusterQueue. What its workloads hold and those that wait in it stay known.
    pub fn set_cluster_queue(&mut self, _name: &str, _queue: Option<ClusterQueue>) {}

    /// Inserts or replaces a pending workload. One that holds quota is not queued: release it first.
    pub fn enqueue(&mut self, _workload: Workload) {}

    /// The workload is not pending any more.
    pub fn forget(&mut self, _key: &ObjectKey) {}

    /// The workload holds this and nothing else, and is not pending.
    pub fn charge(&mut self, _key: &ObjectKey, _charge: Charge) {}

    /// The workload holds nothing any more.
    pub fn release(&mut self, _key: &ObjectKey) {}

    /// Whether a cycle would judge anybody.
    pub fn has_work(&self) -> bool {
        let _ = self.settings;
        false
    }

    /// Judges one head of every ClusterQueue.
    pub fn cycle(&mut self) -> Vec<Decision> {
        Vec::new()
    }

    /// Why the workload waits; none if it is not pending or not judged yet.
    pub fn verdict(&self, _key: &ObjectKey) -> Option<&Verdict> {
        None
    }

    /// Up to `limit` workloads that wait for the same reason as a head that was judged (or joined it later), each told
    /// once per change of the message: what to write conditions for beside the decisions of `cycle`.
    pub fn take_explained(&mut self, _limit: usize) -> Vec<ObjectKey> {
        Vec::new()
    }

    /// What the workload holds.
    pub fn charge_of(&self, _key: &ObjectKey) -> Option<&Charge> {
        None
    }

    /// Limits, subtree quota and usage (reserved) of a node of the tree; `borrowed()` of each for status.
    pub fn usage(&self, node: &NodeRef) -> BTreeMap<FlavorResource, NodeUsage> {
        self.tree.usage(node)
    }

    /// What workloads of a LocalQueue hold.
    pub fn local_usage(&self, _namespace: &str, _local_queue: &str) -> BTreeMap<FlavorResource, crate::resources::Amount> {
        BTreeMap::new()
    }

    /// Number of workloads that hold quota of a ClusterQueue.
    pub fn reserving(&self, _cluster_queue: &str) -> usize {
        0
    }

    /// Number of workloads of a LocalQueue that hold quota.
    pub fn local_reserving(&self, _namespace: &str, _local_queue: &str) -> usize {
        0
    }

    /// Pending workloads of a ClusterQueue.
    pub fn pending(&self, _cluster_queue: &str) -> PendingCounts {
        PendingCounts::default()
    }

    /// Pending workloads of a LocalQueue.
    pub fn local_pending(&self, _namespace: &str, _local_queue: &str) -> PendingCounts {
        PendingCounts::default()
    }

    /// Pending workloads of a ClusterQueue in order.
    pub fn pending_in_order(&self, _cluster_queue: &str) -> Vec<&Workload> {
        Vec::new()
    }

    /// How many are ahead of the workload in its ClusterQueue.
    pub fn ahead_of(&self, _key: &ObjectKey) -> Option<usize> {
        None
    }

    /// Why a ClusterQueue admits nothing: what the caller said, or a cycle of cohorts above it.
    pub fn inactive_reason(&self, _cluster_queue: &str) -> Option<Inactive> {
        None
    }

    /// All nodes of the tree with their parents.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeRef, Option<&NodeRef>)> {
        self.tree.nodes()
    }

    /// The ClusterQueues by name.
    pub fn cluster_queues(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::empty()
    }
}
