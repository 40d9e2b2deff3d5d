//! Reading raw objects with their paths: absent and null are alike, an unexpected type is an error at its field.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Errors, FieldError};

static NOTHING: Value = Value::Null;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub struct FieldCursor<'a> {
    /// The path, as `spec.podSets[0]`; empty at the root.
    pub path: Cow<'static, str>,
    /// The value, null when absent.
    pub value: &'a Value,
}

impl<'a> FieldCursor<'a> {
    /// The root of an object.
    pub fn root(value: &'a Value) -> Self {
        Self { path: Cow::Borrowed(""), value }
    }

    /// A value at a known path.
    pub fn at(path: impl Into<Cow<'static, str>>, value: &'a Value) -> Self {
        Self { path: path.into(), value }
    }

    /// Whether there is a value.
    pub fn exists(&self) -> bool {
        !self.value.is_null()
    }

    /// The path of a field below.
    pub fn field_path(&self, field: &str) -> String {
        child_path(&self.path, field)
    }

    /// A field of an object.
    #[must_use]
    pub fn get(&self, field: &str, errors: &mut Errors) -> FieldCursor<'a> {
        let value = match self.value {
            Value::Object(map) => map.get(field).unwrap_or(&NOTHING),
            Value::Null => &NOTHING,
            other => {
                errors.push(wrong_type(&self.path, other, "an object"));
                &NOTHING
            }
        };
        FieldCursor::at(self.field_path(field), value)
    }

    /// A field below several others.
    #[must_use]
    pub fn descend(&self, fields: &[&str], errors: &mut Errors) -> FieldCursor<'a> {
        fields.iter().fold(self.clone(), |at, field| at.get(field, errors))
    }

    /// The elements of a list.
    pub fn items(&self, errors: &mut Errors) -> Vec<FieldCursor<'a>> {
        match self.value {
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(i, value)| FieldCursor::at(format!("{}[{i}]", self.path), value))
                .collect(),
            Value::Null => Vec::new(),
            other => {
                errors.push(wrong_type(&self.path, other, "a list"));
                Vec::new()
            }
        }
    }

    /// The entries of an object or map; nulls are left out.
    pub fn entries(&self, errors: &mut Errors) -> Vec<(&'a str, FieldCursor<'a>)> {
        self.map(errors)
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.as_str(), FieldCursor::at(key_path(&self.path, key), value)))
            .collect()
    }

    /// The value as an object.
    pub fn map(&self, errors: &mut Errors) -> Option<&'a Map<String, Value>> {
        match self.value {
            Value::Object(map) => Some(map),
            Value::Null => None,
            other => {
                errors.push(wrong_type(&self.path, other, "an object"));
                None
            }
        }
    }

    /// The value as text.
    pub fn text(&self, errors: &mut Errors) -> Option<&'a str> {
        match self.value {
            Value::String(text) => Some(text),
            Value::Null => None,
            other => {
                errors.push(wrong_type(&self.path, other, "a string"));
                None
            }
        }
    }

    /// The value as a whole number.
    pub fn int(&self, errors: &mut Errors) -> Option<i64> {
        if self.value.is_null() {
            return None;
        }
        let number = self.value.as_i64();
        if number.is_none() {
            errors.push(wrong_type(&self.path, self.value, "an integer"));
        }
        number
    }

    /// The value as a boolean.
    pub fn boolean(&self, errors: &mut Errors) -> Option<bool> {
        match self.value {
            Value::Bool(flag) => Some(*flag),
            Value::Null => None,
            other => {
                errors.push(wrong_type(&self.path, other, "a boolean"));
                None
            }
        }
    }
}

/// The path of a field below another.
pub fn child_path(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// The path of a map's entry.
pub fn key_path(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

fn wrong_type(path: &str, value: &Value, wanted: &str) -> FieldError {
    let path = if path.is_empty() { "<root>" } else { path };
    FieldError::invalid(path, value.clone(), format!("must be {wanted}"))
}
