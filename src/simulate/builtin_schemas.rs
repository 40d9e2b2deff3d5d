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
use serde_json::Value;

/// Where a schema has the spec of a pod or its template.
const POD_SPECS: [(&str, &str, &str); 2] =
    [("Pod", "/properties/spec", "/properties/spec"), ("PodTemplate", "/properties/template", "")];

/// Returns the schemas by kind.
pub(super) fn all() -> Result<Vec<(&'static str, Value)>, String> {
    let template = {
        let mut template = pod_template::shipped().map_err(|error| error.to_string())?;
        replace(&mut template, "/properties/metadata", metadata());
        template
    };
    let mut schemas = vec![
        ("Namespace", schema_of::<Namespace>()),
        ("Node", schema_of::<Node>()),
        ("Pod", schema_of::<Pod>()),
        ("PodTemplate", schema_of::<PodTemplate>()),
        ("LimitRange", schema_of::<LimitRange>()),
        ("RuntimeClass", schema_of::<RuntimeClass>()),
        ("PriorityClass", schema_of::<PriorityClass>()),
        ("Job", schema_of::<Job>()),
    ];
    for (kind, schema) in &mut schemas {
        if *kind == "Job" {
            replace(schema, "/properties/spec/properties/template", template.clone());
        }
        for (_, target, part) in POD_SPECS.iter().filter(|(name, ..)| name == kind) {
            replace(schema, target, template.pointer(part).cloned().unwrap_or_default());
        }
    }
    Ok(schemas)
}

/// Returns the schema of the metadata of every object.
pub(super) fn metadata() -> Value {
    schema_of::<ObjectMeta>()
}

/// Returns the schema of a type, without references to other schemas.
fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

fn replace(schema: &mut Value, pointer: &str, with: Value) {
    if let Some(part) = schema.pointer_mut(pointer) {
        *part = with;
    }
}
