//! Checks that the objects of one rendering fit together: names and labels that refer to other objects of it resolve.

use crate::objects::text;
use anyhow::{Result, ensure};
use serde_json::Value;

/// The kinds whose objects have no namespace.
const CLUSTER_KINDS: [&str; 5] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

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
        let expected = if CLUSTER_KINDS.contains(&kind) { "" } else { namespace };
        let name = text(object, "/metadata/name");
        ensure!(text(object, "/metadata/namespace") == expected, "{kind} {name} is in another namespace");
    }
    for (binding, role) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        for object in of_kind(objects, binding) {
            let name = text(object, "/roleRef/name");
            ensure!(find(objects, role, name).is_some(), "{binding}: {role} {name} does not exist");
            let account = text(object, "/subjects/0/name");
            let prometheus = account.starts_with("prometheus-");
            let found = prometheus || find(objects, "ServiceAccount", account).is_some();
            ensure!(found, "{binding} {name}: account {account} does not exist");
        }
    }
    check_webhooks(objects, namespace)?;
    for deployment in of_kind(objects, "Deployment") {
        check_deployment(objects, deployment)?;
    }
    Ok(())
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

fn check_deployment(objects: &[Value], deployment: &Value) -> Result<()> {
    let pod = &deployment["spec"]["template"];
    let labels = pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let selects = |selector: &Value| {
        let wanted = selector.as_object().filter(|wanted| !wanted.is_empty());
        wanted.is_some_and(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
    };
    let selectors = [
        ("Deployment", "/spec/selector/matchLabels"),
        ("Service", "/spec/selector"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
    ];
    for (kind, pointer) in selectors {
        for object in of_kind(objects, kind) {
            ensure!(object.pointer(pointer).is_some_and(selects), "{kind}: its selector selects no pod");
        }
    }
    let ports: Vec<&str> = items(pod, "/spec/containers/0/ports").map(|port| text(port, "/name")).collect();
    for service in of_kind(objects, "Service") {
        for port in items(service, "/spec/ports") {
            let target = text(port, "/targetPort");
            ensure!(ports.contains(&target), "the container has no port {target}");
        }
    }
    let account = text(pod, "/spec/serviceAccountName");
    ensure!(find(objects, "ServiceAccount", account).is_some(), "account {account} does not exist");
    let config = text(pod, "/spec/volumes/0/configMap/name");
    ensure!(find(objects, "ConfigMap", config).is_some(), "ConfigMap {config} does not exist");
    Ok(())
}
