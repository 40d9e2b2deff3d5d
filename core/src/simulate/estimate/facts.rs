//! What an estimate reads of Workloads: what they are to the queue, and how long they run.

use super::run_times::{Amounts, EarlierRuns, Run, RunKey, RunTimes};
use crate::api::ObjectKey;
use crate::api::config::Duration;
use crate::api::names::EXPECTED_RUN_TIME_ANNOTATION;
use crate::api::time::parse_time;
use crate::cache::Kind;
use crate::lifecycle::eviction::SLICE_REPLACED;
use crate::resources::{Quantity, amount, pod_requests};
use crate::simulate::objects::{ConditionFlags, condition, field, field_text, key_of, text_at, value_at};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PodSpec;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Reasons of ends that say nothing about how long a run takes.
const NO_ENDS: [&str; 3] = [SLICE_REPLACED, "Failed", "OutOfSync"];

/// Longest part of an annotation in a message, in characters: its author may write 256 KiB, and other users read the message.
const MAX_SHOWN_CHARS: usize = 64;

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

/// What says how long runs take.
pub(super) struct RunTimeSources<'a> {
    pub(super) times: RunTimes,
    /// Annotations with the expected run time, by the UID of the job or pod that has one.
    of_jobs: BTreeMap<&'a str, &'a str>,
}

impl<'a> RunTimeSources<'a> {
    pub(super) fn of(times: RunTimes, objects: &'a [(Kind, Value)]) -> Self {
        let jobs = objects.iter().filter(|(kind, _)| matches!(kind, Kind::Job(_) | Kind::Pod));
        let annotated = jobs
            .filter_map(|(_, job)| Some((text_at(job, "/metadata/uid"), expected_run_time(job)?)))
            .filter(|(uid, _)| !uid.is_empty());
        Self { times, of_jobs: annotated.collect() }
    }

    /// Returns the annotation of a Workload, else of one of its owners.
    fn expected<'b>(&'b self, workload: &'b Value, uids: &[String]) -> Option<&'b str> {
        let of_owner = || uids.iter().find_map(|uid| self.of_jobs.get(uid.as_str()).copied());
        expected_run_time(workload).or_else(of_owner)
    }
}

fn expected_run_time(object: &Value) -> Option<&str> {
    field(value_at(object, "/metadata/annotations")?, EXPECTED_RUN_TIME_ANNOTATION)?.as_str()
}

/// Returns a text as it is, or its beginning and a mark that it is cut.
fn shown(text: &str) -> Cow<'_, str> {
    let end = text.char_indices().nth(MAX_SHOWN_CHARS).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).map_or(Cow::Borrowed(text), |start| format!("{start}…").into())
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
    /// How long an annotation expects it to run, unless it has run for longer.
    pub(super) expected: Option<SignedDuration>,
    /// Why an annotation is ignored.
    pub(super) ignored: Option<String>,
    /// What a guess comes from.
    pub(super) runs: Option<EarlierRuns>,
    /// Runs that say nothing more, because it has run for longer than all of them.
    pub(super) outlived: Option<EarlierRuns>,
}

impl Facts {
    pub(super) fn of(workload: &Value, sources: &RunTimeSources<'_>, now: Timestamp) -> Self {
        let flags = ConditionFlags::from_workload(workload);
        let owners = value_at(workload, "/metadata/ownerReferences").and_then(Value::as_array);
        let owners = owners.into_iter().flatten().map(|owner| field_text(owner, "uid"));
        let uids = owners.chain([text_at(workload, "/metadata/uid")]);
        let uids: Vec<String> = uids.filter(|uid| !uid.is_empty()).map(str::to_owned).collect();
        let seconds = |pointer: &str| value_at(workload, pointer).and_then(Value::as_i64);
        let past = seconds("/status/accumulatedPastExecutionTimeSeconds").unwrap_or_default();
        let maximum = seconds("/spec/maximumExecutionTimeSeconds");
        let annotation = sources.expected(workload, &uids).map(str::to_owned);
        let facts = Self {
            key: key_of(workload),
            uids,
            is_reserved: flags.reserved,
            admitted: time_of(workload, "Admitted").filter(|_| flags.admitted && flags.reserved),
            maximum: maximum.map(|whole| SignedDuration::from_secs(whole.saturating_sub(past).max(0))),
            expected: None,
            ignored: None,
            runs: sources.times.of(&run_key(workload), &amounts(workload)),
            outlived: None,
        };
        facts.with_annotation(annotation.as_deref(), now).without_outlived(now)
    }

    /// Reads the annotation with the expected run time. One that cannot be read, or that the run has outlived, is ignored.
    fn with_annotation(mut self, annotation: Option<&str>, now: Timestamp) -> Self {
        let Some(text) = annotation else { return self };
        let length = Duration::parse(text).map(Duration::signed).filter(SignedDuration::is_positive);
        match length {
            None => self.ignored = Some(format!("{:?} is not a duration such as 2h30m", shown(text))),
            Some(length) if length < self.age(now) => {
                self.ignored = Some(format!("it has run for longer than {}", shown(text)));
            }
            Some(length) => self.expected = Some(length),
        }
        self
    }

    /// Sets runs aside that are all shorter than what it has run for: of its end they say nothing.
    fn without_outlived(mut self, now: Timestamp) -> Self {
        let age = self.age(now);
        self.outlived = self.runs.take_if(|runs| runs.are_outlived_by(age));
        self
    }

    /// Whether it runs.
    pub(super) const fn is_admitted(&self) -> bool {
        self.admitted.is_some()
    }

    /// Whether a maximum alone says how long it runs: it may end at any time before.
    pub(super) const fn is_open_ended(&self) -> bool {
        self.maximum.is_some() && self.runs.is_none() && self.expected.is_none()
    }

    /// Whether nothing says how long it runs: no maximum, no annotation, no earlier runs.
    pub(super) const fn is_unknown(&self) -> bool {
        self.maximum.is_none() && self.runs.is_none() && self.expected.is_none()
    }

    /// Whether earlier runs alone say how long it runs.
    pub(super) const fn is_guess(&self) -> bool {
        self.maximum.is_none() && self.expected.is_none() && self.runs.is_some()
    }

    /// Returns the time before which its run does not end, unless it is shorter than all earlier ones, or than is expected of it; `None`
    /// if it may end at any time, or does not run.
    pub(super) fn earliest_end(&self, now: Timestamp) -> Option<Timestamp> {
        let shortest = || self.runs.as_ref().and_then(EarlierRuns::shortest);
        let length = self.expected.or_else(shortest)?;
        let length = self.maximum.map_or(length, |maximum| length.min(maximum));
        self.admitted?.checked_add(length).ok().filter(|end| *end > now)
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

    /// Returns the length of a run that has lasted for `age`; `None` if it is unknown. An annotation says more than earlier runs. Without
    /// either, a run may end at any time before its maximum.
    fn length(&self, pace: Pace, age: SignedDuration) -> Option<SignedDuration> {
        let guess = || self.runs.as_ref().and_then(|runs| guess(runs, pace, age));
        let length = match (self.expected.or_else(guess), self.maximum) {
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
pub(super) fn run_key(workload: &Value) -> RunKey {
    let (namespace, queue) = (text_at(workload, "/metadata/namespace"), text_at(workload, "/spec/queueName"));
    RunKey { local_queue: ObjectKey::new(namespace, queue), shape: shape(workload) }
}

/// Returns the pod sets that the admission of a Workload lists.
fn assigned_pod_sets(workload: &Value) -> &[Value] {
    let assigned = value_at(workload, "/status/admission/podSetAssignments").and_then(Value::as_array);
    assigned.map_or(&[], Vec::as_slice)
}

/// Returns the count of a pod set: the assigned one, which is smaller after a partial admission, or that of the spec.
fn pod_count(pod_set: &Value, assigned: &[Value]) -> i64 {
    let same = assigned.iter().find(|set| field_text(set, "name") == field_text(pod_set, "name"));
    let count = |set: &Value| value_at(set, "/count").and_then(Value::as_i64);
    same.and_then(count).or_else(|| count(pod_set)).unwrap_or(1)
}

/// Returns the pod sets of the spec, each with its count and its pods.
fn pod_sets(workload: &Value) -> impl Iterator<Item = (&str, i64, PodSpec)> {
    let assigned = assigned_pod_sets(workload);
    let sets = value_at(workload, "/spec/podSets").and_then(Value::as_array);
    sets.into_iter().flatten().map(|set| {
        let spec = value_at(set, "/template/spec").cloned().unwrap_or_default();
        (field_text(set, "name"), pod_count(set, assigned), serde_json::from_value(spec).unwrap_or_default())
    })
}

/// Returns the names, counts and requests of the pod sets.
fn shape(workload: &Value) -> String {
    let mut shape = String::new();
    for (name, count, spec) in pod_sets(workload) {
        // Writing to a String does not fail.
        let _ = write!(shape, "{name} {count}");
        for (resource, amount) in pod_requests(&spec) {
            let _ = write!(shape, " {resource}={}", amount.to_i128());
        }
        shape.push('\n');
    }
    shape
}

/// Returns what a Workload uses in all, or would use without LimitRanges and transformations of resources.
pub(super) fn amounts(workload: &Value) -> Amounts {
    let mut all = Amounts::new();
    let mut add = |resource: &str, units: i128| {
        let sum = all.entry(resource.to_owned()).or_default();
        *sum = sum.saturating_add(units);
    };
    let assigned = assigned_pod_sets(workload);
    for set in assigned {
        for (resource, quantity) in
            value_at(set, "/resourceUsage").and_then(Value::as_object).into_iter().flatten()
        {
            add(resource, units(resource, quantity));
        }
    }
    if assigned.is_empty() {
        for (_, count, spec) in pod_sets(workload) {
            for (resource, each) in pod_requests(&spec) {
                add(&resource, each.to_i128().saturating_mul(count.into()));
            }
        }
    }
    all.retain(|_, units| *units != 0);
    all
}

/// Returns a quantity in thousandths of cores, bytes or pieces; 0 if it cannot be read.
pub(super) fn units(resource: &str, quantity: &Value) -> i128 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    Quantity::parse(&text).map_or(0, |quantity| amount(resource, &quantity).to_i128())
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
        Facts {
            key: ObjectKey::new("ns", "w"),
            uids: Vec::new(),
            is_reserved: true,
            admitted: Some(Timestamp::UNIX_EPOCH),
            maximum: maximum.map(SignedDuration::from_hours),
            expected: None,
            ignored: None,
            runs: times.of(&key, &Amounts::new()),
            outlived: None,
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
    fn an_annotation_says_how_long_a_run_takes() {
        let hours: Vec<i64> = (1..=20).collect();
        for (text, maximum, age, expected) in [
            ("2h30m", None, 0, Ok(150)),
            ("2h30m", None, 2, Ok(150)),
            ("3h", Some(2), 0, Ok(120)),
            ("1h", None, 2, Err("it has run for longer than 1h")),
            ("2 hours", None, 0, Err("\"2 hours\" is not a duration such as 2h30m")),
            ("0s", None, 0, Err("\"0s\" is not a duration such as 2h30m")),
            ("-1h", None, 0, Err("\"-1h\" is not a duration such as 2h30m")),
        ] {
            let now = Timestamp::UNIX_EPOCH + HOUR * age;
            let facts = facts(maximum, &hours).with_annotation(Some(text), now);
            let length = facts.length(Pace::Slow, HOUR * age).map(|length| length.as_mins());
            match expected {
                Ok(minutes) => {
                    assert_eq!((length, &facts.ignored), (Some(minutes), &None), "{text}");
                    let end = facts
                        .earliest_end(now)
                        .map(|end| end.duration_since(Timestamp::UNIX_EPOCH).as_mins());
                    assert_eq!(end, Some(minutes), "{text}");
                }
                Err(why) => {
                    assert_eq!((facts.expected, facts.ignored.as_deref()), (None, Some(why)), "{text}");
                }
            }
        }
    }

    #[test]
    fn a_long_annotation_is_cut() {
        let facts =
            |text: &str| facts(None, &[]).with_annotation(Some(text), Timestamp::UNIX_EPOCH + HOUR * 2);
        for (text, expected) in [
            ("x".repeat(64), format!("{:?} is not a duration such as 2h30m", "x".repeat(64))),
            ("é".repeat(300_000), format!("\"{}…\" is not a duration such as 2h30m", "é".repeat(64))),
            (
                format!("1h{}", "0s".repeat(100_000)),
                format!("it has run for longer than 1h{}…", "0s".repeat(31)),
            ),
        ] {
            assert_eq!(facts(&text).ignored, Some(expected));
        }
    }

    #[test]
    fn a_run_does_not_end_before_the_shortest_of_its_earlier_runs() {
        let hours: Vec<i64> = (5..=24).collect();
        for (maximum, lengths, age, expected) in [
            (None, &hours[..], 2, Some(5)),
            // It may be the next to end.
            (None, &hours, 5, None),
            (None, &hours, 30, None),
            (Some(3), &hours, 2, Some(3)),
            (Some(24), &[], 2, None),
            (None, &[], 2, None),
        ] {
            let now = Timestamp::UNIX_EPOCH + HOUR * age;
            let end = facts(maximum, lengths).without_outlived(now).earliest_end(now);
            assert_eq!(end, expected.map(|hours| Timestamp::UNIX_EPOCH + HOUR * hours), "{maximum:?} {age}");
        }
        // By a clock that is behind, it has not begun.
        let early = Timestamp::from_second(-300).unwrap();
        assert_eq!(facts(None, &hours).earliest_end(early), Some(Timestamp::UNIX_EPOCH + HOUR * 5));
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
