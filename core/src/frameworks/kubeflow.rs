//! The kinds of the Kubeflow training operator and of the MPI operator. Their rows say everything, but one default of the
//! MPIJob webhook: the index offset of workers if the launcher works as well.

use super::hooks::{Hooks, NoHooks, ReviewField};
use super::patch::FieldChange;
use super::role_shape::RoleShape;
use super::row::{
    Active, Count, CreatedKinds, Enabled, FieldPointers, FinishedRule, Flags, Framework, LabelValue,
    ManagedBy, Message, PodLabel, PodLabels, PodSetSource, Pointer, Rank, Ready, Reclaimable, Role,
    StatusFields, Test, TopologyChecks,
};
use super::row_parts::{JOB, JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NAME, POD, PODS};
use super::topology;
use super::view::Gvk;
use crate::api::names;
use crate::api::validation::{Gate, Gates};
use serde_json::{Value, json};

const fn fields(built_in: &'static str) -> FieldPointers {
    FieldPointers {
        suspend: Some("/spec/runPolicy/suspend"),
        managed_by: Some(ManagedBy { field: "/spec/runPolicy/managedBy", built_in }),
        start_time: None,
        server_labels: &[],
        priority_class: Some(PRIORITY_CLASS),
        roles: RoleShape::Template,
    }
}

/// Returns the roles of a kind of the training operator. It makes pods of replicas of any type, also those that it does not know.
const fn pod_sets(map: &'static str, order: &'static [&'static str]) -> PodSetSource {
    PodSetSource::Map { map, order, others: true, template: "/template", count: Count::Field("/replicas") }
}

const RANK: Rank = Rank { index_label: Some("training.kubeflow.org/replica-index"), sub_groups: None };

const JOB_NAME: PodLabel = PodLabel { key: "training.kubeflow.org/job-name", value: NAME };

/// Returns the label with the controller: jobs of different kinds may have the same name.
const fn operator(name: &'static str) -> PodLabel {
    PodLabel { key: "training.kubeflow.org/operator-name", value: LabelValue::Text(name) }
}

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

/// Returns the row of a kind of the training operator. They differ in their names, pod sets and labels.
const fn training_job(
    kind: &'static str,
    plural: &'static str,
    name: &'static str,
    pod_sets: &'static [PodSetSource],
    selector: &'static [PodLabel],
) -> Framework {
    Framework {
        gvk: Gvk { group: "kubeflow.org", version: "v1", kind, plural },
        name,
        short_names: &[],
        enabled: Enabled::WhenListed,
        role: Role::Suspended,
        fields: fields("kubeflow.org/training-operator"),
        pod_sets,
        related: &[],
        pods: PodLabels { selector: Some(selector), rank: RANK },
        status: STATUS,
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
    &[JOB_NAME, operator("pytorchjob-controller")],
);

pub(super) static TF_JOB: Framework = training_job(
    "TFJob",
    "tfjobs",
    "kubeflow.org/tfjob",
    &[pod_sets("/spec/tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"])],
    &[JOB_NAME, operator("tfjob-controller")],
);

pub(super) static XGBOOST_JOB: Framework = training_job(
    "XGBoostJob",
    "xgboostjobs",
    "kubeflow.org/xgboostjob",
    &[pod_sets("/spec/xgbReplicaSpecs", &["Master", "Worker"])],
    &[JOB_NAME, operator("xgboostjob-controller")],
);

pub(super) static PADDLE_JOB: Framework = training_job(
    "PaddleJob",
    "paddlejobs",
    "kubeflow.org/paddlejob",
    &[pod_sets("/spec/paddleReplicaSpecs", &["Master", "Worker"])],
    &[JOB_NAME, operator("paddlejob-controller")],
);

pub(super) static JAX_JOB: Framework = Framework {
    flags: Flags { prebuilt: false, ..FLAGS },
    ..training_job(
        "JAXJob",
        "jaxjobs",
        "kubeflow.org/jaxjob",
        &[pod_sets("/spec/jaxReplicaSpecs", &["Worker"])],
        &[JOB_NAME, operator("jaxjob-controller")],
    )
};

pub(super) static MPI_JOB: Framework = Framework {
    gvk: Gvk { group: "kubeflow.org", version: "v2beta1", kind: "MPIJob", plural: "mpijobs" },
    name: "kubeflow.org/mpijob",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::Suspended,
    fields: fields("kubeflow.org/mpi-operator"),
    pod_sets: &[PodSetSource::Map {
        map: "/spec/mpiReplicaSpecs",
        order: &["Launcher", "Worker"],
        others: false,
        template: "/template",
        count: Count::Field("/replicas"),
    }],
    related: &[],
    pods: PodLabels { selector: Some(&[JOB_NAME, operator("mpi-operator")]), rank: RANK },
    status: STATUS,
    // The launcher is a Job, the workers are pods.
    creates: CreatedKinds::Only(&[JOB, POD]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: JOB_FLAGS,
    hooks: &MpiJob,
};

const LAUNCHER_WORKS: Pointer = "/spec/runLauncherAsWorker";

/// Additions to the row.
#[derive(Debug)]
struct MpiJob;

impl Hooks for MpiJob {
    fn review_fields(&self) -> &'static [ReviewField] {
        &[ReviewField::Boolean(LAUNCHER_WORKS)]
    }

    /// The launcher that works has rank 0, so the workers begin with rank 1. In a group with the launcher the ranks follow from
    /// the group.
    fn defaults(&self, job: &Value, gates: &Gates) -> Vec<FieldChange> {
        let role = |name: &str| {
            job.pointer(&format!("/spec/mpiReplicaSpecs/{name}")).filter(|role| role.is_object())
        };
        let (Some(launcher), Some(_)) = (role("Launcher"), role("Worker")) else { return Vec::new() };
        let works = job.pointer(LAUNCHER_WORKS).is_some_and(|works| *works == true);
        let grouped = launcher
            .pointer("/template/metadata/annotations")
            .is_some_and(|annotations| annotations.get(topology::GROUP).is_some());
        if !works || grouped || !gates.is_enabled(Gate::TopologyAwareScheduling) {
            return Vec::new();
        }
        let path = ["spec", "mpiReplicaSpecs", "Worker", "template", "metadata", "annotations"];
        let offset: Vec<&str> = path.into_iter().chain([names::POD_INDEX_OFFSET_ANNOTATION]).collect();
        vec![FieldChange::new(&offset, json!("1"))]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NothingRelated, PlayedState, TemplateInfo, pod_set_infos};
    use super::*;
    use jiff::Timestamp;
    use std::sync::Arc;

    /// Replicas of a type that the row does not know are charged and start on their flavor as the others do.
    #[test]
    fn replicas_of_other_types_are_charged_and_started() {
        let replicas = |number: i32| json!({"replicas": number, "template": {"spec": {"containers": []}}});
        let mut job = json!({
            "metadata": {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "7"},
            "spec": {"runPolicy": {"suspend": true},
                "tfReplicaSpecs": {"Foo": replicas(5), "Worker": replicas(2), "PS": replicas(1)}},
        });
        let originals = pod_set_infos(&TF_JOB.pod_sets(&job).unwrap()).unwrap();
        let sizes = originals.iter().map(|info| (&*info.name, info.count));
        assert_eq!(sizes.collect::<Vec<_>>(), [("ps", 1), ("worker", 2), ("foo", 5)]);
        let mut grants = originals.clone();
        for info in &mut grants {
            let mut added = TemplateInfo::default();
            added.node_selector.insert("pool".to_owned(), "p".to_owned());
            info.template = Arc::new(added);
        }
        for patch in TF_JOB.run_patch(&TF_JOB.decode(&job).unwrap(), &grants).unwrap() {
            json_patch::merge(&mut job, &patch.at_version("7"));
        }
        for name in ["Foo", "Worker", "PS"] {
            let template = &job["spec"]["tfReplicaSpecs"][name]["template"];
            assert_eq!(template["spec"]["nodeSelector"], json!({"pool": "p"}), "{name}");
        }
        TF_JOB.play(&mut job, &NothingRelated, PlayedState::Started, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(job["status"]["replicaStatuses"]["Foo"]["active"], 5);
        let running = TF_JOB.decode(&job).unwrap();
        for patch in TF_JOB.stop_patches(&running, &originals) {
            json_patch::merge(&mut job, &patch.at_version("7"));
        }
        let stopped = TF_JOB.decode(&job).unwrap();
        assert!(stopped.suspended && TF_JOB.stop_patches(&stopped, &originals).is_empty());
        assert_eq!(pod_set_infos(&TF_JOB.pod_sets(&job).unwrap()).unwrap(), originals);
    }

    #[test]
    fn ranks_of_workers_begin_after_a_launcher_that_works() {
        let job = |works: Value, launcher: Value, worker: Value| json!({"spec": {"runLauncherAsWorker": works, "mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker}}});
        let role = || json!({"template": {"spec": {}}});
        let grouped = json!({"template": {"metadata": {"annotations": {topology::GROUP: "g"}}}});
        let gates = Gates::default();
        let path =
            "spec mpiReplicaSpecs Worker template metadata annotations kueue.x-k8s.io/pod-index-offset";
        for (job, sets) in [
            (job(json!(true), role(), role()), true),
            (job(json!(false), role(), role()), false),
            (job(Value::Null, role(), role()), false),
            (job(json!(true), grouped, role()), false),
            (job(json!(true), Value::Null, role()), false),
            (job(json!(true), role(), Value::Null), false),
            (json!({"spec": {"runLauncherAsWorker": true}}), false),
        ] {
            let changes = MPI_JOB.hooks.defaults(&job, &gates);
            let paths: Vec<String> = changes.iter().map(|change| change.path.join(" ")).collect();
            assert_eq!(paths, if sets { vec![path] } else { vec![] }, "{job}");
            assert!(changes.iter().all(|change| change.value == "1"));
        }
    }
}
