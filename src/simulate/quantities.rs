//! Quantities in objects of Kubernetes' own kinds: a server reads them when it decodes the object, types here keep their text.

use crate::api::validation::FieldError;
use crate::api::validation::syntax::read_quantity;
use serde_json::Value;
use std::fmt::Write as _;

/// Fields that hold a quantity under each name.
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

/// What cannot be read as a quantity, wherever it stands in an object but for metadata.
pub(super) fn check_quantities(object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(object, false, &mut String::new(), &mut errors);
    errors
}

/// Looks through a value; `amounts`: what stands in it is quantities by their names.
fn visit(value: &Value, amounts: bool, path: &mut String, errors: &mut Vec<FieldError>) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != "metadata") {
                let amount = amounts && !field.is_object();
                // Writing to a text does not fail.
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
