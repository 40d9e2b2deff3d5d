//! The fields of an object that users own, by its managed fields.

use crate::objects::text;
use serde_json::Value;
use std::collections::BTreeSet;

/// Managers of the control plane and of Kueue and Sluice; all others are users.
const CONTROLLERS: [&str; 9] = [
    "kueue",
    "sluice",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-apiserver",
    "kwok",
    "manager-",
    "endpoint",
    "batch-",
];

/// Returns the fields of users, each with its manager and operation.
pub(super) fn of_users(object: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let manager = text(entry, "/manager");
        if CONTROLLERS.iter().any(|name| manager.starts_with(name)) {
            continue;
        }
        let owner = format!("{manager} {} {}", text(entry, "/operation"), text(entry, "/subresource"));
        leaves(&entry["fieldsV1"], &owner, &mut all);
    }
    all
}

fn leaves(fields: &Value, path: &str, all: &mut BTreeSet<String>) {
    match fields.as_object() {
        Some(children) if !children.is_empty() => {
            for (name, child) in children {
                leaves(child, &format!("{path} {name}"), all);
            }
        }
        _ => drop(all.insert(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::of_users;
    use serde_json::json;

    #[test]
    fn fields_of_controllers_are_left_out() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:a": {}, "f:b": {"f:c": {}}}}},
            {"manager": "kueue", "operation": "Update", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
        ]}});
        let fields: Vec<String> = of_users(&object).into_iter().collect();
        assert_eq!(fields, ["kubectl Apply  f:spec f:a", "kubectl Apply  f:spec f:b f:c"]);
    }
}
