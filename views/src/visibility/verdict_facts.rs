//! The admission and the events of a Workload, from its object.
//!
//! Invariant: messages of conditions are not repeated, because they may contain names of other tenants.

use super::amounts::amount_view;
use super::preemptors::preemptible_by;
use super::views::{
    AdmissionView, CheckView, HistoryEntry, Need, PodSetAdmission, PodStatesView, WorkloadView,
};
use super::workload_row::Rows;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::PodSetAssignment;
use crate::cache::nodes::placement_of;
use crate::cache::records::WorkloadRecord;
use crate::cache::state_index::{granted, granted_amount};
use crate::lifecycle::conditions;
use crate::quota::{FlavorResource, NodeRef};
use crate::scheduler::PodsExplanation;
use crate::topology::DomainPath;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of domains of a pod set in a view.
const MAX_DOMAINS: usize = 500;

/// Returns the states of the admission checks.
pub(super) fn checks(record: &WorkloadRecord) -> Vec<CheckView> {
    let view = |check: &crate::api::v1beta2::AdmissionCheckState| CheckView {
        name: check.name.clone(),
        state: check.state.to_string(),
        message: check.message.clone(),
        since: Some(check.last_transition_time.0),
    };
    record.status.admission_checks.iter().map(view).collect()
}

/// Returns the creation of a Workload as an event, with its job and its LocalQueue.
fn created(record: &WorkloadRecord) -> HistoryEntry {
    let job = record.owner.as_ref().map(|owner| format!("for {} {}", owner.kind, owner.name));
    let queue = record.queue_name.as_deref().map(|queue| format!("in LocalQueue {queue}"));
    HistoryEntry {
        time: record.meta.created,
        event: HistoryEntry::CREATED.to_owned(),
        reason: String::new(),
        text: job.into_iter().chain(queue).collect::<Vec<_>>().join(" "),
        by: None,
    }
}

/// Returns the creation of a Workload and the events that its conditions show, without their messages, which may contain names
/// of other tenants.
pub(super) fn history(record: &WorkloadRecord) -> Vec<HistoryEntry> {
    let shown = [
        ConditionType::QuotaReserved,
        ConditionType::Admitted,
        ConditionType::Evicted,
        ConditionType::Preempted,
        ConditionType::PodsReady,
        ConditionType::Finished,
    ];
    let happened = |condition: &&Condition| {
        condition.status == "True" && shown.iter().any(|kind| kind.as_str() == condition.type_)
    };
    let entry = |condition: &Condition| HistoryEntry {
        time: condition.last_transition_time.0,
        event: condition.type_.clone(),
        reason: condition.reason.clone(),
        text: text_of(condition),
        by: None,
    };
    let happened = record.status.conditions.iter().filter(happened).map(entry);
    let mut entries: Vec<HistoryEntry> = std::iter::once(created(record)).chain(happened).collect();
    HistoryEntry::sort(&mut entries);
    entries
}

/// Returns the text about a preemption: the ClusterQueue of the preemptor, which is the last part of its path in the message.
fn text_of(condition: &Condition) -> String {
    if condition.type_ != ConditionType::Preempted.as_str() {
        return String::new();
    }
    let path = condition.message.split_once("preemptor path: ").map(|(_, rest)| rest);
    let path = path.map(|rest| rest.split([';', ' ', ',']).next().unwrap_or(rest));
    let queue = path.and_then(|path| path.rsplit('/').next()).filter(|name| !name.is_empty());
    queue.map(|name| format!("preempted by a workload of ClusterQueue {name}")).unwrap_or_default()
}

/// Returns the number of pods of a pod set by domain. An assignment to hosts has their names alone; the pods' explanation has the
/// domains that a host is in.
fn domains(set: &PodSetAssignment, pods: Option<&PodsExplanation>) -> BTreeMap<String, u64> {
    let placement = placement_of(set);
    let domains = placement.iter().flat_map(|placement| &placement.domains).take(MAX_DOMAINS);
    let named = |(values, count): &(DomainPath, i32)| {
        let path = pods.zip(values.last()).and_then(|(pods, host)| pods.hosts.get(host));
        (path.unwrap_or(values).join("/"), u64::try_from(*count).unwrap_or(0))
    };
    domains.map(named).collect()
}

/// Returns the states of the pods of a pod set, and, if it has no topology assignment, the number of its pods by node.
fn pods_of(
    set: &PodSetAssignment,
    pods: Option<&PodsExplanation>,
) -> (Option<PodStatesView>, BTreeMap<String, u64>) {
    let Some(found) = pods.and_then(|pods| pods.states.get(set.name.as_str())) else {
        return (None, BTreeMap::new());
    };
    let states = PodStatesView { running: found.running, pending: found.pending, ended: found.ended };
    let nodes = found.nodes.iter().filter(|_| set.topology_assignment.is_none()).take(MAX_DOMAINS);
    (Some(states), nodes.map(|(node, count)| (node.to_string(), *count)).collect())
}

/// Returns the resources of a pod set, the scarcest for the whole Workload first.
fn resources_of(rows: Rows<'_>, queue: &NodeRef, set: &PodSetAssignment, row: &WorkloadView) -> Vec<Need> {
    let of_set = row.needs.iter().filter_map(|need| {
        let quantity = set.resource_usage.get(&need.resource)?;
        let has_flavor = set.flavors.get(&need.resource).is_some_and(|flavor| *flavor == need.flavor);
        let amount = has_flavor.then(|| granted_amount(&need.resource, quantity))?;
        let fr = FlavorResource::new(&need.flavor, &need.resource);
        Some(Need { amount: amount_view(&rows.quota.facts.units, queue, &fr, amount), ..need.clone() })
    });
    of_set.collect()
}

/// Returns the admission of a Workload with quota, with what its pods do if that is known.
pub(super) fn admission(
    rows: Rows<'_>,
    record: &WorkloadRecord,
    row: &WorkloadView,
    pods: Option<&PodsExplanation>,
) -> AdmissionView {
    let admitted = conditions::true_since(&record.status, ConditionType::Admitted);
    let past = record.status.accumulated_past_execution_time_seconds.unwrap_or(0);
    let left = record.max_execution_seconds.map(|seconds| i64::from(seconds).saturating_sub(past.into()));
    let name: Arc<str> = Arc::from(row.cluster_queue.as_str());
    let queue = NodeRef::ClusterQueue(Arc::clone(&name));
    let amounts = record.status.admission.iter().flat_map(granted);
    let used: Vec<FlavorResource> = amounts.filter(|(_, amount)| *amount > 0).map(|(fr, _)| fr).collect();
    let sets = record.status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    let borrows = row.needs.iter().any(|need| {
        let fr = FlavorResource::new(&need.flavor, &need.resource);
        rows.quota.borrowed(&queue, &fr) > 0
    });
    AdmissionView {
        pod_sets: sets
            .map(|set| {
                let (states, nodes) = pods_of(set, pods);
                PodSetAdmission {
                    name: set.name.clone(),
                    count: set.count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0),
                    resources: resources_of(rows, &queue, set, row),
                    domains: domains(set, pods),
                    states,
                    nodes,
                }
            })
            .collect(),
        ends_by: admitted
            .zip(left)
            .and_then(|(at, left)| at.checked_add(SignedDuration::from_secs(left)).ok()),
        borrows: borrows && rows.access.sees_sums(),
        // A deactivated Workload is evicted already.
        preemptible_by: if record.active {
            preemptible_by(rows, row.priority, &name, &used)
        } else {
            Vec::new()
        },
    }
}
