//! The owners of an object under review.

use serde_json::Value;

use super::kinds::{Management, management};
use super::{Context, Owner};
use crate::jobs::{AncestryError, Link, queued_ancestor};

/// The controller owner that an object names, if any.
pub(super) fn controller_of(object: &Value) -> Option<Owner> {
    let references = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    let owner = references.iter().find(|r| r.get("controller").and_then(Value::as_bool) == Some(true))?;
    let text = |field| owner.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Owner { api_version: text("apiVersion"), kind: text("kind"), name: text("name"), uid: text("uid") })
}

/// The highest ancestor that is queued itself, so that the object must not be.
pub fn managed_ancestor(
    ctx: &Context<'_>,
    namespace: &str,
    uid: &str,
    controller: Option<Owner>,
) -> Result<Option<Owner>, AncestryError> {
    queued_ancestor(uid, controller, |owner| {
        let managed = management(owner, ctx.settings);
        let view = ctx.objects.owner(namespace, &owner.api_version, &owner.kind, &owner.name);
        match (managed, view) {
            (Management::Nobody, _) | (Management::External, None) => Link::End,
            (Management::Ours, None) => Link::Missing,
            (Management::Ours | Management::External, Some(view)) => Link::Found {
                queued: ctx.settings.manage_jobs_without_queue_name
                    || view.queue_name.is_some_and(|name| !name.is_empty()),
                uid: view.uid,
                controller: view.controller,
            },
        }
    })
}
