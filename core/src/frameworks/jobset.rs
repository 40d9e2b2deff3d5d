//! The kind JobSet: a pod set for each of its replicated jobs. Its row says everything but what its schema requires of a status.
//!
//! Its status counts child Jobs, not pods: `ready`, `succeeded` and `active` of a replicated job are numbers of Jobs.

use super::JobError;
use super::batch_job::COMPLETION_INDEX;
use super::hooks::Hooks;
use super::played_status::PlayedState;
use super::role_shape::RoleShape;
use super::row::{
    Active, Count, CreatedKinds, Enabled, FieldPointers, FinishedRule, Framework, ManagedBy, Message,
    PodLabel, PodLabels, PodSetSource, Pointer, Rank, Ready, Reclaimable, Role, StatusFields, SubGroups,
    Test,
};
use super::row_parts::{JOB, JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS, NAME};
use super::view::Gvk;
use jiff::Timestamp;
use serde_json::Value;

const STATUSES: &str = "/status/replicatedJobsStatus";

/// Labels of pods of a JobSet.
pub(super) const POD_LABELS: PodLabels = PodLabels {
    selector: Some(&[PodLabel { key: "jobset.sigs.k8s.io/jobset-name", value: NAME }]),
    rank: Rank {
        index_label: Some(COMPLETION_INDEX),
        sub_groups: Some(SubGroups { label: "jobset.sigs.k8s.io/job-index", count: "/replicas" }),
    },
};

pub(super) static ROW: Framework = Framework {
    gvk: Gvk { group: "jobset.x-k8s.io", version: "v1alpha2", kind: "JobSet", plural: "jobsets" },
    name: "jobset.x-k8s.io/jobset",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::Suspended,
    fields: FieldPointers {
        suspend: Some("/spec/suspend"),
        managed_by: Some(ManagedBy {
            field: "/spec/managedBy",
            built_in: "jobset.sigs.k8s.io/jobset-controller",
        }),
        start_time: None,
        server_labels: &[],
        priority_class: None,
        roles: RoleShape::Template,
    },
    pod_sets: &[PodSetSource::Array {
        list: "/spec/replicatedJobs",
        name: "/name",
        template: "/template/spec/template",
        count: Count::Product(
            &Count::Field("/replicas"),
            &Count::Job {
                parallelism: "/template/spec/parallelism",
                completions: "/template/spec/completions",
            },
        ),
    }],
    related: &[],
    pods: POD_LABELS,
    status: StatusFields {
        finished: &[
            FinishedRule { when: Test::Condition("Completed"), success: true, message: Message::OfCondition },
            FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
        ],
        active: Active::SumOver(STATUSES, "/active"),
        ready: Ready::SubGroupsOf(STATUSES),
        reclaimable: Reclaimable::SubGroupsOf(STATUSES),
    },
    creates: CreatedKinds::Only(&[JOB]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: JOB_FLAGS,
    hooks: &JobSet,
};

/// Additions to the row.
#[derive(Debug)]
struct JobSet;

impl Hooks for JobSet {
    fn play(&self, job: &mut Value, _state: PlayedState, _now: Timestamp) -> Result<(), JobError> {
        complete_counts(job, STATUSES);
        Ok(())
    }
}

/// Adds the counts that are missing in a played list of replicated jobs: the schema requires all of them.
pub(super) fn complete_counts(job: &mut Value, list: Pointer) {
    let entries = job.pointer_mut(list).and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        for count in ["ready", "succeeded", "failed", "active", "suspended"] {
            entry.entry(count).or_insert(Value::from(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{JobPatch, PodSetInfo, pod_set_infos};
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    /// A suspended JobSet whose first template has no metadata.
    fn job_set() -> Value {
        let template = |replicas: i32, spec: Value| json!({"name": if replicas == 2 { "a" } else { "b" }, "replicas": replicas, "template": {"spec": spec}});
        let pods = json!({"spec": {"containers": [{"name": "c"}], "tolerations": [{"key": "t", "operator": "Exists"}]}});
        let marked =
            json!({"metadata": {"annotations": {"own": "1"}}, "spec": {"containers": [{"name": "c"}]}});
        json!({
            "metadata": {"namespace": "ns", "name": "j", "uid": "u", "resourceVersion": "7"},
            "spec": {"suspend": true, "replicatedJobs": [
                template(2, json!({"parallelism": 3, "completions": 2, "template": pods})),
                template(1, json!({"template": marked})),
            ]},
        })
    }

    fn grants(job: &Value) -> Vec<PodSetInfo> {
        let mut infos = pod_set_infos(&ROW.pod_sets(job).unwrap()).unwrap();
        for info in &mut infos {
            let mut template = super::super::TemplateInfo::default();
            template.node_selector.insert("zone".to_owned(), "z".to_owned());
            template.annotations.insert("workload".to_owned(), "w".to_owned());
            info.template = Arc::new(template);
        }
        infos
    }

    fn apply(job: &mut Value, patches: &[JobPatch]) {
        for patch in patches {
            patch.apply(job);
        }
    }

    #[test]
    fn counts_and_reclaimable_pods() {
        let mut job = job_set();
        job["status"]["replicatedJobsStatus"] =
            json!([{"name": "a", "ready": 1, "succeeded": 1, "active": 0}]);
        let view = ROW.decode(&job).unwrap();
        let counts: Vec<(&str, i32)> = view.pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
        assert_eq!(counts, [("a", 4), ("b", 1)]);
        assert_eq!(view.status.reclaimable_pods, [(Arc::from("a"), 2)]);
        assert!(!view.status.pods_ready && view.status.active_pods == 0);
        job["status"]["replicatedJobsStatus"][0]["ready"] = json!(2);
        assert!(ROW.decode(&job).unwrap().status.pods_ready);
    }

    #[test]
    fn start_then_stop_restores_templates_without_metadata() {
        let before = job_set();
        let mut job = before.clone();
        let originals = pod_set_infos(&ROW.pod_sets(&job).unwrap()).unwrap();
        let patches = ROW.run_patch(&ROW.decode(&job).unwrap(), &grants(&job)).unwrap();
        assert_eq!(patches.len(), 1);
        apply(&mut job, &patches);
        let template = &job["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
        assert_eq!(template["metadata"]["labels"]["kueue.x-k8s.io/podset"], "a");
        assert_eq!(template["spec"]["nodeSelector"]["zone"], "z");
        let running = ROW.decode(&job).unwrap();
        assert!(!running.suspended);
        let patches = ROW.stop_patches(&running, &originals);
        assert_eq!(patches.len(), 1, "one write suspends and restores");
        apply(&mut job, &patches);
        let stopped = ROW.decode(&job).unwrap();
        assert!(stopped.suspended && ROW.stop_patches(&stopped, &originals).is_empty());
        let empty = job.pointer_mut("/spec/replicatedJobs/0/template/spec/template").unwrap();
        assert_eq!(empty.as_object_mut().unwrap().shift_remove("metadata"), Some(json!({})));
        assert_eq!(job, before);
    }

    /// A role that was removed has nothing to restore; the start of a JobSet that lacks it is refused.
    #[test]
    fn stop_restores_the_roles_that_are_left() {
        let mut job = job_set();
        let before = job["spec"]["replicatedJobs"][0].clone();
        let originals = pod_set_infos(&ROW.pod_sets(&job).unwrap()).unwrap();
        let infos = grants(&job);
        let start = ROW.run_patch(&ROW.decode(&job).unwrap(), &infos).unwrap();
        apply(&mut job, &start);
        assert_ne!(job["spec"]["replicatedJobs"][0], before);
        job["spec"]["replicatedJobs"].as_array_mut().unwrap().pop();
        let stop = ROW.stop_patches(&ROW.decode(&job).unwrap(), &originals);
        apply(&mut job, &stop);
        let left = &mut job["spec"]["replicatedJobs"][0];
        let metadata = left.pointer_mut("/template/spec/template").and_then(Value::as_object_mut).unwrap();
        assert_eq!(metadata.shift_remove("metadata"), Some(json!({})));
        let left = left.clone();
        assert_eq!((&left, &job["spec"]["suspend"]), (&before, &json!(true)));
        let mismatch = ROW.run_patch(&ROW.decode(&job).unwrap(), &infos);
        assert_eq!(mismatch, Err(JobError::PodSetMismatch { name: "b".to_owned() }));
    }

    /// Without this a start could write to another role after the array was reordered.
    #[test]
    fn patch_names_version() {
        let job = job_set();
        let patch = ROW.run_patch(&ROW.decode(&job).unwrap(), &grants(&job)).unwrap().remove(0);
        let version = json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"});
        assert_eq!(patch.at_version("7")[0], version);
    }
}
