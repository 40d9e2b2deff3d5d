//! Converts the JSON schema of a type to the structural schema of a CustomResourceDefinition.
//!
//! The result has no references, null types or titles; keys are sorted, so that equal schemas are equal byte for byte.

use super::CrdError;
use super::builtin;
use super::rules::Rules;
use schemars::Schema;
use serde_json::{Map, Value, json};

/// Builds the schema of one kind from its type and the rules.
pub(super) struct Builder<'a> {
    root: Value,
    kind: &'a str,
    rules: &'a Rules,
    template: &'a Value,
    used: Vec<String>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(
        schema: Schema,
        kind: &'a str,
        rules: &'a Rules,
        template: &'a Value,
    ) -> Result<Self, CrdError> {
        let root = schema.to_value();
        if root.get("properties").is_none() {
            return Err(CrdError::new(format!("{kind} has no properties")));
        }
        Ok(Self { root, kind, rules, template, used: Vec::new() })
    }

    /// Returns the schema of the kind.
    pub(super) fn root(&mut self) -> Result<Value, CrdError> {
        let definition = self.root.clone();
        let mut schema = self.object(self.kind, &definition)?;
        if let Some(properties) = schema.get_mut("properties") {
            set(
                properties,
                "apiVersion",
                json!({ "type": "string", "description": "Group and version of the object." }),
            );
            set(properties, "kind", json!({ "type": "string", "description": "Kind of the object." }));
            set(properties, "metadata", json!({ "type": "object" }));
        }
        sort(&mut schema);
        Ok(schema)
    }

    /// Returns the types and fields for which rules were looked up.
    pub(super) fn into_used(self) -> Vec<String> {
        self.used
    }

    /// Converts a struct: resolves its properties and merges its rules.
    fn object(&mut self, name: &str, definition: &Value) -> Result<Value, CrdError> {
        self.used.push(name.to_owned());
        let rules = self.rules.of_type(name);
        let mut properties = Map::new();
        for (field, value) in definition.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let mut node = self.node(value)?;
            self.used.push(format!("{name}.{field}"));
            if let Some(rule) = rules.and_then(|r| r.field_rule(field)) {
                merge(&mut node, rule);
            }
            if field != "metadata" && node.get("description").is_none() {
                return Err(CrdError::new(format!("{name}.{field} has no description")));
            }
            properties.insert(field.clone(), node);
        }
        let mut node = json!({ "type": "object", "properties": properties });
        if let Some(text) = definition.get("description") {
            set(&mut node, "description", text.clone());
        }
        if let Some(rules) = rules {
            merge(&mut node, rules.type_rule());
        }
        Ok(node)
    }

    /// Converts any schema: resolves references and removes null alternatives.
    fn node(&mut self, value: &Value) -> Result<Value, CrdError> {
        let mut node = if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
            self.reference(reference)?
        } else if let Some(non_null) = alternatives(value).and_then(|all| all.iter().find(|v| !is_null(v))) {
            if enum_values(value).is_empty() { self.node(non_null)? } else { enumeration(value) }
        } else if value.get("enum").is_some() || value.get("const").is_some() {
            enumeration(value)
        } else {
            self.plain(value)?
        };
        if let Some(text) = value.get("description") {
            set(&mut node, "description", text.clone());
        }
        Ok(node)
    }

    fn reference(&mut self, reference: &str) -> Result<Value, CrdError> {
        let name = reference.trim_start_matches("#/$defs/");
        if let Some(node) = builtin::schema(name, self.template) {
            return Ok(node);
        }
        let definition = self.root.get("$defs").and_then(|d| d.get(name)).cloned();
        let definition = definition.ok_or_else(|| CrdError::new(format!("no definition of {name}")))?;
        if definition.get("properties").is_some() {
            self.object(name, &definition)
        } else {
            self.used.push(name.to_owned());
            self.node(&definition)
        }
    }

    fn plain(&mut self, value: &Value) -> Result<Value, CrdError> {
        let kind = match value.get("type") {
            Some(Value::Array(types)) => types.iter().find(|t| t.as_str() != Some("null")).cloned(),
            other => other.cloned(),
        };
        let mut node = json!({ "type": kind });
        if let Some(format) = value.get("format") {
            set(&mut node, "format", format.clone());
        }
        if let Some(items) = value.get("items") {
            let items = self.node(items)?;
            set(&mut node, "items", items);
        }
        if let Some(values) = value.get("additionalProperties") {
            let values = self.node(values)?;
            set(&mut node, "additionalProperties", values);
        }
        Ok(node)
    }
}

fn alternatives(value: &Value) -> Option<&Vec<Value>> {
    value.get("anyOf").or_else(|| value.get("oneOf")).and_then(Value::as_array)
}

fn is_null(value: &Value) -> bool {
    value.get("type").and_then(Value::as_str) == Some("null")
}

/// Returns the values of an enum without data, written as `enum`, as `const`, or as alternatives of both.
fn enum_values(value: &Value) -> Vec<Value> {
    let mut values: Vec<Value> =
        value.get("enum").and_then(Value::as_array).into_iter().flatten().cloned().collect();
    values.extend(value.get("const").cloned());
    for alternative in alternatives(value).into_iter().flatten() {
        values.extend(enum_values(alternative));
    }
    values.retain(|v| !v.is_null());
    values
}

fn enumeration(value: &Value) -> Value {
    json!({ "type": "string", "enum": enum_values(value) })
}

/// Sets a member of an object; does nothing if `target` is not an object.
pub(super) fn set(target: &mut Value, key: &str, value: Value) {
    if let Some(object) = target.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

/// Merges an object into another: objects recursively, other values are replaced.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Some(members) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    for (key, value) in members {
        match target.get_mut(key) {
            // A default is an API value, not a schema, and is replaced as a whole.
            Some(inner) if inner.is_object() && key != "default" => merge(inner, value),
            _ => set(target, key, value.clone()),
        }
    }
}

/// Removes the field at a path such as `status.list[].field`.
pub(super) fn remove(schema: &mut Value, path: &str) -> Result<(), CrdError> {
    let missing = || CrdError::new(format!("no field {path}"));
    let (parents, field) = path.rsplit_once('.').ok_or_else(missing)?;
    let mut node = schema;
    for step in parents.split('.') {
        let name = step.trim_end_matches("[]");
        node = node.get_mut("properties").and_then(|p| p.get_mut(name)).ok_or_else(missing)?;
        if step.ends_with("[]") {
            node = node.get_mut("items").ok_or_else(missing)?;
        }
    }
    let properties = node.get_mut("properties").and_then(Value::as_object_mut).ok_or_else(missing)?;
    properties.remove(field).map(|_| ()).ok_or_else(missing)
}

/// Sorts the members of all objects recursively.
pub(super) fn sort(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.sort_keys();
            members.values_mut().for_each(sort);
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}
