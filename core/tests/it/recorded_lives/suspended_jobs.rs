//! Lives of jobs that can be suspended.
//!
//! Compared: the new Workload but for its priority; at each step the pod sets of a Workload that is not admitted; suspension, counts and templates of the job
//! after the start and stop patches; whether it is ready, its result and its reclaimable pods. The test does what the
//! webhook and the API server do: it suspends the new job.

use super::pod_groups::set_fields;
use super::{KUBEFLOW_KINDS, apply_act, flavors, granted, plain, playable, recorded, scenarios, text};
use serde_json::{Value, json};
use sluice_core::api::validation::Gates;
use sluice_core::frameworks::{
    Framework, JobPatch, JobView, PatchBody, PodSetInfo, Priority, WorkloadRequest, framework, pod_set_infos,
    workload_body,
};

/// Scenarios whose course is decided by more than a row: by name, with the reason.
const NOT_PLAYED: &[(&str, &str)] = &[
    ("-check", "the update of an admission check is merged by the reconciler"),
    ("-topology", "the topology gate is added by the reconciler"),
    ("-prebuilt", "the Workload is made by the user"),
    ("-other-type", "replicas of a type that is not known are charged"),
    ("-metadata-pending", "whether a Workload follows metadata is decided by the reconciler"),
];

/// A job and what it was before its start.
struct Life<'a> {
    row: &'a Framework,
    job: Value,
    originals: Vec<PodSetInfo>,
    name: String,
}

/// Applies a patch as a server does. Every format must be refused for another version.
fn apply(job: &mut Value, patch: &JobPatch) {
    let version = text(&job["metadata"]["resourceVersion"]).to_owned();
    let sent = patch.at_version(&version);
    match patch.body() {
        PatchBody::Merge(_) => {
            assert_eq!(sent["metadata"]["resourceVersion"], json!(version));
            json_patch::merge(job, &sent);
        }
        PatchBody::Json(_) => {
            let operations: json_patch::Patch = serde_json::from_value(sent).unwrap();
            assert_eq!(operations[0].path().to_string(), "/metadata/resourceVersion");
            for operation in operations.iter() {
                // A list of roles is never replaced as a whole.
                assert_ne!(operation.path().to_string(), "/spec/replicatedJobs");
            }
            json_patch::patch(job, &operations).expect("it applies to the version that it was made from");
        }
    }
}

impl Life<'_> {
    /// Does what the recorded Workload demands, and compares.
    fn follow(&mut self, step: &Value) {
        let kind = self.row.gvk.kind;
        let (_, shape) = recorded(step, kind).expect("the job is recorded");
        let mut want = self.job.clone();
        want["spec"] = shape["spec"].clone();
        let want = self.row.decode(&want).unwrap();
        let workload = recorded(step, "Workload");
        if workload.is_none() && !want.suspended {
            // The job is not queued.
            return;
        }
        let view = self.row.decode(&self.job).unwrap();
        if view.suspended && !want.suspended {
            let (name, workload) = workload.unwrap();
            let infos = granted(name, workload, &flavors());
            for patch in self.row.run_patch(&view, &infos).unwrap() {
                apply(&mut self.job, &patch);
            }
        }
        if !view.suspended && want.suspended {
            for patch in self.row.stop_patches(&view, &self.originals) {
                apply(&mut self.job, &patch);
            }
        }
        let view = self.row.decode(&self.job).unwrap();
        let shown = |view: &JobView| {
            let sets = view.pod_sets.iter().map(|set| (set.name.clone(), set.count, set.template.clone()));
            (view.suspended, sets.collect::<Vec<_>>())
        };
        assert_eq!(shown(&view), shown(&want), "{}", self.name);
        if view.suspended {
            // It is restored, so nothing is left to do.
            assert!(self.row.stop_patches(&view, &self.originals).is_empty(), "{}", self.name);
        }
        if let Some((_, workload)) = workload {
            self.compare_workload(workload);
        }
    }

    fn compare_workload(&mut self, workload: &Value) {
        let view = self.row.decode(&self.job).unwrap();
        if view.suspended && workload["admission"].is_null() {
            let pod_sets = self.row.pod_sets(&self.job).unwrap();
            if self.originals.is_empty() {
                self.compare_new_workload(&view, workload);
            }
            self.originals = pod_set_infos(&pod_sets).unwrap();
            assert_eq!(plain(&json!(pod_sets)), plain(&workload["spec"]["podSets"]), "{}", self.name);
        } else if self.originals.is_empty() {
            self.originals = pod_set_infos(workload["spec"]["podSets"].as_array().unwrap()).unwrap();
        }
        let finished = &workload["conditions"]["Finished"];
        let result = view.status.finished.as_ref();
        if let Some(result) = result {
            let reason = if result.success { "Succeeded" } else { "Failed" };
            assert_eq!(finished[1], reason, "{}", self.name);
            // The message is recorded only where it repeats the operator's words.
            if let Some(message) = finished.get(2) {
                assert_eq!(text(message), result.message, "{}", self.name);
            }
        } else {
            assert_ne!(finished[0], "True", "{}", self.name);
            let reclaimable: Vec<Value> = view
                .status
                .reclaimable_pods
                .iter()
                .map(|(name, count)| json!({"count": count, "name": &**name}))
                .collect();
            if !view.suspended {
                assert_eq!(
                    plain(&json!({"p": reclaimable}))["p"],
                    workload["reclaimablePods"],
                    "{}",
                    self.name
                );
                let ready = workload["conditions"]["PodsReady"][0] == "True";
                assert_eq!(view.status.pods_ready, ready, "{}", self.name);
            }
        }
    }
}

impl Life<'_> {
    /// Compares the Workload of a new job, but for its priority, which depends on classes.
    fn compare_new_workload(&self, view: &JobView, workload: &Value) {
        let keys = ["example.com/team".to_owned()];
        let request = WorkloadRequest {
            name: "w",
            queue_name: view.queue_name.as_deref(),
            label_keys_to_copy: &keys,
            priority: &Priority::default(),
            slice: None,
        };
        let body = plain(
            &workload_body(self.row, &self.job, view, self.row.pod_sets(&self.job).unwrap(), &request)
                .unwrap(),
        );
        for field in ["labels", "annotations", "finalizers"] {
            assert_eq!(body["metadata"][field], workload[field], "{} {field}", self.name);
        }
        let owner = &body["metadata"]["ownerReferences"][0];
        for field in ["apiVersion", "kind", "name", "controller"] {
            assert_eq!(owner[field], workload["owners"][0][field], "{}", self.name);
        }
        for field in ["queueName", "active", "maximumExecutionTimeSeconds"] {
            assert_eq!(body["spec"][field], workload["spec"][field], "{} {field}", self.name);
        }
    }
}

/// Plays a scenario. Returns the number of steps that were compared.
fn play(row: &Framework, scenario: &Value) -> usize {
    let plural = format!("/{}", row.gvk.plural);
    let name = text(&scenario["name"]).to_owned();
    let mut life: Option<Life<'_>> = None;
    let mut compared = 0;
    for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        for (act, code) in
            step["acts"].as_array().unwrap().iter().zip(step["expect"]["codes"].as_array().unwrap())
        {
            let path = text(&act["path"]);
            if code.as_u64() >= Some(300) || !path.contains(&plural) {
                continue;
            }
            if act["do"] == "create" {
                let mut job = act["body"].clone();
                job["metadata"]["uid"] =
                    json!(format!("uid({}/{})", row.gvk.kind, text(&job["metadata"]["name"])));
                job["metadata"]["resourceVersion"] = json!("1");
                if let Some(suspend) = row.fields.suspend {
                    set(&mut job, suspend, json!(true));
                }
                let changes = row.hooks.defaults(&job, &Gates::default());
                set_fields(&mut job, &changes);
                life = Some(Life { row, job, originals: Vec::new(), name: String::new() });
            } else if act["do"] == "patch" {
                apply_act(&mut life.as_mut().expect("the job is created first").job, act);
            } else {
                return compared;
            }
        }
        let life = life.as_mut().expect("the job is created first");
        life.name = format!("{name} step {number}: {}", text(&step["note"]));
        life.follow(step);
        compared += 1;
    }
    compared
}

/// Sets a field, creating the objects above it.
pub(super) fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut at = object;
    for part in pointer.trim_start_matches('/').split('/') {
        at = &mut at[part];
    }
    *at = value;
}

fn play_all(recording: &str, group: &str, kind: &str) {
    let scenarios = scenarios(recording);
    let row = framework(group, kind).expect("a row");
    let (mut played, mut steps) = (0, 0);
    for scenario in playable(&scenarios, NOT_PLAYED) {
        steps += play(row, scenario);
        played += 1;
    }
    println!("{kind}: {played} of {} scenarios, {steps} steps", scenarios.len());
    assert!(played > 5);
}

#[test]
fn job_sets_live_as_recorded() {
    play_all("jobset", "jobset.x-k8s.io", "JobSet");
}

#[test]
fn kubeflow_jobs_live_as_recorded() {
    for (recording, kind) in KUBEFLOW_KINDS {
        play_all(recording, "kubeflow.org", kind);
    }
}
