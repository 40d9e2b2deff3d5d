//! What v1beta2 has and v1beta1 lacks, carried along in a Workload of v1beta1, so that a client of v1beta1 that reads, changes
//! and writes the object does not remove it.
//!
//! Parts of the spec are in an annotation, parts of the status in a condition: a client that may write only one of both
//! changes only that one. Neither is stored, because objects are stored in v1beta2.

use super::{Fields, Version, items, object, set, take};
use serde_json::{Value, json};

/// Annotation with parts of the spec, as JSON.
pub(super) const ANNOTATION: &str = "sluice.dev/v1beta2-spec";
/// Condition with parts of the status, as JSON in its message.
pub(super) const CONDITION: &str = "sluice.dev/v1beta2-status";

const GATES: &str = "preemptionGates";
const SLICE_CONSTRAINTS: &str = "podsetSliceRequiredTopologyConstraints";
/// Name in the annotation of an annotation of the same name that the object itself has.
const OWN_ANNOTATION: &str = "annotation";

/// Moves the parts in or out.
pub(super) fn workload(fields: &mut Fields, to: Version) {
    match to {
        Version::V1beta1 => {
            pack_spec(fields);
            pack_status(fields);
        }
        Version::V1beta2 => {
            unpack_spec(fields);
            unpack_status(fields);
        }
    }
}

fn pack_spec(fields: &mut Fields) {
    let mut packed = Fields::new();
    if let Some(spec) = object(fields, "spec") {
        if let Some(gates) = take(spec, GATES) {
            set(&mut packed, GATES, gates);
        }
        let mut by_pod_set = Fields::new();
        for pod_set in items(spec, "podSets") {
            let name = name_of(pod_set);
            if let Some(constraints) =
                object(pod_set, "topologyRequest").and_then(|request| take(request, SLICE_CONSTRAINTS))
            {
                set(&mut by_pod_set, &name, constraints);
            }
        }
        if !by_pod_set.is_empty() {
            set(&mut packed, SLICE_CONSTRAINTS, by_pod_set);
        }
    }
    if let Some(own) = annotations(fields).and_then(|annotations| take(annotations, ANNOTATION)) {
        set(&mut packed, OWN_ANNOTATION, own);
    }
    if packed.is_empty() {
        return;
    }
    if let Some(metadata) = object(fields, "metadata") {
        if metadata.get("annotations").is_none_or(Value::is_null) {
            set(metadata, "annotations", json!({}));
        }
        if let Some(annotations) = object(metadata, "annotations") {
            set(annotations, ANNOTATION, Value::Object(packed).to_string());
        }
    }
}

fn unpack_spec(fields: &mut Fields) {
    let Some(annotations) = annotations(fields) else { return };
    let text = annotations.get(ANNOTATION).and_then(Value::as_str).unwrap_or_default();
    // Something else under that name stays.
    let Ok(Value::Object(mut packed)) = serde_json::from_str(text) else { return };
    take(annotations, ANNOTATION);
    if let Some(own) = take(&mut packed, OWN_ANNOTATION) {
        set(annotations, ANNOTATION, own);
    } else if annotations.is_empty() {
        object(fields, "metadata").map(|metadata| take(metadata, "annotations"));
    }
    let Some(spec) = object(fields, "spec") else { return };
    if let Some(gates) = take(&mut packed, GATES) {
        spec.entry(GATES).or_insert(gates);
    }
    let Some(Value::Object(mut by_pod_set)) = take(&mut packed, SLICE_CONSTRAINTS) else { return };
    for pod_set in items(spec, "podSets") {
        let constraints = take(&mut by_pod_set, &name_of(pod_set));
        // A client may have removed the request.
        if let Some((request, constraints)) = object(pod_set, "topologyRequest").zip(constraints) {
            request.entry(SLICE_CONSTRAINTS).or_insert(constraints);
        }
    }
}

fn pack_status(fields: &mut Fields) {
    let Some(status) = object(fields, "status") else { return };
    let Some(gates) = take(status, GATES) else { return };
    // A condition needs a time. That of the first gate depends on the object alone.
    let at = gates.pointer("/0/lastTransitionTime").and_then(Value::as_str).unwrap_or("1970-01-01T00:00:00Z");
    let condition = json!({
        "type": CONDITION,
        "status": "True",
        "reason": "NotInV1beta1",
        "lastTransitionTime": at,
        "message": json!({ GATES: gates }).to_string(),
    });
    if status.get("conditions").is_none_or(Value::is_null) {
        set(status, "conditions", json!([]));
    }
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.push(condition);
    }
}

fn unpack_status(fields: &mut Fields) {
    let Some(status) = object(fields, "status") else { return };
    let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
    let Some(index) = conditions.iter().position(|condition| type_of(condition) == CONDITION) else { return };
    let message = conditions.get(index).and_then(|condition| condition.get("message"));
    let text = message.and_then(Value::as_str).unwrap_or_default();
    let Ok(Value::Object(mut packed)) = serde_json::from_str(text) else { return };
    conditions.remove(index);
    if conditions.is_empty() {
        take(status, "conditions");
    }
    if let Some(gates) = take(&mut packed, GATES) {
        status.entry(GATES).or_insert(gates);
    }
}

fn annotations(fields: &mut Fields) -> Option<&mut Fields> {
    object(fields, "metadata").and_then(|metadata| object(metadata, "annotations"))
}

/// Returns the name of a pod set; the schema's default is `main`.
fn name_of(pod_set: &Fields) -> String {
    pod_set.get("name").and_then(Value::as_str).unwrap_or("main").to_owned()
}

fn type_of(condition: &Value) -> &str {
    condition.get("type").and_then(Value::as_str).unwrap_or_default()
}
