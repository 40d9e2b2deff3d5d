//! Applies the membership of a Workload, computed from its object: charged, queued, or neither.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::cache::{Cache, Kind};
use crate::lifecycle::workload::{self, QueueMembership};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::queues::fair_sharing::EntryPenalty;
use crate::reconciler::queues::{QueueState, QueueUpdates};
use crate::reconciler::scheduler_input::SchedulerInput;
use crate::reconciler::second_pass::queue::SecondPassQueue;
use crate::reconciler::work_queue::WorkQueue;
use crate::reconciler::workload::WorkloadFacts;
use crate::reconciler::writes::assumed::{AssumedAdmission, AssumedAdmissions};
use crate::reconciler::writes::in_flight::Writes;
use crate::reconciler::{CoreSettings, Reconciler};
use crate::scheduler::{Charge, Engine};
use jiff::Timestamp;

impl Reconciler {
    /// Charges, queues or removes a Workload, and releases its previous charge. Returns its queue membership.
    pub(crate) fn sync_queue_membership(&mut self, key: &ObjectKey, now: Timestamp) -> QueueMembership {
        let membership = self.apply_queue_membership(key, now);
        if self.settings.engine.block_admission {
            let record = self.cache.workload(key).map(|record| &**record);
            self.membership.update_pods_ready_gate(key, record);
        }
        self.second_passes().follow_script(key, now);
        membership
    }

    fn apply_queue_membership(&mut self, key: &ObjectKey, now: Timestamp) -> QueueMembership {
        let of_vanished = self.workload_facts().charge_of_vanished(key, now);
        if of_vanished.is_none() && self.cache.vanished(key).is_some() {
            self.queue_updates().mark_queues_of(key);
            self.cache.forget_vanished(key);
        }
        let mut update = MembershipUpdate {
            key,
            now,
            leading: self.leading,
            cache: &self.cache,
            settings: &self.settings,
            engine: &mut self.engine,
            queues: &mut self.queues,
            assumed: &mut self.membership.assumed,
            second_passes: &mut self.second_passes,
            writes: &self.writes,
            work_queue: &mut self.work_queue,
        };
        match of_vanished {
            Some(charge) => update.charge_vanished(charge),
            None => update.apply(),
        }
    }
}

/// A Workload whose membership is computed, and what its membership changes.
struct MembershipUpdate<'a> {
    key: &'a ObjectKey,
    now: Timestamp,
    leading: bool,
    cache: &'a Cache,
    settings: &'a CoreSettings,
    engine: &'a mut Engine,
    queues: &'a mut QueueState,
    assumed: &'a mut AssumedAdmissions,
    second_passes: &'a mut SecondPassQueue,
    writes: &'a Writes,
    work_queue: &'a mut WorkQueue,
}

impl<'a> MembershipUpdate<'a> {
    const fn scheduler_input(&self) -> SchedulerInput<'a> {
        SchedulerInput { cache: self.cache, settings: self.settings }
    }

    const fn facts(&self) -> WorkloadFacts<'_> {
        WorkloadFacts { cache: self.cache, settings: self.settings, engine: self.engine, writes: self.writes }
    }

    fn sync_entry_penalty(&mut self, penalty: EntryPenalty) {
        let mut updates = QueueUpdates {
            cache: self.cache,
            settings: self.settings,
            engine: self.engine,
            queues: self.queues,
            work_queue: self.work_queue,
        };
        updates.sync_entry_penalty(self.key, penalty, self.now);
    }

    fn apply(&mut self) -> QueueMembership {
        let cache = self.cache;
        // Nothing is decided about an undecodable Workload: it keeps its quota.
        let unreadable = cache.unreadable().problem(Kind::Workload, self.key).is_some();
        let record = cache.workload(self.key);
        let Some(record) = record.filter(|record| !unreadable || reservation::holds_quota(&record.status))
        else {
            return self.remove();
        };
        match self.scheduler_input().charge_from_admission(record) {
            Some(_) if self.scheduler_input().is_charged_to_replacing(record, self.assumed) => {
                self.engine.release(self.key);
                QueueMembership::NotQueued
            }
            Some(charge) => self.charge(record, charge),
            None => self.place_pending(record),
        }
    }

    /// Keeps the charge of a Workload that was deleted before its pods ended.
    fn charge_vanished(&mut self, charge: Charge) -> QueueMembership {
        self.assumed.remove(self.key);
        self.engine.charge(self.key, charge);
        self.engine.drop_penalty(self.key);
        self.queues.waiting_heads.forget(self.key);
        QueueMembership::NotQueued
    }

    /// Removes a Workload that does not exist, or cannot be read and holds no quota.
    fn remove(&mut self) -> QueueMembership {
        self.assumed.remove(self.key);
        self.engine.release(self.key);
        self.engine.remove_pending(self.key);
        self.engine.drop_penalty(self.key);
        self.queues.waiting_heads.forget(self.key);
        QueueMembership::NotQueued
    }

    /// Charges what the stored admission says, with the result of a second pass that is not written yet.
    fn charge(&mut self, record: &WorkloadRecord, charge: Charge) -> QueueMembership {
        let (key, now) = (self.key, self.now);
        self.assumed.remove(key);
        self.queues.waiting_heads.land(key, now);
        let input = self.scheduler_input();
        let charge = self.second_passes.with_pending_result(record, charge, input);
        self.engine.charge(key, charge);
        if self.leading {
            self.second_passes.plan(record, self.work_queue, now);
        }
        let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
        self.sync_entry_penalty(if admitted { EntryPenalty::Commit } else { EntryPenalty::Keep });
        QueueMembership::NotQueued
    }

    /// Queues a Workload without quota, or lists it as waiting. Keeps the charge of an admission that was decided for the present spec
    /// and is not written yet.
    fn place_pending(&mut self, record: &WorkloadRecord) -> QueueMembership {
        let key = self.key;
        self.second_passes.forget(key, &record.meta.uid);
        let facts = self.facts().of_membership(record, self.now);
        let input = self.facts().input(record);
        let membership = workload::queue_membership(&input, &facts, &self.settings.lifecycle, self.now);
        let has_outdated_reclaimable = facts.owner.has_outdated_reclaimable(&record.status);
        let pending = if membership == QueueMembership::Queued {
            self.scheduler_input().to_pending_workload(record)
        } else {
            None
        };
        // The spec may have changed after the decision: it is made again for the present requests.
        let is_of_now = |assumed: &AssumedAdmission| {
            assumed.uid == record.meta.uid && assumed.generation == record.meta.generation
        };
        if pending.is_some() && self.assumed.get(key).is_some_and(is_of_now) {
            return QueueMembership::NotQueued;
        }
        self.assumed.remove(key);
        self.engine.release(key);
        let queued = membership != QueueMembership::NotQueued;
        self.sync_entry_penalty(if queued { EntryPenalty::Keep } else { EntryPenalty::Drop });
        match pending {
            Some(workload) if !self.backs_off() && !has_outdated_reclaimable => {
                self.queues.waiting_heads.requeue(key);
                self.engine.enqueue(workload);
            }
            pending => {
                self.wait(record, queued);
                if pending.is_none() {
                    self.queues.waiting_heads.forget(key);
                }
            }
        }
        membership
    }

    /// Returns whether a write of the Workload failed recently. It is not nominated before its backoff ends: its admission could not be
    /// written until then, and would hold quota without effect.
    fn backs_off(&self) -> bool {
        self.writes.backoff_until(Kind::Workload, self.key).is_some_and(|until| until > self.now)
    }

    /// Lists a Workload as pending that is not nominated, or removes it if no queue takes it.
    fn wait(&mut self, record: &WorkloadRecord, queued: bool) {
        let waiting = if queued { self.scheduler_input().to_waiting_workload(record) } else { None };
        match waiting {
            Some(waiting) => self.engine.wait(waiting),
            None => self.engine.remove_pending(self.key),
        }
    }
}
