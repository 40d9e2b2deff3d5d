//! Admitted workloads whose pods are not ready. Further admissions may wait for them
//! (`waitForPodsReady.blockAdmission`).

use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::lifecycle::{checks, conditions, reservation};
use crate::reconciler::Reconciler;
use crate::reconciler::workload::decision_status::to_admission;
use std::collections::BTreeSet;

/// Admitted workloads whose pods are not ready.
#[derive(Clone, Debug, Default)]
pub(super) struct NotReadyWorkloads(BTreeSet<ObjectKey>);

impl NotReadyWorkloads {
    fn set(&mut self, key: &ObjectKey, not_ready: bool) {
        if not_ready {
            self.0.insert(key.clone());
        } else {
            self.0.remove(key);
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Reconciler {
    /// Records whether further admissions wait for the pods of a Workload.
    pub(crate) fn update_pods_ready_gate(&mut self, key: &ObjectKey) {
        if !self.settings.engine.block_admission {
            return;
        }
        let not_ready = self.cache.workload(key).is_some_and(|record| {
            let holds = |kind| conditions::is_true(&record.status, kind);
            reservation::holds_quota(&record.status)
                && holds(ConditionType::Admitted)
                && !holds(ConditionType::PodsReady)
        });
        self.membership.not_ready.set(key, not_ready);
    }

    /// Blocks or unblocks admission in the scheduler, depending on whether admitted workloads have pods that are not
    /// ready.
    pub(crate) fn update_admission_block(&mut self) {
        if self.settings.engine.block_admission {
            let blocked = !self.membership.not_ready.is_empty() || self.has_assumed_admission();
            self.engine.block_admission(blocked);
        }
    }

    /// Returns whether an assumed decision admits its workload at once, instead of only reserving quota for it.
    fn has_assumed_admission(&self) -> bool {
        self.membership.assumed.iter().any(|assumed| {
            let admission = to_admission(&assumed.assignment);
            let queue = self.cache.cluster_queue(&assumed.assignment.cluster_queue);
            !checks::awaits_topology(&admission)
                && queue.is_none_or(|q| checks::applicable(&q.object, Some(&admission)).is_empty())
        })
    }
}
