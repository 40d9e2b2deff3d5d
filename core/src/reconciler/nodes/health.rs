//! Health of the hosts that workloads are assigned to.
//!
//! Invariant: a host may have several nodes; it is as healthy as the healthiest of them.

use crate::api::reason::ConditionType;
use crate::api::v1beta2::CheckState;
use crate::cache::Cache;
use crate::cache::nodes::placement_of;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::conditions;
use crate::lifecycle::node_failure::{NodeFailureGates, NodeHealth, NodeHealthReport, assess_node};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;

/// Evaluates the hosts that workloads are assigned to.
#[derive(Clone, Copy)]
pub(crate) struct HostHealth<'a> {
    pub(crate) cache: &'a Cache,
    /// When a node counts as failed; `None` if failed nodes are not replaced.
    pub(crate) gates: Option<NodeFailureGates>,
}

impl HostHealth<'_> {
    /// Returns the changes in the health of the hosts that an admitted Workload is assigned to.
    pub(crate) fn report(self, record: &WorkloadRecord, now: Timestamp) -> NodeHealthReport {
        let key = &record.meta.key;
        let mut report = NodeHealthReport::default();
        let Some(assigned) = self.cache.nodes().assigned_hosts(key) else { return report };
        let holds = |kind| conditions::is_true(&record.status, kind);
        if self.gates.is_none() || !holds(ConditionType::Admitted) || holds(ConditionType::Evicted) {
            return report;
        }
        for host in &assigned.hosts {
            if self.cache.nodes().is_ready_and_untainted(host) {
                continue;
            }
            match self.host_health(record, host, self.runs_pods(record, host), now) {
                NodeHealth::Unhealthy => report.unhealthy.push(host.to_string()),
                NodeHealth::Monitoring(due) => report.due = report.due.into_iter().chain(due).min(),
                NodeHealth::Healthy => {}
            }
        }
        for node in &record.status.unhealthy_nodes {
            let unassigned = !assigned.hosts.contains(node.name.as_str());
            if unassigned || self.is_healthy(record, &node.name, now) {
                report.recovered.push(node.name.clone());
            }
        }
        report
    }

    /// Returns whether a host is healthy enough for pods of a Workload to be ungated onto it.
    pub(crate) fn is_healthy(self, record: &WorkloadRecord, host: &str, now: Timestamp) -> bool {
        self.cache.nodes().is_ready_and_untainted(host)
            || self.host_health(record, host, true, now) == NodeHealth::Healthy
    }

    /// Returns why no pods of a Workload are ungated onto a host, unless the Workload is about to leave the host.
    pub(crate) fn reason_to_keep_pods_gated(
        self,
        record: &WorkloadRecord,
        host: &str,
        now: Timestamp,
    ) -> Option<String> {
        let replaces = self.gates.is_some();
        let busy = self.runs_pods(record, host);
        let unhealthy = record.status.unhealthy_nodes.iter().any(|node| node.name == host)
            || self.host_health(record, host, busy, now) == NodeHealth::Unhealthy;
        if (replaces && unhealthy) || self.is_healthy(record, host, now) {
            return None;
        }
        let mut states = self.cache.nodes().states_of_host(host).peekable();
        if states.peek().is_none() {
            return Some(format!("node {host} does not exist"));
        }
        let tolerations = self.tolerations_on(record, host);
        let obstacles: Vec<String> = states.map(|node| node.obstacle(&tolerations)).collect();
        let until = if replaces && busy { ", until no pod of the Workload runs there" } else { "" };
        Some(format!("node {host} {}{until}", obstacles.join(", ")))
    }

    fn runs_pods(self, record: &WorkloadRecord, host: &str) -> bool {
        self.cache.has_running_pod(&record.meta.key, host)
    }

    /// Returns the best health among the nodes of a host, for the pods of a Workload. `busy` says whether one of these
    /// pods runs on the host.
    fn host_health(self, record: &WorkloadRecord, host: &str, busy: bool, now: Timestamp) -> NodeHealth {
        let rules = self.gates.unwrap_or_default();
        let tolerations = self.tolerations_on(record, host);
        let mut best = NodeHealth::Unhealthy;
        for node in self.cache.nodes().states_of_host(host) {
            match (assess_node(Some(node), &tolerations, busy, rules, now), best) {
                (NodeHealth::Healthy, _) => return NodeHealth::Healthy,
                (monitoring @ NodeHealth::Monitoring(_), NodeHealth::Unhealthy) => best = monitoring,
                _ => {}
            }
        }
        best
    }

    /// Returns the tolerations of a Workload's pods on a host: from their template, their flavors, and checks that are
    /// ready.
    fn tolerations_on(self, record: &WorkloadRecord, host: &str) -> Vec<Toleration> {
        let mut all = Vec::new();
        let Some(admission) = &record.status.admission else {
            return all;
        };
        let assigned = |set: &&_| placement_of(set).is_some_and(|placement| placement.contains_host(host));
        for set in admission.pod_set_assignments.iter().filter(assigned) {
            let own = record.pod_sets().iter().find(|known| *known.name == *set.name);
            all.extend(own.and_then(|own| own.spec.tolerations.clone()).unwrap_or_default());
            for flavor in set.flavors.values().filter_map(|name| self.cache.flavor(name)) {
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
