//! A kind whose pod templates no pointer can name: TrainJob renders a runtime. Its pod sets are not read.

use super::hooks::NoHooks;
use super::jobset;
use super::role_shape::RoleShape;
use super::row::{
    Active, CreatedKinds, Enabled, Family, FieldPointers, FinishedRule, Flags, Framework, Listing, ManagedBy,
    Message, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::table::{JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS};
use super::view::Gvk;

const fn fields(built_in: &'static str) -> FieldPointers {
    FieldPointers {
        suspend: Some("/spec/suspend"),
        managed_by: Some(ManagedBy { field: "/spec/managedBy", built_in }),
        start_time: None,
        server_labels: &[],
        roles: RoleShape::Template,
    }
}

pub(super) static TRAIN_JOB: Framework = Framework {
    gvk: Gvk { group: "trainer.kubeflow.org", version: "v1alpha1", kind: "TrainJob", plural: "trainjobs" },
    name: "trainer.kubeflow.org/trainjob",
    listing: Listing { family: Family::Batch, label: "TrainJob", enabled: Enabled::AsShipped },
    role: Role::Suspended,
    fields: fields("trainer.kubeflow.org/trainjob-controller"),
    pod_sets: &[],
    related: &[],
    // Its pods are those of a JobSet.
    rank: jobset::RANK,
    status: StatusFields {
        finished: &[
            FinishedRule { when: Test::Condition("Complete"), success: true, message: Message::OfCondition },
            FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
        ],
        active: Active::SumOver("/status/jobsStatus", "/active"),
        ready: Ready::SubGroupsOf("/status/jobsStatus"),
        reclaimable: Reclaimable::SubGroupsOf("/status/jobsStatus"),
    },
    priority_class: None,
    creates: CreatedKinds::Only(&[("jobset.x-k8s.io", "JobSet")]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags { pod_sets_from_spec: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS },
    hooks: &NoHooks,
};
