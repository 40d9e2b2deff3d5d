//! The kind TrainJob of Kubeflow Trainer: a runtime, which a TrainJob names, completed by what the TrainJob says. Its pod sets are those
//! of the JobSet that Trainer makes of both.
//!
//! Invariant: its templates are not changed. A start writes an entry of patches of its own, which Trainer merges; entries of others
//! are left alone.

use super::JobError;
use super::hooks::{Hooks, RuleSettings};
use super::job_under_review::JobUnderReview;
use super::jobset::{self, complete_counts};
use super::patch::FieldChange;
use super::played_status::PlayedState;
use super::read::{self, malformed};
use super::related::{Awaited, Beside, Found, PodSets, RelatedKey, RelatedKind};
use super::role_shape::{InjectedFields, RoleShape};
use super::row::{
    Active, CreatedKinds, Enabled, FieldPointers, FinishedRule, Flags, Framework, ManagedBy, Message,
    Pointer, Ready, Reclaimable, Role, StatusFields, Test, TopologyChecks,
};
use super::row_parts::{JOB_FLAGS, JOB_RBAC, JOB_WEBHOOKS};
use super::start_patches::StartPatches;
use super::table::framework;
use super::train_runtime::{MANAGER, PATCHES, job_set};
use super::view::Gvk;
use crate::api::ObjectKey;
use crate::api::validation::{Errors, FieldError, Gate, Gates};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

const GROUP: &str = "trainer.kubeflow.org";
const STATUSES: Pointer = "/status/jobsStatus";
/// What a start writes into its entry.
const REPLICATED_JOBS: Pointer = "/trainingRuntimeSpec/template/spec/replicatedJobs";

const fn runtime(kind: &'static str, plural: &'static str, namespaced: bool) -> RelatedKind {
    RelatedKind { gvk: Gvk { group: GROUP, version: "v1alpha1", kind, plural }, namespaced, in_reviews: true }
}

const RUNTIMES: RelatedKind = runtime("TrainingRuntime", "trainingruntimes", true);
const CLUSTER_RUNTIMES: RelatedKind = runtime("ClusterTrainingRuntime", "clustertrainingruntimes", false);

/// Where an item of patches adds to the pod template of the replicated job that it names.
const INJECTED: InjectedFields = InjectedFields {
    labels: "/template/spec/template/metadata/labels",
    annotations: "/template/spec/template/metadata/annotations",
    node_selector: "/template/spec/template/spec/nodeSelector",
    tolerations: "/template/spec/template/spec/tolerations",
    scheduling_gates: "/template/spec/template/spec/schedulingGates",
};

pub(super) static ROW: Framework = Framework {
    gvk: Gvk { group: GROUP, version: "v1alpha1", kind: "TrainJob", plural: "trainjobs" },
    name: "trainer.kubeflow.org/trainjob",
    short_names: &[],
    enabled: Enabled::AsShipped,
    role: Role::Suspended,
    fields: FieldPointers {
        suspend: Some("/spec/suspend"),
        managed_by: Some(ManagedBy {
            field: "/spec/managedBy",
            built_in: "trainer.kubeflow.org/trainjob-controller",
        }),
        start_time: None,
        server_labels: &[],
        priority_class: None,
        roles: RoleShape::Patched(INJECTED),
    },
    pod_sets: &[],
    related: &[RUNTIMES, CLUSTER_RUNTIMES],
    // Its pods are those of a JobSet with its name.
    pods: jobset::POD_LABELS,
    status: StatusFields {
        finished: &[
            FinishedRule { when: Test::Condition("Complete"), success: true, message: Message::OfCondition },
            FinishedRule { when: Test::Condition("Failed"), success: false, message: Message::OfCondition },
        ],
        active: Active::SumOver(STATUSES, "/active"),
        ready: Ready::SubGroupsOf(STATUSES),
        reclaimable: Reclaimable::SubGroupsOf(STATUSES),
    },
    creates: CreatedKinds::Only(&[("jobset.x-k8s.io", "JobSet")]),
    webhooks: JOB_WEBHOOKS,
    rbac: JOB_RBAC,
    flags: Flags {
        pod_sets_from_spec: false,
        completed_pod_sets: true,
        topology_checks: TopologyChecks::Templates,
        ..JOB_FLAGS
    },
    hooks: &TrainJob,
};

/// Additions to the row.
#[derive(Debug)]
struct TrainJob;

impl Hooks for TrainJob {
    fn related(&self, job: &Value) -> Result<Vec<RelatedKey>, JobError> {
        Ok(vec![runtime_of(job)?])
    }

    fn complete_pod_sets(
        &self,
        job: &Value,
        _pod_sets: Vec<Value>,
        beside: Beside<'_>,
    ) -> Result<PodSets, JobError> {
        let object = runtime_of(job)?;
        let problem = match beside.related.find(&object) {
            Found::NotYet => None,
            Found::Missing => Some("does not exist".to_owned()),
            Found::Object(runtime) => match job_set(job, runtime).and_then(|job_set| pod_sets_of(&job_set)) {
                Ok(sets) => return Ok(PodSets::Known(sets)),
                Err(error) => Some(error.to_string()),
            },
        };
        Ok(PodSets::Await(Awaited { object, problem }))
    }

    fn start_patches(&self, job: &Value) -> Result<Option<StartPatches>, JobError> {
        entry_of_manager(job).map(Some)
    }

    fn play(&self, job: &mut Value, _state: PlayedState, _now: Timestamp) -> Result<(), JobError> {
        complete_counts(job, STATUSES);
        Ok(())
    }

    fn reviewed_parts(&self) -> &'static [Pointer] {
        &["/spec/runtimeRef", "/spec/trainer", "/spec/initializer", PATCHES]
    }

    /// Adds the entry to which a start writes, so that it comes after those of the user: a later one would replace the tolerations of
    /// the flavor. In a copy of a job that was started it is emptied: what another start added would hold the pods.
    fn defaults(&self, job: &Value, _gates: &Gates) -> Vec<FieldChange> {
        let Ok(entries) = read::list(job, PATCHES) else { return Vec::new() };
        let wanted = entry_last(entries);
        if wanted == entries {
            return Vec::new();
        }
        vec![FieldChange::new(&["spec", "runtimePatches"], Value::Array(wanted))]
    }

    /// Refuses a TrainJob whose pods no runtime describes. An absent runtime does not stop a change: it may have gone since.
    fn validate_change(
        &self,
        job: &JobUnderReview<'_>,
        old: Option<&JobUnderReview<'_>>,
        settings: RuleSettings<'_>,
        errors: &mut Errors,
    ) {
        if old.is_some() || !settings.gates.is_enabled(Gate::TopologyAwareScheduling) {
            return;
        }
        let object = job.value("").unwrap_or(&Value::Null);
        let problem = match runtime_of(object) {
            Ok(runtime) if settings.related.find(&runtime) != Found::Missing => return,
            Ok(runtime) => format!("{runtime} does not exist"),
            Err(JobError::Malformed { path, problem }) => {
                return errors.push(FieldError::invalid_unshown(path, problem));
            }
            Err(error) => error.to_string(),
        };
        errors.push(FieldError::invalid_unshown("spec.runtimeRef", problem));
    }

    fn place_under_review(&self, pod_set: &str) -> Option<String> {
        Some(format!("job[{pod_set}]"))
    }
}

/// Returns the pod sets of a JobSet.
fn pod_sets_of(job_set: &Value) -> Result<Vec<Value>, JobError> {
    framework("jobset.x-k8s.io", "JobSet").map_or(Ok(Vec::new()), |row| row.pod_sets(job_set))
}

/// Returns the runtime of a TrainJob.
fn runtime_of(job: &Value) -> Result<RelatedKey, JobError> {
    let text = |field: &str| read::string(job, &format!("/spec/runtimeRef/{field}"));
    let group = text("apiGroup")?.unwrap_or(GROUP);
    let kind = text("kind")?.unwrap_or(CLUSTER_RUNTIMES.gvk.kind);
    let name = text("name")?.ok_or_else(|| malformed("/spec/runtimeRef/name", "is required"))?;
    let known =
        [RUNTIMES, CLUSTER_RUNTIMES].into_iter().find(|known| (group, kind) == (GROUP, known.gvk.kind));
    let kind = known.ok_or_else(|| {
        malformed(
            "/spec/runtimeRef",
            format!("names a kind of runtime that is not supported: {kind}.{group}"),
        )
    })?;
    let namespace = read::string(job, "/metadata/namespace")?.filter(|_| kind.namespaced);
    let key = ObjectKey { namespace: Arc::from(namespace.unwrap_or_default()), name: Arc::from(name) };
    Ok(RelatedKey { kind, key })
}

fn is_of_manager(entry: &Value) -> bool {
    entry.get("manager").is_some_and(|manager| manager == MANAGER)
}

fn empty_entry() -> Value {
    json!({"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}})
}

/// Returns where a start writes in a TrainJob, and what it has written there. A start moves its entry behind those that other
/// clients added since: their tolerations would replace those of the flavor.
fn entry_of_manager(job: &Value) -> Result<StartPatches, JobError> {
    let entries = read::list(job, PATCHES)?;
    let is_in_place = |at: &usize| at.saturating_add(1) == entries.len() || is_written(entries.get(*at));
    let in_place = entries.iter().position(is_of_manager).filter(is_in_place);
    let (index, missing) = if let Some(index) = in_place {
        (index, missing_below(job, &format!("{PATCHES}/{index}")))
    } else {
        let ordered = entry_last(entries);
        (ordered.len().saturating_sub(1), Some((PATCHES.to_owned(), Value::Array(ordered))))
    };
    StartPatches::read(job, format!("{PATCHES}/{index}{REPLICATED_JOBS}"), missing, &INJECTED)
}

/// Returns the entries with an empty one for a start behind those of others.
fn entry_last(entries: &[Value]) -> Vec<Value> {
    let others = entries.iter().filter(|entry| !is_of_manager(entry)).cloned();
    others.chain([empty_entry()]).collect()
}

/// Returns whether a start has written to its entry.
fn is_written(entry: Option<&Value>) -> bool {
    let written = entry.and_then(|entry| entry.pointer(REPLICATED_JOBS)?.as_array());
    written.is_some_and(|list| !list.is_empty())
}

/// Returns the first field that is missing above the list of patches in an entry, with what is below it.
fn missing_below(job: &Value, entry: &str) -> Option<(String, Value)> {
    let levels = [
        ("trainingRuntimeSpec", json!({"template": {"spec": {}}})),
        ("trainingRuntimeSpec/template", json!({"spec": {}})),
        ("trainingRuntimeSpec/template/spec", json!({})),
    ];
    let mut levels = levels.into_iter().map(|(level, value)| (format!("{entry}/{level}"), value));
    levels.find(|(pointer, _)| !job.pointer(pointer).is_some_and(Value::is_object))
}

#[cfg(test)]
mod tests {
    use super::super::{JobPatch, JobView, PodSetInfo, Related, TemplateInfo, pod_set_infos};
    use super::*;

    /// A cluster with one runtime, or with none.
    #[derive(Debug)]
    struct Cluster(Option<Value>);

    impl Related for Cluster {
        fn find(&self, object: &RelatedKey) -> Found<'_> {
            let wanted = (object.kind, &*object.key.namespace, &*object.key.name) == (RUNTIMES, "ns", "r");
            self.0.as_ref().filter(|_| wanted).map_or(Found::Missing, Found::Object)
        }
    }

    fn cluster(cpu: &str) -> Cluster {
        let template = json!({"spec": {"tolerations": [{"key": "own", "operator": "Exists"}], "containers": [
            {"name": "node", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}});
        let jobs = json!([{"name": "node", "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": template}}}]);
        Cluster(Some(
            json!({"spec": {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": jobs}}}}),
        ))
    }

    fn job() -> Value {
        let metadata =
            json!({"namespace": "ns", "name": "j", "uid": "u", "generation": 1, "resourceVersion": "7"});
        json!({"metadata": metadata, "spec": {"suspend": true, "runtimeRef": {"kind": "TrainingRuntime", "name": "r"}}})
    }

    fn view(job: &Value, before: Option<&JobView>, cluster: &Cluster) -> JobView {
        ROW.decode_after(job, before, Beside::of(cluster)).unwrap()
    }

    fn grants(job: &Value, cluster: &Cluster) -> Vec<PodSetInfo> {
        let PodSets::Known(sets) = ROW.pod_sets_with(job, Beside::of(cluster)).unwrap() else {
            panic!("{job}")
        };
        let mut infos = pod_set_infos(&sets).unwrap();
        for info in &mut infos {
            let mut added = TemplateInfo::default();
            added.annotations.insert("kueue.x-k8s.io/workload".to_owned(), "w".to_owned());
            added.node_selector.insert("zone".to_owned(), "z".to_owned());
            added.tolerations =
                serde_json::from_value(json!([{"key": "flavor", "operator": "Exists"}])).unwrap();
            added.scheduling_gates.push("kueue.x-k8s.io/topology".to_owned());
            info.template = Arc::new(added);
        }
        infos
    }

    fn apply(job: &mut Value, patches: &[JobPatch]) {
        for patch in patches {
            patch.apply(job);
        }
        job["metadata"]["generation"] = json!(job["metadata"]["generation"].as_i64().unwrap() + 1);
    }

    fn with_entries(entries: Value) -> Value {
        let mut job = job();
        job["spec"]["runtimePatches"] = entries;
        job
    }

    #[test]
    fn start_is_one_write_and_stop_undoes_it_when_no_pod_is_left() {
        let other = json!({"manager": "example.com/other"});
        let empty = empty_entry();
        let cluster = cluster("1");
        for (entries, stopped) in [
            (json!([other, empty]), json!([other, empty])),
            // No webhook has added the entry, or a client has emptied it.
            (json!([other]), json!([other, empty])),
            (json!([{"manager": MANAGER}, other]), json!([other, empty])),
            (json!([{"manager": MANAGER, "trainingRuntimeSpec": {"template": null}}]), json!([empty])),
            (json!([]), json!([empty])),
            (Value::Null, json!([empty])),
        ] {
            let mut job = with_entries(entries);
            let start = ROW.run_patch(&view(&job, None, &cluster), &grants(&job, &cluster)).unwrap();
            assert_eq!(start.len(), 1);
            apply(&mut job, &start);
            let item = json!({"name": "node", "template": {"spec": {"template": {
                "metadata": {"annotations": {"kueue.x-k8s.io/workload": "w"}, "labels": {"kueue.x-k8s.io/podset": "node"}},
                "spec": {"nodeSelector": {"zone": "z"}, "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
                    "tolerations": [{"key": "own", "operator": "Exists"}, {"key": "flavor", "operator": "Exists"}]}}}}});
            let entries = job["spec"]["runtimePatches"].as_array().unwrap().clone();
            let entry = entries.iter().find(|entry| is_of_manager(entry)).unwrap();
            assert_eq!(entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"], json!([item]));
            assert_eq!(job["spec"]["suspend"], false);

            let mut running = view(&job, None, &cluster);
            let pod_sets = running.pod_sets.iter().map(|set| (&*set.name, set.count)).collect::<Vec<_>>();
            assert_eq!(pod_sets, [("node", 2)], "what a start writes is not part of the pod sets");
            assert_eq!(running.options.patches.as_ref().unwrap().started_by(), Some("w"));
            running.status.active_pods = 1;
            let suspend = ROW.stop_patches(&running, &[]);
            apply(&mut job, &suspend);
            assert_eq!(job["spec"]["suspend"], true);
            let mut ending = view(&job, Some(&running), &cluster);
            ending.status.active_pods = 1;
            assert!(ROW.stop_patches(&ending, &[]).is_empty(), "its controller would refuse the change");
            // Whether the runtime is known does not matter.
            ending = view(&job, None, &Cluster(None));
            apply(&mut job, &ROW.stop_patches(&ending, &[]));
            assert!(ROW.stop_patches(&view(&job, None, &cluster), &[]).is_empty());
            assert_eq!(job["spec"]["runtimePatches"], stopped);
        }
    }

    /// Trainer makes the pods when the job starts.
    #[test]
    fn change_of_the_runtime_does_not_concern_a_job_that_runs() {
        let requests = |view: &JobView| view.pod_sets.iter().map(|set| set.fingerprint).collect::<Vec<_>>();
        let (one, two, none) = (cluster("1"), cluster("2"), Cluster(None));
        let mut job = job();
        let queued = view(&job, None, &one);
        let changed = view(&job, Some(&queued), &two);
        assert_ne!(requests(&changed), requests(&queued), "a queued job follows its runtime");
        job["spec"]["suspend"] = json!(false);
        job["metadata"]["generation"] = json!(2);
        let running = view(&job, Some(&queued), &one);
        assert!(!running.related.changed_since_start);
        for later in [&two, &none] {
            let same = view(&job, Some(&running), later);
            assert_eq!((requests(&same), &same.related.waits_for), (requests(&running), &None));
        }
        // A new manager cannot know, whether it reads the runtime or the job first.
        assert!(view(&job, None, &two).related.changed_since_start);
        let unread = view(&job, None, &none);
        assert!(unread.related.waits_for.is_some());
        assert!(view(&job, Some(&unread), &two).related.changed_since_start);
        // Its user has changed it.
        job["metadata"]["generation"] = json!(4);
        let edited = view(&job, Some(&running), &two);
        assert!(requests(&edited) == requests(&changed) && !edited.related.changed_since_start);
    }

    #[test]
    fn job_awaits_a_runtime_that_is_absent_or_cannot_be_rendered() {
        let awaited = |cluster: &Cluster| view(&job(), None, cluster).related.waits_for.unwrap().to_string();
        assert_eq!(awaited(&Cluster(None)), "TrainingRuntime ns/r does not exist");
        let broken = json!({"spec": {"template": {"spec": {"replicatedJobs": [{"template": {}}]}}}});
        assert_eq!(
            awaited(&Cluster(Some(broken))),
            "TrainingRuntime ns/r spec.replicatedJobs[0].name: is required"
        );
        let mut foreign = job();
        foreign["spec"]["runtimeRef"]["apiGroup"] = json!("example.com");
        let error = ROW.decode_after(&foreign, None, Beside::of(&cluster("1"))).unwrap_err().to_string();
        let wanted =
            "spec.runtimeRef: names a kind of runtime that is not supported: TrainingRuntime.example.com";
        assert_eq!(error, wanted);
    }

    #[test]
    fn webhook_adds_the_entry_of_a_start_once_and_last() {
        let added = |entries: Value| ROW.hooks.defaults(&with_entries(entries), &Gates::default());
        let other = json!({"manager": "example.com/other"});
        let of = |entries: Value| vec![FieldChange::new(&["spec", "runtimePatches"], entries)];
        assert_eq!(added(Value::Null), of(json!([empty_entry()])));
        assert_eq!(added(json!([other])), of(json!([other, empty_entry()])));
        let started = json!({"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{}]}}}});
        assert_eq!(added(json!([started, other])), of(json!([other, empty_entry()])));
        assert_eq!(added(json!([empty_entry(), other])), of(json!([other, empty_entry()])));
        assert_eq!(added(json!([other, empty_entry()])), []);
        assert_eq!(added(json!("text")), []);
    }

    #[test]
    fn child_jobs_are_counted_by_the_rendered_roles() {
        let mut job = job();
        job["status"]["jobsStatus"] = json!([{"name": "node", "succeeded": 1, "active": 0}]);
        let status = view(&job, None, &cluster("1")).status;
        assert_eq!((status.pods_ready, status.reclaimable_pods), (true, vec![(Arc::from("node"), 2)]));
        assert!(!view(&job, None, &Cluster(None)).status.pods_ready);
    }
}
