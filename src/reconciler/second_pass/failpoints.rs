//! Failpoints at which a test halts a second pass, and guards of a pass that it disables, all of them or a single one.
//!
//! They decorate what `passes` does: which passes are due, whether a Workload is eligible, and the finished write. Invariant: without
//! debug assertions, which no released build has, no pass halts and all guards are enabled, whatever the script says; the compiler
//! leaves the rest out.

use super::eligibility::eligible_second_pass;
use super::eligibility::to_second_pass_request;
use super::passes::SecondPasses;
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::backoff;
use crate::reconciler::ReconcileKey;
use crate::reconciler::writes::request::WriteRequest;
use crate::scheduler::SecondPassRequest;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// Interval at which a pass that halts is polled.
const POLL_INTERVAL: jiff::SignedDuration = jiff::SignedDuration::from_millis(20);

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
    fn script(&self) -> Option<&dyn FailpointScript> {
        self.0.as_deref().filter(|_| cfg!(debug_assertions))
    }

    pub(super) fn halts(&self, workload: &ObjectKey, at: Failpoint) -> bool {
        self.script().is_some_and(|script| script.halts(workload, at))
    }

    pub(super) fn is_unguarded(&self, workload: &ObjectKey) -> bool {
        self.script().is_some_and(|script| script.is_unguarded(workload))
    }

    fn lacks(&self, workload: &ObjectKey, guard: SecondPassGuard) -> bool {
        self.script().is_some_and(|script| script.is_guard_disabled(workload, guard))
    }
}

/// Passes that a script changes.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedPasses {
    /// Requests that halt before the scheduler gets them.
    halted: BTreeMap<ObjectKey, SecondPassRequest>,
    pub(super) stale_objects: super::unguarded::StaleObjects,
}

impl SecondPasses<'_> {
    /// Advances the pass of a Workload whose guards are all disabled, and drops what is kept of a Workload that no longer
    /// holds quota.
    pub(crate) fn follow_script(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.settings.failpoints.script().is_none() {
            return;
        }
        if !self.cache.holds_quota(key) {
            self.queue.scripted.halted.remove(key);
        }
        if self.settings.failpoints.is_unguarded(key) {
            self.step_unguarded(key, now);
        }
    }

    /// Returns the due Workloads whose pass does not halt. The others stay due.
    pub(super) fn released(&mut self, ready: BTreeSet<ObjectKey>, now: Timestamp) -> BTreeSet<ObjectKey> {
        if self.settings.failpoints.script().is_none() {
            return ready;
        }
        ready.into_iter().filter(|key| !self.is_held_back(key, now)).collect()
    }

    fn is_held_back(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.cache.workload(key) else { return false };
        if self.settings.failpoints.is_unguarded(key) {
            return true;
        }
        if [Failpoint::Armed, Failpoint::Due].iter().any(|at| self.halts(key, *at, now)) {
            return true;
        }
        let halted = self.queue.scripted.halted.remove(key);
        let Some(request) = halted.or_else(|| self.eligible(record, SecondPassGuard::Dequeue, now)) else {
            return false;
        };
        self.queue.scripted.halted.insert(key.clone(), request);
        self.halts(key, Failpoint::ObjectRead, now)
    }

    /// Returns the request for a pass if the Workload is eligible for one, or the guard is disabled. At the time when a
    /// pass is dequeued, that is the request that was read when the pass halted.
    pub(super) fn eligible(
        &mut self,
        record: &WorkloadRecord,
        guard: SecondPassGuard,
        now: Timestamp,
    ) -> Option<SecondPassRequest> {
        let key = &record.meta.key;
        let halted = self.queue.scripted.halted.remove(key).filter(|_| guard == SecondPassGuard::Dequeue);
        if halted.is_some() {
            return halted;
        }
        if self.settings.failpoints.lacks(key, guard) {
            return to_second_pass_request(self.scheduler_input(), record);
        }
        eligible_second_pass(self.facts(), record, now)
    }

    /// Starts the write of a result, unless the pass halts. Without its guard, the write carries no resourceVersion.
    pub(super) fn send_result(&mut self, mut request: WriteRequest, now: Timestamp) {
        if self.halts(&request.key, Failpoint::Decided, now) {
            return;
        }
        if self.settings.failpoints.lacks(&request.key, SecondPassGuard::Version) {
            drop_version(&mut request.body);
        }
        self.writes.start(request, now);
    }

    /// Returns whether a write that ends a Workload may supersede that of a pass.
    pub(super) fn may_supersede(&self, workload: &ObjectKey) -> bool {
        !self.settings.failpoints.lacks(workload, SecondPassGuard::SupersedeWrite)
    }

    /// Returns whether a pass halts at a failpoint. If so, the Workload is polled.
    fn halts(&mut self, key: &ObjectKey, at: Failpoint, now: Timestamp) -> bool {
        let halts = self.settings.failpoints.halts(key, at);
        if halts {
            self.poll(key, now);
        }
        halts
    }

    pub(super) fn poll(&mut self, key: &ObjectKey, now: Timestamp) {
        self.work_queue.add_at(ReconcileKey::workload(key.clone()), backoff::after(now, POLL_INTERVAL));
    }
}

/// Drops the resourceVersion from the body of a write.
pub(super) fn drop_version(body: &mut serde_json::Value) {
    if let Some(metadata) = body.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
        metadata.shift_remove("resourceVersion");
    }
}
