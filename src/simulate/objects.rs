//! Reading and changing objects that are JSON values.

use crate::api::ObjectKey;
use crate::lifecycle::conditions::stored;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Namespace and name of an object.
pub fn key_of(object: &Value) -> ObjectKey {
    ObjectKey::new(text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}

/// The value at a pointer whose names need no escapes: unlike `Value::pointer`, it makes no strings on the way.
pub(super) fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(object, |value, name| match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The text at a pointer, or an empty one.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Kind and name for messages.
pub(super) fn subject(object: &Value) -> String {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    let namespace = text(object, "/metadata/namespace");
    match (kind, namespace) {
        ("", _) => String::new(),
        (_, "") => format!("{kind} {name}"),
        _ => format!("{kind} {namespace}/{name}"),
    }
}

/// Whether a job stands behind a Workload.
pub(super) fn has_owner(workload: &Value) -> bool {
    at(workload, "/metadata/ownerReferences/0").is_some()
}

/// The condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let list = at(object, "/status/conditions")?.as_array()?;
    list.iter().find(|c| text(c, "/type") == kind)
}

/// Whether the condition of a type stands at True.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| text(c, "/status") == "True")
}

/// Sets a condition to True.
pub(super) fn set_condition(object: &mut Value, kind: &str, reason: &str, message: &str, now: Timestamp) {
    let new = json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": stored(now)});
    match object.pointer_mut("/status/conditions").and_then(Value::as_array_mut) {
        Some(list) => {
            list.retain(|c| text(c, "/type") != kind);
            list.push(new);
        }
        None => set(object, &["status", "conditions"], json!([new])),
    }
}

/// Sets a field, making the objects above it.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((field, above)) = path.split_last() else {
        *object = value;
        return;
    };
    let mut at = object;
    for name in above {
        at = entry(at, name);
    }
    *entry(at, field) = value;
}

fn entry<'a>(object: &'a mut Value, name: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    match object {
        Value::Object(fields) => fields.entry(name).or_insert(Value::Null),
        other => other,
    }
}

/// RFC 7386.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    for (name, value) in fields {
        if value.is_null() {
            if let Some(object) = target.as_object_mut() {
                object.shift_remove(name);
            }
        } else {
            merge(entry(target, name), value);
        }
    }
    if fields.is_empty() && !target.is_object() {
        *target = Value::Object(Map::new());
    }
}
