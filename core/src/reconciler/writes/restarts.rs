//! Workloads whose jobs have taken reclaimed pods back, because these pods run again.
//!
//! Invariant: each time, the next pods are reclaimed later, so that a job whose number of succeeded pods changes to and fro
//! causes few writes, and its quota does not alternate between it and other jobs.

use crate::api::ObjectKey;
use crate::lifecycle::backoff;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// How long no pods are reclaimed after the first time, and at most.
const MIN_WAIT: SignedDuration = SignedDuration::from_secs(10);
const MAX_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// Number of times that a job has taken pods back, and time before which none are reclaimed.
#[derive(Clone, Copy, Debug)]
struct Restarts {
    count: u32,
    until: Timestamp,
}

/// Workloads whose jobs have taken pods back.
#[derive(Clone, Debug, Default)]
pub(crate) struct RestartedWorkloads {
    taken_back: BTreeMap<ObjectKey, Restarts>,
    /// Workloads with pods that wait for quota.
    waiting: BTreeSet<ObjectKey>,
}

impl RestartedWorkloads {
    /// Returns until when no pods of a Workload are reclaimed.
    pub(crate) fn reclaims_from(&self, workload: &ObjectKey) -> Option<Timestamp> {
        self.taken_back.get(workload).map(|restarts| restarts.until)
    }

    /// Records that the job of a Workload has taken pods back.
    pub(crate) fn record(&mut self, workload: &ObjectKey, now: Timestamp) {
        let count = self.taken_back.get(workload).map_or(0, |known| known.count).saturating_add(1);
        let until = backoff::after(now, backoff::exponential(MIN_WAIT, MAX_WAIT, count));
        self.taken_back.insert(workload.clone(), Restarts { count, until });
    }

    pub(crate) fn remove(&mut self, workload: &ObjectKey) {
        self.taken_back.remove(workload);
        self.waiting.remove(workload);
    }

    /// Records whether pods of a Workload wait for quota. Returns whether they are about to.
    pub(crate) fn set_waiting(&mut self, workload: &ObjectKey, waits: bool) -> bool {
        if waits {
            return self.waiting.insert(workload.clone());
        }
        self.waiting.remove(workload);
        false
    }
}
