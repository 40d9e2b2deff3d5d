//! The step of one object: the next write that it needs, if there is one.

use super::kinds::rules;
use super::messages::Effect;
use super::nodes::health::HostHealth;
use super::nodes::ungating::PodUngating;
use super::workload::step::{LifecycleSteps, priority_write};
use super::writes::request::WriteRequest;
use super::{ReconcileKey, Reconciler};
use crate::api::ObjectKey;
use crate::cache::Kind;
use crate::frameworks::Role;
use jiff::Timestamp;

impl Reconciler {
    pub(super) fn step_object(&mut self, item: &ReconcileKey, now: Timestamp) {
        match item {
            ReconcileKey::Object(kind, key) => {
                if let Some(steps) = rules(kind).steps() {
                    steps.after_cycles(self, key, now);
                }
            }
            ReconcileKey::Unit(unit) => {
                // The members of other units are written one by one, and a write of one member does not wait for a write of
                // another.
                if unit.kind.role != Role::Suspended || self.may_step(item, now) {
                    self.step_unit(unit, now);
                }
            }
            ReconcileKey::Pods(workload) => self.pod_ungating().step(workload, now),
        }
    }

    /// Returns whether the object of a step may be written now. If not, it gets another step after that.
    pub(super) fn may_step(&mut self, item: &ReconcileKey, now: Timestamp) -> bool {
        let (kind, key) = item.written_object();
        let free = self.writes.may_write(kind, &key, now);
        if !free {
            self.writes.retry_after_backoff((kind, &key), item.clone(), &mut self.work_queue, now);
        }
        free
    }

    const fn pod_ungating(&mut self) -> PodUngating<'_> {
        PodUngating {
            hosts: HostHealth { cache: &self.cache, gates: self.settings.gates.node_failures },
            warnings: &mut self.warnings,
            writes: &mut self.writes,
            work_queue: &mut self.work_queue,
        }
    }

    pub(super) fn start(&mut self, request: Option<WriteRequest>, now: Timestamp) {
        if let Some(request) = request {
            self.writes.start(request, now);
        }
    }

    /// Takes the next steps of Workloads while there are slots for their writes. One pending reason may be in flight in
    /// addition: however much there is to write, each Workload gets its reason eventually.
    pub(super) fn dequeue_writes(&mut self, now: Timestamp) {
        while self.writes.available_slots(&self.settings.writes) > 0 {
            let Some(key) = self.workload_write_queue.pop() else { return };
            self.step_dequeued(&key, now);
        }
        while self.writes.explanation_count() == 0 {
            let Some(key) = self.workload_write_queue.pop_explanation() else { return };
            self.step_dequeued(&key, now);
        }
    }

    fn step_dequeued(&mut self, key: &ObjectKey, now: Timestamp) {
        if self.writes.may_write(Kind::Workload, key, now) {
            self.step_workload(key, now);
        }
    }

    /// Sends the next write of a Workload, in order of precedence: its admission, its priority, the result of a second
    /// pass, a step of its life cycle, its ProvisioningRequests.
    pub(super) fn step_workload(&mut self, key: &ObjectKey, now: Timestamp) {
        // Nothing is decided on an earlier version. The next readable version gets a step.
        if self.cache.unreadable().problem(Kind::Workload, key).is_some() {
            return;
        }
        let done = self.step_assumed(key, now)
            || self.step_priority(key, now)
            || self.second_passes().write_result(key, now)
            || self.lifecycle_steps().step(key, now);
        if !done {
            self.step_provisioning(key, now);
        }
    }

    fn step_provisioning(&mut self, key: &ObjectKey, now: Timestamp) {
        let writes = self.provisioning().next_writes(key);
        if writes.needs_raw_workload {
            self.writes.emit(Effect::Refetch { kind: Kind::Workload, key: key.clone() });
        }
        for request in writes.requests {
            self.writes.write_for(ReconcileKey::workload(key.clone()), request, &mut self.work_queue, now);
        }
    }

    /// Writes an assumed admission, or drops it. Returns whether there was one.
    fn step_assumed(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        if !self.membership.assumed.contains(key) {
            return false;
        }
        if self.engine.preemption_of(key).is_some() {
            // Preempted before its admission was written: both are dropped, and neither is written.
            self.membership.assumed.release(key, &self.cache, &mut self.engine);
            self.mark_written(Kind::Workload, key);
        } else {
            self.send_admission(key, now);
        }
        true
    }

    /// Writes a decision to admit. It stays assumed until the result of the write is known.
    fn send_admission(&mut self, key: &ObjectKey, now: Timestamp) {
        let assumed = self.membership.assumed.get(key).zip(self.cache.workload(key));
        let request = assumed
            .map(|(assumed, record)| self.workload_facts().admission_write(record, &assumed.assignment, now));
        self.start(request, now);
    }

    /// Writes the priority of a Workload if it differs from the value of its class. Returns whether a write was sent.
    fn step_priority(&mut self, key: &ObjectKey, now: Timestamp) -> bool {
        let request = priority_write(key, &self.cache);
        let differs = request.is_some();
        self.start(request, now);
        differs
    }

    const fn lifecycle_steps(&mut self) -> LifecycleSteps<'_> {
        LifecycleSteps {
            cache: &self.cache,
            settings: &self.settings,
            engine: &self.engine,
            writes: &mut self.writes,
            work_queue: &mut self.work_queue,
            rate_limiter: &mut self.status_rate_limiter,
        }
    }
}
