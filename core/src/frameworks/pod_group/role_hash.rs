//! Hash of what makes pods of a group equal for quota: the name of their pod set.
//!
//! Invariant: equal to Kueue's, which hashes the JSON text of its Go structs. So absent, null and empty differ here, and
//! the order of the fields counts.

use crate::resources::Quantity;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Number of bytes of the hash.
const BYTES: usize = 4;

/// Form of a value in the hashed text.
enum Form {
    /// As it is.
    Plain,
    /// A map with sorted keys; an empty one is kept.
    SortedMap,
    /// The same, of quantities in canonical form.
    Quantities,
    /// A list.
    List(&'static Form),
    /// A struct: its fields in order. Fields that are empty are left out, but for those marked `true`.
    Struct(&'static [(&'static str, &'static Form, bool)]),
}

use Form::{List, Plain, Quantities, SortedMap, Struct};

const REQUIREMENT: Form =
    Struct(&[("key", &Plain, true), ("operator", &Plain, true), ("values", &Plain, false)]);
const SELECTOR: Form =
    Struct(&[("matchLabels", &SortedMap, false), ("matchExpressions", &List(&REQUIREMENT), false)]);
const NODE_TERM: Form =
    Struct(&[("matchExpressions", &List(&REQUIREMENT), false), ("matchFields", &List(&REQUIREMENT), false)]);
const NODE_AFFINITY: Form = Struct(&[
    (
        "requiredDuringSchedulingIgnoredDuringExecution",
        &Struct(&[("nodeSelectorTerms", &List(&NODE_TERM), true)]),
        false,
    ),
    (
        "preferredDuringSchedulingIgnoredDuringExecution",
        &List(&Struct(&[("weight", &Plain, true), ("preference", &NODE_TERM, true)])),
        false,
    ),
]);
const POD_TERM: Form = Struct(&[
    ("labelSelector", &SELECTOR, false),
    ("namespaces", &Plain, false),
    ("topologyKey", &Plain, true),
    ("namespaceSelector", &SELECTOR, false),
    ("matchLabelKeys", &Plain, false),
    ("mismatchLabelKeys", &Plain, false),
]);
const POD_AFFINITY: Form = Struct(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", &List(&POD_TERM), false),
    (
        "preferredDuringSchedulingIgnoredDuringExecution",
        &List(&Struct(&[("weight", &Plain, true), ("podAffinityTerm", &POD_TERM, true)])),
        false,
    ),
]);
const AFFINITY: Form = Struct(&[
    ("nodeAffinity", &NODE_AFFINITY, false),
    ("podAffinity", &POD_AFFINITY, false),
    ("podAntiAffinity", &POD_AFFINITY, false),
]);
const PORT: Form = Struct(&[
    ("name", &Plain, false),
    ("hostPort", &Plain, false),
    ("containerPort", &Plain, true),
    ("protocol", &Plain, false),
    ("hostIP", &Plain, false),
]);
const TOLERATION: Form = Struct(&[
    ("key", &Plain, false),
    ("operator", &Plain, false),
    ("value", &Plain, false),
    ("effect", &Plain, false),
    ("tolerationSeconds", &Plain, false),
]);
const SPREAD: Form = Struct(&[
    ("maxSkew", &Plain, true),
    ("topologyKey", &Plain, true),
    ("whenUnsatisfiable", &Plain, true),
    ("labelSelector", &SELECTOR, false),
    ("minDomains", &Plain, false),
    ("nodeAffinityPolicy", &Plain, false),
    ("nodeTaintsPolicy", &Plain, false),
    ("matchLabelKeys", &Plain, false),
]);
const CLAIM: Form = Struct(&[
    ("name", &Plain, true),
    ("resourceClaimName", &Plain, false),
    ("resourceClaimTemplateName", &Plain, false),
]);

/// Returns the role hash of a pod spec.
pub fn role_hash(spec: &Value) -> String {
    let mut hash = String::new();
    for byte in Sha256::digest(hashed_text(spec)).iter().take(BYTES) {
        // Writing to a String cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    hash
}

fn hashed_text(spec: &Value) -> String {
    escape_like_go(&json!({ "spec": pod_shape(spec) }).to_string())
}

/// Returns what makes pods equal for quota, by the names of the fields.
pub(in crate::frameworks) fn pod_shape(spec: &Value) -> Map<String, Value> {
    let field =
        |name: &str, form: &Form| present(spec.get(name)).map_or(Value::Null, |value| form.apply(value));
    let mut shape = Map::new();
    let mut add = |name: &str, value: Value| shape.insert(name.to_owned(), value);
    add("affinity", field("affinity", &AFFINITY));
    add("containers", containers(spec, "containers"));
    add("initContainers", containers(spec, "initContainers"));
    add("nodeSelector", field("nodeSelector", &SortedMap));
    add("overhead", field("overhead", &Quantities));
    add("priority", field("priority", &Plain));
    add("resourceClaims", field("resourceClaims", &List(&CLAIM)));
    if let Some(resources) = present(spec.get("resources")) {
        add("resources", requests(resources));
    }
    add("runtimeClassName", field("runtimeClassName", &Plain));
    add("tolerations", field("tolerations", &List(&TOLERATION)));
    add("topologySpreadConstraints", field("topologySpreadConstraints", &List(&SPREAD)));
    shape
}

fn present(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| !value.is_null())
}

fn requests(resources: &Value) -> Value {
    present(resources.get("requests")).map_or(Value::Null, |requests| Quantities.apply(requests))
}

fn containers(spec: &Value, list: &str) -> Value {
    let containers = spec.get(list).and_then(Value::as_array).filter(|list| !list.is_empty());
    let shape = |container: &Value| {
        let ports = present(container.get("ports")).map_or(Value::Null, |ports| List(&PORT).apply(ports));
        let requests = container.get("resources").map_or(Value::Null, requests);
        json!({ "ports": ports, "resources": { "requests": requests } })
    };
    containers.map_or(Value::Null, |containers| containers.iter().map(shape).collect())
}

impl Form {
    fn apply(&self, value: &Value) -> Value {
        match (self, value) {
            (SortedMap, Value::Object(fields)) => sorted(fields, Value::clone),
            (Quantities, Value::Object(fields)) => sorted(fields, canonical),
            (List(form), Value::Array(items)) => items.iter().map(|item| form.apply(item)).collect(),
            (Struct(fields), Value::Object(_)) => {
                let mut shape = Map::new();
                for (name, form, always) in *fields {
                    let value = value.get(*name).map_or(Value::Null, |value| form.apply(value));
                    if *always || !is_empty(name, &value) {
                        shape.insert((*name).to_owned(), value);
                    }
                }
                Value::Object(shape)
            }
            (_, other) => other.clone(),
        }
    }
}

/// Returns whether Go leaves the value out. Numbers behind a pointer are kept even if they are 0.
fn is_empty(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && name == "matchLabels",
        Value::Number(number) => name == "hostPort" && number.as_i64() == Some(0),
        Value::Bool(_) => false,
    }
}

fn sorted(fields: &Map<String, Value>, convert: impl Fn(&Value) -> Value) -> Value {
    let fields: BTreeMap<&String, &Value> = fields.iter().collect();
    Value::Object(fields.into_iter().map(|(name, value)| (name.clone(), convert(value))).collect())
}

fn canonical(quantity: &Value) -> Value {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    Quantity::parse(&text).map_or_else(|_| quantity.clone(), |quantity| json!(quantity.canonical()))
}

/// Go escapes these characters in JSON strings.
fn escape_like_go(text: &str) -> String {
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts and hashes of Kueue.
    #[test]
    fn hashes_equal_those_of_kueue() {
        let empty = json!({"containers": [{"name": "c", "image": "x", "resources": {"requests": {}}}]});
        let text = r#"{"spec":{"affinity":null,"containers":[{"ports":null,"resources":{"requests":{}}}],"initContainers":null,"nodeSelector":null,"overhead":null,"priority":null,"resourceClaims":null,"runtimeClassName":null,"tolerations":null,"topologySpreadConstraints":null}}"#;
        assert_eq!(hashed_text(&empty), text);
        let cpu = json!([{"resources": {"requests": {"cpu": "1000m"}, "limits": {"cpu": "2"}}}]);
        let table = [
            (empty, "a9f06f3a"),
            (json!({"containers": cpu}), "dc85db45"),
            (json!({"containers": [{}]}), "7aa6c7b8"),
            (json!({"containers": cpu, "resources": {"requests": {"cpu": "1"}}}), "0927209e"),
        ];
        for (spec, hash) in table {
            assert_eq!(role_hash(&spec), hash, "{spec}");
        }
    }

    #[test]
    fn fields_keep_their_order_and_go_escapes() {
        let spec = json!({
            "tolerations": [{"effect": "NoSchedule", "operator": "", "tolerationSeconds": 0, "key": "a<b"}],
            "nodeSelector": {"z": "1", "a": "2"},
            "containers": [{"ports": [{"containerPort": 1, "hostPort": 0, "name": "x"}]}],
        });
        let text = hashed_text(&spec);
        for part in [
            r#""tolerations":[{"key":"a\u003cb","effect":"NoSchedule","tolerationSeconds":0}]"#,
            r#""nodeSelector":{"a":"2","z":"1"}"#,
            r#""ports":[{"name":"x","containerPort":1}]"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
