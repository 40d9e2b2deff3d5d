//! Pending workloads whose reason was not published yet.
//!
//! Invariant: a workload is here from its arrival until its class is parked or its ClusterQueue is blocked; each is
//! announced once, however often the workloads before it change.

use super::equivalence_class::ClassId;
use crate::api::ObjectKey;
use std::collections::BTreeSet;

/// Workloads by class.
#[derive(Debug, Default)]
pub(super) struct Unannounced(BTreeSet<(ClassId, ObjectKey)>);

impl Unannounced {
    pub(super) fn add(&mut self, class: ClassId, workload: &ObjectKey) {
        self.0.insert((class, workload.clone()));
    }

    pub(super) fn remove(&mut self, class: ClassId, workload: &ObjectKey) {
        if !self.0.is_empty() {
            self.0.remove(&(class, workload.clone()));
        }
    }

    pub(super) fn contains(&self, class: ClassId, workload: &ObjectKey) -> bool {
        !self.0.is_empty() && self.0.contains(&(class, workload.clone()))
    }

    /// Removes and returns the workloads of a class.
    pub(super) fn take_class(&mut self, class: ClassId) -> Vec<(ClassId, ObjectKey)> {
        let first = (class, ObjectKey::new("", ""));
        let of_class = |entry: &&(ClassId, ObjectKey)| entry.0 == class;
        let taken: Vec<_> = self.0.range(first..).take_while(of_class).cloned().collect();
        for entry in &taken {
            self.0.remove(entry);
        }
        taken
    }

    /// Removes and returns all workloads.
    pub(super) fn take_all(&mut self) -> BTreeSet<(ClassId, ObjectKey)> {
        std::mem::take(&mut self.0)
    }
}
