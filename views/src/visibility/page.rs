//! Pages by key: a token contains the order key of the last row, so that any replica can return the next page, and no state is
//! kept between pages.
//!
//! Invariant: a token contains names of rows that its reader has seen, and no others.

use super::views::{ListMetadata, ViewMetadata};
use crate::api::ObjectKey;
use crate::cache::size_index::Size;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum number of rows of a page, and the number without a limit.
pub const MAX_ROWS: usize = 500;
/// Maximum size of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 4 << 10;

/// Reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelError {
    /// The first lists are not complete.
    NotSynced,
    /// There is no such object that the reader may see.
    NotFound,
    /// The question is invalid; the text names the field.
    Invalid(String),
    /// Too many questions.
    TooMany,
    /// The process that could answer cannot be reached now.
    Unavailable,
    /// A list cannot continue from the token; the text gives the reason.
    Expired(String),
}

/// The page that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageQuery {
    /// Maximum number of rows.
    pub limit: usize,
    /// The token of the page before; empty for the first page.
    pub continue_token: String,
}

impl Default for PageQuery {
    fn default() -> Self {
        Self { limit: MAX_ROWS, continue_token: String::new() }
    }
}

impl PageQuery {
    /// A query for a whole list of queues, for callers in this process: what all rows share is made once.
    pub const fn whole() -> Self {
        Self { limit: usize::MAX, continue_token: String::new() }
    }

    /// Parses the options `limit` and `continue`. No limit, 0 and a limit above the maximum mean the maximum.
    ///
    /// # Errors
    /// If the limit is not a number of 64 bits, or is negative.
    pub fn parse(limit: Option<&str>, continue_token: Option<&str>) -> Result<Self, String> {
        let limit = match limit.filter(|text| !text.is_empty()) {
            None => 0,
            Some(text) => {
                let number =
                    text.parse::<i64>().map_err(|_| format!("limit: {text:?} is not a number of 64 bits"))?;
                usize::try_from(number).map_err(|_| format!("limit: {text:?} is negative"))?
            }
        };
        let limit = if limit == 0 { MAX_ROWS } else { limit.min(MAX_ROWS) };
        Ok(Self { limit, continue_token: continue_token.unwrap_or_default().to_owned() })
    }

    /// Returns a page of rows that are all in memory, in an order of their own. If the last row of the page before was removed,
    /// the list starts again.
    ///
    /// # Errors
    /// If the token belongs to another list.
    pub fn rows<T>(
        &self,
        scope: &str,
        all: Vec<T>,
        metadata: impl Fn(&T) -> &ViewMetadata,
    ) -> Result<(Vec<T>, ListMetadata), ModelError> {
        let after = self.after(scope)?;
        let is_last = |row: &T, key: &RowKey| {
            let metadata = metadata(row);
            metadata.namespace == key.namespace && metadata.name == key.name
        };
        let first = after
            .and_then(|key| all.iter().position(|row| is_last(row, &key)))
            .map_or(0, |last| last.saturating_add(1));
        let left = all.len().saturating_sub(first).saturating_sub(self.limit);
        let rows: Vec<T> = all.into_iter().skip(first).take(self.limit).collect();
        let key = rows.last().filter(|_| left > 0).map(|row| {
            let ViewMetadata { namespace, name, .. } = metadata(row);
            RowKey { namespace: namespace.clone(), name: name.clone(), ..RowKey::default() }
        });
        let remaining_item_count = key.as_ref().and_then(|_| u64::try_from(left).ok());
        let continue_token = key.map(|key| token(scope, key)).unwrap_or_default();
        Ok((rows, ListMetadata { continue_token, remaining_item_count }))
    }

    /// Returns the row after which the page begins; `None` for the first page.
    ///
    /// # Errors
    /// If the token does not belong to a list of this scope.
    pub(super) fn after(&self, scope: &str) -> Result<Option<RowKey>, ModelError> {
        let text = self.continue_token.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        match read_token::<Token>(text) {
            Some(token) if token.scope == scope => Ok(Some(token.key)),
            _ => Err(not_of_this_list()),
        }
    }
}

/// The order key of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowKey {
    /// Namespace.
    #[serde(rename = "n", default, skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    /// Name.
    #[serde(rename = "o")]
    pub(super) name: String,
    /// Place in the order of a queue, in a list with that order.
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    pub(super) queued: Option<QueuedKey>,
    /// Time since which the workload waits, has quota or is finished, in a list with that order.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub(super) waiting: Option<Timestamp>,
    /// Requested amounts, in a list with that order.
    #[serde(rename = "z", default, skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<Size>,
}

impl RowKey {
    /// Returns the key of a row in a list by name.
    pub(super) fn named(key: &ObjectKey) -> Self {
        Self { namespace: key.namespace.to_string(), name: key.name.to_string(), ..Self::default() }
    }
}

/// Place in the order of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QueuedKey {
    #[serde(rename = "p")]
    pub(super) priority: i64,
    #[serde(rename = "t")]
    pub(super) since: Timestamp,
    #[serde(rename = "u")]
    pub(super) uid: String,
    #[serde(rename = "l")]
    pub(super) local_queue: String,
    /// The ClusterQueue, in a list over several ClusterQueues.
    #[serde(rename = "c", default, skip_serializing_if = "String::is_empty")]
    pub(super) cluster_queue: String,
}

#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(rename = "s")]
    scope: String,
    #[serde(rename = "k")]
    key: RowKey,
}

/// Returns the token of the page after this row.
pub(super) fn token(scope: &str, key: RowKey) -> String {
    write_token(&Token { scope: scope.to_owned(), key })
}

/// Returns a value as a token.
pub(super) fn write_token(value: &impl Serialize) -> String {
    // The value has only strings as keys, so that this does not fail.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap_or_default())
}

/// Parses a token; `None` if it is not such a value.
pub(super) fn read_token<T: DeserializeOwned>(text: &str) -> Option<T> {
    let bytes = URL_SAFE_NO_PAD.decode(Some(text).filter(|text| text.len() <= MAX_TOKEN_BYTES)?).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Returns the error for a token of another list.
pub(super) fn not_of_this_list() -> ModelError {
    ModelError::Invalid("continue: the token is not one of this list; begin without it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_are_bounded() {
        let limit = |text: Option<&str>| PageQuery::parse(text, None).map(|query| query.limit);
        assert_eq!(limit(None), Ok(500));
        assert_eq!(limit(Some("0")), Ok(500));
        assert_eq!(limit(Some("7")), Ok(7));
        assert_eq!(limit(Some("100000")), Ok(500));
        for text in ["x", "-1", "9223372036854775808"] {
            assert!(limit(Some(text)).unwrap_err().starts_with("limit: "), "{text}");
        }
    }

    #[test]
    fn a_token_is_of_one_list() {
        let key = RowKey { namespace: "a".to_owned(), name: "b".to_owned(), ..RowKey::default() };
        let query = |token: &str| PageQuery { limit: 1, continue_token: token.to_owned() };
        let text = token("workloads", key.clone());
        assert_eq!(query(&text).after("workloads"), Ok(Some(key)));
        assert!(query(&text).after("queue/x").is_err());
        assert!(query(&"A".repeat(5_000)).after("workloads").is_err());
        assert_eq!(query("").after("workloads"), Ok(None));
    }

    #[test]
    fn rows_that_are_all_there_come_in_pages() {
        let names = ["a", "b", "c", "d", "e"];
        let all =
            || names.map(|name| ViewMetadata { name: name.to_owned(), ..ViewMetadata::default() }).to_vec();
        let (mut query, mut seen) = (PageQuery { limit: 2, ..PageQuery::default() }, Vec::new());
        loop {
            let (rows, metadata) = query.rows("x", all(), |row| row).unwrap();
            seen.extend(rows.into_iter().map(|row| row.name));
            if metadata.continue_token.is_empty() {
                break;
            }
            query.continue_token = metadata.continue_token;
        }
        assert_eq!(seen, names);
    }

    proptest! {
        #[test]
        fn any_token_is_read(text in ".{0,200}") {
            let query = PageQuery { limit: 1, continue_token: text };
            let _ = query.after("workloads");
        }
    }
}
