//! Applies the membership of a Workload, computed from its object: charged, queued, or neither.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Kind;
use crate::lifecycle::workload::{self, QueueMembership};
use crate::lifecycle::{conditions, reservation};
use crate::reconciler::Reconciler;
use crate::reconciler::queues::fair_sharing::EntryPenalty;
use crate::reconciler::scheduler_input::SchedulerInput;
use crate::reconciler::writes::assumed::AssumedAdmission;
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
        if self.cache.vanished(key).is_some() {
            if let Some(charge) = self.workload_facts().charge_of_vanished(key, now) {
                self.membership.assumed.remove(key);
                self.engine.charge(key, charge);
                self.engine.drop_penalty(key);
                self.queues.waiting_heads.forget(key);
                return QueueMembership::NotQueued;
            }
            self.queue_updates().mark_queues_of(key);
            self.cache.forget_vanished(key);
        }
        // Nothing is decided about an undecodable Workload: it keeps its quota.
        let unreadable = self.cache.unreadable().problem(Kind::Workload, key).is_some();
        let record = self.cache.workload(key);
        let Some(record) = record.filter(|record| !unreadable || reservation::holds_quota(&record.status))
        else {
            self.membership.assumed.remove(key);
            self.engine.release(key);
            self.engine.remove_pending(key);
            self.engine.drop_penalty(key);
            self.queues.waiting_heads.forget(key);
            return QueueMembership::NotQueued;
        };
        let input = self.scheduler_input();
        let replaced = input.is_charged_to_replacing(record, &self.membership.assumed);
        if let Some(charge) = input.charge_from_admission(record) {
            if replaced {
                self.engine.release(key);
                return QueueMembership::NotQueued;
            }
            let admitted = conditions::is_true(&record.status, ConditionType::Admitted);
            self.membership.assumed.remove(key);
            self.queues.waiting_heads.land(key, now);
            let input = SchedulerInput { cache: &self.cache, settings: &self.settings };
            let charge = self.second_passes.with_pending_result(record, charge, input);
            self.engine.charge(key, charge);
            if self.leading {
                self.second_passes.plan(record, &mut self.work_queue, now);
            }
            let penalty = if admitted { EntryPenalty::Commit } else { EntryPenalty::Keep };
            self.queue_updates().sync_entry_penalty(key, penalty, now);
            return QueueMembership::NotQueued;
        }
        self.second_passes.forget(key, &record.meta.uid);
        let facts = self.workload_facts().of_membership(record, now);
        let input = self.workload_facts().input(record);
        let membership = workload::queue_membership(&input, &facts, &self.settings.lifecycle, now);
        let pending = if membership == QueueMembership::Queued {
            self.scheduler_input().to_pending_workload(record)
        } else {
            None
        };
        let has_outdated_reclaimable = facts.owner.has_outdated_reclaimable(&record.status);
        let assumed = self.membership.assumed.get(key);
        // The spec may have changed after the decision: it is made again for the present requests.
        let is_of_now = |assumed: &AssumedAdmission| {
            assumed.uid == record.meta.uid && assumed.generation == record.meta.generation
        };
        if pending.is_some() && assumed.is_some_and(is_of_now) {
            return QueueMembership::NotQueued;
        }
        self.membership.assumed.remove(key);
        self.engine.release(key);
        let queued = membership != QueueMembership::NotQueued;
        let penalty = if queued { EntryPenalty::Keep } else { EntryPenalty::Drop };
        self.queue_updates().sync_entry_penalty(key, penalty, now);
        // A Workload whose write failed is not nominated before its backoff ends: its admission could not be written
        // until then, and would hold quota without effect.
        let backs_off = self.writes.backoff_until(Kind::Workload, key).is_some_and(|until| until > now);
        match pending {
            Some(workload) if !backs_off && !has_outdated_reclaimable => {
                self.queues.waiting_heads.requeue(key);
                self.engine.enqueue(workload);
            }
            pending => {
                let record = self.cache.workload(key).filter(|_| queued);
                match record.and_then(|record| self.scheduler_input().to_waiting_workload(record)) {
                    Some(waiting) => self.engine.wait(waiting),
                    None => self.engine.remove_pending(key),
                }
                if pending.is_none() {
                    self.queues.waiting_heads.forget(key);
                }
            }
        }
        membership
    }
}
