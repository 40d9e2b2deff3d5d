//! The kinds that a dump has, and where etcd has their objects.

use crate::objects::{Kind, text};
use anyhow::{Context as _, Result};
use serde_json::Value;
use sluice::frameworks::frameworks;
use std::collections::BTreeSet;

/// Kinds that belong to no row of the table of frameworks. Owners first: this is the order of a dump.
const KINDS: [Kind; 21] = [
    Kind::NAMESPACE,
    Kind::NODE,
    Kind::LIMIT_RANGE,
    Kind::TOPOLOGY,
    Kind::FLAVOR,
    Kind::COHORT,
    Kind::PROVISIONING_CONFIG,
    Kind::ADMISSION_CHECK,
    Kind::PRIORITY_CLASS,
    Kind::CLUSTER_QUEUE,
    Kind::LOCAL_QUEUE,
    Kind::DEPLOYMENT,
    Kind::new("apps", "v1", "ReplicaSet", "replicasets"),
    Kind::STATEFUL_SET,
    Kind::new("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Kind::JOB,
    Kind::POD,
    Kind::WORKLOAD,
    Kind::POD_TEMPLATE,
    Kind::PROVISIONING_REQUEST,
    Kind::new("trainer.kubeflow.org", "v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes"),
];

/// Returns all kinds of a dump.
pub(super) fn all() -> Vec<Kind> {
    let mut kinds = KINDS.to_vec();
    let mut known: BTreeSet<String> = kinds.iter().map(|kind| kind.resource()).collect();
    for row in frameworks() {
        let kind = Kind::new(row.gvk.group, row.gvk.version, row.gvk.kind, row.gvk.plural);
        if known.insert(kind.resource()) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Returns the kind of an object.
pub(super) fn of(object: &Value) -> Result<Kind> {
    let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    let found = all().into_iter().find(|known| known.singular == kind && known.api_version() == version);
    found.with_context(|| format!("a dump has no {kind} of {version}"))
}

/// Returns the key of an object in etcd.
pub(super) fn key(object: &Value) -> Result<String> {
    let kind = of(object)?;
    let resource = match (kind.group, kind.plural) {
        (_, "nodes") => "minions".to_owned(),
        ("" | "apps" | "batch", plural) => plural.to_owned(),
        (group, plural) => format!("{group}/{plural}"),
    };
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let slash = if namespace.is_empty() { "" } else { "/" };
    Ok(format!("/registry/{resource}/{namespace}{slash}{name}"))
}

#[cfg(test)]
mod tests {
    use super::key;
    use serde_json::json;

    #[test]
    fn keys_are_those_of_the_api_server() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
        assert_eq!(key(&node).unwrap(), "/registry/minions/n");
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"namespace": "a", "name": "j"}});
        assert_eq!(key(&job).unwrap(), "/registry/jobs/a/j");
        let workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"namespace": "a", "name": "w"}});
        assert_eq!(key(&workload).unwrap(), "/registry/kueue.x-k8s.io/workloads/a/w");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        assert!(key(&secret).is_err());
    }
}
