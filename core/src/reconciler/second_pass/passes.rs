//! Second passes from their request to the write of their result.
//!
//! Invariants: eligibility is checked on the newest object when the pass is due, and a second time right before the write,
//! which carries the resourceVersion of that object (I12, I13).

use super::eligibility::is_ending;
use super::queue::{SecondPassQueue, SecondPassResult};
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Cache;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::workload::Transition;
use crate::lifecycle::{conditions, eviction, pods_ready};
use crate::reconciler::CoreSettings;
use crate::reconciler::events::workload_warning;
use crate::reconciler::failpoints::SecondPassGuard;
use crate::reconciler::scheduler_input::SchedulerInput;
use crate::reconciler::work_queue::{ReconcileKey, WorkQueue};
use crate::reconciler::workload::WorkloadFacts;
use crate::reconciler::workload::decision_status::{node_failure_status, second_pass_status};
use crate::reconciler::writes::in_flight::Writes;
use crate::reconciler::writes::request::{WritePurpose, WriteRequest};
use crate::scheduler::Engine;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is needed to run second passes.
pub(crate) struct SecondPasses<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
    pub(crate) engine: &'a mut Engine,
    pub(crate) queue: &'a mut SecondPassQueue,
    pub(crate) writes: &'a mut Writes,
    pub(crate) work_queue: &'a mut WorkQueue,
}

impl<'a> SecondPasses<'a> {
    pub(super) const fn facts(&self) -> WorkloadFacts<'_> {
        WorkloadFacts { cache: self.cache, settings: self.settings, engine: self.engine, writes: self.writes }
    }

    pub(super) const fn scheduler_input(&self) -> SchedulerInput<'a> {
        SchedulerInput { cache: self.cache, settings: self.settings }
    }

    /// Passes the due Workloads to the scheduler, as their objects are now. Returns the Workloads passed.
    pub(crate) fn dequeue(&mut self, now: Timestamp) -> BTreeSet<ObjectKey> {
        let mut requested = BTreeSet::new();
        let ready = self.queue.take_ready();
        for key in self.released(ready, now) {
            let Some(record) = self.cache.workload(&key) else { continue };
            let uid = &record.meta.uid;
            match self.eligible(record, SecondPassGuard::Dequeue, now) {
                Some(request) => {
                    self.queue.start(uid);
                    self.engine.request_second_pass(request);
                    requested.insert(key);
                }
                None => self.queue.cancel(uid),
            }
        }
        requested
    }

    /// Stores the result of a pass until its write has landed or the object has changed, and charges it.
    pub(crate) fn record_result(&mut self, key: &ObjectKey, uid: &Arc<str>, result: SecondPassResult) {
        let Some(record) = self.cache.workload(key) else { return };
        self.queue.record(record, uid, result);
        let input = self.scheduler_input();
        if let Some(charge) = input.charge_from_admission(record) {
            let charge = self.queue.with_pending_result(record, charge, input);
            self.engine.charge(key, charge);
        }
    }

    /// Schedules the next pass after one without a result, and emits the reason. The reservation stays.
    pub(crate) fn requeue(&mut self, key: &ObjectKey, reason: Option<&str>, now: Timestamp) {
        let Some(record) = self.cache.workload(key) else { return };
        if let Some(reason) = reason {
            self.writes.emit(workload_warning(record, "SecondPassFailed", reason.to_owned()));
        }
        let at = self.queue.requeue(&record.meta.uid, now);
        self.work_queue.add_at(ReconcileKey::workload(key.clone()), at);
    }

    /// Writes the pending result of a Workload, or drops it if it is outdated or the Workload is no longer eligible.
    /// Returns whether the result is the next write of the Workload.
    pub(crate) fn write_result(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.cache.workload(key).filter(|_| self.queue.pending(key).is_some()) else {
            return false;
        };
        let eligible = self.eligible(record, SecondPassGuard::Recheck, now).is_some();
        let current = self.queue.pending(key).filter(|pending| eligible && pending.is_current_for(record));
        let Some(pending) = current else {
            self.discard_result(key);
            return false;
        };
        let request = result_write(self.facts(), record, &pending.result, now);
        self.send_result(request, now);
        true
    }

    /// Drops the pending result of a Workload and restores the charge of its object.
    pub(crate) fn discard_result(&mut self, key: &ObjectKey) {
        if !self.queue.discard(key) {
            return;
        }
        let Some(record) = self.cache.workload(key) else { return };
        self.queue.cancel(&record.meta.uid);
        if let Some(charge) = self.scheduler_input().charge_from_admission(record) {
            self.engine.charge(key, charge);
        }
    }

    /// Lets a write that ends a Workload supersede the in-flight write of a pass. Both carry the same resourceVersion,
    /// so only one of them lands. Returns whether the write is superseded.
    pub(crate) fn supersede_write(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(record) = self.cache.workload(key) else { return false };
        let supersedable = self.writes.is_second_pass_in_flight(key) && self.may_supersede(key);
        if !supersedable || !is_ending(self.facts(), record, now) {
            return false;
        }
        self.writes.supersede(key);
        self.discard_result(key);
        true
    }
}

/// Returns the write of the result of a pass, with its effects.
fn result_write(
    facts: WorkloadFacts<'_>,
    record: &WorkloadRecord,
    result: &SecondPassResult,
    now: Timestamp,
) -> WriteRequest {
    let (status, transition) = match result {
        SecondPassResult::Assigned(assignment) => {
            let mut status = second_pass_status(record, assignment, now);
            let admitted = !conditions::is_true(&record.status, ConditionType::Admitted)
                && conditions::is_true(&status, ConditionType::Admitted);
            if admitted && facts.settings.lifecycle.pods_ready.is_some() {
                pods_ready::observe(&mut status, false, record.meta.generation, now);
            }
            (status, admitted.then_some(Transition::Admitted))
        }
        SecondPassResult::NoReplacement(reason) => {
            let cause = eviction::EvictionCause::new(eviction::NODE_FAILURES, &**reason);
            let first = eviction::eviction_count(&record.status, &cause) == 0;
            (node_failure_status(record, reason, now), Some(Transition::Evicted { cause, first }))
        }
    };
    let effects = transition.iter().flat_map(|change| facts.effects_of(record, change, now)).collect();
    facts.status_write(record, Box::new(status), WritePurpose::SecondPass).with_effects(effects)
}
