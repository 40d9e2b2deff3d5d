//! The configured objects by name, as scheduling reads them: ClusterQueues, Cohorts, flavors and namespaces; and which
//! ClusterQueues admit nothing.
//!
//! Invariant: nothing here depends on workloads or usage.

use super::compiled::CompiledClusterQueue;
use super::config::{Cohort, Flavor};
use super::nominate::Flavors;
use crate::queue::Verdict;
use crate::quota::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Labels of a namespace.
type Labels = BTreeMap<String, String>;

/// The configured objects by name.
#[derive(Debug, Default)]
pub(super) struct ConfiguredObjects {
    cluster_queues: BTreeMap<Arc<str>, CompiledClusterQueue>,
    cohorts: BTreeMap<Arc<str>, Cohort>,
    flavors: Flavors,
    namespaces: BTreeMap<Arc<str>, Labels>,
}

impl ConfiguredObjects {
    pub(super) fn cluster_queue(&self, name: &str) -> Option<&CompiledClusterQueue> {
        self.cluster_queues.get(name)
    }

    pub(super) fn cluster_queues(&self) -> impl Iterator<Item = (&Arc<str>, &CompiledClusterQueue)> {
        self.cluster_queues.iter()
    }

    pub(super) fn has_cluster_queue(&self, name: &str) -> bool {
        self.cluster_queues.contains_key(name)
    }

    /// Sets or removes a ClusterQueue.
    pub(super) fn set_cluster_queue(&mut self, name: &str, queue: Option<CompiledClusterQueue>) {
        match queue {
            Some(queue) => drop(self.cluster_queues.insert(Arc::from(name), queue)),
            None => drop(self.cluster_queues.remove(name)),
        }
    }

    pub(super) fn cohort(&self, name: &str) -> Option<&Cohort> {
        self.cohorts.get(name)
    }

    pub(super) fn cohorts(&self) -> impl Iterator<Item = (&Arc<str>, &Cohort)> {
        self.cohorts.iter()
    }

    /// Sets or removes a Cohort. Returns whether it changed.
    pub(super) fn set_cohort(&mut self, name: &str, cohort: Option<Cohort>) -> bool {
        set_entry(&mut self.cohorts, name, cohort)
    }

    pub(super) fn flavors(&self) -> &Flavors {
        &self.flavors
    }

    /// Sets or removes a flavor. Returns whether it changed.
    pub(super) fn set_flavor(&mut self, name: &str, flavor: Option<Flavor>) -> bool {
        set_entry(&mut self.flavors, name, flavor)
    }

    /// Whether the nodes of a flavor have a topology.
    pub(super) fn has_topology(&self, flavor: &str) -> bool {
        self.flavors.get(flavor).is_some_and(|flavor| flavor.topology_name.is_some())
    }

    pub(super) fn namespace_labels(&self, name: &str) -> Option<&Labels> {
        self.namespaces.get(name)
    }

    /// Sets or removes a namespace. Returns whether it changed.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> bool {
        set_entry(&mut self.namespaces, name, labels)
    }
}

/// ClusterQueues that are missing or inactive: they admit nothing, and their workloads are never preempted.
#[derive(Debug, Default)]
pub(super) struct InactiveQueues {
    nodes: BTreeSet<NodeId>,
    /// Verdicts of the workloads that wait in them.
    verdicts: BTreeMap<Arc<str>, Verdict>,
}

impl InactiveQueues {
    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(&node)
    }

    pub(super) fn set(&mut self, node: NodeId, inactive: bool) {
        if inactive {
            self.nodes.insert(node);
        } else {
            self.nodes.remove(&node);
        }
    }

    pub(super) fn verdict(&self, queue: &str) -> Option<&Verdict> {
        self.verdicts.get(queue)
    }

    pub(super) fn set_verdict(&mut self, queue: &str, verdict: Option<Verdict>) {
        set_entry(&mut self.verdicts, queue, verdict);
    }
}

/// Sets or removes an entry. Returns whether the map changed.
fn set_entry<T: PartialEq>(map: &mut BTreeMap<Arc<str>, T>, name: &str, value: Option<T>) -> bool {
    if map.get(name) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => map.insert(Arc::from(name), value),
        None => map.remove(name),
    };
    true
}
