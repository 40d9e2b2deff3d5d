//! The kinds of the Kubeflow training operator and of the MPI operator. Their rows say everything, but one default of the
//! MPIJob webhook: the index offset of workers if the launcher works as well.

use super::hooks::NoHooks;
use super::row::{
    Active, Count, CreatedKinds, Family, FieldPointers, FinishedRule, Flags, Framework, Listing, ManagedBy,
    Message, PodSetSource, Rank, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::table::{JOB, JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, POD, PODS};
use super::view::Gvk;

const FINISHED: &[FinishedRule] = &[
    FinishedRule { when: Test::Condition("Succeeded"), success: true, message: Message::OfCondition },
    FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
];

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

/// The row that the kinds of the training operator share.
const TRAINING: Framework = Framework {
    gvk: Gvk { group: "kubeflow.org", version: "v1", kind: "", plural: "" },
    name: "",
    listing: Listing { family: Family::Batch, label: "Kubeflow jobs" },
    role: Role::Suspended,
    fields: fields("kubeflow.org/training-operator"),
    pod_sets: &[],
    rank: Rank { index_label: Some("training.kubeflow.org/replica-index"), sub_groups: None },
    status: StatusFields {
        finished: FINISHED,
        active: Active::SumOver("/status/replicaStatuses", "/active"),
        ready: Ready::When(Test::Condition("Running")),
        reclaimable: Reclaimable::None,
    },
    priority_class: Some("/spec/runPolicy/schedulingPolicy/priorityClass"),
    creates: PODS,
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags { create_rules_on_update: false, topology_checks: TopologyChecks::Templates, ..JOB_FLAGS },
    hooks: &NoHooks,
};

const fn gvk(version: &'static str, kind: &'static str, plural: &'static str) -> Gvk {
    Gvk { group: "kubeflow.org", version, kind, plural }
}

pub(super) static PYTORCH_JOB: Framework = Framework {
    gvk: gvk("v1", "PyTorchJob", "pytorchjobs"),
    name: "kubeflow.org/pytorchjob",
    pod_sets: &[pod_sets("/spec/pytorchReplicaSpecs", &["Master", "Worker"])],
    ..TRAINING
};

pub(super) static TF_JOB: Framework = Framework {
    gvk: gvk("v1", "TFJob", "tfjobs"),
    name: "kubeflow.org/tfjob",
    pod_sets: &[pod_sets("/spec/tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"])],
    ..TRAINING
};

pub(super) static XGBOOST_JOB: Framework = Framework {
    gvk: gvk("v1", "XGBoostJob", "xgboostjobs"),
    name: "kubeflow.org/xgboostjob",
    pod_sets: &[pod_sets("/spec/xgbReplicaSpecs", &["Master", "Worker"])],
    ..TRAINING
};

pub(super) static PADDLE_JOB: Framework = Framework {
    gvk: gvk("v1", "PaddleJob", "paddlejobs"),
    name: "kubeflow.org/paddlejob",
    pod_sets: &[pod_sets("/spec/paddleReplicaSpecs", &["Master", "Worker"])],
    ..TRAINING
};

pub(super) static JAX_JOB: Framework = Framework {
    gvk: gvk("v1", "JAXJob", "jaxjobs"),
    name: "kubeflow.org/jaxjob",
    pod_sets: &[pod_sets("/spec/jaxReplicaSpecs", &["Worker"])],
    flags: Flags { prebuilt: false, ..TRAINING.flags },
    ..TRAINING
};

pub(super) static MPI_JOB: Framework = Framework {
    gvk: gvk("v2beta1", "MPIJob", "mpijobs"),
    name: "kubeflow.org/mpijob",
    listing: Listing { family: Family::Batch, label: "MPIJob" },
    fields: fields("kubeflow.org/mpi-operator"),
    pod_sets: &[pod_sets("/spec/mpiReplicaSpecs", &["Launcher", "Worker"])],
    // The launcher is a Job, the workers are pods.
    creates: CreatedKinds::Only(&[JOB, POD]),
    flags: JOB_FLAGS,
    ..TRAINING
};
