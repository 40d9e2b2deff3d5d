//! Rules of an API server for the specs of pods, with its paths and texts: containers, resources, tolerations.

use super::objects::text_at;
use super::server_rules::dns_label;
use crate::api::validation::syntax::{
    check_label_name, check_labels, invalid_each, qualified_name, read_quantity,
};
use crate::api::validation::{Errors, FieldCursor, FieldError};
use crate::resources::Quantity;
use serde_json::Value;

pub(super) const NEGATIVE: &str = "must be greater than or equal to 0";
/// Resources of a container whose names need no domain.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";
/// Lists of containers.
const CONTAINERS: [&str; 2] = ["initContainers", "containers"];

/// Checks the spec of a pod.
pub(super) fn check(spec: &FieldCursor<'_>, errors: &mut Errors) {
    let mut names: Vec<&str> = Vec::new();
    for list in CONTAINERS {
        let containers = spec.get(list, errors);
        let items = containers.items(errors);
        if items.is_empty() && list == "containers" {
            errors.push(FieldError::required(containers.path.clone(), ""));
        }
        for container in &items {
            let name = text_at(container.value, "/name");
            if name.is_empty() {
                errors.push(FieldError::required(container.field_path("name"), ""));
            } else {
                errors.extend(invalid_each(&container.field_path("name"), name, dns_label(name)));
                if names.contains(&name) {
                    errors.push(FieldError::duplicate(container.field_path("name"), name, ""));
                }
                names.push(name);
            }
            if text_at(container.value, "/image").is_empty() {
                errors.push(FieldError::required(container.field_path("image"), ""));
            }
            check_resources(&container.get("resources", errors), errors);
        }
    }
    check_labels(&spec.get("nodeSelector", errors), errors);
    check_tolerations(&spec.get("tolerations", errors), errors);
    let policy = spec.get("restartPolicy", errors);
    let supported = ["Always", "OnFailure", "Never"];
    if let Some(text) = policy.text(errors).filter(|text| !text.is_empty() && !supported.contains(text)) {
        errors.push(FieldError::not_supported(policy.path.clone(), text, supported));
    }
    if let Some(seconds) =
        spec.get("activeDeadlineSeconds", errors).int(errors).filter(|seconds| *seconds < 1)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(spec.field_path("activeDeadlineSeconds"), seconds, detail));
    }
}

/// Returns the amount of a quantity, if it is valid.
pub(super) fn amount(value: &Value) -> Option<Quantity> {
    read_quantity(value).ok()
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns whether requests may be below limits.
fn is_overcommittable(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES)
}

/// Checks names and amounts of a map of resources.
pub(super) fn check_amounts(amounts: &FieldCursor<'_>, errors: &mut Errors) {
    for (name, cursor) in amounts.entries(errors) {
        let faults = qualified_name(name);
        if faults.is_empty()
            && !name.contains('/')
            && !STANDARD.contains(&name)
            && !name.starts_with(HUGE_PAGES)
        {
            let detail = "must be a standard resource for containers";
            errors.push(FieldError::invalid(cursor.path.clone(), name, detail));
        }
        errors.extend(invalid_each(&cursor.path, name, faults));
        let Some(quantity) = amount(cursor.value) else { continue };
        if quantity.is_negative() {
            errors.push(FieldError::invalid(cursor.path.clone(), quantity.to_string(), NEGATIVE));
        }
        if !is_native(name) && quantity.milli().checked_rem(1000) != Some(0) {
            errors.push(FieldError::invalid(cursor.path.clone(), quantity.to_string(), "must be an integer"));
        }
    }
}

fn check_resources(resources: &FieldCursor<'_>, errors: &mut Errors) {
    let (requests, limits) = (resources.get("requests", errors), resources.get("limits", errors));
    check_amounts(&limits, errors);
    check_amounts(&requests, errors);
    for (name, cursor) in requests.entries(errors) {
        let Some(request) = amount(cursor.value) else { continue };
        let limit = limits.value.get(name).filter(|limit| !limit.is_null()).and_then(amount);
        match limit {
            Some(limit) if request != limit && !is_overcommittable(name) => {
                let detail = format!("must be equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(requests.path.clone(), request.to_string(), detail));
            }
            Some(limit) if request > limit => {
                let detail = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(FieldError::invalid(requests.path.clone(), request.to_string(), detail));
            }
            None if !is_overcommittable(name) => {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(FieldError::required(limits.path.clone(), detail));
            }
            _ => {}
        }
    }
}

fn check_tolerations(tolerations: &FieldCursor<'_>, errors: &mut Errors) {
    for toleration in tolerations.items(errors) {
        let field = |name: &str| text_at(toleration.value, &format!("/{name}")).to_owned();
        let (key, operator, effect) = (field("key"), field("operator"), field("effect"));
        if !key.is_empty() {
            errors.extend(check_label_name(&toleration.field_path("key"), &key));
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(toleration.field_path("operator"), operator.as_str(), detail));
        }
        let seconds = toleration.value.get("tolerationSeconds").is_some_and(|seconds| !seconds.is_null());
        if seconds && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(toleration.field_path("effect"), effect.as_str(), detail));
        }
    }
}

/// Removes the fields of a pod template that may change while its Job is suspended and has not started.
pub(super) fn remove_mutable_fields(template: &mut Value) {
    let remove = |object: Option<&mut Value>, fields: &[&str]| {
        if let Some(object) = object.and_then(Value::as_object_mut) {
            for field in fields {
                object.shift_remove(*field);
            }
        }
    };
    remove(template.get_mut("metadata"), &["labels", "annotations"]);
    let Some(spec) = template.get_mut("spec") else { return };
    remove(spec.get_mut("affinity"), &["nodeAffinity"]);
    remove(Some(spec), &["nodeSelector", "tolerations", "schedulingGates"]);
    for list in CONTAINERS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            remove(Some(container), &["resources"]);
        }
    }
}
