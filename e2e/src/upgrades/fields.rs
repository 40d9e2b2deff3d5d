//! Whether stored objects fit the installed definitions: those of an older version may lack a field.

use crate::objects::{Kind, ObjectClient, text};
use anyhow::Result;
use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use serde_json::{Value, json};

/// Applies an object as it is, in a dry run that refuses unknown fields; returns what the server refused, or nothing.
pub async fn fit_definitions(objects: &ObjectClient, kind: Kind, object: &Value) -> Result<Option<String>> {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    if objects.get(kind, namespace, name).await?.is_none() {
        return Ok(None);
    }
    let mut applied = object.clone();
    applied["apiVersion"] = kind.api_version().into();
    applied["kind"] = kind.singular().into();
    applied["metadata"] = json!({"name": name, "namespace": object["metadata"]["namespace"]});
    let applied: DynamicObject = serde_json::from_value(applied)?;
    let params = PatchParams {
        dry_run: true,
        force: true,
        field_manager: Some("field-check".to_owned()),
        field_validation: Some(ValidationDirective::Strict),
    };
    let api = objects.api(kind, namespace);
    let patch = Patch::Apply(&applied);
    let mut outcome = api.patch(name, &params, &patch).await;
    // Only kinds with a status have its path.
    if outcome.is_ok() && object["status"].is_object() {
        outcome = api.patch_status(name, &params, &patch).await;
    }
    Ok(outcome.err().map(|error| format!("{} {namespace}/{name}: {error}", kind.singular())))
}
