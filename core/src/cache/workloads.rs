//! Workloads, with indexes by the UID of the owner, by LocalQueue, and of slices by the first of those that take over from one
//! another.

use super::records::{IndexKeys, WorkloadRecord};
use super::remove_from_index;
use super::vanished::VanishedWorkloads;
use super::workload_index::WorkloadIndex;
use crate::api::{ByKey, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Workloads by key.
#[derive(Debug, Default)]
pub(super) struct WorkloadRecords {
    records: ByKey<Arc<WorkloadRecord>>,
    /// Keys by the UID of the owner, sorted: rarely more than one each.
    by_owner: BTreeMap<Arc<str>, Vec<ObjectKey>>,
    /// Workloads that have not finished.
    by_local_queue: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Workloads by the slice that they replace.
    by_replaced: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Slices that have not finished.
    by_chain: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// All of them, for readers outside the core.
    index: WorkloadIndex,
    /// Those that were removed with quota.
    pub(super) vanished: VanishedWorkloads,
}

impl WorkloadRecords {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Arc<WorkloadRecord>> {
        self.records.get(key)
    }

    /// Changes fields of a record that no index depends on.
    pub(super) fn change(&mut self, key: &ObjectKey, change: impl FnOnce(&mut WorkloadRecord)) {
        if let Some(record) = self.records.get_mut(key) {
            change(Arc::make_mut(record));
            self.index.insert(record);
        }
    }

    pub(super) const fn set_reads_submitters(&mut self, reads: bool) {
        self.index.set_reads_submitters(reads);
    }

    pub(super) const fn index(&self) -> &WorkloadIndex {
        &self.index
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<WorkloadRecord>)> {
        self.records.iter()
    }

    /// Returns the stored key of a known Workload, so that callers share it.
    pub(super) fn interned_key(&self, key: &ObjectKey) -> Option<&ObjectKey> {
        self.records.get_key_value(key).map(|(key, _)| key)
    }

    /// Returns the Workloads whose owner has this UID, ordered by key.
    pub(super) fn owned_by(&self, uid: &str) -> &[ObjectKey] {
        self.by_owner.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Returns the Workloads of a LocalQueue that have not finished.
    pub(super) fn in_local_queue(&self, queue: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.by_local_queue.get(queue).into_iter().flatten()
    }

    /// Returns the Workloads that say that they replace this slice.
    pub(super) fn replacing(&self, slice: &ObjectKey) -> impl Iterator<Item = &Arc<WorkloadRecord>> {
        self.by_replaced.get(slice).into_iter().flatten().filter_map(|key| self.records.get(key))
    }

    /// Returns the unfinished slices whose first one has this key, or the Workload with this key if there are none.
    pub(super) fn in_chain<'a>(
        &'a self,
        first: &ObjectKey,
    ) -> impl Iterator<Item = &'a Arc<WorkloadRecord>> + use<'a> {
        let slices = self.by_chain.get(first);
        let alone = slices.is_none().then(|| self.records.get(first)).flatten();
        slices.into_iter().flatten().filter_map(|key| self.records.get(key)).chain(alone)
    }

    pub(super) fn insert(&mut self, key: &ObjectKey, record: Arc<WorkloadRecord>) {
        if self.records.get(key).is_none_or(|known| known.index_keys() != record.index_keys()) {
            self.remove_from_indexes(key);
            self.add_to_indexes(key, &record);
        }
        self.index.insert(&record);
        self.records.insert(key.clone(), record);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<Arc<WorkloadRecord>> {
        self.remove_from_indexes(key);
        let removed = self.records.swap_remove(key);
        if let Some(record) = &removed {
            self.index.remove(record);
        }
        removed
    }

    fn add_to_indexes(&mut self, key: &ObjectKey, record: &WorkloadRecord) {
        let IndexKeys { owner, local_queue, replaces, chain } = record.index_keys();
        if let Some(uid) = owner {
            let owned = self.by_owner.entry(uid.clone()).or_insert_with(|| Vec::with_capacity(1));
            if let Err(index) = owned.binary_search(key) {
                owned.insert(index, key.clone());
            }
        }
        if let Some(queue) = local_queue {
            self.by_local_queue.entry(queue).or_default().insert(key.clone());
        }
        if let Some(slice) = replaces {
            self.by_replaced.entry(slice.clone()).or_default().insert(key.clone());
        }
        if let Some(first) = chain {
            self.by_chain.entry(first).or_default().insert(key.clone());
        }
    }

    fn remove_from_indexes(&mut self, key: &ObjectKey) {
        let Some(record) = self.records.get(key) else { return };
        let IndexKeys { owner, local_queue, replaces, chain } = record.index_keys();
        if let Some(uid) = owner
            && let Some(owned) = self.by_owner.get_mut(uid)
        {
            owned.retain(|known| known != key);
            if owned.is_empty() {
                self.by_owner.remove(uid);
            }
        }
        if let Some(queue) = local_queue {
            remove_from_index(&mut self.by_local_queue, &queue, key);
        }
        if let Some(slice) = replaces {
            remove_from_index(&mut self.by_replaced, slice, key);
        }
        if let Some(first) = chain {
            remove_from_index(&mut self.by_chain, &first, key);
        }
    }
}
