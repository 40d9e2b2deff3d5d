//! A Workload without a reservation: its queue membership and its pending reason.
//!
//! Precedence: a reason that keeps the scheduler from nominating the workload comes before the verdict of the
//! scheduler. While neither is known, no reason is written.

use super::facts::{
    Facts, Hold, JobFacts, QueueFact, QueueMembership, Transition, WorkloadInput, WorkloadOwner,
};
use super::workload::Draft;
use super::{conditions, reservation};
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::WorkloadStatus;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use std::sync::Arc;

/// Pending reasons that are valid only while the blocker that they name exists.
const INELIGIBLE_REASONS: [PendingReason; 4] = [
    PendingReason::Suspended,
    PendingReason::Misconfigured,
    PendingReason::Deactivated,
    PendingReason::AdmissionGated,
];
/// Message after a blocker is gone and before the scheduler has evaluated the workload.
const PENDING_EVALUATION_MESSAGE: &str = "The workload is waiting to be evaluated";
/// Like [`PENDING_EVALUATION_MESSAGE`], if the blocker was an annotation with admission gates.
const GATE_CLEARED_MESSAGE: &str = "AdmissionGatedBy cleared, waiting for quota reservation";

/// Kueue appends why.
const DEACTIVATED_MESSAGE: &str = "The workload is deactivated";
/// The reason of Kueue before 0.20 for whatever waits.
const KUEUE_PENDING: &str = "Pending";

/// Returns whether two statuses of a pending workload differ at most in the pending reason: the QuotaReserved and
/// Admitted conditions and the resource requests.
pub fn changes_only_pending_reason(old: &WorkloadStatus, new: &WorkloadStatus) -> bool {
    let words = [ConditionType::QuotaReserved, ConditionType::Admitted];
    let other = |c: &&Condition| words.iter().all(|kind| kind.as_str() != c.type_);
    let rest = |status: &WorkloadStatus| {
        status.conditions.iter().filter(other).eq(new.conditions.iter().filter(other))
    };
    let WorkloadStatus {
        conditions: _,
        admission,
        requeue_state,
        reclaimable_pods,
        admission_checks,
        resource_requests: _,
        accumulated_past_execution_time_seconds,
        scheduling_stats,
        nominated_cluster_names,
        cluster_name,
        unhealthy_nodes,
        preemption_gates,
    } = old;
    words.iter().all(|kind| !conditions::is_true(old, *kind))
        && rest(old)
        && (admission, requeue_state) == (&new.admission, &new.requeue_state)
        && (reclaimable_pods, admission_checks) == (&new.reclaimable_pods, &new.admission_checks)
        && *accumulated_past_execution_time_seconds == new.accumulated_past_execution_time_seconds
        && *scheduling_stats == new.scheduling_stats
        && (nominated_cluster_names, cluster_name) == (&new.nominated_cluster_names, &new.cluster_name)
        && (unhealthy_nodes, preemption_gates) == (&new.unhealthy_nodes, &new.preemption_gates)
}

/// Returns the queue membership of a workload without a reservation.
pub(super) fn membership_without_reservation(
    subject: &WorkloadInput<'_>,
    status: &WorkloadStatus,
    facts: &Facts<'_>,
    now: Timestamp,
) -> QueueMembership {
    let closed = facts.local_queue != QueueFact::Active;
    // In a ClusterQueue that is being deleted it waits, and counts, as in one that is held: the scheduler nominates
    // nothing there.
    let closed = closed || facts.cluster_queue == QueueFact::Missing;
    // A Workload whose job no longer exists is about to be garbage-collected.
    let orphan = matches!(facts.owner, WorkloadOwner::Missing { .. });
    // In the queue that it leaves it would get quota with which its job cannot start.
    let moves = matches!(&facts.owner, WorkloadOwner::Job(JobFacts { moved_to: Some(_), .. }));
    let waits = is_held(status, facts) || awaits_pods(status, facts) || moves;
    if !subject.active || subject.admission_gates.is_some() || closed || orphan || waits {
        return QueueMembership::NotQueued;
    }
    let backoff = status.requeue_state.as_ref().and_then(|s| s.requeue_at.as_ref());
    let held = conditions::is_false(status, ConditionType::Requeued)
        || backoff.is_some_and(|at| at.0 > now)
        || facts.misconfigured.is_some();
    if held { QueueMembership::Waiting } else { QueueMembership::Queued }
}

/// Returns whether the status reports that admission gates of the annotation block the workload. A closed preemption
/// gate has the same reason, but also BlockedOnPreemptionGates.
fn is_reported_gated(status: &WorkloadStatus) -> bool {
    conditions::is_false(status, ConditionType::QuotaReserved)
        && conditions::reason(status, ConditionType::QuotaReserved) == PendingReason::AdmissionGated.as_str()
        && !conditions::is_true(status, ConditionType::BlockedOnPreemptionGates)
}

/// Returns whether the status still reports admission gates although the annotation no longer has any.
pub fn admission_gate_cleared(subject: &WorkloadInput<'_>, status: &WorkloadStatus) -> bool {
    subject.admission_gates.is_none() && is_reported_gated(status)
}

/// Returns whether pods of the group are missing. It is not queued before they exist.
fn awaits_pods(status: &WorkloadStatus, facts: &Facts<'_>) -> bool {
    match &facts.owner {
        WorkloadOwner::Job(JobFacts { absent_pods: Some(absent), .. }) => *absent > 0,
        _ => conditions::is_true(status, ConditionType::WaitingForReplacementPods),
    }
}

fn is_on_hold(status: &WorkloadStatus) -> bool {
    conditions::is_false(status, ConditionType::QuotaReserved)
        && conditions::reason(status, ConditionType::QuotaReserved) == PendingReason::OnHold.as_str()
}

/// Returns whether the job must not be queued at present.
fn is_held(status: &WorkloadStatus, facts: &Facts<'_>) -> bool {
    match &facts.owner {
        WorkloadOwner::Job(JobFacts { hold: Hold::Held(_), .. }) => true,
        WorkloadOwner::Job(JobFacts { hold: Hold::Free, .. }) => false,
        _ => is_on_hold(status),
    }
}

impl Draft<'_> {
    /// Writes the pending reason of a workload without a reservation. Returns its queue membership.
    pub(super) fn set_pending_reason(&mut self, facts: &Facts<'_>) -> QueueMembership {
        reservation::drop_leftovers(&mut self.status, self.input.generation, self.now);
        let membership = membership_without_reservation(self.input, &self.status, facts, self.now);
        if membership == QueueMembership::NotQueued
            && self.input.active
            && is_on_hold(&self.status)
            && is_held(&self.status, facts)
        {
            return membership;
        }
        let held = match &facts.owner {
            WorkloadOwner::Job(JobFacts { hold: Hold::Held(message), .. }) if self.input.active => {
                Some((PendingReason::OnHold, message.clone()))
            }
            _ => None,
        };
        if !self.input.active && self.is_deactivated_by_kueue() {
            return membership;
        }
        let blocker = held.or_else(|| self.ineligible_reason(facts));
        let known = conditions::find(&self.status, ConditionType::QuotaReserved).is_some();
        let (was_gated, gate_cleared) =
            (is_reported_gated(&self.status), admission_gate_cleared(self.input, &self.status));
        let explanation = blocker
            .or_else(|| facts.verdict.clone().filter(|_| membership == QueueMembership::Queued))
            .or_else(|| {
                let text = if gate_cleared { GATE_CLEARED_MESSAGE } else { PENDING_EVALUATION_MESSAGE };
                (known && (self.has_ineligible_reason() || is_on_hold(&self.status)))
                    .then(|| (PendingReason::PendingEvaluation, text.to_owned()))
            });
        let Some((reason, message)) = explanation else {
            return membership;
        };
        let before = conditions::find(&self.status, ConditionType::QuotaReserved)
            .map(|c| (c.reason.clone(), c.message.clone()));
        let generation = self.input.generation;
        if membership == QueueMembership::Queued {
            reservation::set_pending(&mut self.status, reason, &message, generation, self.now);
        } else {
            reservation::unreserve(&mut self.status, reason, &message, generation, self.now);
        }
        if before != Some((reason.as_str().to_owned(), message.clone())) {
            self.status.resource_requests = Arc::clone(&facts.resource_requests);
            if gate_cleared {
                self.transitions.push(Transition::AdmissionGateCleared);
            }
            match self.input.admission_gates.filter(|_| reason == PendingReason::AdmissionGated) {
                Some(gates) if !was_gated => {
                    self.transitions.push(Transition::AdmissionGated(gates.to_owned()));
                }
                Some(_) => {}
                None => self.transitions.push(Transition::Pending(reason, message)),
            }
        }
        membership
    }

    /// Returns whether Kueue before 0.20, which had one reason for all that waits, says that the workload is deactivated. It has ended,
    /// so that nothing else would be written to it.
    fn is_deactivated_by_kueue(&self) -> bool {
        conditions::find(&self.status, ConditionType::QuotaReserved).is_some_and(|found| {
            found.status == "False"
                && found.reason == KUEUE_PENDING
                && found.message.starts_with(DEACTIVATED_MESSAGE)
        })
    }

    /// Returns whether the current pending reason names a blocker. The caller has found no blocker, so such a reason is
    /// outdated.
    fn has_ineligible_reason(&self) -> bool {
        let reason = conditions::reason(&self.status, ConditionType::QuotaReserved);
        INELIGIBLE_REASONS.iter().any(|blocker| blocker.as_str() == reason)
    }

    /// Returns the reason why the scheduler may not nominate the workload, or `None`.
    fn ineligible_reason(&self, facts: &Facts<'_>) -> Option<(PendingReason, String)> {
        if !self.input.active {
            return Some((PendingReason::Deactivated, DEACTIVATED_MESSAGE.to_owned()));
        }
        let (local, cluster) = facts.queue_names;
        let suspended = |m: String| Some((PendingReason::Suspended, m));
        let misconfigured = |m: String| Some((PendingReason::Misconfigured, m));
        match (&facts.local_queue, &facts.cluster_queue) {
            (QueueFact::Missing, _) if local.is_empty() => {
                return misconfigured("The workload names no LocalQueue".to_owned());
            }
            (QueueFact::Missing, _) => return misconfigured(format!("LocalQueue {local} doesn't exist")),
            (QueueFact::Inactive(why), _) => {
                return suspended(format!("LocalQueue {local} is inactive: {why}"));
            }
            (QueueFact::Stopped(_) | QueueFact::Terminating, _) => {
                return suspended(format!("LocalQueue {local} is inactive"));
            }
            (QueueFact::Active, QueueFact::Missing) if cluster.is_empty() => {
                return misconfigured(format!("LocalQueue {local} names no ClusterQueue"));
            }
            (QueueFact::Active, QueueFact::Missing) => {
                return misconfigured(format!("ClusterQueue {cluster} doesn't exist"));
            }
            (QueueFact::Active, QueueFact::Stopped(_)) => {
                return suspended(format!("ClusterQueue {cluster} is stopped"));
            }
            (QueueFact::Active, QueueFact::Terminating) => {
                return suspended(format!("ClusterQueue {cluster} is inactive: it is being deleted"));
            }
            (QueueFact::Active, QueueFact::Inactive(why)) => {
                return suspended(format!("ClusterQueue {cluster} is inactive: {why}"));
            }
            (QueueFact::Active, QueueFact::Active) => {}
        }
        if let Some(message) = &facts.misconfigured {
            return misconfigured(message.clone());
        }
        let gates = self.input.admission_gates?;
        Some((PendingReason::AdmissionGated, format!("Admission is gated by: {gates}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1beta2::{Admission, AdmissionCheckState, CheckState, RequeueState};
    use crate::lifecycle::conditions::ConditionUpdate;
    use crate::lifecycle::workload::{JobFacts, LifecycleSettings, RestartedPods, WorkloadStep, plan};
    use crate::lifecycle::{node_failure, workload};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    const NOW: Timestamp = Timestamp::constant(1000, 0);

    /// Returns all combinations of the relevant conditions, each with every back-off state, without and with a check that
    /// asks for a retry.
    fn statuses() -> Vec<WorkloadStatus> {
        let kinds = [
            ConditionType::QuotaReserved,
            ConditionType::Requeued,
            ConditionType::DeactivationTarget,
            ConditionType::Finished,
        ];
        let mut all = vec![WorkloadStatus::default()];
        for kind in kinds {
            let before = all.clone();
            for (holds, reason) in [(true, "Yes"), (false, "OnHold"), (false, "PodsReadyTimeout")] {
                all.extend(before.iter().cloned().map(|mut status| {
                    conditions::set(&mut status, &ConditionUpdate::new(kind, holds, reason, ""), 1, NOW);
                    status
                }));
            }
        }
        let waits = [None, Some(None), Some(Some(999)), Some(Some(1001))];
        let with = |status: &WorkloadStatus, wait: Option<Option<i64>>| WorkloadStatus {
            requeue_state: wait.map(|at| RequeueState {
                count: Some(1),
                requeue_at: at.map(|at| Time(Timestamp::constant(at, 0))),
            }),
            ..status.clone()
        };
        let late_check = |status: &WorkloadStatus| WorkloadStatus {
            admission_checks: vec![AdmissionCheckState {
                name: "check".to_owned(),
                state: CheckState::Retry,
                requeue_after_seconds: Some(60),
                last_transition_time: conditions::to_api_time(NOW),
                message: String::new(),
                retry_count: None,
                pod_set_updates: Vec::new(),
            }],
            ..status.clone()
        };
        let with_waits: Vec<_> = all.iter().flat_map(|status| waits.map(|wait| with(status, wait))).collect();
        let with_checks: Vec<_> = with_waits.iter().map(late_check).collect();
        [with_waits, with_checks].concat()
    }

    fn facts(owner: WorkloadOwner, queue: QueueFact, misconfigured: bool) -> Facts<'static> {
        Facts {
            queue_names: ("lq", "cq"),
            local_queue: QueueFact::Active,
            cluster_queue: queue,
            owner,
            checks: Vec::new(),
            misconfigured: misconfigured.then(|| "too much".to_owned()),
            verdict: None,
            preemption: None,
            slice_end: None,
            own_check_states: Vec::new(),
            node_health: node_failure::NodeHealthReport::default(),
            smaller_admission: None,
            restarted: RestartedPods::None,
            reclaims_from: None,
            resource_requests: Arc::default(),
        }
    }

    fn subject(status: &WorkloadStatus) -> WorkloadInput<'_> {
        WorkloadInput {
            generation: 1,
            active: true,
            deleting: false,
            has_finalizer: false,
            made_for_job: false,
            is_slice: false,
            admission_gates: None,
            max_execution_seconds: None,
            status,
        }
    }

    /// The controller of an external framework clears only QuotaReserved. Admitted must not survive until the next reservation,
    /// whose checks are not ready.
    #[test]
    fn leftovers_of_cleared_reservation_are_removed() {
        let mut status =
            WorkloadStatus { admission: Some(Admission::default()), ..WorkloadStatus::default() };
        for (kind, holds) in [(ConditionType::Admitted, true), (ConditionType::QuotaReserved, false)] {
            let update = ConditionUpdate::new(kind, holds, "Test", "");
            conditions::set(&mut status, &update, 1, Timestamp::constant(900, 0));
        }
        let facts = facts(WorkloadOwner::External, QueueFact::Active, false);
        let plan = plan(&subject(&status), &facts, &LifecycleSettings::default(), NOW);
        let WorkloadStep::WriteStatus(written) = plan.step else { panic!("{plan:?}") };
        for status in [*written, workload::status_for_admission(&subject(&status), &facts, NOW)] {
            assert_eq!(status.admission, None);
            assert!(conditions::is_false(&status, ConditionType::Admitted), "{status:?}");
            assert_eq!(status.accumulated_past_execution_time_seconds, Some(100));
        }
        assert_eq!(plan.membership, QueueMembership::Queued);
    }

    #[test]
    fn queue_membership_equals_plan() {
        let over = JobFacts { finished: Some((true, String::new())), ..JobFacts::default() };
        let [gone, ends] = [false, true].map(|runs| WorkloadOwner::Missing { runs });
        let owners = [WorkloadOwner::None, gone, ends, WorkloadOwner::External, WorkloadOwner::Job(over)];
        let mut seen = [0; 3];
        for status in &statuses() {
            for flags in 0..16_u8 {
                let on = |bit: u8| flags & bit != 0;
                let subject = WorkloadInput {
                    active: on(1),
                    deleting: on(2),
                    made_for_job: on(8),
                    admission_gates: on(4).then_some("example.com/gate"),
                    ..subject(status)
                };
                for owner in &owners {
                    for (queue, wrong) in
                        [(QueueFact::Active, false), (QueueFact::Active, true), (QueueFact::Missing, false)]
                    {
                        let facts = facts(owner.clone(), queue, wrong);
                        let settings = LifecycleSettings::default();
                        let found = workload::queue_membership(&subject, &facts, &settings, NOW);
                        assert_eq!(
                            found,
                            plan(&subject, &facts, &settings, NOW).membership,
                            "{subject:?} {facts:?}"
                        );
                        seen[usize::from(found == QueueMembership::Queued)
                            + 2 * usize::from(found == QueueMembership::Waiting)] += 1;
                    }
                }
            }
        }
        assert!(seen.iter().all(|number| *number > 100), "{seen:?}");
    }
}
