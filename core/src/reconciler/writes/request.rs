//! Writes to send, and the bodies that several modules send.

use crate::api::v1beta2::WorkloadStatus;
use crate::api::{ObjectKey, names};
use crate::cache::Kind;
use crate::cache::records::Meta;
use crate::frameworks::{JobPatch, PatchBody};
use crate::reconciler::ReconcileKey;
use crate::reconciler::messages::{Effect, Verb, WriteClass};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Purpose of a write: determines what follows from its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePurpose {
    /// Reserves quota for a Workload.
    Admit,
    /// Sets the result of a second pass.
    SecondPass,
    /// Sets the pending reason of a Workload.
    Explain,
    /// Sets the status of a queue or cohort.
    QueueStatus,
    /// Anything else: the next step follows from the objects alone.
    Other,
}

/// A write to send.
pub(crate) struct WriteRequest {
    pub(crate) kind: Kind,
    pub(crate) key: ObjectKey,
    pub(crate) verb: Verb,
    pub(crate) subresource: Option<&'static str>,
    pub(crate) body: Value,
    /// New status of a Workload.
    pub(crate) status: Option<Arc<WorkloadStatus>>,
    /// Whether `status` is complete: it then equals the whole status, whatever other clients wrote before.
    pub(crate) response_metadata_only: bool,
    pub(crate) purpose: WritePurpose,
    pub(crate) class: WriteClass,
    pub(crate) effects: Vec<Effect>,
    pub(crate) on_behalf_of: Option<ReconcileKey>,
}

impl WriteRequest {
    /// Creates a write of the object itself, without effects. What is written to jobs and pods starts or stops them, and the
    /// deletion of a Workload can release its quota.
    pub(crate) fn new(kind: Kind, key: ObjectKey, verb: Verb, body: Value) -> Self {
        let class = match (kind, verb) {
            (Kind::Job(_) | Kind::Pod, _) | (Kind::Workload, Verb::Delete) => WriteClass::Quota,
            _ => WriteClass::Other,
        };
        Self {
            kind,
            key,
            verb,
            subresource: None,
            body,
            status: None,
            response_metadata_only: false,
            purpose: WritePurpose::Other,
            class,
            effects: Vec::new(),
            on_behalf_of: None,
        }
    }

    /// Creates the write of a patch of a job or a pod, for exactly this version of the object.
    pub(crate) fn of_patch(kind: Kind, key: ObjectKey, patch: &JobPatch, resource_version: &str) -> Self {
        let verb = match patch.body() {
            PatchBody::Merge(_) => Verb::Merge,
            PatchBody::Json(_) => Verb::JsonPatch,
        };
        let request = Self::new(kind, key, verb, patch.at_version(resource_version));
        if patch.status { request.of_status() } else { request }
    }

    /// Returns the write for the status subresource.
    pub(crate) fn of_status(self) -> Self {
        Self { subresource: Some("status"), ..self }
    }

    /// Returns the write with effects to emit once it has landed.
    pub(crate) fn with_effects(self, effects: Vec<Effect>) -> Self {
        Self { effects, ..self }
    }

    /// Returns the write with additional effects.
    pub(crate) fn with_more_effects(mut self, effects: impl IntoIterator<Item = Effect>) -> Self {
        self.effects.extend(effects);
        self
    }

    /// Returns the write for another object, which gets a step when the write ends.
    pub(crate) fn on_behalf_of(self, item: ReconcileKey) -> Self {
        Self { on_behalf_of: Some(item), ..self }
    }

    /// Returns the version of the object that an update is decided on.
    pub(super) fn decided_on(&self) -> Option<&str> {
        let pointer = match self.verb {
            Verb::Merge | Verb::Apply => "/metadata/resourceVersion",
            Verb::JsonPatch => "/0/value",
            Verb::Create | Verb::Delete => return None,
        };
        self.body.pointer(pointer).and_then(Value::as_str)
    }
}

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

/// Returns the JSON merge patch (RFC 7386) that changes `known` to `new`; `None` if they are equal.
pub(crate) fn merge_patch(known: &Value, new: &Value) -> Option<Value> {
    if known == new {
        return None;
    }
    let (Value::Object(before), Value::Object(after)) = (known, new) else {
        return Some(new.clone());
    };
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let mut patch: Map<String, Value> = removed.map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in after {
        let change = before.get(name).map_or_else(|| Some(value.clone()), |was| merge_patch(was, value));
        patch.extend(change.map(|change| (name.clone(), change)));
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patch_contains_only_what_differs() {
        let known = json!({"a": {"x": 1, "y": 2}, "list": [1, 2], "same": [{"z": 1}], "gone": {"v": 1}});
        let new = json!({"a": {"x": 1, "y": 3}, "list": [2], "same": [{"z": 1}], "added": {"w": 1}});
        let patch = json!({"a": {"y": 3}, "list": [2], "gone": null, "added": {"w": 1}});
        assert_eq!(merge_patch(&known, &new), Some(patch));
        assert_eq!(merge_patch(&known, &known), None);
    }
}
