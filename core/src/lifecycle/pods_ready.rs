//! The PodsReady condition and its timeouts (`waitForPodsReady`).

use super::backoff;
use super::conditions::{self, ConditionUpdate};
use crate::api::reason::ConditionType::{Admitted, PodsReady};
use crate::api::v1beta2::WorkloadStatus;
use jiff::{SignedDuration, Timestamp};

/// Timeouts for pods to become ready, and limits on requeuing after a timeout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsReadyLimits {
    /// Time from admission until all pods are ready for the first time.
    pub timeout: SignedDuration,
    /// Time from the loss of a ready pod until all pods are ready again; `None` means no timeout.
    pub recovery_timeout: Option<SignedDuration>,
    /// Maximum number of requeues before the workload is deactivated; `None` means no limit.
    pub max_requeues: Option<i32>,
    /// Back-off before the first requeue.
    pub backoff_base: SignedDuration,
    /// Maximum back-off.
    pub backoff_max: SignedDuration,
}

/// The PodsReady timeout that expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsReadyTimeout {
    /// The pods have not all been ready in this admission.
    Start,
    /// A ready pod was lost and not replaced in time.
    Recovery,
}

impl PodsReadyTimeout {
    /// Returns the underlying cause as used in metrics and eviction counts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "WaitForStart",
            Self::Recovery => "WaitForRecovery",
        }
    }
}

/// State of the PodsReady timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodsReadyTimer {
    /// No timeout is running.
    Off,
    /// The timeout expires at this time.
    ExpiresAt(Timestamp),
    /// The timeout has expired.
    Expired(PodsReadyTimeout),
}

/// How long the condition stays True while pods succeed one after another. Kueue reconciles a group at most once in this time: if
/// it finishes before, its pods are never reported as not ready.
const COMPLETION_WINDOW: SignedDuration = SignedDuration::from_secs(1);

/// Whether the pods of a job are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// A pod is missing or not ready.
    #[default]
    NotReady,
    /// There are no pods yet.
    NoPods,
    /// Those that are not ready have succeeded; when that was first seen.
    CompletingSince(Timestamp),
    /// All are ready, or have succeeded in a job that expects it.
    Ready,
}

/// Returns until when a Workload whose pods were ready waits to report that some have succeeded; `None` if it does not wait.
pub fn completion_window(status: &WorkloadStatus, readiness: Readiness, now: Timestamp) -> Option<Timestamp> {
    let Readiness::CompletingSince(since) = readiness else { return None };
    let end = backoff::after(since, COMPLETION_WINDOW);
    (now < end && conditions::is_true(status, PodsReady)).then_some(end)
}

/// Sets the PodsReady condition from the observed readiness of the pods.
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

/// Resets the condition, if present, when the reservation ends.
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

/// Returns the state of the PodsReady timeout; off if the workload is not admitted.
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
