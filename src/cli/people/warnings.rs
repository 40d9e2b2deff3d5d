//! Warnings in the headers of the API server's responses.
//!
//! Invariant: as with kubectl, each text is printed once, on standard error.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use http::header::WARNING;

use super::note;
use crate::people::text_table::printable;

/// Most texts that are kept for comparison.
const MAX_KEPT: usize = 1_000;

/// The warnings that were printed.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<BTreeSet<String>>>);

impl Warnings {
    /// Prints the new warnings of a response.
    pub(super) fn print(&self, headers: &HeaderMap) {
        for text in self.new_ones(headers) {
            note(&format!("Warning: {}", printable(&text)));
        }
    }

    fn new_ones(&self, headers: &HeaderMap) -> Vec<String> {
        let values = headers.get_all(WARNING).iter().filter_map(|value| value.to_str().ok());
        let texts = values.flat_map(texts);
        let mut printed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        texts.filter(|text| printed.len() < MAX_KEPT && printed.insert(text.clone())).collect()
    }
}

/// Returns the texts of a header: `299 - "TEXT"`, several separated by commas. Other values are left out.
fn texts(value: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), value);
    while let Some(start) = rest.find('"') {
        let code = rest.get(..start).unwrap_or_default().trim_matches([',', ' ']);
        let (mut text, mut is_escaped, mut end) = (String::new(), false, None);
        for (index, letter) in rest.char_indices().skip_while(|(index, _)| *index <= start) {
            match letter {
                _ if is_escaped => {
                    text.push(letter);
                    is_escaped = false;
                }
                '\\' => is_escaped = true,
                '"' => {
                    end = Some(index.saturating_add(1));
                    break;
                }
                _ => text.push(letter),
            }
        }
        let Some(end) = end else { break };
        if code.starts_with("299") && !text.is_empty() {
            found.push(text);
        }
        rest = rest.get(end..).unwrap_or_default();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        for (value, expected) in [
            ("299 - \"v1beta1 is deprecated\"", vec!["v1beta1 is deprecated"]),
            ("299 - \"say \\\"x\\\\\\\"\", 299 kueue \"b, c\"", vec!["say \"x\\\"", "b, c"]),
            ("199 - \"other\"", vec![]),
            ("299 - \"open", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(texts(value), expected, "{value}");
        }
    }

    #[test]
    fn a_text_is_printed_once() {
        let (warnings, mut headers) = (Warnings::default(), HeaderMap::new());
        for text in ["299 - \"a\"", "299 - \"b\"", "299 - \"a\""] {
            headers.append(WARNING, text.parse().unwrap());
        }
        assert_eq!(warnings.new_ones(&headers), ["a", "b"]);
        assert!(warnings.new_ones(&headers).is_empty());
    }
}
