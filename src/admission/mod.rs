//! Answers to admission reviews: what the API server asks before it stores an object, decided from the object, a
//! read-only view of the cluster, and the settings.
//!
//! Invariants: `review` is total (it answers any input, with the request's uid, and never panics); a mutating answer
//! applied twice changes nothing the second time; nothing here has a side effect, so a dry run needs no care.

mod ancestry;
mod defaults;
mod fail_closed;
mod in_process;
mod job;
mod job_rules;
mod job_view;
mod kueue_kinds;
mod lookup;
mod patch;
mod reading;
mod response;
mod review;
mod settings;
#[cfg(test)]
mod tests;
mod topology;

pub use ancestry::managed_ancestor;
pub use fail_closed::fails_closed_for_unqueued_jobs;
pub use in_process::admit_object;
pub use reading::{MAX_LIGHT_VALUES, ReadError, read_heavy, read_light};
pub use review::{BATCH_JOB_MUTATE, BATCH_JOB_VALIDATE, PATHS, review};
pub use settings::AdmissionSettings;

pub use crate::jobs::OwnerRef;

use std::collections::BTreeMap;

/// What a review may look at besides the object: the cluster as last seen, and the settings.
#[derive(Clone, Copy)]
pub struct ReviewContext<'a> {
    /// Objects that rules refer to.
    pub objects: &'a dyn ObjectLookup,
    /// How this installation treats jobs.
    pub settings: &'a AdmissionSettings,
}

/// The questions that reviews ask about other objects.
pub trait ObjectLookup {
    /// Labels of a namespace, or nothing when it is unknown.
    fn namespace_labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>>;
    /// Whether a LocalQueue exists.
    fn local_queue_exists(&self, namespace: &str, name: &str) -> bool;
    /// Whether a WorkloadPriorityClass named `default` exists.
    fn default_priority_class_exists(&self) -> bool;
    /// Whether the `ClusterQueue` behind a `LocalQueue` dispatches to other clusters.
    fn queue_is_multikueue(&self, namespace: &str, local_queue: &str) -> bool;
    /// The object that an owner reference points at, or nothing when it is unknown.
    fn owner(&self, namespace: &str, api_version: &str, kind: &str, name: &str) -> Option<OwnerView>;
}

/// What the walk over a job's owners needs to know of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerView {
    /// UID of the object as stored.
    pub uid: String,
    /// Its queue label, if any.
    pub queue_name: Option<String>,
    /// Its own controller.
    pub controller: Option<OwnerRef>,
}
