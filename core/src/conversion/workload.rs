//! Workloads: the priority class, topology assignments, a misspelt name, and what only v1beta2 has.

use super::{
    ConversionError, Fields, Version, carried, items, object, quantities_as_text, rename_to, set, take,
    topology,
};
use crate::api::v1beta1::{POD_PRIORITY_CLASS_SOURCE, WORKLOAD_PRIORITY_CLASS_SOURCE};
use serde_json::{Value, json};

/// Groups and kinds of priority classes in v1beta2, with their source in v1beta1.
const PRIORITY_CLASSES: [(&str, &str, &str); 2] = [
    ("kueue.x-k8s.io", "WorkloadPriorityClass", WORKLOAD_PRIORITY_CLASS_SOURCE),
    ("scheduling.k8s.io", "PriorityClass", POD_PRIORITY_CLASS_SOURCE),
];

pub(super) fn workload(fields: &mut Fields, to: Version) -> Result<(), ConversionError> {
    if let Some(spec) = object(fields, "spec") {
        match to {
            Version::V1beta1 => priority_class_source(spec),
            Version::V1beta2 => priority_class_ref(spec),
        }
    }
    carried::workload(fields, to);
    let Some(status) = object(fields, "status") else { return Ok(()) };
    let name = "accumulatedPastExecutionTimeSeconds";
    rename_to(to, status, "accumulatedPastExexcutionTimeSeconds", name);
    for resources in items(status, "resourceRequests").filter_map(|request| object(request, "resources")) {
        quantities_as_text(resources, |_| true);
    }
    let Some(admission) = object(status, "admission") else { return Ok(()) };
    let mut values = topology::MAX_VALUES;
    for (index, assignment) in items(admission, "podSetAssignments").enumerate() {
        if let Some(usage) = object(assignment, "resourceUsage") {
            quantities_as_text(usage, |_| true);
        }
        if let Some(placement) = object(assignment, "topologyAssignment") {
            let path = format!("status.admission.podSetAssignments[{index}].topologyAssignment");
            topology::assignment(placement, to, &path, &mut values)?;
        }
    }
    Ok(())
}

/// A reference to a class of another kind has no form in v1beta1, and stays.
fn priority_class_source(spec: &mut Fields) {
    let text = |field: &str| spec.get("priorityClassRef").and_then(|class| class.get(field)?.as_str());
    let known =
        |(group, kind, _): &&(&str, &str, &str)| text("group") == Some(*group) && text("kind") == Some(*kind);
    let Some((.., source)) = PRIORITY_CLASSES.iter().find(known) else { return };
    if let Some(Value::Object(mut class)) = take(spec, "priorityClassRef") {
        set(spec, "priorityClassSource", *source);
        set(spec, "priorityClassName", take(&mut class, "name").unwrap_or_else(|| "".into()));
    }
}

/// A name without a source names no class, as in Kueue.
fn priority_class_ref(spec: &mut Fields) {
    let (source, name) = (take(spec, "priorityClassSource"), take(spec, "priorityClassName"));
    let source = source.as_ref().and_then(Value::as_str).unwrap_or_default();
    if let Some((group, kind, _)) = PRIORITY_CLASSES.iter().find(|(.., known)| *known == source) {
        let name = name.unwrap_or_else(|| "".into());
        set(spec, "priorityClassRef", json!({ "group": group, "kind": kind, "name": name }));
    }
}
