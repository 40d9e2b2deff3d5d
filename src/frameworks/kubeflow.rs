//! The kinds of the Kubeflow training operator and of the MPI operator. Their rows say everything, but one default of the
//! MPIJob webhook: the index offset of workers if the launcher works as well.

use super::hooks::NoHooks;
use super::row::{
    Active, Count, CreatedKinds, Family, FieldPointers, FinishedRule, Flags, Framework, Listing, ManagedBy,
    Message, PodSetSource, Pointer, Rank, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::table::{JOB, JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, POD, PODS};
use super::view::Gvk;

const fn fields(built_in: &'static str) -> FieldPointers {
    FieldPointers {
        suspend: Some("/spec/runPolicy/suspend"),
        managed_by: Some(ManagedBy { field: "/spec/runPolicy/managedBy", built_in }),
        start_time: None,
        server_labels: &[],
    }
}

const fn pod_sets(map: &'static str, order: &'static [&'static str]) -> PodSetSource {
    PodSetSource::Map { map, order, template: "/template", count: Count::Field("/replicas") }
}

const RANK: Rank = Rank { index_label: Some("training.kubeflow.org/replica-index"), sub_groups: None };

const STATUS: StatusFields = StatusFields {
    finished: &[
        FinishedRule { when: Test::Condition("Succeeded"), success: true, message: Message::OfCondition },
        FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
    ],
    active: Active::SumOver("/status/replicaStatuses", "/active"),
    ready: Ready::When(Test::Condition("Running")),
    reclaimable: Reclaimable::None,
};

const PRIORITY_CLASS: Pointer = "/spec/runPolicy/schedulingPolicy/priorityClass";

const FLAGS: Flags =
    Flags { create_rules_on_update: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS };

/// Returns the row of a kind of the training operator. They differ in their names and pod sets.
const fn training_job(
    kind: &'static str,
    plural: &'static str,
    name: &'static str,
    pod_sets: &'static [PodSetSource],
) -> Framework {
    Framework {
        gvk: Gvk { group: "kubeflow.org", version: "v1", kind, plural },
        name,
        listing: Listing { family: Family::Batch, label: "Kubeflow jobs" },
        role: Role::Suspended,
        fields: fields("kubeflow.org/training-operator"),
        pod_sets,
        related: &[],
        rank: RANK,
        status: STATUS,
        priority_class: Some(PRIORITY_CLASS),
        creates: PODS,
        webhooks: JOB_WEBHOOKS,
        rbac: JOB_RBAC,
        flags: FLAGS,
        hooks: &NoHooks,
    }
}

pub(super) static PYTORCH_JOB: Framework = training_job(
    "PyTorchJob",
    "pytorchjobs",
    "kubeflow.org/pytorchjob",
    &[pod_sets("/spec/pytorchReplicaSpecs", &["Master", "Worker"])],
);

pub(super) static TF_JOB: Framework = training_job(
    "TFJob",
    "tfjobs",
    "kubeflow.org/tfjob",
    &[pod_sets("/spec/tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"])],
);

pub(super) static XGBOOST_JOB: Framework = training_job(
    "XGBoostJob",
    "xgboostjobs",
    "kubeflow.org/xgboostjob",
    &[pod_sets("/spec/xgbReplicaSpecs", &["Master", "Worker"])],
);

pub(super) static PADDLE_JOB: Framework = training_job(
    "PaddleJob",
    "paddlejobs",
    "kubeflow.org/paddlejob",
    &[pod_sets("/spec/paddleReplicaSpecs", &["Master", "Worker"])],
);

pub(super) static JAX_JOB: Framework = Framework {
    flags: Flags { prebuilt: false, ..FLAGS },
    ..training_job(
        "JAXJob",
        "jaxjobs",
        "kubeflow.org/jaxjob",
        &[pod_sets("/spec/jaxReplicaSpecs", &["Worker"])],
    )
};

pub(super) static MPI_JOB: Framework = Framework {
    gvk: Gvk { group: "kubeflow.org", version: "v2beta1", kind: "MPIJob", plural: "mpijobs" },
    name: "kubeflow.org/mpijob",
    listing: Listing { family: Family::Batch, label: "MPIJob" },
    role: Role::Suspended,
    fields: fields("kubeflow.org/mpi-operator"),
    pod_sets: &[pod_sets("/spec/mpiReplicaSpecs", &["Launcher", "Worker"])],
    related: &[],
    rank: RANK,
    status: STATUS,
    priority_class: Some(PRIORITY_CLASS),
    // The launcher is a Job, the workers are pods.
    creates: CreatedKinds::Only(&[JOB, POD]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: JOB_FLAGS,
    hooks: &NoHooks,
};
