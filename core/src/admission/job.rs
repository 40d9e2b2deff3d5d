//! Reviews of jobs: defaulting of new jobs that a field suspends, and validation of new and changed jobs of every kind.
//!
//! Invariant: a job that must be queued is suspended before it is stored, so that no pod starts before admission.

use serde_json::{Value, json};

use super::child_size;
use super::job_defaults::JobDefaults;
use super::job_rules;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use super::submitter;
use crate::api::names::{
    DEFAULT_NAME, ELASTIC_JOB_ANNOTATION, MULTIKUEUE_CONTROLLER, QUEUE_NAME_LABEL, STOPPED_BELOW_ANNOTATION,
    WAITS_FOR_ROOM_ANNOTATION,
};
use crate::api::validation::{Errors, Gate};
use crate::frameworks::{
    Framework, JobUnderReview, ManagedJobs, OwnerRef, ReviewScope, RuleSettings,
    is_marked_for_other_framework,
};

/// Defaults queue, priority class, and the fields that suspend a new job and name its controller.
pub(super) fn default(row: &'static Framework, request: &ReviewRequest<'_>) -> ReviewResponse {
    let defaults = match JobDefaults::of(row, request) {
        Ok(defaults) => defaults,
        Err(response) => return response,
    };
    if let Some(response) = defaults.unless_owner_is_known() {
        return response;
    }
    let JobDefaults { job, mut patch, queue, must_wait, ancestor, submitter, .. } = defaults;
    let (ctx, settings) = (request.ctx, request.ctx.settings);
    if let Some(suspend) = row.fields.suspend
        && must_wait
        && !job.suspended
    {
        patch.set_at(suspend, json!(true));
    }
    if ancestor.is_some() && child_size::is_made_suspended(request, &job) {
        patch.set(&["metadata", "annotations", STOPPED_BELOW_ANNOTATION], json!("true"));
    }
    if let Some(above) = child_size::without_room(request, &job) {
        patch.set(&["metadata", "annotations", WAITS_FOR_ROOM_ANNOTATION], json!("true"));
        if let Some(suspend) = row.fields.suspend {
            patch.set_at(suspend, json!(true));
        }
        if let Some(name) = above.queue_name.filter(|_| queue.is_empty()) {
            patch.set(&["metadata", "labels", QUEUE_NAME_LABEL], json!(name));
        }
    }
    if let Some(managed_by) = row.fields.managed_by
        && settings.gates.is_enabled(Gate::MultiKueue)
        && job.managed_by.is_none_or(|name| name == managed_by.built_in)
        && !queue.is_empty()
        && ctx.objects.queue_is_multikueue(request.namespace, &queue)
    {
        patch.set_at(managed_by.field, json!(MULTIKUEUE_CONTROLLER));
    }
    let changes = row.hooks.defaults(patch.object(), &settings.gates);
    patch.make(&changes);
    let mut warnings = submitter::record(submitter, &mut patch);
    let owner = ancestor.as_ref();
    let templates = job.templates_to_gate(owner, &settings.gates);
    if !templates.is_empty() && !must_wait && owner.is_none() {
        warnings.push(format!(
            "metadata.annotations[{ELASTIC_JOB_ANNOTATION}]: the {} is in no queue; its pods keep the scheduling gate \
             {ELASTIC_JOB_ANNOTATION} until it is",
            row.gvk.kind
        ));
    }
    for template in templates {
        patch.add_gate(&template, ELASTIC_JOB_ANNOTATION);
    }
    if must_wait && !queue.is_empty() && !ctx.objects.local_queue_exists(request.namespace, &queue) {
        warnings.push(format!(
            "LocalQueue {queue:?} does not exist in namespace {:?}; the {} stays suspended until it does",
            request.namespace, row.gvk.kind
        ));
    }
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings }
}

/// Validates a change of the number of replicas by the subresource `scale`. A Scale has no labels: the queue is that of the
/// object as it is known.
pub(super) fn validate_scale(row: &'static Framework, request: &ReviewRequest<'_>) -> ReviewResponse {
    let name = request.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let objects = request.ctx.objects;
    let stored = objects.owner(
        request.namespace,
        &OwnerRef {
            api_version: row.gvk.api_version(),
            kind: row.gvk.kind.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
        },
    );
    let queue = stored.and_then(|object| object.queue_name).filter(|queue| !queue.is_empty());
    let Some(old) = request.old.filter(|_| queue.is_some()) else { return ReviewResponse::allowed() };
    // A Scale has no pod template to be read.
    let read = |scale| JobUnderReview::read(row, scale, &mut Errors::new());
    let mut errors = Errors::new();
    row.hooks.validate_scale(&read(request.object), &read(old), &mut errors);
    ReviewResponse::from_errors(&errors)
}

/// Validates a new or changed job.
pub(super) fn validate(row: &'static Framework, request: &ReviewRequest<'_>) -> ReviewResponse {
    let (mut errors, settings) = (Errors::new(), request.ctx.settings);
    submitter::check_job_change(request, &mut errors);
    if is_marked_for_other_framework(row, request.object) {
        return ReviewResponse::from_errors(&errors);
    }
    let job = JobUnderReview::read(row, request.object, &mut errors);
    if !errors.is_empty() {
        return ReviewResponse::from_errors(&errors);
    }
    // Malformed fields of the stored object equal absent ones: the change may repair them.
    let old = request.old.map(|old| JobUnderReview::read(row, old, &mut Errors::new()));
    let managed =
        if settings.manage_jobs_without_queue_name { ManagedJobs::All } else { ManagedJobs::WithQueue };
    let related = request.ctx.objects.related();
    let rules = RuleSettings { gates: &settings.gates, managed, related };
    child_size::check(request, &job, old.as_ref(), &mut errors);
    let full = match row.hooks.review_scope(&job, old.as_ref(), rules) {
        ReviewScope::Nothing => return ReviewResponse::from_errors(&errors),
        ReviewScope::Full => {
            job_rules::validate_create(&job, old.as_ref(), settings, &mut errors);
            job_rules::validate_made_pod_sets(&job, related, settings, &mut errors);
            true
        }
        ReviewScope::Changes(faults) => {
            errors.extend(faults);
            false
        }
    };
    if let Some(old) = &old {
        let defaulted = request.ctx.objects.local_queue_exists(request.namespace, DEFAULT_NAME);
        job_rules::validate_update(&job, old, defaulted, settings, &mut errors);
    }
    if full {
        row.hooks.validate_change(&job, old.as_ref(), rules, &mut errors);
    }
    if let Some(old) = &old {
        errors.retain_new(|| {
            let mut stored = Errors::new();
            job_rules::validate_create(old, None, settings, &mut stored);
            job_rules::validate_made_pod_sets(old, related, settings, &mut stored);
            row.hooks.validate_change(old, None, rules, &mut stored);
            stored.take()
        });
    }
    ReviewResponse::from_errors(&errors)
}
