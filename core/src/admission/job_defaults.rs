//! What defaulting decides for jobs of every kind: their queue, their priority class, and whether they must wait for admission.
//!
//! Invariants: an object below one that is queued does not wait, as it runs on the quota of the other; an object in no queue is
//! neither refused nor changed for an owner that cannot be seen.

use serde_json::{Value, json};

use super::ancestry::objects_above;
use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use super::submitter::{Origin, Submitter};
use crate::api::names::{DEFAULT_NAME, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL, SUSPENDING_PARENT_ANNOTATION};
use crate::api::selector::matches;
use crate::api::validation::{Errors, Gate};
use crate::frameworks::{
    Above, End, Framework, JobUnderReview, OwnerRef, Searched, is_disowned_pod, missing_owner,
};

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
    /// The account to be recorded in it, if it is new and submitters are recorded.
    pub(super) submitter: Option<Submitter>,
    /// Its controller, if whether something is queued in its place depends on that, and it is not known.
    unknown: Option<OwnerRef>,
    /// Whether it is stored already.
    is_stored: bool,
}

impl<'a> JobDefaults<'a> {
    /// Reads the object of a review.
    ///
    /// # Errors
    /// A field is malformed, or the owner references are, or what made a pod is not known yet: the response.
    pub(super) fn of(row: &'static Framework, request: &ReviewRequest<'a>) -> Result<Self, ReviewResponse> {
        let mut errors = Errors::new();
        let job = JobUnderReview::read(row, request.object, &mut errors);
        if !errors.is_empty() {
            return Err(ReviewResponse::from_errors(&errors));
        }
        let (ctx, settings) = (request.ctx, request.ctx.settings);
        let mut patch = Patch::new(request.object);
        // The controller of that object lets go of such a pod, which runs on then.
        let controller = OwnerRef::controller_of(request.object);
        let controller = controller.filter(|owner| !is_disowned(request, &job, owner));
        let group_kind = (row.gvk.group, row.gvk.kind);
        // An empty label equals an absent one.
        let mut queue = job.queue.filter(|name| !name.is_empty()).map(str::to_owned);
        let object = Searched {
            kind: group_kind,
            uid: job.uid,
            names_queue: queue.is_some(),
            controller: controller.as_ref(),
        };
        let above = objects_above(ctx, request.namespace, object)
            .map_err(|error| ReviewResponse::Denied(error.to_string()))?;
        let (ancestor, unknown) = match above {
            Above::Queued(owner) => (Some(owner), None),
            Above::Nothing(End::Missing(owner)) => (None, Some(owner)),
            Above::Nothing(End::Top | End::Unread(_)) => (None, None),
        };
        let kinds = settings.managed_kinds();
        let owned =
            ancestor.is_some() || controller.as_ref().is_some_and(|owner| kinds.may_own(owner, group_kind));
        let labels = ctx.objects.namespace_labels(request.namespace);
        let selected = labels.map(|labels| matches(&settings.managed_namespaces, labels));
        let is_selected = selected == Some(true);

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
        let managed = !queue.is_empty() || (settings.manage_jobs_without_queue_name && is_selected);
        let must_wait = managed && ancestor.is_none();
        let is_marked = job.annotation(SUSPENDING_PARENT_ANNOTATION).is_some()
            && controller.as_ref().is_some_and(|owner| kinds.creates(owner, group_kind));
        // The pods of a marked template may have Workloads of their own.
        let origin = if is_marked && ancestor.is_none() {
            Origin::Maker(object)
        } else if owned || queue.is_empty() {
            Origin::Nothing
        } else {
            Origin::Account
        };
        let submitter = Submitter::of_new(request, origin)?;
        let is_stored = request.old.is_some();
        Ok(Self { job, patch, queue, selected, ancestor, must_wait, submitter, unknown, is_stored })
    }

    /// Returns the answer for an object that would have to wait for a queue although its controller is not known: that may be so new
    /// that the watch has not delivered it. A stored object is left as it is, as its controller may also be gone. `None` if the
    /// controller is known, or does not matter, because the object is in no queue.
    pub(super) fn unless_owner_is_known(&self) -> Option<ReviewResponse> {
        let unknown = self.unknown.as_ref().filter(|_| self.must_wait)?;
        Some(if self.is_stored {
            ReviewResponse::allowed()
        } else {
            ReviewResponse::NotYet(missing_owner(unknown))
        })
    }
}

/// Returns whether a pod names a controller that does not take it for its own.
fn is_disowned(request: &ReviewRequest<'_>, job: &JobUnderReview<'_>, owner: &OwnerRef) -> bool {
    let name = request.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let find = |owner: &OwnerRef| {
        let view = request.ctx.objects.owner(request.namespace, owner);
        view.filter(|view| view.uid == owner.uid).map(|view| (view.pod_identity, view.controller))
    };
    job.row.is_pod() && is_disowned_pod((name, |key: &str| job.label(key)), owner, find)
}
