//! Compares a document with the schema of `Configuration` and reports unknown fields and wrong types with their paths.

use super::Problems;
use super::{Configuration, Duration};
use schemars::schema_for;
use serde_json::Value;

/// Adds an error for each part of the document that does not match the schema of `Configuration`.
pub(super) fn check(document: &Value, problems: &mut Problems) {
    let schema = schema_for!(Configuration).to_value();
    let walk = SchemaWalker { definitions: schema.get("$defs") };
    walk.check(&schema, document, "", problems);
}

struct SchemaWalker<'a> {
    definitions: Option<&'a Value>,
}

impl<'a> SchemaWalker<'a> {
    /// Returns the schema behind references, without the alternative null.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let name = name.trim_start_matches("#/$defs/");
            return self.definitions.and_then(|d| d.get(name)).map_or(schema, |s| self.resolve(s));
        }
        let alternatives = schema.get("anyOf").and_then(Value::as_array);
        let some =
            alternatives.and_then(|all| all.iter().find(|s| s.get("type").is_none_or(|t| t != "null")));
        some.map_or(schema, |s| self.resolve(s))
    }

    fn check(&self, schema: &'a Value, value: &Value, path: &str, problems: &mut Problems) {
        let schema = self.resolve(schema);
        // As in Go, null equals absent.
        if value.is_null() {
            return;
        }
        if let Some(wanted) = mismatch(schema, value) {
            problems.error(path, &format!("must be {wanted}"));
            return;
        }
        if let Some(members) = value.as_object() {
            for (name, member) in members {
                let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let known = schema.get("properties").and_then(|p| p.get(name));
                match known.or_else(|| schema.get("additionalProperties")) {
                    Some(inner) => self.check(inner, member, &below, problems),
                    None if schema.get("properties").is_some() => problems.error(&below, "unknown field"),
                    None => {}
                }
            }
        }
        if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
            for (index, item) in values.iter().enumerate() {
                self.check(items, item, &format!("{path}[{index}]"), problems);
            }
        }
        let is_duration = schema.get("title").and_then(Value::as_str) == Some("Duration");
        if is_duration && value.as_str().is_some_and(|text| Duration::parse(text).is_none()) {
            problems.error(path, "must be a duration such as 5m or 1h30m");
        }
    }
}

/// Returns the expected type or values, or `None` if the value matches.
fn mismatch(schema: &Value, value: &Value) -> Option<String> {
    let allowed: Vec<&str> = enum_values(schema);
    if !allowed.is_empty() {
        let text = value.as_str().unwrap_or_default();
        return (!allowed.contains(&text)).then(|| format!("one of {}", allowed.join(", ")));
    }
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let fits = types.iter().any(|kind| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => false,
    });
    let wanted: Vec<&str> = types.into_iter().filter(|kind| *kind != "null").collect();
    (!fits).then(|| format!("of type {}", wanted.join(" or ")))
}

/// Returns the values of an enum.
fn enum_values(schema: &Value) -> Vec<&str> {
    let listed = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let mut words: Vec<&str> = listed.filter_map(Value::as_str).collect();
    for alternative in schema.get("oneOf").and_then(Value::as_array).into_iter().flatten() {
        words.extend(alternative.get("const").and_then(Value::as_str));
        words.extend(self::enum_values(alternative));
    }
    words
}
