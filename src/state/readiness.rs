//! Who is admitted and has pods that are not ready: admissions may wait for them.

use super::State;
use super::outlook::admission_of;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::lifecycle::{checks, conditions, reservation};

impl State {
    /// Takes note of whether the pods of a Workload are waited for.
    pub(super) fn observe_readiness(&mut self, key: &ObjectKey) {
        if !self.settings.engine.one_at_a_time {
            return;
        }
        let awaited = self.workloads.get(key).is_some_and(|record| {
            let holds = |kind| conditions::is_true(&record.status, kind);
            reservation::holds_quota(&record.status)
                && holds(ConditionType::Admitted)
                && !holds(ConditionType::PodsReady)
        });
        if awaited {
            self.unready.insert(key.clone());
        } else {
            self.unready.remove(key);
        }
    }

    /// Says to the scheduler whether admissions wait for pods.
    pub(super) fn hold_admissions(&mut self) {
        if self.settings.engine.one_at_a_time {
            let awaited = !self.unready.is_empty() || self.admits_at_once();
            self.engine.hold_admissions(awaited);
        }
    }

    /// Whether somebody is to be admitted by a write that has not landed, and not only given quota.
    fn admits_at_once(&self) -> bool {
        self.assumed.values().any(|assumed| {
            let admission = admission_of(&assumed.assignment);
            let queue = self.cluster_queues.get(&assumed.assignment.cluster_queue);
            !checks::awaits_topology(&admission)
                && queue.is_none_or(|q| checks::applicable(&q.object.spec, Some(&admission)).is_empty())
        })
    }
}
