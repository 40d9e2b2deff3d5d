//! The other side of admission: jobs that run, end in virtual time, and stop when they are told to.
//!
//! Pods are ready at once, or after `sluice.dev/ready-after`. How long they run says the annotation `sluice.dev/run-for` of
//! the pod template or of the object, or else the default; without either they never end. `sluice.dev/exit-code` other than 0
//! makes a job fail, and `sluice.dev/terminate-after` says how long pods take to go. Whoever made a Workload without a job
//! tells of its pods in its status, as the core does for jobs.

use super::objects::{Flags, at, condition, field, has_owner, is_true, set, set_condition, text, word};
use crate::api::ObjectKey;
use crate::api::config::Duration;
use crate::lifecycle::conditions::stored;
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

type Id = (Kind, ObjectKey);

/// What happens to a job next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
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
pub(super) struct Runs {
    /// How long those run that do not say it themselves.
    default: Option<SignedDuration>,
    due: BTreeSet<(Timestamp, Turn, Id)>,
    turns: IndexMap<Id, BTreeMap<Turn, Timestamp>>,
}

impl Runs {
    pub(super) fn new(default: Option<SignedDuration>) -> Self {
        Self { default, ..Self::default() }
    }

    /// Takes note of an object as it is now; a turn that is due at once is the answer.
    pub(super) fn observe(&mut self, id: Id, object: &Value, now: Timestamp) -> Option<Turn> {
        match id.0 {
            Kind::Job(_) => self.observe_job(id, object, now),
            Kind::Workload => self.observe_workload(id, object, now),
            _ => None,
        }
    }

    fn observe_job(&mut self, id: Id, job: &Value, now: Timestamp) -> Option<Turn> {
        let active = at(job, "/status/active").and_then(Value::as_i64).unwrap_or(0) > 0;
        let suspended = at(job, "/spec/suspend").and_then(Value::as_bool).unwrap_or(false);
        let over = is_true(job, "Complete") || is_true(job, "Failed");
        match (suspended, active) {
            _ if over => self.forget(&id),
            (true, true) => {
                let wait = annotated(job, TERMINATE_AFTER).unwrap_or(SignedDuration::ZERO);
                if wait.is_zero() {
                    self.forget(&id);
                    return Some(Turn::Stop);
                }
                if self.due_at(&id, Turn::Stop).is_none() {
                    self.forget(&id);
                    self.schedule(id, now.checked_add(wait).unwrap_or(Timestamp::MAX), Turn::Stop);
                }
            }
            (true, false) => self.forget(&id),
            (false, false) => {
                self.forget(&id);
                self.schedule_end(id, job, now, now);
                return Some(Turn::Start);
            }
            (false, true) => {
                let since = text(job, "/status/startTime").parse().unwrap_or(now);
                if self.due_at(&id, Turn::End).is_none() {
                    self.forget(&id);
                    self.schedule_end(id.clone(), job, since, now);
                }
                let ready = at(job, "/status/ready").and_then(Value::as_i64).unwrap_or(0);
                return self.get_ready(id, job, ready >= parallelism(job), since, now);
            }
        }
        None
    }

    /// A Workload that no job stands behind runs itself.
    fn observe_workload(&mut self, id: Id, workload: &Value, now: Timestamp) -> Option<Turn> {
        let flags = Flags::of(workload);
        let runs = flags.admitted && !flags.evicted && !flags.finished;
        if has_owner(workload) || !runs {
            self.forget(&id);
            return None;
        }
        let since = condition(workload, "Admitted").map(|c| word(c, "lastTransitionTime"));
        let since = since.and_then(|text| text.parse().ok()).filter(|since| *since != stored(now).0);
        let since = since.unwrap_or(now);
        if self.due_at(&id, Turn::End).is_none() {
            self.schedule_end(id.clone(), workload, since, now);
        }
        // Without the condition nobody asks whether they are.
        let ready = condition(workload, PODS_READY).is_none_or(|c| word(c, "status") == "True");
        self.get_ready(id, workload, ready, since, now)
    }

    /// Pods that run are ready now or later.
    fn get_ready(
        &mut self,
        id: Id,
        object: &Value,
        ready: bool,
        since: Timestamp,
        now: Timestamp,
    ) -> Option<Turn> {
        if ready || self.due_at(&id, Turn::Ready).is_some() {
            return None;
        }
        let wait = annotated(object, READY_AFTER).unwrap_or(SignedDuration::ZERO);
        let at = since.checked_add(wait).unwrap_or(Timestamp::MAX);
        if at <= now {
            return Some(Turn::Ready);
        }
        self.schedule(id, at, Turn::Ready);
        None
    }

    fn schedule_end(&mut self, id: Id, object: &Value, since: Timestamp, now: Timestamp) {
        if let Some(each) = annotated(object, RUN_FOR).or(self.default) {
            let whole = each.checked_mul(waves(object)).unwrap_or(SignedDuration::MAX);
            self.schedule(id, since.checked_add(whole).unwrap_or(Timestamp::MAX).max(now), Turn::End);
        }
    }

    fn schedule(&mut self, id: Id, at: Timestamp, turn: Turn) {
        self.due.insert((at, turn, id.clone()));
        self.turns.entry(id).or_default().insert(turn, at);
    }

    fn due_at(&self, id: &Id, turn: Turn) -> Option<Timestamp> {
        self.turns.get(id)?.get(&turn).copied()
    }

    /// Nothing happens to the object any more.
    pub(super) fn forget(&mut self, id: &Id) {
        for (turn, at) in self.turns.swap_remove(id).into_iter().flatten() {
            self.due.remove(&(at, turn, id.clone()));
        }
    }

    /// The next turn.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Whether somebody is on the way out, and until when.
    pub(super) fn next_stop(&self) -> Option<Timestamp> {
        self.due.iter().find(|(_, turn, _)| *turn == Turn::Stop).map(|(at, ..)| *at)
    }

    /// When the run of an object ends.
    pub(super) fn end_of(&self, id: &Id) -> Option<Timestamp> {
        self.due_at(id, Turn::End)
    }

    /// Turns whose time has come.
    pub(super) fn take(&mut self, now: Timestamp) -> Vec<(Id, Turn)> {
        let mut taken = Vec::new();
        while let Some((at, turn, id)) = self.due.pop_first() {
            if at > now {
                self.due.insert((at, turn, id));
                break;
            }
            if let Some(turns) = self.turns.get_mut(&id) {
                turns.remove(&turn);
                if turns.is_empty() {
                    self.turns.swap_remove(&id);
                }
            }
            taken.push((id, turn));
        }
        taken
    }
}

/// What a turn makes of the object.
pub(super) fn carry_out(turn: Turn, kind: Kind, object: &mut Value, now: Timestamp) {
    let time = json!(stored(now));
    let pods = parallelism(object);
    match (kind, turn) {
        (Kind::Workload, Turn::Ready) => {
            let (reason, message) = match condition(object, PODS_READY).map(|c| word(c, "reason")) {
                Some("WaitForRecovery") => ("Recovered", "All pods are ready again"),
                _ => ("Started", "All pods reached readiness and the workload is running"),
            };
            set_condition(object, PODS_READY, reason, message, now);
        }
        (Kind::Workload, _) => {
            set_condition(object, "Finished", "Succeeded", "Job finished successfully", now);
        }
        (_, Turn::Start) => {
            let late = annotated(object, READY_AFTER).is_some_and(|wait| !wait.is_zero());
            set(object, &["status", "active"], json!(pods));
            set(object, &["status", "ready"], json!(if late { 0 } else { pods }));
            set(object, &["status", "startTime"], time);
        }
        (_, Turn::Ready) => set(object, &["status", "ready"], json!(pods)),
        (_, Turn::Stop) => {
            set(object, &["status", "active"], json!(0));
            set(object, &["status", "ready"], json!(0));
            if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
                status.shift_remove("startTime");
            }
        }
        (_, Turn::End) => {
            let failed = annotation(object, EXIT_CODE).is_some_and(|code| code != "0");
            let all = at(object, "/spec/completions").and_then(Value::as_i64).unwrap_or(pods);
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
    let number = |pointer: &str| at(job, pointer).and_then(Value::as_i64);
    let pods = number("/spec/parallelism").unwrap_or(1);
    number("/spec/completions").map_or(pods, |all| all.min(pods)).max(1)
}

/// How often the pods of a job run one after the other.
fn waves(object: &Value) -> i32 {
    let all = at(object, "/spec/completions").and_then(Value::as_i64).unwrap_or(1);
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
    places.iter().find_map(|place| field(at(object, place)?, name)?.as_str())
}

fn annotated(object: &Value, name: &str) -> Option<SignedDuration> {
    Duration::parse(annotation(object, name)?).map(Duration::signed).filter(|length| !length.is_negative())
}
