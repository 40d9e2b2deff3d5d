//! Reviews of batch/v1 Jobs: defaulting of new Jobs, and validation of new and changed Jobs.
//!
//! Invariant: a Job that must be queued is suspended before it is stored, so that no pod starts before admission.

use serde_json::json;

use super::ancestry::{controller_of, managed_ancestor};
use super::job_view::JobFields;
use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use crate::api::names::{
    DEFAULT_NAME, ELASTIC_JOB_ANNOTATION, MULTIKUEUE_CONTROLLER, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL,
};
use crate::api::selector::matches;
use crate::api::validation::{Errors, FieldCursor, Gate};
use crate::frameworks::{Ancestor, Management};

/// Group and kind.
const KIND: (&str, &str) = ("batch", "Job");
/// The value of `spec.managedBy` for the built-in Job controller.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// Defaults queue, priority class, `suspend` and `managedBy` of a new Job.
pub(super) fn default(request: &ReviewRequest<'_>) -> ReviewResponse {
    let mut errors = Errors::new();
    let job = JobFields::read(&FieldCursor::root(request.object), &mut errors);
    if !errors.is_empty() {
        return ReviewResponse::from_errors(&errors);
    }
    let (ctx, settings) = (request.ctx, request.ctx.settings);
    let mut patch = Patch::new(request.object);
    let controller = controller_of(request.object);
    let kinds = settings.managed_kinds();
    let owned =
        controller.as_ref().is_some_and(|owner| kinds.owner_management(owner, KIND) != Management::None);
    let selected = ctx
        .objects
        .namespace_labels(request.namespace)
        .is_some_and(|labels| matches(&settings.managed_namespaces, labels));

    // An empty label equals an absent one.
    let mut queue = job.queue.filter(|name| !name.is_empty()).map(str::to_owned);
    if queue.is_none()
        && !owned
        && selected
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
    let ancestor = match managed_ancestor(ctx, KIND, request.namespace, job.uid, controller) {
        Ok(ancestor) => ancestor,
        Err(error) => return ReviewResponse::Denied(error.to_string()),
    };
    let managed = !queue.is_empty() || (settings.manage_jobs_without_queue_name && selected);
    let must_suspend = managed
        && match ancestor {
            None => true,
            Some(Ancestor::Queued(_)) => false,
            // Whether this owner is queued is unknown, so a Job that names a queue itself is queued.
            Some(Ancestor::Unsupported(_)) => !queue.is_empty(),
        };
    if must_suspend && !job.suspended {
        patch.set(&["spec", "suspend"], json!(true));
    }
    if settings.gates.is_enabled(Gate::MultiKueue)
        && matches!(job.managed_by, None | Some(JOB_CONTROLLER))
        && !queue.is_empty()
        && ctx.objects.queue_is_multikueue(request.namespace, &queue)
    {
        patch.set(&["spec", "managedBy"], json!(MULTIKUEUE_CONTROLLER));
    }
    let mut warnings = Vec::new();
    if job.elastic(settings) && must_suspend {
        // The pod gate of elastic Jobs is not added, because this version never ungates such pods.
        warnings.push(format!(
            "metadata.annotations[{ELASTIC_JOB_ANNOTATION}]: elastic Jobs are not supported by this version; a change of \
             spec.parallelism stops the Job and queues it again"
        ));
    }
    if must_suspend && !queue.is_empty() && !ctx.objects.local_queue_exists(request.namespace, &queue) {
        warnings.push(format!(
            "LocalQueue {queue:?} does not exist in namespace {:?}; the Job stays suspended until it does",
            request.namespace
        ));
    }
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings }
}

/// Validates a new or changed Job.
pub(super) fn validate(request: &ReviewRequest<'_>) -> ReviewResponse {
    let mut errors = Errors::new();
    let job = JobFields::read(&FieldCursor::root(request.object), &mut errors);
    if !errors.is_empty() {
        return ReviewResponse::from_errors(&errors);
    }
    super::job_rules::validate_create(&job, request.ctx.settings, &mut errors);
    if let Some(old) = request.old {
        let mut unread = Errors::new();
        let old = JobFields::read(&FieldCursor::root(old), &mut unread);
        let defaulted = request.ctx.objects.local_queue_exists(request.namespace, DEFAULT_NAME);
        super::job_rules::validate_update(&job, &old, defaulted, request.ctx.settings, &mut errors);
        super::job_rules::validate_min_parallelism(&job, Some(&old), request.ctx.settings, &mut errors);
    } else {
        super::job_rules::validate_min_parallelism(&job, None, request.ctx.settings, &mut errors);
    }
    ReviewResponse::from_errors(&errors)
}
