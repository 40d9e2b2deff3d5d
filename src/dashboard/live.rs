//! The parts of a page that are replaced while it is shown.
//!
//! Invariants: only parts that the page had when it was loaded are replaced, so that no row appears, goes or moves; a part is sent
//! only if it differs from what the page has.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// What a page shows of each of its parts: digests by the id of the part's element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragments(BTreeMap<String, [u8; 32]>);

/// Returns the parts of a page, in their order: the text between `<!--live:ID-->` and `<!--end:ID-->`. What templates insert is
/// escaped and cannot hold such a mark.
fn parts(html: &str) -> Vec<(&str, &str)> {
    let (mut found, mut rest) = (Vec::new(), html);
    while let Some((_, after)) = rest.split_once("<!--live:") {
        let Some((id, body)) = after.split_once("-->") else { break };
        let Some((part, left)) = body.split_once(&format!("<!--end:{id}-->")) else { break };
        found.push((id, part));
        rest = left;
    }
    found
}

impl Fragments {
    /// Returns the parts of a page that a browser has.
    pub fn of(html: &str) -> Self {
        let digest = |text: &str| Sha256::digest(text.as_bytes()).into();
        Self(parts(html).into_iter().map(|(id, part)| (id.to_owned(), digest(part))).collect())
    }

    /// Returns the same parts of a browser of which nothing else is known.
    #[must_use]
    pub fn unsent(self) -> Self {
        Self(self.0.into_keys().map(|id| (id, [0; 32])).collect())
    }
}

/// Returns the parts that differ between what a browser has and a page, by id, and notes that the browser now has them.
pub fn changes(known: &mut Fragments, html: &str) -> Vec<(String, String)> {
    let mut changed = Vec::new();
    for (id, part) in parts(html) {
        let Some(shown) = known.0.get_mut(id) else { continue };
        let digest: [u8; 32] = Sha256::digest(part.as_bytes()).into();
        if *shown != digest {
            *shown = digest;
            changed.push((id.to_owned(), part.to_owned()));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_parts_that_differ_are_sent() {
        let page = |rows: &[(&str, &str)]| {
            let row = |(id, text): &(&str, &str)| {
                format!("<!--live:{id}--><p id=\"{id}\">{text}</p><!--end:{id}-->")
            };
            format!("<main>{}</main>", rows.iter().map(row).collect::<Vec<_>>().join("\n"))
        };
        let mut known = Fragments::of(&page(&[("a", "1"), ("b", "2"), ("c", "3")]));
        assert_eq!(changes(&mut known, &page(&[("a", "1"), ("b", "2")])), []);
        let changed = changes(&mut known, &page(&[("d", "9"), ("b", "5"), ("a", "1")]));
        assert_eq!(changed, [("b".to_owned(), "<p id=\"b\">5</p>".to_owned())]);
        assert_eq!(changes(&mut known, &page(&[("b", "5")])), [], "the browser has it by now");
        assert_eq!(parts("<!--live:a--> no end"), []);
    }
}
