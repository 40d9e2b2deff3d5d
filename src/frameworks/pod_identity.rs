//! Which pods the controller of an object takes for its own. Controllers of Kubernetes let go of a pod that names their object and that its
//! selector does not match: what such a pod requests is then charged to no object.
//!
//! Invariant: a pod counts as made by an object only if the controller of the object keeps it.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// API groups of the kinds whose controllers let go of such pods.
const GROUPS: [&str; 2] = ["apps", "batch"];
/// Labels with the UID of a Job, one of which the API server makes its selector.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// Label of the ReplicaSets of Deployments and of their pods.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// What tells the pods of an object from others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PodIdentity {
    /// It is not known: each pod counts that names the object as its controller.
    #[default]
    Unknown,
    /// They have its UID in a label.
    Uid,
    /// They have these labels.
    Labels(Arc<BTreeMap<String, String>>),
}

impl PodIdentity {
    /// Reads the selector of an object of an API group.
    pub(super) fn of_selector(group: &str, object: &Value, uid: &str) -> Self {
        let labels = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
        let Some(labels) = labels.filter(|labels| !labels.is_empty() && GROUPS.contains(&group)) else {
            return Self::Unknown;
        };
        let is_uid = |(key, value): (&String, &Value)| UID_LABELS.contains(&key.as_str()) && *value == *uid;
        if labels.iter().all(is_uid) { Self::Uid } else { Self::of_labels(labels) }
    }

    /// Reads the labels of a ReplicaSet, of which its selector is not known.
    pub(crate) fn of_replica_set(object: &Value) -> Self {
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let hash = labels.and_then(|labels| labels.get(TEMPLATE_HASH));
        hash.map_or(Self::Unknown, |hash| {
            Self::of_labels(&Map::from_iter([(TEMPLATE_HASH.to_owned(), hash.clone())]))
        })
    }

    fn of_labels(labels: &Map<String, Value>) -> Self {
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        Self::Labels(Arc::new(labels.iter().filter_map(text).collect()))
    }

    /// Returns whether a pod whose labels these are is one of the object with a UID.
    pub fn includes<'a>(&self, uid: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Unknown => true,
            Self::Uid => UID_LABELS.iter().any(|key| label(key) == Some(uid)),
            Self::Labels(labels) => labels.iter().all(|(key, value)| label(key) == Some(value.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_told_by_what_their_controller_selects() {
        let identity = |group: &str, selector: Value| {
            PodIdentity::of_selector(group, &json!({"spec": {"selector": selector}}), "u")
        };
        let generated = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}});
        let own = json!({"matchLabels": {"a": "b", "c": "d"}});
        for (group, selector, pod, expected) in [
            ("batch", &generated, json!({"batch.kubernetes.io/controller-uid": "u"}), true),
            ("batch", &generated, json!({"controller-uid": "u"}), true),
            ("batch", &generated, json!({"controller-uid": "v"}), false),
            ("batch", &generated, json!({}), false),
            ("batch", &own, json!({"a": "b", "c": "d", "e": "f"}), true),
            ("apps", &own, json!({"a": "b"}), false),
            (
                "batch",
                &json!({"matchLabels": {"controller-uid": "v"}}),
                json!({"controller-uid": "u"}),
                false,
            ),
            ("batch", &json!({"matchLabels": {}}), json!({}), true),
            ("batch", &Value::Null, json!({}), true),
            ("example.com", &own, json!({}), true),
        ] {
            let found = identity(group, selector.clone());
            let label = |key: &str| pod.get(key).and_then(Value::as_str);
            assert_eq!(found.includes("u", label), expected, "{group} {selector} {pod}");
        }
        let set = PodIdentity::of_replica_set(
            &json!({"metadata": {"labels": {"pod-template-hash": "h", "a": "b"}}}),
        );
        assert!(set.includes("u", |key| (key == "pod-template-hash").then_some("h")));
        assert!(!set.includes("u", |_| None));
        assert!(PodIdentity::of_replica_set(&json!({"metadata": {}})).includes("u", |_| None));
    }
}
