//! Number of rows of a list that were not read.
//!
//! Invariant: an unknown number is never shown as 0.

use serde_json::Value;

/// Rows of a list that were not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowsLeft {
    /// None: the list is complete.
    #[default]
    None,
    /// This many.
    Number(u64),
    /// Some: the server did not count them.
    Some,
}

impl RowsLeft {
    /// Reads the number from the metadata of a list: an incomplete list has a continue token.
    pub fn of(list: &Value) -> Self {
        let metadata = |name: &str| list.get("metadata").and_then(|metadata| metadata.get(name));
        match metadata("remainingItemCount").and_then(Value::as_u64) {
            Some(0) => Self::None,
            Some(number) => Self::Number(number),
            None if metadata("continue").and_then(Value::as_str).is_some_and(|token| !token.is_empty()) => {
                Self::Some
            }
            None => Self::None,
        }
    }

    /// Returns the line below an incomplete list.
    pub fn note(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Number(number) => Some(format!("{number} more: --limit 0 lists all")),
            Self::Some => Some("more: --limit 0 lists all".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn incomplete_list_has_a_note_with_or_without_number() {
        for (metadata, left, note) in [
            (json!({}), RowsLeft::None, None),
            (json!({"continue": ""}), RowsLeft::None, None),
            (json!({"continue": "t"}), RowsLeft::Some, Some("more: --limit 0 lists all")),
            (
                json!({"continue": "t", "remainingItemCount": 2}),
                RowsLeft::Number(2),
                Some("2 more: --limit 0 lists all"),
            ),
            (json!({"remainingItemCount": 0}), RowsLeft::None, None),
        ] {
            let found = RowsLeft::of(&json!({"metadata": metadata}));
            assert_eq!((found, found.note().as_deref()), (left, note));
        }
    }
}
