//! Whether stored objects fit the installed definitions: those of an older version may lack a field.

use crate::objects::{Kind, ObjectClient, text};
use anyhow::{Result, ensure};
use kube::api::{DynamicObject, Patch, PatchParams, ValidationDirective};
use serde_json::{Value, json};

/// Kinds whose objects managers and users write.
const KINDS: [Kind; 6] =
    [Kind::WORKLOAD, Kind::CLUSTER_QUEUE, Kind::LOCAL_QUEUE, Kind::COHORT, Kind::FLAVOR, Kind::TOPOLOGY];

/// Checks the stored objects of Kueue's kinds that still exist; returns those that do not fit, each with what the server said. An error if
/// there are none.
pub async fn unfit_objects<'a, I: IntoIterator<Item = &'a Value>>(
    objects: &ObjectClient,
    stored: impl Fn(Kind) -> I,
) -> Result<Vec<String>> {
    let (mut found, mut checked) = (Vec::new(), 0);
    for kind in KINDS {
        for object in stored(kind) {
            found.extend(refusal(objects, kind, object).await?);
            checked += 1;
        }
    }
    ensure!(checked > 0, "no object was checked");
    Ok(found)
}

/// Applies an object as it is, in a dry run that refuses unknown fields; returns what the server refused, or nothing.
async fn refusal(objects: &ObjectClient, kind: Kind, object: &Value) -> Result<Option<String>> {
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
