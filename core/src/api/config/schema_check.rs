//! Compares a document with the schema of `Configuration` and reports unknown fields and wrong types with their paths.

use super::quantity::{self, Quantity};
use super::{Configuration, Duration, Problems};
use crate::api::validation::{FieldError, key_path};
use schemars::schema_for;
use serde_json::Value;

/// Adds an error for each part of the document that does not match the schema of `Configuration`.
pub(super) fn check(document: &Value, problems: &mut Problems) {
    check_against(&schema_for!(Configuration).to_value(), document, problems);
}

/// Adds an error for each part of the document that does not match a schema.
pub(super) fn check_against(schema: &Value, document: &Value, problems: &mut Problems) {
    let walk = SchemaWalker { definitions: schema.get("$defs") };
    walk.check(schema, document, "", problems);
}

/// Returns the path and the description of each field that has no fields of its own. A list of objects is one, and so are the
/// fields of its entries, with `[]` for an entry.
pub(super) fn leaves() -> Vec<(String, String)> {
    let schema = schema_for!(Configuration).to_value();
    let walk = SchemaWalker { definitions: schema.get("$defs") };
    let mut found = Vec::new();
    walk.collect_leaves(&schema, "", &mut found);
    found
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

    fn collect_leaves(&self, schema: &'a Value, path: &str, found: &mut Vec<(String, String)>) {
        let fields = |schema: &'a Value| schema.get("properties").and_then(Value::as_object);
        for (name, field) in fields(self.resolve(schema)).into_iter().flatten() {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let target = self.resolve(field);
            let entry = target.get("items").map(|items| self.resolve(items));
            // The fields of a selector are those of Kubernetes.
            if fields(target).is_some() && !name.ends_with("Selector") {
                self.collect_leaves(target, &below, found);
                continue;
            }
            let description = field.get("description").and_then(Value::as_str).unwrap_or_default();
            found.push((below.clone(), description.to_owned()));
            if let Some(entry) = entry {
                self.collect_leaves(entry, &format!("{below}[]"), found);
            }
        }
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
            for member in members {
                self.check_member(schema, member, path, problems);
            }
        }
        if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
            for (index, item) in values.iter().enumerate() {
                self.check_entry(items, item, &format!("{path}[{index}]"), problems);
            }
        }
        check_text(schema, value, path, problems);
    }

    /// Checks a field of a struct or an entry of a map.
    fn check_member(
        &self,
        schema: &'a Value,
        (name, member): (&String, &Value),
        path: &str,
        problems: &mut Problems,
    ) {
        let fields = schema.get("properties");
        let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (fields.and_then(|fields| fields.get(name)), schema.get("additionalProperties")) {
            (Some(field), _) => self.check(field, member, &below, problems),
            (None, Some(entry)) => {
                // Names of resources and labels contain dots; names of feature gates are written like fields.
                let dotted = name.contains(|c: char| !c.is_ascii_alphanumeric());
                let below = if dotted { key_path(path, name) } else { below };
                self.check_entry(entry, member, &below, problems);
            }
            (None, None) if fields.is_some() => problems.error(&below, "unknown field"),
            (None, None) => {}
        }
    }

    /// Checks an entry of a list or map. There null is not absent: Go reads it as an empty value, which an omitted entry
    /// is not.
    fn check_entry(&self, schema: &'a Value, value: &Value, path: &str, problems: &mut Problems) {
        if value.is_null() {
            problems.error(path, "must not be null");
        } else {
            self.check(schema, value, path, problems);
        }
    }
}

/// Checks the values that have a syntax of their own.
fn check_text(schema: &Value, value: &Value, path: &str, problems: &mut Problems) {
    match schema.get("title").and_then(Value::as_str) {
        Some("Duration") if value.as_str().is_some_and(|text| Duration::parse(text).is_none()) => {
            problems.error(path, "must be a duration such as 5m or 1h30m");
        }
        Some(quantity::TITLE) => {
            if let Err(reason) = Quantity::read(value) {
                problems.field_errors(&[FieldError::invalid(path, value.clone(), reason)]);
            }
        }
        _ => {}
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
    if fits { out_of_range(schema, value) } else { Some(format!("of type {}", wanted.join(" or "))) }
}

/// Returns the range of a number that is outside of it.
fn out_of_range(schema: &Value, value: &Value) -> Option<String> {
    let (min, max) = match schema.get("format").and_then(Value::as_str)? {
        "uint16" => (0, i64::from(u16::MAX)),
        "int32" => (i32::MIN.into(), i32::MAX.into()),
        "int64" => (i64::MIN, i64::MAX),
        "float" => {
            let limit = f64::from(f32::MAX);
            let fits = value.as_f64().is_none_or(|number| number.abs() <= limit);
            return (!fits).then(|| format!("between -{limit:e} and {limit:e}"));
        }
        _ => return None,
    };
    let fits = !value.is_number() || value.as_i64().is_some_and(|number| (min..=max).contains(&number));
    (!fits).then(|| format!("between {min} and {max}"))
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
