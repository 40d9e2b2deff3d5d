//! Job kinds: decoding, starting and stopping jobs, and creating their Workloads.
//!
//! A kind is a row of the table, [`frameworks`]; only what a row cannot say is code, in the file of the kind. The objects that
//! share a Workload are a [`Unit`], and how its pods are held back says which [`UnitRules`] it follows.
//!
//! Invariants: decoding is total (a malformed object is an error, never a panic); stopping a job restores the template
//! that it had before the start; unknown fields of a template are copied to the Workload.

mod ancestry;
mod app_wrapper;
pub mod batch_job;
mod batch_job_rules;
pub mod chart;
mod child_size;
pub mod components;
mod count;
mod decoding;
mod deployment;
mod found_running;
mod from_file;
mod hooks;
mod int_or_percent;
mod job;
mod job_kind;
mod job_under_review;
mod jobset;
mod kubeflow;
mod managed_kinds;
pub mod manifests;
mod marks;
mod patch;
mod played_status;
mod pod_group;
mod pod_identity;
mod pod_labels;
mod pod_member;
mod pod_set_sources;
mod pod_set_views;
mod priority;
mod ray;
mod ray_additions;
mod ray_child;
mod ray_rules;
mod read;
mod related;
mod role_shape;
mod roles;
mod row;
mod row_parts;
mod set_of_pods;
mod set_rules;
mod spark;
mod spark_pods;
mod spark_texts;
mod start_patches;
mod status;
mod strategic_merge;
mod submitter;
mod suspended;
mod table;
mod template;
mod template_defaults;
mod template_fingerprint;
mod template_marks;
mod topology;
mod train_job;
mod train_runtime;
mod unit;
mod unit_rules;
mod unit_summary;
mod view;
mod workload;

pub use ancestry::{
    Above, AncestryError, End, FoundOwner, OwnPlace, OwnerLookup, Searched, missing_owner, search_above,
    search_maker,
};
pub use child_size::{
    ChildGroup, Claim, ExcessGroup, PodSetRequests, PodSetSize, SizedChild, excess_of_pod, groups_of,
    has_room, left_by, pods_in, spec_requests,
};
pub use found_running::FoundRunning;
pub use from_file::{FrameworkFileError, framework_from_file};
pub use hooks::{Hooks, ManagedJobs, ReviewField, ReviewScope, RuleSettings};
pub use job_kind::JobKind;
pub use job_under_review::{JobUnderReview, MadePodSet, PodSetUnderReview, map_text};
pub use managed_kinds::{ManagedKinds, REPLICA_SET, creates};
pub use patch::{Action, ActionWrite, Change, FieldChange, JobPatch, PatchBody, Target};
pub use played_status::{PlayedJob, PlayedState};
pub use pod_group::{hold_pod, role_hash};
pub use pod_identity::{PodIdentity, is_disowned_pod};
pub use pod_labels::pod_selector;
pub use pod_member::{GroupMarks, OUT_OF_SYNC, Phase, PodMember, PodState, bound_pod_counts_as_ended_at};
#[cfg(test)]
pub(crate) use pod_set_sources::tests as several_sources;
pub use pod_set_sources::{RoleFields, RoleName, RoleReader};
pub use priority::{MissingClass, Priority, PriorityLookup};
pub use read::path_of;
pub use related::{Awaited, Beside, Found, NothingRelated, PodSets, Related, RelatedKey, RelatedKind};
pub use role_shape::{DescribedRole, RoleShape};
pub use row::{
    Active, Between, Count, CreatedKinds, Elastic, Enabled, FailurePolicy, FieldPointers, FinishedRule,
    Flags, Framework, LabelValue, ManagedBy, Message, PodGrouping, PodLabel, PodLabels, PodSetSource,
    Pointer, Rank, Rbac, Ready, Reclaimable, Role, StatusFields, SubGroups, TemplateMarks, Test,
    TopologyChecks, WebhookHandler, Webhooks,
};
pub use set_of_pods::{OwnedPod, belongs_to_other_framework, is_marked_for_other_framework};
pub(crate) use set_of_pods::{owner_annotations, owner_reference};
pub use start_patches::StartPatches;
pub use submitter::{named_submitter, submitter_name, submitter_of};
pub use table::{TableError, add_frameworks, framework, framework_named, frameworks, known_frameworks};
pub(crate) use template::template_patch;
pub use template::{TemplateConflict, TemplateInfo};
pub use template_fingerprint::{TemplateFingerprint, pod_set_fingerprint};
pub use unit::{
    Component, ComposeError, Composed, Membership, PodSetCount, Readiness, Sources, Stop, StopScope, Unit,
    UnitKey, UnitRules, UnitStatus,
};
pub(crate) use unit_summary::NO_MEMBERS;
pub use unit_summary::{RoleCounts, UnitSummary};
pub use view::{
    Finished, Gvk, JobHold, JobOptions, JobStatus, JobView, MissingTemplate, OwnerRef, PodSetInfo,
    PodSetView, RelatedView,
};
pub use workload::{
    SliceMarks, WorkloadRequest, is_longest_workload_name, job_name_in_workload_name, next_workload_key,
    own_workload_key, own_workload_keys, pod_set_infos, replica_workload_key, workload_body, workload_name,
    workload_name_without_hash,
};

use crate::api::decoding::DecodeError;
use std::fmt;

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

impl From<JobError> for DecodeError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Malformed { path, problem } if !path.is_empty() => Self { path, problem },
            other => Self { path: String::new(), problem: other.to_string() },
        }
    }
}
