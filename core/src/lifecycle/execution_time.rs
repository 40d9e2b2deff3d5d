//! The maximum execution time of a workload, summed over its admissions.

use super::facts::Transition;
use super::workload::Draft;
use super::{backoff, conditions};
use crate::api::reason::ConditionType;

/// Reason to deactivate a workload that ran longer than it may.
pub(super) const EXECUTION_TIME_EXCEEDED: &str = "MaximumExecutionTimeExceeded";

impl Draft<'_> {
    /// Deactivates a workload that has run as long as it may, in all its admissions.
    pub(super) fn check_execution_time(&mut self) {
        let Some(limit) = self.input.max_execution_seconds else {
            return;
        };
        if conditions::is_true(&self.status, ConditionType::Evicted) {
            return;
        }
        let Some(start) = conditions::true_since(&self.status, ConditionType::Admitted) else {
            return;
        };
        let past = self.status.accumulated_past_execution_time_seconds.unwrap_or(0);
        let end = backoff::after(start, backoff::seconds(limit.saturating_sub(past)));
        if self.now < end {
            self.wake_at(end);
            return;
        }
        self.status.accumulated_past_execution_time_seconds = None;
        let message = "exceeding the maximum execution time";
        self.set_condition(ConditionType::DeactivationTarget, true, EXECUTION_TIME_EXCEEDED, message);
        self.transitions.push(Transition::ExecutionTimeExceeded(limit));
    }

    /// Returns whether the workload was to be deactivated because it ran too long. As in Kueue, the condition that says so
    /// stays while the workload is inactive.
    pub(super) fn exceeded_execution_time(&self) -> bool {
        conditions::reason(&self.status, ConditionType::DeactivationTarget) == EXECUTION_TIME_EXCEEDED
    }

    /// Lets a workload that was deactivated because it ran too long be queued, after a user has activated it: otherwise it
    /// would be deactivated again at once. It gets its whole time again when it is requeued.
    pub(super) fn drop_reached_target(&mut self) {
        if self.exceeded_execution_time() && conditions::is_true(&self.status, ConditionType::Evicted) {
            conditions::remove(&mut self.status, ConditionType::DeactivationTarget);
        }
    }
}
