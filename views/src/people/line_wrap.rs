//! Lines of a width: a text is broken between words.
//!
//! Invariant: sequences that colour a text have no width, and no word that has one is broken.

/// First character of a sequence that colours a text; `m` is its last one.
const ESCAPE: char = '\u{1b}';

/// Returns a text in lines of at most `width` characters. A word that no line holds is broken; one space separates words.
pub fn words_within(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        let mut word = word;
        if !line.is_empty() {
            if shown_width(&line) + 1 + shown_width(word) > width {
                lines.push(std::mem::take(&mut line));
            } else {
                line.push(' ');
            }
        }
        while shown_width(word) > width && !word.contains(ESCAPE) {
            let end = word.char_indices().nth(width).map_or(word.len(), |(end, _)| end);
            let (first, rest) = word.split_at(end);
            lines.push(first.to_owned());
            word = rest;
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

/// Returns the number of characters that a terminal shows of a text.
pub fn shown_width(text: &str) -> usize {
    let mut is_sequence = false;
    let is_shown = |letter: &char| {
        if is_sequence {
            is_sequence = *letter != 'm';
            return false;
        }
        is_sequence = *letter == ESCAPE;
        !is_sequence
    };
    text.chars().filter(is_shown).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_in_words_that_are_too_long() {
        for (text, width, expected) in [
            ("", 5, &[""][..]),
            ("one two", 7, &["one two"]),
            ("one two", 6, &["one", "two"]),
            ("one twothree four", 5, &["one", "twoth", "ree", "four"]),
            ("äöü äöü", 3, &["äöü", "äöü"]),
            ("ab", 0, &["a", "b"]),
            ("\u{1b}[1mone\u{1b}[0m two", 7, &["\u{1b}[1mone\u{1b}[0m two"]),
            ("\u{1b}[1mone\u{1b}[0m", 2, &["\u{1b}[1mone\u{1b}[0m"]),
        ] {
            assert_eq!(words_within(text, width), expected, "{text:?} {width}");
        }
    }
}
