//! The start of sentences.
//!
//! Invariant: a key or a name at the start of a sentence is spelled as in its object, so that it can be copied.

/// Returns a text with a capital first letter, unless the first word is a key, a path or a name with a prefix, such as
/// `sluice.dev/expected-run-time`, `spec.parallelism` or `team/job`.
pub(crate) fn capitalized(text: &str) -> String {
    let word = text.split_whitespace().next().unwrap_or_default();
    let is_name = word.trim_end_matches(['.', ',', ':', ';']).contains(['/', '.', ':', '_', '=']);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !is_name => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::EXPECTED_RUN_TIME_ANNOTATION;

    #[test]
    fn keys_and_names_keep_their_letters() {
        for key in [
            EXPECTED_RUN_TIME_ANNOTATION,
            "kueue.x-k8s.io/max-exec-time-seconds",
            "spec.parallelism",
            "nvidia.com/gpu:",
            "team/job,",
            "h100:cpu",
            "gpu=a",
        ] {
            let text = format!("{key} of ns/job is ignored");
            assert_eq!(capitalized(&text), text);
        }
    }

    #[test]
    fn words_begin_with_a_capital() {
        for (text, expected) in [
            ("a nominal quota of 6", "A nominal quota of 6"),
            ("behind: ns/head", "Behind: ns/head"),
            ("unknown.", "Unknown."),
            ("Topology \"t\"", "Topology \"t\""),
            ("", ""),
        ] {
            assert_eq!(capitalized(text), expected);
        }
    }
}
