//! Bodies of writes that several modules send.

use crate::api::names;
use crate::cache::records::Meta;
use serde_json::{Map, Value, json};

/// Returns a patch that removes our finalizer and keeps the others.
pub(crate) fn remove_finalizer_patch(meta: &Meta) -> Value {
    let rest: Vec<&String> =
        meta.finalizers.iter().filter(|f| *f != names::RESOURCE_IN_USE_FINALIZER).collect();
    json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": rest}})
}

/// Returns options for deleting exactly this version of this object.
pub(crate) fn delete_options(meta: &Meta) -> Value {
    json!({
        "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "propagationPolicy": "Background",
    })
}

/// Returns the JSON merge patch (RFC 7386) that changes `known` to `new`; `None` if they are equal.
pub(crate) fn merge_patch(known: &Value, new: &Value) -> Option<Value> {
    if known == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (known, new) else {
        return Some(new.clone());
    };
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let mut patch: Map<String, Value> = removed.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in after {
        let change = before.get(name).map_or_else(|| Some(value.clone()), |was| merge_patch(was, value));
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patch_contains_only_what_differs() {
        let known = json!({"a": {"x": 1, "y": 2}, "list": [1, 2], "same": [{"z": 1}], "gone": {"v": 1}});
        let new = json!({"a": {"x": 1, "y": 3}, "list": [2], "same": [{"z": 1}], "added": {"w": 1}});
        let patch = json!({"a": {"y": 3}, "list": [2], "gone": null, "added": {"w": 1}});
        assert_eq!(merge_patch(&known, &new), Some(patch));
        assert_eq!(merge_patch(&known, &known), None);
    }
}
