//! The kind Deployment: its webhook marks the pod template, and each of its pods is a job of its own. So it can be scaled
//! and rolled out without restrictions, and stopping a pod lets its ReplicaSet create another one, which waits again.

use super::hooks::NoHooks;
use super::row::{CreatedKinds, Enabled, Flags, Framework, Role, TemplateMarks, TopologyChecks};
use super::row_parts::{JOB_FLAGS, NO_FIELDS, NO_LABELS, NO_STATUS, READ_ONLY, template_webhooks};
use super::view::Gvk;
use crate::api::names;

pub(super) static ROW: Framework = Framework {
    gvk: Gvk { group: "apps", version: "v1", kind: "Deployment", plural: "deployments" },
    name: "deployment",
    short_names: &["deploy"],
    enabled: Enabled::AsShipped,
    role: Role::PassThrough,
    fields: NO_FIELDS,
    pod_sets: &[],
    related: &[],
    pods: NO_LABELS,
    status: NO_STATUS,
    creates: CreatedKinds::Only(&[("apps", "ReplicaSet")]),
    webhooks: template_webhooks(TemplateMarks {
        templates: &["/spec/template"],
        labels: &[(names::MANAGED_LABEL, "true")],
        annotations: &[],
        copied_labels: &[names::QUEUE_NAME_LABEL, names::PRIORITY_CLASS_LABEL],
        ready: "/status/readyReplicas",
    }),
    rbac: READ_ONLY,
    flags: Flags { prebuilt: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS },
    hooks: &NoHooks,
};
