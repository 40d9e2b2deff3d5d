//! `sluice why --when`: a range in which a pending workload may be admitted, simulated in this process.
//!
//! Invariants: nothing is listed for a question without an answer; the durable record is read only if the stored Workloads have
//! too few runs.

use std::time::Instant;

use jiff::{Timestamp, Unit};

use super::recorded_runs::read_runs;
use crate::api::ObjectKey;
use crate::cli::people::connection::Session;
use crate::cli::people::offline::simulated::{self, SimulatedObjects};
use crate::simulate::estimate::run_times::ENOUGH;
use crate::simulate::estimate::{AdmissionRange, MAX_AHEAD, RecordedRun, Refusal, TIME_LIMIT, estimate};
use crate::visibility::views::{Estimate, EstimatedRange, Verdict};

/// Returns when a workload may be admitted, or why that is not known. `verdict` is the workload's verdict.
pub(super) async fn admission(
    session: &Session,
    workload: &ObjectKey,
    verdict: &Verdict,
) -> anyhow::Result<Result<EstimatedRange, Refusal>> {
    if let Some(refusal) = refused_at_once(verdict) {
        return Ok(Err(refusal));
    }
    let SimulatedObjects { objects, skipped, options, has_default_configuration } =
        simulated::read(session).await?;
    if let Some(first) = skipped.first() {
        let kinds = skipped.iter().map(|skipped| skipped.resource.clone()).collect();
        return Ok(Err(Refusal::Forbidden(kinds, first.reason.clone())));
    }
    let simulate = |recorded: &[RecordedRun]| {
        let begun = Instant::now();
        estimate(workload, (&objects, recorded), &options, &|| begun.elapsed() < TIME_LIMIT)
    };
    let mut found = simulate(&[]);
    if matches!(
        found,
        Err(Refusal::UnknownRunning(..) | Refusal::Outlived { .. } | Refusal::UnknownAhead(..))
    ) {
        let recorded = read_runs(session, options.start).await;
        if !recorded.is_empty() {
            found = simulate(&recorded);
        }
    }
    Ok(found.map(|range| {
        let mut view = view(&range, &verdict.workload.cluster_queue);
        if has_default_configuration {
            view.assumptions
                .push("the manager has its built-in configuration, as its own cannot be read".to_owned());
        }
        view
    }))
}

/// Returns the refusal that follows from the verdict alone; `None` if a simulation is needed.
fn refused_at_once(verdict: &Verdict) -> Option<Refusal> {
    use crate::visibility::views::WorkloadState::Pending;
    let row = &verdict.workload;
    if row.state != Pending {
        return Some(Refusal::NotPending(row.state.as_str().to_owned()));
    }
    if verdict.never_fits {
        return Some(Refusal::NeverFits);
    }
    if row.stuck {
        let cause = if verdict.obstacle.is_empty() { &row.reason } else { &verdict.obstacle };
        return Some(Refusal::NeedsChange(cause.clone()));
    }
    let position = row.position.as_ref().map(|position| position.cluster_queue.saturating_sub(1));
    let ahead = verdict.ahead.as_ref().map(|ahead| ahead.count).max(position)?;
    (ahead > MAX_AHEAD).then_some(Refusal::TooManyAhead(ahead))
}

fn view(range: &AdmissionRange, cluster_queue: &str) -> EstimatedRange {
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
    EstimatedRange {
        earliest: range.earliest.map(whole_second),
        latest: whole_second(range.latest),
        assumptions: std::iter::once(arrivals).chain(serving).chain(open_ended).collect(),
        declared: number(range.declared),
        from_history: number(range.from_history),
        of_other_shape: number(range.of_other_shape),
        unknown: number(range.serving),
        earlier_runs: number(range.earlier_runs),
        earlier_runs_since: range.earlier_runs_since,
    }
}

/// Returns a time in whole seconds; simulated time has fractions.
fn whole_second(time: Timestamp) -> Timestamp {
    let round = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor);
    time.round(round).unwrap_or(time)
}

/// Returns the result as a value of the views.
pub(super) fn answer(found: &Result<EstimatedRange, Refusal>) -> Estimate {
    match found {
        Ok(range) => Estimate::Range(range.clone()),
        Err(refusal) => Estimate::Refused { refused: refusal.to_string() },
    }
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
    fn a_question_without_an_answer_is_refused_before_anything_is_read() {
        let position =
            |place: u64| json!({"clusterQueue": place, "localQueue": 1, "of": 20_000, "ofLocalQueue": 1});
        for (more, expected) in [
            (json!({}), None),
            (json!({"state": "Finished"}), Some("it is not pending (Finished)")),
            (json!({"state": "Evicted", "neverFits": true}), Some("it is not pending (Evicted)")),
            (json!({"neverFits": true, "reason": "ExceedsMaxQuota"}), Some("it can never be admitted")),
            (
                json!({"reason": "Deactivated", "stuck": true}),
                Some("it waits for a change, not for others to end: Deactivated"),
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
