//! Slices of an elastic job that replace one another.
//!
//! Invariant: a slice replaces only a slice of the same job in the same ClusterQueue. The annotation alone is not enough: its
//! author could release the quota of another job.

use super::SchedulerInput;
use crate::api::ObjectKey;
use crate::cache::records::WorkloadRecord;
use crate::lifecycle::reservation;
use crate::reconciler::writes::assumed::AssumedAdmissions;
use std::sync::Arc;

impl<'a> SchedulerInput<'a> {
    /// Returns the slice that a Workload replaces: it holds quota that goes over to the Workload.
    pub(crate) fn replaced_slice(&self, record: &'a WorkloadRecord) -> Option<&'a ObjectKey> {
        let key =
            record.annotations.replaces.as_deref().filter(|_| self.settings.engine.gates.elastic_slices)?;
        let replaced = self.cache.workload(key).filter(|replaced| replaced.keeps_quota())?;
        let queue = replaced.status.admission.as_ref().map(|admission| admission.cluster_queue.as_str());
        (is_of_same_job(record, replaced) && queue == self.cache.cluster_queue_name(record)).then_some(key)
    }

    /// Returns the slices that replace a Workload.
    pub(crate) fn replacing(
        self,
        record: &'a WorkloadRecord,
    ) -> impl Iterator<Item = &'a Arc<WorkloadRecord>> {
        let enabled = self.settings.engine.gates.elastic_slices;
        let newer = self.cache.replacing(&record.meta.key);
        newer.filter(move |newer| enabled && is_of_same_job(newer, record))
    }

    /// Returns whether the quota of a slice has passed to a slice that replaces it: both belong to one job, and are charged once.
    pub(crate) fn is_charged_to_replacing(
        self,
        record: &'a WorkloadRecord,
        assumed: &AssumedAdmissions,
    ) -> bool {
        let takes_over = |newer: &Arc<WorkloadRecord>| {
            reservation::holds_quota(&newer.status) || assumed.contains(&newer.meta.key)
        };
        self.replacing(record).any(takes_over)
    }
}

fn is_of_same_job(record: &WorkloadRecord, replaced: &WorkloadRecord) -> bool {
    let (Some(owner), Some(other)) = (&record.owner, &replaced.owner) else { return false };
    let (key, other_key) = (&record.meta.key, &replaced.meta.key);
    owner.uid == other.uid && key.namespace == other_key.namespace && key != other_key
}
