//! The part of a pod template to which admission adds: merging additions, and patches that apply and remove them.

use super::patch::set_at;
use super::role_shape::InjectedFields;
use k8s_openapi::api::core::v1::Toleration;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Parts of a pod template to which admission may add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TemplateInfo {
    /// Labels of the pods.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pods.
    pub annotations: BTreeMap<String, String>,
    /// Node labels that the pods require.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the pods tolerate.
    pub tolerations: Vec<Toleration>,
    /// Scheduling gates of the pods.
    pub scheduling_gates: Vec<String>,
}

/// Two different values are required for one key. Retrying does not help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateConflict {
    /// `label`, `annotation` or `nodeSelector`.
    pub field: &'static str,
    /// The key.
    pub key: String,
    /// The current value.
    pub current: String,
    /// The requested value.
    pub requested: String,
}

impl fmt::Display for TemplateConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:?} is {:?} and cannot become {:?}",
            self.field, self.key, self.current, self.requested
        )
    }
}

impl TemplateInfo {
    /// Returns whether it has all parts of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        self.covers_but_for(other, &[])
    }

    /// Returns whether it has all parts of `other` but for labels with these keys.
    pub fn covers_but_for(&self, other: &Self, labels: &[&str]) -> bool {
        let has = |own: &BTreeMap<String, String>, other: &BTreeMap<String, String>| {
            other.iter().all(|(key, value)| own.get(key) == Some(value))
        };
        let has_label = |(key, value): (&String, &String)| {
            labels.contains(&&**key) || self.labels.get(key) == Some(value)
        };
        other.labels.iter().all(has_label)
            && has(&self.annotations, &other.annotations)
            && has(&self.node_selector, &other.node_selector)
            && other.tolerations.iter().all(|toleration| self.tolerations.contains(toleration))
            && other.scheduling_gates.iter().all(|gate| self.scheduling_gates.contains(gate))
    }

    /// Adds the parts of `other`, whose values go before its own.
    pub fn overlay(&mut self, other: &Self) {
        add_all(&mut self.labels, &other.labels);
        add_all(&mut self.annotations, &other.annotations);
        add_all(&mut self.node_selector, &other.node_selector);
        add_missing(&mut self.tolerations, &other.tolerations);
        add_missing(&mut self.scheduling_gates, &other.scheduling_gates);
    }

    /// Adds the parts of `other`. A key with another value is a conflict; then nothing is added.
    pub fn merge(&mut self, other: &Self) -> Result<(), TemplateConflict> {
        check_disjoint("label", &self.labels, &other.labels)?;
        check_disjoint("annotation", &self.annotations, &other.annotations)?;
        check_disjoint("nodeSelector", &self.node_selector, &other.node_selector)?;
        self.overlay(other);
        Ok(())
    }
}

fn check_disjoint(
    field: &'static str,
    current: &BTreeMap<String, String>,
    requested: &BTreeMap<String, String>,
) -> Result<(), TemplateConflict> {
    for (key, value) in requested {
        if let Some(current_value) = current.get(key).filter(|current_value| *current_value != value) {
            return Err(TemplateConflict {
                field,
                key: key.clone(),
                current: current_value.clone(),
                requested: value.clone(),
            });
        }
    }
    Ok(())
}

fn add_all(to: &mut BTreeMap<String, String>, from: &BTreeMap<String, String>) {
    to.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
}

fn add_missing<T: Clone + PartialEq>(to: &mut Vec<T>, from: &[T]) {
    for item in from {
        if !to.contains(item) {
            to.push(item.clone());
        }
    }
}

/// Returns the merge patch of what describes a pod that changes `from` into `to`, or `None` if they are equal.
pub(crate) fn template_patch(
    from: &TemplateInfo,
    to: &TemplateInfo,
    fields: &InjectedFields,
) -> Option<Value> {
    let gates: Vec<Value> = to.scheduling_gates.iter().map(|name| json!({ "name": name })).collect();
    let parts = [
        (fields.labels, map_patch(&from.labels, &to.labels)),
        (fields.annotations, map_patch(&from.annotations, &to.annotations)),
        (fields.node_selector, map_patch(&from.node_selector, &to.node_selector)),
        (fields.tolerations, (from.tolerations != to.tolerations).then(|| list_patch(&to.tolerations))),
        (fields.scheduling_gates, (from.scheduling_gates != to.scheduling_gates).then(|| list_patch(&gates))),
    ];
    let mut patch = Map::new();
    for (pointer, part) in parts {
        if let Some(part) = part {
            set_at(&mut patch, pointer, part);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns the merge patch of a list: the whole list, or null if it is empty.
fn list_patch<T: serde::Serialize>(items: &[T]) -> Value {
    if items.is_empty() { Value::Null } else { serde_json::to_value(items).unwrap_or(Value::Null) }
}

/// Returns the merge patch of a map. Removed keys are null. The map is not replaced, because it may contain keys of
/// other writers, such as the API server's labels.
fn map_patch(from: &BTreeMap<String, String>, to: &BTreeMap<String, String>) -> Option<Value> {
    if from == to {
        return None;
    }
    let removed = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let set = to.iter().filter(|(key, value)| from.get(*key) != Some(*value));
    Some(Value::Object(
        removed.chain(set.map(|(key, value)| (key.clone(), Value::String(value.clone())))).collect(),
    ))
}
