//! Validation of Workload statuses: admission, reclaimable pods and check updates must match the pod sets.

use serde_json::Value;

use super::flavor::tolerations;
use super::quota::quantity;
use super::syntax::{check_annotations, check_labels};
use super::workload::WorkloadFields;
use super::{Errors, FieldCursor, FieldError, key_path};

/// Checks a status; `old` is the previous version of a changed Workload.
pub(super) fn check(view: &WorkloadFields<'_>, old: Option<&WorkloadFields<'_>>, errors: &mut Errors) {
    if view.reserved {
        admission(view, old, errors);
    }
    reclaimable(view, old, errors);
    for check in view.status.get("admissionChecks", errors).items(errors) {
        for update in check.get("podSetUpdates", errors).items(errors) {
            pod_set_update(view, &update, errors);
        }
    }
}

fn admission(view: &WorkloadFields<'_>, old: Option<&WorkloadFields<'_>>, errors: &mut Errors) {
    let admission = view.status.get("admission", errors);
    if !admission.exists() {
        let already = |old: &WorkloadFields<'_>| {
            old.reserved && old.status.value.get("admission").is_none_or(Value::is_null)
        };
        if !old.is_some_and(already) {
            errors.push(FieldError::required(admission.path, "must be set when quota is reserved"));
        }
        return;
    }
    for assignment in admission.get("podSetAssignments", errors).items(errors) {
        let name = assignment.get("name", errors);
        let text = name.text(errors).unwrap_or("main");
        if view.pod_set(text).is_none() {
            errors.push(FieldError::not_found(name.path, text));
        }
        let count = assignment.get("count", errors).int(errors).unwrap_or(0);
        for (resource, cursor) in assignment.get("resourceUsage", errors).entries(errors) {
            let Some(usage) = quantity(&cursor, errors).filter(|_| count > 0) else {
                continue;
            };
            let units = if resource == "cpu" { usage.milli() } else { usage.value() };
            if units % count != 0 {
                let detail = format!("is not a multiple of {count}");
                errors.push(FieldError::invalid(cursor.path, usage.to_string(), detail));
            }
        }
    }
}

/// Name and count of each entry of a list of reclaimable pods.
pub(super) fn reclaimable_pods<'a>(view: &WorkloadFields<'a>, errors: &mut Errors) -> Vec<(&'a str, i64)> {
    let list = view.status.get("reclaimablePods", errors).items(errors);
    let name_and_count = |entry: &FieldCursor<'a>, errors: &mut Errors| {
        let name = entry.get("name", errors).text(errors).unwrap_or_default();
        (name, entry.get("count", errors).int(errors).unwrap_or(0))
    };
    list.iter().map(|entry| name_and_count(entry, errors)).collect()
}

fn reclaimable(view: &WorkloadFields<'_>, old: Option<&WorkloadFields<'_>>, errors: &mut Errors) {
    let before = old.map(|old| reclaimable_pods(old, &mut Errors::new())).unwrap_or_default();
    for (name, count) in reclaimable_pods(view, errors) {
        let path = key_path(&view.status.field_path("reclaimablePods"), name);
        match view.pod_set(name) {
            None => {
                errors.push(FieldError::not_supported(format!("{path}.name"), name, view.pod_set_names()));
            }
            Some(pod_set) if count > pod_set.count && !(view.elastic && before.contains(&(name, count))) => {
                let detail = format!("should be less or equal to {}", pod_set.count);
                errors.push(FieldError::invalid(format!("{path}.count"), count, detail));
            }
            Some(_) => {}
        }
    }
}

fn pod_set_update(view: &WorkloadFields<'_>, update: &FieldCursor<'_>, errors: &mut Errors) {
    let name = update.get("name", errors);
    let text = name.text(errors).unwrap_or_default();
    if view.pod_set(text).is_none() {
        errors.push(FieldError::not_supported(name.path, text, view.pod_set_names()));
    }
    tolerations(&update.get("tolerations", errors), errors);
    check_annotations(&update.get("annotations", errors), errors);
    for map in ["nodeSelector", "labels"] {
        check_labels(&update.get(map, errors), errors);
    }
}
