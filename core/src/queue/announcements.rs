//! Publication of pending reasons of workloads that were not nominated.
//!
//! Invariant: a workload is unannounced from its arrival until its class is parked or its ClusterQueue is blocked; each is
//! announced once, however often the workloads before it change.

use super::Verdict;
use super::equivalence_class::{ClassId, Member};
use crate::api::ObjectKey;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Workloads whose reason was not published yet, and the reason of those that were never nominated.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    unannounced: BTreeSet<(ClassId, ObjectKey)>,
    /// Verdict of workloads behind the head of a StrictFIFO ClusterQueue, once any waits there. It names no workload:
    /// with the head's name, each admission would change the messages of all workloads behind it.
    pub(super) behind_head: Option<Arc<Verdict>>,
}

impl Announcements {
    pub(super) fn add(&mut self, class: ClassId, workload: &ObjectKey) {
        self.unannounced.insert((class, workload.clone()));
    }

    pub(super) fn remove(&mut self, class: ClassId, workload: &ObjectKey) {
        if !self.unannounced.is_empty() {
            self.unannounced.remove(&(class, workload.clone()));
        }
    }

    pub(super) fn contains(&self, class: ClassId, workload: &ObjectKey) -> bool {
        !self.unannounced.is_empty() && self.unannounced.contains(&(class, workload.clone()))
    }

    /// Removes and returns the workloads of a class.
    pub(super) fn take_class(&mut self, class: ClassId) -> Vec<(ClassId, ObjectKey)> {
        let first = (class, ObjectKey::new("", ""));
        let of_class = |entry: &&(ClassId, ObjectKey)| entry.0 == class;
        let taken: Vec<_> = self.unannounced.range(first..).take_while(of_class).cloned().collect();
        for entry in &taken {
            self.unannounced.remove(entry);
        }
        taken
    }

    /// Removes and returns all workloads.
    pub(super) fn take_all(&mut self) -> BTreeSet<(ClassId, ObjectKey)> {
        std::mem::take(&mut self.unannounced)
    }
}

/// Workloads whose message changed without an own decision.
#[derive(Debug)]
pub(super) struct MessageUpdate {
    pub(super) queue: Arc<str>,
    pub(super) class: ClassId,
    pub(super) after: Option<Member>,
    pub(super) only: Option<ObjectKey>,
}

impl MessageUpdate {
    pub(super) fn of_one(queue: &Arc<str>, class: ClassId, workload: ObjectKey) -> Self {
        Self { queue: Arc::clone(queue), class, after: None, only: Some(workload) }
    }
}
