//! `sluice why --when`: when a pending workload may be admitted, simulated in this process.
//!
//! Invariants: nothing is listed for a question without an answer; the durable record is read only if the stored Workloads have
//! too few runs; without the right to list the whole cluster, a user gets the manager's answer, which has what this user may see.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::clock::corrected;
use super::read;
use crate::api::ObjectKey;
use crate::cli::people::connection::Session;
use crate::cli::people::offline::simulated::{self, SimulatedObjects};
use crate::cli::people::pages::encoded;
use crate::cli::people::source::VIEWS;
use crate::cli::tools::recorded_runs::read_runs;
use crate::simulate::KeepGoing;
use crate::simulate::estimate::{EstimateRequest, NoRange, RecordedRun, Refusal, TIME_LIMIT, estimate};
use crate::visibility::estimate::{refused, refused_at_once, view};
use crate::visibility::views::{Answer, Estimate, Verdict};

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
    options.start = corrected(options.start, (answer.source.kind, answer.source.time));
    let simulate = |recorded: &[RecordedRun]| {
        let begun = Instant::now();
        let request = EstimateRequest { workload, objects: &objects, recorded, sees: &|_| true };
        let keep_going: KeepGoing = Arc::new(move || begun.elapsed() < TIME_LIMIT);
        estimate(&request, &options, Some(&keep_going))
    };
    let mut found = simulate(&[]);
    if found.as_ref().is_err_and(|none| lacks_runs(none)) {
        // Without a record, or without the right to read it, there are no runs.
        let recorded = read_runs(&session.caller, options.start).await.unwrap_or_default();
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
