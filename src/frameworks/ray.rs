//! The kinds of KubeRay. Not served yet: the head pod gets additions that no template has, which a hook must add, and the
//! workers of an elastic cluster are counted by its child.

use super::hooks::NoHooks;
use super::row::{
    Active, Count, CreatedKinds, Elastic, Family, FieldPointers, FinishedRule, Flags, Framework, Listing,
    ManagedBy, Message, PodSetSource, Ready, Reclaimable, Role, StatusFields, Test,
};
use super::table::{JOB, JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NO_RANK, POD};
use super::view::Gvk;

const CLUSTER: (&str, &str) = ("ray.io", "RayCluster");
const JOB_STATE: &str = "/status/jobDeploymentStatus";

const FLAGS: Flags = Flags { pod_sets_from_spec: false, elastic: Elastic::GatedTemplates, ..JOB_FLAGS };

const fn gvk(kind: &'static str, plural: &'static str) -> Gvk {
    Gvk { group: "ray.io", version: "v1", kind, plural }
}

const fn fields(suspend: &'static str) -> FieldPointers {
    FieldPointers {
        suspend: Some(suspend),
        managed_by: Some(ManagedBy { field: "/spec/managedBy", built_in: "ray.io/kuberay-operator" }),
        start_time: None,
        server_labels: &[],
    }
}

const fn status(finished: &'static [FinishedRule], active: Test, ready: Test) -> StatusFields {
    StatusFields {
        finished,
        active: Active::When(active),
        ready: Ready::When(ready),
        reclaimable: Reclaimable::None,
    }
}

pub(super) static RAY_CLUSTER: Framework = Framework {
    gvk: gvk("RayCluster", "rayclusters"),
    name: "ray.io/raycluster",
    listing: Listing { family: Family::Ray, label: "RayCluster" },
    role: Role::Suspended,
    fields: fields("/spec/suspend"),
    pod_sets: &[
        PodSetSource::Fixed { name: "head", template: "/spec/headGroupSpec/template", count: Count::One },
        PodSetSource::Array {
            list: "/spec/workerGroupSpecs",
            name: "/groupName",
            template: "/template",
            count: Count::Product(&Count::Field("/replicas"), &Count::Field("/numOfHosts")),
        },
    ],
    related: &[],
    rank: NO_RANK,
    status: status(&[], Test::Text("/status/state", &["ready"]), Test::Text("/status/state", &["ready"])),
    priority_class: None,
    // A Job cleans up the storage of its head node.
    creates: CreatedKinds::Only(&[POD, JOB]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: FLAGS,
    hooks: &NoHooks,
};

pub(super) static RAY_JOB: Framework = Framework {
    gvk: gvk("RayJob", "rayjobs"),
    name: "ray.io/rayjob",
    listing: Listing { family: Family::Ray, label: "RayJob" },
    role: Role::Suspended,
    fields: fields("/spec/suspend"),
    pod_sets: &[],
    related: &[],
    rank: NO_RANK,
    status: status(
        &[
            FinishedRule {
                when: Test::All(&[
                    Test::Text(JOB_STATE, &["Complete", "Failed"]),
                    Test::Text("/status/jobStatus", &["SUCCEEDED"]),
                ]),
                success: true,
                message: Message::Field("/status/message"),
            },
            FinishedRule {
                when: Test::Text(JOB_STATE, &["Complete", "Failed"]),
                success: false,
                message: Message::Field("/status/message"),
            },
        ],
        Test::Not(&Test::Text(JOB_STATE, &["", "Suspended"])),
        Test::Text("/status/rayClusterStatus/state", &["ready"]),
    ),
    priority_class: None,
    // The submitter is a Job.
    creates: CreatedKinds::Only(&[CLUSTER, JOB]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    // The webhook of its cluster adds the gate.
    flags: Flags { elastic: Elastic::GatedByChild, ..FLAGS },
    hooks: &NoHooks,
};

pub(super) static RAY_SERVICE: Framework = Framework {
    gvk: gvk("RayService", "rayservices"),
    name: "ray.io/rayservice",
    listing: Listing { family: Family::Ray, label: "RayService" },
    role: Role::Suspended,
    fields: fields("/spec/rayClusterConfig/suspend"),
    pod_sets: &[],
    related: &[],
    rank: NO_RANK,
    status: status(&[], Test::Condition("Ready"), Test::Condition("Ready")),
    priority_class: None,
    creates: CreatedKinds::Only(&[CLUSTER]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: FLAGS,
    hooks: &NoHooks,
};
