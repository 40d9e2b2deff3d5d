//! The kind Deployment: its webhook marks the pod template, and each of its pods is a job of its own. So it can be scaled
//! and rolled out without restrictions, and stopping a pod lets its ReplicaSet create another one, which waits again.

use super::hooks::NoHooks;
use super::patch::FieldChange;
use super::row::{CreatedKinds, Family, Flags, Framework, Listing, Role, TopologyChecks};
use super::table::{JOB_FLAGS, NO_FIELDS, NO_RANK, NO_STATUS, READ_ONLY, WORKLOAD_WEBHOOKS};
use super::view::Gvk;
use crate::api::names;
use serde_json::json;

pub(super) static ROW: Framework = Framework {
    gvk: Gvk { group: "apps", version: "v1", kind: "Deployment", plural: "deployments" },
    name: "deployment",
    listing: Listing { family: Family::Pods, label: "Deployment" },
    role: Role::PassThrough,
    fields: NO_FIELDS,
    pod_sets: &[],
    rank: NO_RANK,
    status: NO_STATUS,
    priority_class: None,
    creates: CreatedKinds::Only(&[("apps", "ReplicaSet")]),
    webhooks: WORKLOAD_WEBHOOKS,
    rbac: READ_ONLY,
    flags: Flags { prebuilt: false, topology_checks: TopologyChecks::None, ..JOB_FLAGS },
    hooks: &NoHooks,
};

/// Returns the fields to set so that the pods of a Deployment wait for admission in this queue. Marks are never removed, as
/// each change of the template replaces the pods. Whether they must wait is decided by the queue, the namespace and the
/// owners of the Deployment.
pub fn mark_template(queue: Option<&str>, priority_class: Option<&str>) -> Vec<FieldChange> {
    let metadata = |map: &str, key: &str, value: &str| {
        FieldChange::new(&["spec", "template", "metadata", map, key], json!(value))
    };
    let mut changes = vec![
        metadata("annotations", names::SUSPENDING_PARENT_ANNOTATION, ROW.name),
        metadata("labels", names::MANAGED_LABEL, "true"),
    ];
    let labels = [(names::QUEUE_NAME_LABEL, queue), (names::PRIORITY_CLASS_LABEL, priority_class)];
    for (key, value) in labels {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            changes.push(metadata("labels", key, value));
        }
    }
    changes
}
