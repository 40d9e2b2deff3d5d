//! Compares the objects of the chart with those of `config/`, field by field. Everything that may differ is listed here.

use crate::objects::text;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use sluice::frameworks::frameworks;
use std::collections::BTreeMap;

/// Labels that only the chart sets, on every object that has labels.
const HELM_LABELS: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
];
/// Annotation of the chart's CustomResourceDefinitions, and of the claim of the volume.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");
/// Annotation of the chart's pods, so that a changed configuration replaces them.
pub(super) const CHECKSUM: &str = "sluice.dev/config-checksum";
/// Label of every namespace with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// Roles of processes beside the manager, which only read.
const READING_ROLES: [&str; 3] = ["kueue-webhooks-role", "kueue-dashboard-role", "kueue-history-role"];
/// Key of the configuration in its ConfigMap.
const CONFIGURATION: &str = "controller_manager_config.yaml";

/// Objects by kind and name.
type Objects = BTreeMap<(String, String), Value>;

/// Fails with all differences between both lists of objects, except the intended ones.
pub(super) fn compare(chart: Vec<Value>, config: Vec<Value>) -> Result<usize> {
    let mut ours = Objects::new();
    for object in chart {
        add(&mut ours, chart_object(object)?)?;
    }
    let mut theirs = Objects::new();
    // Helm creates the namespace if it is asked to; uninstalling must not delete what else is in it.
    for mut object in config.into_iter().filter(|object| object["kind"] != "Namespace") {
        remove_unlisted_kinds(&mut object)?;
        add(&mut theirs, object)?;
    }
    ensure!(theirs.len() > 40, "config/ has {} objects", theirs.len());
    let mut differences = Vec::new();
    for (key, object) in &ours {
        match theirs.get(key) {
            Some(other) => difference(object, other, &format!("{} {}", key.0, key.1), &mut differences),
            None => differences.push(format!("{} {}: only in the chart", key.0, key.1)),
        }
    }
    for key in theirs.keys().filter(|key| !ours.contains_key(*key)) {
        differences.push(format!("{} {}: only in config/", key.0, key.1));
    }
    ensure!(differences.is_empty(), "the chart and config/ differ:\n{}", differences.join("\n"));
    Ok(ours.len())
}

/// Removes what only the chart has, after checking that it is there.
fn chart_object(mut object: Value) -> Result<Value> {
    let name = format!("{} {}", text(&object, "/kind"), text(&object, "/metadata/name"));
    if object["kind"] == "CustomResourceDefinition" {
        remove_keep(&mut object, &name)?;
        return Ok(object);
    }
    if object["kind"] == "PersistentVolumeClaim" {
        remove_keep(&mut object, &name)?;
    }
    for label in HELM_LABELS {
        ensure!(remove(&mut object, "/metadata/labels", label).is_some(), "{name} has no label {label}");
    }
    if object["kind"] == "NetworkPolicy" {
        remove_namespaces_by_name(&mut object);
    }
    if object["kind"] == "Deployment" {
        let checksum = remove(&mut object, "/spec/template/metadata/annotations", CHECKSUM);
        ensure!(checksum.is_some_and(|value| value.is_string()), "{name} has no checksum");
    }
    Ok(object)
}

/// Removes the annotation by which Helm leaves an object when the release ends.
fn remove_keep(object: &mut Value, name: &str) -> Result<()> {
    let annotations = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    let annotations = annotations.with_context(|| format!("{name} has no annotations"))?;
    ensure!(annotations.remove(KEEP.0) == Some(KEEP.1.into()), "{name} would not stay");
    if annotations.is_empty() {
        remove(object, "/metadata", "annotations");
    }
    Ok(())
}

/// Removes the kinds of jobs that the shipped configuration does not enable from the roles of processes that only read. A component of
/// `config/frameworks` cannot know whether such a role exists, so it has all kinds; the chart knows the configuration.
fn remove_unlisted_kinds(object: &mut Value) -> Result<()> {
    let name = text(object, "/metadata/name").to_owned();
    if object["kind"] != "ClusterRole" || !READING_ROLES.contains(&name.as_str()) {
        return Ok(());
    }
    let rules = object["rules"].as_array_mut().with_context(|| format!("{name} has no rules"))?;
    for row in frameworks().filter(|row| !row.is_shipped()) {
        let is_of_kind = |rule: &Value| {
            rule["apiGroups"] == json!([row.gvk.group]) && rule["resources"] == json!([row.gvk.plural])
        };
        // A later rule lets what stands between objects be read, whether or not its kind is enabled.
        let first = rules.iter().position(is_of_kind);
        let first = first.with_context(|| format!("{name} lacks {}.{}", row.gvk.plural, row.gvk.group))?;
        rules.remove(first);
    }
    Ok(())
}

/// Removes the sources of connections that are a namespace by its name. Only the chart knows the namespace of Prometheus;
/// `config/` admits namespaces by a label.
fn remove_namespaces_by_name(policy: &mut Value) {
    let rules = policy.pointer_mut("/spec/ingress").and_then(Value::as_array_mut);
    let sources = rules.into_iter().flatten().filter_map(|rule| rule.get_mut("from")?.as_array_mut());
    for sources in sources {
        sources.retain(|source| source["namespaceSelector"]["matchLabels"].get(NAMESPACE_NAME).is_none());
    }
}

fn remove(object: &mut Value, parent: &str, key: &str) -> Option<Value> {
    object.pointer_mut(parent)?.as_object_mut()?.remove(key)
}

/// Adds an object in a form without meaningless order: webhooks by name, the configuration as fields.
fn add(objects: &mut Objects, mut object: Value) -> Result<()> {
    let key = (text(&object, "/kind").to_owned(), text(&object, "/metadata/name").to_owned());
    if let Some(webhooks) = object.get("webhooks").and_then(Value::as_array) {
        let by_name: Map<String, Value> =
            webhooks.iter().map(|webhook| (text(webhook, "/name").to_owned(), webhook.clone())).collect();
        ensure!(by_name.len() == webhooks.len(), "{} {}: two webhooks with the same name", key.0, key.1);
        object["webhooks"] = by_name.into();
    }
    if let Some(file) = object["data"][CONFIGURATION].as_str() {
        let configuration: Value = serde_saphyr::from_str(file)?;
        ensure!(configuration["kind"] == "Configuration", "{} has no configuration", key.1);
        object["data"][CONFIGURATION] = configuration;
    }
    let name = format!("{} {}", key.0, key.1);
    ensure!(objects.insert(key, object).is_none(), "{name} occurs twice");
    Ok(())
}

fn difference(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                difference(value, b.get(key).unwrap_or(&Value::Null), &format!("{path}.{key}"), found);
            }
            for (key, value) in b.iter().filter(|(key, _)| !a.contains_key(*key)) {
                difference(&Value::Null, value, &format!("{path}.{key}"), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (x, y)) in a.iter().zip(b).enumerate() {
                difference(x, y, &format!("{path}[{index}]"), found);
            }
        }
        // Numbers of a configuration that passed through the template language are floats.
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => {}
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours} in the chart, {theirs} in config/")),
    }
}
