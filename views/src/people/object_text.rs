//! Objects as JSON and YAML, as kubectl prints them.

use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use crate::resources::Quantity;
use serde::Serialize as _;

/// Returns an object as JSON with four spaces for each level and a line break at the end. Characters with a meaning in HTML
/// are escaped, as Go does.
pub fn json_text(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(b"    "));
    // Writing a value into memory cannot fail: its keys are texts.
    let _ = value.serialize(&mut serializer);
    let text = String::from_utf8_lossy(&bytes);
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    text + "\n"
}

/// Returns an object as YAML with its fields in order of their names.
///
/// # Errors
/// The value cannot be written as YAML.
pub fn yaml_text(value: &Value) -> Result<String, String> {
    let options = serde_saphyr::ser_options! {
        compact_list_indent: true,
    };
    serde_saphyr::to_string_with_options(&sorted(value), options).map_err(|error| error.to_string())
}

/// Returns a value with the fields of all objects in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            Value::Object(fields.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Maps from resources to quantities.
const AMOUNTS: [&str; 5] = ["requests", "limits", "resourceUsage", "overhead", "capacity"];
/// Fields with one quantity.
const QUANTITIES: [&str; 5] = ["nominalQuota", "borrowingLimit", "lendingLimit", "total", "borrowed"];

/// Writes the quantities of an object as Kubernetes' own types do: a number that a user wrote without quotes becomes a string.
fn with_quantities(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::Object(amounts) if AMOUNTS.contains(&name.as_str()) => {
                        amounts.values_mut().for_each(to_quantity);
                    }
                    Value::Object(_) | Value::Array(_) => with_quantities(value),
                    _ if QUANTITIES.contains(&name.as_str()) => to_quantity(value),
                    _ => {}
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(with_quantities),
        _ => {}
    }
}

fn to_quantity(value: &mut Value) {
    let text = match &*value {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return,
    };
    // A text that is no quantity is left unchanged.
    if let Ok(quantity) = Quantity::parse(&text) {
        *value = Value::String(quantity.to_string());
    }
}

/// Returns an object with `apiVersion` and `kind` first, quantities as texts, and without managed fields unless
/// `managed_fields`.
pub fn for_output(object: &Value, managed_fields: bool) -> Value {
    let Value::Object(fields) = object else { return object.clone() };
    let mut fields = fields.clone();
    if let Some(Value::Object(metadata)) = fields.get_mut("metadata")
        && !managed_fields
    {
        metadata.shift_remove("managedFields");
    }
    for part in ["spec", "status"] {
        fields.get_mut(part).into_iter().for_each(with_quantities);
    }
    let mut ordered = Map::new();
    for name in ["apiVersion", "kind", "metadata"] {
        ordered.extend(fields.shift_remove(name).map(|value| (name.to_owned(), value)));
    }
    ordered.extend(fields);
    Value::Object(ordered)
}

/// Returns an object as `KIND.GROUP/NAME`.
pub fn name_text(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let kind = text("/kind").to_lowercase();
    let name = text("/metadata/name");
    match text("/apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_texts() {
        let object = json!({
            "metadata": {"labels": {"nominalQuota": "1000m"}},
            "spec": {"groups": [{"nominalQuota": 2, "borrowingLimit": "1000m"}], "requests": {"cpu": 1.5, "x": "odd"}, "count": 3},
        });
        let expected = json!({
            "metadata": {"labels": {"nominalQuota": "1000m"}},
            "spec": {"groups": [{"nominalQuota": "2", "borrowingLimit": "1"}], "requests": {"cpu": "1500m", "x": "odd"}, "count": 3},
        });
        assert_eq!(for_output(&object, false), expected);
    }

    #[test]
    fn objects_print_as_kubectls() {
        let object = json!({
            "metadata": {"name": "a<b", "managedFields": [1]}, "kind": "Workload", "apiVersion": "kueue.x-k8s.io/v1beta2",
            "spec": {"z": [{"b": "1", "a": true}], "empty": {}, "none": []},
        });
        let shown = for_output(&object, false);
        let expected = "{\n    \"apiVersion\": \"kueue.x-k8s.io/v1beta2\",\n    \"kind\": \"Workload\",\n    \"metadata\": {\n        \"name\": \"a\\u003cb\"\n    },\n    \"spec\": {\n        \"z\": [\n            {\n                \"b\": \"1\",\n                \"a\": true\n            }\n        ],\n        \"empty\": {},\n        \"none\": []\n    }\n}\n";
        assert_eq!(json_text(&shown), expected);
        let expected = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Workload\nmetadata:\n  name: a<b\nspec:\n  empty: {}\n  none: []\n  z:\n  - a: true\n    b: \"1\"\n";
        assert_eq!(yaml_text(&shown), Ok(expected.to_owned()));
        assert_eq!(for_output(&object, true)["metadata"]["managedFields"], json!([1]));
        assert_eq!(name_text(&object), "workload.kueue.x-k8s.io/a<b");
        assert_eq!(
            name_text(&json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}})),
            "pod/p"
        );
    }
}
