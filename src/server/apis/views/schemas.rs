//! Schemas of the views, from their types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::visibility::views::{
    ClusterQueueView, CohortView, Finding, FlavorView, HistoryPurge, LocalQueueView, ManagerView,
    PreemptionReport, PreemptionView, QueueCapacityView, Source, UsageRecordReport, UsageRecordView,
    UsageReport, UsageView, Verdict, WorkloadView,
};

/// Keywords that both versions of OpenAPI have; readers of a cluster's merged document fail on other keywords.
const KEYWORDS: [&str; 4] = ["type", "description", "required", "enum"];
/// Formats that clients know.
const FORMATS: [&str; 4] = ["int32", "int64", "double", "date-time"];

/// Returns the schema of a type, without references.
fn schema_of<T: JsonSchema>() -> Map<String, Value> {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    schema.as_object().map(plain).unwrap_or_default()
}

/// Reduces a schema to the keywords of both versions of OpenAPI. Alternatives that are constant words become an enumeration;
/// other alternatives become a schema without a type.
fn plain(schema: &Map<String, Value>) -> Map<String, Value> {
    let mut kept: Map<String, Value> = Map::new();
    let mut keep = |name: &str, value: Value| drop(kept.insert(name.to_owned(), value));
    for name in KEYWORDS {
        match schema.get(name) {
            Some(Value::Array(types)) if name == "type" => {
                types.iter().filter(|kind| *kind != "null").take(1).for_each(|kind| keep(name, kind.clone()));
            }
            Some(value) => keep(name, value.clone()),
            None => {}
        }
    }
    match schema.get("format").and_then(Value::as_str) {
        Some("uint64") => keep("format", "int64".into()),
        Some(format) if FORMATS.contains(&format) => keep("format", format.into()),
        _ => {}
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let all = properties.iter().map(|(name, property)| (name.clone(), plain_value(property)));
        keep("properties", Value::Object(all.collect()));
    }
    for name in ["items", "additionalProperties"] {
        if let Some(part) = schema.get(name) {
            keep(name, plain_value(part));
        }
    }
    let alternatives = ["anyOf", "oneOf", "allOf"].into_iter().find_map(|name| schema.get(name)?.as_array());
    if let Some(alternatives) = alternatives {
        let words: Vec<&Value> = alternatives.iter().flat_map(words_of).collect();
        if let [Value::Object(only)] = alternatives.as_slice() {
            kept.extend(plain(only));
        } else if words.len() >= alternatives.len() {
            kept.extend([("type".to_owned(), "string".into()), ("enum".to_owned(), json!(words))]);
        } else {
            kept.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        }
    }
    kept
}

fn plain_value(schema: &Value) -> Value {
    schema.as_object().map_or_else(|| schema.clone(), |schema| Value::Object(plain(schema)))
}

/// Returns the words that an alternative allows.
fn words_of(alternative: &Value) -> Vec<&Value> {
    let words = alternative.get("enum").and_then(Value::as_array);
    words.into_iter().flatten().chain(alternative.get("const")).filter(|word| word.is_string()).collect()
}

/// Adds properties to the schema of an object.
fn with_properties(mut schema: Map<String, Value>, more: Value) -> Value {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let (Value::Object(known), Value::Object(more)) = (properties, more) {
        known.extend(more);
    }
    Value::Object(schema)
}

fn types() -> Value {
    json!({
        "apiVersion": {"type": "string", "description": "Group and version of this object."},
        "kind": {"type": "string", "description": "Kind of this object."},
    })
}

/// Returns the schema of an object.
fn object<T: JsonSchema>() -> Value {
    with_properties(schema_of::<T>(), types())
}

/// Returns the schema of an answer with its origin.
fn answer<T: JsonSchema>() -> Value {
    with_properties(schema_of::<T>(), with_origin())
}

fn with_origin() -> Value {
    let mut properties = types();
    if let Some(fields) = properties.as_object_mut() {
        fields.insert("source".into(), Value::Object(schema_of::<Source>()));
        let partial = "Whether a part is missing or may differ from the leader's.";
        fields.insert("partial".into(), json!({"type": "boolean", "description": partial}));
    }
    properties
}

/// Returns the schema of a list of objects with this schema.
fn list(item: &str) -> Value {
    let token = json!({"type": "string", "description": "The token of the next page."});
    let number =
        json!({"type": "integer", "format": "int64", "description": "Number of rows after this page."});
    let schema = json!({
        "type": "object",
        "description": "A page of views.",
        "required": ["items"],
        "properties": {
            "metadata": {
                "type": "object", "description": "How to go on.",
                "properties": {"continue": token, "remainingItemCount": number},
            },
            "items": {"type": "array", "items": {"$ref": format!("schema:{item}")}, "description": "The views."},
        },
    });
    match schema {
        Value::Object(fields) => with_properties(fields, with_origin()),
        other => other,
    }
}

/// Returns the schema of a list of such objects that has further fields.
fn report<T: JsonSchema>(item: &str) -> Value {
    let mut schema = answer::<T>();
    if let Some(items) = schema.pointer_mut("/properties/items/items") {
        *items = json!({"$ref": format!("schema:{item}")});
    }
    schema
}

/// Returns the schemas of a version.
pub(super) fn schemas(_: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("WorkloadView", object::<WorkloadView>()),
        ("WorkloadViewList", list("WorkloadView")),
        ("Verdict", answer::<Verdict>()),
        ("LocalQueueView", object::<LocalQueueView>()),
        ("LocalQueueViewList", list("LocalQueueView")),
        ("QueueCapacity", answer::<QueueCapacityView>()),
        ("ClusterQueueView", object::<ClusterQueueView>()),
        ("ClusterQueueViewList", list("ClusterQueueView")),
        ("CohortView", object::<CohortView>()),
        ("CohortViewList", list("CohortView")),
        ("FlavorView", object::<FlavorView>()),
        ("FlavorViewList", list("FlavorView")),
        ("Finding", object::<Finding>()),
        ("FindingList", list("Finding")),
        ("Preemption", object::<PreemptionView>()),
        ("PreemptionList", report::<PreemptionReport>("Preemption")),
        ("UsageReport", object::<UsageView>()),
        ("UsageReportList", report::<UsageReport>("UsageReport")),
        ("ClusterUsageReport", object::<UsageView>()),
        ("ClusterUsageReportList", report::<UsageReport>("ClusterUsageReport")),
        ("UsageRecord", object::<UsageRecordView>()),
        ("UsageRecordList", report::<UsageRecordReport>("UsageRecord")),
        ("ClusterUsageRecord", object::<UsageRecordView>()),
        ("ClusterUsageRecordList", report::<UsageRecordReport>("ClusterUsageRecord")),
        ("HistoryPurge", object::<HistoryPurge>()),
        ("ManagerView", object::<ManagerView>()),
        ("ManagerViewList", list("ManagerView")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that a schema has only keywords of both versions of OpenAPI, and a type and a description everywhere.
    fn assert_plain(name: &str, schema: &Value) {
        let fields = schema.as_object().unwrap_or_else(|| panic!("{name}: {schema}"));
        for (key, part) in fields {
            match key.as_str() {
                "type" | "required" | "enum" | "format" | "description" | "$ref" => {}
                "x-kubernetes-preserve-unknown-fields" => assert_eq!(*part, true, "{name}"),
                "properties" => {
                    part.as_object().unwrap().iter().for_each(|(name, part)| assert_plain(name, part));
                }
                "additionalProperties" if part.is_boolean() => {}
                "items" | "additionalProperties" => assert_plain(name, part),
                other => panic!("{name} has {other}: {schema}"),
            }
        }
    }

    #[test]
    fn schemas_have_only_what_every_client_reads() {
        let all = schemas("v1alpha1");
        for (name, schema) in &all {
            assert_plain(name, schema);
            assert_eq!(schema["type"], "object", "{name}");
        }
        let property = |name: &str, pointer: &str| {
            let (_, schema) = all.iter().find(|(known, _)| *known == name).unwrap();
            schema.pointer(pointer).unwrap_or_else(|| panic!("{name} has no {pointer}: {schema}")).clone()
        };
        assert_eq!(property("WorkloadView", "/properties/position/properties/of/format"), "int64");
        assert_eq!(property("WorkloadView", "/properties/state/enum").as_array().unwrap().len(), 5);
        assert_eq!(property("Verdict", "/properties/neverFits/type"), "boolean");
        assert_eq!(property("Verdict", "/properties/metadata/properties/name/type"), "string");
        assert_eq!(
            property("ClusterQueueView", "/properties/quota/items/properties/used/properties/value/type"),
            "string"
        );
    }
}
