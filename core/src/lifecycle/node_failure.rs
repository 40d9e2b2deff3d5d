//! Decides when a node in a topology assignment counts as unhealthy, and records it in the workload status.
//!
//! Invariants: node health depends only on the current state of the node and its pods, not on earlier states. A
//! status names at most one unhealthy node: a second unhealthy node evicts the workload.

use super::backoff;
use super::eviction::{EvictionCause, NODE_FAILURES};
use super::facts::Facts;
use super::workload::Draft;
use crate::api::v1beta2::UnhealthyNode;
use crate::topology::{prevents_scheduling, tolerates};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Time for which a node may be not ready before that alone makes it unhealthy. Applies with
/// `not_ready_over_fixed_time` or without `on_pod_termination`.
const NOT_READY_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// Kueue's feature gates for failed nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFailureGates {
    /// `TASReplaceNodeOnPodTermination`: an existing node counts as unhealthy only after all pods of the workload on it
    /// have terminated.
    pub on_pod_termination: bool,
    /// `TASReplaceNodeOnNodeTaints`: taints that the pods do not tolerate make a node unhealthy.
    pub on_taints: bool,
    /// `TASReplaceNodeDueToNotReadyOverFixedTime`: a node that is not ready for 30 s is unhealthy even if pods run on
    /// it.
    pub not_ready_over_fixed_time: bool,
}

impl Default for NodeFailureGates {
    fn default() -> Self {
        Self { on_pod_termination: true, on_taints: true, not_ready_over_fixed_time: false }
    }
}

/// State of a node that its health depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    /// Ready condition and its last transition time; `None` if the node has no Ready condition.
    pub ready: Option<(bool, Timestamp)>,
    /// Taints of the node.
    pub taints: Vec<Taint>,
}

impl NodeState {
    /// Says what keeps new pods with these tolerations from the node.
    pub fn obstacle(&self, tolerations: &[Toleration]) -> String {
        if !self.ready.is_some_and(|(ready, _)| ready) {
            return "is not ready".to_owned();
        }
        let for_ever = |toleration: &&Toleration| toleration.toleration_seconds.is_none();
        let tolerated = |taint: &&Taint| {
            tolerations.iter().filter(for_ever).any(|toleration| tolerates(toleration, taint))
        };
        let hard = self.taints.iter().filter(|taint| prevents_scheduling(taint) && !tolerated(taint));
        let texts: Vec<String> = hard.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
        format!("has the taint {}", texts.join(", "))
    }
}

/// Health of a node, as seen by one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// The node is usable for the pods.
    Healthy,
    /// Undecided: the status stays as it is, listing the node as unhealthy or not. If a time is set, the node must be
    /// assessed again then.
    Monitoring(Option<Timestamp>),
    /// The pods on the node are lost and must be placed on another node.
    Unhealthy,
}

/// Changes in the health of the nodes that the pods of a workload are assigned to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHealthReport {
    /// Names of the unhealthy nodes.
    pub unhealthy: Vec<String>,
    /// Names of nodes that the status lists as unhealthy but that are healthy or no longer assigned.
    pub recovered: Vec<String>,
    /// Time at which to assess the nodes again.
    pub due: Option<Timestamp>,
}

/// Returns the health of a node for pods with these tolerations. A missing node, or one without a Ready condition, is
/// unhealthy. `busy` says whether any of the pods still runs on the node.
pub fn assess_node(
    node: Option<&NodeState>,
    tolerations: &[Toleration],
    busy: bool,
    rules: NodeFailureGates,
    now: Timestamp,
) -> NodeHealth {
    let Some((node, (ready, since))) = node.and_then(|node| Some((node, node.ready?))) else {
        return NodeHealth::Unhealthy;
    };
    if !ready {
        let end = backoff::after(since, NOT_READY_TIMEOUT);
        let timed = rules.not_ready_over_fixed_time || !rules.on_pod_termination;
        return if (rules.on_pod_termination && !busy) || (timed && now >= end) {
            NodeHealth::Unhealthy
        } else {
            NodeHealth::Monitoring(timed.then_some(end))
        };
    }
    if !rules.on_taints {
        return NodeHealth::Healthy;
    }
    let hard = || node.taints.iter().filter(|taint| prevents_scheduling(taint));
    if hard().any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint))) {
        return if rules.on_pod_termination && busy {
            NodeHealth::Monitoring(None)
        } else {
            NodeHealth::Unhealthy
        };
    }
    match hard().filter_map(|taint| tolerated_until(taint, tolerations)).min() {
        None => NodeHealth::Healthy,
        Some(end) if now < end => NodeHealth::Monitoring(Some(end)),
        Some(_) if busy => NodeHealth::Monitoring(None),
        Some(_) => NodeHealth::Unhealthy,
    }
}

/// Returns when the toleration of a NoExecute taint ends, or `None` if it never ends. Until then pods may be placed on
/// the node and stay there.
fn tolerated_until(taint: &Taint, tolerations: &[Toleration]) -> Option<Timestamp> {
    let added = taint.time_added.as_ref().filter(|_| taint.effect == "NoExecute")?.0;
    let mut longest = 0;
    for toleration in tolerations.iter().filter(|toleration| tolerates(toleration, taint)) {
        longest = longest.max(toleration.toleration_seconds?);
    }
    added.checked_add(SignedDuration::from_secs(longest)).ok()
}

impl Draft<'_> {
    /// Updates `unhealthyNodes` from the health report. Evicts the workload on a second unhealthy node. Returns whether
    /// it evicted the workload.
    pub(super) fn apply_node_health(&mut self, facts: &Facts<'_>) -> bool {
        let report = &facts.node_health;
        if let Some(due) = report.due {
            self.wake_at(due);
        }
        let listed = &mut self.status.unhealthy_nodes;
        listed.retain(|node| !report.recovered.contains(&node.name));
        let is_new = |host: &&String| listed.iter().all(|node| node.name != **host);
        let fresh: Vec<String> = report.unhealthy.iter().filter(is_new).cloned().collect();
        if fresh.is_empty() {
            return false;
        }
        if listed.is_empty() && fresh.len() == 1 {
            listed.extend(fresh.into_iter().map(|name| UnhealthyNode { name }));
            return false;
        }
        let all: Vec<String> = listed.iter().map(|node| node.name.clone()).chain(fresh).collect();
        let message = format!(
            "Workload eviction triggered due to multiple TAS assigned node failures, including: {}",
            all.join(", ")
        );
        self.evict(EvictionCause::new(NODE_FAILURES, message));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(ready: bool, taint: Option<&str>) -> NodeState {
        let taint = taint.map(|effect| Taint {
            key: "k".to_owned(),
            effect: effect.to_owned(),
            time_added: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(100))),
            ..Taint::default()
        });
        NodeState { ready: Some((ready, at(100))), taints: taint.into_iter().collect() }
    }

    #[test]
    fn assess_node_cases() {
        let usual = NodeFailureGates::default();
        let timed = NodeFailureGates { not_ready_over_fixed_time: true, ..usual };
        let blunt = NodeFailureGates { on_pod_termination: false, ..usual };
        let blind = NodeFailureGates { on_taints: false, ..usual };
        let (ready, unready) = (node(true, None), node(false, None));
        let (tainted, soft) = (node(true, Some("NoSchedule")), node(true, Some("PreferNoSchedule")));
        let silent = NodeState::default();
        let unsure = NodeHealth::Monitoring(None);
        let until = NodeHealth::Monitoring(Some(at(130)));
        let table = [
            (None, usual, true, 100, NodeHealth::Unhealthy),
            (Some(&silent), usual, true, 100, NodeHealth::Unhealthy),
            (Some(&ready), usual, false, 100, NodeHealth::Healthy),
            (Some(&unready), usual, true, 1000, unsure),
            (Some(&unready), usual, false, 100, NodeHealth::Unhealthy),
            (Some(&unready), timed, true, 129, until),
            (Some(&unready), timed, true, 130, NodeHealth::Unhealthy),
            (Some(&unready), timed, false, 100, NodeHealth::Unhealthy),
            (Some(&unready), blunt, false, 129, until),
            (Some(&unready), blunt, false, 130, NodeHealth::Unhealthy),
            (Some(&tainted), usual, true, 100, unsure),
            (Some(&tainted), usual, false, 100, NodeHealth::Unhealthy),
            (Some(&tainted), blunt, true, 100, NodeHealth::Unhealthy),
            (Some(&tainted), blind, false, 100, NodeHealth::Healthy),
            (Some(&soft), usual, false, 100, NodeHealth::Healthy),
        ];
        for (row, (node, rules, busy, now, want)) in table.into_iter().enumerate() {
            assert_eq!(assess_node(node, &[], busy, rules, at(now)), want, "row {row}");
        }
    }

    #[test]
    fn toleration_seconds_delay_taint_failure() {
        let evicting = node(true, Some("NoExecute"));
        let toleration = |seconds| Toleration {
            key: Some("k".to_owned()),
            operator: Some("Exists".to_owned()),
            toleration_seconds: seconds,
            ..Toleration::default()
        };
        let assess = |seconds: Option<i64>, busy, now| {
            assess_node(Some(&evicting), &[toleration(seconds)], busy, NodeFailureGates::default(), at(now))
        };
        assert_eq!(assess(None, false, 1000), NodeHealth::Healthy);
        assert_eq!(assess(Some(60), false, 159), NodeHealth::Monitoring(Some(at(160))));
        assert_eq!(assess(Some(60), true, 160), NodeHealth::Monitoring(None));
        assert_eq!(assess(Some(60), false, 160), NodeHealth::Unhealthy);
    }
}
