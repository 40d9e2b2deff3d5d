//! The core's answer to an audit: facts about objects that the snapshot does not hold.
//!
//! Invariant: the length of each list is bounded by the number of flavors, checks, namespaces and classes, not by the number of
//! nodes and jobs.

use crate::api::ObjectKey;
use crate::resources::Requests;
use crate::topology::{FlavorNodes, NodeAmounts};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Facts that an audit reads beside the snapshot.
#[derive(Clone, Debug, Default)]
pub struct AuditFacts {
    /// Whether nodes are known at all.
    pub knows_nodes: bool,
    /// Flavors by name.
    pub flavors: BTreeMap<Arc<str>, AuditedFlavor>,
    /// AdmissionChecks by name; the value is whether the condition `Active` holds, which the controller of the check writes.
    pub checks: BTreeMap<Arc<str>, bool>,
    /// Number of running jobs that are not queued although their namespace has queues, by namespace and kind.
    pub unmanaged_jobs: BTreeMap<(Arc<str>, &'static str), usize>,
    /// Number of jobs that name a WorkloadPriorityClass that does not exist, by namespace and class.
    pub missing_classes: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Running jobs that an earlier version of the manager charged too little, by kind and key; the value names the uncharged
    /// amounts.
    pub low_charges: BTreeMap<(&'static str, ObjectKey), String>,
    /// Creation times of the LocalQueues that have no Workload, neither now nor in the history.
    pub unused_queues: BTreeMap<ObjectKey, Timestamp>,
    /// Time from which on the history has all Workloads; `None` without a history.
    pub recorded_since: Option<Timestamp>,
    /// Names of the WorkloadPriorityClasses.
    pub classes: BTreeSet<Arc<str>>,
}

/// A flavor and its nodes.
#[derive(Clone, Debug, Default)]
pub struct AuditedFlavor {
    /// Labels that select the nodes of the flavor.
    pub node_labels: BTreeMap<String, String>,
    /// Name of its topology, if it has one.
    pub topology: Option<Arc<str>>,
    /// Amounts of the nodes, by resource.
    pub amounts: NodeAmounts,
    /// Sizes, taints and label values of the nodes.
    pub nodes: FlavorNodes,
}

impl AuditedFlavor {
    /// Returns whether an empty node of the flavor has all that a pod requests; `true` if the sizes of the nodes are not known.
    pub fn holds(&self, pod: &Requests) -> bool {
        self.nodes.has_more_shapes || self.nodes.shapes.iter().any(|shape| covers(shape, pod))
    }
}

/// Returns whether a node of this size has all that a pod requests.
pub fn covers(shape: &Requests, pod: &Requests) -> bool {
    pod.iter().all(|(resource, amount)| shape.get(resource).copied().unwrap_or_default() >= *amount)
}
