//! Nodes, and which workloads are assigned to which hosts.
//!
//! Invariants: the fields that topology assignment needs are stored only in the scheduler; an update that changes no
//! relevant field of a node, such as a heartbeat, ends after a comparison. A host may have several nodes.

use super::records::WorkloadRecord;
use super::{Cache, remove_from_index};
use crate::api::ObjectKey;
use crate::api::v1beta2::PodSetAssignment;
use crate::cache::pods::PodUsage;
use crate::lifecycle::node_failure::NodeState;
use crate::lifecycle::reservation;
use crate::topology::{HOSTNAME_LABEL, NodeSpec, Placement, decode, prevents_scheduling};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A node, without the fields that the scheduler stores.
#[derive(Clone, Debug)]
struct NodeRecord {
    uid: Arc<str>,
    resource_version: String,
    /// Name of the node in topology assignments.
    host: Arc<str>,
    state: NodeState,
}

/// The hosts that a workload is assigned to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AssignedHosts {
    /// Hosts in the topology assignment.
    pub(crate) hosts: BTreeSet<Arc<str>>,
    /// Pod sets that are assigned to domains above the host level.
    pub(crate) pod_sets_above_host_level: BTreeSet<Arc<str>>,
}

/// All nodes, and the workloads assigned to their hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    by_name: BTreeMap<Arc<str>, NodeRecord>,
    by_host: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    assigned_hosts: BTreeMap<ObjectKey, AssignedHosts>,
    workloads_by_host: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Nodes {
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// Returns UID and resourceVersion of a node.
    pub(crate) fn known_version(&self, name: &str) -> Option<(&str, &str)> {
        self.by_name.get(name).map(|node| (&*node.uid, node.resource_version.as_str()))
    }

    /// Returns the stored name, so that pods share it instead of holding copies.
    pub(crate) fn interned_name(&self, name: &str) -> Arc<str> {
        self.by_name.get_key_value(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known))
    }

    /// Returns the name of a node in topology assignments, or the node's own name if the node is unknown.
    pub(crate) fn host_of(&self, node: &Arc<str>) -> Arc<str> {
        self.by_name.get(node).map_or_else(|| Arc::clone(node), |record| Arc::clone(&record.host))
    }

    /// Returns the hosts of a workload's topology assignment, if it has one.
    pub(crate) fn assigned_hosts(&self, workload: &ObjectKey) -> Option<&AssignedHosts> {
        self.assigned_hosts.get(workload)
    }

    /// Returns the states of a host's nodes.
    pub(crate) fn states_of_host(&self, host: &str) -> impl Iterator<Item = &NodeState> {
        let names = self.by_host.get(host).into_iter().flatten();
        names.filter_map(|name| Some(&self.by_name.get(name)?.state))
    }

    /// Returns whether a node of the host is ready and has no taint that prevents scheduling.
    pub(crate) fn is_ready_and_untainted(&self, host: &str) -> bool {
        self.states_of_host(host).any(|node| {
            node.ready.is_some_and(|(ready, _)| ready) && !node.taints.iter().any(prevents_scheduling)
        })
    }

    fn workloads_on(&self, host: &str) -> impl Iterator<Item = &ObjectKey> {
        self.workloads_by_host.get(host).into_iter().flatten()
    }

    /// Sets or removes the hosts of a workload. Returns whether that changed them.
    fn set_assigned_hosts(&mut self, workload: &ObjectKey, assigned: Option<AssignedHosts>) -> bool {
        if self.assigned_hosts.get(workload) == assigned.as_ref() {
            return false;
        }
        for host in self.assigned_hosts.remove(workload).into_iter().flat_map(|old| old.hosts) {
            remove_from_index(&mut self.workloads_by_host, &host, workload);
        }
        if let Some(assigned) = assigned {
            for host in &assigned.hosts {
                self.workloads_by_host.entry(Arc::clone(host)).or_default().insert(workload.clone());
            }
            self.assigned_hosts.insert(workload.clone(), assigned);
        }
        true
    }
}

impl Cache {
    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Stores a node. Returns the fields that the scheduler needs and, if UID, host or state of the node changed, the
    /// workloads assigned to its previous and current host.
    pub(crate) fn ingest_node(&mut self, name: &Arc<str>, node: Node) -> (NodeSpec, Vec<ObjectKey>) {
        let spec = NodeSpec::from_node(&node);
        let host = spec.labels.get(HOSTNAME_LABEL).map_or(&**name, String::as_str);
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "Ready");
        let since = |at: Option<Timestamp>| at.unwrap_or(Timestamp::UNIX_EPOCH);
        let ready = ready.map(|c| (c.status == "True", since(c.last_transition_time.map(|time| time.0))));
        let state = NodeState { ready, taints: spec.taints.clone() };
        let resource_version = node.metadata.resource_version.unwrap_or_default();
        let uid = node.metadata.uid.unwrap_or_default();
        let known = self.nodes.by_name.get_mut(name);
        if let Some(known) = known.filter(|k| *k.uid == *uid && *k.host == *host && k.state == state) {
            known.resource_version = resource_version;
            return (spec, Vec::new());
        }
        let host: Arc<str> = if *host == **name { Arc::clone(name) } else { Arc::from(host) };
        let mut workloads = self.remove_node(name);
        let record = NodeRecord { uid: Arc::from(uid), resource_version, host: Arc::clone(&host), state };
        self.nodes.by_name.insert(Arc::clone(name), record);
        self.nodes.by_host.entry(Arc::clone(&host)).or_default().insert(Arc::clone(name));
        workloads.extend(self.nodes.workloads_on(&host).cloned());
        (spec, workloads)
    }

    /// Removes a node. Returns the workloads assigned to its host.
    pub(crate) fn remove_node(&mut self, name: &Arc<str>) -> Vec<ObjectKey> {
        let Some(record) = self.nodes.by_name.remove(name) else {
            return Vec::new();
        };
        if let Some(names) = self.nodes.by_host.get_mut(&record.host) {
            names.remove(name);
            if names.is_empty() {
                self.nodes.by_host.remove(&record.host);
            }
        }
        self.nodes.workloads_on(&record.host).cloned().collect()
    }

    /// Updates the assigned hosts of a workload. Returns the non-TAS usage of its pods if the hosts changed.
    pub(super) fn sync_assigned_hosts(&mut self, key: &ObjectKey) -> Vec<(ObjectKey, Option<PodUsage>)> {
        let hosts = self.workloads.get(key).and_then(|record| assigned_hosts_of(record));
        if self.nodes.set_assigned_hosts(key, hosts) { self.non_tas_usage_of(key) } else { Vec::new() }
    }
}

/// Decodes the topology assignment of a pod set.
pub fn placement_of(set: &PodSetAssignment) -> Option<Placement> {
    set.topology_assignment.as_ref().and_then(decode)
}

/// Returns the hosts in the topology assignment of a Workload with quota.
fn assigned_hosts_of(record: &WorkloadRecord) -> Option<AssignedHosts> {
    let admission = record.status.admission.as_ref().filter(|_| reservation::holds_quota(&record.status))?;
    let mut assigned = AssignedHosts::default();
    for set in &admission.pod_set_assignments {
        let Some(placement) = placement_of(set) else { continue };
        if placement.is_by_host() {
            assigned.hosts.extend(placement.domains.iter().filter_map(|(values, _)| values.last().cloned()));
        } else {
            assigned.pod_sets_above_host_level.insert(Arc::from(set.name.as_str()));
        }
    }
    (assigned != AssignedHosts::default()).then_some(assigned)
}
