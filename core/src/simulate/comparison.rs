//! Two runs of a simulation, without and with a change: totals, what nodes and quotas have, and the workloads that fare differently.
//!
//! Invariants: workloads are compared by their keys; both runs start from the same objects, so that a difference follows from the change;
//! a job without a Workload is no workload, as in lists, and counts nowhere.

use super::fate::{Effect, Fate, fates};
use super::flavor_amounts::ComparedAmounts;
use super::report::{AdmittedRow, PendingRow, Report};
use super::timeline::{TimelineEventKind, WorkloadRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Number of workloads that stay stuck of which the names are given.
const MAX_STUCK: usize = 200;

/// The comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// Totals without the change; absent for a reader of some workloads alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<Totals>,
    /// Totals with it; absent as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Totals>,
    /// Flavor-resources of which nodes or quotas differ.
    #[serde(default)]
    pub flavors: Vec<ComparedAmounts>,
    /// Workloads that fare differently, and those that are watched, by effect and name.
    pub workloads: Vec<ComparedWorkload>,
    /// Number of further ones, which are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_workloads: usize,
    /// Workloads that wait for a change in both runs, by name; the first of them.
    #[serde(default)]
    pub stays_stuck: Vec<WorkloadRef>,
    /// What the runs take for granted, each without a full stop.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// Remarks about the change, each without a full stop.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The notes among them about a job for which the change alone makes no Workload, with the job as the name of a Workload.
    #[serde(skip)]
    pub without_workload: Vec<(WorkloadRef, String)>,
}

/// Sums of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Length of the run in seconds.
    pub seconds: f64,
    /// Number of workloads that were admitted in it, each once.
    pub admitted: usize,
    /// Number of evictions, preemptions among them.
    #[serde(default)]
    pub evicted: usize,
    /// Number of preemptions.
    pub preempted: usize,
    /// Number of workloads that finished in it.
    pub finished: usize,
    /// Number of running workloads that have no known end, so that they go on.
    pub endless: usize,
    /// Number of workloads that are pending at the end.
    pub pending: usize,
    /// Number of those that only a change can admit.
    #[serde(default)]
    pub stuck: usize,
}

/// A workload in both runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedWorkload {
    /// The workload.
    #[serde(flatten)]
    pub workload: WorkloadRef,
    /// What the change does to it.
    #[serde(default)]
    pub effect: Effect,
    /// What happens to it without the change.
    pub without: Fate,
    /// What happens to it with the change.
    pub with: Fate,
}

impl Comparison {
    /// Compares two runs. `watched`: keys of Workloads that are shown also if they fare alike.
    pub fn new(without: &Report, with: &Report, watched: &[String]) -> Self {
        let (before, mut after) = (fates(without), fates(with));
        let mut workloads = Vec::new();
        for (workload, without) in before {
            let with = after.remove(&workload).unwrap_or_default();
            workloads.push(compared(workload, without, with));
        }
        workloads.extend(after.into_iter().map(|(workload, with)| compared(workload, Fate::default(), with)));
        let stays_stuck = workloads.iter().filter(|row| row.stays_stuck()).map(|row| row.workload.clone());
        let stays_stuck = stays_stuck.take(MAX_STUCK).collect();
        workloads.retain(|row| row.differs() || watched.contains(&row.workload.workload));
        workloads.sort_by(|a, b| a.order().cmp(&b.order()));
        let notes = with.notes.iter().filter(|note| !without.notes.contains(note)).cloned();
        let without_workload = without_workload(without, with);
        Self {
            without: Some(totals(without)),
            with: Some(totals(with)),
            flavors: Vec::new(),
            workloads,
            more_workloads: 0,
            stays_stuck,
            assumptions: assumptions(without, with),
            notes: notes.chain(without_workload.iter().map(|(_, note)| note.clone())).collect(),
            without_workload,
        }
    }

    /// Returns what a reader of some workloads may see: their fates, without the names of other workloads, queues and flavors, and without
    /// totals, which count all workloads.
    #[must_use]
    pub fn only(self, sees: &dyn Fn(&WorkloadRef) -> bool) -> Self {
        let names_hidden = |fate: Fate| Fate {
            preempted_by: String::new(),
            blocked_by: fate.blocked_by_in_namespace,
            blocked_by_in_namespace: String::new(),
            ..fate
        };
        let workloads: Vec<ComparedWorkload> = self
            .workloads
            .into_iter()
            .filter(|row| sees(&row.workload))
            .map(|row| ComparedWorkload {
                without: names_hidden(row.without),
                with: names_hidden(row.with),
                ..row
            })
            .collect();
        let stays_stuck = self.stays_stuck.into_iter().filter(|workload| sees(workload)).collect();
        let is_endless = [self.without, self.with].into_iter().flatten().any(|totals| totals.endless > 0);
        // The number is that of all namespaces.
        let endless = is_endless.then(|| "running jobs without a known end go on".to_owned());
        let notes = self.without_workload.into_iter().filter(|(job, _)| sees(job)).map(|(_, note)| note);
        Self {
            without: None,
            with: None,
            flavors: Vec::new(),
            workloads,
            // A number of others would count what the reader does not see.
            more_workloads: 0,
            stays_stuck,
            assumptions: endless.into_iter().chain([NOTHING_ELSE.to_owned()]).collect(),
            notes: notes.collect(),
            without_workload: Vec::new(),
        }
    }

    /// Keeps at most this number of workloads that fare differently, the first ones, and counts the others.
    #[must_use]
    pub fn first(mut self, most: usize) -> Self {
        self.more_workloads = self.more_workloads.saturating_add(self.workloads.len().saturating_sub(most));
        self.workloads.truncate(most);
        self.workloads.shrink_to_fit();
        self
    }

    /// Returns the number of workloads with an effect.
    pub fn count(&self, effect: Effect) -> usize {
        self.workloads.iter().filter(|row| row.effect == effect).count()
    }
}

impl ComparedWorkload {
    /// Whether the workload fares differently with the change.
    pub fn differs(&self) -> bool {
        self.without.text() != self.with.text()
    }

    fn stays_stuck(&self) -> bool {
        self.without.state.is_stuck() && self.with.state.is_stuck()
    }

    fn order(&self) -> (Effect, &str) {
        (self.effect, self.workload.display_name())
    }
}

/// Returns whether no workload is left out: the number is then not written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn compared(workload: WorkloadRef, without: Fate, with: Fate) -> ComparedWorkload {
    ComparedWorkload { workload, effect: Effect::of(&without, &with), without, with }
}

/// The assumption of every run.
const NOTHING_ELSE: &str = "nothing else arrives, and nothing else changes";

/// Returns what two runs take for granted.
fn assumptions(without: &Report, with: &Report) -> Vec<String> {
    let mut assumptions = Vec::new();
    match endless(without).max(endless(with)) {
        0 => {}
        1 => assumptions.push("1 running job has no known end and goes on; --run-for gives one".to_owned()),
        jobs => {
            assumptions.push(format!("{jobs} running jobs have no known end and go on; --run-for gives one"));
        }
    }
    let is_reserved = |row: &&AdmittedRow| row.state == "reserved";
    match with.admitted.iter().filter(is_reserved).count() {
        0 => {}
        1 => assumptions.push("1 workload waits for admission checks, which nothing answers here".to_owned()),
        waiting => assumptions
            .push(format!("{waiting} workloads wait for admission checks, which nothing answers here")),
    }
    assumptions.push(NOTHING_ELSE.to_owned());
    assumptions
}

/// Returns the number of workloads that run without a known end.
fn endless(report: &Report) -> usize {
    report.admitted.iter().filter(|row| row.state == "admitted" && row.ends_at.is_none()).count()
}

fn has_workload(row: &PendingRow) -> bool {
    !row.workload.workload.is_empty()
}

/// Returns why jobs get no Workload that have none in the run with the change alone.
fn without_workload(without: &Report, with: &Report) -> Vec<(WorkloadRef, String)> {
    let jobs = |report: &Report| -> BTreeSet<(WorkloadRef, String)> {
        let rows = report.pending.iter().filter(|row| !has_workload(row));
        let note = |row: &PendingRow| {
            let job = row.workload.job.clone();
            let note = format!("{job} has no Workload: {}", row.why());
            (WorkloadRef { workload: job.clone(), job }, note)
        };
        rows.map(note).collect()
    };
    let before = jobs(without);
    jobs(with).into_iter().filter(|job| !before.contains(job)).collect()
}

fn totals(report: &Report) -> Totals {
    let pending = || report.pending.iter().filter(|row| has_workload(row));
    let entries = |kind: TimelineEventKind| report.timeline.iter().filter(move |entry| entry.event == kind);
    let workloads = |kind: TimelineEventKind| {
        entries(kind).map(|entry| &entry.workload).collect::<BTreeSet<&WorkloadRef>>().len()
    };
    let evicted = entries(TimelineEventKind::Evicted).count();
    Totals {
        seconds: report.end.seconds,
        admitted: workloads(TimelineEventKind::Admitted),
        evicted: evicted.saturating_add(report.preempted.len()),
        preempted: report.preempted.len(),
        finished: workloads(TimelineEventKind::Finished),
        endless: endless(report),
        pending: pending().count(),
        stuck: pending().filter(|row| row.stuck || row.never_fits).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::fate::FateState;

    #[test]
    fn a_reader_of_some_workloads_learns_no_other_name() {
        let row = |name: &str| ComparedWorkload {
            workload: WorkloadRef { workload: name.to_owned(), job: name.to_owned() },
            effect: Effect::Evicted,
            without: Fate { state: FateState::Admitted, ..Fate::default() },
            with: Fate {
                state: FateState::Pending,
                preempted_at: Some(0.0),
                preempted_by: "secret/preemptor".to_owned(),
                blocked_by: "Behind secret/head".to_owned(),
                blocked_by_in_namespace: "Behind another".to_owned(),
                ..Fate::default()
            },
        };
        let stuck = |name: &str| WorkloadRef { workload: name.to_owned(), job: String::new() };
        let comparison = Comparison {
            with: Some(Totals { seconds: 60.0, preempted: 7, endless: 3, stuck: 8, ..Totals::default() }),
            workloads: vec![row("own/a"), row("secret/b")],
            stays_stuck: vec![stuck("secret/c"), stuck("own/d")],
            flavors: vec![ComparedAmounts {
                flavor: "secret-flavor".to_owned(),
                ..ComparedAmounts::default()
            }],
            notes: vec!["ClusterQueue secret-queue uses 8".to_owned()],
            without_workload: ["own/e", "secret/f"]
                .map(|job| (WorkloadRef { workload: job.to_owned(), ..stuck("") }, format!("{job} has none")))
                .into(),
            ..Comparison::default()
        };
        let shown = comparison.only(&|workload| workload.workload.starts_with("own/"));
        let text = format!("{shown:?}");
        assert!(!text.contains("secret"), "{text}");
        assert_eq!(shown.workloads.len(), 1);
        assert_eq!(shown.workloads[0].with.text(), "preempted at 0s");
        assert_eq!(shown.workloads[0].with.blocked_by, "Behind another");
        assert_eq!(shown.notes, ["own/e has none"]);
        assert_eq!(shown.assumptions, ["running jobs without a known end go on", NOTHING_ELSE]);
        let value = serde_json::to_value(&shown).unwrap();
        assert_eq!(
            (value.get("without"), value.get("with")),
            (None, None),
            "no sum of others, and none that is wrong"
        );
        assert_eq!(shown.stays_stuck, [stuck("own/d")]);
    }

    #[test]
    fn workloads_that_are_left_out_are_counted() {
        let row = |name: &str| ComparedWorkload {
            workload: WorkloadRef { workload: name.to_owned(), job: String::new() },
            ..ComparedWorkload::default()
        };
        let workloads = vec![row("ns/a"), row("ns/b"), row("ns/c")];
        let whole = Comparison { workloads, ..Comparison::default() };
        for (most, kept, more) in [(0, 0, 3), (2, 2, 1), (3, 3, 0), (9, 3, 0)] {
            let first = whole.clone().first(most);
            assert_eq!((first.workloads.as_slice(), first.more_workloads), (&whole.workloads[..kept], more));
            assert!(first.workloads.capacity() <= kept, "the memory of the others is given back");
            let written = serde_json::to_value(&first).unwrap();
            let expected = (more > 0).then(|| serde_json::json!(more));
            assert_eq!(written.get("moreWorkloads"), expected.as_ref(), "{written}");
        }
        assert_eq!(whole.first(1).first(0).more_workloads, 3);
    }
}
