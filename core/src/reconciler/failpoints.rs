//! Failpoints at which a test halts a second pass, and guards of a pass that it disables, all of them or a single one: their
//! names, and the script of a test that chooses among them. `second_pass/scripted.rs` has what they change.
//!
//! Invariant: without debug assertions, which no released build has, there is no script, whatever the settings say; the compiler
//! leaves out what depends on one.

use crate::api::ObjectKey;

/// A stage of a second pass at which a test can halt it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// The pass is scheduled and not marked as due.
    Armed,
    /// The pass is due.
    Due,
    /// The object was read for the scheduler, which does not have the request yet.
    ObjectRead,
    /// The scheduler has returned a result, which is not written yet.
    Decided,
}

impl Failpoint {
    /// Returns the name that tests use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Armed => "armed",
            Self::Due => "due",
            Self::ObjectRead => "object-read",
            Self::Decided => "decided",
        }
    }
}

/// A safeguard that prevents a second pass from changing a Workload that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondPassGuard {
    /// Eligibility is checked on the newest object when the pass is due.
    Dequeue,
    /// Eligibility is checked a second time right before the write.
    Recheck,
    /// The write carries the resourceVersion that it was decided on.
    Version,
    /// A write that ends the Workload supersedes the in-flight write of a pass.
    SupersedeWrite,
}

impl SecondPassGuard {
    /// Returns the name that tests use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dequeue => "dequeue",
            Self::Recheck => "recheck",
            Self::Version => "version",
            Self::SupersedeWrite => "supersede-write",
        }
    }
}

/// Controls failpoints and guards for tests.
pub trait FailpointScript: Send + Sync + std::fmt::Debug {
    /// Returns whether the pass of a Workload halts at a failpoint.
    fn halts(&self, workload: &ObjectKey, at: Failpoint) -> bool;
    /// Returns whether all guards of a Workload are disabled.
    fn is_unguarded(&self, workload: &ObjectKey) -> bool;
    /// Returns whether one guard of a Workload is disabled.
    fn is_guard_disabled(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool;
}

/// Failpoints controlled by a script. Without a script no pass halts, and all guards are enabled.
#[derive(Clone, Debug, Default)]
pub struct Failpoints(pub Option<std::sync::Arc<dyn FailpointScript>>);

impl Failpoints {
    /// Returns the script; `None` without debug assertions.
    pub(super) fn script(&self) -> Option<&dyn FailpointScript> {
        self.0.as_deref().filter(|_| cfg!(debug_assertions))
    }

    /// Returns whether the pass of a Workload halts at a failpoint.
    pub(super) fn halts(&self, workload: &ObjectKey, at: Failpoint) -> bool {
        self.script().is_some_and(|script| script.halts(workload, at))
    }

    /// Returns whether all guards of a Workload are disabled.
    pub(super) fn is_unguarded(&self, workload: &ObjectKey) -> bool {
        self.script().is_some_and(|script| script.is_unguarded(workload))
    }

    /// Returns whether one guard of a Workload is disabled.
    pub(super) fn lacks(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool {
        self.script().is_some_and(|script| script.is_guard_disabled(workload, guard))
    }
}
