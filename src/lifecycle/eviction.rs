//! Eviction in two steps: first the condition, then, when nothing runs any more, the quota.

use super::reservation::{set_condition, unreserve};
use super::{checks, conditions, pods_ready};
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{EvictionCount, GatePosition, WorkloadStatus};
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;

/// Why a workload is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionCause {
    /// Reason of the Evicted condition without what is behind it, as metrics count it.
    pub reason: &'static str,
    /// What is behind it, or empty.
    pub underlying_cause: String,
    /// A sentence.
    pub message: String,
}

impl EvictionCause {
    /// A cause with nothing behind it.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, underlying_cause: String::new(), message: message.into() }
    }

    /// Reason of the condition: a deactivation names what is behind it there, a timeout does not.
    pub fn condition_reason(&self) -> String {
        if self.reason == DEACTIVATED && !self.underlying_cause.is_empty() {
            format!("{DEACTIVATED}DueTo{}", self.underlying_cause)
        } else {
            self.reason.to_owned()
        }
    }

    /// Reason of the event.
    pub fn event_reason(&self) -> String {
        format!("EvictedDueTo{}", self.condition_reason())
    }
}

/// `spec.active` is false.
pub const DEACTIVATED: &str = "Deactivated";
/// An admission check asked for a retry.
pub const ADMISSION_CHECK: &str = "AdmissionCheck";
/// Pods were not ready in time.
pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
/// The ClusterQueue drains.
pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
/// The LocalQueue drains.
pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
/// Others need the room.
pub const PREEMPTED: &str = "Preempted";
/// A variant with a better flavor takes over.
pub const FLAVOR_MIGRATION: &str = "FlavorMigration";
/// Reason of the Finished condition of a slice that another has taken over from.
pub const SLICE_REPLACED: &str = "WorkloadSliceReplaced";
/// Nodes have failed.
pub const NODE_FAILURES: &str = "NodeFailures";

/// First step: the workload must stop. The reservation stays.
pub fn evict(status: &mut WorkloadStatus, cause: &EvictionCause, generation: i64, now: Timestamp) {
    let reason = cause.condition_reason();
    set_condition(status, ConditionType::Evicted, true, &reason, &cause.message, generation, now);
    status.cluster_name = None;
    status.nominated_cluster_names.clear();
    status.unhealthy_nodes.clear();
    checks::reset(status, now);
    if conditions::is_true(status, ConditionType::BlockedOnPreemptionGates) {
        set_condition(
            status,
            ConditionType::BlockedOnPreemptionGates,
            false,
            &reason,
            &cause.message,
            generation,
            now,
        );
    }
    for gate in &mut status.preemption_gates {
        if gate.position != GatePosition::Closed {
            gate.position = GatePosition::Closed;
            gate.last_transition_time = conditions::to_api_time(now);
        }
    }
    increment_eviction_count(status, cause);
}

/// First step for one that has to make room. One that is going already stays as it is.
pub fn preempt(
    status: &mut WorkloadStatus,
    reason: PreemptionReason,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    if conditions::is_true(status, ConditionType::Evicted) {
        return;
    }
    evict(status, &preemption_cause(reason, message), generation, now);
    if reason == PreemptionReason::FlavorMigration {
        return;
    }
    set_condition(status, ConditionType::Preempted, true, reason.as_str(), message, generation, now);
}

/// What is behind the eviction of one that has to make room.
pub fn preemption_cause(reason: PreemptionReason, message: &str) -> EvictionCause {
    EvictionCause::new(
        if reason == PreemptionReason::FlavorMigration { FLAVOR_MIGRATION } else { PREEMPTED },
        message,
    )
}

/// Why a slice is over that another has taken over from.
pub fn slice_replaced_message(uid: &str, job_uid: &str) -> String {
    format!(
        "Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to workload slice aggregation"
    )
}

/// Second step: nothing runs any more; the quota returns and the workload may be queued again, or not.
pub fn release(
    status: &mut WorkloadStatus,
    active: bool,
    pods_ready_kept: bool,
    generation: i64,
    now: Timestamp,
) {
    let (reason, message) = conditions::find(status, ConditionType::Evicted)
        .map_or_else(Default::default, |c| (c.reason.clone(), c.message.clone()));
    let pending = if active { PendingReason::PendingEvaluation } else { PendingReason::Deactivated };
    unreserve(status, pending, &message, generation, now);
    let again = reason == PREEMPTED || reason == NODE_FAILURES;
    set_condition(status, ConditionType::Requeued, again, &reason, &message, generation, now);
    if pods_ready_kept {
        pods_ready::reset(status, generation, now);
    }
}

/// Since when the workload is stopped because the manager has deactivated it; a user's deactivation does not count.
pub fn deactivated_by_manager(status: &WorkloadStatus) -> Option<Timestamp> {
    let evicted = conditions::find(status, ConditionType::Evicted).filter(|c| c.status == "True")?;
    let cause = evicted.reason.strip_prefix(DEACTIVATED)?;
    cause.starts_with("DueTo").then_some(evicted.last_transition_time.0)
}

/// Evictions so far for the same reason and cause.
pub fn eviction_count(status: &WorkloadStatus, cause: &EvictionCause) -> i32 {
    status.scheduling_stats.as_ref().map_or(0, |s| {
        s.evictions
            .iter()
            .find(|e| e.reason == cause.reason && e.underlying_cause == cause.underlying_cause)
            .map_or(0, |e| e.count)
    })
}

fn increment_eviction_count(status: &mut WorkloadStatus, cause: &EvictionCause) {
    let evictions = &mut status.scheduling_stats.get_or_insert_default().evictions;
    let found = evictions
        .iter_mut()
        .find(|e| e.reason == cause.reason && e.underlying_cause == cause.underlying_cause);
    if let Some(entry) = found {
        entry.count = entry.count.saturating_add(1);
    } else {
        evictions.push(EvictionCount {
            reason: cause.reason.to_owned(),
            underlying_cause: cause.underlying_cause.clone(),
            count: 1,
        });
    }
}
