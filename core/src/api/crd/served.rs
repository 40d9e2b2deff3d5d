//! Compares the definitions that an API server serves with those of this version, by the names of their fields.
//!
//! The server removes fields that it does not know from a patch, and refuses a server-side apply that contains one, so a
//! manager with older definitions must say which fields are missing.

use super::{CrdError, GROUP, VERSION, definitions, kinds};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Missing fields by resource, such as `status.conditions[].reason`; of several in one object only the object itself.
pub type MissingFields = BTreeMap<&'static str, Vec<String>>;

/// The pod template is not compared: its fields follow the version of Kubernetes that a definition was made for.
const POD_TEMPLATE: &str = "spec.podSets[].template";

/// The API server's `OpenAPI` document of the API group, as far as it is compared.
#[derive(Debug, Deserialize)]
pub struct ServedDefinitions {
    #[serde(default)]
    components: Components,
}

#[derive(Debug, Default, Deserialize)]
struct Components {
    #[serde(default)]
    schemas: BTreeMap<String, Node>,
}

/// The fields of a schema.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Node {
    properties: BTreeMap<String, Self>,
    items: Option<Box<Self>>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    keeps_unknown: bool,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kinds: Vec<GroupVersionKind>,
}

#[derive(Debug, Deserialize)]
struct GroupVersionKind {
    group: String,
    version: String,
    kind: String,
}

/// Returns the fields of this version that the served definitions lack. A kind that is not served at all is left out.
pub fn missing_fields(served: &ServedDefinitions) -> Result<MissingFields, CrdError> {
    let mut missing = MissingFields::new();
    for (spec, (_, own)) in kinds::KINDS.iter().zip(definitions()?) {
        let is_kind =
            |id: &GroupVersionKind| id.group == GROUP && id.version == VERSION && id.kind == spec.kind;
        let Some(found) = served.components.schemas.values().find(|node| node.kinds.iter().any(is_kind))
        else {
            continue;
        };
        let schema = own.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap_or(&Value::Null);
        let own = Node::deserialize(schema).map_err(|error| CrdError::new(error.to_string()))?;
        let mut fields = Vec::new();
        collect("", &own, found, &mut fields);
        if !fields.is_empty() {
            missing.insert(spec.plural, fields);
        }
    }
    Ok(missing)
}

fn collect(path: &str, own: &Node, served: &Node, missing: &mut Vec<String>) {
    if served.keeps_unknown || path == POD_TEMPLATE {
        return;
    }
    for (name, own) in &own.properties {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match served.properties.get(name) {
            Some(served) => collect(&path, own, served, missing),
            None => missing.push(path),
        }
    }
    if let (Some(own), Some(served)) = (&own.items, &served.items) {
        collect(&format!("{path}[]"), own, served, missing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The document of a server with the definitions of this version, changed by `edit`.
    fn served(edit: impl Fn(&str, &mut Value)) -> MissingFields {
        let mut schemas = serde_json::Map::new();
        for (spec, (_, own)) in kinds::KINDS.iter().zip(definitions().unwrap()) {
            let mut schema = own["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
            edit(spec.plural, &mut schema);
            schema["x-kubernetes-group-version-kind"] =
                json!([{"group": GROUP, "version": VERSION, "kind": spec.kind}]);
            schemas.insert(format!("io.x-k8s.kueue.{VERSION}.{}", spec.kind), schema);
        }
        let document = json!({"openapi": "3.0.0", "components": {"schemas": schemas}});
        missing_fields(&serde_json::from_value(document).unwrap()).unwrap()
    }

    fn remove(schema: &mut Value, parent: &str, name: &str) {
        let fields = schema.pointer_mut(parent).and_then(Value::as_object_mut);
        assert!(fields.unwrap().remove(name).is_some(), "{parent} has no {name}");
    }

    #[test]
    fn own_definitions_lack_nothing() {
        assert_eq!(served(|_, _| {}), MissingFields::new());
    }

    #[test]
    fn newer_definitions_lack_nothing() {
        let newer = |_: &str, schema: &mut Value| {
            schema["properties"]["spec"]["properties"]["future"] = json!({"type": "string"});
        };
        assert_eq!(served(newer), MissingFields::new());
    }

    #[test]
    fn missing_fields_are_named_by_resource() {
        let missing = served(|plural, schema| match plural {
            "workloads" => {
                remove(schema, "/properties/status/properties", "schedulingStats");
                remove(schema, "/properties/spec/properties/podSets/items/properties", "count");
                let template = "/properties/spec/properties/podSets/items/properties/template/properties";
                remove(schema, template, "spec");
            }
            "topologies" => remove(schema, "/properties", "spec"),
            "cohorts" => schema["properties"]["spec"] = json!({"x-kubernetes-preserve-unknown-fields": true}),
            _ => {}
        });
        let expected: MissingFields = [
            ("topologies", vec!["spec".to_owned()]),
            ("workloads", vec!["spec.podSets[].count".to_owned(), "status.schedulingStats".to_owned()]),
        ]
        .into();
        assert_eq!(missing, expected);
    }

    #[test]
    fn kind_that_is_not_served_is_left_out() {
        let nothing = serde_json::from_value(json!({"components": {"schemas": {}}})).unwrap();
        assert_eq!(missing_fields(&nothing).unwrap(), MissingFields::new());
    }
}
