//! Strategic merge patches of pod templates and of what holds them: the lists that Kubernetes merges by a key, and all other lists,
//! which a patch replaces.
//!
//! Invariants: merging is total; what the patch does not name is kept, in its order, and what it adds to a list comes last.

use serde_json::{Map, Value};

/// Lists that are merged item by item: the field that holds the list, and the field by which items are the same.
const MERGED_LISTS: [(&str, &str); 13] = [
    ("replicatedJobs", "name"),
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("volumes", "name"),
    ("imagePullSecrets", "name"),
    ("schedulingGates", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
];

/// Merges a patch into an object. Null removes a field.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(fields) = target.as_object_mut() else { return };
    for (name, change) in changes {
        match change {
            Value::Null => {
                fields.shift_remove(name);
            }
            Value::Array(items) => {
                let list = fields.entry(name.as_str()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(name, list, items);
            }
            Value::Object(_) => merge(fields.entry(name.as_str()).or_insert(Value::Null), change),
            scalar => {
                fields.insert(name.clone(), scalar.clone());
            }
        }
    }
}

fn merge_list(name: &str, target: &mut Value, changes: &[Value]) {
    let key = MERGED_LISTS.iter().find(|(list, _)| *list == name).map(|(_, key)| *key);
    let (Some(key), Value::Array(items)) = (key, &mut *target) else {
        *target = Value::Array(changes.to_vec());
        return;
    };
    for change in changes {
        let same = |item: &&mut Value| item.get(key).is_some_and(|value| Some(value) == change.get(key));
        if let Some(item) = items.iter_mut().find(same) {
            merge(item, change);
        } else {
            let mut added = Value::Null;
            merge(&mut added, change);
            items.push(added);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn merged(mut target: Value, patch: &Value) -> Value {
        merge(&mut target, patch);
        target
    }

    #[test]
    fn lists_with_a_key_are_merged_and_others_replaced() {
        let template = json!({"spec": {
            "containers": [{"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "2"}]},
                {"name": "b"}],
            "tolerations": [{"key": "own"}], "nodeSelector": {"disk": "ssd", "zone": "z"},
        }});
        let patch = json!({"spec": {
            "containers": [{"name": "b", "image": "y"},
                {"name": "a", "env": [{"name": "F", "value": "3"}, {"name": "G", "valueFrom": {}}]}],
            "tolerations": [{"key": "other"}], "nodeSelector": {"zone": null, "pool": "p"},
            "schedulingGates": [{"name": "g"}],
        }});
        let wanted = json!({"spec": {
            "containers": [
                {"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}, {"name": "F", "value": "3"},
                    {"name": "G", "valueFrom": {}}]},
                {"name": "b", "image": "y"}],
            "tolerations": [{"key": "other"}], "nodeSelector": {"disk": "ssd", "pool": "p"},
            "schedulingGates": [{"name": "g"}],
        }});
        assert_eq!(merged(template, &patch), wanted);
    }

    #[test]
    fn patch_of_something_else_replaces_it() {
        assert_eq!(merged(json!("text"), &json!({"a": {"b": null, "c": 1}})), json!({"a": {"c": 1}}));
        assert_eq!(
            merged(json!({"containers": 7}), &json!({"containers": [{"name": "a"}]})),
            json!({"containers": [{"name": "a"}]})
        );
    }
}
