//! Checks that the objects of one rendering fit together: names and labels that refer to other objects of it resolve.

use crate::objects::text;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The kinds whose objects have no namespace.
const CLUSTER_KINDS: [&str; 9] = [
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "FlowSchema",
    "MutatingWebhookConfiguration",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ValidatingWebhookConfiguration",
];

/// The role of the API server by which others read how it identifies itself, and its namespace.
const AUTHENTICATION_READER: (&str, &str) = ("extension-apiserver-authentication-reader", "kube-system");

/// Returns the object of a kind and name.
pub(super) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    of_kind(objects, kind).find(|object| text(object, "/metadata/name") == name)
}

/// Returns the objects of a kind.
pub(super) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

/// Returns the items of an array at a pointer.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Fails if a reference does not resolve or an object is in another namespace.
pub(super) fn check(objects: &[Value], namespace: &str) -> Result<()> {
    for object in objects {
        let kind = text(object, "/kind");
        let reads_authentication = text(object, "/roleRef/name") == AUTHENTICATION_READER.0;
        let expected = match kind {
            _ if CLUSTER_KINDS.contains(&kind) => "",
            "RoleBinding" if reads_authentication => AUTHENTICATION_READER.1,
            _ => namespace,
        };
        let name = text(object, "/metadata/name");
        ensure!(text(object, "/metadata/namespace") == expected, "{kind} {name} is in another namespace");
    }
    for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        for object in of_kind(objects, binding) {
            let name = text(object, "/roleRef/name");
            let of_server = name == AUTHENTICATION_READER.0 || name.starts_with("system:");
            ensure!(
                of_server || find(objects, role, name).is_some(),
                "{binding}: {role} {name} does not exist"
            );
            let account = text(object, "/subjects/0/name");
            let prometheus = account.starts_with("prometheus-");
            let found = prometheus || find(objects, "ServiceAccount", account).is_some();
            ensure!(found, "{binding} {name}: account {account} does not exist");
        }
    }
    check_webhooks(objects, namespace)?;
    for service in of_kind(objects, "APIService") {
        let (name, found) = (text(service, "/spec/service/name"), text(service, "/spec/service/namespace"));
        ensure!(find(objects, "Service", name).is_some(), "API Service {name} does not exist");
        ensure!(found == namespace, "an APIService names namespace {found}");
    }
    check_selectors(objects)?;
    of_kind(objects, "Deployment").try_for_each(|deployment| check_pod(objects, deployment))
}

fn check_webhooks(objects: &[Value], namespace: &str) -> Result<()> {
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        for webhook in of_kind(objects, kind).flat_map(|object| items(object, "/webhooks")) {
            let service = text(webhook, "/clientConfig/service/name");
            ensure!(find(objects, "Service", service).is_some(), "webhook Service {service} does not exist");
            let found = text(webhook, "/clientConfig/service/namespace");
            ensure!(found == namespace, "a webhook calls namespace {found}");
        }
    }
    Ok(())
}

/// Every selector selects pods, those of a Deployment only its own; ports of Services and policies are ports of the pods.
fn check_selectors(objects: &[Value]) -> Result<()> {
    let pods: Vec<&Value> =
        of_kind(objects, "Deployment").map(|deployment| &deployment["spec"]["template"]).collect();
    for (kind, selector, ports) in [
        ("Deployment", "/spec/selector/matchLabels", None),
        ("PodDisruptionBudget", "/spec/selector/matchLabels", None),
        ("Service", "/spec/selector", Some(("/spec", "/targetPort"))),
        ("NetworkPolicy", "/spec/podSelector/matchLabels", Some(("/spec/ingress", "/port"))),
    ] {
        for object in of_kind(objects, kind) {
            let name = text(object, "/metadata/name");
            let wanted = object.pointer(selector).and_then(Value::as_object);
            let wanted = wanted.filter(|wanted| !wanted.is_empty());
            let wanted = wanted.with_context(|| format!("{kind} {name} has no selector"))?;
            let is_selected = |pod: &&&Value| {
                wanted.iter().all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value))
            };
            let selected: Vec<&&Value> = pods.iter().filter(is_selected).collect();
            ensure!(!selected.is_empty(), "{kind} {name}: its selector selects no pod");
            ensure!(
                selected.len() == 1 || kind == "Service",
                "{kind} {name} selects pods of two Deployments"
            );
            let Some((parent, field)) = ports else { continue };
            for port in ports_of(object, parent, field) {
                let has_port = selected.iter().all(|pod| has_port(pod, port));
                ensure!(has_port, "{kind} {name}: a pod has no port {port}");
            }
        }
    }
    Ok(())
}

/// Returns the names and numbers in the lists `ports` of an object or of each item below it.
fn ports_of<'a>(object: &'a Value, parent: &str, field: &'a str) -> impl Iterator<Item = &'a Value> {
    let parents: Vec<&Value> = match object.pointer(parent) {
        Some(Value::Array(all)) => all.iter().collect(),
        parent => parent.into_iter().collect(),
    };
    let ports = parents.into_iter().flat_map(|parent| items(parent, "/ports"));
    ports.filter_map(move |port| port.pointer(field))
}

/// Returns whether the first container of a pod has a port of this name or number.
fn has_port(pod: &Value, wanted: &Value) -> bool {
    items(pod, "/spec/containers/0/ports")
        .any(|port| port["name"] == *wanted || port["containerPort"] == *wanted)
}

fn check_pod(objects: &[Value], deployment: &Value) -> Result<()> {
    let pod = &deployment["spec"]["template"];
    let account = text(pod, "/spec/serviceAccountName");
    ensure!(find(objects, "ServiceAccount", account).is_some(), "account {account} does not exist");
    let config = text(pod, "/spec/volumes/0/configMap/name");
    ensure!(find(objects, "ConfigMap", config).is_some(), "ConfigMap {config} does not exist");
    Ok(())
}
