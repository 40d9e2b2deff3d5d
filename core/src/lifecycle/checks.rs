//! Admission checks of a workload: which checks apply, and which action their states require.

use super::conditions::to_api_time;
use crate::api::v1beta2::{
    Admission, AdmissionCheckState, CheckState, ClusterQueue, DelayedTopologyRequestState, WorkloadStatus,
};
use jiff::Timestamp;
use std::collections::BTreeSet;

/// Action that the states of the admission checks require.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckAction {
    /// Evict the workload and requeue it; the message is the eviction message.
    Retry(String),
    /// Deactivate the workload; the message names the rejecting checks.
    Reject(String),
}

/// Returns whether every listed check is Ready; true for an empty list.
pub fn all_ready(status: &WorkloadStatus) -> bool {
    status.admission_checks.iter().all(|c| c.state == CheckState::Ready)
}

/// Returns whether a pod set has a pending delayed topology request without a topology assignment.
pub fn awaits_topology(admission: &Admission) -> bool {
    admission.pod_set_assignments.iter().any(|a| {
        a.delayed_topology_request == Some(DelayedTopologyRequestState::Pending)
            && a.topology_assignment.is_none()
    })
}

/// Returns the sorted names of the checks that apply. With an admission, a rule limited to flavors applies if one of
/// those flavors is assigned; without an admission, only if the rule covers all flavors of the ClusterQueue.
pub fn applicable(queue: &ClusterQueue, admission: Option<&Admission>) -> Vec<String> {
    let Some(strategy) = &queue.spec.admission_checks_strategy else {
        return Vec::new();
    };
    let all: BTreeSet<&str> = queue.quota_flavors().collect();
    let assigned: Option<BTreeSet<&str>> = admission
        .map(|a| a.pod_set_assignments.iter().flat_map(|p| p.flavors.values().map(String::as_str)).collect());
    let mut names: Vec<String> = strategy
        .admission_checks
        .iter()
        .filter(|rule| {
            let on: BTreeSet<&str> = rule.on_flavors.iter().map(String::as_str).collect();
            match &assigned {
                _ if on.is_empty() => true,
                Some(given) => given.iter().any(|f| on.contains(f)),
                None => all.is_subset(&on),
            }
        })
        .map(|rule| rule.name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// Makes the list of check states contain exactly `names`: adds missing checks as Pending, keeps the states of listed
/// checks, removes checks that no longer apply.
pub fn sync(status: &mut WorkloadStatus, names: &[String], now: Timestamp) {
    let known = std::mem::take(&mut status.admission_checks);
    status.admission_checks = names
        .iter()
        .map(|name| {
            known.iter().find(|c| &c.name == name).cloned().unwrap_or_else(|| AdmissionCheckState {
                name: name.clone(),
                state: CheckState::Pending,
                last_transition_time: to_api_time(now),
                message: String::new(),
                requeue_after_seconds: None,
                retry_count: None,
                pod_set_updates: Vec::new(),
            })
        })
        .collect();
}

/// Copies the states of the checks that this manager controls into the status. Returns an event message for each
/// check whose state changed.
pub fn apply_check_states(status: &mut WorkloadStatus, states: &[AdmissionCheckState]) -> Vec<String> {
    let mut changes = Vec::new();
    for check in &mut status.admission_checks {
        let Some(new) = states.iter().find(|new| new.name == check.name) else { continue };
        if new.state != check.state {
            let separator = if new.message.is_empty() { "" } else { " with message: " };
            changes.push(format!(
                "Admission check {} updated state from {} to {}{separator}{}",
                check.name, check.state, new.state, new.message
            ));
        }
        check.clone_from(new);
    }
    changes
}

/// Adds missing checks as Pending. Does not remove checks that no longer apply; [`sync`] does that later.
pub fn add(status: &mut WorkloadStatus, names: &[String], now: Timestamp) {
    let listed = status.admission_checks.iter().map(|c| c.name.clone());
    let mut all: Vec<String> = listed.chain(names.iter().cloned()).collect();
    all.sort();
    all.dedup();
    sync(status, &all, now);
}

/// Returns the action that the check states require, if any; a rejection takes precedence over a retry.
pub fn required_action(status: &WorkloadStatus) -> Option<CheckAction> {
    let rejected = describe_checks_in_state(status, &CheckState::Rejected).map(CheckAction::Reject);
    rejected.or_else(|| {
        describe_checks_in_state(status, &CheckState::Retry)
            .map(|checks| CheckAction::Retry(format!("Evicted due to {checks}")))
    })
}

/// Lists the checks in a state with their messages, sorted by name. Returns `None` if no check is in that state.
fn describe_checks_in_state(status: &WorkloadStatus, wanted: &CheckState) -> Option<String> {
    let mut found: Vec<&AdmissionCheckState> =
        status.admission_checks.iter().filter(|check| check.state == *wanted).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    let noun = match found.len() {
        0 => return None,
        1 => "AdmissionCheck",
        _ => "AdmissionChecks",
    };
    let describe = |check: &&AdmissionCheckState| match check.message.as_str() {
        "" => format!("\"{}\"", check.name),
        message => format!("\"{}\" ({message})", check.name),
    };
    let all: Vec<String> = found.iter().map(describe).collect();
    Some(format!("{noun} in {wanted} state: {}", all.join("; ")))
}

/// Returns the earliest time to requeue the workload: the latest retry time of all checks in state Retry.
pub fn retry_at(status: &WorkloadStatus) -> Option<Timestamp> {
    status
        .admission_checks
        .iter()
        .filter(|c| c.state == CheckState::Retry)
        .filter_map(|c| {
            let wait = super::backoff::seconds(c.requeue_after_seconds?);
            Some(super::backoff::after(c.last_transition_time.0, wait))
        })
        .max()
}

/// Resets the check states to Pending after an eviction. Only checks in state Retry increment their retry count.
pub fn reset(status: &mut WorkloadStatus, now: Timestamp) {
    for check in &mut status.admission_checks {
        if check.state == CheckState::Pending {
            continue;
        }
        check.retry_count =
            (check.state == CheckState::Retry).then(|| check.retry_count.unwrap_or(0).saturating_add(1));
        check.message = format!("Reset to Pending after eviction. Previously: {}", check.state);
        check.state = CheckState::Pending;
        check.pod_set_updates.clear();
        check.last_transition_time = to_api_time(now);
    }
}
