//! Sets and clears the quota reservation of a workload.

use super::backoff;
use super::conditions::{self, ConditionUpdate};
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{Admission, WorkloadStatus};
use jiff::Timestamp;
use std::sync::Arc;

/// Returns whether the workload has quota: reserved and not finished. A deactivated or evicted workload keeps its quota
/// until the reservation is cleared.
pub fn holds_quota(status: &WorkloadStatus) -> bool {
    conditions::is_true(status, ConditionType::QuotaReserved)
        && !conditions::is_true(status, ConditionType::Finished)
        && status.admission.is_some()
}

/// Records a reservation. Sets the conditions of an earlier eviction to False; their messages keep the earlier text.
pub fn reserve(status: &mut WorkloadStatus, admission: Admission, generation: i64, now: Timestamp) {
    let message = format!("Quota reserved in ClusterQueue {}", admission.cluster_queue);
    conditions::set(
        status,
        &ConditionUpdate::new(ConditionType::QuotaReserved, true, "QuotaReserved", &message),
        generation,
        now,
    );
    for kind in [ConditionType::Evicted, ConditionType::Preempted, ConditionType::BlockedOnPreemptionGates] {
        if conditions::is_true(status, kind) {
            let earlier = conditions::find(status, kind).map(|c| c.message.clone()).unwrap_or_default();
            conditions::set(
                status,
                &ConditionUpdate::new(kind, false, "QuotaReserved", &format!("Previously: {earlier}")),
                generation,
                now,
            );
        }
    }
    status.admission = Some(admission);
    status.resource_requests = Arc::default();
}

/// Sets QuotaReserved, and Admitted if it is True, to the reason and message of a valid reservation.
pub fn confirm(status: &mut WorkloadStatus, generation: i64, now: Timestamp) {
    let queue =
        status.admission.as_ref().map(|admission| admission.cluster_queue.clone()).unwrap_or_default();
    let message = format!("Quota reserved in ClusterQueue {queue}");
    conditions::set(
        status,
        &ConditionUpdate::new(ConditionType::QuotaReserved, true, "QuotaReserved", &message),
        generation,
        now,
    );
    if conditions::is_true(status, ConditionType::Admitted) {
        conditions::set(
            status,
            &ConditionUpdate::new(ConditionType::Admitted, true, "Admitted", "The workload is admitted"),
            generation,
            now,
        );
    }
}

/// Clears the reservation and sets the pending reason. Without a reservation, only updates the pending reason.
pub fn unreserve(
    status: &mut WorkloadStatus,
    reason: PendingReason,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    conditions::set(
        status,
        &ConditionUpdate::new(ConditionType::QuotaReserved, false, reason.as_str(), message),
        generation,
        now,
    );
    status.admission = None;
    sync_admitted(status, generation, now);
}

/// Removes what is left of a reservation that another controller has cleared without it: the next one is an admission of its own,
/// which its checks precede.
pub fn drop_leftovers(status: &mut WorkloadStatus, generation: i64, now: Timestamp) {
    if !conditions::is_true(status, ConditionType::QuotaReserved) {
        status.admission = None;
        if conditions::is_true(status, ConditionType::Admitted) {
            sync_admitted(status, generation, now);
        }
    }
}

/// Publishes the verdict of the scheduler as pending reason. For a closed preemption gate also sets
/// BlockedOnPreemptionGates, for clients that open gates.
pub fn set_pending(
    status: &mut WorkloadStatus,
    reason: PendingReason,
    message: &str,
    generation: i64,
    now: Timestamp,
) {
    unreserve(status, reason, message, generation, now);
    if reason == PendingReason::AdmissionGated {
        let kind = ConditionType::BlockedOnPreemptionGates;
        conditions::set(
            status,
            &ConditionUpdate::new(kind, true, "PreemptionGated", message),
            generation,
            now,
        );
    }
}

/// Sets `Admitted` from the reservation, the admission checks and the delayed topology requests; an admitted workload
/// stays admitted while it has its reservation. When an admission ends, adds its duration to the accumulated execution
/// time.
pub fn sync_admitted(status: &mut WorkloadStatus, generation: i64, now: Timestamp) {
    let was = conditions::true_since(status, ConditionType::Admitted);
    let reserved = conditions::is_true(status, ConditionType::QuotaReserved);
    if reserved && was.is_some() {
        return;
    }
    let checks_ready = super::checks::all_ready(status);
    let topology_pending = status.admission.as_ref().is_some_and(super::checks::awaits_topology);
    if reserved && checks_ready && !topology_pending {
        conditions::set(
            status,
            &ConditionUpdate::new(ConditionType::Admitted, true, "Admitted", "The workload is admitted"),
            generation,
            now,
        );
        return;
    }
    if let Some(start) = was {
        let seconds = i32::try_from(backoff::elapsed(start, now).as_secs()).unwrap_or(i32::MAX);
        let earlier = status.accumulated_past_execution_time_seconds.unwrap_or(0);
        status.accumulated_past_execution_time_seconds = Some(earlier.saturating_add(seconds));
    }
    let (reason, message) = if !reserved {
        ("NoReservation", "The workload has no reservation")
    } else if checks_ready {
        ("PendingDelayedTopologyRequests", "There are pending delayed topology requests")
    } else {
        ("UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
    };
    conditions::set(
        status,
        &ConditionUpdate::new(ConditionType::Admitted, false, reason, message),
        generation,
        now,
    );
}
