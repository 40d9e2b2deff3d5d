//! Workloads on a node that a change removes.
//!
//! Invariants: a workload is named also if it keeps its quota, because its pods on the node are deleted, and what they have done is
//! lost; a job that runs all its pods at once then runs for its whole length again.

use super::owner_uids;
use crate::api::ObjectKey;
use crate::api::names::WORKLOAD_ANNOTATION;
use crate::api::v1beta2::Admission;
use crate::cache::Kind;
use crate::cache::nodes::placement_of;
use crate::simulate::objects::{controller_uid, field_text, is_true, key_of, text_at, value_at};
use crate::simulate::simulation::Simulation;
use crate::simulate::timeline::WorkloadRef;
use crate::topology::{HOSTNAME_LABEL, Placement};
use serde_json::Value;
use std::collections::BTreeMap;

/// Most workloads that a note names.
const MAX_NAMES: usize = 10;

impl Simulation {
    /// Notes the workloads on a node that is removed, and begins their runs again.
    pub(super) fn leave_node(&mut self, node: &ObjectKey) {
        let on_node = self.pods_on(node);
        let name = |key: &ObjectKey| {
            let workload = self.harness.server.get(Kind::Workload, key);
            let named = workload.map(WorkloadRef::from_workload);
            named.map_or_else(|| key.to_string(), |named| named.display_name().to_owned())
        };
        let names = on_node.iter().map(|(key, pods)| format!("{} ({pods})", name(key)));
        let note = note(&node.name, &names.collect::<Vec<_>>());
        self.applier.notes.push(note);
        let jobs = on_node.keys().flat_map(|workload| self.jobs_of(Kind::Workload, workload));
        // A pod of a group runs by itself: the others of its group go on.
        let jobs: Vec<(Kind, ObjectKey)> = jobs.filter(|(kind, _)| *kind != Kind::Pod).collect();
        for (kind, key) in jobs {
            if let Some(job) = self.harness.server.get(kind, &key) {
                self.job_runner.restart(&(kind, key), job, self.now);
            }
        }
    }

    /// Returns the number of pods on a node by Workload: of its topology assignment, or bound to the node.
    fn pods_on(&self, node: &ObjectKey) -> BTreeMap<ObjectKey, i64> {
        let server = &self.harness.server;
        let labels = server.get(Kind::Node, node).and_then(|node| value_at(node, "/metadata/labels"));
        let host = labels.map(|labels| field_text(labels, HOSTNAME_LABEL)).filter(|host| !host.is_empty());
        let host = host.unwrap_or(&node.name);
        let (mut found, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for workload in server.all(Kind::Workload).filter(|workload| !is_true(workload, "Finished")) {
            let key = key_of(workload);
            let assigned = assigned_on(workload, host);
            if assigned > 0 {
                found.insert(key.clone(), assigned);
            }
            owners.extend(owner_uids(workload).map(|owner| (owner, key.clone())));
        }
        let is_here = |pod: &&Value| {
            text_at(pod, "/spec/nodeName") == &*node.name
                && !matches!(text_at(pod, "/status/phase"), "Succeeded" | "Failed")
        };
        let mut bound: BTreeMap<ObjectKey, i64> = BTreeMap::new();
        for pod in server.all(Kind::Pod).filter(is_here) {
            let annotations = value_at(pod, "/metadata/annotations");
            let named = annotations.map(|all| field_text(all, WORKLOAD_ANNOTATION)).unwrap_or_default();
            let workload = if named.is_empty() {
                controller_uid(pod).and_then(|owner| owners.get(owner)).cloned()
            } else {
                Some(ObjectKey::new(text_at(pod, "/metadata/namespace"), named))
            };
            if let Some(workload) = workload {
                let pods = bound.entry(workload).or_default();
                *pods = pods.saturating_add(1);
            }
        }
        for (workload, pods) in bound {
            let known = found.entry(workload).or_default();
            *known = pods.max(*known);
        }
        found
    }
}

/// Returns the number of pods that the topology assignment of a Workload puts on a host.
fn assigned_on(workload: &Value, host: &str) -> i64 {
    let admission = value_at(workload, "/status/admission").cloned().unwrap_or_default();
    let Ok(admission) = serde_json::from_value::<Admission>(admission) else { return 0 };
    let placements = admission.pod_set_assignments.iter().filter_map(placement_of);
    let domains = placements.filter(Placement::is_by_host).flat_map(|placement| placement.domains);
    let here = domains.filter(|(values, _)| values.last().is_some_and(|value| **value == *host));
    here.map(|(_, pods)| i64::from(pods)).sum()
}

fn note(node: &str, names: &[String]) -> String {
    if names.is_empty() {
        return format!("no workload is known to be on Node {node}");
    }
    let first = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "Node {node} has pods of {first}{more}: they are deleted, and begin again on other nodes where there is room"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_some_and_counts_the_rest() {
        let names = |count: usize| (0..count).map(|index| format!("ns/w{index} (1)")).collect::<Vec<_>>();
        assert_eq!(note("n", &[]), "no workload is known to be on Node n");
        assert!(
            note("n", &names(2)).starts_with("Node n has pods of ns/w0 (1), ns/w1 (1): they are deleted")
        );
        assert!(note("n", &names(12)).contains("ns/w9 (1) and 2 more: "));
    }
}
