//! An estimate of admission as a value of the views, and the refusals for which nothing is simulated.
//!
//! Invariant: it has no name that the estimate does not have, and that has only names which its reader may see.

use super::views::{Estimate, EstimatedRange, RefusedEstimate, Verdict, WorkloadState};
use crate::api::ObjectKey;
use crate::api::names::EXPECTED_RUN_TIME_ANNOTATION;
use crate::simulate::estimate::run_times::ENOUGH;
use crate::simulate::estimate::{AdmissionRange, LowerBound, MAX_AHEAD, NoRange, Refusal};
use jiff::{RoundMode, Timestamp, TimestampRound, Unit};

/// What makes an unknown run time known, and what each way costs.
pub const REMEDY: &str = "label kueue.x-k8s.io/max-exec-time-seconds makes a run time known, and stops the job after that time; annotation sluice.dev/expected-run-time, such as 2h30m, is for estimates alone";
/// What a bound takes as given.
const BOUND_ASSUMES: &str = "no workload is deleted, evicted or fails, gives quota back while it runs, or ends sooner than all its earlier runs, or than is expected of it; quotas and nodes stay";
/// Longest list of workloads whose annotations are ignored.
const MAX_NOTES: usize = 3;

/// Returns the refusal that follows from the verdict alone; `None` if a simulation is needed.
pub fn refused_at_once(verdict: &Verdict) -> Option<Refusal> {
    let row = &verdict.workload;
    if row.state != WorkloadState::Pending {
        return Some(Refusal::NotPending(row.state.as_str().to_owned()));
    }
    if verdict.never_fits {
        return Some(Refusal::NeverFits);
    }
    if row.reason == "Deactivated" {
        return Some(Refusal::Deactivated);
    }
    if row.stuck {
        let cause = if verdict.obstacle.is_empty() { &row.reason } else { &verdict.obstacle };
        return Some(Refusal::NeedsChange(cause.clone()));
    }
    let position = row.position.as_ref().map(|position| position.cluster_queue.saturating_sub(1));
    let ahead = verdict.ahead.as_ref().map(|ahead| ahead.count).max(position)?;
    (ahead > MAX_AHEAD).then_some(Refusal::TooManyAhead(ahead))
}

/// Returns a refusal as an estimate.
pub fn refused(refusal: &Refusal) -> Estimate {
    Estimate::Refused(RefusedEstimate { refused: refusal.to_string(), ..RefusedEstimate::default() })
}

/// Returns an estimate that was not computed, and why.
pub fn unanswered(why: &str) -> Estimate {
    Estimate::Refused(RefusedEstimate { refused: why.to_owned(), ..RefusedEstimate::default() })
}

/// Returns what was found for a Workload of a ClusterQueue as an estimate.
pub fn view(found: &Result<AdmissionRange, Box<NoRange>>, cluster_queue: &str) -> Estimate {
    match found {
        Ok(range) => Estimate::Range(range_view(range, cluster_queue)),
        Err(none) => Estimate::Refused(RefusedEstimate {
            refused: none.refusal.to_string(),
            not_before: none.not_before.as_ref().map(|bound| whole_second(bound.at)),
            must_end: must_end(none.not_before.as_ref()),
            assumptions: none.not_before.iter().map(|_| BOUND_ASSUMES.to_owned()).collect(),
            unknown: none.unknown.iter().map(ToString::to_string).collect(),
            notes: notes(&none.ignored),
        }),
    }
}

fn must_end(bound: Option<&LowerBound>) -> Vec<String> {
    bound.into_iter().flat_map(|bound| &bound.ending).map(ToString::to_string).collect()
}

fn notes(ignored: &[(ObjectKey, String)]) -> Vec<String> {
    let note = |(key, why): &(ObjectKey, String)| {
        format!("{EXPECTED_RUN_TIME_ANNOTATION} of {key} is ignored: {why}")
    };
    let mut notes: Vec<String> = ignored.iter().take(MAX_NOTES).map(note).collect();
    let rest = ignored.len().saturating_sub(MAX_NOTES);
    if rest > 0 {
        notes.push(format!("{EXPECTED_RUN_TIME_ANNOTATION} of {rest} more is ignored"));
    }
    notes
}

fn range_view(range: &AdmissionRange, cluster_queue: &str) -> EstimatedRange {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let counted = |count: usize, singular: &str, plural: &str| match count {
        0 => None,
        1 => Some(format!("1 running workload {singular}")),
        _ => Some(format!("{count} running workloads {plural}")),
    };
    let serving =
        counted(range.serving, "does not end by itself and goes on", "do not end by themselves and go on");
    let open_ended = counted(
        range.open_ended,
        "has a maximum execution time and may end at any time before it",
        "have a maximum execution time and may end at any time before it",
    );
    let open_ended =
        open_ended.map(|text| format!("{text}: fewer than {ENOUGH} earlier runs, or none that was as long"));
    let arrivals = format!("nothing new arrives in the cohort of {cluster_queue}; quotas and nodes stay");
    let bound = range.not_before.iter().map(|_| BOUND_ASSUMES.to_owned());
    EstimatedRange {
        earliest: range.earliest.map(whole_second),
        not_before: range.not_before.as_ref().map(|bound| whole_second(bound.at)),
        must_end: must_end(range.not_before.as_ref()),
        latest: whole_second(range.latest),
        assumptions: std::iter::once(arrivals).chain(serving).chain(open_ended).chain(bound).collect(),
        declared: number(range.declared),
        expected: number(range.expected),
        from_history: number(range.from_history),
        unknown: number(range.serving),
        earlier_runs: number(range.earlier_runs),
        earlier_runs_since: range.earlier_runs_since,
        notes: notes(&range.ignored),
    }
}

/// Returns a time in whole seconds, rounded down; simulated time has fractions.
fn whole_second(time: Timestamp) -> Timestamp {
    let round = TimestampRound::new().smallest(Unit::Second).mode(RoundMode::Floor);
    time.round(round).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn verdict(more: &Value) -> Verdict {
        let mut row =
            json!({"metadata": {"namespace": "ns", "name": "w"}, "state": "Pending", "priority": 0});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(row).unwrap()
    }

    #[test]
    fn a_bound_has_its_names_and_what_it_takes_as_given() {
        let key = |name: &str| ObjectKey::new("ns", name);
        let at = Timestamp::from_millisecond(90_500).unwrap();
        let none = NoRange {
            refusal: Refusal::UnknownRunning(1, 2),
            not_before: Some(LowerBound { at, ending: vec![key("tokenize")] }),
            unknown: vec![key("detr")],
            ignored: ["a", "b", "c", "d"].map(|name| (key(name), "x".to_owned())).to_vec(),
        };
        let view = json!(view(&Err(Box::new(none)), "q"));
        assert_eq!(view["notBefore"], "1970-01-01T00:01:30Z");
        assert_eq!((&view["mustEnd"], &view["unknown"]), (&json!(["ns/tokenize"]), &json!(["ns/detr"])));
        assert_eq!(view["assumptions"], json!([BOUND_ASSUMES]));
        let notes = view["notes"].as_array().unwrap();
        assert_eq!(notes.first().unwrap(), "sluice.dev/expected-run-time of ns/a is ignored: x");
        assert_eq!(notes.last().unwrap(), "sluice.dev/expected-run-time of 1 more is ignored");
        assert_eq!(json!(refused(&Refusal::Deleted)), json!({"refused": "it has been deleted"}));
    }

    #[test]
    fn a_question_without_an_answer_is_refused_before_anything_is_read() {
        let position =
            |place: u64| json!({"clusterQueue": place, "localQueue": 1, "of": 20_000, "ofLocalQueue": 1});
        for (more, expected) in [
            (json!({}), None),
            (json!({"state": "Finished"}), Some("it has finished")),
            (json!({"state": "Evicted", "neverFits": true}), Some("it is not pending (Evicted)")),
            (json!({"neverFits": true, "reason": "ExceedsMaxQuota"}), Some("it can never be admitted")),
            (
                json!({"reason": "Deactivated", "stuck": true}),
                Some("it is deactivated: sluice resume workload lets it wait again"),
            ),
            (
                json!({"reason": "OnHold", "stuck": true}),
                Some("it waits for a change, not for others to end: OnHold"),
            ),
            // There is free quota, but the workload never starts, because the head before it is too large.
            (
                json!({"reason": "WaitingForQuota", "stuck": true, "obstacle": "Behind ns/head, which can never be admitted"}),
                Some(
                    "it waits for a change, not for others to end: Behind ns/head, which can never be admitted",
                ),
            ),
            (json!({"reason": "WaitingForQuota"}), None),
            // The reason of a condition is no obstacle if the verdict has none.
            (json!({"reason": "NoMatchingFlavor"}), None),
            (json!({"position": position(2_001)}), None),
            (json!({"position": position(12_401)}), Some("12,400 workloads are ahead (limit 2,000)")),
            (
                json!({"ahead": {"count": 2_001, "first": [], "hidden": 0}}),
                Some("2,001 workloads are ahead (limit 2,000)"),
            ),
        ] {
            let found = refused_at_once(&verdict(&more)).map(|refusal| refusal.to_string());
            assert_eq!(found.as_deref(), expected, "{more}");
        }
    }
}
