//! Workloads that held quota when they were removed: their finalizer, which keeps others until the pods have ended, was taken from them.
//!
//! Invariants: a record is kept in its last version until it is forgotten; it is none of the Workloads, and nothing is written to it.

use super::records::WorkloadRecord;
use super::{Cache, remove_from_index};
use crate::api::ObjectKey;
use crate::lifecycle::reservation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Removed Workloads with quota.
#[derive(Debug, Default)]
pub(super) struct VanishedWorkloads {
    by_key: BTreeMap<ObjectKey, Arc<WorkloadRecord>>,
    /// Keys by the UIDs of the owners and of the job.
    by_owner: BTreeMap<Arc<str>, BTreeSet<ObjectKey>>,
}

impl VanishedWorkloads {
    fn insert(&mut self, record: &Arc<WorkloadRecord>) {
        let key = &record.meta.key;
        self.remove(key);
        for uid in owners_of(record) {
            self.by_owner.entry(Arc::clone(uid)).or_default().insert(key.clone());
        }
        self.by_key.insert(key.clone(), Arc::clone(record));
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(record) = self.by_key.remove(key) else { return };
        for uid in owners_of(&record) {
            remove_from_index(&mut self.by_owner, uid, key);
        }
    }
}

fn owners_of(record: &WorkloadRecord) -> impl Iterator<Item = &Arc<str>> {
    record.owner_uids().chain(&record.job_uid)
}

impl Cache {
    /// Keeps the record of a Workload that was removed, if it held quota.
    pub(crate) fn keep_vanished(&mut self, record: &Arc<WorkloadRecord>) {
        if reservation::holds_quota(&record.status) {
            self.workloads.vanished.insert(record);
        }
    }

    /// Returns the last version of a Workload that was removed with quota.
    pub(crate) fn vanished(&self, key: &ObjectKey) -> Option<&Arc<WorkloadRecord>> {
        self.workloads.vanished.by_key.get(key)
    }

    /// Returns all of them, in order.
    pub(crate) fn vanished_workloads(&self) -> impl Iterator<Item = &Arc<WorkloadRecord>> {
        self.workloads.vanished.by_key.values()
    }

    /// Returns the keys of those that an object with this UID owned, or that were made for it.
    pub(crate) fn vanished_of<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a ObjectKey> + use<'a> {
        self.workloads.vanished.by_owner.get(uid).into_iter().flatten()
    }

    /// Forgets one whose quota is released.
    pub(crate) fn forget_vanished(&mut self, key: &ObjectKey) {
        self.workloads.vanished.remove(key);
    }
}
