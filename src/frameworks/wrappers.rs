//! Kinds whose pod templates no pointer can name: TrainJob renders a runtime, AppWrapper contains other objects, and
//! SparkApplication describes pods by fields of its own. Their pod sets are not read.

use super::hooks::NoHooks;
use super::jobset;
use super::row::{
    Active, CreatedKinds, Enabled, Family, FieldPointers, FinishedRule, Flags, Framework, Listing, ManagedBy,
    Message, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::table::{JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NO_RANK, PODS};
use super::view::Gvk;

const fn fields(managed_by: Option<ManagedBy>) -> FieldPointers {
    FieldPointers { suspend: Some("/spec/suspend"), managed_by, start_time: None, server_labels: &[] }
}

pub(super) static TRAIN_JOB: Framework = Framework {
    gvk: Gvk { group: "trainer.kubeflow.org", version: "v1alpha1", kind: "TrainJob", plural: "trainjobs" },
    name: "trainer.kubeflow.org/trainjob",
    listing: Listing { family: Family::Batch, label: "TrainJob", enabled: Enabled::AsShipped },
    role: Role::Suspended,
    fields: fields(Some(ManagedBy {
        field: "/spec/managedBy",
        built_in: "trainer.kubeflow.org/trainjob-controller",
    })),
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

pub(super) static APP_WRAPPER: Framework = Framework {
    gvk: Gvk {
        group: "workload.codeflare.dev",
        version: "v1beta2",
        kind: "AppWrapper",
        plural: "appwrappers",
    },
    name: "workload.codeflare.dev/appwrapper",
    listing: Listing { family: Family::Wrappers, label: "AppWrapper", enabled: Enabled::AsShipped },
    role: Role::Suspended,
    fields: fields(Some(ManagedBy {
        field: "/spec/managedBy",
        built_in: "workload.codeflare.dev/appwrapper-controller",
    })),
    pod_sets: &[],
    related: &[],
    rank: NO_RANK,
    status: StatusFields {
        finished: &[
            FinishedRule {
                when: Test::Text("/status/phase", &["Succeeded"]),
                success: true,
                message: Message::Text("AppWrapper finished successfully"),
            },
            FinishedRule {
                when: Test::All(&[
                    Test::Text("/status/phase", &["Failed"]),
                    Test::Not(&Test::Condition("ResourcesDeployed")),
                ]),
                success: false,
                message: Message::Text("AppWrapper failed"),
            },
        ],
        active: Active::When(Test::Condition("QuotaReserved")),
        ready: Ready::When(Test::Condition("PodsReady")),
        reclaimable: Reclaimable::None,
    },
    priority_class: None,
    creates: CreatedKinds::Any,
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags {
        pod_sets_from_spec: false,
        create_rules_on_update: false,
        topology_checks: TopologyChecks::None,
        ..JOB_FLAGS
    },
    hooks: &NoHooks,
};

const SPARK_STATE: &str = "/status/applicationState/state";

pub(super) static SPARK_APPLICATION: Framework = Framework {
    gvk: Gvk {
        group: "sparkoperator.k8s.io",
        version: "v1beta2",
        kind: "SparkApplication",
        plural: "sparkapplications",
    },
    name: "sparkoperator.k8s.io/sparkapplication",
    listing: Listing { family: Family::Wrappers, label: "SparkApplication", enabled: Enabled::WhenListed },
    role: Role::Suspended,
    fields: fields(None),
    pod_sets: &[],
    related: &[],
    rank: NO_RANK,
    status: StatusFields {
        finished: &[
            FinishedRule {
                when: Test::Text(SPARK_STATE, &["COMPLETED"]),
                success: true,
                message: Message::Field("/status/applicationState/errorMessage"),
            },
            FinishedRule {
                when: Test::Text(SPARK_STATE, &["FAILED", "SUBMISSION_FAILED"]),
                success: false,
                message: Message::Field("/status/applicationState/errorMessage"),
            },
        ],
        active: Active::When(Test::Text(SPARK_STATE, &["RUNNING"])),
        ready: Ready::Hook,
        reclaimable: Reclaimable::None,
    },
    priority_class: None,
    creates: PODS,
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags { prebuilt: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS },
    hooks: &NoHooks,
};
