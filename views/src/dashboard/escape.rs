//! Escaping of inserted text: markup stays text, and invisible characters are written as their code point.
//!
//! Invariant: the result holds no `<`, `>`, `&`, quote, control character or character that changes the direction of text.

use askama::filters::Escaper;
use std::fmt::{self, Write};

/// Escapes what templates insert.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageText;

/// Whether a character is invisible and changes how its neighbours are shown.
const fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{8}'
            | '\u{b}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

impl Escaper for PageText {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        let mut start = 0;
        for (at, c) in text.char_indices() {
            let entity = match c {
                '<' => "&lt;",
                '>' => "&gt;",
                '&' => "&amp;",
                '"' => "&quot;",
                '\'' => "&#39;",
                _ if is_hidden(c) => "",
                _ => continue,
            };
            dest.write_str(text.get(start..at).unwrap_or_default())?;
            if entity.is_empty() {
                write!(dest, "[U+{:04X}]", u32::from(c))?;
            } else {
                dest.write_str(entity)?;
            }
            start = at + c.len_utf8();
        }
        dest.write_str(text.get(start..).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_hidden_characters_become_text() {
        for (text, expected) in [
            ("job-a", "job-a"),
            ("<b a=\"1\" c='2'>&amp;", "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;amp;"),
            ("a\u{202e}b\u{2066}c\u{0}", "a[U+202E]b[U+2066]c[U+0000]"),
            ("line\nnext\tü", "line\nnext\tü"),
        ] {
            let mut written = String::new();
            PageText.write_escaped_str(&mut written, text).unwrap();
            assert_eq!(written, expected);
        }
    }
}
