//! Job kinds: how each is read, started, stopped, and described as a Workload.
//!
//! Invariants: decoding is total (a malformed object is an error, never a panic); a template that was started and then
//! stopped is what it was before; an unknown field of a template reaches the Workload.

mod ancestry;
mod batch;
mod frameworks;
mod priority;
mod read;
mod shape;
mod template;
mod topology;
mod view;
mod workload;

pub use ancestry::{Ancestor, AncestryError, OwnerLookup, queued_ancestor};
pub use frameworks::{ManagedKinds, Management};
pub use priority::{MissingClass, Priority, PriorityLookup};
pub use shape::{TemplateFingerprint, pod_set_fingerprint};
pub(crate) use template::template_patch;
pub use template::{TemplateConflict, TemplateInfo};
pub use view::{Finished, Gvk, JobStatus, JobView, OwnerRef, PodSetInfo, PodSetView};
pub use workload::{WorkloadRequest, pod_set_infos, workload_body, workload_name};

use serde_json::Value;
use std::fmt;

/// A kind of job.
pub trait JobKind: Sync {
    /// Where its objects are.
    fn gvk(&self) -> Gvk;
    /// Its name in `integrations.frameworks`.
    fn framework(&self) -> &'static str;
    /// Everything that the reconciler needs of the raw object.
    fn decode(&self, job: &Value) -> Result<JobView, JobError> {
        self.decode_after(job, None)
    }
    /// The same, given what was decoded of an earlier version: what follows from the pod templates alone is taken over
    /// when the spec has not changed since.
    fn decode_after(&self, job: &Value, before: Option<&JobView>) -> Result<JobView, JobError>;
    /// Raw entries for `spec.podSets` of its Workload.
    fn pod_sets(&self, job: &Value) -> Result<Vec<Value>, JobError>;
    /// Patches, in order, that let the job run with what was granted.
    fn run_patch(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Vec<JobPatch>, JobError>;
    /// What to write next to stop the job and give it its template back; empty when that is done. One step at a time:
    /// the next is chosen from the object as it is after the last. Without `original` the template stays.
    fn stop_patches(&self, view: &JobView, original: &[PodSetInfo]) -> Vec<JobPatch>;
}

/// A merge patch of a job, without resourceVersion.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPatch {
    /// It goes to the status subresource.
    pub status: bool,
    /// The patch.
    pub body: Value,
}

/// Why a job cannot be read or started. No error here goes away by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobError {
    /// A field is missing or has the wrong type or value.
    Malformed {
        /// Path of the field.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// What was granted contradicts the pod template, or itself.
    Conflict(TemplateConflict),
    /// The Workload grants pod sets that the job does not have, or the reverse.
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

/// Every kind that this build knows.
pub static KINDS: &[&dyn JobKind] = &[&batch::BatchJob];

/// The kind with this group and kind.
pub fn kind_of(group: &str, kind: &str) -> Option<&'static dyn JobKind> {
    KINDS.iter().copied().find(|known| known.gvk().group == group && known.gvk().kind == kind)
}
