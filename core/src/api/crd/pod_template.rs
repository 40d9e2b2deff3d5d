//! The structural schema of a pod template.
//!
//! `pod-template.json` is the output of [`from_openapi`] for the OpenAPI v3 document of group `/api/v1` that a
//! kube-apiserver publishes. To update it, fetch the document and run the test that writes the file:
//!
//! ```text
//! kubectl get --raw /openapi/v3/api/v1 > core.json
//! SLUICE_OPENAPI=core.json cargo test --test it pods::template
//! ```
//!
//! Omitted: descriptions, enums (a newer server may know more values), defaults that are zero values, patch strategies.

use super::CrdError;
use super::builtin::quantity;
use super::schema::{set, sort};
use serde_json::{Map, Value, json};

const TEMPLATE: &str = "io.k8s.api.core.v1.PodTemplateSpec";
const PREFIX: &str = "#/components/schemas/";
/// Recursion limit. Deeper than any type reachable from a pod template; stops at cycles.
const MAX_DEPTH: u32 = 32;
/// Formats that custom resources support.
const FORMATS: &[&str] = &["byte", "date-time", "double", "int32", "int64"];

/// Returns the committed schema.
pub fn shipped() -> Result<Value, CrdError> {
    serde_json::from_str(include_str!("pod-template.json"))
        .map_err(|e| CrdError::new(format!("pod-template.json: {e}")))
}

/// Extracts the schema from a server's OpenAPI v3 document; returns null if the document does not contain it.
pub fn from_openapi(document: &Value) -> Value {
    let Some(schemas) = document.get("components").and_then(|c| c.get("schemas")) else {
        return Value::Null;
    };
    let Some(template) = schemas.get(TEMPLATE) else {
        return Value::Null;
    };
    let mut schema = convert(template, schemas, MAX_DEPTH);
    sort(&mut schema);
    schema
}

/// Returns the schema of the metadata fields that a template supports.
fn metadata() -> Value {
    let strings = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    json!({
        "type": "object",
        "properties": {
            "annotations": strings,
            "finalizers": { "type": "array", "items": { "type": "string" } },
            "labels": strings,
            "name": { "type": "string" },
            "namespace": { "type": "string" },
        },
    })
}

fn resolve_reference<'a>(node: &Value, schemas: &'a Value) -> Option<(String, Option<&'a Value>)> {
    let wrapped = node.get("allOf").and_then(Value::as_array).and_then(|all| all.first());
    let reference = wrapped.unwrap_or(node).get("$ref").and_then(Value::as_str)?;
    let name = reference.trim_start_matches(PREFIX);
    Some((name.to_owned(), schemas.get(name)))
}

fn convert(node: &Value, schemas: &Value, depth: u32) -> Value {
    if depth == 0 {
        return json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    }
    let mut schema = match resolve_reference(node, schemas) {
        Some((name, _)) if name.ends_with(".ObjectMeta") => metadata(),
        Some((name, _)) if name.ends_with(".resource.Quantity") => quantity(),
        Some((name, _)) if name.ends_with(".intstr.IntOrString") => {
            json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true })
        }
        Some((_, Some(definition))) => convert(definition, schemas, depth - 1),
        Some((_, None)) => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
        None => plain(node, schemas, depth),
    };
    if let Some(default) = node.get("default").filter(|v| !is_zero(v)) {
        set(&mut schema, "default", default.clone());
    }
    schema
}

fn plain(node: &Value, schemas: &Value, depth: u32) -> Value {
    let mut schema = Map::new();
    for key in ["type", "x-kubernetes-map-type"] {
        if let Some(value) = node.get(key) {
            schema.insert(key.to_owned(), value.clone());
        }
    }
    if let Some(format) = node.get("format").filter(|f| f.as_str().is_some_and(|f| FORMATS.contains(&f))) {
        schema.insert("format".to_owned(), format.clone());
    }
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        let converted = properties.iter().map(|(k, v)| (k.clone(), convert(v, schemas, depth - 1)));
        schema.insert("properties".to_owned(), Value::Object(converted.collect()));
    }
    if let Some(required) = node.get("required") {
        schema.insert("required".to_owned(), required.clone());
    }
    if let Some(values) = node.get("additionalProperties") {
        schema.insert("additionalProperties".to_owned(), convert(values, schemas, depth - 1));
    }
    let mut schema = Value::Object(schema);
    if let Some(items) = node.get("items") {
        list(&mut schema, node, items, schemas, depth);
    }
    schema
}

/// Sets items and list type. A custom resource may key a list only by fields that are required or have a default.
fn list(schema: &mut Value, node: &Value, items: &Value, schemas: &Value, depth: u32) {
    let mut converted = convert(items, schemas, depth - 1);
    let keys: Vec<&str> = node
        .get("x-kubernetes-list-map-keys")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let legal = keys.iter().all(|key| ensure_list_key(&mut converted, items, schemas, key));
    set(schema, "items", converted);
    match node.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("map") if legal && !keys.is_empty() => {
            set(schema, "x-kubernetes-list-type", json!("map"));
            set(schema, "x-kubernetes-list-map-keys", json!(keys));
        }
        Some(kind @ ("set" | "atomic")) => set(schema, "x-kubernetes-list-type", json!(kind)),
        _ => {}
    }
}

/// Returns whether a list may be keyed by a field; restores the field's zero default if this is needed.
fn ensure_list_key(converted: &mut Value, items: &Value, schemas: &Value, key: &str) -> bool {
    let required =
        converted.get("required").and_then(Value::as_array).is_some_and(|r| r.iter().any(|v| v == key));
    let field = converted.get_mut("properties").and_then(|p| p.get_mut(key));
    let Some(field) = field else {
        return false;
    };
    if required || field.get("default").is_some() {
        return true;
    }
    let definition = resolve_reference(items, schemas).and_then(|(_, definition)| definition);
    let default = definition.and_then(|d| d.get("properties")?.get(key)?.get("default"));
    if let Some(default) = default {
        set(field, "default", default.clone());
    }
    default.is_some()
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(true) => false,
    }
}
