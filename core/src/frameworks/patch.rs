//! Patches of jobs, and the writes on the objects of a unit.
//!
//! Invariants: a patch is sent for the version of the object that it was made from; an array is never replaced as a
//! whole, as that would undo a change that another writer made to it.

use super::template::TemplateInfo;
use crate::api::ObjectKey;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A patch of an object. What is sent contains the version that it was made from.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPatch {
    /// Whether it patches the status subresource.
    pub status: bool,
    body: PatchBody,
}

/// A patch in one of the two formats.
#[derive(Clone, Debug, PartialEq)]
pub enum PatchBody {
    /// A merge patch (RFC 7396).
    Merge(Value),
    /// Operations of a JSON patch (RFC 6902).
    Json(Vec<Value>),
}

impl JobPatch {
    /// Creates a merge patch of the object.
    pub const fn merge(body: Value) -> Self {
        Self { status: false, body: PatchBody::Merge(body) }
    }

    /// Creates a merge patch of the status subresource.
    pub const fn merge_status(body: Value) -> Self {
        Self { status: true, body: PatchBody::Merge(body) }
    }

    /// Creates a JSON patch of the object.
    pub const fn json(operations: Vec<Value>) -> Self {
        Self { status: false, body: PatchBody::Json(operations) }
    }

    /// Returns the patch without a version, to apply it to a copy of the object.
    pub const fn body(&self) -> &PatchBody {
        &self.body
    }

    /// Applies the patch as the server does; the version is that of the object.
    #[cfg(test)]
    pub(super) fn apply(&self, job: &mut Value) {
        let version = job["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let body = self.at_version(&version);
        match serde_json::from_value::<json_patch::Patch>(body.clone()) {
            Ok(operations) => json_patch::patch(job, &operations).unwrap(),
            Err(_) => json_patch::merge(job, &body),
        }
    }

    /// Returns the body to send. The server refuses it as a conflict if the object has another version by then.
    pub fn at_version(&self, resource_version: &str) -> Value {
        match &self.body {
            PatchBody::Merge(body) => {
                let mut body = body.clone();
                if let Some(fields) = body.as_object_mut() {
                    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
                    if let Some(metadata) = metadata.as_object_mut() {
                        metadata.insert("resourceVersion".to_owned(), json!(resource_version));
                    }
                }
                body
            }
            // `replace`, not `test`: a failed test would be an invalid request instead of a conflict.
            PatchBody::Json(operations) => {
                let version = json!({
                    "op": "replace", "path": "/metadata/resourceVersion", "value": resource_version,
                });
                Value::Array(std::iter::once(version).chain(operations.iter().cloned()).collect())
            }
        }
    }
}

/// A write on an object of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// The object.
    pub target: Target,
    /// The write.
    pub write: ActionWrite,
    /// What it means for the pods.
    pub change: Change,
}

/// An object of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The owner.
    Owner,
    /// The member with this key.
    Member(ObjectKey),
}

/// A write on an object of a unit.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionWrite {
    /// Patches it.
    Patch(JobPatch),
    /// Deletes it. The condition is applied to its status first, if there is one.
    Delete {
        /// Condition that says why.
        condition: Option<Value>,
    },
}

/// What a write means for the pods of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Pods start.
    Start,
    /// Pods stop.
    Stop,
    /// A pod that is not needed goes.
    Remove,
    /// Neither: what follows a stop, or precedes a start.
    None,
}

impl Action {
    /// Returns a patch of the owner.
    pub(super) const fn patch_owner(patch: JobPatch, change: Change) -> Self {
        Self { target: Target::Owner, write: ActionWrite::Patch(patch), change }
    }

    /// Returns a patch of a member.
    pub(super) const fn patch_member(member: ObjectKey, patch: JobPatch, change: Change) -> Self {
        Self { target: Target::Member(member), write: ActionWrite::Patch(patch), change }
    }

    /// Returns the deletion of a member.
    pub(super) const fn delete_member(member: ObjectKey, condition: Option<Value>, change: Change) -> Self {
        Self { target: Target::Member(member), write: ActionWrite::Delete { condition }, change }
    }
}

/// Sets a field of a merge patch, creating the objects above it.
pub(super) fn set_at(patch: &mut Map<String, Value>, pointer: &str, value: Value) {
    let (first, rest) = match pointer.trim_start_matches('/').split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (pointer.trim_start_matches('/'), None),
    };
    let Some(rest) = rest else {
        patch.insert(first.to_owned(), value);
        return;
    };
    if let Some(fields) = patch.entry(first).or_insert_with(|| json!({})).as_object_mut() {
        set_at(fields, rest, value);
    }
}

/// Adds an object to a field of a merge patch, without what the patch has there already.
pub(super) fn add_at(patch: &mut Map<String, Value>, pointer: &str, value: &Value) {
    let Some(fields) = value.as_object() else { return set_at(patch, pointer, value.clone()) };
    for (name, value) in fields {
        add_at(patch, &format!("{pointer}/{name}"), value);
    }
}

/// Returns the operations that change the pod template at a pointer. Maps and lists of the template that are written by
/// a start are set as a whole: the version of the object makes sure that nothing was added to them.
pub(super) fn template_operations(
    pointer: &str,
    has_metadata: bool,
    from: &TemplateInfo,
    to: &TemplateInfo,
) -> Vec<Value> {
    let metadata_changes = from.labels != to.labels || from.annotations != to.annotations;
    let metadata = json!({ "op": "add", "path": format!("{pointer}/metadata"), "value": {} });
    let mut operations: Vec<Value> =
        (metadata_changes && !has_metadata).then_some(metadata).into_iter().collect();
    let gates = |info: &TemplateInfo| -> Vec<Value> {
        info.scheduling_gates.iter().map(|name| json!({ "name": name })).collect()
    };
    let parts = [
        ("metadata/labels", of_map(&from.labels), of_map(&to.labels)),
        ("metadata/annotations", of_map(&from.annotations), of_map(&to.annotations)),
        ("spec/nodeSelector", of_map(&from.node_selector), of_map(&to.node_selector)),
        ("spec/tolerations", of_list(&from.tolerations), of_list(&to.tolerations)),
        ("spec/schedulingGates", of_list(&gates(from)), of_list(&gates(to))),
    ];
    for (field, from, to) in parts {
        let path = format!("{pointer}/{field}");
        match to {
            to if to == from => {}
            Some(to) => operations.push(json!({ "op": "add", "path": path, "value": to })),
            None => operations.push(json!({ "op": "remove", "path": path })),
        }
    }
    operations
}

/// Returns a map as JSON, or `None` if it is empty.
fn of_map(map: &BTreeMap<String, String>) -> Option<Value> {
    (!map.is_empty()).then(|| json!(map))
}

/// Returns a list as JSON, or `None` if it is empty.
fn of_list<T: serde::Serialize>(items: &[T]) -> Option<Value> {
    (!items.is_empty()).then(|| json!(items))
}

/// A field that a webhook sets.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// Names of the fields from the object to the value.
    pub path: Vec<String>,
    /// The value; a list contains what was there.
    pub value: Value,
}

impl FieldChange {
    pub(super) fn new(path: &[&str], value: Value) -> Self {
        Self { path: path.iter().map(|&name| name.to_owned()).collect(), value }
    }
}
