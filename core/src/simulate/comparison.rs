//! Two runs of a simulation, without and with a change: totals, and the workloads that fare differently.
//!
//! Invariant: workloads are compared by their keys; both runs start from the same objects, so that a difference follows from the change.

use super::report::{PendingRow, Report};
use super::tables::format_duration;
use super::timeline::{TimelineEntry, TimelineEventKind, WorkloadRef};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Number of workloads in the table.
const MAX_ROWS: usize = 50;

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Totals without the change.
    pub without: Totals,
    /// Totals with it.
    pub with: Totals,
    /// Workloads that fare differently, and those that are watched, by name.
    pub workloads: Vec<ComparedWorkload>,
}

/// Sums of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Length of the run in seconds.
    pub seconds: f64,
    /// Number of workloads that were admitted in it, each once.
    pub admitted: usize,
    /// Number of preemptions.
    pub preempted: usize,
    /// Number of workloads that finished in it.
    pub finished: usize,
    /// Number of running workloads that have no known end, so that they go on.
    pub endless: usize,
    /// Number of workloads that are pending at the end.
    pub pending: usize,
}

/// A workload in both runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedWorkload {
    /// The workload.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// What happens to it without the change.
    pub without: Fate,
    /// What happens to it with the change.
    pub with: Fate,
}

/// What happens to a workload in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fate {
    /// `absent`, `admitted`, `finished`, `pending`, `stuck` or `neverFits` at the end.
    pub state: &'static str,
    /// When it was last admitted, in seconds since the start; absent if it was before the start, or never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<f64>,
    /// When it was last preempted, in seconds since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempted_at: Option<f64>,
    /// The last preemptor.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preempted_by: String,
    /// What blocks it at the end: its obstacle, or the node and the available of the requested amount.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub blocked_by: String,
}

impl Comparison {
    /// Compares two runs. `watched`: keys of Workloads that are shown also if they fare alike.
    pub fn new(without: &Report, with: &Report, watched: &[String]) -> Self {
        let (before, mut after) = (fates(without), fates(with));
        let mut workloads = Vec::new();
        for (workload, without) in before {
            let with = after.remove(&workload).unwrap_or_else(absent);
            workloads.push(ComparedWorkload { workload, without, with });
        }
        let added =
            after.into_iter().map(|(workload, with)| ComparedWorkload { workload, without: absent(), with });
        workloads.extend(added);
        workloads
            .retain(|row| row.without.text() != row.with.text() || watched.contains(&row.workload.workload));
        workloads.sort_by(|a, b| a.workload.display_name().cmp(b.workload.display_name()));
        Self { without: totals(without), with: totals(with), workloads }
    }

    /// Formats the comparison as a table.
    pub fn table(&self) -> String {
        let length = self.without.seconds.max(self.with.seconds);
        let total = |name: String, count: fn(&Totals) -> usize| {
            [name, count(&self.without).to_string(), count(&self.with).to_string(), String::new()]
        };
        let mut rows = vec![
            ["", "WITHOUT", "WITH", ""].map(str::to_owned),
            total(format!("admitted in {}", format_duration(length)), |totals| totals.admitted),
            total("preempted".to_owned(), |totals| totals.preempted),
            total(format!("finished in {}", format_duration(length)), |totals| totals.finished),
            total("pending".to_owned(), |totals| totals.pending),
        ];
        rows.extend(self.workloads.iter().take(MAX_ROWS).map(|row| {
            let blocker = &row.with.blocked_by;
            let why = if blocker.is_empty() { String::new() } else { format!("blocked by {blocker}") };
            [row.workload.display_name().to_owned(), row.without.text(), row.with.text(), why]
        }));
        let widths = [0, 1, 2].map(|at| {
            rows.iter().filter_map(|row| row.get(at)).map(|word| word.chars().count()).max().unwrap_or(0)
        });
        let [name, first, second] = widths;
        let mut text = String::new();
        for [what, without, with, why] in &rows {
            let line = format!("{what:<name$}   {without:>first$}   {with:>second$}   {why}");
            // Writing to a String does not fail.
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let more = self.workloads.len().saturating_sub(MAX_ROWS);
        if more > 0 {
            let _ = writeln!(text, "{more} more workloads fare differently: -o json lists all");
        }
        if self.workloads.is_empty() {
            text.push_str("No workload fares differently.\n");
        }
        let endless = self.without.endless.max(self.with.endless);
        if endless > 0 {
            let (jobs, goes) =
                if endless == 1 { ("1 running job has", "goes") } else { ("running jobs have", "go") };
            let number = if endless == 1 { String::new() } else { format!("{endless} ") };
            let _ = writeln!(text, "{number}{jobs} no known end and {goes} on: --run-for gives one.");
        }
        text
    }
}

impl Fate {
    fn text(&self) -> String {
        let at = |seconds: f64| format!("at {}", format_duration(seconds));
        let state = match (self.state, self.admitted_at) {
            ("absent", _) => "-".to_owned(),
            ("neverFits", _) => "never fits".to_owned(),
            ("pending" | "stuck", _) => self.state.to_owned(),
            (_, Some(seconds)) => at(seconds),
            ("admitted", None) => "runs".to_owned(),
            (state, None) => state.to_owned(),
        };
        let Some(seconds) = self.preempted_at else { return state };
        let by =
            if self.preempted_by.is_empty() { String::new() } else { format!(" by {}", self.preempted_by) };
        let preempted = format!("preempted {}{by}", at(seconds));
        let again = matches!(self.state, "admitted" | "finished");
        if again { format!("{preempted}, again {state}") } else { preempted }
    }
}

fn absent() -> Fate {
    Fate { state: "absent", ..Fate::default() }
}

/// Returns what happened to each workload of a run.
fn fates(report: &Report) -> BTreeMap<WorkloadRef, Fate> {
    let mut fates: BTreeMap<WorkloadRef, Fate> = BTreeMap::new();
    for entry in report.timeline.iter().filter(|entry| !entry.workload.workload.is_empty()) {
        note(fates.entry(entry.workload.clone()).or_insert_with(absent), entry);
    }
    for row in &report.admitted {
        fates.entry(row.workload.clone()).or_default().state = "admitted";
    }
    for row in report.pending.iter().filter(|row| !row.workload.workload.is_empty()) {
        let fate = fates.entry(row.workload.clone()).or_default();
        fate.state = match (row.never_fits, row.stuck) {
            (true, _) => "neverFits",
            (false, true) => "stuck",
            (false, false) => "pending",
        };
        fate.blocked_by = blocker(row);
    }
    for workload in &report.finished {
        fates.entry(workload.clone()).or_default().state = "finished";
    }
    fates
}

fn note(fate: &mut Fate, entry: &TimelineEntry) {
    match entry.event {
        TimelineEventKind::Admitted => fate.admitted_at = Some(entry.seconds),
        TimelineEventKind::Preempted => {
            fate.preempted_at = Some(entry.seconds);
            fate.preempted_by.clone_from(&entry.preemptor);
        }
        _ => {}
    }
}

fn blocker(row: &PendingRow) -> String {
    if !row.obstacle.is_empty() && !row.blockers.iter().any(|blocker| blocker.kind == "neverFits") {
        return row.obstacle.clone();
    }
    let Some(blocker) = row.blockers.iter().find(|blocker| !blocker.node.is_empty()) else {
        return row.reason.clone();
    };
    let node = blocker.node.replacen('/', " ", 1);
    format!("{node}: {} of {} {}", blocker.available, blocker.requested, blocker.resource)
}

fn totals(report: &Report) -> Totals {
    let workloads = |kind: TimelineEventKind| {
        let entries = report.timeline.iter().filter(|entry| entry.event == kind);
        entries.map(|entry| &entry.workload).collect::<BTreeSet<&WorkloadRef>>().len()
    };
    Totals {
        seconds: report.end.seconds,
        admitted: workloads(TimelineEventKind::Admitted),
        preempted: report.preempted.len(),
        finished: workloads(TimelineEventKind::Finished),
        endless: if report.end.settled { report.admitted.len() } else { 0 },
        pending: report.pending.len(),
    }
}
