//! The PodsReady condition and its timeouts.

use super::backoff;
use super::conditions::{self, ConditionUpdate};
use crate::api::reason::ConditionType::{Admitted, PodsReady};
use crate::api::v1beta2::WorkloadStatus;
use jiff::{SignedDuration, Timestamp};

/// Limits on the time that pods may take to be ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsReadyLimits {
    /// From admission to the first time all pods are ready.
    pub timeout: SignedDuration,
    /// From the loss of a ready pod to its replacement; none when absent.
    pub recovery_timeout: Option<SignedDuration>,
    /// Times that a workload may be queued again before it is deactivated; no limit when absent.
    pub max_requeues: Option<i32>,
    /// First wait before it is queued again.
    pub backoff_base: SignedDuration,
    /// Longest wait.
    pub backoff_max: SignedDuration,
}

/// How pods came to be late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsReadyTimeout {
    /// They never were ready in this admission.
    Start,
    /// One was lost and not replaced.
    Recovery,
}

impl PodsReadyTimeout {
    /// The cause as metrics and counters name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "WaitForStart",
            Self::Recovery => "WaitForRecovery",
        }
    }
}

/// Whether, and when, pods are late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsReadyTimer {
    /// Nothing is timed.
    Off,
    /// They are late at this time.
    ExpiresAt(Timestamp),
    /// They are late now.
    Expired(PodsReadyTimeout),
}

/// Records what is seen of the pods.
pub fn observe(status: &mut WorkloadStatus, ready: bool, generation: i64, now: Timestamp) {
    let admitted = conditions::is_true(status, Admitted);
    let before = conditions::reason(status, PodsReady).to_owned();
    let was_ready = conditions::is_true(status, PodsReady);
    let recovering = before == "WaitForRecovery" || before == "Recovered";
    let (holds, reason, message) = match (admitted && ready, was_ready || before == "WaitForRecovery") {
        (true, _) if recovering => (true, "Recovered", "All pods are ready again"),
        (true, _) => (true, "Started", "All pods reached readiness and the workload is running"),
        (false, true) if admitted => {
            (false, "WaitForRecovery", "At least one pod has failed, waiting for recovery")
        }
        (false, _) => (false, "WaitForStart", "Not all pods are ready or succeeded"),
    };
    let same = conditions::find(status, PodsReady)
        .is_some_and(|c| (c.status == "True") == holds && c.reason == reason);
    if !same {
        conditions::set(status, &ConditionUpdate::new(PodsReady, holds, reason, message), generation, now);
    }
}

/// Sets the condition back when the reservation ends.
pub fn reset(status: &mut WorkloadStatus, generation: i64, now: Timestamp) {
    if conditions::find(status, PodsReady).is_some() {
        conditions::set(
            status,
            &ConditionUpdate::new(PodsReady, false, "WaitForStart", "Not all pods are ready or succeeded"),
            generation,
            now,
        );
    }
}

/// Whether the pods of an admitted workload are late.
pub fn timer(status: &WorkloadStatus, limits: &PodsReadyLimits, now: Timestamp) -> PodsReadyTimer {
    let Some(admitted) = conditions::true_since(status, Admitted) else {
        return PodsReadyTimer::Off;
    };
    let (late, start, limit) = match conditions::find(status, PodsReady) {
        Some(c) if c.status == "True" => return PodsReadyTimer::Off,
        Some(c) if c.reason == "WaitForRecovery" => match limits.recovery_timeout {
            Some(limit) => (PodsReadyTimeout::Recovery, c.last_transition_time.0, limit),
            None => return PodsReadyTimer::Off,
        },
        _ => (PodsReadyTimeout::Start, admitted, limits.timeout),
    };
    let end = backoff::after(start, limit);
    if now >= end { PodsReadyTimer::Expired(late) } else { PodsReadyTimer::ExpiresAt(end) }
}
