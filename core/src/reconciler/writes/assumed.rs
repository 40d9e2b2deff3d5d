//! Assumed admissions: decisions whose write is not confirmed. They count as usage until the write is known to have
//! failed.

use crate::api::ObjectKey;
use crate::cache::Cache;
use crate::scheduler::{Assignment, Engine};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A decision to admit a Workload.
#[derive(Clone, Debug)]
pub(crate) struct AssumedAdmission {
    /// UID of the Workload.
    pub(crate) uid: Arc<str>,
    /// Generation of the Workload: the decision is on what it asked for then.
    pub(crate) generation: i64,
    pub(crate) assignment: Assignment,
}

/// Assumed admissions by Workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct AssumedAdmissions(BTreeMap<ObjectKey, AssumedAdmission>);

impl AssumedAdmissions {
    pub(crate) fn get(&self, workload: &ObjectKey) -> Option<&AssumedAdmission> {
        self.0.get(workload)
    }

    pub(crate) fn contains(&self, workload: &ObjectKey) -> bool {
        self.0.contains_key(workload)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &AssumedAdmission> {
        self.0.values()
    }

    /// Returns the Workloads.
    pub(crate) fn workloads(&self) -> impl Iterator<Item = &ObjectKey> {
        self.0.keys()
    }

    pub(crate) fn insert(&mut self, workload: ObjectKey, admission: AssumedAdmission) {
        self.0.insert(workload, admission);
    }

    /// Removes the decision on a Workload. Returns whether there was one.
    pub(crate) fn remove(&mut self, workload: &ObjectKey) -> bool {
        self.0.remove(workload).is_some()
    }

    /// Drops a decision to admit that was not written, or whose write failed, and releases its usage unless the object
    /// holds quota.
    pub(crate) fn release(&mut self, workload: &ObjectKey, cache: &Cache, engine: &mut Engine) {
        if self.remove(workload) && !cache.holds_quota(workload) {
            engine.release(workload);
            engine.drop_penalty(workload);
        }
    }

    /// Removes all decisions. Returns their Workloads.
    pub(crate) fn clear(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.0).into_keys().collect()
    }
}
