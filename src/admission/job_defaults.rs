//! What defaulting decides for jobs of every kind: their queue, their priority class, and whether they must wait for admission.
//!
//! Invariant: an object below one that is queued does not wait, as it runs on the quota of the other.

use serde_json::json;

use super::ancestry::{controller_of, managed_ancestor};
use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use crate::api::names::{DEFAULT_NAME, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL};
use crate::api::selector::matches;
use crate::api::validation::{Errors, Gate};
use crate::frameworks::{AncestryError, Framework, JobUnderReview, Management, OwnerRef};

/// A new or changed object, and what follows from its labels, its namespace and its owners.
pub(super) struct JobDefaults<'a> {
    pub(super) job: JobUnderReview<'a>,
    /// Sets the queue and priority class that it gets by default.
    pub(super) patch: Patch,
    /// Its queue, by default as well; empty without.
    pub(super) queue: String,
    /// Whether its namespace is one of those in which jobs are managed by default; `None` if the namespace is so new that it
    /// is not known yet.
    pub(super) selected: Option<bool>,
    /// Its owner that is queued in its place.
    pub(super) ancestor: Option<OwnerRef>,
    /// Whether it must not run before admission.
    pub(super) must_wait: bool,
}

impl<'a> JobDefaults<'a> {
    /// Reads the object of a review.
    ///
    /// # Errors
    /// A field is malformed, or an owner was not found: the response.
    pub(super) fn of(row: &'static Framework, request: &ReviewRequest<'a>) -> Result<Self, ReviewResponse> {
        let mut errors = Errors::new();
        let job = JobUnderReview::read(row, request.object, &mut errors);
        if !errors.is_empty() {
            return Err(ReviewResponse::from_errors(&errors));
        }
        let (ctx, settings) = (request.ctx, request.ctx.settings);
        let mut patch = Patch::new(request.object);
        let controller = controller_of(request.object);
        let kinds = settings.managed_kinds();
        let group_kind = (row.gvk.group, row.gvk.kind);
        let owned = controller
            .as_ref()
            .is_some_and(|owner| kinds.owner_management(owner, group_kind) != Management::None);
        let labels = ctx.objects.namespace_labels(request.namespace);
        let selected = labels.map(|labels| matches(&settings.managed_namespaces, labels));
        let is_selected = selected == Some(true);

        // An empty label equals an absent one.
        let mut queue = job.queue.filter(|name| !name.is_empty()).map(str::to_owned);
        if queue.is_none()
            && !owned
            && is_selected
            && ctx.objects.local_queue_exists(request.namespace, DEFAULT_NAME)
        {
            patch.set(&["metadata", "labels", QUEUE_NAME_LABEL], json!(DEFAULT_NAME));
            queue = Some(DEFAULT_NAME.to_owned());
        }
        if settings.gates.is_enabled(Gate::WorkloadPriorityClassDefaulting)
            && job.priority_class.is_none_or(str::is_empty)
            && !owned
            && ctx.objects.default_priority_class_exists()
        {
            patch.set(&["metadata", "labels", PRIORITY_CLASS_LABEL], json!(DEFAULT_NAME));
        }

        let queue = queue.unwrap_or_default();
        let ancestor =
            managed_ancestor(ctx, group_kind, request.namespace, job.uid, controller).map_err(|error| {
                match error {
                    AncestryError::Missing(_) => ReviewResponse::NotYet(error.to_string()),
                    AncestryError::Cycle | AncestryError::TooDeep => {
                        ReviewResponse::Denied(error.to_string())
                    }
                }
            })?;
        let managed = !queue.is_empty() || (settings.manage_jobs_without_queue_name && is_selected);
        let must_wait = managed && ancestor.is_none();
        Ok(Self { job, patch, queue, selected, ancestor, must_wait })
    }
}
