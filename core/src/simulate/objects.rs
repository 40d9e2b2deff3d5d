//! Access to fields of objects that are JSON values.

use crate::api::ObjectKey;
use crate::lifecycle::conditions::to_api_time;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Returns namespace and name of an object.
pub fn key_of(object: &Value) -> ObjectKey {
    ObjectKey::new(text_at(object, "/metadata/namespace"), text_at(object, "/metadata/name"))
}

/// Returns the value at a JSON pointer without escapes. Unlike `Value::pointer`, it does not allocate strings.
pub(super) fn value_at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.as_bytes().split(|byte| *byte == b'/').skip(1).try_fold(object, |value, name| match value {
        Value::Object(_) => find_value(value, name),
        Value::Array(list) => list.get(std::str::from_utf8(name).ok()?.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns a field of an object. Objects have few fields, so a linear search is cheaper than hashing the name.
pub(super) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    find_value(object, name.as_bytes())
}

fn find_value<'a>(object: &'a Value, name: &[u8]) -> Option<&'a Value> {
    object.as_object()?.iter().find_map(|(known, value)| (known.as_bytes() == name).then_some(value))
}

/// Returns the text of a field, or an empty text.
pub(super) fn field_text<'a>(object: &'a Value, name: &str) -> &'a str {
    field(object, name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the text at a JSON pointer, or an empty text.
pub(super) fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    value_at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns kind and name for messages, as far as known.
pub(super) fn describe(object: &Value) -> String {
    let (kind, name) = (text_at(object, "/kind"), text_at(object, "/metadata/name"));
    let namespace = text_at(object, "/metadata/namespace");
    match (kind, namespace) {
        ("", _) => String::new(),
        _ if name.is_empty() => kind.to_owned(),
        (_, "") => format!("{kind} {name}"),
        _ => format!("{kind} {namespace}/{name}"),
    }
}

/// Returns whether a Workload has an owner.
pub(super) fn has_owner(workload: &Value) -> bool {
    value_at(workload, "/metadata/ownerReferences/0").is_some()
}

/// Returns the UID of the controller of an object.
pub(super) fn controller_uid(object: &Value) -> Option<&str> {
    let owners = value_at(object, "/metadata/ownerReferences").and_then(Value::as_array)?;
    let controller = owners.iter().find(|owner| field(owner, "controller") == Some(&Value::Bool(true)))?;
    Some(field_text(controller, "uid"))
}

/// Returns the conditions of an object.
pub(super) fn conditions(object: &Value) -> &[Value] {
    value_at(object, "/status/conditions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the condition of type `kind`.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    conditions(object).iter().find(|c| field_text(c, "type") == kind)
}

/// Which conditions of a Workload that define its state are True.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConditionFlags {
    pub(super) finished: bool,
    pub(super) evicted: bool,
    pub(super) preempted: bool,
    pub(super) admitted: bool,
    pub(super) reserved: bool,
}

impl ConditionFlags {
    pub(super) fn from_workload(workload: &Value) -> Self {
        let mut flags = Self::default();
        for condition in conditions(workload).iter().filter(|c| field_text(c, "status") == "True") {
            let flag = match field_text(condition, "type") {
                "Finished" => &mut flags.finished,
                "Evicted" => &mut flags.evicted,
                "Preempted" => &mut flags.preempted,
                "Admitted" => &mut flags.admitted,
                "QuotaReserved" => &mut flags.reserved,
                _ => continue,
            };
            *flag = true;
        }
        flags
    }

    /// Whether its pods run: it is admitted, and neither ends nor has ended.
    pub(super) const fn runs(self) -> bool {
        self.admitted && !self.evicted && !self.finished
    }
}

/// Returns whether the condition of type `kind` is True.
pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| field_text(c, "status") == "True")
}

/// Sets a condition to True.
pub(super) fn set_condition(object: &mut Value, kind: &str, reason: &str, message: &str, now: Timestamp) {
    let new = json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": to_api_time(now)});
    let list = object.get_mut("status").and_then(|status| status.get_mut("conditions"));
    match list.and_then(Value::as_array_mut) {
        Some(list) => {
            list.retain(|c| field_text(c, "type") != kind);
            list.push(new);
        }
        None => set(object, &["status", "conditions"], json!([new])),
    }
}

/// Sets a field; creates missing parent objects.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((field, parents)) = path.split_last() else {
        *object = value;
        return;
    };
    let mut parent = object;
    for name in parents {
        parent = entry(parent, name);
    }
    *entry(parent, field) = value;
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

/// Applies a JSON merge patch (RFC 7386).
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
