//! What the reconciler needs of a job, decoded once from the raw object.
//!
//! Invariant: a view is a function of one version of the object; nothing in it is remembered from earlier versions.

use super::shape::TemplateFingerprint;
use super::template::TemplateInfo;
use crate::api::ObjectKey;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Group, version, kind and plural of a job kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gvk {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version without the group.
    pub version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Resource name in paths.
    pub plural: &'static str,
}

impl Gvk {
    /// `group/version`, or the version alone in the core group.
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
    /// API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }
}

/// A job as the reconciler sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Namespace and name.
    pub key: ObjectKey,
    /// UID.
    pub uid: Arc<str>,
    /// Version of the object that this view shows.
    pub resource_version: String,
    /// Generation of the spec.
    pub generation: i64,
    /// Creation time; the epoch when the object carries none.
    pub created: Timestamp,
    /// The object carries a deletion time.
    pub deleting: bool,
    /// The queue-name label, when not empty.
    pub queue_name: Option<Arc<str>>,
    /// The priority-class label, when not empty.
    pub priority_class: Option<Arc<str>>,
    /// The prebuilt Workload that an annotation or label names.
    pub prebuilt_workload: Option<Arc<str>>,
    /// The max-exec-time label, when it is a positive number.
    pub max_exec_seconds: Option<i32>,
    /// The admission-gated-by annotation, when not empty.
    pub gated_by: Option<String>,
    /// Annotations that pass to the Workload: the provisioning parameters.
    pub annotations_to_copy: BTreeMap<String, String>,
    /// The controller that owns the job.
    pub controller: Option<OwnerRef>,
    /// Who runs the job, when the kind has such a field and it is set.
    pub managed_by: Option<String>,
    /// The job is told not to run.
    pub suspended: bool,
    /// Its user expects it to be resized while it runs.
    pub elastic: bool,
    /// A change of count changes the completions as well.
    pub completions_follow_parallelism: bool,
    /// The groups of equal pods.
    pub pod_sets: Vec<PodSetView>,
    /// How far the job is.
    pub status: JobStatus,
    /// Pods by pod set that will not run again.
    pub reclaimable_pods: Vec<(Arc<str>, i32)>,
}

/// One group of equal pods of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PodSetView {
    /// Its name.
    pub name: Arc<str>,
    /// Pods that the job asks for.
    pub count: i32,
    /// How few would do.
    pub min_count: Option<i32>,
    /// Fingerprint of the template; counts are not part of it.
    pub fingerprint: TemplateFingerprint,
    /// What admission may add to.
    pub template: Arc<TemplateInfo>,
}

/// What a pod set shall get on top of its template, or what its template was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSetInfo {
    /// Name of the pod set.
    pub name: Arc<str>,
    /// Its count.
    pub count: i32,
    /// Additions, or the original.
    pub template: Arc<TemplateInfo>,
}

/// How far a job is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStatus {
    /// Pods that run or are ending.
    pub active_pods: i32,
    /// Pods that are ready.
    pub ready_pods: i32,
    /// Pods that succeeded.
    pub succeeded_pods: i32,
    /// The start time is set.
    pub started: bool,
    /// The condition Suspended is true.
    pub has_suspended_condition: bool,
    /// The end of the job.
    pub finished: Option<Finished>,
    /// Every pod is ready or has succeeded.
    pub pods_ready: bool,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// It completed.
    pub success: bool,
    /// What the job says about it.
    pub message: String,
}
