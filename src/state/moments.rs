//! Moments of a second pass at which a test build (feature `moments`) halts it, and whether its guards stand: all of them,
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
#[cfg(feature = "moments")]
pub trait FailpointScript: Send + Sync + std::fmt::Debug {
    /// Whether the pass of a Workload halts at a moment.
    fn halts(&self, workload: &ObjectKey, moment: Failpoint) -> bool;
    /// Whether the guards of a Workload are taken away.
    fn is_unguarded(&self, workload: &ObjectKey) -> bool;
    /// Whether one guard of a Workload is taken away.
    fn is_guard_disabled(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool;
}

/// Where passes halt: nowhere.
#[cfg(not(feature = "moments"))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Moments(());

/// Where passes halt: as a script says.
#[cfg(feature = "moments")]
#[derive(Clone, Debug, Default)]
pub struct Moments(pub Option<std::sync::Arc<dyn FailpointScript>>);

#[cfg(not(feature = "moments"))]
#[expect(clippy::unused_self, reason = "a test build looks")]
impl Moments {
    pub(super) const fn halts(self, _: &ObjectKey, _: Failpoint) -> bool {
        false
    }

    pub(super) const fn is_unguarded(self, _: &ObjectKey) -> bool {
        false
    }

    pub(super) const fn lacks(self, _: &ObjectKey, _: SecondPassGuard) -> bool {
        false
    }
}

#[cfg(feature = "moments")]
impl Moments {
    pub(super) fn halts(&self, workload: &ObjectKey, moment: Failpoint) -> bool {
        self.0.as_ref().is_some_and(|script| script.halts(workload, moment))
    }

    pub(super) fn is_unguarded(&self, workload: &ObjectKey) -> bool {
        self.0.as_ref().is_some_and(|script| script.is_unguarded(workload))
    }

    pub(super) fn lacks(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool {
        self.0.as_ref().is_some_and(|script| script.is_guard_disabled(workload, guard))
    }
}
