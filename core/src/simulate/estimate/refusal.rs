//! Why there is no estimate.

use super::run_times::ENOUGH;
use super::{MAX_AHEAD, MAX_WORKLOADS, TIME_LIMIT};
use crate::api::ObjectKey;
use std::fmt;

/// Why there is no estimate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It can never be admitted.
    NeverFits,
    /// It is not pending, but this.
    NotPending(String),
    /// It waits for a change, not for others to end: its obstacle, or the reason.
    NeedsChange(String),
    /// Too many workloads are before it in its queue.
    TooManyAhead(u64),
    /// Its cohort tree has too many workloads.
    TooManyWorkloads(usize),
    /// There is no such Workload, or it is being deleted.
    Deleted,
    /// It is deactivated.
    Deactivated,
    /// There is no such LocalQueue or ClusterQueue.
    NoQueue,
    /// Workloads of its cohort tree are in namespaces that the reader may not see.
    Hidden,
    /// The user may not list these kinds, for this reason.
    Forbidden(Vec<String>, String),
    /// Run times of running workloads are unknown: how many, of how many.
    UnknownRunning(usize, usize),
    /// Running workloads have run longer than all their earlier runs.
    Outlived {
        /// How many of the running ones.
        count: usize,
        /// How many run.
        of: usize,
        /// Number of their earlier runs.
        runs: usize,
    },
    /// Run times of workloads that are admitted before it are unknown: which, of how many.
    UnknownAhead(Vec<ObjectKey>, usize),
    /// The simulation ends without admitting it.
    NotAdmitted,
    /// It gets quota in the simulation, but its admission checks are not answered there.
    ChecksUnanswered,
    /// The simulation takes too long.
    TooLong,
    /// The simulation cannot start, for this reason.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = |f: &mut fmt::Formatter<'_>, unknown: usize, all: usize, what: &str| {
            let verb = if unknown == 1 { "has" } else { "have" };
            let (unknown, all) = (grouped(unknown), grouped(all));
            write!(
                f,
                "{unknown} of {all} {what} {verb} neither a maximum or expected run time nor {ENOUGH} earlier runs of the same shape"
            )
        };
        match self {
            Self::NeverFits => f.write_str("it can never be admitted"),
            Self::NotPending(state) if state == "Finished" => f.write_str("it has finished"),
            Self::NotPending(state) => write!(f, "it is not pending ({state})"),
            Self::NeedsChange(cause) => write!(f, "it waits for a change, not for others to end: {cause}"),
            Self::TooManyAhead(count) => {
                write!(f, "{} workloads are ahead (limit {})", grouped(*count), grouped(MAX_AHEAD))
            }
            Self::TooManyWorkloads(count) => write!(
                f,
                "{} workloads are in its cohort (limit {})",
                grouped(*count),
                grouped(MAX_WORKLOADS)
            ),
            Self::Deleted => f.write_str("it has been deleted"),
            Self::Deactivated => f.write_str("it is deactivated: sluice resume workload lets it wait again"),
            Self::NoQueue => f.write_str("its ClusterQueue is not known"),
            Self::Hidden => f.write_str(
                "workloads of namespaces that you may not see are in its cohort, and may end or start at any time",
            ),
            Self::Forbidden(kinds, reason) => {
                write!(f, "cannot list in the whole cluster: {} ({reason})", kinds.join(", "))
            }
            Self::UnknownRunning(count, all) => unknown(f, *count, *all, "running workloads"),
            Self::Outlived { count, of, runs } => {
                let noun = if *of == 1 { "workload" } else { "workloads" };
                let verb = if *count == 1 { "has" } else { "have" };
                let (count, of, runs) = (grouped(*count), grouped(*of), grouped(*runs));
                write!(
                    f,
                    "no latest: {count} of {of} running {noun} {verb} run longer than all {runs} earlier runs"
                )
            }
            Self::UnknownAhead(count, all) => {
                unknown(f, count.len(), *all, "pending workloads that are admitted before it")
            }
            Self::NotAdmitted => {
                f.write_str("in the simulation it is not admitted while quotas and nodes stay")
            }
            Self::ChecksUnanswered => {
                f.write_str("in the simulation it gets quota, but nothing answers its admission checks")
            }
            Self::TooLong => write!(f, "the simulation takes longer than {} s", TIME_LIMIT.as_secs()),
            Self::Failed(reason) => write!(f, "the simulation failed: {reason}"),
        }
    }
}

/// Returns a number with a comma between thousands.
fn grouped(number: impl fmt::Display) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && index % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
