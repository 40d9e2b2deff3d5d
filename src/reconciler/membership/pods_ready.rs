//! Who is admitted and has pods that are not ready: admissions may wait for them.

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::lifecycle::{checks, conditions, reservation};
use crate::reconciler::Reconciler;
use crate::reconciler::workload::decision_status::to_admission;

impl Reconciler {
    /// Takes note of whether the pods of a Workload are waited for.
    pub(in crate::reconciler) fn update_pods_ready_gate(&mut self, key: &ObjectKey) {
        if !self.settings.engine.block_admission {
            return;
        }
        let awaited = self.workloads.get(key).is_some_and(|record| {
            let holds = |kind| conditions::is_true(&record.status, kind);
            reservation::holds_quota(&record.status)
                && holds(ConditionType::Admitted)
                && !holds(ConditionType::PodsReady)
        });
        if awaited {
            self.not_ready_workloads.insert(key.clone());
        } else {
            self.not_ready_workloads.remove(key);
        }
    }

    /// Says to the scheduler whether admissions wait for pods.
    pub(in crate::reconciler) fn update_admission_block(&mut self) {
        if self.settings.engine.block_admission {
            let awaited = !self.not_ready_workloads.is_empty() || self.has_assumed_admission();
            self.engine.block_admission(awaited);
        }
    }

    /// Whether somebody is to be admitted by a write that has not landed, and not only given quota.
    fn has_assumed_admission(&self) -> bool {
        self.assumed.values().any(|assumed| {
            let admission = to_admission(&assumed.assignment);
            let queue = self.cluster_queues.get(&assumed.assignment.cluster_queue);
            !checks::awaits_topology(&admission)
                && queue.is_none_or(|q| checks::applicable(&q.object, Some(&admission)).is_empty())
        })
    }
}
