//! The walk from a job to the ancestor that is queued in its place.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::kinds::is_managed;
use super::{Context, Owner};

/// How many objects the walk may visit.
const DEPTH_LIMIT: usize = 10;

/// Why the walk found no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AncestryError {
    /// An object owns itself over others.
    Cycle,
    /// Too many objects above each other.
    TooDeep,
    /// An owner that should be there could not be read.
    Missing(Owner),
}

impl fmt::Display for AncestryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle => f.write_str("metadata.ownerReferences: the controller owners form a cycle"),
            Self::TooDeep => {
                write!(
                    f,
                    "metadata.ownerReferences: more than {DEPTH_LIMIT} controller owners above each other"
                )
            }
            Self::Missing(owner) => write!(
                f,
                "metadata.ownerReferences: the owner {} {} of {} was not found",
                owner.kind, owner.name, owner.api_version
            ),
        }
    }
}

/// The controller owner that an object names, if any.
pub(super) fn controller_of(object: &Value) -> Option<Owner> {
    let references = object.get("metadata")?.get("ownerReferences")?.as_array()?;
    let owner = references
        .iter()
        .find(|r| r.get("controller").and_then(Value::as_bool) == Some(true))?;
    let text = |field| {
        owner
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Some(Owner {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
    })
}

/// The highest ancestor that is queued itself, so that the object must not be.
pub fn managed_ancestor(
    ctx: &Context<'_>,
    namespace: &str,
    uid: &str,
    controller: Option<Owner>,
) -> Result<Option<Owner>, AncestryError> {
    let mut seen = BTreeSet::from([uid.to_owned()]);
    let mut next = controller;
    let mut found = None;
    while let Some(owner) = next {
        if !is_managed(&owner, ctx.settings) {
            break;
        }
        let Some(view) = ctx
            .objects
            .owner(namespace, &owner.api_version, &owner.kind, &owner.name)
        else {
            return Err(AncestryError::Missing(owner));
        };
        if view.uid != owner.uid {
            break;
        }
        if !seen.insert(owner.uid.clone()) {
            return Err(AncestryError::Cycle);
        }
        if seen.len() > DEPTH_LIMIT {
            return Err(AncestryError::TooDeep);
        }
        let queued = view.queue_name.as_deref().is_some_and(|name| !name.is_empty());
        if queued || ctx.settings.manage_jobs_without_queue_name {
            found = Some(owner);
        }
        next = view.controller;
    }
    Ok(found)
}
