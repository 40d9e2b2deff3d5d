//! The kind Deployment: its webhook marks the pod template, and each of its pods is a job of its own.

use super::hooks::NoHooks;
use super::row::{CreatedKinds, Family, Flags, Framework, Listing, PodSetSource, Role, TopologyChecks};
use super::table::{JOB_FLAGS, NO_FIELDS, NO_RANK, NO_STATUS, READ_ONLY, WORKLOAD_WEBHOOKS};
use super::view::Gvk;

pub(super) const ROW: Framework = Framework {
    gvk: Gvk { group: "apps", version: "v1", kind: "Deployment", plural: "deployments" },
    name: "deployment",
    listing: Listing { family: Family::Pods, label: "Deployment" },
    served: false,
    role: Role::PassThrough,
    fields: NO_FIELDS,
    pod_sets: PodSetSource::Unread,
    rank: NO_RANK,
    status: NO_STATUS,
    priority_class: None,
    creates: CreatedKinds::Only(&[("apps", "ReplicaSet")]),
    webhooks: WORKLOAD_WEBHOOKS,
    rbac: READ_ONLY,
    flags: Flags { prebuilt: false, topology_checks: TopologyChecks::None, ..JOB_FLAGS },
    hooks: &NoHooks,
};
