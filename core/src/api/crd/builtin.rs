//! Schemas of the Kubernetes types that the kinds contain.

use serde_json::{Value, json};

/// Pattern of a quantity as a string.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";
/// Pattern of a label key, and of a condition type.
pub(super) const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// Returns the schema of a Kubernetes type by its full name, or `None` for types of this crate.
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

/// Returns the schema of a quantity: an integer or a string.
pub(super) fn quantity() -> Value {
    json!({
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "pattern": QUANTITY,
        "x-kubernetes-int-or-string": true,
    })
}

fn condition() -> Value {
    json!({
        "description": "A condition of the object, with reason and message.",
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {
                "description": "Time of the last change of the status.",
                "type": "string",
                "format": "date-time",
            },
            "message": { "description": "Human-readable explanation.", "type": "string", "maxLength": 32768 },
            "observedGeneration": {
                "description": "Generation of the object for which the condition was set.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
            "reason": {
                "description": "Machine-readable reason.",
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": {
                "description": "Status of the condition: True, False or Unknown.",
                "type": "string",
                "enum": ["True", "False", "Unknown"],
            },
            "type": {
                "description": "Type of the condition.",
                "type": "string",
                "maxLength": 316,
                "pattern": QUALIFIED_NAME,
            },
        },
    })
}

fn label_selector() -> Value {
    let strings = json!({ "description": "Values for In and NotIn.", "type": "array",
        "items": { "type": "string" }, "x-kubernetes-list-type": "atomic" });
    json!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchExpressions": {
                "description": "Requirements, all of which must be met.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A requirement on one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "Key of the label.", "type": "string" },
                        "operator": { "description": "In, NotIn, Exists or DoesNotExist.", "type": "string" },
                        "values": strings,
                    },
                },
            },
            "matchLabels": {
                "description": "Labels that must be present with these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
        },
    })
}

fn toleration() -> Value {
    json!({
        "description": "A toleration of pods for matching taints.",
        "type": "object",
        "properties": {
            "effect": { "description": "Effect of the taint; any when empty.", "type": "string" },
            "key": { "description": "Key of the taint; any when empty.", "type": "string" },
            "operator": { "description": "Equal or Exists; default: Equal.", "type": "string" },
            "tolerationSeconds": {
                "description": "How long a NoExecute taint is tolerated, in seconds; forever when absent.",
                "type": "integer",
                "format": "int64",
            },
            "value": { "description": "Value of the taint, for Equal.", "type": "string" },
        },
    })
}

/// Returns the schema of a list of taints.
pub(super) fn taints() -> Value {
    json!({ "type": "array", "items": taint() })
}

fn taint() -> Value {
    json!({
        "description": "A taint that repels pods that do not tolerate it.",
        "type": "object",
        "required": ["effect", "key"],
        "properties": {
            "effect": { "description": "NoSchedule, PreferNoSchedule or NoExecute.", "type": "string" },
            "key": { "description": "Key of the taint.", "type": "string" },
            "timeAdded": {
                "description": "Time at which the taint was added.",
                "type": "string",
                "format": "date-time",
            },
            "value": { "description": "Value of the taint.", "type": "string" },
        },
    })
}
