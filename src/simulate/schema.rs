//! Defaulting and schema validation of Kueue's kinds, as an API server does before webhooks: types, required fields,
//! bounds, unknown fields. CEL rules are not evaluated: the webhook validation that follows covers what affects
//! decisions.

use crate::api::crd;
use crate::api::validation::{FieldError, child_path, key_path};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fields of every object that the schemas do not describe.
const COMMON_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The schemas by kind, and their patterns.
#[derive(Debug)]
pub(super) struct Schemas {
    by_kind: BTreeMap<String, Value>,
    /// `None` for a pattern that the regex engine does not support: webhook validation covers it.
    patterns: BTreeMap<String, Option<Regex>>,
}

impl Schemas {
    /// Reads the schemas of the CustomResourceDefinitions of this build.
    pub(super) fn shipped() -> Result<Self, String> {
        let definitions = crd::definitions().map_err(|error| error.to_string())?;
        let mut schemas = Self { by_kind: BTreeMap::new(), patterns: BTreeMap::new() };
        for (_, definition) in definitions {
            let kind = definition.pointer("/spec/names/kind").and_then(Value::as_str);
            let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema");
            if let (Some(kind), Some(schema)) = (kind, schema) {
                collect_patterns(schema, &mut schemas.patterns);
                schemas.by_kind.insert(kind.to_owned(), schema.clone());
            }
        }
        Ok(schemas)
    }

    /// Sets defaults and returns all errors. Kinds without a schema have no errors.
    pub(super) fn default_and_validate(&self, kind: &str, object: &mut Value) -> Vec<FieldError> {
        let mut check = SchemaValidator { patterns: &self.patterns, errors: Vec::new() };
        let (Some(schema), Value::Object(fields)) = (self.by_kind.get(kind), object) else {
            return check.errors;
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        for name in fields.keys().filter(|name| !COMMON_FIELDS.contains(&name.as_str())) {
            if properties.is_none_or(|known| !known.contains_key(name)) {
                check.errors.push(FieldError::invalid_unshown(name.clone(), "unknown field"));
            }
        }
        // Users do not set the status.
        let own = |name: &String| !COMMON_FIELDS.contains(&name.as_str()) && name != "status";
        for (name, schema) in properties.into_iter().flatten().filter(|(name, _)| own(name)) {
            check.validate_field(fields, name, schema, "");
        }
        check.errors
    }
}

/// Returns the schema type of a value.
const fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::Null => "null",
    }
}

fn collect_patterns(schema: &Value, patterns: &mut BTreeMap<String, Option<Regex>>) {
    match schema {
        Value::Object(fields) => {
            if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
                patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
            }
            fields.values().for_each(|field| collect_patterns(field, patterns));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_patterns(item, patterns)),
        _ => {}
    }
}

/// Validation of one object.
struct SchemaValidator<'a> {
    patterns: &'a BTreeMap<String, Option<Regex>>,
    errors: Vec<FieldError>,
}

impl SchemaValidator<'_> {
    /// Defaults and validates a field of an object.
    fn validate_field(&mut self, fields: &mut Map<String, Value>, name: &str, schema: &Value, path: &str) {
        if fields.get(name).is_some_and(Value::is_null) && schema.get("nullable").is_none() {
            fields.shift_remove(name);
        }
        if let (false, Some(default)) = (fields.contains_key(name), schema.get("default")) {
            fields.insert(name.to_owned(), default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            self.validate_value(value, schema, &child_path(path, name));
        }
    }

    fn validate_value(&mut self, value: &mut Value, schema: &Value, path: &str) {
        let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        let flexible = schema.get("x-kubernetes-int-or-string").is_some();
        let fits = match (&*value, text("type")) {
            (_, "") => true,
            (Value::String(_) | Value::Number(_), _) if flexible => true,
            (Value::Number(number), "integer") => number.is_i64() || number.is_u64(),
            (_, wanted) => type_of(value) == wanted,
        };
        if !fits {
            let wanted = if flexible { "integer or string" } else { text("type") };
            self.errors.push(FieldError::invalid(path, value.clone(), format!("must be of type {wanted}")));
            return;
        }
        match value {
            Value::Object(fields) => self.validate_object(fields, schema, path),
            Value::Array(items) => self.validate_items(items, schema, path),
            Value::String(written) => self.validate_text(written, schema, path),
            Value::Number(number) => self.validate_number(number.as_f64(), schema, path),
            Value::Null | Value::Bool(_) => {}
        }
        let allowed = schema.get("enum").and_then(Value::as_array);
        if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(value)) {
            let names = allowed.iter().filter_map(Value::as_str);
            self.errors.push(FieldError::not_supported(path, value.clone(), names));
        }
    }

    fn validate_object(&mut self, fields: &mut Map<String, Value>, schema: &Value, path: &str) {
        for name in
            schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            let defaulted = schema.pointer(&format!("/properties/{name}/default")).is_some();
            if !fields.contains_key(name) && !defaulted {
                self.errors.push(FieldError::required(child_path(path, name), ""));
            }
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let open = schema.get("x-kubernetes-preserve-unknown-fields").is_some();
            for name in fields.keys().filter(|name| !open && !properties.contains_key(*name)) {
                self.errors.push(FieldError::invalid_unshown(child_path(path, name), "unknown field"));
            }
            for (name, schema) in properties {
                self.validate_field(fields, name, schema, path);
            }
        } else if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
            for (key, value) in fields.iter_mut() {
                self.validate_value(value, schema, &key_path(path, key));
            }
        }
    }

    fn validate_items(&mut self, items: &mut [Value], schema: &Value, path: &str) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        if let Some(max) = bound("maxItems").filter(|max| items.len() > *max) {
            self.errors.push(FieldError::too_many(path, items.len(), max));
        }
        if let Some(min) = bound("minItems").filter(|min| items.len() < *min) {
            self.errors.push(FieldError::invalid(
                path,
                items.len(),
                format!("must have at least {min} items"),
            ));
        }
        let Some(item_schema) = schema.get("items") else {
            return;
        };
        for (index, item) in items.iter_mut().enumerate() {
            self.validate_value(item, item_schema, &format!("{path}[{index}]"));
        }
    }

    fn validate_text(&mut self, written: &str, schema: &Value, path: &str) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        let length = written.chars().count();
        if let Some(max) = bound("maxLength").filter(|max| length > *max) {
            self.errors.push(FieldError::too_long(path, max));
        }
        if let Some(min) = bound("minLength").filter(|min| length < *min) {
            self.errors.push(FieldError::invalid(
                path,
                written,
                format!("must be at least {min} chars long"),
            ));
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if let Some(regex) = pattern.and_then(|pattern| self.patterns.get(pattern)?.as_ref())
            && !regex.is_match(written)
        {
            self.errors.push(FieldError::invalid(path, written, format!("should match '{regex}'")));
        }
    }

    fn validate_number(&mut self, number: Option<f64>, schema: &Value, path: &str) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let Some(number) = number else {
            return;
        };
        if let Some(min) = bound("minimum").filter(|min| number < *min) {
            self.errors.push(FieldError::invalid(
                path,
                number,
                format!("should be greater than or equal to {min}"),
            ));
        }
        if let Some(max) = bound("maximum").filter(|max| number > *max) {
            self.errors.push(FieldError::invalid(
                path,
                number,
                format!("should be less than or equal to {max}"),
            ));
        }
    }
}
