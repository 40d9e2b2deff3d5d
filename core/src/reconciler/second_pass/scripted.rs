//! Second passes as the script of a test wants them: halted at a failpoint, or without a guard.
//!
//! They decorate what `passes` does: which passes are due, whether a Workload is eligible, and the finished write. Invariant: without
//! a script no pass halts and all guards are enabled.

use super::eligibility::eligible_second_pass;
use super::eligibility::to_second_pass_request;
use super::passes::SecondPasses;
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::backoff;
use crate::reconciler::ReconcileKey;
use crate::reconciler::failpoints::{Failpoint, SecondPassGuard};
use crate::reconciler::writes::request::WriteRequest;
use crate::scheduler::SecondPassRequest;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::collections::BTreeSet;

/// Interval at which a pass that halts is polled.
const POLL_INTERVAL: jiff::SignedDuration = jiff::SignedDuration::from_millis(20);

/// Passes that a script changes.
#[derive(Clone, Debug, Default)]
pub(super) struct ScriptedPasses {
    /// Requests that halt before the scheduler gets them.
    halted: BTreeMap<ObjectKey, SecondPassRequest>,
    pub(super) stale_objects: super::unguarded::StaleObjects,
}

impl SecondPasses<'_> {
    /// Advances the pass of a Workload whose guards are all disabled, and drops the state of a Workload that no longer holds
    /// quota.
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
