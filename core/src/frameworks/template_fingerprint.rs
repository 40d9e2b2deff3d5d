//! Fingerprint of a pod set's template: equal for a pod set of a job and its copy in the Workload.
//!
//! It ignores fields that a start changes (metadata, node selector, tolerations, scheduling gates), values that the
//! server may drop (nulls, empty collections, unknown fields) or set (defaults), the notation of quantities, and the index
//! labels of topology requests, which depend only on the job kind and which older versions did not write.

use super::template_defaults::{POD_SPEC, is_default};
use super::workload::dedup_env;
use crate::resources::Quantity;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Fingerprint of a pod set without its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateFingerprint {
    /// Hash of the containers, the init containers and the other fields on which the requests of the pods depend.
    containers: u128,
    /// Hash of the fields that the requests of a pod follow from.
    requests: u128,
    /// Hash of the name, the topology request, and the rest of the pod spec.
    rest: u128,
}

impl TemplateFingerprint {
    /// Returns whether both have the same containers, which is all that Kueue compares besides counts and tolerations, and
    /// the same resources, claims and RuntimeClass of the pod: with others, the pods would exceed what is charged.
    pub const fn same_containers(&self, other: &Self) -> bool {
        self.containers == other.containers
    }

    /// Returns whether pods of both request the same.
    pub const fn same_requests(&self, other: &Self) -> bool {
        self.requests == other.requests
    }
}

/// Fields of a pod spec that a start may change.
const INJECTED: [&str; 3] = ["nodeSelector", "tolerations", "schedulingGates"];
/// Fields of a pod spec, besides its containers, on which the requests of the pods depend. The overhead is not among them:
/// at least that of the RuntimeClass is charged, and pods with another one are rejected.
const REQUESTING: [&str; 3] = ["resources", "resourceClaims", "runtimeClassName"];
/// Maps from resource name to quantity.
const QUANTITY_MAPS: [&str; 4] = ["requests", "limits", "overhead", "capacity"];
/// Fields of a topology request that do not affect the topology assignment.
const RANK_LABELS: [&str; 2] = ["podIndexLabel", "subGroupIndexLabel"];
/// Fields that are a quantity.
const QUANTITIES: [&str; 2] = ["sizeLimit", "divisor"];

/// Returns the fingerprint of an entry of `spec.podSets`.
pub fn pod_set_fingerprint(pod_set: &Value) -> TemplateFingerprint {
    let field = |name: &str| pod_set.get(name).cloned().unwrap_or(Value::Null);
    let mut request = field("topologyRequest");
    if let Some(fields) = request.as_object_mut() {
        fields.retain(|name, _| !RANK_LABELS.contains(&name.as_str()));
        if fields.is_empty() {
            request = Value::Null;
        }
    }
    let mut spec = canonical(Some(POD_SPEC), &pod_spec(pod_set.get("template")));
    let mut containers = Vec::new();
    for list in ["initContainers", "containers"] {
        containers.push(spec.get_mut(list).map(Value::take).unwrap_or_default());
    }
    containers.extend(REQUESTING.map(|name| spec.get(name).cloned().unwrap_or_default()));
    TemplateFingerprint {
        requests: digest(&request_fields(&containers, &spec)),
        containers: digest(&containers),
        rest: digest(&[field("name"), canonical(None, &request), spec]),
    }
}

/// Returns the fields that the requests of a pod follow from, given its init containers, its containers and the rest of its
/// spec. They are few, so that a field that an older definition of Workloads drops does not stop a job.
fn request_fields(containers: &[Value], spec: &Value) -> Vec<Value> {
    let pick = |object: &Value, names: &[&str]| {
        let field = |name: &&str| Some(((*name).to_owned(), object.get(*name)?.clone()));
        Value::Object(names.iter().filter_map(field).collect())
    };
    let lists = containers.iter().map(|list| {
        let items = list.as_array().into_iter().flatten();
        items.map(|container| pick(container, &["resources", "restartPolicy"])).collect()
    });
    lists.chain([pick(spec, &["resources", "overhead", "runtimeClassName"])]).collect()
}

fn digest(parts: &[Value]) -> u128 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.to_string());
        hash.update([0]);
    }
    let digest: [u8; 32] = hash.finalize().into();
    u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
}

/// Returns the pod spec reduced to the fields of the typed API; unreduced if it cannot be decoded.
fn pod_spec(template: Option<&Value>) -> Value {
    let mut template = template.cloned().unwrap_or(Value::Null);
    dedup_env(&mut template);
    let typed = serde_json::from_value::<PodTemplateSpec>(template.clone());
    let known = typed.ok().and_then(|typed| serde_json::to_value(typed).ok()).unwrap_or(template);
    let mut spec = known.get("spec").cloned().unwrap_or(Value::Null);
    if let Some(fields) = spec.as_object_mut() {
        for name in INJECTED {
            fields.remove(name);
        }
        // An older name, from which the server sets the newer one.
        if let Some(account) = fields.remove("serviceAccount") {
            fields.entry("serviceAccountName").or_insert(account);
        }
    }
    spec
}

/// Sorts keys, drops nulls, empty collections and defaults, and converts quantities to their value. `holder` is the field
/// that holds the value, or the list of it.
fn canonical(holder: Option<&str>, value: &Value) -> Value {
    match value {
        Value::Object(fields) if holder.is_some_and(|holder| QUANTITY_MAPS.contains(&holder)) => {
            ordered(fields.iter().map(|(name, value)| (name, canonical_quantity(value))))
        }
        Value::Object(fields) => {
            let own = fields.iter().map(|(name, value)| (name, canonical(Some(name), value)));
            ordered(own.filter(|(name, value)| !is_default(holder.unwrap_or_default(), fields, name, value)))
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| canonical(holder, item)).collect()),
        scalar if holder.is_some_and(|holder| QUANTITIES.contains(&holder)) => canonical_quantity(scalar),
        scalar => scalar.clone(),
    }
}

fn ordered<'a>(fields: impl Iterator<Item = (&'a String, Value)>) -> Value {
    let kept: BTreeMap<&String, Value> = fields.filter(|(_, value)| !is_empty(value)).collect();
    Value::Object(kept.into_iter().map(|(name, value)| (name.clone(), value)).collect::<Map<_, _>>())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn canonical_quantity(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => return other.clone(),
    };
    Quantity::parse(&text).map_or_else(|_| value.clone(), |quantity| Value::String(value_text(&quantity)))
}

/// Returns the value of a quantity in thousandths, to which the API server rounds requests up. Quantities that are too large
/// for that keep their notation.
fn value_text(quantity: &Quantity) -> String {
    match quantity.saturating_scaled_value(-3) {
        i64::MIN | i64::MAX => quantity.canonical(),
        thousandths => thousandths.to_string(),
    }
}
