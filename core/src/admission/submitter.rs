//! The account that submitted a queued object, which the webhooks record in an annotation of it: an option of the manager, off by
//! default.
//!
//! Invariants: without the option no answer differs. With it, a new object never keeps the annotation of a request, unless a trusted
//! account sends it, or the manager, which copies the annotation of a job to the Workload. An object that names a queue and has no
//! managed owner has the account that created it. An object below a managed owner counts as its owner's, whose Workload it belongs to;
//! it names no account itself, because any user can write an owner reference and remove it later. Pods of a Deployment alone have
//! Workloads of their own, and the name that is recorded in the stored Deployment.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::ancestry::maker_above;
use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use crate::api::names::{MAX_SUBMITTER_BYTES, QUEUE_NAME_LABEL, SUBMITTER_ANNOTATION};
use crate::api::validation::syntax::text_at;
use crate::api::validation::{Errors, FieldError, key_path};
use crate::frameworks::{
    End, Framework, OwnerRef, Role, Searched, WebhookHandler, missing_owner, submitter_name,
};

/// How submitters are recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmitterSettings {
    /// User names whose requests may say another submitter: controllers that create objects for users.
    pub trusted: BTreeSet<String>,
    /// Namespace of the manager, whose ServiceAccounts create the Workloads of jobs.
    pub namespace: String,
}

impl SubmitterSettings {
    /// Returns whether a user is a ServiceAccount in the namespace of the manager. Webhooks may run under another account than the
    /// controller, and administrators alone create pods in that namespace.
    fn is_manager(&self, user: &str) -> bool {
        let account = user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        account.is_some_and(|(namespace, _)| namespace == self.namespace)
    }
}

/// Which account a new object counts as, if the request of a trusted account says none.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'a> {
    /// That of the request.
    Account,
    /// None: it belongs to the Workload of an owner, or is in no queue.
    Nothing,
    /// That of the object in a queue by whose controllers this one, from which the search starts, was made.
    Maker(Searched<'a>),
}

/// The submitter of a new object.
#[derive(Debug, Default)]
pub(super) struct Submitter {
    /// User name; empty if it is too long to be recorded, or there is none.
    name: String,
    /// Why nothing is recorded.
    warning: Option<String>,
}

impl Submitter {
    /// Returns the submitter of the new object of a request; `None` for an update, or if submitters are not recorded.
    ///
    /// # Errors
    /// The request says a submitter, and what made the object is not known yet, or cannot be found: the response.
    pub(super) fn of_new(
        request: &ReviewRequest<'_>,
        origin: Origin<'_>,
    ) -> Result<Option<Self>, ReviewResponse> {
        let settings = request.ctx.settings.submitter.as_ref().filter(|_| request.old.is_none());
        let Some(settings) = settings else { return Ok(None) };
        let said = annotated(request.object);
        let is_said = !said.is_empty() && settings.trusted.contains(request.user);
        Ok(Some(match origin {
            _ if is_said => Self::named(said),
            Origin::Account => Self::named(request.user),
            Origin::Nothing => Self::default(),
            Origin::Maker(object) => Self::of_maker(request, object)?,
        }))
    }

    /// Returns the submitter of a new Workload. A Workload of the manager keeps the name of its job; one of another account that names a
    /// managed object as its owner was not made for that object, and has none.
    pub(super) fn of_workload(request: &ReviewRequest<'_>) -> Option<Self> {
        let settings = request.ctx.settings.submitter.as_ref()?;
        if settings.is_manager(request.user) {
            return None;
        }
        let origin = if has_managed_owner(request) { Origin::Nothing } else { Origin::Account };
        Self::of_new(request, origin).ok().flatten()
    }

    /// Returns the submitter of the object that made a new one. While that is not known, a request that says a submitter is refused: the
    /// controller tries again.
    fn of_maker(request: &ReviewRequest<'_>, object: Searched<'_>) -> Result<Self, ReviewResponse> {
        let found = maker_above(request.ctx, request.namespace, object);
        let (maker, end) = found.map_err(|error| ReviewResponse::Denied(error.to_string()))?;
        let Some(maker) = maker else {
            return match end {
                End::Missing(owner) if !annotated(request.object).is_empty() => {
                    Err(ReviewResponse::NotYet(missing_owner(&owner)))
                }
                End::Missing(_) | End::Top | End::Unread(_) => Ok(Self::default()),
            };
        };
        let stored = request.ctx.objects.owner(request.namespace, &maker);
        let name = stored.filter(|stored| stored.uid == maker.uid).and_then(|stored| stored.submitter);
        Ok(Self::named(name.as_deref().unwrap_or_default()))
    }

    fn named(name: &str) -> Self {
        let name = submitter_name(name);
        if name.len() <= MAX_SUBMITTER_BYTES {
            return Self { name: name.to_owned(), warning: None };
        }
        let warning = format!(
            "metadata.annotations[{SUBMITTER_ANNOTATION}]: the submitter is not recorded, as its name has {} bytes, and at most \
             {MAX_SUBMITTER_BYTES} are",
            name.len()
        );
        Self { name: String::new(), warning: Some(warning) }
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
fn has_managed_owner(request: &ReviewRequest<'_>) -> bool {
    let kinds = request.ctx.settings.managed_kinds();
    let owners = request.object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let mut owners = owners.into_iter().flatten().map(OwnerRef::read);
    owners.any(|owner| kinds.is_enabled(&owner) || kinds.is_external(&owner))
}

/// Adds an error if an account that is not trusted changes the annotation of a stored job. The account that puts a job in a queue may
/// name itself; an earlier name of another account was written while no rule held.
pub(super) fn check_job_change(request: &ReviewRequest<'_>, errors: &mut Errors) {
    let joins = request.old.is_some_and(|old| queue(old).is_empty() && !queue(request.object).is_empty());
    check_change(request, joins, errors);
}

/// Adds an error if an account that is not trusted changes the annotation of a stored Workload, whose labels put it in no queue.
pub(super) fn check_workload_change(request: &ReviewRequest<'_>, errors: &mut Errors) {
    check_change(request, false, errors);
}

fn check_change(request: &ReviewRequest<'_>, joins: bool, errors: &mut Errors) {
    let (Some(settings), Some(old)) = (&request.ctx.settings.submitter, request.old) else { return };
    if settings.trusted.contains(request.user) {
        return;
    }
    let (said, before) = (annotated(request.object), annotated(old));
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
