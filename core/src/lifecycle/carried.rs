//! What a Workload has counted about its job, for the next Workload of the same job.
//!
//! Invariant: nothing is counted twice or lost, whenever the manager stops. The next Workload is created with it as an annotation
//! while the former one exists; it counts as part of the status until the first status is written, which contains it.

use super::backoff;
use super::conditions;
use super::execution_time::EXECUTION_TIME_EXCEEDED;
use crate::api::reason::ConditionType;
use crate::api::v1beta2::{RequeueState, SchedulingStats, WorkloadStatus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Fields of a status that are about the job, and the UID of their Workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Carried {
    /// UID of the former Workload.
    pub from: String,
    /// Time that the job was admitted before, in seconds.
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// Number of requeues, and back-off.
    pub requeue_state: Option<RequeueState>,
    /// Number of evictions.
    pub scheduling_stats: Option<SchedulingStats>,
}

impl Carried {
    /// Returns what a Workload with this UID, status and execution limit in seconds leaves; `None` if the next one does not depend on
    /// it.
    pub fn of(uid: &str, status: &WorkloadStatus, limit: Option<i32>, now: Timestamp) -> Option<Self> {
        let earlier = status.accumulated_past_execution_time_seconds.unwrap_or(0).max(0);
        let past = run_seconds(status, now).saturating_add(earlier);
        // The time is forgotten when it is used up, and begins again if a user activates the workload.
        let past = limit.filter(|_| is_used_up(status)).map_or(past, |limit| past.max(limit));
        let counts = past > 0 && (limit.is_some() || earlier > 0);
        // A count of zero stays when the back-off has ended: without it, the state would be as if nothing had been written.
        let requeue_state = status.requeue_state.as_ref().map(|state| RequeueState {
            count: Some(state.count.unwrap_or(0).max(0)),
            requeue_at: state.requeue_at.clone(),
        });
        let carried = Self {
            from: uid.to_owned(),
            accumulated_past_execution_time_seconds: counts.then_some(past),
            requeue_state,
            scheduling_stats: status.scheduling_stats.clone().filter(|stats| !stats.evictions.is_empty()),
        };
        let Self { accumulated_past_execution_time_seconds: past, requeue_state, scheduling_stats, .. } =
            &carried;
        (past.is_some() || requeue_state.is_some() || scheduling_stats.is_some()).then_some(carried)
    }

    /// Adds it to a status that may contain it already.
    pub fn apply(&self, status: &mut WorkloadStatus) {
        let past = &mut status.accumulated_past_execution_time_seconds;
        *past = (*past).max(self.accumulated_past_execution_time_seconds.filter(|past| *past > 0));
        if status.requeue_state.is_none() {
            status.requeue_state.clone_from(&self.requeue_state);
        }
        if status.scheduling_stats.is_none() {
            status.scheduling_stats.clone_from(&self.scheduling_stats);
        }
    }
}

/// Adds the last admission of a finished workload to its past, if its time is limited: its conditions do not stay.
pub fn count_last_admission(status: &mut WorkloadStatus, limit: Option<i32>) {
    let end = conditions::true_since(status, ConditionType::Finished);
    if let Some(carried) = end.and_then(|end| Carried::of("", status, limit, end)) {
        status.accumulated_past_execution_time_seconds = carried.accumulated_past_execution_time_seconds;
    }
}

/// Returns how long the last admission lasts, or lasted if the workload has finished.
fn run_seconds(status: &WorkloadStatus, now: Timestamp) -> i32 {
    let end = conditions::true_since(status, ConditionType::Finished).unwrap_or(now);
    let seconds = conditions::true_since(status, ConditionType::Admitted)
        .map_or(0, |start| backoff::elapsed(start, end).as_secs());
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

/// Returns whether the workload is deactivated because its time is used up.
fn is_used_up(status: &WorkloadStatus) -> bool {
    let says = |kind| {
        conditions::is_true(status, kind)
            && conditions::reason(status, kind).ends_with(EXECUTION_TIME_EXCEEDED)
    };
    says(ConditionType::DeactivationTarget) || says(ConditionType::Evicted)
}

/// Returns whether a Workload has got neither quota nor a reason to wait yet: until then, what it is created with is no part of the
/// stored status.
pub fn is_fresh(status: &WorkloadStatus) -> bool {
    let written = [ConditionType::QuotaReserved, ConditionType::Evicted, ConditionType::Finished];
    written.iter().all(|kind| conditions::find(status, *kind).is_none())
}

/// Returns whether a Workload that is to replace a slice has not had quota yet, and still takes over what that one has counted.
pub fn takes_over(status: &WorkloadStatus) -> bool {
    let ended = [ConditionType::Evicted, ConditionType::Finished];
    !conditions::is_true(status, ConditionType::QuotaReserved)
        && ended.iter().all(|kind| conditions::find(status, *kind).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1beta2::EvictionCount;
    use crate::lifecycle::conditions::ConditionUpdate;
    use crate::lifecycle::eviction;

    const NOW: Timestamp = Timestamp::constant(1_000, 0);

    fn with(kind: ConditionType, reason: &str) -> WorkloadStatus {
        let mut status = WorkloadStatus::default();
        let update = ConditionUpdate::new(kind, true, reason, "");
        conditions::set(&mut status, &update, 1, Timestamp::constant(990, 0));
        status
    }

    fn past(status: &WorkloadStatus, limit: Option<i32>) -> Option<i32> {
        Carried::of("u", status, limit, NOW)?.accumulated_past_execution_time_seconds
    }

    #[test]
    fn time_of_all_admissions_is_carried_if_it_is_limited() {
        let mut status = with(ConditionType::Admitted, "Admitted");
        assert_eq!(past(&status, None), None);
        assert_eq!(past(&status, Some(20)), Some(10));
        status.accumulated_past_execution_time_seconds = Some(5);
        assert_eq!(past(&status, Some(20)), Some(15));
        // Its limit was removed, and may come back.
        assert_eq!(past(&status, None), Some(15));
        assert_eq!(Carried::of("u", &WorkloadStatus::default(), Some(20), NOW), None);
    }

    #[test]
    fn time_after_the_end_does_not_count() {
        let mut status = with(ConditionType::Admitted, "Admitted");
        let update = ConditionUpdate::new(ConditionType::Finished, true, "Failed", "");
        conditions::set(&mut status, &update, 1, Timestamp::constant(993, 0));
        assert_eq!(past(&status, Some(20)), Some(3));
    }

    /// Deleting a Workload whose time is used up gives no time back.
    #[test]
    fn time_that_is_used_up_is_carried_as_such() {
        let reason = format!("{}DueTo{EXECUTION_TIME_EXCEEDED}", eviction::DEACTIVATED);
        for (kind, reason) in [
            (ConditionType::DeactivationTarget, EXECUTION_TIME_EXCEEDED),
            (ConditionType::Evicted, reason.as_str()),
        ] {
            assert_eq!(past(&with(kind, reason), Some(20)), Some(20));
        }
    }

    #[test]
    fn applying_it_twice_counts_it_once() {
        let status = WorkloadStatus {
            accumulated_past_execution_time_seconds: Some(7),
            requeue_state: Some(RequeueState { count: Some(2), requeue_at: None }),
            scheduling_stats: Some(SchedulingStats { evictions: vec![EvictionCount::default()] }),
            ..WorkloadStatus::default()
        };
        let carried = Carried::of("u", &status, Some(20), NOW).unwrap();
        let text = serde_json::to_string(&carried).unwrap();
        assert_eq!(serde_json::from_str::<Carried>(&text).unwrap(), carried);
        let mut next = WorkloadStatus::default();
        for _ in 0..2 {
            carried.apply(&mut next);
            assert_eq!(next, status);
        }
        assert!(is_fresh(&next) && !is_fresh(&with(ConditionType::QuotaReserved, "r")));
    }

    /// Clients write annotations.
    #[test]
    fn annotation_takes_no_time_away() {
        let carried = Carried { accumulated_past_execution_time_seconds: Some(-100), ..Carried::default() };
        let mut next = WorkloadStatus::default();
        carried.apply(&mut next);
        assert_eq!(next, WorkloadStatus::default());
    }
}
