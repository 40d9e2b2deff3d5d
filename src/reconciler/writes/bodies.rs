//! Bodies of writes that several modules send.

use crate::api::names;
use crate::cache::records::Meta;
use serde_json::{Value, json};

/// Returns a patch that removes our finalizer and keeps the others.
pub(crate) fn remove_finalizer_patch(meta: &Meta) -> Value {
    let rest: Vec<&String> =
        meta.finalizers.iter().filter(|f| *f != names::RESOURCE_IN_USE_FINALIZER).collect();
    json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": rest}})
}

/// Returns options for deleting exactly this version of this object.
pub(crate) fn delete_options(meta: &Meta) -> Value {
    json!({
        "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version},
        "propagationPolicy": "Background",
    })
}
