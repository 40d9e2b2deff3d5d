//! The matrix of races of second passes: kind of pass, step of the pass, and what ends the workload. `second_pass` runs it.

/// The reason for a second pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassKind {
    /// Topology assignment that was delayed until an admission check is Ready.
    DelayedAssignment,
    /// Replacement of a failed node.
    NodeReplacement,
}

/// What happens to the workload while its second pass is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interference {
    Finished,
    Preempted,
    Deleted,
    Recreated,
    Deactivated,
    Unreserved,
    Retried,
    Drained,
    /// No interference.
    Undisturbed,
}

/// The step of the pass at which the interference happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassStep {
    Before,
    Armed,
    Due,
    ObjectRead,
    Decided,
    WriteInFlight,
}

pub(crate) const PASS_KINDS: [(&str, PassKind); 2] =
    [("assignment", PassKind::DelayedAssignment), ("replacement", PassKind::NodeReplacement)];
pub(crate) const INTERFERENCES: [(&str, Interference); 8] = [
    ("finished", Interference::Finished),
    ("preempted", Interference::Preempted),
    ("deleted", Interference::Deleted),
    ("recreated", Interference::Recreated),
    ("deactivated", Interference::Deactivated),
    ("unreserved", Interference::Unreserved),
    ("retried", Interference::Retried),
    ("drained", Interference::Drained),
];
pub(crate) const PASS_STEPS: [(&str, PassStep); 6] = [
    ("before", PassStep::Before),
    ("armed", PassStep::Armed),
    ("due", PassStep::Due),
    ("object-read", PassStep::ObjectRead),
    ("decided", PassStep::Decided),
    ("flight", PassStep::WriteInFlight),
];

/// Returns one cell for each interference. Together they have each step and each kind of pass.
pub(crate) fn sample() -> Vec<(Interference, PassStep, PassKind)> {
    let steps = PASS_STEPS.iter().cycle();
    let kinds = PASS_KINDS.iter().cycle();
    let cells = INTERFERENCES.iter().zip(steps).zip(kinds);
    cells.map(|((interference, step), kind)| (interference.1, step.1, kind.1)).collect()
}
