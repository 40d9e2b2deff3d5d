//! Defaulting of our own kinds, beyond what their schemas default.

use serde_json::{Value, json};

use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use crate::api::names::RESOURCE_IN_USE_FINALIZER;
use crate::api::validation::Gate;

/// Texts that stand in where they are missing, as with Kueue: lists by `*`, the field of their elements, the text. An
/// empty one leads to the error of an empty text; a quota of nothing is a quota.
const DEFAULT_TEXTS: [(&[&str], &str, &str); 6] = [
    (&["spec", "resourceGroups", "*", "flavors", "*"], "name", ""),
    (&["spec", "resourceGroups", "*", "flavors", "*", "resources", "*"], "nominalQuota", "0"),
    (&["spec", "namespaceSelector", "matchExpressions", "*"], "key", ""),
    (&["spec", "namespaceSelector", "matchExpressions", "*"], "operator", ""),
    (&["spec", "nodeTaints", "*"], "key", ""),
    (&["spec", "nodeTaints", "*"], "effect", ""),
];

/// Queues and flavors are kept until nothing uses them.
pub(super) fn protect_in_use(request: &ReviewRequest<'_>) -> ReviewResponse {
    let mut patch = Patch::new(request.object);
    for (path, field, text) in DEFAULT_TEXTS {
        patch.fill_missing(path, field, text);
    }
    let held = request
        .object
        .get("metadata")
        .and_then(|meta| meta.get("finalizers"))
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|name| name == RESOURCE_IN_USE_FINALIZER));
    if !held && !patch.append(&["metadata", "finalizers"], json!(RESOURCE_IN_USE_FINALIZER)) {
        return ReviewResponse::Denied("metadata.finalizers: Invalid value: must be a list".to_owned());
    }
    allow_with_patch(patch)
}

/// Without partial admission a pod set has no minimum.
pub(super) fn workload(request: &ReviewRequest<'_>) -> ReviewResponse {
    let mut patch = Patch::new(request.object);
    if !request.ctx.settings.gates.is_enabled(Gate::PartialAdmission) {
        let pod_sets =
            request.object.get("spec").and_then(|spec| spec.get("podSets")).and_then(Value::as_array);
        for index in 0..pod_sets.map_or(0, Vec::len) {
            patch.remove_in_list(&["spec", "podSets"], index, "minCount");
        }
    }
    allow_with_patch(patch)
}

pub(super) fn allow_with_patch(patch: Patch) -> ReviewResponse {
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings: Vec::new() }
}
