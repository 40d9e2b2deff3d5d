//! Plain pods and pod groups, and the kinds whose pods form groups.

use super::hooks::NoHooks;
use super::row::{
    CreatedKinds, Family, Flags, Framework, Listing, PodSetSource, Rank, Rbac, Role, TopologyChecks,
};
use super::table::{JOB_FLAGS, JOB_WEBHOOKS, NO_FIELDS, NO_STATUS, POD, PODS, READ_ONLY, WORKLOAD_WEBHOOKS};
use super::view::Gvk;

pub(super) const ROW: Framework = Framework {
    gvk: Gvk { group: "", version: "v1", kind: "Pod", plural: "pods" },
    name: "pod",
    listing: Listing { family: Family::Pods, label: "Pod, pod groups" },
    served: false,
    role: Role::Composable,
    fields: NO_FIELDS,
    pod_sets: PodSetSource::Unread,
    rank: Rank { index_label: Some("kueue.x-k8s.io/pod-group-pod-index"), sub_groups: None },
    status: NO_STATUS,
    priority_class: None,
    // A Spark driver pod owns its executor pods.
    creates: PODS,
    webhooks: JOB_WEBHOOKS,
    rbac: Rbac { object: &["delete", "patch"], status: &["patch"], finalizers: &["update"] },
    flags: Flags { create_rules_on_update: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS },
    hooks: &NoHooks,
};

pub(super) const STATEFUL_SET: Framework = Framework {
    gvk: Gvk { group: "apps", version: "v1", kind: "StatefulSet", plural: "statefulsets" },
    name: "statefulset",
    listing: Listing { family: Family::Pods, label: "StatefulSet" },
    rank: Rank { index_label: Some("apps.kubernetes.io/pod-index"), sub_groups: None },
    webhooks: WORKLOAD_WEBHOOKS,
    rbac: READ_ONLY,
    flags: Flags { prebuilt: false, topology_checks: TopologyChecks::None, ..JOB_FLAGS },
    ..ROW
};

pub(super) const LEADER_WORKER_SET: Framework = Framework {
    gvk: Gvk {
        group: "leaderworkerset.x-k8s.io",
        version: "v1",
        kind: "LeaderWorkerSet",
        plural: "leaderworkersets",
    },
    name: "leaderworkerset.x-k8s.io/leaderworkerset",
    listing: Listing { family: Family::Pods, label: "LeaderWorkerSet" },
    rank: Rank { index_label: Some("leaderworkerset.sigs.k8s.io/worker-index"), sub_groups: None },
    creates: CreatedKinds::Only(&[("apps", "StatefulSet"), POD]),
    webhooks: WORKLOAD_WEBHOOKS,
    rbac: READ_ONLY,
    flags: Flags { prebuilt: false, topology_checks: TopologyChecks::TemplatesAndGroups, ..JOB_FLAGS },
    ..ROW
};
