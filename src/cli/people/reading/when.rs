//! `sluice why --when`: when a pending workload may be admitted, simulated in this process.
//!
//! Invariants: nothing is listed for a question without an answer; the durable record is read only if the stored Workloads have
//! too few runs; a user who may not list the whole cluster gets the manager's answer, which has what this user may see.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::read;
use super::recorded_runs::read_runs;
use crate::api::ObjectKey;
use crate::cli::people::connection::Session;
use crate::cli::people::offline::simulated::{self, SimulatedObjects};
use crate::cli::people::pages::encoded;
use crate::cli::people::source::VIEWS;
use crate::simulate::estimate::{NoRange, Question, RecordedRun, Refusal, TIME_LIMIT, estimate};
use crate::visibility::estimate::{refused, refused_at_once, view};
use crate::visibility::views::{Answer, Estimate, Source, SourceKind, Verdict};

/// Least difference to the manager's time by which the clock of this machine is taken to be wrong.
const WRONG_CLOCK: SignedDuration = SignedDuration::from_mins(1);
/// Most of it: by more, the manager has heard nothing for long.
const SILENT: SignedDuration = SignedDuration::from_hours(1);

/// An estimate, and whether the user lacks a right for a better one.
pub(super) struct Found {
    pub(super) estimate: Estimate,
    pub(super) lacks_right: bool,
}

/// Returns when a workload may be admitted, or why that is not known. `answer` is the workload's verdict.
pub(super) async fn admission(
    session: &Session,
    workload: &ObjectKey,
    answer: &Answer<Verdict>,
) -> anyhow::Result<Found> {
    let verdict = &answer.view;
    if let Some(refusal) = refused_at_once(verdict) {
        return Ok(Found { estimate: refused(&refusal), lacks_right: false });
    }
    let SimulatedObjects { objects, skipped, mut options, has_default_configuration } =
        simulated::read(session).await?;
    if let Some(first) = skipped.first() {
        let kinds = skipped.iter().map(|skipped| skipped.resource.clone()).collect();
        let forbidden = refused(&Refusal::Forbidden(kinds, first.reason.clone()));
        let estimate = of_manager(session, workload).await.unwrap_or(forbidden);
        return Ok(Found { estimate, lacks_right: true });
    }
    options.start = start(options.start, &answer.source);
    let simulate = |recorded: &[RecordedRun]| {
        let begun = Instant::now();
        let question = Question { workload, objects: &objects, recorded, sees: &|_| true };
        estimate(&question, &options, &|| begun.elapsed() < TIME_LIMIT)
    };
    let mut found = simulate(&[]);
    if found.as_ref().is_err_and(|none| lacks_runs(none)) {
        let recorded = read_runs(session, options.start).await;
        if !recorded.is_empty() {
            found = simulate(&recorded);
        }
    }
    let mut estimate = view(&found, &verdict.workload.cluster_queue);
    if has_default_configuration {
        let text = "the manager has its built-in configuration, as its own cannot be read".to_owned();
        match &mut estimate {
            Estimate::Range(range) => range.assumptions.push(text),
            Estimate::Refused(none) if none.not_before.is_some() => none.assumptions.push(text),
            Estimate::Refused(_) => {}
        }
    }
    Ok(Found { estimate, lacks_right: false })
}

/// Whether more earlier runs may give an answer.
const fn lacks_runs(none: &NoRange) -> bool {
    matches!(none.refusal, Refusal::UnknownRunning(..) | Refusal::Outlived { .. } | Refusal::UnknownAhead(..))
}

/// Returns what the manager says for a user of a namespace; `None` if it says nothing.
async fn of_manager(session: &Session, workload: &ObjectKey) -> Option<Estimate> {
    if session.dump.is_some() {
        return None;
    }
    let path = format!(
        "{VIEWS}/namespaces/{}/workloadviews/{}/verdict?when=true",
        encoded(&workload.namespace),
        encoded(&workload.name)
    );
    let answer: Value = session.caller.get(&path).await.ok()?;
    read::<Answer<Verdict>>(&answer).ok()?.view.estimate
}

/// Returns the time from which run times count: that of this machine, or that of the manager if they differ. The answer of the manager
/// is new, so that the difference is that of the clocks.
fn start(now: Timestamp, source: &Source) -> Timestamp {
    let manager = source.time.filter(|_| source.kind == SourceKind::Manager);
    let is_off = |time: &Timestamp| {
        let difference = now.duration_since(*time).abs();
        WRONG_CLOCK < difference && difference <= SILENT
    };
    manager.filter(is_off).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_clock_that_is_off_is_replaced_by_that_of_the_manager() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (kind, seconds, expected) in [
            ("manager", 30, 0),
            ("manager", 300, 300),
            ("manager", -300, -300),
            // A replica that has heard nothing for a day.
            ("manager", -86_400, 0),
            ("file", -300, 0),
        ] {
            let at = |offset: i64| Timestamp::from_second(1_000_000 + offset).unwrap();
            let source =
                json!({"kind": kind, "replica": "m", "stateVersion": 0, "time": at(seconds).to_string()});
            let source: Source = serde_json::from_value(source).unwrap();
            assert_eq!(start(now, &source), at(expected), "{kind} {seconds}");
        }
    }
}
