//! The other side of admission: jobs that run, end in virtual time, and stop when they are told to.
//!
//! Pods are ready at once, or after `sluice.dev/ready-after`. How long they run says the annotation `sluice.dev/run-for` of
//! the pod template or of the object, or else the default; without either they never end. `sluice.dev/exit-code` other than 0
//! makes a job fail, and `sluice.dev/terminate-after` says how long pods take to go. Whoever made a Workload without a job
//! tells of its pods in its status, as the core does for jobs.

use super::objects::{
    ConditionFlags, condition, field, field_text, has_owner, is_true, set, set_condition, text_at, value_at,
};
use crate::api::ObjectKey;
use crate::api::config::Duration;
use crate::lifecycle::conditions::to_api_time;
use crate::state::Kind;
use indexmap::IndexMap;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const RUN_FOR: &str = "sluice.dev/run-for";
const EXIT_CODE: &str = "sluice.dev/exit-code";
const READY_AFTER: &str = "sluice.dev/ready-after";
const TERMINATE_AFTER: &str = "sluice.dev/terminate-after";

const PODS_READY: &str = "PodsReady";

type RunId = (Kind, ObjectKey);

/// What happens to a job next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobStep {
    /// Its pods start.
    Start,
    /// Its pods are ready.
    Ready,
    /// Its pods are gone.
    Stop,
    /// It has run long enough.
    End,
}

/// Jobs, and Workloads without one, by the time of their next turn.
#[derive(Debug, Default)]
pub(super) struct JobRunner {
    /// How long those run that do not say it themselves.
    default_run_time: Option<SignedDuration>,
    due_steps: BTreeSet<(Timestamp, JobStep, RunId)>,
    steps: IndexMap<RunId, BTreeMap<JobStep, Timestamp>>,
}

impl JobRunner {
    pub(super) fn new(default: Option<SignedDuration>) -> Self {
        Self { default_run_time: default, ..Self::default() }
    }

    /// Takes note of an object as it is now; a turn that is due at once is the answer.
    pub(super) fn observe(&mut self, id: RunId, object: &Value, now: Timestamp) -> Option<JobStep> {
        match id.0 {
            Kind::Job(_) => self.observe_job(id, object, now),
            Kind::Workload => self.observe_workload(id, object, now),
            _ => None,
        }
    }

    fn observe_job(&mut self, id: RunId, job: &Value, now: Timestamp) -> Option<JobStep> {
        let active = value_at(job, "/status/active").and_then(Value::as_i64).unwrap_or(0) > 0;
        let suspended = value_at(job, "/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
        let over = is_true(job, "Complete") || is_true(job, "Failed");
        match (suspended, active) {
            _ if over => self.forget(&id),
            (true, true) => {
                let wait = duration_annotation(job, TERMINATE_AFTER).unwrap_or(SignedDuration::ZERO);
                if wait.is_zero() {
                    self.forget(&id);
                    return Some(JobStep::Stop);
                }
                if self.due_at(&id, JobStep::Stop).is_none() {
                    self.forget(&id);
                    self.schedule(id, now.checked_add(wait).unwrap_or(Timestamp::MAX), JobStep::Stop);
                }
            }
            (true, false) => self.forget(&id),
            (false, false) => {
                self.forget(&id);
                self.schedule_end(id, job, now, now);
                return Some(JobStep::Start);
            }
            (false, true) => {
                let since = text_at(job, "/status/startTime").parse().unwrap_or(now);
                if self.due_at(&id, JobStep::End).is_none() {
                    self.forget(&id);
                    self.schedule_end(id.clone(), job, since, now);
                }
                let ready = value_at(job, "/status/ready").and_then(Value::as_i64).unwrap_or(0);
                return self.schedule_ready(id, job, ready >= parallelism(job), since, now);
            }
        }
        None
    }

    /// A Workload that no job stands behind runs itself.
    fn observe_workload(&mut self, id: RunId, workload: &Value, now: Timestamp) -> Option<JobStep> {
        let flags = ConditionFlags::from_workload(workload);
        let runs = flags.admitted && !flags.evicted && !flags.finished;
        if has_owner(workload) || !runs {
            self.forget(&id);
            return None;
        }
        let since = condition(workload, "Admitted").map(|c| field_text(c, "lastTransitionTime"));
        let since = since.and_then(|text| text.parse().ok()).filter(|since| *since != to_api_time(now).0);
        let since = since.unwrap_or(now);
        if self.due_at(&id, JobStep::End).is_none() {
            self.schedule_end(id.clone(), workload, since, now);
        }
        // Without the condition nobody asks whether they are.
        let ready = condition(workload, PODS_READY).is_none_or(|c| field_text(c, "status") == "True");
        self.schedule_ready(id, workload, ready, since, now)
    }

    /// Pods that run are ready now or later.
    fn schedule_ready(
        &mut self,
        id: RunId,
        object: &Value,
        ready: bool,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<JobStep> {
        if ready || self.due_at(&id, JobStep::Ready).is_some() {
            return None;
        }
        let wait = duration_annotation(object, READY_AFTER).unwrap_or(SignedDuration::ZERO);
        let at = since.checked_add(wait).unwrap_or(Timestamp::MAX);
        if at <= now {
            return Some(JobStep::Ready);
        }
        self.schedule(id, at, JobStep::Ready);
        None
    }

    fn schedule_end(&mut self, id: RunId, object: &Value, since: Timestamp, now: Timestamp) {
        if let Some(each) = duration_annotation(object, RUN_FOR).or(self.default_run_time) {
            let whole = each.checked_mul(waves(object)).unwrap_or(SignedDuration::MAX);
            self.schedule(id, since.checked_add(whole).unwrap_or(Timestamp::MAX).max(now), JobStep::End);
        }
    }

    fn schedule(&mut self, id: RunId, at: Timestamp, turn: JobStep) {
        self.due_steps.insert((at, turn, id.clone()));
        self.steps.entry(id).or_default().insert(turn, at);
    }

    fn due_at(&self, id: &RunId, turn: JobStep) -> Option<Timestamp> {
        self.steps.get(id)?.get(&turn).copied()
    }

    /// Nothing happens to the object any more.
    pub(super) fn forget(&mut self, id: &RunId) {
        for (turn, at) in self.steps.swap_remove(id).into_iter().flatten() {
            self.due_steps.remove(&(at, turn, id.clone()));
        }
    }

    /// The next turn.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due_steps.first().map(|(at, ..)| *at)
    }

    /// Whether somebody is on the way out, and until when.
    pub(super) fn next_stop(&self) -> Option<Timestamp> {
        self.due_steps.iter().find(|(_, turn, _)| *turn == JobStep::Stop).map(|(at, ..)| *at)
    }

    /// When the run of an object ends.
    pub(super) fn run_end(&self, id: &RunId) -> Option<Timestamp> {
        self.due_at(id, JobStep::End)
    }

    /// Turns whose time has come.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<(RunId, JobStep)> {
        let mut taken = Vec::new();
        while let Some((at, turn, id)) = self.due_steps.pop_first() {
            if at > now {
                self.due_steps.insert((at, turn, id));
                break;
            }
            if let Some(turns) = self.steps.get_mut(&id) {
                turns.remove(&turn);
                if turns.is_empty() {
                    self.steps.swap_remove(&id);
                }
            }
            taken.push((id, turn));
        }
        taken
    }
}

/// What a turn makes of the object.
pub(super) fn apply_step(turn: JobStep, kind: Kind, object: &mut Value, now: Timestamp) {
    let time = json!(to_api_time(now));
    let pods = parallelism(object);
    match (kind, turn) {
        (Kind::Workload, JobStep::Ready) => {
            let (reason, message) = match condition(object, PODS_READY).map(|c| field_text(c, "reason")) {
                Some("WaitForRecovery") => ("Recovered", "All pods are ready again"),
                _ => ("Started", "All pods reached readiness and the workload is running"),
            };
            set_condition(object, PODS_READY, reason, message, now);
        }
        (Kind::Workload, _) => {
            set_condition(object, "Finished", "Succeeded", "Job finished successfully", now);
        }
        (_, JobStep::Start) => {
            let late = duration_annotation(object, READY_AFTER).is_some_and(|wait| !wait.is_zero());
            set(object, &["status", "active"], json!(pods));
            set(object, &["status", "ready"], json!(if late { 0 } else { pods }));
            set(object, &["status", "startTime"], time);
        }
        (_, JobStep::Ready) => set(object, &["status", "ready"], json!(pods)),
        (_, JobStep::Stop) => {
            set(object, &["status", "active"], json!(0));
            set(object, &["status", "ready"], json!(0));
            if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
                status.shift_remove("startTime");
            }
        }
        (_, JobStep::End) => {
            let failed = annotation(object, EXIT_CODE).is_some_and(|code| code != "0");
            let all = value_at(object, "/spec/completions").and_then(Value::as_i64).unwrap_or(pods);
            set(object, &["status", "active"], json!(0));
            set(object, &["status", "ready"], json!(0));
            set(object, &["status", if failed { "failed" } else { "succeeded" }], json!(all));
            set(object, &["status", "completionTime"], time);
            let (kind, reason) =
                if failed { ("Failed", "BackoffLimitExceeded") } else { ("Complete", "CompletionsReached") };
            let message = if failed { "Job has failed" } else { "Job finished successfully" };
            set_condition(object, kind, reason, message, now);
        }
    }
}

fn parallelism(job: &Value) -> i64 {
    let number = |pointer: &str| value_at(job, pointer).and_then(Value::as_i64);
    let pods = number("/spec/parallelism").unwrap_or(1);
    number("/spec/completions").map_or(pods, |all| all.min(pods)).max(1)
}

/// How often the pods of a job run one after the other.
fn waves(object: &Value) -> i32 {
    let all = value_at(object, "/spec/completions").and_then(Value::as_i64).unwrap_or(1);
    let pods = parallelism(object);
    i32::try_from(all.saturating_add(pods).saturating_sub(1) / pods).unwrap_or(i32::MAX).max(1)
}

/// An annotation of the pod template, or else of the object.
fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let places = [
        "/spec/template/metadata/annotations",
        "/spec/podSets/0/template/metadata/annotations",
        "/metadata/annotations",
    ];
    places.iter().find_map(|place| field(value_at(object, place)?, name)?.as_str())
}

fn duration_annotation(object: &Value, name: &str) -> Option<SignedDuration> {
    Duration::parse(annotation(object, name)?).map(Duration::signed).filter(|length| !length.is_negative())
}
