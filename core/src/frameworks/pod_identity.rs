//! Which pods the controller of an object takes for its own. Controllers of Kubernetes let go of a pod that names their object and that its
//! selector does not match: what such a pod requests is then charged to no object.
//!
//! Invariant: a pod counts as made by an object only if the controller of the object keeps it.

use super::OwnerRef;
use crate::api::selector::matches_labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use std::sync::Arc;

/// API groups of the kinds whose controllers let go of such pods.
const GROUPS: [&str; 2] = ["apps", "batch"];
/// Labels with the UID of a Job, one of which the API server makes its selector.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// Label of the ReplicaSets of Deployments and of their pods.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// What tells the pods of an object from others.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PodIdentity {
    /// It is not known: each pod counts that names the object as its controller.
    #[default]
    Unknown,
    /// They have its UID in this label.
    Uid(&'static str),
    /// They have this hash in their labels, and are selected by the Deployment that has made the object.
    OfDeployment(Arc<str>),
    /// They match a selector.
    Selected(Arc<LabelSelector>),
    /// They match a selector, and have the name of the object and a number.
    Numbered(Arc<LabelSelector>, Arc<str>),
}

// A selector has texts alone, and lacks the mark.
impl Eq for PodIdentity {}

impl PodIdentity {
    /// Reads the selector of an object of an API group and kind.
    pub(super) fn of_selector((group, kind): (&str, &str), object: &Value, uid: &str) -> Self {
        let Some(selector) = object.pointer("/spec/selector").filter(|_| GROUPS.contains(&group)) else {
            return Self::Unknown;
        };
        let Ok(selector) = serde_json::from_value::<LabelSelector>(selector.clone()) else {
            return Self::Unknown;
        };
        let expressions = selector.match_expressions.iter().flatten().count();
        let labels = selector.match_labels.iter().flatten();
        match (labels.clone().next(), labels.count(), expressions) {
            (None, _, 0) => return Self::Unknown,
            (Some((key, value)), 1, 0) if *value == uid => {
                // Of this form are most Jobs.
                if let Some(key) = UID_LABELS.into_iter().find(|label| label == key) {
                    return Self::Uid(key);
                }
            }
            _ => {}
        }
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        match name.filter(|_| kind == "StatefulSet") {
            Some(name) => Self::Numbered(Arc::new(selector), Arc::from(name)),
            None => Self::Selected(Arc::new(selector)),
        }
    }

    /// Reads the labels of a ReplicaSet, of which its selector is not known: a Deployment gives its own a hash.
    pub(crate) fn of_replica_set(object: &Value, controller: Option<&OwnerRef>) -> Self {
        let is_of_deployment = controller.is_some_and(|by| (by.group(), &*by.kind) == ("apps", "Deployment"));
        let hash = object.pointer("/metadata/labels").and_then(|labels| labels.get(TEMPLATE_HASH)?.as_str());
        hash.filter(|_| is_of_deployment).map_or(Self::Unknown, |hash| Self::OfDeployment(Arc::from(hash)))
    }

    /// Returns whether a pod with a name and labels, of which `label` returns one, is one of the object with a UID.
    pub fn includes<'a>(&self, uid: &str, name: &str, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        match self {
            Self::Unknown => true,
            Self::Uid(key) => label(key) == Some(uid),
            Self::OfDeployment(hash) => label(TEMPLATE_HASH) == Some(&**hash),
            Self::Selected(selector) => matches_labels(selector, label),
            Self::Numbered(selector, set) => {
                let numbered = name.rsplit_once('-').is_some_and(|(of, end)| *of == **set && is_number(end));
                numbered && matches_labels(selector, label)
            }
        }
    }
}

/// Returns whether a pod with a name and labels, of which `label` returns one, names a controller that does not take it for its own, or a
/// ReplicaSet whose Deployment does not. `find` returns what tells the pods of an object from others, and the controller of the object;
/// `None` if it is not known.
pub fn is_disowned_pod<'a>(
    (name, label): (&str, impl Fn(&str) -> Option<&'a str>),
    owner: &OwnerRef,
    find: impl Fn(&OwnerRef) -> Option<(PodIdentity, Option<OwnerRef>)>,
) -> bool {
    let excludes = |identity: &PodIdentity, owner: &OwnerRef| !identity.includes(&owner.uid, name, &label);
    let Some((identity, controller)) = find(owner) else { return false };
    let deployment = controller.filter(|_| matches!(identity, PodIdentity::OfDeployment(_)));
    let found = deployment.and_then(|owner| Some((find(&owner)?.0, owner)));
    excludes(&identity, owner) || found.is_some_and(|(identity, owner)| excludes(&identity, &owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_are_told_by_what_their_controller_selects() {
        const UID: &str = "batch.kubernetes.io/controller-uid";
        let generated = json!({"matchLabels": {UID: "u"}});
        let labels = json!({"matchLabels": {"a": "b", "c": "d"}});
        let listed = json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]});
        let absent = json!({"matchLabels": {"c": "d"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
        let (job, set) = (("batch", "Job"), ("apps", "StatefulSet"));
        for (kind, selector, name, pod, expected) in [
            (job, &generated, "p", json!({UID: "u"}), true),
            (job, &generated, "p", json!({"controller-uid": "u"}), false),
            (job, &generated, "p", json!({UID: "v"}), false),
            (job, &generated, "p", json!({}), false),
            (job, &labels, "p", json!({"a": "b", "c": "d", "e": "f"}), true),
            (job, &labels, "p", json!({"a": "b"}), false),
            (
                job,
                &json!({"matchLabels": {"controller-uid": "v"}}),
                "p",
                json!({"controller-uid": "u"}),
                false,
            ),
            (
                job,
                &json!({"matchLabels": {"controller-uid": "u"}}),
                "p",
                json!({"controller-uid": "u"}),
                true,
            ),
            (job, &listed, "p", json!({"a": "b"}), true),
            (job, &listed, "p", json!({"a": "c"}), false),
            (job, &absent, "p", json!({"c": "d"}), true),
            (job, &absent, "p", json!({"a": "b", "c": "d"}), false),
            (set, &labels, "o-10", json!({"a": "b", "c": "d"}), true),
            (set, &labels, "o-x", json!({"a": "b", "c": "d"}), false),
            (set, &labels, "o-1-2", json!({"a": "b", "c": "d"}), false),
            (set, &labels, "", json!({"a": "b", "c": "d"}), false),
            (set, &labels, "o-1", json!({}), false),
            (job, &json!({"matchLabels": {}}), "p", json!({}), true),
            (job, &json!({"matchLabels": 1}), "p", json!({}), true),
            (job, &Value::Null, "p", json!({}), true),
            (("example.com", "Job"), &labels, "p", json!({}), true),
        ] {
            let object = json!({"metadata": {"name": "o"}, "spec": {"selector": selector}});
            let identity = PodIdentity::of_selector(kind, &object, "u");
            let label = |key: &str| pod.get(key).and_then(Value::as_str);
            assert_eq!(identity.includes("u", name, label), expected, "{kind:?} {selector} {name} {pod}");
        }
    }

    #[test]
    fn pods_of_replica_sets_are_told_by_the_hash_of_their_deployment() {
        let object = json!({"metadata": {"labels": {"pod-template-hash": "h", "a": "b"}}});
        let by = |kind: &str| {
            let owner =
                json!({"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": "d", "controller": true});
            super::super::read::common_view(&json!({"metadata": {"name": "r", "namespace": "ns", "uid": "r",
                "ownerReferences": [owner]}}))
            .unwrap()
            .controller
        };
        let identity = PodIdentity::of_replica_set(&object, by("Deployment").as_ref());
        assert!(identity.includes("u", "p", |key| (key == "pod-template-hash").then_some("h")));
        assert!(!identity.includes("u", "p", |_| None));
        // It has been given by its user.
        let of_user = PodIdentity::of_replica_set(&object, by("Rollout").as_ref());
        assert_eq!(of_user, PodIdentity::Unknown);
        assert_eq!(PodIdentity::of_replica_set(&object, None), PodIdentity::Unknown);
    }
    #[test]
    fn a_pod_of_a_replica_set_is_selected_by_the_deployment_as_well() {
        let reference = |kind: &str, name: &str| OwnerRef {
            api_version: "apps/v1".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
        };
        let selector = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
        let find = |owner: &OwnerRef| match &*owner.name {
            "deployment" => Some((PodIdentity::of_selector(("apps", "Deployment"), &selector, "d"), None)),
            "hashed" | "orphan" => {
                let above = if owner.name == "hashed" { "deployment" } else { "gone" };
                let identity = PodIdentity::OfDeployment(Arc::from("h"));
                Some((identity, Some(reference("Deployment", above))))
            }
            "unread" => Some((PodIdentity::Unknown, Some(reference("Deployment", "deployment")))),
            _ => None,
        };
        for (owner, pod, expected) in [
            ("hashed", json!({"pod-template-hash": "h", "a": "b"}), false),
            ("hashed", json!({"pod-template-hash": "h"}), true),
            ("hashed", json!({"a": "b"}), true),
            ("orphan", json!({"pod-template-hash": "h"}), false),
            ("orphan", json!({"a": "b"}), true),
            ("unread", json!({}), false),
            ("gone", json!({}), false),
        ] {
            let label = |key: &str| pod.get(key).and_then(Value::as_str);
            let disowned = is_disowned_pod(("p", label), &reference("ReplicaSet", owner), find);
            assert_eq!(disowned, expected, "{owner} {pod}");
        }
    }
}
