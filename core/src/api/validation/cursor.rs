//! Access to fields of raw objects with their paths. Null equals absent; an unexpected type is an error at its field.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Errors, FieldError};

static NOTHING: Value = Value::Null;

/// A value and its path.
#[derive(Clone, Debug)]
pub struct FieldCursor<'a> {
    /// The path, such as `spec.podSets[0]`; empty at the root.
    pub path: Cow<'static, str>,
    /// The value; null when absent.
    pub value: &'a Value,
}

impl<'a> FieldCursor<'a> {
    /// Creates a cursor at the root of an object.
    pub fn root(value: &'a Value) -> Self {
        Self { path: Cow::Borrowed(""), value }
    }

    /// Creates a cursor for a value at a known path.
    pub fn at(path: impl Into<Cow<'static, str>>, value: &'a Value) -> Self {
        Self { path: path.into(), value }
    }

    /// Returns whether the value is present.
    pub fn exists(&self) -> bool {
        !self.value.is_null()
    }

    /// Returns the path of a field of this object.
    pub fn field_path(&self, field: &str) -> String {
        child_path(&self.path, field)
    }

    /// Returns a field of this object. Adds an error if the value is not an object.
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

    /// Returns a nested field of this object.
    #[must_use]
    pub fn descend(&self, fields: &[&str], errors: &mut Errors) -> FieldCursor<'a> {
        fields.iter().fold(self.clone(), |cursor, field| cursor.get(field, errors))
    }

    /// Returns the field at a JSON pointer whose steps are all fields of objects.
    #[must_use]
    pub fn at_pointer(&self, pointer: &str, errors: &mut Errors) -> FieldCursor<'a> {
        pointer.split('/').skip(1).fold(self.clone(), |cursor, field| cursor.get(field, errors))
    }

    /// Returns the elements of this list. Adds an error if the value is not a list.
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

    /// Returns the entries of this object, except nulls.
    pub fn entries(&self, errors: &mut Errors) -> Vec<(&'a str, FieldCursor<'a>)> {
        self.map(errors)
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.as_str(), FieldCursor::at(key_path(&self.path, key), value)))
            .collect()
    }

    /// Returns the value as an object. Adds an error if it has another type.
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

    /// Returns the value as text. Adds an error if it has another type.
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

    /// Returns the value as an integer. Adds an error if it has another type.
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

    /// Returns the value as a boolean. Adds an error if it has another type.
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

/// Returns the path of a field of the object at `path`.
pub fn child_path(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Returns the path of an entry of the map at `path`.
pub fn key_path(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

fn wrong_type(path: &str, value: &Value, wanted: &str) -> FieldError {
    let path = if path.is_empty() { "<root>" } else { path };
    FieldError::invalid(path, value.clone(), format!("must be {wanted}"))
}
