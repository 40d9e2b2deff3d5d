//! The parts of a page that are replaced while it is shown.
//!
//! Invariants: only parts that the page had when it was loaded are replaced, so that no row appears, disappears or moves; a
//! part is sent only if it differs from that of the page.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Digests of the parts that a browser shows, by the id of the part's element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fragments(BTreeMap<String, [u8; 32]>);

/// Start of a row of a list, up to its id.
const ROW: &str = "<tr id=\"";

/// Returns the parts of a page: the text between `<!--live:ID-->` and `<!--end:ID-->`, and the rows of a list. What templates
/// insert is escaped and cannot hold such a mark; a row has no other row in it.
fn parts(html: &str) -> Vec<(&str, &str)> {
    let mut found = marked(html);
    let rows = html.match_indices(ROW).filter_map(|(at, _)| html.get(at..));
    found.extend(rows.filter_map(|from| {
        let (id, _) = from.get(ROW.len()..)?.split_once('"')?;
        let end = from.find("</tr>")?.checked_add("</tr>".len())?;
        Some((id, from.get(..end)?))
    }));
    found
}

fn marked(html: &str) -> Vec<(&str, &str)> {
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
    /// Returns the digests of the parts of a page.
    pub fn of(html: &str) -> Self {
        let digest = |text: &str| Sha256::digest(text.as_bytes()).into();
        Self(parts(html).into_iter().map(|(id, part)| (id.to_owned(), digest(part))).collect())
    }

    /// Returns the same parts with digests that match no contents, so that the next changes have all of them.
    #[must_use]
    pub fn unsent(self) -> Self {
        Self(self.0.into_keys().map(|id| (id, [0; 32])).collect())
    }
}

/// Returns the ids of the rows of a list in their order; `None` for a page that does not show how many rows have changed.
pub fn row_ids(html: &str) -> Option<Vec<String>> {
    let rows = || parts(html).into_iter().filter(|(_, part)| part.starts_with(ROW));
    html.contains(" id=\"changes\" ").then(|| rows().map(|(id, _)| id.to_owned()).collect())
}

/// Returns the parts of a page that a browser lacks, by id, and records that the browser now has them.
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

    #[test]
    fn row_ids_are_in_the_order_of_the_list() {
        let row = "<tr id=\"w-1\"><td>a</td></tr><tr><td>b</td></tr>";
        let list =
            format!("<p class=\"note\" id=\"changes\" hidden></p><!--live:a--><p></p><!--end:a-->{row}");
        assert_eq!(row_ids(&list), Some(vec!["w-1".to_owned()]));
        assert_eq!(row_ids(row), None, "no list");
        let mut known = Fragments::of(&list);
        let changed = changes(&mut known, &list.replace(">a<", ">c<"));
        assert_eq!(changed, [("w-1".to_owned(), "<tr id=\"w-1\"><td>c</td></tr>".to_owned())]);
    }
}
