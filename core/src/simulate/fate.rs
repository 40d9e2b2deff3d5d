//! What happens to each workload in a run, and what the difference between two runs is to it.
//!
//! Invariant: a fate follows from a report alone, so that the fates of two runs compare what both reports say.

use super::blocker_row::BlockerRow;
use super::report::{PendingRow, Report};
use super::tables::format_duration;
use super::timeline::{TimelineEntry, TimelineEventKind, WorkloadRef};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// State of a workload at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FateState {
    /// It does not exist.
    #[default]
    Absent,
    /// It has quota.
    Admitted,
    /// It has finished.
    Finished,
    /// It waits for others to end.
    Pending,
    /// It waits for a change.
    Stuck,
    /// It can never be admitted.
    NeverFits,
}

impl FateState {
    /// Whether only a change can admit the workload.
    pub const fn is_stuck(self) -> bool {
        matches!(self, Self::Stuck | Self::NeverFits)
    }
}

/// What happens to a workload in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fate {
    /// State at the end.
    pub state: FateState,
    /// When it was last admitted, in seconds since the start; absent if it was before the start, or never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<f64>,
    /// When it was last preempted, in seconds since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted_at: Option<f64>,
    /// The last preemptor.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub preempted_by: String,
    /// When it was last evicted for another reason than a preemption, in seconds since the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<f64>,
    /// Reason of that eviction.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evicted_for: String,
    /// What blocks it at the end: its obstacle, the node and the available of the requested amount, what its pods do not find, or the
    /// object that keeps it out.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub blocked_by: String,
    /// The same for readers of its namespace alone, without names of workloads of other namespaces; no part of the answer for others.
    #[serde(skip)]
    pub blocked_by_in_namespace: String,
}

/// What a change does to a workload. The order is that of the rows of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// It is evicted.
    Evicted,
    /// It starts without the change, and not with it.
    NotAdmitted,
    /// It waits for a change that it did not wait for.
    GetsStuck,
    /// It starts later.
    Later,
    /// It starts earlier, or starts at all.
    Earlier,
    /// It waits for others to end, and no longer for a change.
    NoLongerStuck,
    /// The change creates it.
    Created,
    /// The change deletes it.
    Deleted,
    /// Another difference, or none.
    #[default]
    Other,
}

impl Effect {
    /// Returns the word shown in tables; empty for no particular effect.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::NotAdmitted => "not admitted",
            Self::GetsStuck => "gets stuck",
            Self::Later => "later",
            Self::Earlier => "earlier",
            Self::NoLongerStuck => "no longer stuck",
            Self::Created => "new",
            Self::Deleted => "deleted",
            Self::Other => "",
        }
    }

    /// Returns what the difference between two fates is to a workload.
    pub(super) fn of(without: &Fate, with: &Fate) -> Self {
        match (without.state, with.state) {
            (FateState::Absent, FateState::Absent) => return Self::Other,
            (FateState::Absent, _) => return Self::Created,
            (_, FateState::Absent) => return Self::Deleted,
            _ => {}
        }
        if with.evictions() > without.evictions() {
            return Self::Evicted;
        }
        match (without.start(), with.start()) {
            (Some(before), Some(after)) if after < before => Self::Earlier,
            (Some(before), Some(after)) if after > before => Self::Later,
            (None, Some(_)) => Self::Earlier,
            (Some(_), None) => Self::NotAdmitted,
            _ if with.state.is_stuck() && !without.state.is_stuck() => Self::GetsStuck,
            _ if without.state.is_stuck() && !with.state.is_stuck() => Self::NoLongerStuck,
            _ => Self::Other,
        }
    }
}

impl Fate {
    /// Returns when the workload last started, in seconds since the start of the run; negative if it was before that, `None` if it
    /// waits at the end.
    fn start(&self) -> Option<f64> {
        match self.state {
            FateState::Admitted | FateState::Finished => Some(self.admitted_at.unwrap_or(-1.0)),
            _ => None,
        }
    }

    /// Returns in how many ways the workload was evicted.
    fn evictions(&self) -> u8 {
        u8::from(self.preempted_at.is_some()).saturating_add(u8::from(self.evicted_at.is_some()))
    }

    /// Returns the fate in a few words.
    pub fn text(&self) -> String {
        let parts: Vec<String> = self.parts().iter().map(ToString::to_string).collect();
        parts.join(", again ")
    }

    /// Returns the last eviction, and the state unless the workload waits since that eviction.
    pub fn parts(&self) -> Vec<FatePart> {
        let stopped = self.eviction();
        let again = matches!(self.state, FateState::Admitted | FateState::Finished);
        let state = (stopped.is_none() || again).then(|| self.state_part());
        stopped.into_iter().chain(state).collect()
    }

    fn state_part(&self) -> FatePart {
        let words = match (self.state, self.admitted_at) {
            (FateState::Absent, _) => "-",
            (FateState::NeverFits, _) => "never fits",
            (FateState::Pending, _) => "pending",
            (FateState::Stuck, _) => "stuck",
            (_, Some(seconds)) => return FatePart { seconds: Some(seconds), ..FatePart::default() },
            (FateState::Admitted, None) => "runs",
            (FateState::Finished, None) => "finished",
        };
        FatePart { words, ..FatePart::default() }
    }

    /// Returns the last preemption, or the last eviction for another reason.
    fn eviction(&self) -> Option<FatePart> {
        let preempted = self.preempted_at.map(|seconds| {
            let by = if self.preempted_by.is_empty() { "" } else { " by " };
            (seconds, "preempted", format!("{by}{}", self.preempted_by))
        });
        let evicted = self.evicted_at.map(|seconds| {
            let why =
                if self.evicted_for.is_empty() { String::new() } else { format!(" ({})", self.evicted_for) };
            (seconds, "evicted", why)
        });
        let last = match (preempted, evicted) {
            (Some(one), Some(other)) if other.0 > one.0 => Some(other),
            (one, other) => one.or(other),
        };
        last.map(|(seconds, words, rest)| FatePart { words, seconds: Some(seconds), rest })
    }
}

/// A part of a fate in words: an eviction, or a state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FatePart {
    /// What happened; empty for a start, of which the time is enough.
    pub words: &'static str,
    /// When, in seconds since the start of the run; `None` for what has no time.
    pub seconds: Option<f64>,
    /// What follows the time, with the space before it.
    pub rest: String,
}

impl FatePart {
    /// Returns the time as in `at 1h 30m`; empty for none.
    pub fn time(&self) -> String {
        self.seconds.map_or_else(String::new, |seconds| format!("at {}", format_duration(seconds)))
    }
}

impl fmt::Display for FatePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.words.is_empty() || self.seconds.is_none() { "" } else { " " };
        write!(f, "{}{separator}{}{}", self.words, self.time(), self.rest)
    }
}

/// Returns what happened to each workload of a run.
pub(super) fn fates(report: &Report) -> BTreeMap<WorkloadRef, Fate> {
    let mut fates: BTreeMap<WorkloadRef, Fate> = BTreeMap::new();
    for entry in report.timeline.iter().filter(|entry| !entry.workload.workload.is_empty()) {
        note(fates.entry(entry.workload.clone()).or_default(), entry);
    }
    for row in &report.admitted {
        fates.entry(row.workload.clone()).or_default().state = FateState::Admitted;
    }
    for row in report.pending.iter().filter(|row| !row.workload.workload.is_empty()) {
        let fate = fates.entry(row.workload.clone()).or_default();
        fate.state = match (row.never_fits, row.stuck) {
            (true, _) => FateState::NeverFits,
            (false, true) => FateState::Stuck,
            (false, false) => FateState::Pending,
        };
        fate.blocked_by = blocker(row);
        fate.blocked_by_in_namespace = blocker_in_namespace(row);
    }
    for workload in &report.finished {
        fates.entry(workload.clone()).or_default().state = FateState::Finished;
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
        TimelineEventKind::Evicted => {
            fate.evicted_at = Some(entry.seconds);
            fate.evicted_for.clone_from(&entry.reason);
        }
        _ => {}
    }
}

fn blocker(row: &PendingRow) -> String {
    by_quota_or_nodes(row, &row.obstacle).unwrap_or_else(|| row.why().to_owned())
}

/// Returns the same for readers of the namespace of a workload. The message of a workload behind a head names that head.
fn blocker_in_namespace(row: &PendingRow) -> String {
    let is_behind = row.blockers.iter().any(BlockerRow::is_behind) || row.message.contains("behind ");
    let why = || if is_behind { row.reason.clone() } else { row.why().to_owned() };
    by_quota_or_nodes(row, &row.obstacle_in_namespace).unwrap_or_else(why)
}

/// Returns the obstacle, the amounts of a blocker, or its text; `None` if an object keeps the workload out or it was not evaluated.
fn by_quota_or_nodes(row: &PendingRow, obstacle: &str) -> Option<String> {
    if !obstacle.is_empty() && !row.blockers.iter().any(|blocker| blocker.kind == "neverFits") {
        return Some(obstacle.to_owned());
    }
    let own = || row.blockers.iter().filter(|blocker| !blocker.is_behind());
    let Some(blocker) = own().find(|blocker| !blocker.node.is_empty()) else {
        return own().find(|blocker| !blocker.text.is_empty()).map(|blocker| blocker.text.clone());
    };
    let node = blocker.node.replacen('/', " ", 1);
    Some(format!("{node}: {} of {} {}", blocker.available, blocker.amount(), blocker.resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use FateState::{Absent, Admitted, Finished, NeverFits, Pending, Stuck};

    fn fate(state: FateState, admitted_at: Option<f64>) -> Fate {
        Fate { state, admitted_at, ..Fate::default() }
    }

    #[test]
    fn effects_follow_from_starts_ends_and_evictions() {
        let evicted = |state| Fate { evicted_at: Some(1.0), ..fate(state, None) };
        let preempted = |state| Fate { preempted_at: Some(1.0), ..fate(state, Some(9.0)) };
        for (without, with, expected) in [
            (fate(Pending, None), fate(Admitted, Some(0.0)), Effect::Earlier),
            (fate(Stuck, None), fate(Finished, Some(60.0)), Effect::Earlier),
            (fate(Admitted, Some(60.0)), fate(Finished, Some(0.0)), Effect::Earlier),
            (fate(Finished, Some(0.0)), fate(Admitted, Some(60.0)), Effect::Later),
            (fate(Admitted, None), fate(Admitted, None), Effect::Other),
            (fate(Admitted, Some(5.0)), fate(Pending, None), Effect::NotAdmitted),
            (fate(Admitted, None), evicted(Pending), Effect::Evicted),
            (fate(Admitted, None), preempted(Admitted), Effect::Evicted),
            (preempted(Admitted), preempted(Admitted), Effect::Other),
            (fate(Pending, None), fate(NeverFits, None), Effect::GetsStuck),
            (fate(Stuck, None), fate(Pending, None), Effect::NoLongerStuck),
            (fate(Stuck, None), fate(NeverFits, None), Effect::Other),
            (fate(Absent, None), fate(Pending, None), Effect::Created),
            (fate(Admitted, None), fate(Absent, None), Effect::Deleted),
            (fate(Absent, None), fate(Absent, None), Effect::Other),
        ] {
            assert_eq!(Effect::of(&without, &with), expected, "{without:?} {with:?}");
        }
    }

    #[test]
    fn the_last_eviction_is_named() {
        let both = Fate {
            preempted_at: Some(5.0),
            preempted_by: "ns/other".to_owned(),
            evicted_at: Some(3.0),
            evicted_for: "NodeFailures".to_owned(),
            ..fate(Pending, None)
        };
        assert_eq!(both.text(), "preempted at 5s by ns/other");
        let later = Fate { evicted_at: Some(60.0), ..both.clone() };
        assert_eq!(later.text(), "evicted at 1m (NodeFailures)");
        let again = Fate { state: Admitted, admitted_at: Some(90.0), ..later };
        assert_eq!(again.text(), "evicted at 1m (NodeFailures), again at 1m 30s");
    }
}
