//! The account that submitted a queued object, which the webhooks record in an annotation of it: an option of the manager, off by
//! default.
//!
//! Invariants: without the option no answer differs. With it, the annotation of an object that names a queue and has no managed owner
//! is the account that created it, whatever the request says, unless a trusted account says another one. An object below a managed owner
//! counts as its owner's, and its annotation is not read.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::patch::Patch;
use super::review::ReviewRequest;
use crate::api::names::{MAX_SUBMITTER_BYTES, QUEUE_NAME_LABEL, SUBMITTER_ANNOTATION};
use crate::api::validation::syntax::text_at;
use crate::api::validation::{Errors, FieldError, key_path};
use crate::frameworks::{Framework, OwnerRef, Role, WebhookHandler, submitter_name};

/// How submitters are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmitterSettings {
    /// User names whose requests may say another submitter: controllers that create objects for users.
    pub trusted: BTreeSet<String>,
}

/// The submitter of a new object.
#[derive(Debug)]
pub(super) struct Submitter {
    /// User name; empty if it is too long to be recorded, or the request has none.
    name: String,
    /// Why nothing is recorded.
    warning: Option<String>,
}

impl Submitter {
    /// Returns the submitter of the new object of a request; `None` for an update, or if submitters are not recorded.
    pub(super) fn of_new(request: &ReviewRequest<'_>) -> Option<Self> {
        let settings = request.ctx.settings.submitter.as_ref().filter(|_| request.old.is_none())?;
        let said = annotated(request.object);
        let is_said = !said.is_empty() && settings.trusted.contains(request.user);
        let name = submitter_name(if is_said { said } else { request.user });
        if name.len() <= MAX_SUBMITTER_BYTES {
            return Some(Self { name: name.to_owned(), warning: None });
        }
        let warning = format!(
            "metadata.annotations[{SUBMITTER_ANNOTATION}]: the submitter is not recorded, as its name has {} bytes, and at most \
             {MAX_SUBMITTER_BYTES} are",
            name.len()
        );
        Some(Self { name: String::new(), warning: Some(warning) })
    }
}

/// Writes the annotation of a new object, and returns warnings. Without a name, one that the request has becomes empty, so that it
/// names no other account.
pub(super) fn record(submitter: Option<Submitter>, patch: &mut Patch) -> Vec<String> {
    let Some(Submitter { name, warning }) = submitter else { return Vec::new() };
    if !name.is_empty() || !annotated(patch.object()).is_empty() {
        patch.set(&["metadata", "annotations", SUBMITTER_ANNOTATION], json!(name));
    }
    warning.into_iter().collect()
}

/// Returns the annotation of an object, or of a pod template; empty if it has none.
fn annotated(object: &Value) -> &str {
    text_at(object, &["metadata", "annotations", SUBMITTER_ANNOTATION]).unwrap_or_default()
}

/// Copies the annotation of an object to its pod templates, where each of the pods has a Workload of its own: no account is recorded
/// for them, as their controller creates them. A user can write a template, and never the submitter in it.
pub(super) fn mark_templates(row: &Framework, request: &ReviewRequest<'_>, patch: &mut Patch) {
    let WebhookHandler::MarkTemplates(marks) = row.webhooks.handler else { return };
    if request.ctx.settings.submitter.is_none() || row.role != Role::PassThrough {
        return;
    }
    let name = annotated(patch.object()).to_owned();
    for template in marks.templates {
        let said = patch.object().pointer(template).filter(|template| template.is_object()).map(annotated);
        if said.is_some_and(|said| said != name) {
            let mut path: Vec<&str> = template.split('/').skip(1).collect();
            path.extend(["metadata", "annotations", SUBMITTER_ANNOTATION]);
            patch.set(&path, json!(name));
        }
    }
}

/// Returns whether an owner of an object is of a managed kind, as those of a Workload that the manager made are.
pub(super) fn has_managed_owner(request: &ReviewRequest<'_>) -> bool {
    let kinds = request.ctx.settings.managed_kinds();
    let owners = request.object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let mut owners = owners.into_iter().flatten().map(OwnerRef::read);
    owners.any(|owner| kinds.is_enabled(&owner) || kinds.is_external(&owner))
}

/// Adds an error if an account that is not trusted changes the annotation of a stored object. The account that puts an object in a
/// queue may name itself; an earlier name of another account was written while no rule held.
pub(super) fn check_change(request: &ReviewRequest<'_>, errors: &mut Errors) {
    let (Some(settings), Some(old)) = (&request.ctx.settings.submitter, request.old) else { return };
    if settings.trusted.contains(request.user) {
        return;
    }
    let (said, before) = (annotated(request.object), annotated(old));
    let joins = queue(old).is_empty() && !queue(request.object).is_empty();
    let (is_allowed, detail) = if joins {
        let is_own = said.is_empty() || submitter_name(said) == submitter_name(request.user);
        (is_own, "must be absent, or the account that puts the object in a queue")
    } else {
        let detail =
            "is recorded when the object is created, and only accounts of --submitter-trusted may change it";
        (said == before, detail)
    };
    if !is_allowed {
        let path = key_path("metadata.annotations", SUBMITTER_ANNOTATION);
        errors.push(FieldError::invalid_unshown(path, detail));
    }
}

fn queue(object: &Value) -> &str {
    text_at(object, &["metadata", "labels", QUEUE_NAME_LABEL]).unwrap_or_default()
}
