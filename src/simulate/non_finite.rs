//! Numbers of YAML that no JSON can have: infinities, NaN, and numbers beyond a double.
//!
//! A parser refuses the whole document for such a number without the field. Here it is found by its path, so that only
//! its object is refused.

use crate::api::validation::{FieldError, child_path};
use serde_json::Value;
use serde_saphyr::NonFiniteFloatPolicy::{self, AsString, PassThrough};

/// A number that is not finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NonFinite {
    /// Path in the document.
    path: String,
    /// `.nan`, `.inf` or `-.inf`.
    text: String,
}

impl NonFinite {
    /// Reads a document with its numbers that are not finite; `None` if it has none, or is invalid otherwise.
    pub(super) fn find(document: &str) -> Option<(Value, Vec<Self>)> {
        let texts = read(document, AsString)?;
        let mut found = Vec::new();
        // The other policy gives null where this one gives a text.
        compare(&texts, &read(document, PassThrough)?, "", &mut found);
        (!found.is_empty()).then_some((texts, found))
    }

    /// Returns the error for an object at a path of the document, if the number is in it.
    pub(super) fn error_in(&self, inside: &str) -> Option<String> {
        let rest = self.path.strip_prefix(inside)?;
        let path = if inside.is_empty() { rest } else { rest.strip_prefix('.')? };
        Some(FieldError::invalid(path, self.text.as_str(), "must be a finite number").to_string())
    }
}

fn read(document: &str, policy: NonFiniteFloatPolicy) -> Option<Value> {
    let options = serde_saphyr::options! {
        budget: None, with_snippet: false, non_finite_float_policy: policy
    };
    serde_saphyr::from_str_with_options(document, options).ok()
}

fn compare(texts: &Value, nulls: &Value, path: &str, found: &mut Vec<NonFinite>) {
    match (texts, nulls) {
        (Value::Object(fields), Value::Object(others)) => {
            for ((name, value), other) in fields.iter().zip(others.values()) {
                compare(value, other, &child_path(path, name), found);
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            for (index, (item, other)) in items.iter().zip(others).enumerate() {
                compare(item, other, &format!("{path}[{index}]"), found);
            }
        }
        (Value::String(text), Value::Null) => {
            found.push(NonFinite { path: path.to_owned(), text: text.clone() });
        }
        _ => {}
    }
}
