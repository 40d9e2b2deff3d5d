//! Defaulting of pods, and of objects whose pod templates are marked so that their pods are held.
//!
//! Invariant: a pod that must wait has the gate of admission before it is stored, so that no scheduler sees it without.

use super::job_defaults::JobDefaults;
use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use super::submitter::{self, Origin, Submitter};
use crate::api::names::SUSPENDING_PARENT_ANNOTATION;
use crate::frameworks::{Framework, hold_pod, is_marked_for_other_framework};

/// Holds a new pod that must wait. The pods of a template that was marked wait wherever they are; other pods only in selected
/// namespaces, and a pod below a queued object is left as it is. No pod is held that the controller would not start: one of a
/// framework that is not enabled, or a plain pod where only frameworks with pods of their own are. In a namespace that is not
/// known yet, a pod of a queue is held: the controller starts each pod that was held, wherever it is.
pub(super) fn hold(row: &'static Framework, request: &ReviewRequest<'_>) -> ReviewResponse {
    let defaults = match JobDefaults::of(row, request) {
        Ok(defaults) => defaults,
        Err(response) => return response,
    };
    let settings = request.ctx.settings;
    let parent = defaults.job.annotation(SUSPENDING_PARENT_ANNOTATION);
    let starts = parent
        .map_or_else(|| settings.frameworks.contains(row.name), |parent| settings.starts_pods_of(parent));
    if !starts {
        return leave(request, defaults.submitter);
    }
    let mut patch = if parent.is_some() {
        Patch::new(request.object)
    } else if defaults.selected == Some(false) || defaults.ancestor.is_some() {
        return leave(request, defaults.submitter);
    } else if defaults.selected.is_none() && !defaults.must_wait && settings.manage_jobs_without_queue_name {
        // Nothing stops a pod without a queue later.
        return ReviewResponse::NotYet(format!(
            "namespace {:?} is not known yet; try again",
            request.namespace
        ));
    } else if let Some(response) = defaults.unless_owner_is_known() {
        return response;
    } else if defaults.must_wait {
        defaults.patch
    } else {
        return allow(defaults.patch, defaults.submitter);
    };
    match hold_pod(patch.object(), &settings.gates) {
        Ok(changes) => patch.make(&changes),
        Err(error) => return ReviewResponse::Denied(error.to_string()),
    }
    allow(patch, defaults.submitter)
}

/// Allows an object as it is but for its submitter, which must not stay as the request says: a user can add the gate of admission.
fn leave(request: &ReviewRequest<'_>, submitter: Option<Submitter>) -> ReviewResponse {
    if submitter.is_none() {
        return ReviewResponse::allowed();
    }
    allow(Patch::new(request.object), submitter)
}

fn allow(mut patch: Patch, submitter: Option<Submitter>) -> ReviewResponse {
    let warnings = submitter::record(submitter, &mut patch);
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings }
}

/// Marks the pod templates of an object whose pods must wait.
pub(super) fn mark_templates(row: &'static Framework, request: &ReviewRequest<'_>) -> ReviewResponse {
    if is_marked_for_other_framework(row, request.object) {
        return match Submitter::of_new(request, Origin::Nothing) {
            Ok(submitter) => leave(request, submitter),
            Err(response) => response,
        };
    }
    let defaults = match JobDefaults::of(row, request) {
        Ok(defaults) => defaults,
        Err(response) => return response,
    };
    if let Some(response) = defaults.unless_owner_is_known() {
        return response;
    }
    let JobDefaults { mut patch, must_wait, submitter, .. } = defaults;
    let warnings = submitter::record(submitter, &mut patch);
    if must_wait {
        let changes = row.mark_templates(patch.object(), &request.ctx.settings.gates);
        patch.make(&changes);
        submitter::mark_templates(row, request, &mut patch);
    }
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings }
}
