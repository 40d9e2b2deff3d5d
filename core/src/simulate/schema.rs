//! Defaulting and schema validation as an API server does them before webhooks: of Kueue's kinds types, required fields,
//! bounds, unknown fields, list keys and CEL rules; of Kubernetes' own kinds types and unknown fields, since their other
//! rules are code.

use super::builtin_schemas;
use super::cel_rules;
use super::objects::field;
use crate::api::crd;
use crate::api::time::parse_time;
use crate::api::validation::{FieldError, child_path, key_path};
use regex::Regex;
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Fields of every object that the schemas do not describe.
const COMMON_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];
const NULL: Value = Value::Null;

/// The schemas by kind, and their patterns.
#[derive(Debug)]
pub(super) struct Schemas {
    by_kind: BTreeMap<String, Value>,
    /// By kind, those of Kubernetes' own kinds.
    builtin: BTreeMap<&'static str, Value>,
    metadata: Value,
    /// `None` for a pattern that the regex engine does not support: webhook validation covers it.
    patterns: BTreeMap<String, Option<Regex>>,
}

impl Schemas {
    /// Returns the schemas of this build.
    pub(super) fn shipped() -> Result<&'static Self, String> {
        static SHIPPED: LazyLock<Result<Schemas, String>> = LazyLock::new(Schemas::generate);
        SHIPPED.as_ref().map_err(Clone::clone)
    }

    fn generate() -> Result<Self, String> {
        let definitions = crd::definitions().map_err(|error| error.to_string())?;
        let mut schemas = Self {
            by_kind: BTreeMap::new(),
            builtin: builtin_schemas::all()?.into_iter().collect(),
            metadata: builtin_schemas::metadata(),
            patterns: BTreeMap::new(),
        };
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

    /// Sets defaults and returns all errors of an object that is created, or that replaces `old`. Kinds without a schema
    /// have no errors.
    pub(super) fn default_and_validate(
        &self,
        kind: &str,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Vec<FieldError> {
        let mut check = SchemaValidator::new(&self.patterns, false);
        let (Some(schema), true) = (self.by_kind.get(kind), object.is_object()) else {
            return check.errors;
        };
        // Users do not set the status.
        check.validate_root(object, schema, old, &["status"]);
        check.validate_rules(object, schema, old, "");
        check.errors
    }

    /// Decodes an object of a built-in kind: whole numbers become integers. Returns the errors for which a server cannot
    /// decode it. The status is not that of users: it may come from a newer server, with fields that are unknown here.
    pub(super) fn decode(&self, kind: &str, object: &mut Value) -> Vec<FieldError> {
        let mut check = SchemaValidator::new(&self.patterns, true);
        if let Some(schema) = self.builtin.get(kind) {
            check.validate_root(object, schema, None, &["status"]);
        }
        check.errors
    }

    /// Returns the errors for which a server cannot decode the metadata of an object: fields and their types. What names
    /// and labels may be depends on the kind.
    pub(super) fn metadata_errors(&self, object: &Value) -> Vec<FieldError> {
        let mut check = SchemaValidator::new(&self.patterns, true);
        if let Some(metadata) = object.get("metadata") {
            check.validate_value(&mut metadata.clone(), &self.metadata, None, "metadata");
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

/// Makes a whole number such as `2.0` or `1e1` an integer: kubectl sends it as 2 or 10.
fn to_integer(value: &mut Value) {
    if let Value::Number(number) = &*value
        && let Some(whole) = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0)
        && let Ok(integer) = format!("{whole:.0}").parse::<i64>()
    {
        *value = Value::from(integer);
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
    /// Whether only types and names of fields are checked, and no defaults are set.
    decodes: bool,
    errors: Vec<FieldError>,
}

impl<'a> SchemaValidator<'a> {
    const fn new(patterns: &'a BTreeMap<String, Option<Regex>>, decodes: bool) -> Self {
        Self { patterns, decodes, errors: Vec::new() }
    }

    /// Validates the fields of an object that are its own, without those in `unset`.
    fn validate_root(&mut self, object: &mut Value, schema: &Value, old: Option<&Value>, unset: &[&str]) {
        let Some(fields) = object.as_object_mut() else { return };
        let properties = schema.get("properties").and_then(Value::as_object);
        for name in fields.keys().filter(|name| !COMMON_FIELDS.contains(&name.as_str())) {
            if properties.is_none_or(|known| !known.contains_key(name)) {
                self.errors.push(FieldError::invalid_unshown(name.clone(), "unknown field"));
            }
        }
        let own = |name: &str| !COMMON_FIELDS.contains(&name) && !unset.contains(&name);
        for (name, schema) in properties.into_iter().flatten().filter(|(name, _)| own(name)) {
            self.validate_field(fields, (name, schema), old, "");
        }
    }

    /// Defaults and validates a field of an object.
    fn validate_field(
        &mut self,
        fields: &mut Map<String, Value>,
        (name, schema): (&str, &Value),
        old: Option<&Value>,
        path: &str,
    ) {
        if fields.get(name).is_some_and(Value::is_null) && schema.get("nullable").is_none() {
            fields.shift_remove(name);
        }
        if let (false, false, Some(default)) =
            (self.decodes, fields.contains_key(name), schema.get("default"))
        {
            fields.insert(name.to_owned(), default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            let old = old.and_then(|old| field(old, name));
            self.validate_value(value, schema, old, &child_path(path, name));
        }
    }

    fn validate_value(&mut self, value: &mut Value, schema: &Value, old: Option<&Value>, path: &str) {
        let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        if text("type") == "integer" {
            to_integer(value);
        }
        let flexible = schema.get("x-kubernetes-int-or-string").is_some();
        let fits = match (&*value, text("type")) {
            (Value::String(_) | Value::Number(_), _) if flexible => true,
            (_, _) if flexible => false,
            (_, "") => true,
            (Value::Number(number), "integer") if text("format") == "int32" => {
                number.as_i64().is_some_and(|number| i32::try_from(number).is_ok())
            }
            (Value::Number(number), "integer") => number.is_i64() || number.is_u64(),
            (Value::String(written), "string") if text("format") == "date-time" => {
                parse_time(written).is_some()
            }
            (_, wanted) => type_of(value) == wanted,
        };
        if !fits {
            let wanted = match (flexible, text("format")) {
                (true, _) => "integer or string",
                (_, format @ ("int32" | "date-time")) => format,
                _ => text("type"),
            };
            self.errors.push(FieldError::invalid(path, value.clone(), format!("must be of type {wanted}")));
            return;
        }
        match value {
            Value::Object(fields) => self.validate_object(fields, schema, old, path),
            Value::Array(items) => self.validate_items(items, schema, path),
            Value::String(written) if !self.decodes => self.validate_text(written, schema, path),
            Value::Number(number) if !self.decodes => self.validate_number(number, schema, path),
            _ => {}
        }
        if self.decodes {
            return;
        }
        let allowed = schema.get("enum").and_then(Value::as_array);
        if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(value)) {
            let names = allowed.iter().filter_map(Value::as_str);
            self.errors.push(FieldError::not_supported(path, value.clone(), names));
        }
        self.validate_rules(value, schema, old, path);
    }

    /// Evaluates the CEL rules of a schema.
    fn validate_rules(&mut self, value: &Value, schema: &Value, old: Option<&Value>, path: &str) {
        let path = if path.is_empty() { "<root>" } else { path };
        for rule in schema.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten() {
            let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
            if !cel_rules::holds(text("rule"), text("message"), value, old) {
                self.errors.push(FieldError::invalid_unshown(path, text("message")));
            }
        }
    }

    fn validate_object(
        &mut self,
        fields: &mut Map<String, Value>,
        schema: &Value,
        old: Option<&Value>,
        path: &str,
    ) {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|_| !self.decodes) {
            let defaulted = schema.pointer(&format!("/properties/{name}/default")).is_some();
            if !fields.contains_key(name) && !defaulted {
                self.errors.push(FieldError::required(child_path(path, name), ""));
            }
        }
        let max = schema.get("maxProperties").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        if let Some(max) = max.filter(|max| fields.len() > *max) {
            self.errors.push(FieldError::too_many(path, fields.len(), max));
        }
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let open = schema.get("x-kubernetes-preserve-unknown-fields").is_some();
            for name in fields.keys().filter(|name| !open && !properties.contains_key(*name)) {
                self.errors.push(FieldError::invalid_unshown(child_path(path, name), "unknown field"));
            }
            for (name, schema) in properties {
                self.validate_field(fields, (name, schema), old, path);
            }
        } else if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
            let decodes = self.decodes;
            for (key, value) in fields.iter_mut().filter(|(_, value)| !(decodes && value.is_null())) {
                self.validate_value(value, schema, None, &key_path(path, key));
            }
        }
    }

    fn validate_items(&mut self, items: &mut [Value], schema: &Value, path: &str) {
        let bound = |key: &str| {
            let bound = schema.get(key).filter(|_| !self.decodes).and_then(Value::as_u64);
            bound.and_then(|n| usize::try_from(n).ok())
        };
        if let Some(max) = bound("maxItems").filter(|max| items.len() > *max) {
            self.errors.push(FieldError::too_many(path, items.len(), max));
        }
        let min = bound("minItems");
        if let Some(min) = min.filter(|min| items.len() < *min) {
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
            self.validate_value(item, item_schema, None, &format!("{path}[{index}]"));
        }
        if !self.decodes {
            self.validate_keys(items, schema, path);
        }
    }

    /// Checks that no two items of a keyed list have the same key, and that no two of a set are equal.
    fn validate_keys(&mut self, items: &[Value], schema: &Value, path: &str) {
        let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
        let key_of = |item: &Value| match keys {
            Some(keys) => {
                let part = |key: &str| (key.to_owned(), field(item, key).unwrap_or(&NULL).clone());
                Value::Object(keys.iter().filter_map(Value::as_str).map(part).collect())
            }
            None => item.clone(),
        };
        if !matches!(schema.get("x-kubernetes-list-type").and_then(Value::as_str), Some("map" | "set")) {
            return;
        }
        let mut known: Vec<Value> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let key = key_of(item);
            if known.contains(&key) {
                self.errors.push(FieldError::duplicate(format!("{path}[{index}]"), key.clone(), ""));
            }
            known.push(key);
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

    fn validate_number(&mut self, written: &Number, schema: &Value, path: &str) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        let Some(number) = written.as_f64() else {
            return;
        };
        if let Some(min) = bound("minimum").filter(|min| number < *min) {
            self.errors.push(FieldError::invalid(
                path,
                written.clone(),
                format!("should be greater than or equal to {min}"),
            ));
        }
        if let Some(max) = bound("maximum").filter(|max| number > *max) {
            self.errors.push(FieldError::invalid(
                path,
                written.clone(),
                format!("should be less than or equal to {max}"),
            ));
        }
    }
}
