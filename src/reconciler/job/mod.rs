//! Jobs: creates their Workloads, and starts, stops and restores them.
//!
//! Invariants: a job runs only while its Workload is admitted and not evicted. When a job stops, the changes made by
//! its start are undone, and its Workload releases its quota only after that.

pub(super) mod belonging;
mod compose;
mod events;
pub(super) mod management;
mod owner;
pub(super) mod start;
mod step;
pub(super) mod sync;

use super::messages::{Effect, Event};
use super::{CoreSettings, ReconcileKey};
use crate::api::ObjectKey;
use crate::cache::{Cache, Kind};
use crate::frameworks::{JobKind, JobView, own_workload_key};

/// Looks up which jobs are managed, which Workload belongs to which job, and what an admission grants.
#[derive(Clone, Copy)]
pub(crate) struct JobLookup<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) settings: &'a CoreSettings,
}

/// A job with its kind.
#[derive(Clone, Copy)]
struct Job<'a> {
    row: JobKind,
    view: &'a JobView,
}

impl Job<'_> {
    const fn kind(&self) -> Kind {
        Kind::Job(self.row)
    }

    fn reconcile_key(&self) -> ReconcileKey {
        ReconcileKey::Job(self.row, self.view.key.clone())
    }

    /// Returns the key of the Workload that is created for the job.
    fn own_workload_key(&self) -> ObjectKey {
        own_workload_key(&self.row, self.view)
    }

    /// Returns the key of the Workload that the job has or waits for: the prebuilt one that it names, or its own.
    fn expected_workload_key(&self) -> ObjectKey {
        self.view.prebuilt_workload_key().unwrap_or_else(|| self.own_workload_key())
    }

    /// Returns a normal event on the job.
    fn event(&self, reason: &str, note: &str) -> Effect {
        job_event(self.row, self.view, false, reason, note)
    }
}

fn job_event(kind: JobKind, view: &JobView, warning: bool, reason: &str, note: &str) -> Effect {
    Effect::Event(Event {
        kind: Kind::Job(kind),
        key: view.key.clone(),
        uid: view.uid.to_string(),
        warning,
        reason: reason.to_owned(),
        note: note.to_owned(),
        once: false,
    })
}
