//! Errors that name a field, worded as the API server words them.

use std::fmt;

use indexmap::IndexSet;
use serde_json::Value;

use crate::api::partial::without_raw_text;

/// Bytes of a message, roughly: the client shows it in one line.
const MESSAGE_MAX: usize = 32 << 10;

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorKind {
    /// The value is not allowed.
    Invalid,
    /// A value is missing.
    Required,
    /// The field may not be set like this now.
    Forbidden,
    /// The value must be unique.
    Duplicate,
    /// The value refers to nothing.
    NotFound,
    /// The value is none of the supported ones.
    NotSupported,
    /// The text is too long.
    TooLong,
    /// The list is too long.
    TooMany,
}

impl ErrorKind {
    /// The kind as messages spell it.
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

/// One field's error: `path: Kind: value: detail`.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Where, as `spec.podSets[0].name`.
    pub path: String,
    /// What is wrong.
    pub kind: ErrorKind,
    /// The value, for the kinds that show it.
    pub value: Option<Value>,
    /// What would be right; may be empty.
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

    /// A value that is not allowed.
    pub fn invalid(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Invalid, Some(value.into()), detail)
    }

    /// The same, where showing the value would not help.
    pub fn invalid_unshown(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Invalid, None, detail)
    }

    /// A value that may not change.
    pub fn immutable(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::invalid(path, value, "field is immutable")
    }

    /// A missing value.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Required, None, detail)
    }

    /// A field that may not be set like this.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Forbidden, None, detail)
    }

    /// A repeated value.
    pub fn duplicate(path: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, ErrorKind::Duplicate, Some(value.into()), detail)
    }

    /// A reference to nothing.
    pub fn not_found(path: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(path, ErrorKind::NotFound, Some(value.into()), "")
    }

    /// A value out of a closed set, which is listed in the order given.
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

    /// A text beyond its limit.
    pub fn too_long(path: impl Into<String>, limit: usize) -> Self {
        Self::new(path, ErrorKind::TooLong, None, format!("may not be more than {limit} bytes"))
    }

    /// A list beyond its limit.
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

/// All errors in one line: alone as it stands, several in brackets, repeated ones once, cut where it gets too long to read.
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

/// A text, or its beginning where it is longer than so many bytes.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.push_str("... (cut)");
    }
    text
}
