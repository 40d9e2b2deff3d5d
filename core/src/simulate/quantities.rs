//! Validation of quantities in objects of Kubernetes' kinds. A server parses them when it decodes the object; the types
//! used here keep them as text.

use crate::api::validation::FieldError;
use crate::api::validation::syntax::read_quantity;
use serde_json::Value;
use std::fmt::Write as _;

/// Fields that are maps of quantities.
const QUANTITY_MAPS: [&str; 11] = [
    "allocatable",
    "capacity",
    "default",
    "defaultRequest",
    "limits",
    "max",
    "maxLimitRequestRatio",
    "min",
    "overhead",
    "podFixed",
    "requests",
];

/// Returns an error for each invalid quantity in an object, except in metadata.
pub(super) fn check_quantities(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(object, false, &mut String::new(), &mut errors);
    errors
}

/// Visits a value recursively. With `amounts`, the value is a map of quantities.
fn visit(value: &Value, amounts: bool, path: &mut String, errors: &mut Vec<FieldError>) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != "metadata") {
                let amount = amounts && !field.is_object();
                // Writing to a String does not fail.
                let _ = match length {
                    _ if amount => write!(path, "[{name}]"),
                    0 => write!(path, "{name}"),
                    _ => write!(path, ".{name}"),
                };
                if !amount {
                    visit(field, QUANTITY_MAPS.contains(&name.as_str()), path, errors);
                } else if let Some(detail) = read_quantity(field).err().filter(|_| !field.is_null()) {
                    errors.push(FieldError::invalid(path.as_str(), field.clone(), detail));
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let _ = write!(path, "[{index}]");
                visit(item, false, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
