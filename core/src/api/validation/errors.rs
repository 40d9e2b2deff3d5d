//! The list of errors that validators fill.
//!
//! Invariant: its size is bounded for any object. A review of a few megabytes can contain a hundred thousand errors,
//! each with a path and a value.

use std::ops::Deref;

use serde_json::Value;

use super::FieldError;

/// Approximate maximum size in bytes of the kept errors. The first error is always kept.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// Errors in the order in which they were found. Beyond the bound, a last error says that further ones were omitted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    kept: Vec<FieldError>,
    bytes: usize,
    full: bool,
}

impl Errors {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self { kept: Vec::new(), bytes: 0, full: false }
    }

    /// Adds an error unless the list is full.
    pub fn push(&mut self, error: FieldError) {
        if self.full {
            return;
        }
        if self.bytes >= MAX_KEPT_BYTES {
            self.full = true;
            self.kept.push(FieldError::invalid_unshown("<root>", "has further errors, which are left out"));
            return;
        }
        self.bytes = self.bytes.saturating_add(size(&error));
        self.kept.push(error);
    }

    /// Returns whether further errors are dropped, so that checks can stop.
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Removes the errors that a stored object has as well: a part that a change leaves as it is does not make the change
    /// invalid. It was stored while no webhook answered, or by a version without the rule. If errors were left out, all
    /// stay.
    pub fn retain_new(&mut self, stored: impl FnOnce() -> Vec<FieldError>) {
        if !self.kept.is_empty() && !self.full {
            let stored = stored();
            self.kept.retain(|error| !stored.contains(error));
        }
    }

    /// Removes and returns all errors.
    pub fn take(&mut self) -> Vec<FieldError> {
        std::mem::take(self).kept
    }
}

impl Deref for Errors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.kept
    }
}

impl Extend<FieldError> for Errors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        for error in errors {
            self.push(error);
        }
    }
}

fn size(error: &FieldError) -> usize {
    let value = error.value.as_ref().map_or(0, weight);
    [size_of::<FieldError>(), error.path.len(), error.detail.len(), value]
        .into_iter()
        .fold(0, usize::saturating_add)
}

fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).fold(0, usize::saturating_add),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| key.len().saturating_add(weight(value)))
            .fold(0, usize::saturating_add),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    inner.saturating_add(size_of::<Value>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_list_is_bounded_and_marked() {
        let mut errors = Errors::new();
        for number in 0..100_000 {
            errors.push(FieldError::invalid(
                format!("spec.list[{number}]"),
                "x".repeat(50),
                "must be something",
            ));
        }
        assert!(errors.len() < 1_000, "{} errors", errors.len());
        assert!(errors.last().is_some_and(|last| last.detail.contains("left out")));
        let mut errors = Errors::new();
        errors.push(FieldError::invalid("spec", "y".repeat(1 << 20), "is long"));
        assert_eq!(errors.len(), 1, "the first error is always kept");
    }
}
