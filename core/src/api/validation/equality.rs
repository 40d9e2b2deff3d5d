//! Semantic equality of raw objects: values are equal if they decode to the same typed object.

use serde_json::{Map, Value};

use crate::api::partial::{Projection, RAW_TEXT_FIELD, ValueBudget, read_projection};

use crate::resources::Quantity;

/// Maps from resources to quantities.
const QUANTITIES: &[&str] = &["requests", "limits", "overhead", "resourceUsage"];
/// Other maps of strings: an empty value in them is a value.
const MAPS: &[&str] = &["labels", "annotations", "nodeSelector", "matchLabels", "flavors"];
/// Structs that the typed object contains by value: empty equals absent.
const PLAIN: &[&str] = &["metadata", "resources", "spec", "template"];
/// Fields that the typed object contains by value: false or zero equals absent.
const ZEROES: &[&str] = &[
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "stdin",
    "stdinOnce",
    "tty",
    "readOnly",
    "hostPort",
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
    "terminationMessagePath",
];
/// Strings for which empty and absent differ.
const OPTIONAL_TEXTS: &[&str] =
    &["runtimeClassName", "storageClassName", "volumeMode", "fsType", "required", "preferred"];

/// Maximum number of values in a text that is compared semantically; a larger text equals only the identical text.
const MAX_COMPARED_VALUES: usize = 256 << 10;

/// Returns whether two values are semantically equal: quantities by amount, null as absent, empty collections as
/// absent.
pub(crate) fn equal(a: &Value, b: &Value) -> bool {
    same_value("", a, b)
}

fn same_value(field: &str, a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::String(a), Value::String(b)) if field == RAW_TEXT_FIELD => a == b || same_text(a, b),
        (Value::Object(a), Value::Object(b)) => same_fields(field, a, b),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(field, a, b))
        }
        _ => a == b || (is_unset(field, a) && is_unset(field, b)) || same_amount(field, a, b),
    }
}

fn same_fields(field: &str, a: &Map<String, Value>, b: &Map<String, Value>) -> bool {
    let quantities = QUANTITIES.contains(&field);
    if quantities || MAPS.contains(&field) {
        let one_way = |a: &Map<String, Value>, b: &Map<String, Value>| {
            a.iter().all(|(key, value)| match b.get(key) {
                Some(other) => value == other || (quantities && same_quantity(value, other)),
                None => value.is_null(),
            })
        };
        return one_way(a, b) && one_way(b, a);
    }
    let one_way = |a: &Map<String, Value>, b: &Map<String, Value>| {
        a.iter().all(|(key, value)| same_value(key, value, b.get(key).unwrap_or(&Value::Null)))
    };
    one_way(a, b)
        && b.iter().filter(|(key, _)| !a.contains_key(*key)).all(|(key, value)| is_unset(key, value))
}

/// Compares two different texts by value, because the server may write fields in another order than the client.
fn same_text(a: &str, b: &str) -> bool {
    let read = |text: &str| {
        read_projection(&Projection::Whole, &ValueBudget::new(MAX_COMPARED_VALUES), text.as_bytes())
    };
    match (read(a), read(b)) {
        (Ok(a), Ok(b)) => same_value("template", &a, &b),
        _ => false,
    }
}

fn is_unset(field: &str, value: &Value) -> bool {
    match value {
        Value::String(text) if field == RAW_TEXT_FIELD => {
            read_projection(&Projection::Whole, &ValueBudget::new(MAX_COMPARED_VALUES), text.as_bytes())
                .is_ok_and(|read| is_unset("template", &read))
        }
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => {
            let by_value = QUANTITIES.contains(&field) || MAPS.contains(&field) || PLAIN.contains(&field);
            let all_empty = || PLAIN.contains(&field) && map.iter().all(|(key, value)| is_unset(key, value));
            by_value && (map.is_empty() || all_empty())
        }
        Value::String(text) => text.is_empty() && !OPTIONAL_TEXTS.contains(&field),
        Value::Bool(flag) => !flag && ZEROES.contains(&field),
        Value::Number(number) => number.as_i64() == Some(0) && ZEROES.contains(&field),
    }
}

/// Compares single fields that contain a quantity, such as a size limit.
fn same_amount(field: &str, a: &Value, b: &Value) -> bool {
    matches!(field, "sizeLimit" | "divisor" | "storage") && same_quantity(a, b)
}

fn same_quantity(a: &Value, b: &Value) -> bool {
    match (amount(a), amount(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}
