//! One round of the reconciler: membership first, then cycles, then the steps of objects, then statuses of queues.
//!
//! The order matters: no pending reason is written for a Workload that is admitted immediately.

use super::kinds::rules;
use super::messages::Effect;
use super::queues::status::StatusFlush;
use super::work_queue::Alarm;
use super::{ReconcileKey, Reconciler};
use jiff::Timestamp;

impl Reconciler {
    /// Decides on all objects that the deltas have changed.
    pub(crate) fn reconcile(&mut self, now: Timestamp) {
        if !self.is_synced() {
            // Webhooks are available once their own kinds are listed: a list that fails because of a missing permission
            // that only scheduling needs must not make them unavailable.
            self.update_snapshot(now);
            return;
        }
        for pod in self.cache.take_lost_pods(now) {
            self.engine.set_pod(&pod, None);
        }
        self.work_queue.set_alarm(Alarm::LostPod, self.cache.next_lost_pod_at());
        let mut items = self.work_queue.take_due(now);
        for item in &items {
            if let ReconcileKey::Object(kind, key) = item
                && let Some(steps) = rules(kind).steps()
            {
                steps.before_cycles(self, key, now);
            }
        }
        if !self.leading {
            self.update_snapshot(now);
            return;
        }
        let more = self.run_cycles(&mut items, now);
        if !more {
            self.queues.waiting_heads.end_outdated_decisions(&self.engine);
        }
        self.explain_pending(&mut items, now);
        for item in &items {
            self.step_object(item, now);
        }
        self.dequeue_writes(now);
        // While too many decisions wait for a write slot, the result of a write starts the next cycles.
        let cycle_due =
            (more && self.workload_write_queue.decision_budget(&self.settings.writes) > 0).then_some(now);
        self.work_queue.set_alarm(Alarm::Cycle, cycle_due);
        self.work_queue.defer_added(now);
        let mut flush = StatusFlush {
            cache: &self.cache,
            settings: &self.settings,
            engine: &self.engine,
            queues: &mut self.queues,
            writes: &mut self.writes,
            work_queue: &mut self.work_queue,
            rate_limiter: &mut self.status_rate_limiter,
        };
        flush.run(now);
        self.check_heads(now);
        self.update_snapshot(now);
    }

    /// Checks heads that fit and are not admitted, and reports the ones that wait for long.
    fn check_heads(&mut self, now: Timestamp) {
        let interval = self.settings.snapshot.head_check;
        let check = self.queues.waiting_heads.check(&self.cache, &mut self.engine, interval, now);
        let reports = check.reported.into_iter().map(|(cluster_queue, head)| {
            let cluster_queue = cluster_queue.to_string();
            Effect::LogWaitingHead { cluster_queue, head }
        });
        self.writes.emit_all(reports);
        self.work_queue.set_alarm(Alarm::HeadCheck, check.next);
    }
}
