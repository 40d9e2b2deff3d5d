//! The committed schema of pod templates.

use serde_json::Value;
use sluice_core::api::crd::pod_template;
use std::fs;

/// Writes the schema if `SLUICE_OPENAPI` names the OpenAPI document of a server; otherwise checks the committed schema.
#[test]
#[expect(clippy::disallowed_methods, reason = "set by the developer who runs the test")]
fn pod_template_is_structural() {
    if let Ok(document) = std::env::var("SLUICE_OPENAPI") {
        let document: Value = serde_json::from_str(&fs::read_to_string(document).unwrap()).unwrap();
        let schema = pod_template::from_openapi(&document);
        assert!(schema.is_object(), "the document has no pod template");
        let file = crate::fixtures::root().join("core/src/api/crd/pod-template.json");
        fs::write(file, format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())).unwrap();
        return;
    }
    let schema = pod_template::shipped().unwrap();
    let containers = &schema["properties"]["spec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-list-map-keys"][0], "name");
    let ports = &containers["items"]["properties"]["ports"]["items"]["properties"];
    assert_eq!(ports["protocol"]["default"], "TCP");
    walk(&schema, "template");
}

fn walk(node: &Value, path: &str) {
    for forbidden in ["$ref", "allOf", "description", "nullable", "oneOf", "enum"] {
        let property = path.ends_with(".properties");
        assert!(property || node.get(forbidden).is_none(), "{path} has {forbidden}");
    }
    if node["x-kubernetes-list-type"] == "map" {
        let item = &node["items"];
        for key in node["x-kubernetes-list-map-keys"].as_array().unwrap() {
            let required = item["required"].as_array().is_some_and(|r| r.contains(key));
            let field = &item["properties"][key.as_str().unwrap()];
            assert!(required || field.get("default").is_some(), "{path}: key {key}");
        }
    }
    for (key, value) in node.as_object().into_iter().flatten() {
        if value.is_object() {
            walk(value, &format!("{path}.{key}"));
        }
    }
}

#[test]
fn schema_is_null_when_type_is_missing() {
    assert_eq!(pod_template::from_openapi(&serde_json::json!({})), Value::Null);
}
