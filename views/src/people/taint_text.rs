//! Taints, tolerations and labels as flags: `KEY[=VALUE]:EFFECT`, `KEY[=VALUE][:EFFECT]` or `:EFFECT`, and `KEY=VALUE`.

use crate::api::validation::syntax;
use serde_json::{Value, json};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Key, value and effect of a text.
struct Parts<'a> {
    key: &'a str,
    value: &'a str,
    effect: &'a str,
}

fn split<'a>(kind: &str, text: &'a str) -> Result<Parts<'a>, String> {
    let wrong = || format!("invalid {kind} spec: {text}");
    let (pair, effect) = text.split_once(':').unwrap_or((text, ""));
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if effect.contains(':') || value.contains('=') {
        return Err(wrong());
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        return Err(format!("invalid taint effect: {effect}, unsupported taint effect"));
    }
    Ok(Parts { key, value, effect })
}

fn check(kind: &str, text: &str, problems: &[String]) -> Result<(), String> {
    if problems.is_empty() {
        Ok(())
    } else {
        Err(format!("invalid {kind} spec: {text}, {}", problems.join("; ")))
    }
}

/// Parses `--node-taints`.
///
/// # Errors
/// A taint is malformed, or given twice.
pub fn taints(texts: &[String]) -> Result<Vec<Value>, String> {
    let mut found: Vec<(&str, &str, Value)> = Vec::new();
    for text in texts.iter().flat_map(|value| value.split(',')) {
        let Parts { key, value, effect } = split("taint", text)?;
        if effect.is_empty() {
            return Err(format!("invalid taint spec: {text}").trim_end_matches(": ").to_owned());
        }
        check("taint", text, &syntax::qualified_name(key))?;
        check("taint", text, &syntax::label_value(value))?;
        if found.iter().any(|known| (known.0, known.1) == (key, effect)) {
            return Err(format!(
                "duplicated taints with the same key and effect: {{{key} {value} {effect} <nil>}}"
            ));
        }
        let mut taint = json!({"key": key, "effect": effect});
        if let (Some(fields), false) = (taint.as_object_mut(), value.is_empty()) {
            fields.insert("value".to_owned(), json!(value));
        }
        found.push((key, effect, taint));
    }
    Ok(found.into_iter().map(|(_, _, taint)| taint).collect())
}

/// Parses `--tolerations`.
///
/// # Errors
/// A toleration is malformed.
pub fn tolerations(texts: &[String]) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    for text in texts.iter().flat_map(|value| value.split(',')) {
        if text.is_empty() {
            return Err("invalid toleration spec".to_owned());
        }
        let Parts { key, value, effect } = split("toleration", text)?;
        if key.is_empty() && !value.is_empty() {
            return Err(format!("invalid toleration spec: {text}"));
        }
        if !key.is_empty() {
            check("toleration", text, &syntax::qualified_name(key))?;
        }
        check("toleration", text, &syntax::label_value(value))?;
        let operator = if value.is_empty() { "Exists" } else { "Equal" };
        let fields = [("key", key), ("operator", operator), ("value", value), ("effect", effect)];
        let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
        found.push(fields.map(|(name, text)| (name.to_owned(), json!(text))).collect());
    }
    Ok(found)
}

/// Parses a list of `KEY=VALUE`, separated by commas, in the order of the keys.
///
/// # Errors
/// A part has no `=`.
pub fn labels(flag: &str, texts: &[String]) -> Result<Value, String> {
    let mut found = std::collections::BTreeMap::new();
    for text in texts.iter().flat_map(|value| value.split(',')).filter(|text| !text.is_empty()) {
        let (key, value) = text.split_once('=').ok_or_else(|| {
            format!("invalid argument {text:?} for \"{flag}\" flag: {text} must be formatted as key=value")
        })?;
        found.insert(key.to_owned(), json!(value));
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        vec![text.to_owned()]
    }

    #[test]
    fn taints_and_tolerations_are_read_as_kueuectl_does() {
        assert_eq!(
            taints(&texts("key1=value:NoSchedule,key2:NoExecute")),
            Ok(vec![
                json!({"key": "key1", "effect": "NoSchedule", "value": "value"}),
                json!({"key": "key2", "effect": "NoExecute"})
            ])
        );
        assert_eq!(
            tolerations(&texts("k=v:NoSchedule,k2=v,k3,:PreferNoSchedule")),
            Ok(vec![
                json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}),
                json!({"key": "k2", "operator": "Equal", "value": "v"}),
                json!({"key": "k3", "operator": "Exists"}),
                json!({"operator": "Exists", "effect": "PreferNoSchedule"}),
            ])
        );
        assert_eq!(labels("--node-labels", &texts("c=d,a=b")), Ok(json!({"a": "b", "c": "d"})));
    }

    #[test]
    fn errors_have_kueuectls_words() {
        for (text, expected) in [
            ("k:Foo", "invalid taint effect: Foo, unsupported taint effect"),
            ("k=a=b:NoSchedule", "invalid taint spec: k=a=b:NoSchedule"),
            (
                "k:NoSchedule,k:NoSchedule",
                "duplicated taints with the same key and effect: {k  NoSchedule <nil>}",
            ),
            ("k", "invalid taint spec: k"),
            ("", "invalid taint spec"),
        ] {
            assert_eq!(taints(&texts(text)), Err(expected.to_owned()), "{text}");
        }
        assert!(
            taints(&texts("-a:NoSchedule"))
                .unwrap_err()
                .starts_with("invalid taint spec: -a:NoSchedule, name part")
        );
        for (text, expected) in [("=x", "invalid toleration spec: =x"), ("", "invalid toleration spec")] {
            assert_eq!(tolerations(&texts(text)), Err(expected.to_owned()), "{text}");
        }
        assert_eq!(
            labels("--node-labels", &texts("a")),
            Err("invalid argument \"a\" for \"--node-labels\" flag: a must be formatted as key=value"
                .to_owned())
        );
    }
}
