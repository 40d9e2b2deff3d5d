//! Schema rules that Rust types cannot express: bounds, defaults, list keys, CEL rules, by type and field.
//!
//! The values equal Kueue's, so that both servers refuse the same objects.

mod other;
mod queue;
mod workload;

pub(super) use workload::holds;

use super::CrdError;
use super::schema::merge;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Names of objects: a DNS subdomain.
const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// Names of pod sets: a DNS label.
const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// Rules by Rust type.
#[derive(Default)]
pub(super) struct Rules(BTreeMap<&'static str, TypeRules>);

/// Rules of one type.
pub(super) struct TypeRules {
    own: Value,
    fields: BTreeMap<&'static str, Value>,
}

/// Returns the rules of all types.
pub(super) fn all() -> Rules {
    let mut rules = Rules::default();
    queue::add(&mut rules);
    workload::add(&mut rules);
    other::add(&mut rules);
    rules
}

impl Rules {
    pub(super) fn of_type(&self, name: &str) -> Option<&TypeRules> {
        self.0.get(name)
    }

    /// Returns the rules of a type, creating them if needed.
    fn of(&mut self, name: &'static str) -> &mut TypeRules {
        self.0.entry(name).or_insert_with(|| TypeRules { own: json!({}), fields: BTreeMap::new() })
    }

    /// Returns an error if a rule is for a type or field that does not exist.
    pub(super) fn check_used(&self, used: &[String]) -> Result<(), CrdError> {
        for (name, rules) in &self.0 {
            let fields = rules.fields.keys().map(|field| format!("{name}.{field}"));
            for wanted in fields.chain([(*name).to_owned()]) {
                if !used.contains(&wanted) {
                    return Err(CrdError::new(format!("a rule for {wanted}, which is not there")));
                }
            }
        }
        Ok(())
    }
}

impl TypeRules {
    pub(super) fn type_rule(&self) -> &Value {
        &self.own
    }

    pub(super) fn field_rule(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    fn require(&mut self, fields: &[&str]) -> &mut Self {
        merge(&mut self.own, &json!({ "required": fields }));
        self
    }

    /// Merges a rule into the schema of a field.
    fn field(&mut self, name: &'static str, rule: Value) -> &mut Self {
        match self.fields.entry(name) {
            Entry::Vacant(free) => drop(free.insert(rule)),
            Entry::Occupied(mut earlier) => merge(earlier.get_mut(), &rule),
        }
        self
    }

    /// Adds CEL rules of the whole type, each with its message.
    fn check(&mut self, rules: &[(&str, &str)]) -> &mut Self {
        merge(&mut self.own, &checks(rules));
        self
    }
}

/// CEL rules, each with its message.
pub(super) fn checks(rules: &[(&str, &str)]) -> Value {
    let rules: Vec<Value> =
        rules.iter().map(|(rule, message)| json!({ "message": message, "rule": rule })).collect();
    json!({ "x-kubernetes-validations": rules })
}

/// Returns the union of two rules.
pub(super) fn merged(mut rule: Value, other: &Value) -> Value {
    merge(&mut rule, other);
    rule
}

/// Name of an object.
pub(super) fn subdomain() -> Value {
    json!({ "maxLength": 253, "pattern": SUBDOMAIN })
}

/// Name of a pod set.
fn label() -> Value {
    json!({ "maxLength": 63, "pattern": LABEL })
}

/// A list keyed by fields of its items.
fn keyed(keys: &[&str], max_items: u32) -> Value {
    json!({ "maxItems": max_items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys })
}

/// A list that is replaced as a whole on writes.
pub(super) fn atomic(max_items: u32) -> Value {
    json!({ "maxItems": max_items, "x-kubernetes-list-type": "atomic" })
}

/// Conditions of a status.
fn conditions() -> Value {
    keyed(&["type"], 16)
}

const TAINT_EFFECTS: &str = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'";

/// Tolerations that the API server accepts for pods.
fn tolerations() -> Value {
    let rules = checks(&[
        (
            "self.all(x, !has(x.key) ? x.operator == 'Exists' : true)",
            "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
        ),
        (
            "self.all(x, has(x.tolerationSeconds) ? x.effect == 'NoExecute' : true)",
            "effect must be 'NoExecute' when 'tolerationSeconds' is set",
        ),
        (
            "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
            "supported toleration values: 'Equal'(default), 'Exists'",
        ),
        (
            "self.all(x, has(x.operator) && x.operator == 'Exists' ? !has(x.value) : true)",
            "a value must be empty when 'operator' is 'Exists'",
        ),
        (
            "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
            TAINT_EFFECTS,
        ),
    ]);
    merged(atomic(8), &rules)
}
