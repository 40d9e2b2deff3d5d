//! Typed view of a job with the fields that the reconciler needs, decoded once from the raw object.
//!
//! Invariant: a view depends on one version of the object only, but for what [`SinceStart`] says of a job that runs.

use super::found_running::FoundRunning;
use super::pod_identity::PodIdentity;
use super::related::{Awaited, RelatedKey};
use super::row::Framework;
use super::start_patches::StartPatches;
use super::template::TemplateInfo;
use super::template_fingerprint::TemplateFingerprint;
use crate::api::ObjectKey;
use crate::api::names::POD_SET_LABEL;
use crate::resources::Requests;
use jiff::Timestamp;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Group, version, kind and plural of a job kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gvk {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version without the group.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource name in API paths.
    pub plural: &'static str,
}

impl Gvk {
    /// Returns `group/version`, or only the version in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// A controller owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerRef {
    /// API version with its group.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name, in the namespace of the owned object.
    pub name: String,
    /// UID.
    pub uid: String,
}

impl OwnerRef {
    /// Returns the API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }
}

/// The fields of a job that the reconciler needs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
    /// Version of the object from which this view was decoded.
    pub resource_version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Creation time; the epoch when absent.
    pub created: Timestamp,
    /// Whether the object has a deletion time.
    pub deleting: bool,
    /// The queue-name label, when not empty.
    pub queue_name: Option<Arc<str>>,
    /// Kueue's labels and annotations beside the queue name.
    pub options: JobOptions,
    /// The controller that owns the job.
    pub controller: Option<OwnerRef>,
    /// The PriorityClass that the job names beside its pod templates, when not empty.
    pub pod_priority_class: Option<Arc<str>>,
    /// Value of `spec.managedBy`, if the kind has this field and it is set.
    pub managed_by: Option<String>,
    /// Whether the job is suspended.
    pub suspended: bool,
    /// The pod sets; none while they await an object.
    pub pod_sets: Vec<PodSetView>,
    /// Other objects from which the pod sets are made.
    pub related: RelatedView,
    /// The status.
    pub status: JobStatus,
}

impl JobView {
    /// Returns the key of the prebuilt Workload that the job names.
    pub fn prebuilt_workload_key(&self) -> Option<ObjectKey> {
        let name = self.options.prebuilt_workload.clone()?;
        Some(ObjectKey { namespace: self.key.namespace.clone(), name })
    }

    /// Returns whether what a start adds to its pod sets may be missing: something was removed since, or the label that each start
    /// writes is not there.
    pub fn lacks_marks(&self, row: &Framework) -> bool {
        let unlabelled = |set: &PodSetView| !set.marks(row).labels.contains_key(POD_SET_LABEL);
        self.related.since_start.marks_lost || self.pod_sets.iter().any(unlabelled)
    }
}

impl JobView {
    /// Returns whether this earlier version of a job was found running by the manager at its start, and the job runs since.
    pub(super) fn was_running_at_start(&self, now: &Self) -> bool {
        self.related.since_start.found_at_start && self.uid == now.uid && !now.suspended
    }
}

/// What follows from earlier versions of a running job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SinceStart {
    /// Whether it was found running by a manager that had not read everything yet, and runs since.
    pub found_at_start: bool,
    /// Whether another client has removed something from its pod templates.
    pub marks_lost: bool,
    /// What earlier versions of the manager charged it for, if it was found running and that is not what it asks for.
    pub found: Option<Arc<FoundRunning>>,
}

/// Other objects from which the pod sets of a job are made, and earlier versions of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelatedView {
    /// What follows from earlier versions of it.
    pub since_start: SinceStart,
    /// The objects.
    pub reads: Vec<RelatedKey>,
    /// The object that must be known before the pod sets are.
    pub waits_for: Option<Awaited>,
    /// Whether the job was found running and the objects may have changed since its start, so that its pod sets may be others than
    /// those that run.
    pub changed_since_start: bool,
    /// An annotation that the job is to have before it is compared with its slices, and has not: the name of its next slice is
    /// made from it.
    pub outdated_annotation: Option<(&'static str, String)>,
}

/// What the annotations of an object below a controller say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChildMarks {
    /// Whether it was held back, as it has no room beside other objects below its controller.
    pub waits_for_room: bool,
    /// Whether the manager suspended it because the job above it may not run, and is to let it run again.
    pub stopped_below: bool,
    /// Whether the operator of its controller says in it of which version of the controller it is a copy.
    pub is_copy: bool,
}

/// What a job asks for beside its pod sets, mostly by Kueue's labels and annotations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOptions {
    /// The priority-class label, when not empty.
    pub priority_class: Option<Arc<str>>,
    /// The prebuilt Workload named by an annotation or label.
    pub prebuilt_workload: Option<Arc<str>>,
    /// The max-exec-time label, when it is a positive number.
    pub max_exec_seconds: Option<i32>,
    /// The admission-gated-by annotation, when not empty.
    pub gated_by: Option<String>,
    /// Whether a stop of several writes was begun: the annotation says so until the templates are restored.
    pub stopping: bool,
    /// What its annotations say about its place below a controller.
    pub child: ChildMarks,
    /// Annotations to copy to the Workload: the provisioning parameters.
    pub annotations_to_copy: BTreeMap<String, String>,
    /// Number of pods that must succeed, if the kind has it and it is set.
    pub completions: Option<i32>,
    /// Whether a change of the count changes the completions as well.
    pub completions_follow_parallelism: bool,
    /// Identifies the Workload of the present size among the Workloads of earlier sizes, if the job is elastic: it may
    /// be resized while it runs, and each larger size gets a Workload of its own.
    pub slice: Option<Arc<str>>,
    /// Whether it runs, asks to be elastic and cannot be: its templates lack the gate.
    pub lacks_elastic_gate: bool,
    /// Distinguishes pods that it controls from pods that only name it.
    pub pod_identity: PodIdentity,
    /// Whether the job is not managed, whatever its labels say.
    pub skipped: bool,
    /// Where a start writes patches of the templates, if the kind has them.
    pub patches: Option<Arc<StartPatches>>,
    /// A node selector for all pods that stands in for those of the pod sets, if the kind has it and it is set.
    pub shared_node_selector: Option<Arc<BTreeMap<String, String>>>,
}

/// One pod set of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSetView {
    /// Its name.
    pub name: Arc<str>,
    /// Number of requested pods.
    pub count: i32,
    /// Minimum number of pods for partial admission.
    pub min_count: Option<i32>,
    /// Number of groups of pods in it, if the kind has them.
    pub sub_groups: Option<i32>,
    /// Fingerprint of the template, without counts.
    pub fingerprint: TemplateFingerprint,
    /// What one pod requests by the template, where it may be compared with that of another object: the job makes jobs, or has a controller.
    pub requests: Option<Arc<Requests>>,
    /// The part of the template to which admission may add.
    pub template: Arc<TemplateInfo>,
    /// JSON pointer to the template in the object.
    pub pointer: Arc<str>,
    /// Whether the template has metadata, to which a JSON patch can add.
    pub has_metadata: bool,
    /// What a start adds to, if the pod set describes its pods by other fields than those of a template, or what a start has
    /// listed beside it.
    pub described: Option<Arc<TemplateInfo>>,
    /// A template that the job does not have yet: a start writes it.
    pub missing: Option<Arc<MissingTemplate>>,
}

impl PodSetView {
    /// Returns what a start adds to.
    pub fn start_from(&self) -> &TemplateInfo {
        self.described.as_ref().unwrap_or(&self.template)
    }

    /// Returns where a start's additions are, with what else is there.
    pub(super) fn marks(&self, row: &Framework) -> Cow<'_, TemplateInfo> {
        let apart = row.fields.roles.is_listed() || row.fields.roles.is_decided_at_start();
        match &self.described {
            Some(described) => Cow::Borrowed(described),
            // What it adds is listed beside the template, and nothing is.
            None if apart => Cow::Owned(TemplateInfo::default()),
            None => Cow::Borrowed(&self.template),
        }
    }
}

/// A template that a start writes.
#[derive(Clone, Debug, PartialEq)]
pub struct MissingTemplate {
    /// Where.
    pub pointer: String,
    /// The template.
    pub template: Value,
}

/// Additions to the template of a pod set, or the original template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSetInfo {
    /// Name of the pod set.
    pub name: Arc<str>,
    /// Number of pods.
    pub count: i32,
    /// Additions, or the original template.
    pub template: Arc<TemplateInfo>,
}

/// Status of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStatus {
    /// Number of reclaimable pods by pod set.
    pub reclaimable_pods: Vec<(Arc<str>, i32)>,
    /// Number of running or terminating pods.
    pub active_pods: i32,
    /// Number of ready pods.
    pub ready_pods: i32,
    /// Number of succeeded pods.
    pub succeeded_pods: i32,
    /// Whether the start time is set.
    pub started: bool,
    /// Result of the job, if it has finished.
    pub finished: Option<Finished>,
    /// Whether every pod is ready or has succeeded.
    pub pods_ready: bool,
    /// Whether its controller keeps it from running.
    pub hold: JobHold,
    /// Number of replicas that exist or are to be made, each with a Workload of its own.
    pub replicas: u32,
    /// Whether pods are replaced by those of a newer template.
    pub rolls: bool,
}

/// Whether the controller of a job keeps it from running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JobHold {
    /// The controller of its kind never does.
    #[default]
    Unknown,
    /// It does not.
    Free,
    /// It does: the job must not hold quota.
    Held,
}

/// Result of a finished job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Whether the job completed successfully.
    pub success: bool,
    /// Message of the job's condition.
    pub message: String,
}
