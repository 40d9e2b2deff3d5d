//! What an estimate reads of Workloads: what they are to the queue, and how long they run.

use super::run_times::{EarlierRuns, Run, RunKey, RunTimes};
use crate::api::ObjectKey;
use crate::api::time::parse_time;
use crate::lifecycle::eviction::SLICE_REPLACED;
use crate::resources::pod_requests;
use crate::simulate::objects::{ConditionFlags, condition, field_text, key_of, text_at, value_at};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Reasons of ends that say nothing about how long a run takes.
const NO_ENDS: [&str; 3] = [SLICE_REPLACED, "Failed", "OutOfSync"];

/// Whether runs end early or late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// As the quickest quarter of earlier runs did; what has a maximum alone ends at once.
    Quick,
    /// The same, but what has a maximum alone ends there.
    QuickToMaximum,
    /// As nine of ten earlier runs did.
    Slow,
}

impl Pace {
    const fn percent(self) -> usize {
        match self {
            Self::Quick | Self::QuickToMaximum => 25,
            Self::Slow => 90,
        }
    }
}

/// A Workload that has not finished.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) key: ObjectKey,
    /// UIDs of the Workload and of its owners.
    pub(super) uids: Vec<String>,
    /// Whether it has quota.
    pub(super) is_reserved: bool,
    /// Since when it runs.
    admitted: Option<Timestamp>,
    /// What is left of the maximum execution time that it declares, from its admission.
    pub(super) maximum: Option<SignedDuration>,
    /// What a guess comes from.
    pub(super) runs: Option<EarlierRuns>,
    /// Runs that say nothing more, because it has run for longer than all of them.
    pub(super) outlived: Option<EarlierRuns>,
}

impl Facts {
    pub(crate) fn of(workload: &Value, times: &RunTimes, now: Timestamp) -> Self {
        let flags = ConditionFlags::from_workload(workload);
        let owners = value_at(workload, "/metadata/ownerReferences").and_then(Value::as_array);
        let owners = owners.into_iter().flatten().map(|owner| field_text(owner, "uid"));
        let uids = owners.chain([text_at(workload, "/metadata/uid")]);
        let seconds = |pointer: &str| value_at(workload, pointer).and_then(Value::as_i64);
        let past = seconds("/status/accumulatedPastExecutionTimeSeconds").unwrap_or_default();
        let maximum = seconds("/spec/maximumExecutionTimeSeconds");
        let facts = Self {
            key: key_of(workload),
            uids: uids.filter(|uid| !uid.is_empty()).map(str::to_owned).collect(),
            is_reserved: flags.reserved,
            admitted: time_of(workload, "Admitted").filter(|_| flags.admitted && flags.reserved),
            maximum: maximum.map(|whole| SignedDuration::from_secs(whole.saturating_sub(past).max(0))),
            runs: times.of(&run_key(workload)),
            outlived: None,
        };
        facts.without_outlived(now)
    }

    /// Sets runs aside that are all shorter than what it has run for: of its end they say nothing.
    fn without_outlived(mut self, now: Timestamp) -> Self {
        let age = self.age(now);
        self.outlived = self.runs.take_if(|runs| runs.are_outlived_by(age));
        self
    }

    /// Whether a maximum alone says how long it runs: it may end at any time before.
    pub(super) const fn is_open_ended(&self) -> bool {
        self.maximum.is_some() && self.runs.is_none()
    }

    /// Whether neither a maximum nor earlier runs say how long it runs.
    pub(super) const fn is_unknown(&self) -> bool {
        self.maximum.is_none() && self.runs.is_none()
    }

    /// Whether the Workload or one of its owners is among these.
    pub(super) fn is_any_of(&self, uids: &BTreeSet<&str>) -> bool {
        self.uids.iter().any(|uid| uids.contains(uid.as_str()))
    }

    /// Returns how long it has run.
    fn age(&self, now: Timestamp) -> SignedDuration {
        self.admitted.map_or(SignedDuration::ZERO, |at| now.duration_since(at).max(SignedDuration::ZERO))
    }

    /// Returns the end of the run that goes on.
    pub(super) fn end(&self, pace: Pace, now: Timestamp) -> Option<Timestamp> {
        self.admitted?.checked_add(self.length(pace, self.age(now))?).ok()
    }

    /// Returns the length of a run that begins.
    pub(super) fn whole_length(&self, pace: Pace) -> Option<SignedDuration> {
        self.length(pace, SignedDuration::ZERO)
    }

    /// Returns the length of a run that has lasted for `age`; `None` if it is unknown. Without earlier runs that say something, a run may
    /// end at any time before its maximum.
    fn length(&self, pace: Pace, age: SignedDuration) -> Option<SignedDuration> {
        let length = match (self.runs.as_ref().and_then(|runs| guess(runs, pace, age)), self.maximum) {
            (Some(guess), Some(maximum)) => guess.min(maximum),
            (Some(guess), None) => guess,
            (None, Some(_)) if pace == Pace::Quick => age,
            (None, Some(maximum)) => maximum,
            (None, None) => return None,
        };
        Some(length.max(age))
    }
}

/// Returns the length of a run that has lasted for `age`, which at least one of these runs did, too. Once it is longer than the quick
/// guess, it is compared with the runs that were longer than it is.
fn guess(runs: &EarlierRuns, pace: Pace, age: SignedDuration) -> Option<SignedDuration> {
    if runs.percentile(Pace::Quick.percent())? >= age {
        return runs.percentile(pace.percent());
    }
    Some(runs.percentile_of_longer(pace.percent(), age).unwrap_or(age))
}

/// Returns the run of a finished Workload; `None` if it finished without being admitted, its job goes on in another Workload, or it
/// failed: how long a run takes that fails early says nothing about one that does not.
pub(super) fn finished_run(workload: &Value) -> Option<(RunKey, Run)> {
    let flags = ConditionFlags::from_workload(workload);
    let (began, ended) = (time_of(workload, "Admitted")?, time_of(workload, "Finished")?);
    let is_end =
        condition(workload, "Finished").is_some_and(|end| !NO_ENDS.contains(&field_text(end, "reason")));
    let is_run = flags.admitted && flags.finished && is_end && began <= ended;
    is_run.then(|| (run_key(workload), Run { ended, length: ended.duration_since(began) }))
}

fn time_of(workload: &Value, kind: &str) -> Option<Timestamp> {
    parse_time(field_text(condition(workload, kind)?, "lastTransitionTime"))
}

/// Returns which runs are like those of a Workload.
fn run_key(workload: &Value) -> RunKey {
    let (namespace, queue) = (text_at(workload, "/metadata/namespace"), text_at(workload, "/spec/queueName"));
    RunKey { local_queue: ObjectKey::new(namespace, queue), shape: shape(workload) }
}

/// Returns the names, counts and requests of the pod sets.
fn shape(workload: &Value) -> String {
    let mut shape = String::new();
    let pod_sets = value_at(workload, "/spec/podSets").and_then(Value::as_array);
    for pod_set in pod_sets.into_iter().flatten() {
        let count = value_at(pod_set, "/count").and_then(Value::as_i64).unwrap_or(1);
        let spec = value_at(pod_set, "/template/spec").cloned().unwrap_or_default();
        let spec: PodSpec = serde_json::from_value(spec).unwrap_or_default();
        // Writing to a String does not fail.
        let _ = write!(shape, "{} {count}", field_text(pod_set, "name"));
        for (resource, amount) in pod_requests(&spec) {
            let _ = write!(shape, " {resource}={}", amount.to_i128());
        }
        shape.push('\n');
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn facts(maximum: Option<i64>, lengths: &[i64]) -> Facts {
        let key = RunKey { local_queue: ObjectKey::new("ns", "q"), shape: String::new() };
        let mut times = RunTimes::default();
        for (ended, hours) in (0..).zip(lengths) {
            let ended = Timestamp::from_second(ended).unwrap();
            times.add(key.clone(), Run { ended, length: HOUR * i32::try_from(*hours).unwrap() });
        }
        let (uids, is_reserved) = (Vec::new(), true);
        let maximum = maximum.map(SignedDuration::from_hours);
        let (runs, outlived) = (times.of(&key), None);
        Facts {
            key: ObjectKey::new("ns", "w"),
            uids,
            is_reserved,
            admitted: Some(Timestamp::UNIX_EPOCH),
            maximum,
            runs,
            outlived,
        }
    }

    /// 20 runs of 1 to 20 hours: the quick guess is 5 hours, the slow one 18.
    #[test]
    fn lengths_are_guessed_and_bounded() {
        let hours: Vec<i64> = (1..=20).collect();
        for (maximum, lengths, age, expected) in [
            (None, &hours[..], 0, Some((5, 18))),
            (None, &hours, 5, Some((5, 18))),
            // Longer than the quick guess: of the 14 longer runs, a quarter took up to 10 hours, and 9 of 10 up to 19.
            (None, &hours, 6, Some((10, 19))),
            (None, &hours, 18, Some((19, 20))),
            (None, &hours, 20, Some((20, 20))),
            // Longer than all: nothing says when it ends.
            (None, &hours, 21, None),
            (Some(8), &hours, 0, Some((5, 8))),
            (Some(3), &hours, 0, Some((3, 3))),
            (Some(24), &hours, 20, Some((20, 20))),
            // Longer than all: it may end at any time before its maximum.
            (Some(24), &hours, 21, Some((21, 24))),
            (Some(24), &[], 0, Some((0, 24))),
            (Some(24), &[], 7, Some((7, 24))),
            // Past its maximum, it is stopped now.
            (Some(24), &[], 25, Some((25, 25))),
            (None, &[], 0, None),
            (None, &hours[..19], 0, None),
        ] {
            let facts = facts(maximum, lengths).without_outlived(Timestamp::UNIX_EPOCH + HOUR * age);
            let length = |pace| facts.length(pace, HOUR * age).map(|length| length.as_hours());
            let found = length(Pace::Quick).zip(length(Pace::Slow));
            assert_eq!(found, expected, "{maximum:?} {} runs, {age} h", lengths.len());
            assert_eq!(facts.is_unknown(), expected.is_none());
        }
    }

    #[test]
    fn a_run_lasts_from_its_admission_to_its_end() {
        let workload = |conditions: &[(&str, &str, &str)]| {
            let condition = |(kind, status, time): &(&str, &str, &str)| json!({"type": kind, "status": status, "lastTransitionTime": time});
            let conditions: Vec<Value> = conditions.iter().map(condition).collect();
            json!({"metadata": {"namespace": "ns", "name": "w"}, "spec": {"queueName": "q"}, "status": {"conditions": conditions}})
        };
        let (one, two) = ("2026-11-26T13:00:00Z", "2026-11-26T14:00:00Z");
        for (conditions, expected) in [
            (&[("Admitted", "True", one), ("Finished", "True", two)][..], Some(HOUR)),
            (&[("Admitted", "False", one), ("Finished", "True", two)], None),
            (&[("Admitted", "True", two), ("Finished", "True", one)], None),
            (&[("Finished", "True", two)], None),
            (&[("Admitted", "True", one)], None),
            (&[("Admitted", "True", ""), ("Finished", "True", two)], None),
        ] {
            let run = finished_run(&workload(conditions));
            assert_eq!(run.map(|(_, run)| run.length), expected, "{conditions:?}");
        }
        let mut ended = workload(&[("Admitted", "True", one), ("Finished", "True", two)]);
        for (reason, is_run) in
            [("WorkloadSliceReplaced", false), ("Failed", false), ("OutOfSync", false), ("Succeeded", true)]
        {
            ended["status"]["conditions"][1]["reason"] = json!(reason);
            assert_eq!(finished_run(&ended).is_some(), is_run, "{reason}");
        }
    }

    #[test]
    fn shapes_differ_by_names_counts_and_requests() {
        let pod_set = |name: &str, count: u32, cpu: &str, image: &str| {
            let container = json!({"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}});
            json!({"name": name, "count": count, "template": {"spec": {"containers": [container]}}})
        };
        let shape = |pod_sets: Value| shape(&json!({"spec": {"podSets": pod_sets}}));
        let first = shape(json!([pod_set("main", 2, "1", "x")]));
        assert_eq!(first, shape(json!([pod_set("main", 2, "1000m", "y")])));
        for other in [
            json!([pod_set("other", 2, "1", "x")]),
            json!([pod_set("main", 3, "1", "x")]),
            json!([pod_set("main", 2, "2", "x")]),
            json!([pod_set("main", 2, "1", "x"), pod_set("more", 1, "1", "x")]),
        ] {
            assert_ne!(first, shape(other.clone()), "{other}");
        }
    }
}
