//! Failpoints at which a test build (feature `failpoints`) halts a second pass, and guards of a pass that it disables,
//! all of them or a single one.
//!
//! In every other build no pass halts, all guards are enabled, and the compiler removes the checks.

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
            Self::ObjectRead => "taken",
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
            Self::SupersedeWrite => "overtaking",
        }
    }
}

/// Controls failpoints and guards for tests.
#[cfg(feature = "failpoints")]
pub trait FailpointScript: Send + Sync + std::fmt::Debug {
    /// Returns whether the pass of a Workload halts at a failpoint.
    fn halts(&self, workload: &ObjectKey, at: Failpoint) -> bool;
    /// Returns whether all guards of a Workload are disabled.
    fn is_unguarded(&self, workload: &ObjectKey) -> bool;
    /// Returns whether one guard of a Workload is disabled.
    fn is_guard_disabled(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool;
}

/// Failpoints of a build without the feature: no pass halts, and all guards are enabled.
#[cfg(not(feature = "failpoints"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Failpoints(());

/// Failpoints controlled by a script. Without a script no pass halts, and all guards are enabled.
#[cfg(feature = "failpoints")]
#[derive(Clone, Debug, Default)]
pub struct Failpoints(pub Option<std::sync::Arc<dyn FailpointScript>>);

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unused_self, reason = "the test build reads the script")]
impl Failpoints {
    pub(crate) const fn halts(self, _: &ObjectKey, _: Failpoint) -> bool {
        false
    }

    pub(crate) const fn is_unguarded(self, _: &ObjectKey) -> bool {
        false
    }

    pub(crate) const fn lacks(self, _: &ObjectKey, _: SecondPassGuard) -> bool {
        false
    }
}

#[cfg(feature = "failpoints")]
impl Failpoints {
    pub(crate) fn halts(&self, workload: &ObjectKey, at: Failpoint) -> bool {
        self.0.as_ref().is_some_and(|script| script.halts(workload, at))
    }

    pub(crate) fn is_unguarded(&self, workload: &ObjectKey) -> bool {
        self.0.as_ref().is_some_and(|script| script.is_unguarded(workload))
    }

    pub(crate) fn lacks(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool {
        self.0.as_ref().is_some_and(|script| script.is_guard_disabled(workload, guard))
    }
}
