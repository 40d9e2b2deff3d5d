//! Matching of label selectors.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Returns whether the labels match the selector. A selector with an unknown operator matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    matches_labels(selector, |key| labels.get(key).map(String::as_str))
}

/// Returns whether labels, of which this returns the value of one, match the selector.
pub fn matches_labels<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let mut exact = selector.match_labels.iter().flatten();
    let mut requirements = selector.match_expressions.iter().flatten();
    exact.all(|(key, value)| label(key) == Some(value))
        && requirements.all(|requirement| matches_requirement(requirement, label(&requirement.key)))
}

/// Reads a label selector as `kubectl` takes it: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a` and `!a`, with commas
/// between them. An empty text selects everything.
///
/// # Errors
/// A part is no requirement; the text names it.
pub fn parse(text: &str) -> Result<LabelSelector, String> {
    let parts = split_outside_parentheses(text).map(str::trim).filter(|part| !part.is_empty());
    let requirements: Vec<LabelSelectorRequirement> =
        parts.map(parse_requirement).collect::<Result<_, _>>()?;
    let match_expressions = Some(requirements).filter(|all| !all.is_empty());
    Ok(LabelSelector { match_expressions, match_labels: None })
}

/// Returns the keys that a selector reads.
pub fn keys(selector: &LabelSelector) -> BTreeSet<&str> {
    let exact = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    exact.chain(selector.match_expressions.iter().flatten().map(|one| one.key.as_str())).collect()
}

fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |letter| {
        match letter {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

fn parse_requirement(text: &str) -> Result<LabelSelectorRequirement, String> {
    let invalid = || {
        format!(
            "{text:?} is no requirement: use KEY=VALUE, KEY!=VALUE, KEY in (A,B), KEY notin (A,B), KEY or !KEY"
        )
    };
    let requirement = |key: &str, operator: &str, values: Option<Vec<&str>>| {
        let (key, values) =
            (key.trim(), values.map(|all| all.into_iter().map(str::trim).collect::<Vec<_>>()));
        let is_word =
            |word: &str| !word.contains(|letter: char| letter.is_whitespace() || "()=!,".contains(letter));
        let is_valid = !key.is_empty() && is_word(key) && values.iter().flatten().all(|value| is_word(value));
        is_valid.then(|| LabelSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.map(|all| all.into_iter().map(str::to_owned).collect()),
        })
    };
    let found = if let Some((before, values)) = text.split_once('(') {
        let values = values.trim_end().strip_suffix(')').ok_or_else(invalid)?;
        let (key, operator) = before.trim_end().rsplit_once(char::is_whitespace).ok_or_else(invalid)?;
        let operator = match operator {
            "in" => "In",
            "notin" => "NotIn",
            _ => return Err(invalid()),
        };
        requirement(key, operator, Some(values.split(',').collect()))
    } else if let Some((key, value)) = text.split_once("!=") {
        requirement(key, "NotIn", Some(vec![value]))
    } else if let Some((key, value)) = text.split_once('=') {
        requirement(key, "In", Some(vec![value.strip_prefix('=').unwrap_or(value)]))
    } else if let Some(key) = text.strip_prefix('!') {
        requirement(key, "DoesNotExist", None)
    } else {
        requirement(text, "Exists", None)
    };
    found.ok_or_else(invalid)
}

fn matches_requirement(requirement: &LabelSelectorRequirement, value: Option<&str>) -> bool {
    let listed =
        value.is_some_and(|value| requirement.values.iter().flatten().any(|candidate| candidate == value));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn selectors_of_kubectl_are_read() {
        let labels = [("team", "a"), ("tier", "batch")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for (text, expected) in [
            ("", true),
            ("team=a,tier==batch", true),
            ("team=b", false),
            ("team!=b, other!=x", true),
            ("team!=a", false),
            ("team in (a, b)", true),
            ("team in (b,c),tier", false),
            ("team notin (b,c),tier", true),
            ("other notin (b)", true),
            ("other", false),
            ("!other", true),
            ("!team", false),
            ("team in (b,a),tier in (batch)", true),
        ] {
            assert_eq!(matches(&parse(text).unwrap(), &labels), expected, "{text}");
        }
        for text in ["=a", "a in b", "a in (b", "a b", "a=b=c", "a of (b)", "!", "a>1 b"] {
            assert!(parse(text).unwrap_err().contains("is no requirement"), "{text}");
        }
        assert_eq!(keys(&parse("a,b=c,!d").unwrap()), ["a", "b", "d"].into());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,80}") {
            let _ = parse(&text);
        }
    }
}
