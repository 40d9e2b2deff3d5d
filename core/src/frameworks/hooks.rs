//! What a row of the table cannot say. The defaults read the row.

use super::job_under_review::JobUnderReview;
use super::patch::FieldChange;
use super::played_status::PlayedState;
use super::related::{Beside, PodSets, Related, RelatedKey};
use super::row::{Framework, Pointer};
use super::start_patches::StartPatches;
use super::view::{JobHold, JobView, PodSetView};
use super::{JobError, status};
use crate::api::validation::{Errors, FieldError, Gate, Gates};
use jiff::Timestamp;
use serde_json::Value;
use std::fmt::Debug;
use std::sync::Arc;

/// Additions of a kind to its row.
pub trait Hooks: Debug + Sync {
    /// Returns the minimum number of pods of a pod set for partial admission.
    fn min_count(&self, _job: &Value, _count: i32) -> Result<Option<i32>, JobError> {
        Ok(None)
    }

    /// Returns the pod template that follows from a role, with its name, if the roles of the kind describe their pods themselves.
    fn pod_template(&self, _job: &Value, role: &Value, _name: &str) -> Result<Value, JobError> {
        Ok(role.clone())
    }

    /// Returns the objects of the row's related kinds that the pod sets of a job need, under the same condition.
    fn related(&self, _job: &Value) -> Result<Vec<RelatedKey>, JobError> {
        Ok(Vec::new())
    }

    /// Returns the pod sets of a job, given those that its row reads, if the flags of the row say that a hook completes them. A
    /// related object without which they cannot be made is awaited, also if it is missing: an error would forget which object
    /// the job reads.
    fn complete_pod_sets(
        &self,
        _job: &Value,
        pod_sets: Vec<Value>,
        _beside: Beside<'_>,
    ) -> Result<PodSets, JobError> {
        Ok(PodSets::Known(pod_sets))
    }

    /// Returns what tells the Workload of an elastic job from those made for its earlier sizes.
    fn slice(&self, _job: &Value, generation: i64) -> Result<String, JobError> {
        Ok(generation.to_string())
    }

    /// Returns an annotation that an elastic job has to get before it is compared with its slices.
    fn outdated_annotation(
        &self,
        _job: &Value,
        _related: &dyn Related,
    ) -> Result<Option<(&'static str, String)>, JobError> {
        Ok(None)
    }

    /// Returns a job in the form in which it is charged now as earlier versions of the manager charged it; `None` if these charged it
    /// for the same.
    fn as_charged_before(&self, _job: &Value) -> Option<Value> {
        None
    }

    /// Returns the value of the suspend field of a job that starts; null removes the field.
    fn not_suspended(&self) -> Value {
        Value::Bool(false)
    }

    /// Returns whether the controller of a job keeps it from running.
    fn hold(&self, _job: &Value) -> Result<JobHold, JobError> {
        Ok(JobHold::Unknown)
    }

    /// Returns whether pods of a job may run, where the status that the row reads does not say it.
    fn may_have_pods(&self, _job: &Value, _related: &dyn Related) -> Result<Option<bool>, JobError> {
        Ok(None)
    }

    /// Returns where a start writes to a pod set that the hook adds to those of the row.
    fn place_of(&self, _job: &Value, _pod_set: &str) -> Option<String> {
        None
    }

    /// Returns where a start writes patches of the pod templates, if the kind has such a place.
    fn start_patches(&self, _job: &Value) -> Result<Option<StartPatches>, JobError> {
        Ok(None)
    }

    /// Returns whether a job is not managed, whatever its labels say.
    fn skips(&self, _job: &Value) -> bool {
        false
    }

    /// Returns whether a change of the count changes the completions as well.
    fn completions_follow_parallelism(&self, _job: &Value) -> Result<bool, JobError> {
        Ok(false)
    }

    /// Returns the number of pods that must succeed, if it is set.
    fn completions(&self, _job: &Value) -> Result<Option<i32>, JobError> {
        Ok(None)
    }

    /// Returns whether every pod is ready or has succeeded. The other fields of the view are set.
    fn pods_ready(&self, row: &Framework, job: &Value, view: &JobView) -> Result<bool, JobError> {
        status::pods_ready(row, job, view)
    }

    /// Returns the number of reclaimable pods by pod set. The other fields of the view are set.
    fn reclaimable_pods(
        &self,
        row: &Framework,
        job: &Value,
        view: &JobView,
    ) -> Result<Vec<(Arc<str>, i32)>, JobError> {
        status::reclaimable_pods(row, job, view)
    }

    /// Returns the number of replicas that have a Workload each, if the row says that they have.
    fn replicas(&self, _job: &Value) -> Result<u32, JobError> {
        Ok(1)
    }

    /// Returns whether pods are replaced by those of a newer template, one after the other.
    fn rolls(&self, _job: &Value) -> Result<bool, JobError> {
        Ok(false)
    }

    /// Returns the fields to set so that a pod set gets another number of pods.
    fn count_fields(&self, _view: &JobView, _set: &PodSetView, _count: i32) -> Vec<(Pointer, i32)> {
        Vec::new()
    }

    /// Returns whether users and autoscalers can resize an object of the kind that runs on the quota of a job above it.
    fn is_sized_apart_from_owner(&self) -> bool {
        false
    }

    /// Returns whether the operator of the kind leaves objects that it has made suspended as they are when the object above runs again.
    fn keeps_suspended_children(&self) -> bool {
        false
    }

    /// Returns the annotations by which the operator of a controller knows that an object of the kind is an unchanged copy of what the
    /// controller says. Where none of them is there, the operator copies it again, in place.
    fn copy_annotations(&self) -> &'static [&'static str] {
        &[]
    }

    /// Adds to a played status what the rules of the row do not say. They hold already.
    fn play(&self, _job: &mut Value, _state: PlayedState, _now: Timestamp) -> Result<(), JobError> {
        Ok(())
    }

    /// Returns how often a job runs all of its pods, one set after the other.
    fn waves(&self, _job: &Value) -> i32 {
        1
    }

    /// Returns fields that only the rules of the kind read.
    fn review_fields(&self) -> &'static [ReviewField] {
        &[]
    }

    /// Returns parts of the object that rules of the kind read as a whole.
    fn reviewed_parts(&self) -> &'static [Pointer] {
        &[]
    }

    /// Returns how messages name the template of a pod set that is made from other objects, and that the webhook checks.
    fn place_under_review(&self, _pod_set: &str) -> Option<String> {
        None
    }

    /// Returns what the webhook sets in a new job, whether the job is queued or not.
    fn defaults(&self, _job: &Value, _gates: &Gates) -> Vec<FieldChange> {
        Vec::new()
    }

    /// Returns what the webhook sets in the marked templates of an object, beside the marks of its row.
    fn template_marks(&self, _object: &Value, _gates: &Gates) -> Vec<FieldChange> {
        Vec::new()
    }

    /// Checks a new or changed job by the rules of the kind, beyond those for every job.
    fn validate(&self, _job: &JobUnderReview<'_>, _errors: &mut Errors) {}

    /// Returns which rules a change, or a new job if there is no old one, is checked by.
    fn review_scope(
        &self,
        _job: &JobUnderReview<'_>,
        _old: Option<&JobUnderReview<'_>>,
        _settings: RuleSettings<'_>,
    ) -> ReviewScope {
        ReviewScope::Full
    }

    /// Returns a path of a field as messages show it.
    fn shown_path(&self, path: String) -> String {
        path
    }

    /// Checks a change, or a new job if there is no old one. Called after all other rules.
    fn validate_change(
        &self,
        _job: &JobUnderReview<'_>,
        _old: Option<&JobUnderReview<'_>>,
        _settings: RuleSettings<'_>,
        _errors: &mut Errors,
    ) {
    }

    /// Checks a change of the number of replicas of an object in a queue by the subresource `scale`: the fields of both are those
    /// of a Scale. Called where the row says so.
    fn validate_scale(&self, _scale: &JobUnderReview<'_>, _old: &JobUnderReview<'_>, _errors: &mut Errors) {}
}

/// What rules of a kind depend on beside the objects.
#[derive(Clone, Copy, Debug)]
pub struct RuleSettings<'a> {
    /// Feature gates.
    pub gates: &'a Gates,
    /// Which jobs are managed.
    pub managed: ManagedJobs,
    /// Objects that jobs read.
    pub related: &'a dyn Related,
}

/// Which jobs are managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedJobs {
    /// Those that name a queue.
    WithQueue,
    /// All.
    All,
}

impl RuleSettings<'_> {
    /// Returns whether a new job, or the change of a job, is checked by rules that hold for managed jobs: no change is, unless
    /// the job is managed after it, or leaves its queue by it.
    pub(super) fn concerns(&self, job: &JobUnderReview<'_>, old: Option<&JobUnderReview<'_>>) -> bool {
        let leaves = self.gates.is_enabled(Gate::ValidateRayAndSparkJobUpdates);
        old.is_none_or(|old| self.manages(job) || leaves && self.manages(old))
    }

    /// Returns whether a job is managed by its labels alone.
    pub(super) fn manages(&self, job: &JobUnderReview<'_>) -> bool {
        self.managed == ManagedJobs::All || job.queue.is_some_and(|queue| !queue.is_empty())
    }
}

/// Rules by which an object is checked.
#[derive(Debug)]
pub enum ReviewScope {
    /// All of them.
    Full,
    /// Those for changes, and these faults in place of those for new objects.
    Changes(Vec<FieldError>),
    /// None.
    Nothing,
}

/// A field of an object under review.
#[derive(Clone, Copy, Debug)]
pub enum ReviewField {
    /// A text.
    Text(Pointer),
    /// A boolean.
    Boolean(Pointer),
    /// A map.
    Map(Pointer),
    /// An integer.
    Integer(Pointer),
}

impl ReviewField {
    /// Returns where it is.
    pub const fn pointer(&self) -> Pointer {
        match self {
            Self::Text(pointer) | Self::Boolean(pointer) | Self::Map(pointer) | Self::Integer(pointer) => {
                pointer
            }
        }
    }
}

/// For rows that say everything.
#[derive(Debug)]
pub(super) struct NoHooks;

impl Hooks for NoHooks {}
