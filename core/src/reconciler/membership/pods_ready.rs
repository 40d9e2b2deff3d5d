//! Admitted workloads whose pods are not ready. Further admissions may wait for them
//! (`waitForPodsReady.blockAdmission`).

use super::Membership;
use crate::api::ObjectKey;
use crate::api::reason::ConditionType;
use crate::cache::Cache;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::{checks, conditions, reservation};
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

impl Membership {
    /// Records whether further admissions wait for the pods of a Workload.
    pub(super) fn update_pods_ready_gate(&mut self, key: &ObjectKey, record: Option<&WorkloadRecord>) {
        let not_ready = record.is_some_and(|record| {
            let holds = |kind| conditions::is_true(&record.status, kind);
            reservation::holds_quota(&record.status)
                && holds(ConditionType::Admitted)
                && !holds(ConditionType::PodsReady)
        });
        self.not_ready.set(key, not_ready);
    }

    /// Returns whether admissions wait: admitted workloads have pods that are not ready.
    pub(crate) fn blocks_admission(&self, cache: &Cache) -> bool {
        !self.not_ready.is_empty() || self.has_assumed_admission(cache)
    }

    /// Returns whether an assumed decision admits its workload at once, instead of only reserving quota for it.
    fn has_assumed_admission(&self, cache: &Cache) -> bool {
        self.assumed.iter().any(|assumed| {
            let admission = to_admission(&assumed.assignment);
            let queue = cache.cluster_queue(&assumed.assignment.cluster_queue);
            !checks::awaits_topology(&admission)
                && queue.is_none_or(|q| checks::applicable(&q.object, Some(&admission)).is_empty())
        })
    }
}
