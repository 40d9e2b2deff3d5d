//! The rules of the contract, and the report that one is broken.

use std::fmt;

/// A rule of `docs/third-party-workloads.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The job has a Workload, which describes it.
    Workload,
    /// No pod starts without an admission.
    Waits,
    /// All admitted pods start.
    Starts,
    /// They start where the flavor says.
    Assignment,
    /// An eviction ends the pods.
    Stops,
    /// The quota is given back after that.
    Releases,
    /// The end of the job is reported.
    Finishes,
    /// A stopped job starts again.
    Restarts,
    /// Nothing is left of a job that is deleted while it runs.
    Deletes,
}

impl Rule {
    /// Returns the name of the rule, as the contract has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Workload => "workload",
            Self::Waits => "waits",
            Self::Starts => "starts",
            Self::Assignment => "assignment",
            Self::Stops => "stops",
            Self::Releases => "releases",
            Self::Finishes => "finishes",
            Self::Restarts => "restarts",
            Self::Deletes => "deletes",
        }
    }

    /// Returns what the rule demands.
    pub const fn demand(self) -> &'static str {
        match self {
            Self::Workload => "each job has one Workload, which it controls, in its queue, with its pods",
            Self::Waits => "no pod starts while the Workload is not admitted",
            Self::Starts => "as many pods start as were admitted",
            Self::Assignment => "pods have the node labels and tolerations of their flavor",
            Self::Stops => "an eviction ends all pods, and none starts while the Workload is inactive",
            Self::Releases => "the reservation is cleared when no pod runs any more, and not before",
            Self::Finishes => "Finished is set when the pods have ended",
            Self::Restarts => "the job starts again when it is admitted again",
            Self::Deletes => "a job that is deleted while it runs leaves no pod, Workload or quota",
        }
    }
}

/// A broken rule, with what was seen.
#[derive(Debug)]
pub struct Breach {
    /// The rule.
    pub rule: Rule,
    /// What the controller did or did not do.
    pub seen: String,
}

impl Breach {
    /// Returns the breach as an error.
    pub(super) fn error(rule: Rule, seen: impl Into<String>) -> anyhow::Error {
        Self { rule, seen: seen.into() }.into()
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the controller breaks rule `{}` ({}): {}", self.rule.name(), self.rule.demand(), self.seen)
    }
}

impl std::error::Error for Breach {}
