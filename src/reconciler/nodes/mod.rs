//! Nodes as the core follows them, and which workloads stand on which hosts.
//!
//! Invariants: what placement needs of a node is kept by the scheduler alone; an event that says nothing new of a node, such
//! as a heartbeat, ends at a comparison. A host may have several nodes: it is as sound as the soundest of them.

pub(in crate::reconciler) mod pods;
pub(in crate::reconciler) mod topology_status;
mod ungating;

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{CheckState, PodSetAssignment};
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::node_failure::{
    NodeFailureGates, NodeHealth, NodeHealthReport, NodeState, assess_node,
};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::{ReconcileKey, Reconciler};
use crate::topology::{HOSTNAME_LABEL, NodeSpec, Placement, decode, prevents_scheduling};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Toleration};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is kept of a node beside what the scheduler keeps.
#[derive(Clone, Debug)]
struct NodeRecord {
    uid: Arc<str>,
    resource_version: String,
    /// What assignments call it.
    host: Arc<str>,
    state: NodeState,
}

/// Where a workload stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::reconciler) struct AssignedHosts {
    /// Hosts of its assignment.
    pub(in crate::reconciler) hosts: BTreeSet<Arc<str>>,
    /// Pod sets that were given domains wider than hosts.
    pub(in crate::reconciler) pod_sets_above_host_level: BTreeSet<Arc<str>>,
}

/// All nodes, and who stands on them.
#[derive(Clone, Debug, Default)]
pub(in crate::reconciler) struct Nodes {
    by_name: BTreeMap<Arc<str>, NodeRecord>,
    by_host: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    assigned_hosts: BTreeMap<ObjectKey, AssignedHosts>,
    workloads_by_host: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl Nodes {
    pub(in crate::reconciler) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_name.keys()
    }

    /// UID and version of a node.
    pub(in crate::reconciler) fn known_version(&self, name: &str) -> Option<(&str, &str)> {
        self.by_name.get(name).map(|node| (&*node.uid, node.resource_version.as_str()))
    }

    /// The name as it is kept already, so that a pod does not keep it once more.
    pub(in crate::reconciler) fn interned_name(&self, name: &str) -> Arc<str> {
        self.by_name.get_key_value(name).map_or_else(|| Arc::from(name), |(known, _)| Arc::clone(known))
    }

    /// What assignments call a node; one that is not known by its name.
    pub(in crate::reconciler) fn host_of(&self, node: &Arc<str>) -> Arc<str> {
        self.by_name.get(node).map_or_else(|| Arc::clone(node), |record| Arc::clone(&record.host))
    }

    /// Where a workload stands, if it was given places.
    pub(in crate::reconciler) fn assigned_hosts(&self, workload: &ObjectKey) -> Option<&AssignedHosts> {
        self.assigned_hosts.get(workload)
    }

    /// Every node of a host.
    fn node_states(&self, host: &str) -> impl Iterator<Item = &NodeState> {
        let names = self.by_host.get(host).into_iter().flatten();
        names.filter_map(|name| Some(&self.by_name.get(name)?.state))
    }

    /// Whether nothing at all is wrong with a host, whatever pods tolerate.
    fn is_ready_and_untainted(&self, host: &str) -> bool {
        self.node_states(host).any(|node| {
            node.ready.is_some_and(|(ready, _)| ready) && !node.taints.iter().any(prevents_scheduling)
        })
    }

    /// What is to be thought of a host: the best of what is to be thought of its nodes.
    fn host_health(
        &self,
        host: &str,
        tolerations: &[Toleration],
        busy: bool,
        rules: NodeFailureGates,
        now: Timestamp,
    ) -> NodeHealth {
        let mut best = NodeHealth::Unhealthy;
        for node in self.node_states(host) {
            match (assess_node(Some(node), tolerations, busy, rules, now), best) {
                (NodeHealth::Healthy, _) => return NodeHealth::Healthy,
                (unsure @ NodeHealth::Monitoring(_), NodeHealth::Unhealthy) => best = unsure,
                _ => {}
            }
        }
        best
    }

    /// Sets where a workload stands. Answers whether that has changed.
    fn set_assigned_hosts(&mut self, workload: &ObjectKey, footing: Option<AssignedHosts>) -> bool {
        if self.assigned_hosts.get(workload) == footing.as_ref() {
            return false;
        }
        for host in self.assigned_hosts.remove(workload).into_iter().flat_map(|old| old.hosts) {
            crate::reconciler::ingest::remove_from_index(&mut self.workloads_by_host, &host, workload);
        }
        if let Some(footing) = footing {
            for host in &footing.hosts {
                self.workloads_by_host.entry(Arc::clone(host)).or_default().insert(workload.clone());
            }
            self.assigned_hosts.insert(workload.clone(), footing);
        }
        true
    }
}

impl Reconciler {
    pub(in crate::reconciler) fn ingest_node(&mut self, name: &Arc<str>, node: Node) {
        let spec = NodeSpec::from_node(&node);
        let host = spec.labels.get(HOSTNAME_LABEL).map_or(&**name, String::as_str);
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.unwrap_or_default().into_iter().find(|c| c.type_ == "Ready");
        let since = |at: Option<jiff::Timestamp>| at.unwrap_or(Timestamp::UNIX_EPOCH);
        let ready = ready.map(|c| (c.status == "True", since(c.last_transition_time.map(|time| time.0))));
        let health = NodeState { ready, taints: spec.taints.clone() };
        let version = node.metadata.resource_version.unwrap_or_default();
        let uid = node.metadata.uid.unwrap_or_default();
        let known = self.nodes.by_name.get_mut(name);
        if let Some(known) = known.filter(|k| *k.uid == *uid && *k.host == *host && k.state == health) {
            known.resource_version = version;
            self.engine.set_node(name, Some(spec));
            return;
        }
        let host: Arc<str> = if *host == **name { Arc::clone(name) } else { Arc::from(host) };
        self.engine.set_node(name, Some(spec));
        self.forget_node(name);
        let record = NodeRecord {
            uid: Arc::from(uid),
            resource_version: version,
            host: Arc::clone(&host),
            state: health,
        };
        self.nodes.by_name.insert(Arc::clone(name), record);
        self.nodes.by_host.entry(Arc::clone(&host)).or_default().insert(Arc::clone(name));
        self.mark_workloads_on_host(&host);
    }

    pub(in crate::reconciler) fn remove_node(&mut self, name: &Arc<str>) {
        self.engine.set_node(name, None);
        self.forget_node(name);
    }

    fn forget_node(&mut self, name: &Arc<str>) {
        let Some(record) = self.nodes.by_name.remove(name) else {
            return;
        };
        if let Some(names) = self.nodes.by_host.get_mut(&record.host) {
            names.remove(name);
            if names.is_empty() {
                self.nodes.by_host.remove(&record.host);
            }
        }
        self.mark_workloads_on_host(&record.host);
    }

    /// Those who stand on a host look again.
    fn mark_workloads_on_host(&mut self, host: &Arc<str>) {
        for workload in self.nodes.workloads_by_host.get(host).into_iter().flatten() {
            self.dirty.insert(ReconcileKey::Workload(workload.clone()));
            self.dirty.insert(ReconcileKey::Pods(workload.clone()));
        }
    }

    /// A Workload has changed: so may have where it stands, and then who pays for its pods.
    pub(in crate::reconciler) fn sync_assigned_hosts(&mut self, key: &ObjectKey) {
        let footing = self.workloads.get(key).and_then(|record| assigned_hosts_of(record));
        let stands = footing.is_some();
        if self.nodes.set_assigned_hosts(key, footing) {
            self.sync_non_tas_pods(key);
        }
        if stands {
            self.dirty.insert(ReconcileKey::Pods(key.clone()));
        }
    }

    /// News of the nodes that an admitted Workload stands on.
    pub(in crate::reconciler) fn node_health_report(
        &self,
        key: &ObjectKey,
        record: &WorkloadRecord,
        now: Timestamp,
    ) -> NodeHealthReport {
        let mut news = NodeHealthReport::default();
        let (Some(rules), Some(footing)) =
            (self.settings.gates.node_failures, self.nodes.assigned_hosts(key))
        else {
            return news;
        };
        let holds = |kind| conditions::is_true(&record.status, kind);
        if !holds(ConditionType::Admitted) || holds(ConditionType::Evicted) {
            return news;
        }
        for host in &footing.hosts {
            if self.nodes.is_ready_and_untainted(host) {
                continue;
            }
            let busy = self.has_running_pod(key, host);
            let tolerations = self.tolerations_on(record, host);
            match self.nodes.host_health(host, &tolerations, busy, rules, now) {
                NodeHealth::Unhealthy => news.unhealthy.push(host.to_string()),
                NodeHealth::Monitoring(due) => news.due = news.due.into_iter().chain(due).min(),
                NodeHealth::Healthy => {}
            }
        }
        for node in &record.status.unhealthy_nodes {
            let gone = !footing.hosts.contains(node.name.as_str());
            if gone || self.is_host_healthy(record, &node.name, now) {
                news.recovered.push(node.name.clone());
            }
        }
        news
    }

    /// Whether pods of a Workload may be sent to a host.
    pub(in crate::reconciler) fn is_host_healthy(
        &self,
        record: &WorkloadRecord,
        host: &str,
        now: Timestamp,
    ) -> bool {
        let rules = self.settings.gates.node_failures.unwrap_or_default();
        self.nodes.is_ready_and_untainted(host)
            || self.nodes.host_health(host, &self.tolerations_on(record, host), true, rules, now)
                == NodeHealth::Healthy
    }

    /// What pods of a Workload on a host tolerate: by their template, their flavors, and checks that are ready.
    fn tolerations_on(&self, record: &WorkloadRecord, host: &str) -> Vec<Toleration> {
        let mut all = Vec::new();
        let Some(admission) = &record.status.admission else {
            return all;
        };
        for set in admission.pod_set_assignments.iter().filter(|set| is_assigned_to_host(set, host)) {
            let own = record.pod_sets().iter().find(|known| *known.name == *set.name);
            all.extend(own.and_then(|own| own.spec.tolerations.clone()).unwrap_or_default());
            for flavor in set.flavors.values().filter_map(|name| self.flavors.get(name.as_str())) {
                all.extend(flavor.object.spec.tolerations.iter().cloned());
            }
            let ready = record.status.admission_checks.iter().filter(|c| c.state == CheckState::Ready);
            for update in ready.flat_map(|check| &check.pod_set_updates).filter(|u| u.name == set.name) {
                all.extend(update.tolerations.iter().cloned());
            }
        }
        all
    }
}

fn placement_of(set: &PodSetAssignment) -> Option<Placement> {
    set.topology_assignment.as_ref().and_then(decode)
}

fn is_assigned_to_host(set: &PodSetAssignment, host: &str) -> bool {
    placement_of(set).is_some_and(|placement| placement.contains_host(host))
}

/// Where the admission of a Workload that holds quota puts its pods.
fn assigned_hosts_of(record: &WorkloadRecord) -> Option<AssignedHosts> {
    let admission = record.status.admission.as_ref().filter(|_| reservation::holds_quota(&record.status))?;
    let mut footing = AssignedHosts::default();
    for set in &admission.pod_set_assignments {
        let Some(placement) = placement_of(set) else { continue };
        if placement.is_by_host() {
            footing.hosts.extend(placement.domains.iter().filter_map(|(values, _)| values.last().cloned()));
        } else {
            footing.pod_sets_above_host_level.insert(Arc::from(set.name.as_str()));
        }
    }
    (footing != AssignedHosts::default()).then_some(footing)
}
