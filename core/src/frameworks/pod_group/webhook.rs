//! What the webhook adds to a pod that must wait for admission.

use super::role_hash::role_hash;
use crate::api::names;
use crate::api::validation::{Gate, Gates};
use crate::frameworks::{FieldChange, JobError, read};
use serde_json::{Value, json};

/// Returns the fields to set so that a new pod waits for admission, and for its topology where topologies are enabled.
/// Whether the pod must wait is decided by its queue, its namespace and its owners. A role that the pod names itself is
/// overwritten: with it, a pod could join a role that requests less than the pod.
pub fn hold_pod(pod: &Value, gates: &Gates) -> Result<Vec<FieldChange>, JobError> {
    let labels = read::string_map(pod, "/metadata/labels")?;
    let annotations = read::string_map(pod, "/metadata/annotations")?;
    let parent = annotations.contains_key(names::SUSPENDING_PARENT_ANNOTATION);
    let label = |key: &str, value: &str| FieldChange::new(&["metadata", "labels", key], json!(value));
    let mut changes = Vec::new();
    if !parent {
        // The pods of another object are jobs only where that object, or its controller, says so.
        changes.push(label(names::MANAGED_LABEL, "true"));
    }

    let mut held = read::list(pod, "/spec/schedulingGates")?.to_vec();
    let topology = gates.is_enabled(Gate::TopologyAwareScheduling).then_some(names::TOPOLOGY_GATE);
    for name in [names::ADMISSION_GATE].into_iter().chain(topology) {
        if held.iter().all(|gate| gate.get("name").is_none_or(|known| known != name)) {
            held.push(json!({ "name": name }));
        }
    }
    changes.push(FieldChange::new(&["spec", "schedulingGates"], Value::Array(held)));

    // The API server refuses what is no text here; without it the answer does not depend on how the pod was read.
    let known = read::list(pod, "/metadata/finalizers")?.iter().filter(|name| name.is_string());
    let mut finalizers: Vec<Value> = known.cloned().collect();
    // The finalizer keeps ended pods countable. Pods of another object need none, as that object replaces them.
    if !parent && !finalizers.iter().any(|name| name == names::MANAGED_LABEL) {
        finalizers.push(json!(names::MANAGED_LABEL));
        changes.push(FieldChange::new(&["metadata", "finalizers"], Value::Array(finalizers)));
    }

    // A pod may join a group later, so each one has a role.
    let hash = role_hash(pod.get("spec").unwrap_or(&Value::Null));
    changes.push(FieldChange::new(&["metadata", "annotations", names::ROLE_HASH_ANNOTATION], json!(hash)));
    if let Some(source) = annotations.get(names::POD_GROUP_INDEX_LABEL_ANNOTATION) {
        let index = labels.get(source).map_or("", String::as_str);
        changes.push(label(names::POD_GROUP_INDEX_LABEL, index));
    }
    Ok(changes)
}
