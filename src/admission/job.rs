//! Reviews of jobs that a field suspends: defaulting of new jobs, and validation of new and changed jobs.
//!
//! Invariant: a job that must be queued is suspended before it is stored, so that no pod starts before admission.

use serde_json::json;

use super::ancestry::{controller_of, managed_ancestor};
use super::job_rules;
use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use crate::api::names::{
    DEFAULT_NAME, ELASTIC_JOB_ANNOTATION, MULTIKUEUE_CONTROLLER, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL,
};
use crate::api::selector::matches;
use crate::api::validation::{Errors, Gate};
use crate::frameworks::{Ancestor, Framework, JobUnderReview, Management};

/// Defaults queue, priority class, and the fields that suspend a new job and name its controller.
pub(super) fn default(row: &'static Framework, request: &ReviewRequest<'_>) -> ReviewResponse {
    let mut errors = Errors::new();
    let job = JobUnderReview::read(row, request.object, &mut errors);
    if !errors.is_empty() {
        return ReviewResponse::from_errors(&errors);
    }
    let (ctx, settings) = (request.ctx, request.ctx.settings);
    let mut patch = Patch::new(request.object);
    let controller = controller_of(request.object);
    let kinds = settings.managed_kinds();
    let group_kind = (row.gvk.group, row.gvk.kind);
    let owned = controller
        .as_ref()
        .is_some_and(|owner| kinds.owner_management(owner, group_kind) != Management::None);
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
    let ancestor = match managed_ancestor(ctx, group_kind, request.namespace, job.uid, controller) {
        Ok(ancestor) => ancestor,
        Err(error) => return ReviewResponse::Denied(error.to_string()),
    };
    let managed = !queue.is_empty() || (settings.manage_jobs_without_queue_name && selected);
    let must_suspend = managed
        && match ancestor {
            None => true,
            Some(Ancestor::Queued(_)) => false,
            // Whether this owner is queued is unknown, so a job that names a queue itself is queued.
            Some(Ancestor::Unsupported(_)) => !queue.is_empty(),
        };
    if let Some(suspend) = row.fields.suspend
        && must_suspend
        && !job.suspended
    {
        patch.set_at(suspend, json!(true));
    }
    if let Some(managed_by) = row.fields.managed_by
        && settings.gates.is_enabled(Gate::MultiKueue)
        && job.managed_by.is_none_or(|name| name == managed_by.built_in)
        && !queue.is_empty()
        && ctx.objects.queue_is_multikueue(request.namespace, &queue)
    {
        patch.set_at(managed_by.field, json!(MULTIKUEUE_CONTROLLER));
    }
    let mut warnings = Vec::new();
    if job.elastic(&settings.gates) && must_suspend {
        // The pod gate of elastic Jobs is not added, because this version never ungates such pods.
        warnings.push(format!(
            "metadata.annotations[{ELASTIC_JOB_ANNOTATION}]: elastic Jobs are not supported by this version; a change of \
             spec.parallelism stops the Job and queues it again"
        ));
    }
    if must_suspend && !queue.is_empty() && !ctx.objects.local_queue_exists(request.namespace, &queue) {
        warnings.push(format!(
            "LocalQueue {queue:?} does not exist in namespace {:?}; the {} stays suspended until it does",
            request.namespace, row.gvk.kind
        ));
    }
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings }
}

/// Validates a new or changed job.
pub(super) fn validate(row: &'static Framework, request: &ReviewRequest<'_>) -> ReviewResponse {
    let (mut errors, settings) = (Errors::new(), request.ctx.settings);
    let job = JobUnderReview::read(row, request.object, &mut errors);
    if !errors.is_empty() {
        return ReviewResponse::from_errors(&errors);
    }
    // Malformed fields of the stored object equal absent ones: the change may repair them.
    let old = request.old.map(|old| JobUnderReview::read(row, old, &mut Errors::new()));
    if old.is_none() || row.flags.create_rules_on_update {
        job_rules::validate_create(&job, old.as_ref(), settings, &mut errors);
    }
    if let Some(old) = &old {
        let defaulted = request.ctx.objects.local_queue_exists(request.namespace, DEFAULT_NAME);
        job_rules::validate_update(&job, old, defaulted, settings, &mut errors);
    }
    row.hooks.validate_change(&job, old.as_ref(), &settings.gates, &mut errors);
    if let Some(old) = &old {
        errors.retain_new(|| {
            let mut stored = Errors::new();
            job_rules::validate_create(old, None, settings, &mut stored);
            row.hooks.validate_change(old, None, &settings.gates, &mut stored);
            stored.take()
        });
    }
    ReviewResponse::from_errors(&errors)
}
