//! What the core answers when it is asked for an audit: what it knows of objects that the snapshot does not hold.
//!
//! Invariant: lists are bounded by the number of flavors, checks, namespaces and classes, not by that of nodes and jobs.

use crate::api::ObjectKey;
use crate::resources::Requests;
use crate::topology::{FlavorNodes, NodeAmounts};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What an audit reads beside the snapshot.
#[derive(Clone, Debug, Default)]
pub struct AuditFacts {
    /// Whether nodes are known at all.
    pub knows_nodes: bool,
    /// Flavors by name.
    pub flavors: BTreeMap<Arc<str>, AuditedFlavor>,
    /// AdmissionChecks by name: whether a controller says that it is active.
    pub checks: BTreeMap<Arc<str>, bool>,
    /// Namespace selectors of ClusterQueues; absent for those that select nothing.
    pub namespace_selectors: BTreeMap<Arc<str>, LabelSelector>,
    /// Jobs that run in a namespace with queues without being queued, by namespace and kind.
    pub unmanaged_jobs: BTreeMap<(Arc<str>, &'static str), usize>,
    /// Jobs that name a WorkloadPriorityClass that does not exist, by namespace and class.
    pub missing_classes: BTreeMap<(Arc<str>, Arc<str>), usize>,
    /// Jobs that run with more than an earlier version of the manager charged them, by kind, with what is not charged.
    pub low_charges: BTreeMap<(&'static str, ObjectKey), String>,
    /// LocalQueues without a Workload, also in the history, with the times of their creation.
    pub unused_queues: BTreeMap<ObjectKey, Timestamp>,
    /// Since when the history knows of all Workloads; absent without one.
    pub recorded_since: Option<Timestamp>,
    /// Names of the WorkloadPriorityClasses.
    pub classes: BTreeSet<Arc<str>>,
}

/// A flavor and its nodes.
#[derive(Clone, Debug, Default)]
pub struct AuditedFlavor {
    /// Labels of its nodes.
    pub node_labels: BTreeMap<String, String>,
    /// Name of its topology, if it has one.
    pub topology: Option<Arc<str>>,
    /// What the nodes have.
    pub amounts: NodeAmounts,
    /// What is on them.
    pub nodes: FlavorNodes,
}

impl AuditedFlavor {
    /// Whether an empty node has all that a pod asks for; `true` if that is not known.
    pub fn holds(&self, pod: &Requests) -> bool {
        self.nodes.has_more_shapes || self.nodes.shapes.iter().any(|shape| covers(shape, pod))
    }
}

/// Whether a node has all that a pod asks for.
pub fn covers(shape: &Requests, pod: &Requests) -> bool {
    pod.iter().all(|(resource, amount)| shape.get(resource).copied().unwrap_or_default() >= *amount)
}
