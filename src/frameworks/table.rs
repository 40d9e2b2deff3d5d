//! The table of frameworks: every kind of job that Kueue knows, and which of them this version manages.
//!
//! The table is made once, when it is first used. Invariants: no two rows have the same group and kind; whether a row is served
//! is said here, for each row by itself. The order of the rows is that of documents and manifests alone.

use super::row::{
    Active, CreatedKinds, FailurePolicy, FieldPointers, Flags, Framework, Rank, Rbac, Ready, Reclaimable,
    StatusFields, TopologyChecks, Webhooks,
};
use super::view::Gvk;
use super::{batch_job, deployment, jobset, kubeflow, pod_group, ray, wrappers};
use crate::api::config::KnownFramework;
use std::sync::LazyLock;

/// Names of the rows that this version manages. Only these are watched and generated into the manifests.
const SERVED: &[&str] = &["batch/job"];

static TABLE: LazyLock<Vec<Framework>> = LazyLock::new(|| built_in().into());

/// Returns all frameworks of Kueue.
pub fn frameworks() -> &'static [Framework] {
    &TABLE
}

const fn built_in() -> [Framework; 18] {
    [
        batch_job::ROW,
        jobset::ROW,
        kubeflow::PYTORCH_JOB,
        kubeflow::TF_JOB,
        kubeflow::XGBOOST_JOB,
        kubeflow::PADDLE_JOB,
        kubeflow::JAX_JOB,
        kubeflow::MPI_JOB,
        wrappers::TRAIN_JOB,
        ray::RAY_JOB,
        ray::RAY_CLUSTER,
        ray::RAY_SERVICE,
        pod_group::ROW,
        deployment::ROW,
        pod_group::STATEFUL_SET,
        pod_group::LEADER_WORKER_SET,
        wrappers::APP_WRAPPER,
        wrappers::SPARK_APPLICATION,
    ]
}

impl Framework {
    /// Returns whether this version manages the objects of the kind.
    pub fn is_served(&self) -> bool {
        SERVED.contains(&self.name)
    }
}

/// Returns what a configuration may name.
pub fn known_frameworks() -> Vec<KnownFramework> {
    let known = |row: &Framework| {
        let Gvk { group, version, kind, .. } = row.gvk;
        KnownFramework { name: row.name, kind: format!("{kind}.{version}.{group}"), served: row.is_served() }
    };
    frameworks().iter().map(known).collect()
}

/// Returns the rows that this version manages.
pub fn served() -> impl Iterator<Item = &'static Framework> {
    frameworks().iter().filter(|row| row.is_served())
}

/// Returns the rows that this version does not manage.
pub(super) fn unserved() -> impl Iterator<Item = &'static Framework> {
    frameworks().iter().filter(|row| !row.is_served())
}

/// Returns the row of this group and kind.
pub fn framework(group: &str, kind: &str) -> Option<&'static Framework> {
    frameworks().iter().find(|row| (row.gvk.group, row.gvk.kind) == (group, kind))
}

/// Returns the row of this group and kind if this version manages it.
pub fn served_framework(group: &str, kind: &str) -> Option<&'static Framework> {
    framework(group, kind).filter(|row| row.is_served())
}

/// A controller that creates pods alone.
pub(super) const PODS: CreatedKinds = CreatedKinds::Only(&[POD]);
pub(super) const POD: (&str, &str) = ("", "Pod");
pub(super) const JOB: (&str, &str) = ("batch", "Job");

/// Webhooks of a kind that is defaulted when it is created. Objects without a queue must not depend on the manager.
pub(super) const JOB_WEBHOOKS: Webhooks = Webhooks {
    mutate: &["CREATE"],
    validate: &["CREATE", "UPDATE"],
    with_queue: FailurePolicy::Fail,
    without_queue: FailurePolicy::Ignore,
};

/// Webhooks of a kind that is defaulted when it is changed as well.
pub(super) const WORKLOAD_WEBHOOKS: Webhooks = Webhooks { mutate: &["CREATE", "UPDATE"], ..JOB_WEBHOOKS };

/// Permissions on a kind that is suspended and started, and whose Workload holds up its deletion.
pub(super) const JOB_RBAC: Rbac =
    Rbac { object: &["delete", "patch"], status: &["patch"], finalizers: &["update"] };

/// Permissions on a kind that is only read.
pub(super) const READ_ONLY: Rbac = Rbac { object: &[], status: &[], finalizers: &[] };

/// Rank labels of a kind without them.
pub(super) const NO_RANK: Rank = Rank { index_label: None, sub_groups: None };

/// Fields of a kind without a suspend field.
pub(super) const NO_FIELDS: FieldPointers =
    FieldPointers { suspend: None, managed_by: None, start_time: None, server_labels: &[] };

/// Status of a kind whose objects are not jobs, or whose members say it.
pub(super) const NO_STATUS: StatusFields = StatusFields {
    finished: &[],
    active: Active::Counts(&[]),
    ready: Ready::Hook,
    reclaimable: Reclaimable::None,
};

/// Flags of most kinds that can be suspended.
pub(super) const JOB_FLAGS: Flags = Flags {
    pod_sets_from_spec: true,
    elastic: false,
    prebuilt: true,
    create_rules_on_update: true,
    topology_checks: TopologyChecks::TemplatesAndGroups,
};
