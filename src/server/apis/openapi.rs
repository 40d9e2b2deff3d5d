//! OpenAPI of the groups, in versions 2 and 3, made from their descriptions.
//!
//! Invariant: every reference is to a schema of the same document; clients that read the merged document of a cluster fail as a
//! whole on one that is not. No schema has a name that the API server uses itself.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::group::{GroupDescription, QueryOption, ResourceDescription};
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

/// Replaces local references by references of a document.
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

/// Returns the schemas of a version by their full names. Schemas of answers have their kind.
fn schemas(group: &GroupDescription, version: &str, form: Form) -> Map<String, Value> {
    let operations: Vec<Operation> = group.resources.iter().flat_map(operations).collect();
    let full_name = |name: &str| schema_name(group, version, name);
    let mut all = Map::new();
    for (name, schema) in (group.schemas)(version) {
        let mut schema = resolve(schema, &full_name, form);
        let is_answer =
            operations.iter().any(|operation| operation.kind == name || operation.object() == name);
        if let Some(fields) = schema.as_object_mut().filter(|_| is_answer) {
            let kind = json!([{"group": group.name, "version": version, "kind": name}]);
            fields.insert("x-kubernetes-group-version-kind".into(), kind);
        }
        all.insert(full_name(name), schema);
    }
    all
}

/// An operation of OpenAPI: a verb on a resource.
struct Operation {
    resource: &'static ResourceDescription,
    /// `get`, `list` or `create`.
    verb: &'static str,
    /// Kind of the answer, which is the name of its schema.
    kind: String,
    subresource: &'static str,
    options: &'static [QueryOption],
    description: &'static str,
    /// Whether the path has a namespace.
    in_namespace: bool,
}

/// Returns the operations on a resource.
fn operations(resource: &'static ResourceDescription) -> Vec<Operation> {
    let mut all = Vec::new();
    let of = |verb, kind: String, in_namespace| Operation {
        resource,
        verb,
        kind,
        subresource: "",
        options: match verb {
            "list" | "create" => resource.options,
            _ => &[],
        },
        description: resource.description,
        in_namespace,
    };
    if resource.verbs.contains(&"get") {
        all.push(of("get", resource.kind.to_owned(), resource.namespaced));
    }
    if resource.verbs.contains(&"list") {
        let kind = format!("{}List", resource.kind);
        all.push(of("list", kind.clone(), false));
        all.extend(resource.namespaced.then(|| of("list", kind, true)));
    }
    if resource.verbs.contains(&"create") {
        all.push(of("create", resource.kind.to_owned(), resource.namespaced));
    }
    all.extend(resource.subresources.iter().map(|part| Operation {
        subresource: part.name,
        options: part.options,
        description: part.description,
        ..of("get", part.kind.to_owned(), resource.namespaced)
    }));
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

impl Operation {
    /// Kind of the objects of the operation; for a list the kind of its items, as in the API server's own documents.
    fn object(&self) -> &str {
        if self.verb == "list" { self.resource.kind } else { &self.kind }
    }

    fn path(&self, group: &GroupDescription, version: &str) -> String {
        let namespace = if self.in_namespace { "/namespaces/{namespace}" } else { "" };
        let name = if self.verb == "get" { "/{name}" } else { "" };
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let (plural, part) = (self.resource.plural, self.subresource);
        format!("/apis/{}/{version}{namespace}/{plural}{name}{slash}{part}", group.name)
    }

    fn id(&self, group: &GroupDescription, version: &str) -> String {
        let capital = |text: &str| {
            let mut letters = text.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        };
        let scope = match (self.resource.namespaced, self.in_namespace) {
            (true, true) => "Namespaced",
            (true, false) => "ForAllNamespaces",
            (false, _) => "",
        };
        let verb = if self.verb == "get" { "read" } else { self.verb };
        let group_words: String = group.name.split('.').take(group_words(group)).map(capital).collect();
        let (version, singular) = (capital(version), capital(self.resource.singular));
        format!("{verb}{group_words}{version}{singular}{scope}{}", capital(self.subresource))
    }

    fn document(&self, group: &GroupDescription, version: &str, form: Form) -> Value {
        let schema = form.reference(&schema_name(group, version, &self.kind));
        let ok = match form {
            Form::V2 => json!({"description": "OK", "schema": schema}),
            Form::V3 => json!({"description": "OK", "content": {"application/json": {"schema": schema}}}),
        };
        let name = ("name", "string", "name of the object");
        let namespace = ("namespace", "string", "namespace of the object");
        let in_path = [(name, self.verb == "get"), (namespace, self.in_namespace)];
        let in_path = in_path.into_iter().filter(|(_, is_there)| *is_there);
        let options = self.options.iter().map(|option| (option.name, option.kind, option.description));
        let mut parameters: Vec<Value> = in_path
            .map(|(name, _)| parameter(form, "path", name))
            .chain(options.map(|option| parameter(form, "query", option)))
            .collect();
        let creates = self.verb == "create";
        if creates && form == Form::V2 {
            parameters.push(json!({"in": "body", "name": "body", "required": true, "schema": schema}));
        }
        let mut operation = json!({
            "operationId": self.id(group, version), "description": self.description, "parameters": parameters,
            "responses": {"200": ok, "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": if creates { "post" } else { self.verb },
            "x-kubernetes-group-version-kind": {"group": group.name, "version": version, "kind": self.object()},
        });
        if let Some(fields) = operation.as_object_mut().filter(|_| form == Form::V2) {
            fields.insert("produces".into(), json!(["application/json"]));
            fields.insert("schemes".into(), json!(["https"]));
        }
        if let Some(fields) = operation.as_object_mut().filter(|_| creates && form == Form::V3) {
            let content = json!({"content": {"application/json": {"schema": schema}}, "required": true});
            fields.insert("requestBody".into(), content);
        }
        json!({(if creates { "post" } else { "get" }): operation})
    }
}

/// Number of words of the group's name in the ids of its operations: as many as distinguish it from the other groups.
fn group_words(group: &GroupDescription) -> usize {
    if group.name == crate::api::visibility::GROUP { 1 } else { 2 }
}

fn paths(group: &GroupDescription, version: &str, form: Form) -> Map<String, Value> {
    let all = group.resources.iter().flat_map(operations);
    all.map(|operation| (operation.path(group, version), operation.document(group, version, form))).collect()
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
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::apis::views;
    use crate::server::apis::visibility::GROUP;

    /// Collects all references in a document.
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
        let groups = [&GROUP, &views::GROUP];
        let of_versions =
            groups.into_iter().flat_map(|group| group.versions.iter().map(|version| v3(group, version)));
        for document in of_versions.chain([v2(groups.into_iter())]) {
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

    /// `kubectl explain` looks up the kind of the operation, and then the schema of this kind.
    #[test]
    fn listed_resource_is_explained_by_its_objects() {
        let document = v3(&views::GROUP, "v1alpha1");
        for (plural, kind) in
            [("preemptions", "Preemption"), ("clusterfindings", "Finding"), ("workloadviews", "WorkloadView")]
        {
            let path = &document["paths"][format!("/apis/visibility.sluice.dev/v1alpha1/{plural}")];
            assert_eq!(path["get"]["x-kubernetes-group-version-kind"]["kind"], kind, "{plural}");
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let of_kind = schemas
                .iter()
                .filter(|(_, schema)| schema["x-kubernetes-group-version-kind"][0]["kind"] == kind);
            assert_eq!(of_kind.count(), 1, "{kind}");
        }
    }

    #[test]
    fn what_is_created_has_a_body() {
        let path = "/apis/visibility.sluice.dev/v1alpha1/historypurges";
        let post = &v3(&views::GROUP, "v1alpha1")["paths"][path]["post"];
        assert_eq!(post["x-kubernetes-action"], "post", "{post}");
        assert!(post["requestBody"]["content"]["application/json"]["schema"]["$ref"].is_string(), "{post}");
        let post = &v2([&views::GROUP].into_iter())["paths"][path]["post"];
        assert_eq!(
            (&post["parameters"][1]["in"], &post["parameters"][0]["name"]),
            (&json!("body"), &json!("dryRun"))
        );
    }

    #[test]
    fn operations_have_ids_of_their_own() {
        let document = v2([&GROUP, &views::GROUP].into_iter());
        let paths = document["paths"].as_object().unwrap();
        let operation = |path: &Value| path.as_object().unwrap().values().next().unwrap().clone();
        let ids: std::collections::BTreeSet<String> =
            paths.values().map(|path| operation(path)["operationId"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ids.len(), paths.len(), "{ids:?}");
        assert!(paths.len() > 10, "{ids:?}");
        assert_eq!(v2([&GROUP].into_iter())["paths"].as_object().unwrap().len(), 4);
    }
}
