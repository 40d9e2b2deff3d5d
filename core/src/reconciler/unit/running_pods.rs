//! What the pods of a Workload with quota do, for users: their states and nodes, and what keeps them from running.
//!
//! Invariants: pods that name the Workload and members of its group are counted once, by their names; pods that have ended are not
//! read, so that their number is the one that the Workload's status reports.

use super::LoadedUnit;
use super::units::Units;
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::{Phase, PodMember};
use crate::lifecycle::pod_blocker::{BlockedPods, PodBlocker};
use crate::lifecycle::reservation;
use crate::scheduler::{Explanation, PodStates, PodsExplanation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pod that has not ended.
struct PresentPod<'a> {
    pod_set: &'a str,
    node: Option<&'a str>,
    runs: bool,
    blocker: Option<&'a PodBlocker>,
}

impl Units<'_> {
    /// Explains what the pods of a Workload with quota do, and what keeps them from running once it is admitted: pods that name the
    /// Workload, and pods of a group. `None` if it has no quota.
    pub(crate) fn explain_pods(self, key: &ObjectKey) -> Option<Explanation> {
        let record = self.cache.workload(key).filter(|record| reservation::holds_quota(&record.status))?;
        let unit = self.of_workload(record).and_then(|unit| self.load(&unit));
        let mut pods: BTreeMap<&str, PresentPod<'_>> = BTreeMap::new();
        let named = self.cache.pods_of(key).filter(|(_, pod, _)| self.cache.belongs_to(pod, key));
        for (name, pod, member) in named {
            let present = PresentPod {
                pod_set: &member.pod_set,
                node: pod.node.as_deref(),
                runs: pod.running,
                blocker: member.blocker.as_ref(),
            };
            pods.insert(&name.name, present);
        }
        let members = unit.iter().flat_map(LoadedUnit::members).filter(|member| !member.terminated());
        pods.extend(members.map(|member| (&*member.key.name, present_member(member))));
        // Only an admitted Workload waits for something else than its own admission.
        let blocked = pods.iter().filter(|_| record.may_run());
        let blocked: Vec<(&str, &PodBlocker)> =
            blocked.filter_map(|(name, pod)| Some((*name, pod.blocker?))).collect();
        let is_gated = blocked.iter().any(|(_, blocker)| matches!(blocker, PodBlocker::ForeignGates(_)));
        let text = BlockedPods::of(blocked).map(|blocked| blocked.text).unwrap_or_default();
        let is_known = self.settings.kinds().contains(&Kind::Pod);
        let states = if is_known { states(record, pods.values()) } else { BTreeMap::new() };
        let pods = PodsExplanation { text, is_gated, states, hosts: BTreeMap::new() };
        Some(Explanation { pods: Some(pods), ..Explanation::default() })
    }
}

fn present_member(member: &PodMember) -> PresentPod<'_> {
    let node = member.pod.pointer("/spec/nodeName").and_then(serde_json::Value::as_str);
    PresentPod {
        pod_set: &member.role,
        node: node.filter(|node| !node.is_empty()),
        runs: member.state.phase == Phase::Running,
        blocker: member.blocker.as_ref(),
    }
}

/// Counts pods by pod set and state. Pods of a pod set that the Workload does not have are left out: a user has changed their label.
fn states<'a, 'b: 'a>(
    record: &WorkloadRecord,
    pods: impl Iterator<Item = &'a PresentPod<'b>>,
) -> BTreeMap<Arc<str>, PodStates> {
    let ended = |name: &str| {
        let reported = record.status.reclaimable_pods.iter().find(|pods| pods.name == name);
        reported.and_then(|pods| u64::try_from(pods.count).ok()).unwrap_or(0)
    };
    let of_set =
        |name: &Arc<str>| (Arc::clone(name), PodStates { ended: ended(name), ..PodStates::default() });
    let mut states: BTreeMap<Arc<str>, PodStates> =
        record.pod_sets().iter().map(|set| of_set(&set.name)).collect();
    for pod in pods {
        let Some(found) = states.get_mut(pod.pod_set) else { continue };
        let count = if pod.runs { &mut found.running } else { &mut found.pending };
        *count = count.saturating_add(1);
        if let Some(node) = pod.node {
            let here = found.nodes.entry(Arc::from(node)).or_default();
            *here = here.saturating_add(1);
        }
    }
    states
}
