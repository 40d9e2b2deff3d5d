//! OpenAPI of the groups, in versions 2 and 3, made from their descriptions.
//!
//! Invariant: every reference is to a schema of the same document; clients that read the merged document of a cluster fail as a
//! whole on one that is not. No schema has a name that the API server uses itself.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::group::{GroupDescription, ResourceDescription, SubresourceDescription};
use crate::metrics::build;

/// Where schemas refer to one another before they are in a document: `schema:NAME`.
const LOCAL_REFERENCE: &str = "schema:";

/// Version of the document format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    V2,
    V3,
}

impl Form {
    fn reference(self, name: &str) -> Value {
        let place = if self == Self::V2 { "#/definitions/" } else { "#/components/schemas/" };
        json!({"$ref": format!("{place}{name}")})
    }
}

/// Returns the full name of a schema.
fn schema_name(group: &GroupDescription, version: &str, name: &str) -> String {
    format!("{}.{version}.{name}", group.schema_prefix)
}

/// Replaces local references by those of a document.
fn resolve(value: Value, full_name: &impl Fn(&str) -> String, form: Form) -> Value {
    match value {
        Value::Object(fields) => {
            let local = fields.get("$ref").and_then(Value::as_str);
            if let Some(name) = local.and_then(|text| text.strip_prefix(LOCAL_REFERENCE)) {
                return form.reference(&full_name(name));
            }
            let resolved = fields.into_iter().map(|(name, value)| (name, resolve(value, full_name, form)));
            Value::Object(resolved.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| resolve(item, full_name, form)).collect(),
        other => other,
    }
}

/// Returns the schemas of a version by their full names. Those of answers have their kind.
fn schemas(group: &GroupDescription, version: &str, form: Form) -> Map<String, Value> {
    let kinds: Vec<&str> =
        group.resources.iter().flat_map(|r| r.subresources).map(|part| part.kind).collect();
    let full_name = |name: &str| schema_name(group, version, name);
    let mut all = Map::new();
    for (name, schema) in (group.schemas)(version) {
        let mut schema = resolve(schema, &full_name, form);
        if let Some(fields) = schema.as_object_mut().filter(|_| kinds.contains(&name)) {
            let kind = json!([{"group": group.name, "version": version, "kind": name}]);
            fields.insert("x-kubernetes-group-version-kind".into(), kind);
        }
        all.insert(full_name(name), schema);
    }
    all
}

fn parameter(form: Form, place: &str, (name, kind, description): (&str, &str, &str)) -> Value {
    let mut parameter = json!({"name": name, "in": place, "description": description});
    if let Some(fields) = parameter.as_object_mut() {
        match form {
            Form::V2 => drop(fields.insert("type".into(), kind.into())),
            Form::V3 => drop(fields.insert("schema".into(), json!({"type": kind}))),
        }
        if place == "path" {
            fields.insert("required".into(), true.into());
        }
    }
    parameter
}

/// Returns the only operation of a subresource.
fn operation(
    group: &GroupDescription,
    version: &str,
    (resource, part): (&ResourceDescription, &SubresourceDescription),
    form: Form,
) -> Value {
    let schema = form.reference(&schema_name(group, version, part.kind));
    let ok = match form {
        Form::V2 => json!({"description": "OK", "schema": schema}),
        Form::V3 => json!({"description": "OK", "content": {"application/json": {"schema": schema}}}),
    };
    let names =
        [("name", "string", "name of the object"), ("namespace", "string", "namespace of the object")];
    let in_path = names.into_iter().take(if resource.namespaced { 2 } else { 1 });
    let options = part.options.iter().map(|(name, text)| parameter(form, "query", (name, "integer", text)));
    let parameters: Vec<Value> = in_path.map(|name| parameter(form, "path", name)).chain(options).collect();
    let capital = |text: &str| {
        let mut letters = text.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    let scope = if resource.namespaced { "Namespaced" } else { "" };
    let group_words: String = group.name.split('.').take(1).map(capital).collect();
    let id = format!(
        "read{group_words}{}{scope}{}{}",
        capital(version),
        capital(resource.singular),
        capital(part.name)
    );
    let mut operation = json!({
        "operationId": id, "description": part.description, "parameters": parameters,
        "responses": {"200": ok, "401": {"description": "Unauthorized"}},
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": {"group": group.name, "version": version, "kind": part.kind},
    });
    if let Some(fields) = operation.as_object_mut().filter(|_| form == Form::V2) {
        fields.insert("produces".into(), json!(["application/json"]));
        fields.insert("schemes".into(), json!(["https"]));
    }
    json!({"get": operation})
}

fn paths(group: &GroupDescription, version: &str, form: Form) -> Map<String, Value> {
    let mut paths = Map::new();
    for resource in group.resources {
        for part in resource.subresources {
            let namespace = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
            let path = format!(
                "/apis/{}/{version}{namespace}/{}/{{name}}/{}",
                group.name, resource.plural, part.name
            );
            paths.insert(path, operation(group, version, (resource, part), form));
        }
    }
    paths
}

fn info() -> Value {
    json!({"title": "Sluice visibility server", "version": build::describe()})
}

/// Returns the document of version 2 of all groups.
pub(super) fn v2<'a>(groups: impl Iterator<Item = &'a GroupDescription>) -> Value {
    let (mut all_paths, mut definitions) = (Map::new(), Map::new());
    for group in groups {
        for version in group.versions {
            all_paths.extend(paths(group, version, Form::V2));
            definitions.extend(schemas(group, version, Form::V2));
        }
    }
    json!({"swagger": "2.0", "info": info(), "paths": all_paths, "definitions": definitions})
}

/// Returns the document of version 3 of a version of a group.
pub(super) fn v3(group: &GroupDescription, version: &str) -> Value {
    json!({
        "openapi": "3.0.0", "info": info(), "paths": paths(group, version, Form::V3),
        "components": {"schemas": schemas(group, version, Form::V3)},
    })
}

/// Returns the list of documents of version 3.
pub(super) fn v3_index<'a>(groups: impl Iterator<Item = &'a GroupDescription>) -> Value {
    let mut paths = Map::new();
    for group in groups {
        for version in group.versions {
            let hash = etag(&v3(group, version));
            let path = format!("apis/{}/{version}", group.name);
            paths.insert(
                path.clone(),
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={hash}")}),
            );
        }
    }
    json!({"paths": paths})
}

/// Returns the tag of a document: it changes only with the document.
pub(super) fn etag(document: &Value) -> String {
    let digest = Sha256::digest(document.to_string().as_bytes());
    digest.iter().take(16).fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::apis::visibility::GROUP;

    /// All references in a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_is_to_a_schema_of_the_document() {
        let documents: Vec<Value> =
            GROUP.versions.iter().map(|version| v3(&GROUP, version)).chain([v2([GROUP].iter())]).collect();
        for document in documents {
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(found.len() >= 3, "{found:?}");
            for reference in found {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
            let text = document.to_string();
            assert!(!text.contains("io.k8s.apimachinery"), "a name that the API server defines itself");
        }
    }

    #[test]
    fn operations_have_ids_of_their_own() {
        let document = v2([GROUP].iter());
        let paths = document["paths"].as_object().unwrap();
        let ids: std::collections::BTreeSet<&str> =
            paths.values().map(|path| path["get"]["operationId"].as_str().unwrap()).collect();
        assert_eq!((ids.len(), paths.len()), (4, 4), "{ids:?}");
    }
}
