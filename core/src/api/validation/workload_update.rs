//! Validation of Workload updates: fields that are immutable once quota is reserved, and fields that may only grow or
//! be set once. What has finished holds no quota again.

use serde_json::Value;

use super::equality::equal;
use super::workload::WorkloadFields;
use super::workload_status::reclaimable_pods;
use super::{Errors, FieldCursor, FieldError, Gate, Gates, gated_by, key_path};
use crate::api::names::SLICE_REPLACEMENT_FOR_ANNOTATION;

/// Checks a change, which the manager may have made. Errors in the old object itself are not reported.
pub(super) fn check(
    view: &WorkloadFields<'_>,
    old: &WorkloadFields<'_>,
    (gates, by_manager): (&Gates, bool),
    errors: &mut Errors,
) {
    if old.reserved {
        pod_sets(view, old, gates, errors);
    }
    if old.reserved && view.reserved && !by_manager {
        reclaimable(view, old, errors);
    }
    if old.finished && !view.finished {
        let detail = "a Workload that has finished cannot run again: create another one";
        errors.push(FieldError::forbidden(view.status.field_path("conditions"), detail));
    }
    admission(view, old, gates, errors);
    checks(view, old, errors);
    cluster_name(view, old, gates, errors);
    if gates.is_enabled(Gate::AdmissionGatedBy) {
        let was = gated_by::read(&old.root, &mut Errors::new());
        let is = gated_by::read(&view.root, errors);
        gated_by::check_update(is, was, errors);
    }
}

fn pod_sets(view: &WorkloadFields<'_>, old: &WorkloadFields<'_>, gates: &Gates, errors: &mut Errors) {
    if view.pod_sets.len() != old.pod_sets.len() {
        let pod_sets = view.root.descend(&["spec", "podSets"], errors);
        errors.push(FieldError::immutable(pod_sets.path, pod_sets.value.clone()));
        return;
    }
    for (i, (is, was)) in view.pod_sets.iter().zip(&old.pod_sets).enumerate() {
        let shrunk = gates.is_enabled(Gate::ElasticJobsViaWorkloadSlices) && is.count < was.count;
        let mut before = was.cursor.value.clone();
        if let Some(before) = before.as_object_mut() {
            let count = if shrunk { is.count } else { was.count };
            before.insert("count".to_owned(), Value::from(count));
            before.insert("name".to_owned(), Value::from(was.name));
        }
        let mut after = is.cursor.value.clone();
        if let Some(after) = after.as_object_mut() {
            after.insert("count".to_owned(), Value::from(is.count));
            after.insert("name".to_owned(), Value::from(is.name));
        }
        if !equal(&after, &before) {
            // Kueue's path has no brackets: clients may read the path.
            errors.push(FieldError::immutable(format!("spec.podSets.{i}"), is.cursor.value.clone()));
        }
    }
}

/// Checks that reclaimable pods do not decrease, except in an elastic Workload that has shrunk below its admitted
/// count.
fn reclaimable(view: &WorkloadFields<'_>, old: &WorkloadFields<'_>, errors: &mut Errors) {
    let before = reclaimable_pods(old, &mut Errors::new());
    let after = reclaimable_pods(view, &mut Errors::new());
    for (name, count) in before {
        if view.elastic && has_shrunk(view, name) {
            continue;
        }
        let path = key_path(&view.status.field_path("reclaimablePods"), name);
        match after.iter().find(|(other, _)| *other == name) {
            None => errors.push(FieldError::required(path, "cannot be removed")),
            Some((_, now)) if *now < count => {
                let detail = format!("cannot be less than {count}");
                errors.push(FieldError::invalid(format!("{path}.count"), *now, detail));
            }
            Some(_) => {}
        }
    }
}

fn has_shrunk(view: &WorkloadFields<'_>, name: &str) -> bool {
    let mut unread = Errors::new();
    let assignments =
        view.status.descend(&["admission", "podSetAssignments"], &mut unread).items(&mut unread);
    let admitted = assignments
        .iter()
        .find(|assignment| assignment.value.get("name").and_then(Value::as_str) == Some(name))
        .and_then(|assignment| assignment.value.get("count")?.as_i64());
    match (view.pod_set(name), admitted) {
        (Some(pod_set), Some(admitted)) => pod_set.count < admitted,
        _ => false,
    }
}

/// Checks that an admission is only removed, never replaced. Its topology assignment may change.
fn admission(view: &WorkloadFields<'_>, old: &WorkloadFields<'_>, gates: &Gates, errors: &mut Errors) {
    let is = view.status.get("admission", errors);
    let was = old.status.value.get("admission").unwrap_or(&Value::Null);
    if !is.exists() || was.is_null() {
        return;
    }
    let same = if gates.is_enabled(Gate::TopologyAwareScheduling) {
        equal(&without_placement(is.value), &without_placement(was))
    } else {
        equal(is.value, was)
    };
    if !same {
        errors.push(FieldError::immutable(is.path, is.value.clone()));
    }
}

fn without_placement(admission: &Value) -> Value {
    let mut bare = admission.clone();
    let assignments = bare.get_mut("podSetAssignments").and_then(Value::as_array_mut);
    for assignment in assignments.into_iter().flatten().filter_map(Value::as_object_mut) {
        assignment.shift_remove("topologyAssignment");
        assignment.shift_remove("delayedTopologyRequest");
    }
    bare
}

/// Checks that the pod set updates of an admission check do not change while the check is ready.
fn checks(view: &WorkloadFields<'_>, old: &WorkloadFields<'_>, errors: &mut Errors) {
    let mut unread = Errors::new();
    let before = old.status.get("admissionChecks", &mut unread).items(&mut unread);
    let field = |check: &FieldCursor<'_>, name: &str| check.value.get(name).cloned().unwrap_or(Value::Null);
    let ready = |check: &FieldCursor<'_>| check.value.get("state").and_then(Value::as_str) == Some("Ready");
    for check in view.status.get("admissionChecks", errors).items(errors) {
        let was = before.iter().find(|was| field(was, "name") == field(&check, "name"));
        let Some(was) = was.filter(|was| ready(was) && ready(&check)) else {
            continue;
        };
        let updates = field(&check, "podSetUpdates");
        if !equal(&updates, &field(was, "podSetUpdates")) {
            errors.push(FieldError::immutable(check.field_path("podSetUpdates"), updates));
        }
    }
}

/// Checks that the cluster is one of the nominated clusters, unless the Workload replaces a slice that already runs
/// there.
fn cluster_name(view: &WorkloadFields<'_>, old: &WorkloadFields<'_>, gates: &Gates, errors: &mut Errors) {
    let cluster = view.status.get("clusterName", errors);
    let Some(name) = cluster.text(errors) else { return };
    let mut unread = Errors::new();
    if old.status.get("clusterName", &mut unread).exists() {
        return;
    }
    let annotations = view.root.descend(&["metadata", "annotations"], errors);
    let replaces = gates.is_enabled(Gate::ElasticJobsViaWorkloadSlices)
        && annotations.get(SLICE_REPLACEMENT_FOR_ANNOTATION, errors).exists();
    let nominated = old.status.get("nominatedClusterNames", &mut unread).items(&mut unread);
    if !replaces && !nominated.iter().any(|nominated| nominated.value.as_str() == Some(name)) {
        let detail = "when setting clusterName it must be one of the nominatedClusterNames";
        errors.push(FieldError::invalid(cluster.path, name, detail));
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::workload;
    use super::*;
    use serde_json::json;

    #[test]
    fn finished_workload_stays_finished() {
        let object = |conditions: &[(&str, &str)]| {
            let condition = |(kind, status): &(&str, &str)| {
                json!({"type": kind, "status": status, "reason": "r", "message": "m",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            json!({"spec": {"podSets": []}, "status": {"conditions": conditions.iter().map(condition).collect::<Vec<_>>()}})
        };
        let faults = |new: &[(&str, &str)], old: &[(&str, &str)]| {
            let errors = workload(&object(new), Some(&object(old)), &Gates::default());
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let finished = [("Finished", "True")];
        assert_eq!(faults(&finished, &finished), "");
        assert_eq!(faults(&finished, &[]), "");
        assert_eq!(faults(&[("Finished", "False")], &[("Finished", "False")]), "");
        for taken_back in
            [&[][..], &[("Finished", "False")], &[("Finished", "Unknown")], &[("Evicted", "True")]]
        {
            let said = faults(taken_back, &finished);
            assert!(said.starts_with("status.conditions: Forbidden: a Workload that has finished"), "{said}");
        }
    }
}
