//! Conversion of a pending Workload to scheduler input.

use super::SchedulerInput;
use crate::api::reason::PendingReason;
use crate::api::v1beta2::PodSetRequest;
use crate::cache::pod_defaults::to_status_requests;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::checks::{self, CheckAction};
use crate::resources::without_reclaimable;
use crate::scheduler::{ListedFields, PodSet, Verdict, Workload};
use std::sync::Arc;

impl SchedulerInput<'_> {
    /// Returns the Workload as scheduler input, without the fields of disabled features.
    pub(crate) fn to_pending_workload(self, record: &WorkloadRecord) -> Option<Workload> {
        let gates = &self.settings.engine.gates;
        Some(Workload {
            pod_sets: self.pod_sets_left(record)?,
            preemption_gated: gates.respects_preemption_gates() && record.is_preemption_gated(),
            variant: record.annotations.variant.clone().filter(|_| gates.concurrent_admission),
            is_slice: record.annotations.is_slice && gates.elastic_slices,
            replaces: self.replaced_slice(record).cloned(),
            precheck_failure: precheck_failure(record),
            ..self.to_waiting_workload(record)?
        })
    }

    /// Returns the queue position of the Workload and what lists show of it, without what nomination reads.
    pub(crate) fn to_waiting_workload(self, record: &WorkloadRecord) -> Option<Workload> {
        let cluster_queue = self.cache.cluster_queue_name(record)?;
        Some(Workload {
            key: record.meta.key.clone(),
            uid: record.meta.uid.clone(),
            cluster_queue: self.cache.interned_cluster_queue_name(cluster_queue),
            local_queue: record.queue_name.clone()?,
            priority: record.effective_priority(),
            queued_since: self.queued_since(record),
            listed: ListedFields {
                created: record.meta.created,
                spec_priority: record.priority,
                owner: record.owner.clone(),
                other_owners: Arc::clone(&record.other_owners),
            },
            ..Workload::default()
        })
    }

    /// Returns the pod sets of a Workload without the pods that will not run again. A pod set with partial admission keeps
    /// its count: a start sets the parallelism of its job to the count that was granted.
    pub(crate) fn pod_sets_left(&self, record: &WorkloadRecord) -> Option<Arc<[PodSet]>> {
        let sets = record.effective_requests.pod_sets.as_ref()?;
        let reclaimable = &record.status.reclaimable_pods;
        if reclaimable.is_empty() || !self.settings.gates.reclaimable_pods {
            return Some(Arc::clone(sets));
        }
        let left = |set: &PodSet| {
            let ended = reclaimable.iter().find(|r| *r.name == *set.name && set.min_count.is_none());
            let count = without_reclaimable(set.count, ended.map_or(0, |r| r.count));
            PodSet { count, ..set.clone() }
        };
        Some(sets.iter().map(left).collect())
    }

    /// Returns the requests of a Workload, which are published while it is pending.
    pub(crate) fn requests_left(&self, record: &WorkloadRecord) -> Arc<[PodSetRequest]> {
        match self.pod_sets_left(record).filter(|_| !record.status.reclaimable_pods.is_empty()) {
            Some(sets) => to_status_requests(&sets).into(),
            None => Arc::clone(&record.effective_requests.status_requests),
        }
    }
}

/// Returns why a Workload cannot be nominated: a failed admission check, or invalid requests.
fn precheck_failure(record: &WorkloadRecord) -> Option<Arc<Verdict>> {
    let (reason, text) =
        match (checks::required_action(&record.status), &record.effective_requests.misconfiguration) {
            (Some(CheckAction::Retry(text) | CheckAction::Reject(text)), _) => {
                (PendingReason::PendingEvaluation, text)
            }
            (None, Some(text)) => (PendingReason::Misconfigured, text.clone()),
            (None, None) => return None,
        };
    Some(Arc::new(Verdict::without_blockers(reason, &text)))
}
