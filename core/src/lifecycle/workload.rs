//! The next step of one Workload, computed from its newest state and the facts around it.
//!
//! The function `plan` alone defines the order of precedence. Each plan contains at most one write; the result of that
//! write, or any event, leads to the next plan. Other modules decide whether quota fits (`scheduler`) and how a job is
//! started or stopped (`frameworks`).

use super::checks::{self, CheckAction};
use super::conditions::{self, ConditionUpdate};
use super::eviction::{self, EvictionCause};
use super::execution_time::EXECUTION_TIME_EXCEEDED;
use super::pods_ready::{self, PodsReadyTimeout, PodsReadyTimer};
use super::{backoff, pending, reservation};
use crate::api::reason::{ConditionType, PendingReason};
use crate::api::v1beta2::{StopPolicy, WorkloadStatus};
use crate::scheduler::PreemptionReason;
use jiff::Timestamp;

pub use super::facts::{
    Facts, JobFacts, LifecycleSettings, Plan, QueueFact, QueueMembership, RestartedPods, Transition,
    WorkloadInput, WorkloadOwner, WorkloadStep,
};
pub use super::pending::{admission_gate_cleared, changes_only_pending_reason};

/// Reason of a workload whose job cannot be started: pod template and admission contradict each other.
pub const FAILED_TO_START: &str = "FailedToStart";

/// The next status of a Workload while `plan` computes it.
pub(super) struct Draft<'a> {
    pub(super) input: &'a WorkloadInput<'a>,
    pub(super) status: WorkloadStatus,
    pub(super) transitions: Vec<Transition>,
    due: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// Returns the next step of a Workload.
pub fn plan(
    subject: &WorkloadInput<'_>,
    facts: &Facts<'_>,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> Plan {
    if let Some(plan) = plan_finished_or_deleting(subject, facts, settings, now) {
        return plan;
    }
    let mut draft =
        Draft { input: subject, status: subject.status.clone(), transitions: Vec::new(), due: None, now };
    if let Some(reason) = finish_reason(subject, facts) {
        draft.finish(reason.0, reason.1);
        return draft.into_plan(QueueMembership::NotQueued);
    }
    if subject.deleting {
        return Plan::no_write();
    }
    if subject.active {
        draft.drop_reached_target();
        if conditions::is_true(&draft.status, ConditionType::DeactivationTarget) {
            return Plan::from_step(WorkloadStep::Deactivate);
        }
    }
    draft.observe_job(facts, settings);
    draft.observe_absent_pods(facts);
    if subject.active {
        draft.requeue(facts);
    } else {
        draft.deactivate();
    }
    let membership = if conditions::is_true(&draft.status, ConditionType::QuotaReserved) {
        draft.step_reserved(facts, settings);
        QueueMembership::NotQueued
    } else {
        draft.handle_stale_check_states();
        draft.set_pending_reason(facts)
    };
    draft.into_plan(membership)
}

/// Returns the queue membership that `plan` would return. For a pending Workload that was never evicted, the common
/// case, it does so without copying the status.
pub fn queue_membership(
    subject: &WorkloadInput<'_>,
    facts: &Facts<'_>,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> QueueMembership {
    let status = subject.status;
    let holds = |kind| conditions::is_true(status, kind);
    let waits = subject.active
        && !subject.deleting
        && status.requeue_state.is_none()
        && !conditions::is_false(status, ConditionType::Requeued)
        && !holds(ConditionType::QuotaReserved)
        && !holds(ConditionType::DeactivationTarget)
        && !holds(ConditionType::Finished)
        // A check that fails without a reservation sets a back-off.
        && checks::required_action(status).is_none();
    if !waits {
        return plan(subject, facts, settings, now).membership;
    }
    if finish_reason(subject, facts).is_some() {
        QueueMembership::NotQueued
    } else {
        pending::membership_without_reservation(subject, status, facts, now)
    }
}

/// Returns the status of a Workload that is about to get quota: expired back-off is removed and Requeued is updated.
pub fn status_for_admission(
    subject: &WorkloadInput<'_>,
    facts: &Facts<'_>,
    now: Timestamp,
) -> WorkloadStatus {
    let mut draft =
        Draft { input: subject, status: subject.status.clone(), transitions: Vec::new(), due: None, now };
    draft.drop_reached_target();
    draft.requeue(facts);
    reservation::drop_leftovers(&mut draft.status, subject.generation, now);
    draft.status
}

/// Plans a Workload that is finished or being deleted. Returns `None` if it is not finished and not being deleted, or
/// still runs.
fn plan_finished_or_deleting(
    subject: &WorkloadInput<'_>,
    facts: &Facts<'_>,
    settings: &LifecycleSettings,
    now: Timestamp,
) -> Option<Plan> {
    let finished = conditions::true_since(subject.status, ConditionType::Finished);
    let waits_for_successor = subject.has_finalizer && facts.owner.waits_for_successor();
    if subject.deleting {
        let runs = match &facts.owner {
            // The pods of a job that is being deleted may still run: in the foreground, or if another finalizer holds it.
            WorkloadOwner::Job(job) => {
                let ended = job.finished.is_some() || job.stopped || job.taken_over.is_some();
                finished.is_none() && !ended
            }
            WorkloadOwner::External => finished.is_none() && reservation::holds_quota(subject.status),
            WorkloadOwner::Missing { runs } => {
                *runs && finished.is_none() && reservation::holds_quota(subject.status)
            }
            WorkloadOwner::None => false,
        };
        if !runs && waits_for_successor {
            return Some(hand_over(subject, now));
        }
        if !runs {
            let step =
                if subject.has_finalizer { WorkloadStep::RemoveFinalizer } else { WorkloadStep::NoWrite };
            return Some(Plan::from_step(step));
        }
    }
    let since = finished?;
    // As Kueue does, a slice keeps the finalizer until it is deleted.
    if subject.has_finalizer && (subject.deleting || !subject.is_slice) {
        return Some(Plan::from_step(WorkloadStep::RemoveFinalizer));
    }
    let mut plan = Plan::no_write();
    if let Some(keep) = settings.retain_finished {
        let end = backoff::after(since, keep);
        if waits_for_successor {
            // Its time comes when the next one has quota.
        } else if now >= end && !subject.deleting {
            plan.step = WorkloadStep::Delete;
            plan.transitions.push(Transition::RetentionExpired);
        } else {
            plan.due = Some(end);
        }
    }
    Some(plan)
}

/// Lets a Workload that is being deleted and whose job has stopped release its quota. It then stays until the next one of the job
/// has what it has counted.
fn hand_over(subject: &WorkloadInput<'_>, now: Timestamp) -> Plan {
    let mut draft =
        Draft { input: subject, status: subject.status.clone(), transitions: Vec::new(), due: None, now };
    if reservation::holds_quota(subject.status) {
        let (reason, message) = (PendingReason::PendingEvaluation, "The workload is deleted");
        reservation::unreserve(&mut draft.status, reason, message, subject.generation, now);
    }
    draft.into_plan(QueueMembership::NotQueued)
}

/// Returns reason and message of the Finished condition if the Workload must be finished.
fn finish_reason(subject: &WorkloadInput<'_>, facts: &Facts<'_>) -> Option<(&'static str, String)> {
    if let Some(end) = &facts.slice_end {
        return Some(end.clone());
    }
    match &facts.owner {
        WorkloadOwner::None if subject.made_for_job => {
            Some(("OwnerNotFound", "The workload's owner no longer exists".to_owned()))
        }
        WorkloadOwner::Job(JobFacts { finished: None, taken_over: Some(message), .. }) => {
            Some(("OutOfSync", message.clone()))
        }
        WorkloadOwner::Job(job) => match (&job.finished, &job.start_failed) {
            (Some((success, message)), _) => {
                Some((if *success { "Succeeded" } else { "Failed" }, message.clone()))
            }
            (None, Some(message)) => Some((FAILED_TO_START, message.clone())),
            (None, None) if job.out_of_sync => {
                Some(("OutOfSync", "The prebuilt workload is out of sync with its user job".to_owned()))
            }
            (None, None) => None,
        },
        WorkloadOwner::None | WorkloadOwner::Missing { .. } | WorkloadOwner::External => None,
    }
}

impl Draft<'_> {
    fn into_plan(self, membership: QueueMembership) -> Plan {
        let step = if self.status == *self.input.status {
            WorkloadStep::NoWrite
        } else {
            WorkloadStep::WriteStatus(Box::new(self.status))
        };
        let transitions = if step == WorkloadStep::NoWrite { Vec::new() } else { self.transitions };
        Plan { step, transitions, due: self.due, membership }
    }

    pub(super) fn set_condition(&mut self, kind: ConditionType, holds: bool, reason: &str, message: &str) {
        let update = ConditionUpdate { kind, holds, reason, message };
        conditions::set(&mut self.status, &update, self.input.generation, self.now);
    }

    pub(super) fn wake_at(&mut self, time: Timestamp) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }

    fn finish(&mut self, reason: &'static str, message: String) {
        let past = backoff::seconds(self.status.accumulated_past_execution_time_seconds.unwrap_or(0));
        let ran = conditions::true_since(&self.status, ConditionType::Admitted)
            .map(|start| backoff::elapsed(start, self.now).saturating_add(past));
        self.set_condition(ConditionType::Finished, true, reason, &message);
        self.transitions.push(Transition::Finished { reason, message, ran });
    }

    pub(super) fn evict(&mut self, cause: EvictionCause) {
        let held = reservation::holds_quota(&self.status);
        let first = eviction::eviction_count(&self.status, &cause) == 0;
        eviction::evict(&mut self.status, &cause, self.input.generation, self.now);
        if held {
            self.transitions.push(Transition::Evicted { cause, first });
        }
    }

    /// Evicts a preemption victim.
    fn preempt(&mut self, reason: PreemptionReason, message: &str) {
        let cause = eviction::preemption_cause(reason, message);
        let first = eviction::eviction_count(&self.status, &cause) == 0;
        eviction::preempt(&mut self.status, reason, message, self.input.generation, self.now);
        self.transitions.push(Transition::Evicted { cause, first });
        self.transitions.push(Transition::Preempted(reason, message.to_owned()));
    }

    /// Removes an expired back-off, and requeues an evicted workload once the cause of its eviction has ended.
    fn requeue(&mut self, facts: &Facts<'_>) {
        let at = self.status.requeue_state.as_ref().and_then(|s| s.requeue_at.as_ref()).map(|t| t.0);
        let waits = at.filter(|at| *at > self.now);
        if let Some(at) = waits {
            self.wake_at(at);
        }
        if conditions::is_true(&self.status, ConditionType::QuotaReserved) {
            return;
        }
        if let Some(state) = self.status.requeue_state.as_mut().filter(|_| at.is_some() && waits.is_none()) {
            state.requeue_at = None;
            // Server-side apply cannot express an empty object.
            if state.count.is_none() {
                self.status.requeue_state = None;
            }
        }
        if !conditions::is_false(&self.status, ConditionType::Requeued) {
            return;
        }
        let cause = conditions::reason(&self.status, ConditionType::Requeued).to_owned();
        let requeued = match cause.as_str() {
            eviction::CLUSTER_QUEUE_STOPPED => (facts.cluster_queue == QueueFact::Active)
                .then_some(("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped")),
            eviction::LOCAL_QUEUE_STOPPED => (facts.local_queue == QueueFact::Active)
                .then_some(("LocalQueueRestarted", "The LocalQueue was restarted after being stopped")),
            eviction::PODS_READY_TIMEOUT | eviction::ADMISSION_CHECK => {
                waits.is_none().then_some(("BackoffFinished", "The workload backoff was finished"))
            }
            other if other.starts_with(eviction::DEACTIVATED) => {
                Some(("Reactivated", "The workload was reactivated"))
            }
            _ => None,
        };
        if let Some((reason, message)) = requeued {
            // A user may activate it while its pods still end: the time of its last run is added after that.
            if cause.ends_with(EXECUTION_TIME_EXCEEDED) {
                self.status.accumulated_past_execution_time_seconds = None;
            }
            self.set_condition(ConditionType::Requeued, true, reason, message);
        }
    }

    /// Handles `spec.active` = false: evicts the workload once and keeps it out of the queue. A workload that is
    /// already evicted is evicted a second time only if the manager has its own cause to deactivate it, because the
    /// retention period of the job depends on that cause.
    fn deactivate(&mut self) {
        self.status.requeue_state = None;
        let target =
            conditions::find(&self.status, ConditionType::DeactivationTarget).filter(|c| c.status == "True");
        let cause = target.map(|c| EvictionCause {
            reason: eviction::DEACTIVATED,
            underlying_cause: c.reason.clone(),
            message: format!("The workload is deactivated due to {}", c.message),
        });
        let evicted = conditions::is_true(&self.status, ConditionType::Evicted);
        let deactivated =
            conditions::reason(&self.status, ConditionType::Evicted).starts_with(eviction::DEACTIVATED);
        let by_user = || EvictionCause::new(eviction::DEACTIVATED, "The workload is deactivated");
        if !evicted || (!deactivated && cause.is_some()) {
            self.evict(cause.unwrap_or_else(by_user));
        }
        // A target that stays, perhaps of another client, would undo each activation.
        if !self.exceeded_execution_time() {
            conditions::remove(&mut self.status, ConditionType::DeactivationTarget);
        }
    }

    /// Handles a workload that has a reservation.
    fn step_reserved(&mut self, facts: &Facts<'_>, settings: &LifecycleSettings) {
        if conditions::is_true(&self.status, ConditionType::Evicted) {
            self.release(facts, settings);
            return;
        }
        if self.apply_hold(facts) || self.apply_move(facts) || self.stop_restarted(facts) {
            return;
        }
        if let Some((reason, message)) = &facts.preemption {
            self.preempt(*reason, message);
            return;
        }
        checks::sync(&mut self.status, &facts.checks, self.now);
        let changes = checks::apply_check_states(&mut self.status, &facts.own_check_states);
        self.transitions.extend(changes.into_iter().map(Transition::CheckUpdated));
        if self.apply_check_action() || self.apply_queue_stop(facts) || self.apply_node_health(facts) {
            return;
        }
        self.status.admission = facts.smaller_admission.clone().or_else(|| self.status.admission.take());
        let admitted = conditions::is_true(&self.status, ConditionType::Admitted);
        reservation::sync_admitted(&mut self.status, self.input.generation, self.now);
        if !admitted && conditions::is_true(&self.status, ConditionType::Admitted) {
            self.transitions.push(Transition::Admitted);
            // Without a job there are no pods yet, as with a prebuilt Workload.
            if settings.pods_ready.is_some() && facts.owner.has_pods() {
                pods_ready::observe(&mut self.status, false, self.input.generation, self.now);
            }
        }
        if let Some(limits) = &settings.pods_ready {
            self.check_pods_ready_timeout(limits);
        }
        self.check_execution_time();
    }

    /// Second step of an eviction: releases the quota once the job has stopped.
    fn release(&mut self, facts: &Facts<'_>, settings: &LifecycleSettings) {
        let idle = match &facts.owner {
            WorkloadOwner::None => true,
            WorkloadOwner::Missing { runs } => !runs,
            WorkloadOwner::Job(job) => job.stopped,
            WorkloadOwner::External => false,
        };
        if idle {
            let ready = settings.pods_ready.is_some();
            eviction::release(&mut self.status, self.input.active, ready, self.input.generation, self.now);
            self.transitions.push(Transition::QuotaReleased);
            self.handle_stale_check_states();
        }
    }

    /// Handles a check state written after the eviction had reset the checks: without a reservation, no other step
    /// would act on it.
    fn handle_stale_check_states(&mut self) {
        match checks::required_action(&self.status) {
            None => {}
            Some(CheckAction::Reject(message)) if self.input.active => self.reject_by_checks(message),
            Some(CheckAction::Reject(_) | CheckAction::Retry(_)) => {
                if self.input.active {
                    self.set_requeue_backoff();
                }
                checks::reset(&mut self.status, self.now);
            }
        }
    }

    /// Delays the requeue until the latest retry time of its checks; keeps a later back-off.
    fn set_requeue_backoff(&mut self) {
        if let Some(at) = checks::retry_at(&self.status) {
            let state = self.status.requeue_state.get_or_insert_default();
            if state.requeue_at.as_ref().is_none_or(|t| t.0 < at) {
                state.requeue_at = Some(conditions::to_api_time(at));
            }
        }
    }

    /// Marks the workload for deactivation; the message names the rejecting checks.
    fn reject_by_checks(&mut self, message: String) {
        self.set_condition(ConditionType::DeactivationTarget, true, eviction::ADMISSION_CHECK, &message);
        self.transitions.push(Transition::CheckRejected(message));
    }

    fn apply_check_action(&mut self) -> bool {
        match checks::required_action(&self.status) {
            None => false,
            Some(CheckAction::Reject(message)) => {
                self.reject_by_checks(message);
                true
            }
            Some(CheckAction::Retry(message)) => {
                self.set_requeue_backoff();
                self.evict(EvictionCause::new(eviction::ADMISSION_CHECK, message));
                true
            }
        }
    }

    /// Applies stopped queues: clears the reservation of a workload that is not admitted, also if a queue is
    /// terminating or missing; a draining queue evicts an admitted workload. Returns whether it changed the workload.
    fn apply_queue_stop(&mut self, facts: &Facts<'_>) -> bool {
        let admitted = conditions::is_true(&self.status, ConditionType::Admitted);
        let (local, cluster) = facts.queue_names;
        let queues = [
            (&facts.local_queue, "LocalQueue", local, eviction::LOCAL_QUEUE_STOPPED),
            (&facts.cluster_queue, "ClusterQueue", cluster, eviction::CLUSTER_QUEUE_STOPPED),
        ];
        for (fact, kind, name, reason) in queues {
            match fact {
                QueueFact::Stopped(StopPolicy::HoldAndDrain) if admitted => {
                    self.evict(EvictionCause::new(reason, format!("The {kind} is stopped")));
                    return true;
                }
                QueueFact::Stopped(_) if !admitted => {
                    let message = format!("{kind} {name} is stopped");
                    self.unreserve(PendingReason::Suspended, &message);
                    return true;
                }
                QueueFact::Terminating | QueueFact::Missing if !admitted => {
                    let message = format!("{kind} {name} is terminating or missing");
                    self.unreserve(PendingReason::Misconfigured, &message);
                    return true;
                }
                QueueFact::Active
                | QueueFact::Stopped(_)
                | QueueFact::Inactive(_)
                | QueueFact::Terminating
                | QueueFact::Missing => {}
            }
        }
        false
    }

    pub(super) fn unreserve(&mut self, reason: PendingReason, message: &str) {
        reservation::unreserve(&mut self.status, reason, message, self.input.generation, self.now);
        self.transitions.push(Transition::Pending(reason, message.to_owned()));
    }

    fn check_pods_ready_timeout(&mut self, limits: &pods_ready::PodsReadyLimits) {
        let late = match pods_ready::timer(&self.status, limits, self.now) {
            PodsReadyTimer::Off => return,
            PodsReadyTimer::ExpiresAt(time) => return self.wake_at(time),
            PodsReadyTimer::Expired(late) => late,
        };
        let count = self.status.requeue_state.as_ref().and_then(|s| s.count).unwrap_or(0).saturating_add(1);
        if limits.max_requeues.is_some_and(|most| count > most) {
            let message = "exceeding the maximum number of re-queuing retries";
            self.set_condition(ConditionType::DeactivationTarget, true, "RequeuingLimitExceeded", message);
            return;
        }
        let failures = u32::try_from(count).unwrap_or(u32::MAX);
        let wait = backoff::exponential(limits.backoff_base, limits.backoff_max, failures);
        let state = self.status.requeue_state.get_or_insert_default();
        state.count = Some(count);
        state.requeue_at = Some(conditions::to_api_time(backoff::after(self.now, wait)));
        let message = match late {
            PodsReadyTimeout::Start => "Exceeded the PodsReady timeout",
            PodsReadyTimeout::Recovery => "Exceeded the PodsReady recovery timeout",
        };
        self.evict(EvictionCause {
            reason: eviction::PODS_READY_TIMEOUT,
            underlying_cause: late.as_str().to_owned(),
            message: message.to_owned(),
        });
    }
}
