//! Simulates jobs: starts, finishes and stops their pods in simulated time.
//!
//! What a job of any kind says, and what its controller writes, follows from the row of its kind (`frameworks::played_status`);
//! this module knows when. Pods are ready immediately, or after `sluice.dev/ready-after`. Their run time is the annotation `sluice.dev/run-for`
//! of the pod template or of the object, or what recorded runs say, or the default; without all three they never finish. An annotation
//! `sluice.dev/exit-code` other than 0 makes the job fail; `sluice.dev/terminate-after` is the time that pods take to
//! terminate. For a Workload without a job, this module writes the status of the pods to the Workload, as the core does
//! for jobs.

use super::estimate::RecordedLengths;
use super::estimate::run_times::ENOUGH;
use super::objects::{ConditionFlags, condition, field_text, has_owner, set_condition, text_at, value_at};
use super::pods::{self, PodPhase};
use super::run_annotations::{self, EXIT_CODE, READY_AFTER, RUN_FOR, TERMINATE_AFTER};
use crate::api::ObjectKey;
use crate::api::time::parse_time;
use crate::cache::Kind;
use crate::frameworks::{JobError, PlayedJob, PlayedState, Related, Role};
use crate::lifecycle::conditions::to_api_time;
use indexmap::IndexMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const PODS_READY: &str = "PodsReady";

type RunId = (Kind, ObjectKey);

/// A state change of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobStep {
    /// Its pods start.
    Start,
    /// Its pods are ready.
    Ready,
    /// Its pods have terminated.
    Stop,
    /// Its run time has passed.
    End,
}

/// A step and when it is due. The order of the fields is the order of the steps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueStep {
    at: Timestamp,
    step: JobStep,
    id: RunId,
}

/// Pods that run.
#[derive(Clone, Copy)]
struct RunningPods {
    /// Whether all of them are ready.
    ready: bool,
    since: Timestamp,
}

/// Whether Workloads say that their pods are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Readiness {
    #[default]
    Untracked,
    Tracked,
}

/// How long something runs, whatever its annotations say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedRun {
    /// When the run that goes on ends.
    pub(super) end: Option<Timestamp>,
    /// Length of a run that begins.
    pub(super) length: SignedDuration,
}

/// What recorded runs say about a run.
#[derive(Clone, Copy, Debug)]
struct ExpectedRun {
    /// When its Workload was admitted.
    since: Timestamp,
    /// Its length; `None` if too few runs are alike, or it has outlived them.
    length: Option<SignedDuration>,
}

/// Due steps of jobs and of Workloads without a job.
#[derive(Debug, Default)]
pub(super) struct JobRunner {
    /// Runs by the UIDs of what runs.
    planned: BTreeMap<String, PlannedRun>,
    recorded: Option<RecordedLengths>,
    /// What recorded runs say, by the UIDs of Workloads.
    expected: BTreeMap<String, ExpectedRun>,
    /// UIDs of these Workloads, by the UIDs of their owners.
    workload_of: BTreeMap<String, String>,
    /// Run time of pods without the `sluice.dev/run-for` annotation.
    default_run_time: Option<SignedDuration>,
    readiness: Readiness,
    due_steps: BTreeSet<DueStep>,
    steps: IndexMap<RunId, BTreeMap<JobStep, Timestamp>>,
}

impl JobRunner {
    pub(super) fn new(default_run_time: Option<SignedDuration>, readiness: Readiness) -> Self {
        Self { default_run_time, readiness, ..Self::default() }
    }

    /// Sets the recorded runs, from which run times follow.
    pub(super) fn with_recorded(self, recorded: Option<RecordedLengths>) -> Self {
        Self { recorded, ..self }
    }

    /// Notes how long what a Workload admits runs, as recorded runs say it. It is asked once for each admission.
    pub(super) fn expect_run(&mut self, workload: &Value, now: Timestamp) {
        let Some(recorded) = &self.recorded else { return };
        let uid = text_at(workload, "/metadata/uid");
        if uid.is_empty() || !ConditionFlags::from_workload(workload).runs() {
            return;
        }
        let admitted = condition(workload, "Admitted").map(|c| field_text(c, "lastTransitionTime"));
        let since = admitted.and_then(parse_time).unwrap_or(now);
        if self.expected.get(uid).is_some_and(|known| known.since == since) {
            return;
        }
        let age = now.duration_since(since).max(SignedDuration::ZERO);
        let length = recorded.length(workload, age);
        self.expected.insert(uid.to_owned(), ExpectedRun { since, length });
        let owners = value_at(workload, "/metadata/ownerReferences").and_then(Value::as_array);
        for owner in owners.into_iter().flatten() {
            self.workload_of.insert(field_text(owner, "uid").to_owned(), uid.to_owned());
        }
    }

    /// Returns the length of the run of a job, a pod or a Workload, as recorded runs say it.
    fn expected_length(&self, uid: &str) -> Option<SignedDuration> {
        let workload = self.workload_of.get(uid).map_or(uid, String::as_str);
        self.expected.get(workload)?.length
    }

    /// Returns for how many Workloads recorded runs have said how long they run; `None` without recorded runs.
    pub(super) fn recorded_note(&self) -> Option<String> {
        let recorded = self.recorded.as_ref()?;
        let known = self.expected.values().filter(|expected| expected.length.is_some()).count();
        let unknown = self.expected.len().saturating_sub(known);
        Some(format!(
            "run times: {known} admitted workloads run for as long as {} % of the recorded runs of their LocalQueue with the same amounts; {unknown} have fewer than {ENOUGH} such runs, or have outlived them ({} runs in all)",
            recorded.percent(),
            recorded.number()
        ))
    }

    /// Sets how long objects run, by UID.
    pub(super) fn plan(&mut self, runs: BTreeMap<String, PlannedRun>) {
        self.planned = runs;
    }

    /// Notes that an object does not run, so that its next run has its whole length.
    fn end_planned(&mut self, object: &Value) {
        if !self.planned.is_empty()
            && let Some(run) = self.planned.get_mut(text_at(object, "/metadata/uid"))
        {
            run.end = None;
        }
    }

    /// Begins the run of a job again, because pods of it are deleted. One without a known end has none to move, and of one that runs its
    /// pods in several waves only a part begins again.
    pub(super) fn restart(&mut self, id: &RunId, job: &Value, now: Timestamp) {
        let has_waves = matches!(id.0, Kind::Job(kind) if kind.hooks.waves(job) > 1);
        let Some(at) = self.run_end(id).filter(|_| !has_waves) else { return };
        self.due_steps.remove(&DueStep { at, step: JobStep::End, id: id.clone() });
        if let Some(steps) = self.steps.get_mut(id) {
            steps.remove(&JobStep::End);
        }
        self.end_planned(job);
        self.schedule_end(id.clone(), job, now, now);
    }

    /// Updates the due steps of an object. Returns the step that is due immediately, if any.
    pub(super) fn observe(
        &mut self,
        id: RunId,
        object: &Value,
        related: &dyn Related,
        now: Timestamp,
    ) -> Option<JobStep> {
        match id.0 {
            Kind::Job(kind) if kind.role == Role::Suspended => {
                let state = kind.played_job(object, related).ok()?;
                self.observe_job(id, state, object, now)
            }
            Kind::Pod => self.observe_pod(id, object, now),
            Kind::Workload => self.observe_workload(id, object, now),
            _ => None,
        }
    }

    /// Updates the due steps of a job. One that cannot be read stays as it is.
    fn observe_job(&mut self, id: RunId, state: PlayedJob, job: &Value, now: Timestamp) -> Option<JobStep> {
        if state.suspended || state.finished {
            self.end_planned(job);
        }
        match (state.suspended, state.active) {
            _ if state.finished => self.forget(&id),
            (true, true) => return self.schedule_stop(id, job, now),
            (true, false) => self.forget(&id),
            (false, false) => {
                self.forget(&id);
                self.schedule_end(id, job, now, now);
                return Some(JobStep::Start);
            }
            (false, true) => {
                let since = state.started.unwrap_or(now);
                if self.due_at(&id, JobStep::End).is_none() {
                    self.forget(&id);
                    self.schedule_end(id.clone(), job, since, now);
                }
                let pods = RunningPods { ready: state.ready, since };
                return self.schedule_ready(id, job, pods, now);
            }
        }
        None
    }

    /// Updates the due steps of a pod.
    fn observe_pod(&mut self, id: RunId, pod: &Value, now: Timestamp) -> Option<JobStep> {
        match pods::phase_of(pod)? {
            PodPhase::Idle => {
                self.end_planned(pod);
                self.forget(&id);
            }
            PodPhase::Ready => {
                self.forget(&id);
                return Some(JobStep::Start);
            }
            PodPhase::Runs(since, ready) => {
                let since = since.unwrap_or(now);
                if pods::finishes(pod) && self.due_at(&id, JobStep::End).is_none() {
                    self.schedule_end(id.clone(), pod, since, now);
                }
                return self.schedule_ready(id, pod, RunningPods { ready, since }, now);
            }
            PodPhase::Ends => return self.schedule_stop(id, pod, now),
        }
        None
    }

    /// Schedules the end of pods that terminate. Returns the step if it is due immediately.
    fn schedule_stop(&mut self, id: RunId, object: &Value, now: Timestamp) -> Option<JobStep> {
        let wait = duration_annotation(id.0, object, TERMINATE_AFTER).unwrap_or(SignedDuration::ZERO);
        if wait.is_zero() {
            self.forget(&id);
            return Some(JobStep::Stop);
        }
        if self.due_at(&id, JobStep::Stop).is_none() {
            self.forget(&id);
            self.schedule(id, now.checked_add(wait).unwrap_or(Timestamp::MAX), JobStep::Stop);
        }
        None
    }

    /// Updates the due steps of a Workload. Only a Workload without an owner runs by itself.
    fn observe_workload(&mut self, id: RunId, workload: &Value, now: Timestamp) -> Option<JobStep> {
        let flags = ConditionFlags::from_workload(workload);
        if has_owner(workload) || !flags.runs() {
            self.end_planned(workload);
            self.forget(&id);
            return None;
        }
        let since = condition(workload, "Admitted").map(|c| field_text(c, "lastTransitionTime"));
        let since = since.and_then(parse_time).filter(|since| *since != to_api_time(now).0);
        let since = since.unwrap_or(now);
        if self.due_at(&id, JobStep::End).is_none() {
            self.schedule_end(id.clone(), workload, since, now);
        }
        // Without a job no controller has written the condition yet.
        let ready = self.readiness == Readiness::Untracked
            || condition(workload, PODS_READY).is_some_and(|c| field_text(c, "status") == "True");
        self.schedule_ready(id, workload, RunningPods { ready, since }, now)
    }

    /// Schedules the readiness of running pods. Returns the step if it is due immediately.
    fn schedule_ready(
        &mut self,
        id: RunId,
        object: &Value,
        pods: RunningPods,
        now: Timestamp,
    ) -> Option<JobStep> {
        if pods.ready || self.due_at(&id, JobStep::Ready).is_some() {
            return None;
        }
        let wait = duration_annotation(id.0, object, READY_AFTER).unwrap_or(SignedDuration::ZERO);
        let at = pods.since.checked_add(wait).unwrap_or(Timestamp::MAX);
        if at <= now {
            return Some(JobStep::Ready);
        }
        self.schedule(id, at, JobStep::Ready);
        None
    }

    fn schedule_end(&mut self, id: RunId, object: &Value, since: Timestamp, now: Timestamp) {
        let waves = match id.0 {
            Kind::Job(kind) if !kind.can_finish(succeeds(id.0, object)) => return,
            Kind::Job(kind) => kind.hooks.waves(object),
            _ => 1,
        };
        if let Some(run) = self.planned.get(text_at(object, "/metadata/uid")) {
            let at = run.end.or_else(|| since.checked_add(run.length).ok()).unwrap_or(Timestamp::MAX);
            self.schedule(id, at.max(now), JobStep::End);
            return;
        }
        let each = duration_annotation(id.0, object, RUN_FOR);
        // A recorded run is that of all waves.
        let recorded = || self.expected_length(text_at(object, "/metadata/uid"));
        let of_waves = |each: SignedDuration| each.checked_mul(waves).unwrap_or(SignedDuration::MAX);
        let whole = each.map(of_waves).or_else(recorded).or_else(|| self.default_run_time.map(of_waves));
        if let Some(whole) = whole {
            self.schedule(id, since.checked_add(whole).unwrap_or(Timestamp::MAX).max(now), JobStep::End);
        }
    }

    fn schedule(&mut self, id: RunId, at: Timestamp, step: JobStep) {
        self.due_steps.insert(DueStep { at, step, id: id.clone() });
        self.steps.entry(id).or_default().insert(step, at);
    }

    fn due_at(&self, id: &RunId, step: JobStep) -> Option<Timestamp> {
        self.steps.get(id)?.get(&step).copied()
    }

    /// Removes all due steps of an object.
    pub(super) fn forget(&mut self, id: &RunId) {
        for (step, at) in self.steps.swap_remove(id).into_iter().flatten() {
            self.due_steps.remove(&DueStep { at, step, id: id.clone() });
        }
    }

    /// Returns the time of the next step.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due_steps.first().map(|due| due.at)
    }

    /// Returns the time at which the next stopping job has stopped, if any job is stopping.
    pub(super) fn next_stop(&self) -> Option<Timestamp> {
        self.due_steps.iter().find(|due| due.step == JobStep::Stop).map(|due| due.at)
    }

    /// Returns the time at which the run of an object ends.
    pub(super) fn run_end(&self, id: &RunId) -> Option<Timestamp> {
        self.due_at(id, JobStep::End)
    }

    /// Removes and returns all due steps.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<(RunId, JobStep)> {
        let mut due = Vec::new();
        while let Some(next) = self.due_steps.pop_first() {
            if next.at > now {
                self.due_steps.insert(next);
                break;
            }
            let DueStep { step, id, .. } = next;
            if let Some(steps) = self.steps.get_mut(&id) {
                steps.remove(&step);
                if steps.is_empty() {
                    self.steps.swap_remove(&id);
                }
            }
            due.push((id, step));
        }
        due
    }
}

/// Applies a step to the status of an object.
///
/// # Errors
/// The object is a job that cannot be read.
pub(super) fn apply_step(
    step: JobStep,
    kind: Kind,
    object: &mut Value,
    related: &dyn Related,
    now: Timestamp,
) -> Result<(), JobError> {
    let ready_at_once = duration_annotation(kind, object, READY_AFTER).is_none_or(|wait| wait.is_zero());
    let Kind::Job(row) = kind else {
        match kind {
            Kind::Pod => pods::apply(step, object, ready_at_once, succeeds(kind, object), now),
            _ => apply_to_workload(step, object, now),
        }
        return Ok(());
    };
    let states: &[PlayedState] = match step {
        JobStep::Start if ready_at_once => &[PlayedState::Started, PlayedState::Ready],
        JobStep::Start => &[PlayedState::Started],
        JobStep::Ready => &[PlayedState::Ready],
        JobStep::Stop => &[PlayedState::Stopped],
        JobStep::End if succeeds(kind, object) => &[PlayedState::Succeeded],
        JobStep::End => &[PlayedState::Failed],
    };
    states.iter().try_for_each(|state| row.play(object, related, *state, now))
}

fn apply_to_workload(step: JobStep, workload: &mut Value, now: Timestamp) {
    if step == JobStep::Ready {
        let (reason, message) = match condition(workload, PODS_READY).map(|c| field_text(c, "reason")) {
            Some("WaitForRecovery") => ("Recovered", "All pods are ready again"),
            _ => ("Started", "All pods reached readiness and the workload is running"),
        };
        set_condition(workload, PODS_READY, reason, message, now);
    } else {
        set_condition(workload, "Finished", "Succeeded", "Job finished successfully", now);
    }
}

/// Returns whether the pods of an object end with success.
fn succeeds(kind: Kind, object: &Value) -> bool {
    run_annotations::text(kind, object, EXIT_CODE).is_none_or(|code| code == "0")
}

fn duration_annotation(kind: Kind, object: &Value, name: &str) -> Option<SignedDuration> {
    run_annotations::parse_duration(run_annotations::text(kind, object, name)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frameworks::{JobKind, NothingRelated};
    use serde_json::json;

    /// A cluster counts the pods of a suspended Job as terminating, not as active.
    #[test]
    fn pods_that_a_cluster_terminates_end_after_their_time() {
        let mut job = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "u"},
            "spec": {"suspend": true, "template": {
                "metadata": {"annotations": {(TERMINATE_AFTER): "5m"}}, "spec": {"containers": []}}},
            "status": {"active": 0, "terminating": 2},
        });
        let id = (Kind::Job(JobKind::BATCH_JOB), ObjectKey::new("ns", "j"));
        let mut runner = JobRunner::new(None, Readiness::Untracked);
        assert_eq!(runner.observe(id.clone(), &job, &NothingRelated, Timestamp::UNIX_EPOCH), None);
        let end = Timestamp::from_second(300).unwrap();
        assert_eq!(runner.next_stop(), Some(end));
        assert_eq!(runner.take_due(end), [(id.clone(), JobStep::Stop)]);
        apply_step(JobStep::Stop, id.0, &mut job, &NothingRelated, end).unwrap();
        assert_eq!(JobKind::BATCH_JOB.decode(&job).unwrap().status.active_pods, 0, "{job}");
    }
}
