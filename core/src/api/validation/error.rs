//! Errors that name a field, in the format of the API server.

use std::fmt;

use indexmap::IndexSet;
use serde_json::Value;

use crate::api::partial::without_raw_text;

/// Approximate maximum size of a message in bytes; clients show it in one line.
const MESSAGE_MAX: usize = 32 << 10;

/// Kind of a field error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The value is not allowed.
    Invalid,
    /// A value is missing.
    Required,
    /// The field may not have this value in the current state.
    Forbidden,
    /// The value must be unique.
    Duplicate,
    /// The referenced object does not exist.
    NotFound,
    /// The value is not one of the supported values.
    NotSupported,
    /// The text is too long.
    TooLong,
    /// The list is too long.
    TooMany,
}

impl ErrorKind {
    /// Returns the kind as written in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid value",
            Self::Required => "Required value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::NotSupported => "Unsupported value",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }
}

/// Error of a field, printed as `path: Kind: value: detail`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Path of the field, such as `spec.podSets[0].name`.
    pub path: String,
    /// Kind of the error.
    pub kind: ErrorKind,
    /// The value, for kinds that show it.
    pub value: Option<Value>,
    /// The expected value; may be empty.
    pub detail: String,
}

impl FieldError {
    fn new(
        path: impl Into<String>,
        kind: ErrorKind,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), kind, value: value.map(without_raw_text), detail: detail.into() }
    }

    /// Creates an error for a value that is not allowed.
    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Invalid, Some(value.into()), detail)
    }

    /// Creates an error for a value that is not allowed, without showing the value.
    pub fn invalid_unshown(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Invalid, None, detail)
    }

    /// Creates an error for a changed value of an immutable field.
    pub fn immutable(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::invalid(path, value, "field is immutable")
    }

    /// Creates an error for a missing value.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Required, None, detail)
    }

    /// Creates an error for a value that is forbidden in the current state.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Forbidden, None, detail)
    }

    /// Creates an error for a duplicate value.
    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Duplicate, Some(value.into()), detail)
    }

    /// Creates an error for a reference to an object that does not exist.
    pub fn not_found(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(path, ErrorKind::NotFound, Some(value.into()), "")
    }

    /// Creates an error for a value that is not in `supported`; the message lists these values in the given order.
    pub fn not_supported<'a>(
        path: impl Into<String>,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let listed: Vec<String> = supported.into_iter().map(|s| format!("{s:?}")).collect();
        let detail = if listed.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", listed.join(", "))
        };
        Self::new(path, ErrorKind::NotSupported, Some(value.into()), detail)
    }

    /// Creates an error for a text of more than `limit` bytes.
    pub fn too_long(path: impl Into<String>, limit: usize) -> Self {
        Self::new(path, ErrorKind::TooLong, None, format!("may not be more than {limit} bytes"))
    }

    /// Creates an error for a list of more than `limit` items.
    pub fn too_many(path: impl Into<String>, actual: usize, limit: usize) -> Self {
        let detail = format!("must have at most {limit} items");
        Self::new(path, ErrorKind::TooMany, Some(Value::from(actual)), detail)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.kind.as_str())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

/// Formats all errors in one line: several in brackets, duplicates once, truncated beyond the maximum message size.
pub fn aggregate(errors: &[FieldError]) -> String {
    let mut texts: IndexSet<String> = IndexSet::new();
    let mut length = 0_usize;
    for error in errors {
        let text = cut(error.to_string(), MESSAGE_MAX);
        if length > MESSAGE_MAX {
            texts.insert("further errors are left out".to_owned());
            break;
        }
        length = length.saturating_add(text.len());
        texts.insert(text);
    }
    let mut texts = texts.into_iter();
    match (texts.next(), texts.len()) {
        (Some(only), 0) => only,
        (first, _) => {
            let several: Vec<String> = first.into_iter().chain(texts).collect();
            format!("[{}]", several.join(", "))
        }
    }
}

/// Truncates a text to at most `limit` bytes and marks it as cut.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str("... (cut)");
    }
    text
}
