//! Shortens the API server's answer to a refused write for conditions, events and logs.
//!
//! Invariants: the text has at most [`MAX_BYTES`]; fields and reasons are kept, while the refused objects, which the
//! server quotes whole, with environment variables and other secrets, are left out.

/// Maximum length of a text.
const MAX_BYTES: usize = 512;
/// Length of the end that is kept when a text is cut: the reason comes last.
const TAIL_BYTES: usize = 128;
/// Longest quoted object and longest quoted text that are kept.
const MAX_OBJECT_BYTES: usize = 32;
const MAX_QUOTED_BYTES: usize = 128;
const CUT: &str = "…";

/// Returns a message of the API server without the objects that it quotes, and cut in the middle if it is long.
pub(super) fn brief(message: &str) -> String {
    let text = without_objects(message);
    if text.len() <= MAX_BYTES {
        return text;
    }
    let head = text.floor_char_boundary(MAX_BYTES - TAIL_BYTES - 2 - CUT.len());
    let tail = text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES));
    let part = |range: Option<&str>| range.unwrap_or_default().trim().to_owned();
    format!("{} {CUT} {}", part(text.get(..head)), part(text.get(tail..)))
}

/// Replaces long objects in braces and long quoted texts. A part that does not end is left out up to the end.
fn without_objects(message: &str) -> String {
    let mut kept = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(['{', '"']) {
        let (before, part) = rest.split_at(start);
        kept.push_str(before);
        let is_object = part.starts_with('{');
        let length = if is_object { object_length(part) } else { quoted_length(part) };
        let (part, after) = part.split_at(length);
        match is_object {
            true if part.len() > MAX_OBJECT_BYTES => kept.push_str("{…}"),
            false if part.len() > MAX_QUOTED_BYTES => {
                kept.push_str(part.get(..part.floor_char_boundary(MAX_QUOTED_BYTES)).unwrap_or_default());
                kept.push_str("…\"");
            }
            _ => kept.push_str(part),
        }
        rest = after;
    }
    kept.push_str(rest);
    kept
}

/// Returns the length of the object at the start of a text, its braces included.
fn object_length(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find(['{', '}', '"'])) {
        at = at.saturating_add(found);
        match text.as_bytes().get(at) {
            Some(b'"') => {
                at = at.saturating_add(text.get(at..).map_or(1, quoted_length));
                continue;
            }
            Some(b'{') => depth = depth.saturating_add(1),
            _ => depth = depth.saturating_sub(1),
        }
        at = at.saturating_add(1);
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Returns the length of the quoted text at the start of a text, its quotes included.
fn quoted_length(text: &str) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices().skip(1) {
        match character {
            '"' if !escaped => return index.saturating_add(1),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_and_reasons_are_kept() {
        let template =
            format!(r#"{{"Env":"secret \" }}","Command":["{}"],"Spec":{{"a":1}}}}"#, "x".repeat(2000));
        let go = r#"core.PodTemplateSpec{ObjectMeta:v1.ObjectMeta{Name:"", Labels:map[string]string{"a":"secret"}}}"#;
        let head = r#"Job.batch "x" is invalid: "#;
        let table = [
            ("spec.count: Invalid value: -1".to_owned(), "spec.count: Invalid value: -1".to_owned()),
            (
                format!("{head}spec.template: Invalid value: {template}: field is immutable"),
                format!("{head}spec.template: Invalid value: {{…}}: field is immutable"),
            ),
            (
                format!(
                    "{head}[spec.template: Invalid value: {go}: field is immutable, spec.a: Required value]"
                ),
                format!(
                    "{head}[spec.template: Invalid value: core.PodTemplateSpec{{…}}: field is immutable, spec.a: Required value]"
                ),
            ),
            // The server itself may cut a message.
            (
                format!("{head}spec: Invalid value: {}", &template[..900]),
                format!("{head}spec: Invalid value: {{…}}"),
            ),
            (
                format!("{head}metadata.name: Invalid value: \"{}\": too long", "n".repeat(4000)),
                format!("{head}metadata.name: Invalid value: \"{}…\": too long", "n".repeat(127)),
            ),
        ];
        for (message, expected) in table {
            assert_eq!(brief(&message), expected);
        }
    }

    proptest! {
        /// Whatever the server says, the text is short and begins and ends as the message, if it quotes nothing.
        #[test]
        fn texts_are_bounded(message in "[a-zé{}\"\\\\ :.]{0,2000}", plain in "[a-zé :.]{600,2000}") {
            prop_assert!(brief(&message).len() <= MAX_BYTES);
            let text = brief(&plain);
            prop_assert!(text.len() <= MAX_BYTES && text.len() > MAX_BYTES - 16);
            prop_assert!(plain.trim().starts_with(text.split(CUT).next().unwrap().trim()));
            prop_assert!(plain.trim().ends_with(text.rsplit(CUT).next().unwrap().trim()));
        }
    }
}
