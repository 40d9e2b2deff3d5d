//! Schemas of Kubernetes' own kinds that the simulation reads, as an API server uses them to decode objects.
//!
//! They come from the types of `k8s_openapi`. Pod specs have the committed schema of pod templates, which knows the fields
//! of newer servers too.

use crate::api::crd::pod_template;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node, Pod, PodTemplate};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

const DEFINITIONS: &str = "#/$defs/";
const POD_TEMPLATE: &str = "io.k8s.api.core.v1.PodTemplateSpec";
const POD_SPEC: &str = "io.k8s.api.core.v1.PodSpec";

/// Returns the schemas by kind.
pub(super) fn all() -> Result<Vec<(&'static str, Value)>, String> {
    let mut template = pod_template::shipped().map_err(|error| error.to_string())?;
    // That of a custom resource lacks most fields.
    if let Some(part) = template.pointer_mut("/properties/metadata") {
        *part = metadata();
    }
    Ok(vec![
        ("Namespace", schema_of::<Namespace>(&template)),
        ("Node", schema_of::<Node>(&template)),
        ("Pod", schema_of::<Pod>(&template)),
        ("PodTemplate", schema_of::<PodTemplate>(&template)),
        ("LimitRange", schema_of::<LimitRange>(&template)),
        ("RuntimeClass", schema_of::<RuntimeClass>(&template)),
        ("PriorityClass", schema_of::<PriorityClass>(&template)),
        ("Job", schema_of::<Job>(&template)),
    ])
}

/// Returns the schema of the metadata of every object.
pub(super) fn metadata() -> Value {
    schema_of::<ObjectMeta>(&Value::Null)
}

/// Returns the schema of a type without references: those to pods become parts of `template`.
fn schema_of<T: JsonSchema>(template: &Value) -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
    let definitions = schema.get_mut("$defs").map(Value::take).unwrap_or_default();
    resolved(&schema, &definitions, template)
}

fn resolved(node: &Value, definitions: &Value, template: &Value) -> Value {
    let Some(fields) = node.as_object() else { return node.clone() };
    let reference =
        fields.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix(DEFINITIONS));
    match reference {
        Some(POD_TEMPLATE) => return template.clone(),
        Some(POD_SPEC) => return template.pointer("/properties/spec").cloned().unwrap_or_default(),
        Some(name) => {
            let definition = definitions.get(name).unwrap_or(&Value::Null);
            return resolved(definition, definitions, template);
        }
        None => {}
    }
    let part = |(name, part): (&String, &Value)| (name.clone(), resolved(part, definitions, template));
    Value::Object(fields.iter().map(part).collect::<Map<_, _>>())
}
