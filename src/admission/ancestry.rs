//! Owners of an object under review.

use serde_json::Value;

use super::{OwnerRef, ReviewContext};
use crate::frameworks::{AncestryError, Framework, Management, OwnerLookup, framework, queued_ancestor};

fn is_pod(owner: &OwnerRef) -> bool {
    framework(owner.group(), &owner.kind).is_some_and(Framework::is_pod)
}

/// Returns the controller owner reference of an object, if any.
pub(super) fn controller_of(object: &Value) -> Option<OwnerRef> {
    let references = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    let owner = references.iter().find(|r| r.get("controller").and_then(Value::as_bool) == Some(true))?;
    let text = |field| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(OwnerRef {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
    })
}

/// Returns the highest ancestor that is queued itself, so that the object must not be queued. `kind` is the kind of the
/// object as (group, kind).
///
/// # Errors
/// An owner was not found, or the owner references are cyclic or too deep.
pub fn managed_ancestor(
    ctx: &ReviewContext<'_>,
    kind: (&str, &str),
    namespace: &str,
    uid: &str,
    controller: Option<OwnerRef>,
) -> Result<Option<OwnerRef>, AncestryError> {
    let managed = ctx.settings.managed_kinds();
    queued_ancestor(kind, uid, controller, &managed, |owner, management| {
        match ctx.objects.owner(namespace, &owner.api_version, &owner.kind, &owner.name) {
            None if management == Management::External => OwnerLookup::Unmanaged,
            // Of pods only those are known that can lead to a queue.
            None if is_pod(owner) && ctx.objects.knows_pods() => OwnerLookup::Unmanaged,
            None => OwnerLookup::Missing,
            Some(view) => OwnerLookup::Found {
                queued: ctx.settings.manage_jobs_without_queue_name
                    || view.queue_name.is_some_and(|name| !name.is_empty()),
                uid: view.uid,
                controller: view.controller,
            },
        }
    })
}
