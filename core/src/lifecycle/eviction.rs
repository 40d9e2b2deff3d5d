//! Eviction in two steps: [`evict`] sets the Evicted condition; [`release`] releases the quota after all pods have
//! stopped.

use super::conditions::{self, ConditionUpdate};
use super::reservation::unreserve;
use super::{checks, pods_ready};
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{EvictionCount, GatePosition, WorkloadStatus};
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;

/// Why a workload is evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionCause {
    /// Reason without the underlying cause, as metrics and eviction counts use it.
    pub reason: &'static str,
    /// Underlying cause, or empty.
    pub underlying_cause: String,
    /// Human-readable message for the conditions.
    pub message: String,
}

impl EvictionCause {
    /// Creates a cause without an underlying cause.
    pub fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, underlying_cause: String::new(), message: message.into() }
    }

    /// Returns the reason of the Evicted condition. Only a deactivation includes its underlying cause there.
    pub fn condition_reason(&self) -> String {
        if self.reason == DEACTIVATED && !self.underlying_cause.is_empty() {
            format!("{DEACTIVATED}DueTo{}", self.underlying_cause)
        } else {
            self.reason.to_owned()
        }
    }

    /// Returns the reason of the eviction event.
    pub fn event_reason(&self) -> String {
        format!("EvictedDueTo{}", self.condition_reason())
    }
}

/// `spec.active` is false.
pub const DEACTIVATED: &str = "Deactivated";
/// An admission check asked for a retry. Also the cause of a deactivation after a check rejected the workload.
pub const ADMISSION_CHECK: &str = "AdmissionCheck";
/// Pods were not ready in time.
pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";
/// The ClusterQueue is stopped with `HoldAndDrain`.
pub const CLUSTER_QUEUE_STOPPED: &str = "ClusterQueueStopped";
/// The LocalQueue is stopped with `HoldAndDrain`.
pub const LOCAL_QUEUE_STOPPED: &str = "LocalQueueStopped";
/// A preemptor needs the quota or the topology capacity of the workload.
pub const PREEMPTED: &str = "Preempted";
/// A variant of the workload with a better flavor replaces it.
pub const FLAVOR_MIGRATION: &str = "FlavorMigration";
/// Reason of the Finished condition of a workload slice that a newer slice has replaced.
pub const SLICE_REPLACED: &str = "WorkloadSliceReplaced";
/// Finished message of a workload slice that a newer one has replaced before that got quota in its place.
pub const SLICE_SUPERSEDED: &str = "Replaced to accommodate a new workload slice";
/// Pods that had succeeded run again, and others have got their quota.
pub const PODS_RESTARTED: &str = "PodsRestarted";
/// Assigned nodes have failed.
pub const NODE_FAILURES: &str = "NodeFailures";

/// First step: sets the Evicted condition so that the job is stopped. The workload keeps its quota reservation.
pub fn evict(status: &mut WorkloadStatus, cause: &EvictionCause, generation: i64, now: Timestamp) {
    let reason = cause.condition_reason();
    conditions::set(
        status,
        &ConditionUpdate::new(ConditionType::Evicted, true, &reason, &cause.message),
        generation,
        now,
    );
    status.cluster_name = None;
    status.nominated_cluster_names.clear();
    status.unhealthy_nodes.clear();
    checks::reset(status, now);
    if conditions::is_true(status, ConditionType::BlockedOnPreemptionGates) {
        conditions::set(
            status,
            &ConditionUpdate::new(ConditionType::BlockedOnPreemptionGates, false, &reason, &cause.message),
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

/// First step for a preemption victim. Changes nothing if the workload is already evicted.
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
    conditions::set(
        status,
        &ConditionUpdate::new(ConditionType::Preempted, true, reason.as_str(), message),
        generation,
        now,
    );
}

/// Returns the eviction cause of a preemption victim.
pub fn preemption_cause(reason: PreemptionReason, message: &str) -> EvictionCause {
    EvictionCause::new(
        if reason == PreemptionReason::FlavorMigration { FLAVOR_MIGRATION } else { PREEMPTED },
        message,
    )
}

/// Returns the Finished message of a workload slice that the slice with this UID has replaced.
pub fn slice_replaced_message(uid: &str, job_uid: &str) -> String {
    format!(
        "Replaced to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to workload slice aggregation"
    )
}

/// Second step, after all pods have stopped: releases the quota and sets the Requeued condition. Requeued is True
/// only after a preemption, node failures or a restart of pods; after other evictions the workload is not queued until its cause ends.
/// `pods_ready_kept` says whether the PodsReady condition is in use and must be reset.
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
    let requeued = [PREEMPTED, NODE_FAILURES, PODS_RESTARTED].contains(&reason.as_str());
    conditions::set(
        status,
        &ConditionUpdate::new(ConditionType::Requeued, requeued, &reason, &message),
        generation,
        now,
    );
    if pods_ready_kept {
        pods_ready::reset(status, generation, now);
    }
}

/// Returns when the manager deactivated the workload, or `None` if it is not evicted or a user deactivated it.
pub fn deactivated_by_manager(status: &WorkloadStatus) -> Option<Timestamp> {
    let evicted = conditions::find(status, ConditionType::Evicted).filter(|c| c.status == "True")?;
    let cause = evicted.reason.strip_prefix(DEACTIVATED)?;
    cause.starts_with("DueTo").then_some(evicted.last_transition_time.0)
}

/// Returns the number of evictions so far with the same reason and underlying cause.
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
