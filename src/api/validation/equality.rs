//! Equality of structures by meaning: what a typed reader would hold to be the same is the same.

use serde_json::{Map, Value};

use crate::api::partial::{Projection, RAW_TEXT_FIELD, ValueBudget, read_projection};

use crate::resources::Quantity;

/// Maps from resources to quantities.
const QUANTITIES: &[&str] = &["requests", "limits", "overhead", "resourceUsage"];
/// Other maps of strings: an empty value in them is a value.
const MAPS: &[&str] = &["labels", "annotations", "nodeSelector", "matchLabels", "flavors"];
/// Structures that a typed reader holds by value: an empty one is as good as none.
const PLAIN: &[&str] = &["metadata", "resources", "spec", "template"];
/// Fields that a typed reader holds by value: false or zero is as good as none.
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
/// Texts that may be absent or empty, and mean different things then.
const OPTIONAL_TEXTS: &[&str] =
    &["runtimeClassName", "storageClassName", "volumeMode", "fsType", "required", "preferred"];

/// Values of a text that is compared by meaning; one of more differs from all but its equal.
const MAX_COMPARED_VALUES: usize = 256 << 10;

/// Whether two values mean the same: quantities by amount, absent as null, empty collections as none.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
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

/// Texts that differ may mean the same: the server writes what a client wrote, in its own order.
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

/// Lone fields that hold a quantity, as a size limit does.
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
