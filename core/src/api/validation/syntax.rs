//! Syntax checks of names, labels, annotations, selectors, quantities and conditions, equal to apimachinery's.

use serde_json::Value;

use super::{ErrorKind, Errors, FieldCursor, FieldError};
use crate::api::time::parse_time;
use crate::resources::Quantity;

const NAME_MAX: usize = 63;
const SUBDOMAIN_MAX: usize = 253;
const ANNOTATIONS_MAX: usize = 256 * 1024;
const REASON_MAX: usize = 1024;
const MESSAGE_MAX: usize = 32 * 1024;

const NAME_SYNTAX: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                           with an alphanumeric character";
const VALUE_SYNTAX: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                            '.', and must start and end with an alphanumeric character";
const SUBDOMAIN_SYNTAX: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                                or '.', and must start and end with an alphanumeric character";

/// Returns the reasons why a text is not a DNS subdomain.
pub fn subdomain(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        faults.push(format!("must be no more than {SUBDOMAIN_MAX} bytes"));
    }
    if !text.split('.').all(is_dns_label) {
        faults.push(SUBDOMAIN_SYNTAX.to_owned());
    }
    faults
}

fn is_dns_label(label: &str) -> bool {
    is_framed(label, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), |b| b == b'-')
}

/// Returns whether the text consists of `outer` and `inner` bytes, with `outer` bytes at both ends.
fn is_framed(text: &str, outer: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            outer(*first) && outer(*last) && bytes.iter().all(|b| outer(*b) || inner(*b))
        }
        _ => false,
    }
}

fn is_name_shaped(text: &str) -> bool {
    is_framed(text, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

/// Returns the reasons why a text is not a label key (`name` or `prefix/name`).
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            }
            *name
        }
        _ => {
            faults.push(format!(
                "a qualified name is a name with an optional DNS subdomain prefix and '/': {NAME_SYNTAX}"
            ));
            return faults;
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_MAX {
        faults.push(format!("name part must be no more than {NAME_MAX} bytes"));
    }
    if !is_name_shaped(name) {
        faults.push(NAME_SYNTAX.to_owned());
    }
    faults
}

/// Returns the reasons why a text is not a label value.
pub fn label_value(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if text.len() > NAME_MAX {
        faults.push(format!("must be no more than {NAME_MAX} bytes"));
    }
    if !text.is_empty() && !is_name_shaped(text) {
        faults.push(VALUE_SYNTAX.to_owned());
    }
    faults
}

/// Returns the reasons why a text is not a `domain/path`.
pub fn domain_prefixed_path(text: &str) -> Vec<String> {
    let Some((host, path)) = text.split_once('/').filter(|(host, path)| !host.is_empty() && !path.is_empty())
    else {
        return vec!["must be a domain-prefixed path (such as \"acme.io/foo\")".to_owned()];
    };
    let mut faults = subdomain(host);
    let in_path = |b: u8| b.is_ascii_alphanumeric() || br"/-._~%!$&'()*+,;=:".contains(&b);
    if !path.bytes().all(in_path) {
        faults.push("the part after the domain has characters that paths may not have".to_owned());
    }
    faults
}

/// Returns one error for each fault of a value.
pub fn invalid_each(path: &str, value: &str, faults: Vec<String>) -> Vec<FieldError> {
    faults.into_iter().map(|fault| FieldError::invalid(path, value, fault)).collect()
}

/// Reads a quantity, written as a string or a number.
///
/// # Errors
/// The value is not a quantity; the message explains why.
pub fn read_quantity(value: &Value) -> Result<Quantity, String> {
    let read = match value {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => return Err("must be a quantity".to_owned()),
    };
    read.map_err(|error| error.to_string())
}

/// Checks a label key.
pub fn check_label_name(path: &str, name: &str) -> Vec<FieldError> {
    invalid_each(path, name, qualified_name(name))
}

/// Checks a map of labels; errors have the path of the map.
pub fn check_labels(labels: &FieldCursor<'_>, errors: &mut Errors) {
    for (key, value) in labels.entries(errors) {
        errors.extend(check_label_name(&labels.path, key));
        if let Some(text) = value.text(errors) {
            errors.extend(invalid_each(&labels.path, text, label_value(text)));
        }
    }
}

/// Checks a map of annotations; errors have the path of the map.
pub fn check_annotations(annotations: &FieldCursor<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.entries(errors) {
        errors.extend(invalid_each(&annotations.path, key, qualified_name(&key.to_lowercase())));
        size += key.len() + value.text(errors).map_or(0, str::len);
    }
    if size > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(annotations.path.clone(), ANNOTATIONS_MAX));
    }
}

/// Checks a label selector.
pub fn check_selector(selector: &FieldCursor<'_>, errors: &mut Errors) {
    let labels = selector.get("matchLabels", errors);
    check_labels(&labels, errors);
    for expression in selector.get("matchExpressions", errors).items(errors) {
        let values = expression.get("values", errors);
        let listed = values.items(errors);
        let operator = expression.get("operator", errors);
        match operator.text(errors).unwrap_or_default() {
            "In" | "NotIn" if listed.is_empty() => errors.push(FieldError::required(
                values.path.clone(),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if !listed.is_empty() => errors.push(FieldError::forbidden(
                values.path.clone(),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                errors.push(FieldError::invalid(
                    operator.path.clone(),
                    other,
                    "not a valid selector operator",
                ));
            }
        }
        let key = expression.get("key", errors);
        let name = key.text(errors).unwrap_or_default();
        errors.extend(check_label_name(&key.path, name));
        for value in &listed {
            if let Some(text) = value.text(errors) {
                errors.extend(invalid_each(&value.path, text, label_value(text)));
            }
        }
    }
}

/// Checks a list of conditions.
pub fn check_conditions(conditions: &FieldCursor<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for condition in conditions.items(errors) {
        let type_ = condition.get("type", errors);
        let name = type_.text(errors).unwrap_or_default();
        if seen.contains(&name) {
            errors.push(FieldError::duplicate(type_.path.clone(), name, ""));
        }
        seen.push(name);
        errors.extend(check_label_name(&type_.path, name));
        check_condition(&condition, errors);
    }
}

fn check_condition(condition: &FieldCursor<'_>, errors: &mut Errors) {
    let status = condition.get("status", errors);
    let text = status.text(errors).unwrap_or_default();
    let statuses = ["False", "True", "Unknown"];
    if !statuses.contains(&text) {
        errors.push(FieldError::not_supported(status.path, text, statuses));
    }
    let generation = condition.get("observedGeneration", errors);
    if let Some(number) = generation.int(errors).filter(|n| *n < 0) {
        errors.push(FieldError::invalid(generation.path, number, "must be greater than or equal to 0"));
    }
    let time = condition.get("lastTransitionTime", errors);
    match time.text(errors) {
        None => errors.push(FieldError::required(time.path, "must be set")),
        Some(text) if parse_time(text).is_none() => {
            errors.push(FieldError::invalid(time.path, text, "must be an RFC 3339 time"));
        }
        Some(_) => {}
    }
    let reason = condition.get("reason", errors);
    match reason.text(errors).unwrap_or_default() {
        "" => errors.push(FieldError::required(reason.path, "must be set")),
        text => {
            if !is_condition_reason(text) {
                errors.push(FieldError::invalid(
                    reason.path.clone(),
                    text,
                    "must start with a letter, continue with letters, digits, '_', ',' or ':', and not end with ',' or ':'",
                ));
            }
            if text.len() > REASON_MAX {
                errors.push(FieldError::too_long(reason.path, REASON_MAX));
            }
        }
    }
    let message = condition.get("message", errors);
    if message.text(errors).unwrap_or_default().len() > MESSAGE_MAX {
        errors.push(FieldError::too_long(message.path, MESSAGE_MAX));
    }
}

fn is_condition_reason(text: &str) -> bool {
    let letter_first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let word_last = text.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    letter_first
        && word_last
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b',' | b':'))
}

/// Returns whether `errors` contains an error of this path and kind.
pub fn has(errors: &[FieldError], path: &str, kind: ErrorKind) -> bool {
    errors.iter().any(|e| e.path == path && e.kind == kind)
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Parses an integer like Go's `strconv.Atoi`; an error explains why the text is invalid.
pub fn parse_int(text: &str) -> Result<i64, &'static str> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("must be an integer");
    }
    text.parse().map_err(|_| "must be an integer that fits 64 bits: value out of range")
}

/// Returns the string at a path of fields, if it is a string.
pub fn text_at<'a>(object: &'a Value, fields: &[&str]) -> Option<&'a str> {
    fields.iter().try_fold(object, |value, field| value.get(field)).and_then(Value::as_str)
}
