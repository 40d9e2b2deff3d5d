//! The slices of an elastic job: a sequence of Workloads, of which each takes over from the one before it when the job grows.
//!
//! Invariants: at most one slice is in use, the newest that holds quota and need not release it; at most one waits for quota in
//! order to replace it; any other ends, as soon as no pod runs on its quota. No slice replaces one that a user has deactivated.
//! The roles follow from the objects alone, so that a manager that starts between two writes continues where the last one
//! stopped.

use crate::api::names;
use crate::api::reason::ConditionType;
use crate::cache::records::WorkloadRecord;
use crate::frameworks::JobView;
use crate::lifecycle::{conditions, eviction, reservation};
use std::sync::Arc;

/// The slices of an elastic job that have not finished.
pub(super) struct Slices<'a> {
    /// The oldest first.
    unfinished: Vec<&'a Arc<WorkloadRecord>>,
    /// The newest slice that holds quota and need not release it.
    reserving: Option<&'a Arc<WorkloadRecord>>,
    /// The newest slice that must release its quota; pods may still run on it, unless another one holds quota.
    leaving: Option<&'a Arc<WorkloadRecord>>,
    /// The slice that must have the size of the job: it waits for quota if the job has grown.
    pub(super) latest: Option<&'a Arc<WorkloadRecord>>,
}

impl<'a> Slices<'a> {
    /// Assigns their roles to the Workloads of an elastic job.
    pub(super) fn of(workloads: Vec<&'a Arc<WorkloadRecord>>) -> Self {
        let mut unfinished = workloads;
        unfinished.retain(|record| !conditions::is_true(&record.status, ConditionType::Finished));
        unfinished.sort_by_key(|record| (record.meta.created, Arc::clone(&record.meta.uid)));
        let newest = |holds: &dyn Fn(&WorkloadRecord) -> bool| {
            unfinished.iter().rev().find(|record| holds(record)).copied()
        };
        // Pods may run on the quota of the other slice, even if it must release the quota.
        let replaced = |record: &WorkloadRecord| {
            unfinished.iter().any(|other| reservation::holds_quota(&other.status) && replaces(other, record))
        };
        let keeps = |record: &WorkloadRecord| record.keeps_quota() && record.active;
        let reserving = newest(&|record| keeps(record) && !replaced(record));
        let leaving = newest(&|record| reservation::holds_quota(&record.status) && !keeps(record));
        // No other slice starts the job: it is stopped until a user activates this one.
        let deactivated = newest(&|record| !record.active && !record.meta.is_deleting() && !replaced(record));
        let stays = |record: &WorkloadRecord| !record.meta.is_deleting() && !is_evicted(record);
        let waiting = reserving.and_then(|used| {
            // An evicted slice stays the latest: if it was created again instead, one that a user deactivated would be active,
            // and one that a check refused would not back off.
            let waits = |record: &&&Arc<WorkloadRecord>| {
                !record.meta.is_deleting()
                    && !reservation::holds_quota(&record.status)
                    && replaces(record, used)
            };
            unfinished.iter().find(waits).copied()
        });
        let latest = waiting
            .or(reserving)
            .or(deactivated)
            .or_else(|| newest(&|record| stays(record) && !replaced(record)))
            .or(leaving)
            .or_else(|| unfinished.last().copied());
        Self { unfinished, reserving, leaving, latest }
    }

    /// Returns the slice on whose quota pods of the job run, or the one that will start the job.
    pub(super) fn in_use(&self) -> Option<&'a Arc<WorkloadRecord>> {
        self.reserving.or(self.leaving).or(self.latest)
    }

    /// Returns the slices whose priority decides on the job: the one in use, and the one that waits to replace it.
    pub(super) fn ranked(&self) -> impl Iterator<Item = &'a Arc<WorkloadRecord>> {
        let waiting = self.latest.filter(|latest| !self.is_in_use(latest));
        self.in_use().into_iter().chain(waiting)
    }

    /// Returns whether pods of the job may run on the quota of a slice, or its start is not undone.
    pub(super) fn is_in_use(&self, record: &WorkloadRecord) -> bool {
        self.in_use().is_some_and(|used| used.meta.key == record.meta.key)
    }

    /// Returns whether a slice is no longer part of the job.
    pub(super) fn is_superfluous(&self, record: &WorkloadRecord) -> bool {
        let is_latest = self.latest.is_some_and(|latest| latest.meta.key == record.meta.key);
        !is_latest && !self.is_in_use(record)
    }

    /// Returns the slices that are being deleted and hold no quota.
    pub(super) fn released(&self) -> impl Iterator<Item = &'a Arc<WorkloadRecord>> {
        let released = |record: &&Arc<WorkloadRecord>| {
            record.meta.is_deleting() && !reservation::holds_quota(&record.status)
        };
        self.unfinished.iter().copied().filter(released)
    }

    /// Returns whether the job runs, or may run, on the quota of another slice.
    pub(super) fn is_other_in_use(&self, record: &WorkloadRecord) -> bool {
        self.reserving.is_some_and(|used| used.meta.key != record.meta.key)
    }

    /// Returns reason and message of the end of a superfluous slice.
    pub(super) fn end_of(&self, record: &WorkloadRecord) -> (&'static str, &'static str) {
        let takes_over = |other: &Arc<WorkloadRecord>| {
            replaces(other, record) && (reservation::holds_quota(&other.status) || !is_evicted(other))
        };
        if self.unfinished.iter().any(|other| takes_over(other)) {
            (eviction::SLICE_REPLACED, eviction::SLICE_SUPERSEDED)
        } else {
            ("OutOfSync", "The workload slice is out of sync with its parent job")
        }
    }

    /// Returns whether the job may run on the quota of one of the slices.
    pub(super) fn are_admitted(&self) -> bool {
        self.unfinished.iter().any(|record| record.may_run())
    }

    /// Returns whether one of the slices, or one before them, has started a job.
    pub(super) fn started(&self, owner: &JobView) -> bool {
        let first = mark(owner, names::SLICE_NAME_ANNOTATION).or(mark(owner, names::WORKLOAD_ANNOTATION));
        first.is_some_and(|first| self.unfinished.iter().any(|record| *record.chain_key().name == *first))
    }
}

/// Returns an annotation that a start adds to the pod templates of a job.
fn mark<'a>(owner: &'a JobView, key: &str) -> Option<&'a str> {
    let mut annotations = owner.pod_sets.iter().map(|set| &set.template.annotations);
    annotations.find_map(|map| map.get(key)).map(String::as_str)
}

fn replaces(record: &WorkloadRecord, other: &WorkloadRecord) -> bool {
    record.annotations.replaces.as_deref() == Some(&other.meta.key)
}

fn is_evicted(record: &WorkloadRecord) -> bool {
    conditions::is_true(&record.status, ConditionType::Evicted)
}
