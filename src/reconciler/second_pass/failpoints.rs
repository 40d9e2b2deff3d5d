//! Points of a second pass at which a test build (feature `failpoints`) halts it, and whether its guards stand: all of them,
//! or one.
//!
//! In every other build nothing halts, all guards stand, and the compiler removes the questions.

use crate::api::ObjectKey;

/// How far a pass has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failpoint {
    /// It waits for its time.
    Armed,
    /// Its time has come.
    Due,
    /// Its object was read for the scheduler.
    ObjectRead,
    /// The scheduler has found places, which are not written.
    Decided,
}

impl Failpoint {
    /// Its name, as tests say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Armed => "armed",
            Self::Due => "due",
            Self::ObjectRead => "taken",
            Self::Decided => "decided",
        }
    }
}

/// What keeps a pass from one that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondPassGuard {
    /// The object is asked when the time of the pass has come.
    Dequeue,
    /// It is asked again before the write.
    Recheck,
    /// The write carries the version that it was decided on.
    Version,
    /// The end of a workload overtakes a write that is under way.
    SupersedeWrite,
}

impl SecondPassGuard {
    /// Its name, as tests say it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dequeue => "dequeue",
            Self::Recheck => "recheck",
            Self::Version => "version",
            Self::SupersedeWrite => "overtaking",
        }
    }
}

/// What tests ask for.
#[cfg(feature = "failpoints")]
pub trait FailpointScript: Send + Sync + std::fmt::Debug {
    /// Whether the pass of a Workload halts at a failpoint.
    fn halts(&self, workload: &ObjectKey, at: Failpoint) -> bool;
    /// Whether the guards of a Workload are taken away.
    fn is_unguarded(&self, workload: &ObjectKey) -> bool;
    /// Whether one guard of a Workload is taken away.
    fn is_guard_disabled(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool;
}

/// Where passes halt: nowhere.
#[cfg(not(feature = "failpoints"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Failpoints(());

/// Where passes halt: as a script says.
#[cfg(feature = "failpoints")]
#[derive(Clone, Debug, Default)]
pub struct Failpoints(pub Option<std::sync::Arc<dyn FailpointScript>>);

#[cfg(not(feature = "failpoints"))]
#[expect(clippy::unused_self, reason = "a test build looks")]
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
