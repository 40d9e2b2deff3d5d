//! Defaulting of Kueue's kinds beyond the schema defaults.

use serde_json::{Value, json};

use super::patch::Patch;
use super::response::ReviewResponse;
use super::review::ReviewRequest;
use super::submitter::{self, Submitter};
use crate::api::names::RESOURCE_IN_USE_FINALIZER;
use crate::api::validation::Gate;

/// Defaults of missing texts, as with Kueue: path (`*` means all list elements), field, text. An empty text is refused
/// by later validation; a missing quota is 0.
const DEFAULT_TEXTS: [(&[&str], &str, &str); 6] = [
    (&["spec", "resourceGroups", "*", "flavors", "*"], "name", ""),
    (&["spec", "resourceGroups", "*", "flavors", "*", "resources", "*"], "nominalQuota", "0"),
    (&["spec", "namespaceSelector", "matchExpressions", "*"], "key", ""),
    (&["spec", "namespaceSelector", "matchExpressions", "*"], "operator", ""),
    (&["spec", "nodeTaints", "*"], "key", ""),
    (&["spec", "nodeTaints", "*"], "effect", ""),
];

/// Sets default texts and the finalizer that keeps queues and flavors until they are unused.
pub(super) fn protect_in_use(request: &ReviewRequest<'_>) -> ReviewResponse {
    let mut patch = Patch::new(request.object);
    for (path, field, text) in DEFAULT_TEXTS {
        patch.fill_missing(path, field, text);
    }
    let has_finalizer = request
        .object
        .get("metadata")
        .and_then(|meta| meta.get("finalizers"))
        .and_then(Value::as_array)
        .is_some_and(|all| all.iter().any(|name| name == RESOURCE_IN_USE_FINALIZER));
    if !has_finalizer && !patch.append(&["metadata", "finalizers"], json!(RESOURCE_IN_USE_FINALIZER)) {
        return ReviewResponse::Denied("metadata.finalizers: Invalid value: must be a list".to_owned());
    }
    allow_with_patch(patch)
}

/// Removes `minCount` of pod sets if partial admission is disabled, and records the submitter of a Workload that no job has.
pub(super) fn workload(request: &ReviewRequest<'_>) -> ReviewResponse {
    let mut patch = Patch::new(request.object);
    if !request.ctx.settings.gates.is_enabled(Gate::PartialAdmission) {
        let pod_sets =
            request.object.get("spec").and_then(|spec| spec.get("podSets")).and_then(Value::as_array);
        for index in 0..pod_sets.map_or(0, Vec::len) {
            patch.remove_in_list(&["spec", "podSets"], index, "minCount");
        }
    }
    let warnings = submitter::record(Submitter::of_workload(request), &mut patch);
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings }
}

fn allow_with_patch(patch: Patch) -> ReviewResponse {
    ReviewResponse::Allowed { patch: patch.into_operations(), warnings: Vec::new() }
}
