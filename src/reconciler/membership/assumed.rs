//! Decisions to admit whose write has not been confirmed. They count as usage until the write is known to have failed.

use crate::api::ObjectKey;
use crate::reconciler::Reconciler;
use crate::scheduler::Assignment;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A decision to admit.
#[derive(Clone, Debug)]
pub(crate) struct AssumedAdmission {
    /// UID of the Workload that was decided on.
    pub(crate) uid: Arc<str>,
    pub(crate) assignment: Assignment,
}

/// Decisions by Workload.
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

    pub(crate) fn insert(&mut self, workload: ObjectKey, admission: AssumedAdmission) {
        self.0.insert(workload, admission);
    }

    /// Returns whether there was one.
    pub(crate) fn remove(&mut self, workload: &ObjectKey) -> bool {
        self.0.remove(workload).is_some()
    }

    /// Forgets all. Returns the Workloads.
    pub(crate) fn clear(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.0).into_keys().collect()
    }
}

impl Reconciler {
    /// Drops a decision to admit that was not written, or whose write failed.
    pub(crate) fn release_assumed(&mut self, key: &ObjectKey) {
        if self.membership.assumed.remove(key) && !self.cache.holds_quota(key) {
            self.engine.release(key);
            self.engine.drop_penalty(key);
        }
    }
}
