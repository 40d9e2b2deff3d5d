//! The submitter of a job: the user that a label or an annotation of it names.
//!
//! Invariants: the annotation that webhooks record is read as an annotation alone, because any user may write a label; a name that is
//! longer than the bound is none; what is recorded, stored and asked for is compared in the form of `submitter_name`.

use crate::api::names::{MAX_SUBMITTER_BYTES, SUBMITTER_ANNOTATION};
use serde_json::Value;

/// Returns a user name without spaces and tabs around it: a header has none there, so that a user with such a name arrives with it in a
/// review of a webhook, and without it at an aggregated API.
pub fn submitter_name(name: &str) -> &str {
    name.trim_matches([' ', '\t'])
}

/// Returns the submitter of an object as it is stored, by the key of a label or an annotation.
pub fn submitter_of<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    let value = |map: &str| object.get("metadata")?.get(map)?.get(key)?.as_str();
    named_submitter(key, value("labels"), value("annotations"))
}

/// Returns the submitter that the label or the annotation of a key names. A label has precedence.
pub fn named_submitter<'a>(
    key: &str,
    label: Option<&'a str>,
    annotation: Option<&'a str>,
) -> Option<&'a str> {
    let label = label.filter(|_| key != SUBMITTER_ANNOTATION);
    let is_name = |name: &&str| !name.is_empty() && name.len() <= MAX_SUBMITTER_BYTES;
    let (label, annotation) = (label.map(submitter_name), annotation.map(submitter_name));
    label.filter(is_name).or(annotation.filter(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn submitters_are_read_by_the_key() {
        let object = json!({"metadata": {
            "labels": {"team/user": "ann", SUBMITTER_ANNOTATION: "eve"},
            "annotations": {"team/user": "bob", "team/mail": "ann@example.com", SUBMITTER_ANNOTATION: "ann"},
        }});
        for (key, expected) in [
            ("team/user", Some("ann")),
            ("team/mail", Some("ann@example.com")),
            (SUBMITTER_ANNOTATION, Some("ann")),
            ("team", None),
        ] {
            assert_eq!(submitter_of(&object, key), expected, "{key}");
        }
        assert_eq!(named_submitter("team/user", Some(" "), Some("\tünï  b ")), Some("ünï  b"));
        let long = "a".repeat(MAX_SUBMITTER_BYTES + 1);
        for name in ["", &long] {
            assert_eq!(named_submitter("team/user", Some(name), None), None);
        }
        assert_eq!(named_submitter("team/user", Some(&long[1..]), None), Some(&long[1..]));
        for object in
            [json!(null), json!({"metadata": []}), json!({"metadata": {"labels": {"team/user": 3}}})]
        {
            assert_eq!(submitter_of(&object, "team/user"), None, "{object}");
        }
    }
}
