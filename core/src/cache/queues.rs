//! ClusterQueues, LocalQueues and Cohorts.

use super::records::{ClusterQueueRecord, CohortRecord, LocalQueueRecord};
use super::remove_from_index;
use crate::api::ObjectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Queues and cohorts by name.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueRecords {
    cohorts: BTreeMap<Arc<str>, CohortRecord>,
    cluster_queues: BTreeMap<Arc<str>, ClusterQueueRecord>,
    local_queues: BTreeMap<ObjectKey, LocalQueueRecord>,
    local_queues_by_cluster_queue: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl QueueRecords {
    pub(super) fn cohort(&self, name: &str) -> Option<&CohortRecord> {
        self.cohorts.get(name)
    }

    pub(super) fn cohorts(&self) -> impl Iterator<Item = (&Arc<str>, &CohortRecord)> {
        self.cohorts.iter()
    }

    pub(super) fn set_cohort(&mut self, record: CohortRecord) {
        self.cohorts.insert(record.meta.key.name.clone(), record);
    }

    pub(super) fn remove_cohort(&mut self, name: &str) -> bool {
        self.cohorts.remove(name).is_some()
    }

    pub(super) fn cluster_queue(&self, name: &str) -> Option<&ClusterQueueRecord> {
        self.cluster_queues.get(name)
    }

    /// Returns the stored name of a known ClusterQueue, so that callers share it.
    pub(super) fn interned_name(&self, name: &str) -> Option<&Arc<str>> {
        self.cluster_queues.get_key_value(name).map(|(name, _)| name)
    }

    pub(super) fn cluster_queues(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &ClusterQueueRecord)> {
        self.cluster_queues.iter()
    }

    pub(super) fn set_cluster_queue(&mut self, record: ClusterQueueRecord) {
        self.cluster_queues.insert(record.meta.key.name.clone(), record);
    }

    pub(super) fn remove_cluster_queue(&mut self, name: &str) -> bool {
        self.cluster_queues.remove(name).is_some()
    }

    pub(super) fn local_queue(&self, key: &ObjectKey) -> Option<&LocalQueueRecord> {
        self.local_queues.get(key)
    }

    pub(super) fn local_queues(&self) -> impl ExactSizeIterator<Item = (&ObjectKey, &LocalQueueRecord)> {
        self.local_queues.iter()
    }

    /// Returns the LocalQueues of a ClusterQueue.
    pub(super) fn local_queues_of(&self, cluster_queue: &str) -> impl Iterator<Item = &ObjectKey> {
        self.local_queues_by_cluster_queue.get(cluster_queue).into_iter().flatten()
    }

    pub(super) fn set_local_queue(&mut self, record: LocalQueueRecord) {
        let key = record.meta.key.clone();
        if let Some(target) = record.object.spec.cluster_queue.as_deref() {
            let keys = self.local_queues_by_cluster_queue.entry(Arc::from(target)).or_default();
            keys.insert(key.clone());
        }
        self.local_queues.insert(key, record);
    }

    pub(super) fn remove_local_queue(&mut self, key: &ObjectKey) -> bool {
        let Some(record) = self.local_queues.remove(key) else { return false };
        let target: Arc<str> = Arc::from(record.object.spec.cluster_queue.as_deref().unwrap_or_default());
        remove_from_index(&mut self.local_queues_by_cluster_queue, &target, key);
        true
    }
}
