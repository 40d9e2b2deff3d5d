//! Kinds that the simulation does not read: whether a server knows them, and whether their objects name a queue.

use super::objects::{describe, field, has_owner, text_at};
use crate::api::{GROUP, names};
use serde_json::Value;

/// Kinds of groups whose kinds are all known. A group of another project may have any kind.
const KNOWN_KINDS: [(&str, &[&str]); 20] = [
    (
        GROUP,
        &[
            "AdmissionCheck",
            "ClusterQueue",
            "Cohort",
            "LocalQueue",
            "MultiKueueCluster",
            "MultiKueueConfig",
            "ProvisioningRequestConfig",
            "ResourceFlavor",
            "Topology",
            "Workload",
            "WorkloadPriorityClass",
        ],
    ),
    ("visibility.kueue.x-k8s.io", &[]),
    (
        "",
        &[
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "List",
            "Namespace",
            "Node",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "Pod",
            "PodTemplate",
            "ReplicationController",
            "ResourceQuota",
            "Secret",
            "Service",
            "ServiceAccount",
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("apps", &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"]),
    ("autoscaling", &["HorizontalPodAutoscaler", "Scale"]),
    ("batch", &["CronJob", "Job"]),
    ("certificates.k8s.io", &["CertificateSigningRequest", "ClusterTrustBundle", "PodCertificateRequest"]),
    ("coordination.k8s.io", &["Lease", "LeaseCandidate"]),
    ("discovery.k8s.io", &["EndpointSlice"]),
    ("events.k8s.io", &["Event"]),
    ("flowcontrol.apiserver.k8s.io", &["FlowSchema", "PriorityLevelConfiguration"]),
    ("networking.k8s.io", &["IPAddress", "Ingress", "IngressClass", "NetworkPolicy", "ServiceCIDR"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["Eviction", "PodDisruptionBudget"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]),
    ("scheduling.k8s.io", &["PodGroup", "PriorityClass", "Workload"]),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
];
/// Group of configuration files, which are not applied to a server.
const CONFIGURATION_GROUP: &str = "config.kueue.x-k8s.io";
const CRON_JOB: (&str, &str) = ("batch", "CronJob");

/// Returns the group of an object.
pub(super) fn group_of(object: &Value) -> &str {
    text_at(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group)
}

/// Checks that a server has the kind of an object that the simulation does not read.
///
/// # Errors
/// The group has no such kind; the message is that of clients.
pub(super) fn check_known(object: &Value) -> Result<(), String> {
    let (group, kind) = (group_of(object), text_at(object, "/kind"));
    if group == CONFIGURATION_GROUP {
        return Err(format!(
            "kind: Unsupported value: {kind:?}: no object of a cluster: pass the configuration with --config"
        ));
    }
    let known = KNOWN_KINDS.iter().find(|(name, _)| *name == group);
    match known {
        Some((_, kinds)) if !kinds.contains(&kind) => {
            let version = text_at(object, "/apiVersion");
            Err(format!("no matches for kind {kind:?} in version {version:?}"))
        }
        _ => Ok(()),
    }
}

/// Returns why an object of a kind that is not managed is not queued; `None` if it names no queue. What its owner
/// is, the owner's entry says.
pub(super) fn unmanaged_queue(object: &Value) -> Option<String> {
    if has_owner(object) || !names_queue(object) {
        return None;
    }
    let (group, kind) = (group_of(object), text_at(object, "/kind"));
    let subject = describe(object);
    Some(if (group, kind) == CRON_JOB {
        format!(
            "{subject}: a CronJob is not queued, and its Jobs are not simulated; they are queued if spec.jobTemplate has the label"
        )
    } else {
        format!("{subject}: this version does not manage {kind}; it runs without quota")
    })
}

/// Returns whether any labels in an object, also those of a template, have a queue name.
fn names_queue(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(name, part)| {
            let named = name == "labels" && field(part, names::QUEUE_NAME_LABEL).is_some();
            named || names_queue(part)
        }),
        Value::Array(items) => items.iter().any(names_queue),
        _ => false,
    }
}
