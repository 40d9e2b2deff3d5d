//! The workloads about which alone a simulation reports.

use super::edit::{MadeLater, Target, has_no_workload};
use super::objects::key_of;
use super::report::Report;
use super::simulation::Simulation;
use super::tables::format_duration;
use super::timeline::WorkloadRef;
use crate::cache::Kind;
use std::fmt::Write;

/// A workload, or a job whose workloads are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched(Target);

impl Watched {
    /// Parses `KIND/NAME` of a job or Workload.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        Target::of_workload(text).map(Self)
    }
}

impl Simulation {
    /// Checks that the object exists, or may exist at the end of the simulation.
    pub(super) fn check_watched(&self, watched: &Watched, later: MadeLater<'_>) -> Result<(), String> {
        self.check_target(&watched.0, later)
    }

    /// Returns the keys of the Workloads that are meant, in the order of their names.
    ///
    /// # Errors
    /// The object does not exist at the end of the simulation, or has no Workload.
    pub fn watched(&self, watched: &Watched, namespace: &str) -> Result<Vec<String>, String> {
        let (kind, key) = (watched.0.kind(), self.find(&watched.0, namespace)?);
        if kind == Kind::Workload {
            return Ok(vec![key.to_string()]);
        }
        let owned = self.workloads_owned_by(kind, &key);
        let mut keys: Vec<String> = owned.map(|workload| key_of(workload).to_string()).collect();
        keys.sort();
        if keys.is_empty() { Err(has_no_workload(kind, &key)) } else { Ok(keys) }
    }
}

impl Report {
    /// Returns what the report says about these Workloads.
    #[must_use]
    pub fn only(&self, watched: &[String]) -> Self {
        let is_watched = |workload: &WorkloadRef| watched.contains(&workload.workload);
        let mut report = self.clone();
        report.timeline.retain(|entry| entry.workload.workload.is_empty() || is_watched(&entry.workload));
        report.admitted.retain(|row| is_watched(&row.workload));
        report.preempted.retain(|row| is_watched(&row.workload));
        report.pending.retain(|row| is_watched(&row.workload));
        report.finished.retain(is_watched);
        report
    }

    /// Formats a report of few workloads: a line for each, then the timeline.
    pub fn lines_of_workloads(&self, history: usize) -> String {
        let mut text = String::new();
        let after = format_duration(self.end.seconds);
        let mut line = |workload: &WorkloadRef, state: String| {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{} {state}", workload.display_name());
        };
        for row in &self.pending {
            let state = match (row.never_fits, row.stuck) {
                (true, _) => "can never be admitted",
                (false, true) => "is stuck",
                (false, false) => "is still pending",
            };
            let why = if row.obstacle.is_empty() { &row.message } else { &row.obstacle };
            line(&row.workload, format!("{state} after {after}: {}: {why}", row.reason));
        }
        for row in &self.admitted {
            let end = row.ends_at.map_or_else(String::new, |at| format!(", ends at {}", format_duration(at)));
            line(
                &row.workload,
                format!("is {} after {after} in ClusterQueue {}{end}", row.state, row.grant.cluster_queue),
            );
        }
        for workload in &self.finished {
            line(workload, format!("has finished after {after}"));
        }
        self.print_history(history, &mut text);
        text
    }
}
