//! Workloads that held quota, or had counted something about their job, when they were removed: their finalizer, which keeps others until
//! the pods have ended and the next Workload is there, was taken from them.
//!
//! Invariants: a record is kept in its last version until it is forgotten; it is none of the Workloads, and nothing is written to it.
//! Counts are kept while their job is there and has no other Workload that goes on.

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
    /// The last one of each job whose next one is to take over what it has counted, by UID of the job.
    counted: BTreeMap<Arc<str>, Arc<WorkloadRecord>>,
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

    /// Keeps the record of a Workload that was removed, for the next one of the job with this UID.
    pub(crate) fn keep_counts(&mut self, job: &Arc<str>, record: &Arc<WorkloadRecord>) {
        self.workloads.vanished.counted.insert(Arc::clone(job), Arc::clone(record));
    }

    /// Returns the last version of the removed Workload from which the next one of a job takes over.
    pub(crate) fn counts_of(&self, job: &str) -> Option<&Arc<WorkloadRecord>> {
        self.workloads.vanished.counted.get(job)
    }

    /// Forgets it: the job is gone, or has another Workload.
    pub(crate) fn forget_counts(&mut self, job: &str) {
        self.workloads.vanished.counted.remove(job);
    }

    /// Forgets one whose quota is released.
    pub(crate) fn forget_vanished(&mut self, key: &ObjectKey) {
        self.workloads.vanished.remove(key);
    }
}
