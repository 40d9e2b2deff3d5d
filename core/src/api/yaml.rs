//! Files of YAML that configure a process.

use serde_json::Value;

/// Reads a file that consists of one document. One without content, as comments alone or `null`, is refused as one with several: it
/// is what a template leaves of a value that is missing, and never what its writer meant.
pub fn only_document(text: &str) -> Result<Value, String> {
    let document: Value = serde_saphyr::from_str(text).map_err(|error| {
        format!("not YAML: {}", error.render_with_formatter(&serde_saphyr::UserMessageFormatter))
    })?;
    if document.is_null() { Err("the file has no content".to_owned()) } else { Ok(document) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_content_or_with_several_documents_is_refused() {
        for text in [
            "",
            " \n",
            "# a comment",
            "---",
            "---\n# a comment\n",
            "null",
            "~",
            "!!null ''",
            "\u{feff}",
            "...\n",
        ] {
            assert_eq!(only_document(text), Err("the file has no content".to_owned()), "{text:?}");
        }
        for text in ["a: 1\n---\na: 2\n", "---\n---\na: 1\n", "a: 1\n---\n", "a: 1\na: 2\n"] {
            assert!(only_document(text).unwrap_err().starts_with("not YAML: "), "{text:?}");
        }
        for text in ["---\na: 1\n", "a: 1\n...\n", "\u{feff}a: 1\n"] {
            assert!(only_document(text).is_ok(), "{text:?}");
        }
    }
}
