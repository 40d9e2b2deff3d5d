//! Job kinds: decoding, starting and stopping jobs, and creating their Workloads.
//!
//! Invariants: decoding is total (a malformed object is an error, never a panic); stopping a job restores the template
//! that it had before the start; unknown fields of a template are copied to the Workload.

mod ancestry;
mod batch_job;
mod managed_kinds;
mod priority;
mod read;
mod template;
mod template_fingerprint;
mod topology;
mod view;
mod workload;

pub use ancestry::{Ancestor, AncestryError, OwnerLookup, queued_ancestor};
pub use managed_kinds::{ManagedKinds, Management};
pub use priority::{MissingClass, Priority, PriorityLookup};
pub(crate) use template::template_patch;
pub use template::{TemplateConflict, TemplateInfo};
pub use template_fingerprint::{TemplateFingerprint, pod_set_fingerprint};
pub use view::{Finished, Gvk, JobStatus, JobView, OwnerRef, PodSetInfo, PodSetView};
pub use workload::{WorkloadRequest, pod_set_infos, workload_body, workload_name};

use serde_json::Value;
use std::fmt;

/// A kind of job.
pub trait JobKind: Sync {
    /// Returns group, version, kind and plural.
    fn gvk(&self) -> Gvk;
    /// Returns its name in `integrations.frameworks`.
    fn framework(&self) -> &'static str;
    /// Decodes the raw object.
    fn decode(&self, job: &Value) -> Result<JobView, JobError> {
        self.decode_after(job, None)
    }
    /// Decodes the raw object, given the view of an earlier version. If the spec has not changed since, data derived
    /// from the pod templates is reused.
    fn decode_after(&self, job: &Value, before: Option<&JobView>) -> Result<JobView, JobError>;
    /// Returns the entries for `spec.podSets` of its Workload.
    fn pod_sets(&self, job: &Value) -> Result<Vec<Value>, JobError>;
    /// Returns the patches, in order, that start the job with the granted counts and template additions.
    fn run_patch(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Vec<JobPatch>, JobError>;
    /// Returns the next patch to stop the job and restore its template; empty when both are done. The caller calls it
    /// again with the object that the patch returned. Without `original` the template is not restored.
    fn stop_patches(&self, view: &JobView, original: &[PodSetInfo]) -> Vec<JobPatch>;
}

/// A merge patch of a job, without resourceVersion.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPatch {
    /// Whether it patches the status subresource.
    pub status: bool,
    /// The patch.
    pub body: Value,
}

/// Why a job cannot be decoded or started. Retrying does not help until the job or the Workload changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// A field is missing or has the wrong type or value.
    Malformed {
        /// Path of the field.
        path: String,
        /// Description of the error.
        problem: String,
    },
    /// The granted template additions contradict the pod template, or each other.
    Conflict(TemplateConflict),
    /// The pod sets of Workload and job differ.
    PodSetMismatch {
        /// Name of the pod set that is missing on one side.
        name: String,
    },
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { path, problem } => write!(f, "{path}: {problem}"),
            Self::Conflict(conflict) => conflict.fmt(f),
            Self::PodSetMismatch { name } => {
                write!(f, "pod set {name:?} is not in both the job and its workload")
            }
        }
    }
}

impl std::error::Error for JobError {}

impl From<TemplateConflict> for JobError {
    fn from(conflict: TemplateConflict) -> Self {
        Self::Conflict(conflict)
    }
}

/// All supported job kinds.
pub static KINDS: &[&dyn JobKind] = &[&batch_job::BatchJob];

/// Returns the job kind with this group and kind.
pub fn kind_of(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    KINDS.iter().copied().find(|known| known.gvk().group == group && known.gvk().kind == kind)
}
