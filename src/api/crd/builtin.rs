//! Schemas of Kubernetes' own types that our kinds contain, described in our words.

use serde_json::{Value, json};

/// Pattern of a quantity as text.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Pattern of a label key, and of a condition type.
pub(super) const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// The schema of a type of Kubernetes by its full name; none for our own types.
pub(super) fn schema(name: &str, template: &Value) -> Option<Value> {
    match name {
        "io.k8s.apimachinery.pkg.api.resource.Quantity" => Some(quantity()),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time" => {
            Some(json!({ "type": "string", "format": "date-time" }))
        }
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta" => Some(json!({ "type": "object" })),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Condition" => Some(condition()),
        "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector" => Some(label_selector()),
        "io.k8s.api.core.v1.Toleration" => Some(toleration()),
        "io.k8s.api.core.v1.Taint" => Some(taint()),
        "io.k8s.api.core.v1.PodTemplateSpec" => Some(template.clone()),
        _ => None,
    }
}

/// A quantity: a number or text.
pub(super) fn quantity() -> Value {
    json!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

fn condition() -> Value {
    json!({
        "description": "One aspect of the state, with the reason for it.",
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {
                "description": "When the status last changed.",
                "type": "string",
                "format": "date-time",
            },
            "message": { "description": "Explanation for people.", "type": "string", "maxLength": 32768 },
            "observedGeneration": {
                "description": "Generation of the object that the condition speaks of.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
            "reason": {
                "description": "Explanation for programs.",
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": {
                "description": "Whether it holds.",
                "type": "string",
                "enum": ["True", "False", "Unknown"],
            },
            "type": {
                "description": "The aspect.",
                "type": "string",
                "maxLength": 316,
                "pattern": QUALIFIED_NAME,
            },
        },
    })
}

fn label_selector() -> Value {
    let strings = json!({ "description": "Values that the operator needs.", "type": "array",
        "items": { "type": "string" }, "x-kubernetes-list-type": "atomic" });
    json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "description": "Requirements, all of which must hold.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A requirement on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The label.", "type": "string" },
                        "operator": { "description": "In, NotIn, Exists or DoesNotExist.", "type": "string" },
                        "values": strings,
                    },
                },
            },
            "matchLabels": {
                "description": "Labels that must be there with these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
        },
    })
}

fn toleration() -> Value {
    json!({
        "description": "Taints that pods put up with.",
        "type": "object",
        "properties": {
            "effect": { "description": "Effect of the taint; any when empty.", "type": "string" },
            "key": { "description": "Key of the taint; any when empty.", "type": "string" },
            "operator": { "description": "Equal (when absent) or Exists.", "type": "string" },
            "tolerationSeconds": {
                "description": "How long a NoExecute taint is tolerated; for ever when absent.",
                "type": "integer",
                "format": "int64",
            },
            "value": { "description": "Value of the taint, for Equal.", "type": "string" },
        },
    })
}

fn taint() -> Value {
    json!({
        "description": "A mark that keeps pods off a node unless they tolerate it.",
        "type": "object",
        "required": ["effect", "key"],
        "properties": {
            "effect": { "description": "NoSchedule, PreferNoSchedule or NoExecute.", "type": "string" },
            "key": { "description": "Key of the taint.", "type": "string" },
            "timeAdded": {
                "description": "When the taint was added.",
                "type": "string",
                "format": "date-time",
            },
            "value": { "description": "Value of the taint.", "type": "string" },
        },
    })
}
