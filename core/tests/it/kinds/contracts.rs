//! Contract of every job kind, checked for each row of the table.

use crate::fixtures::job_samples::{RelatedSamples, decode, stored, with_template};
use jiff::Timestamp;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};
use sluice_core::api::validation::Gates;
use sluice_core::frameworks::{
    Beside, Elastic, Framework, JobError, JobPatch, JobView, PatchBody, PlayedState, PodSetView, PodSets,
    Priority, Role, TemplateInfo, WorkloadRequest, frameworks, pod_set_fingerprint, pod_set_infos,
    workload_body,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the kinds that a field suspends. The rules of pods are tested in `recorded_lives` and `unit_pods`.
fn suspended() -> impl Iterator<Item = &'static Framework> {
    frameworks().filter(|row| row.role == Role::Suspended)
}

fn plain_template() -> Value {
    json!({
        "metadata": { "labels": { "job-name": "train", "app": "x" } },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{ "name": "c", "image": "x", "env": [{ "name": "A", "value": "1" },
                    { "name": "B", "value": "$(A)" }, { "name": "A", "value": "2" }],
                "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }],
        },
    })
}

fn map(prefix: &'static str) -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map((0..6_u8).prop_map(move |n| format!("{prefix}{n}")), "[a-z]{1,3}", 0..4)
}

fn tolerations() -> impl Strategy<Value = Vec<Value>> {
    let toleration = (0..4_u8, any::<bool>()).prop_map(|(key, exists)| {
        if exists {
            json!({ "key": format!("t{key}"), "operator": "Exists" })
        } else {
            json!({ "key": format!("t{key}"), "operator": "Equal", "value": "v", "effect": "NoSchedule" })
        }
    });
    proptest::collection::vec(toleration, 0..3)
}

prop_compose! {
    /// A template as a server returns it: empty collections are absent, and the labels that the server adds are present.
    fn template()(
        labels in map("l"), annotations in map("a"), selector in map("n"), tolerations in tolerations(),
        gated in any::<bool>(),
    ) -> Value {
        let mut template = plain_template();
        // Labels that the server adds to the template of a Job must survive as well.
        template["metadata"]["labels"]["controller-uid"] = json!("0c8e0f4b");
        template["metadata"]["labels"].as_object_mut().unwrap()
            .extend(labels.into_iter().map(|(key, value)| (key, json!(value))));
        if !annotations.is_empty() {
            template["metadata"]["annotations"] = json!(annotations);
        }
        if !selector.is_empty() {
            template["spec"]["nodeSelector"] = json!(selector);
        }
        if !tolerations.is_empty() {
            template["spec"]["tolerations"] = json!(tolerations);
        }
        if gated {
            template["spec"]["schedulingGates"] = json!([{ "name": "example.com/own" }]);
        }
        template
    }
}

prop_compose! {
    fn addition()(
        labels in map("l"), annotations in map("a"), node_selector in map("n"), tolerations in tolerations(),
        gated in any::<bool>(),
    ) -> TemplateInfo {
        TemplateInfo {
            labels, annotations, node_selector,
            tolerations: tolerations.into_iter().map(|raw| serde_json::from_value(raw).unwrap()).collect(),
            scheduling_gates: if gated { vec!["kueue.x-k8s.io/topology".to_owned()] } else { Vec::new() },
        }
    }
}

fn merge_patch(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().shift_remove(name);
        } else {
            merge_patch(&mut target[name.as_str()], value);
        }
    }
}

/// Returns the pod sets of a job for its Workload.
fn made_pod_sets(kind: &Framework, job: &Value) -> Result<Vec<Value>, JobError> {
    match kind.pod_sets_with(job, Beside::of(&RelatedSamples))? {
        PodSets::Known(sets) => Ok(sets),
        PodSets::Await(awaited) => {
            Err(JobError::Malformed { path: String::new(), problem: awaited.to_string() })
        }
    }
}

/// Returns where the sample has its first pod template, whether a start writes there or not.
fn first_template(kind: &Framework, job: &Value) -> Option<String> {
    let wrapped = "/spec/components/0/template/spec/template";
    let listed = kind.fields.roles.is_listed().then(|| wrapped.to_owned());
    listed.or_else(|| kind.template_pointers(job).into_iter().next())
}

/// Returns the pod templates of a job.
fn templates(kind: &Framework, job: &Value) -> Vec<Value> {
    let pointers = kind.template_pointers(job);
    pointers.iter().map(|pointer| job.pointer(pointer).unwrap().clone()).collect()
}

/// Applies patches as a server does. The templates of a started job are immutable if its kind says when it started.
fn apply_patches(kind: &Framework, job: &mut Value, patches: &[JobPatch]) {
    for patch in patches {
        let started = kind
            .fields
            .start_time
            .map(|pointer| !decode(kind, job).unwrap().suspended || job.pointer(pointer).is_some());
        let before = templates(kind, job);
        match patch.body() {
            PatchBody::Merge(body) => {
                assert_eq!(patch.status, body.get("status").is_some());
                merge_patch(job, body);
            }
            PatchBody::Json(operations) => {
                let operations: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
                json_patch::patch(job, &operations).unwrap();
            }
        }
        let changed = templates(kind, job) != before;
        assert!(started != Some(true) || !changed, "the template of a started job is immutable");
    }
}

/// Removes empty maps from the templates, which the server does not store, and the status.
fn comparable(kind: &Framework, job: &Value) -> Value {
    let mut job = job.clone();
    if kind.fields.roles.described().is_some() {
        remove_empty_maps(&mut job["spec"]);
    }
    for pointer in kind.template_pointers(&job) {
        let template = job.pointer_mut(&pointer).unwrap();
        for fields in ["metadata", "spec"] {
            if let Some(map) = template[fields].as_object_mut() {
                map.retain(|_, field| field.as_object().is_none_or(|map| !map.is_empty()));
            }
        }
        template
            .as_object_mut()
            .unwrap()
            .retain(|_, field| field.as_object().is_none_or(|map| !map.is_empty()));
    }
    job["status"] = json!({});
    without_empty_entry(kind, job)
}

/// Removes the place for patches that the webhook adds to a job, or else the start, if it is empty.
fn without_empty_entry(kind: &Framework, mut job: Value) -> Value {
    if kind.fields.roles.is_decided_at_start() {
        let added = kind.hooks.defaults(&stored(kind), &Gates::default());
        let entries = added.first().map(|change| &change.value);
        if job.pointer("/spec/runtimePatches") == entries {
            job["spec"].as_object_mut().unwrap().shift_remove("runtimePatches");
        }
    }
    job
}

fn remove_empty_maps(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.values_mut().for_each(remove_empty_maps);
    fields.retain(|_, field| field.as_object().is_none_or(|map| !map.is_empty()));
}

fn play(kind: &Framework, job: &mut Value, state: PlayedState) {
    let now: Timestamp = "2026-01-02T03:05:00Z".parse().unwrap();
    kind.play(job, &RelatedSamples, state, now).unwrap();
}

/// Removes the pods of a suspended job, as its controller does; before Kubernetes 1.36 a Job keeps its start time.
fn remove_pods(kind: &Framework, job: &mut Value) {
    let started = kind.fields.start_time.and_then(|pointer| {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        Some((parent, field, job.pointer(pointer)?.clone()))
    });
    play(kind, job, PlayedState::Stopped);
    if let Some((parent, field, time)) = started {
        job.pointer_mut(parent).unwrap()[field] = time;
    }
}

fn stop_job(kind: &Framework, job: &mut Value, originals: &[Value]) {
    let infos = pod_set_infos(originals).unwrap();
    for _ in 0..6 {
        let view = decode(kind, job).unwrap();
        let patches = kind.stop_patches(&view, &infos);
        apply_patches(kind, job, &patches);
        if view.status.active_pods > 0 {
            remove_pods(kind, job);
        } else if patches.is_empty() {
            return;
        }
    }
    panic!("stopping does not terminate");
}

proptest! {
    #[test]
    fn start_then_stop_restores_job(template in template(), added in addition(), fewer in 2..=3_i32) {
        for kind in suspended() {
            let before = with_template(kind, &template);
            let mut job = before.clone();
            let stored = made_pod_sets(kind, &job).unwrap();
            let view = decode(kind, &job).unwrap();
            let mut infos = pod_set_infos(&stored).unwrap();
            for (info, set) in infos.iter_mut().zip(&view.pod_sets) {
                info.template = Arc::new(added.clone());
                info.count = set.min_count.map_or(set.count, |_| fewer);
            }
            let Ok(patches) = kind.run_patch(&view, &infos) else {
                let conflicts = |set: &PodSetView| (*set.template).clone().merge(&added).is_err();
                prop_assert!(view.pod_sets.iter().any(conflicts));
                continue;
            };
            apply_patches(kind, &mut job, &patches);
            play(kind, &mut job, PlayedState::Started);
            let running = decode(kind, &job).unwrap();
            prop_assert!(!running.suspended && running.status.active_pods > 0);
            for ((set, info), was) in running.pod_sets.iter().zip(&infos).zip(&view.pod_sets) {
                prop_assert_eq!(set.count, info.count);
                prop_assert_eq!(set.fingerprint, was.fingerprint);
            }
            prop_assert_eq!(kind.run_patch(&running, &infos).unwrap(), vec![]);
            stop_job(kind, &mut job, &stored);
            prop_assert_eq!(comparable(kind, &job), comparable(kind, &before));
        }
    }

    #[test]
    fn decoding_damaged_object_never_panics(cuts in proptest::collection::vec((any::<Index>(), 0..6_u8), 1..4)) {
        for kind in suspended() {
            let mut job = with_template(kind, &plain_template());
            play(kind, &mut job, PlayedState::Ready);
            for (index, damage) in &cuts {
                let paths = pointers(&job);
                let path = &paths[index.index(paths.len())];
                *job.pointer_mut(path).unwrap() = match damage {
                    0 => Value::Null,
                    1 => json!(-1),
                    2 => json!("x"),
                    3 => json!([1, {}]),
                    4 => json!({ "a": null }),
                    _ => json!(9.5e300),
                };
            }
            if let Ok(view) = decode(kind, &job) {
                let _ = kind.run_patch(&view, &[]);
                let _ = kind.stop_patches(&view, &[]);
                let priority = Priority::default();
                let keys = ["team".to_owned()];
                let request = WorkloadRequest { name: "w", queue_name: None, label_keys_to_copy: &keys, priority: &priority, slice: None };
                let pod_sets = made_pod_sets(kind, &job);
                let _ = pod_sets.map(|sets| workload_body(kind, &job, &view, sets, &request));
            }
            let _ = made_pod_sets(kind, &job);
        }
    }
}

fn pointers(value: &Value) -> Vec<String> {
    let escape = |key: &str| key.replace('~', "~0").replace('/', "~1");
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| (escape(key), value)).collect(),
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => Vec::new(),
    };
    let deeper = below
        .iter()
        .flat_map(|(key, value)| pointers(value).into_iter().map(move |rest| format!("/{key}{rest}")));
    std::iter::once(String::new()).chain(deeper).collect()
}

/// A start gives the templates of an elastic job the gate that holds its pods, and takes it from those of others: nothing would
/// take it from their pods. A stop restores both.
#[test]
fn start_sets_elastic_job_gate() {
    let gate = json!({ "name": "kueue.x-k8s.io/elastic-job" });
    let own = json!({ "name": "example.com/own" });
    let cases = suspended().flat_map(|kind| {
        [(kind, false, false), (kind, false, true), (kind, true, false), (kind, true, true)]
    });
    for (kind, elastic, gated) in cases {
        let mut template = plain_template();
        template["spec"]["schedulingGates"] = if gated { json!([gate, own]) } else { json!([own]) };
        let mut job = with_template(kind, &template);
        if elastic {
            job["metadata"]["annotations"]["kueue.x-k8s.io/elastic-job"] = json!("true");
        }
        let before = job.clone();
        let stored = made_pod_sets(kind, &job).unwrap();
        let mut infos = pod_set_infos(&stored).unwrap();
        for info in &mut infos {
            info.template = Arc::default();
        }
        let patches = kind.run_patch(&decode(kind, &job).unwrap(), &infos).unwrap();
        apply_patches(kind, &mut job, &patches);
        let held = match kind.flags.elastic {
            Elastic::No => false,
            Elastic::GatedTemplates => elastic,
            // The gate that a user has set goes to the child, which has it anyway.
            Elastic::GatedByChild => elastic && gated,
        };
        for template in templates(kind, &job) {
            let gates = template["spec"]["schedulingGates"].as_array().unwrap();
            assert_eq!(gates.contains(&gate), held);
            assert!(gates.contains(&own));
        }
        stop_job(kind, &mut job, &stored);
        assert_eq!(without_empty_entry(kind, job), before);
    }
}

/// A template that has the topology gate from an earlier start keeps it only if the new admission has a topology.
#[test]
fn start_sets_topology_gate_of_its_own_admission() {
    let gate = "kueue.x-k8s.io/topology";
    for (kind, placed) in suspended().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut template = plain_template();
        template["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = json!("earlier");
        template["spec"]["schedulingGates"] = json!([{ "name": gate }, { "name": "example.com/own" }]);
        let mut job = with_template(kind, &template);
        let mut infos = pod_set_infos(&made_pod_sets(kind, &job).unwrap()).unwrap();
        for info in &mut infos {
            let scheduling_gates = if placed { vec![gate.to_owned()] } else { Vec::new() };
            info.template = Arc::new(TemplateInfo { scheduling_gates, ..TemplateInfo::default() });
        }
        let patches = kind.run_patch(&decode(kind, &job).unwrap(), &infos).unwrap();
        apply_patches(kind, &mut job, &patches);
        for template in templates(kind, &job) {
            let gates = template["spec"]["schedulingGates"].as_array().unwrap();
            assert_eq!(gates.iter().any(|own| own["name"] == gate), placed, "{gates:?}");
            assert!(gates.iter().any(|own| own["name"] == "example.com/own"));
        }
    }
}

#[test]
fn stored_copy_matches_template_fingerprint() {
    for kind in suspended() {
        let job = with_template(kind, &plain_template());
        let view = decode(kind, &job).unwrap();
        let mut stored = made_pod_sets(kind, &job).unwrap().remove(0);
        assert_eq!(pod_set_fingerprint(&stored), view.pod_sets[0].fingerprint);
        let container = &mut stored["template"]["spec"]["containers"][0];
        container["resources"]["requests"]["cpu"] = json!("1000m");
        container["resources"]["limits"] = json!({});
        container["unknown"] = json!(1);
        if kind.pods.rank.sub_groups.is_none() {
            stored["topologyRequest"] = Value::Null;
        }
        assert_eq!(pod_set_fingerprint(&stored), view.pod_sets[0].fingerprint);
        stored["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        assert_ne!(pod_set_fingerprint(&stored), view.pod_sets[0].fingerprint);
    }
}

/// Fields that are reused from an earlier decoded version equal those of a full decode.
#[test]
fn incremental_decode_equals_full_decode() {
    for kind in suspended() {
        let mut job = with_template(kind, &plain_template());
        let before = decode(kind, &job).unwrap();
        play(kind, &mut job, PlayedState::Started);
        job["metadata"]["resourceVersion"] = json!("8");
        job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = json!("3");
        assert_eq!(
            kind.decode_after(&job, Some(&before), Beside::of(&RelatedSamples)).unwrap(),
            decode(kind, &job).unwrap()
        );
        match first_template(kind, &job) {
            Some(pointer) => {
                job.pointer_mut(&pointer).unwrap()["spec"]["containers"][0]["image"] = json!("another");
            }
            None if kind.fields.roles.is_decided_at_start() => job["spec"]["trainer"]["numNodes"] = json!(5),
            None => job["spec"]["driver"]["coreRequest"] = json!("750m"),
        }
        job["metadata"]["generation"] = json!(2);
        let edited = kind.decode_after(&job, Some(&before), Beside::of(&RelatedSamples)).unwrap();
        assert_eq!(edited, decode(kind, &job).unwrap());
        let sets = |view: &JobView| -> Vec<_> {
            view.pod_sets.iter().map(|set| (set.count, set.fingerprint)).collect()
        };
        assert_ne!(sets(&edited), sets(&before));
    }
}

#[test]
fn played_states_are_read() {
    for kind in suspended() {
        let finished = |job: &Value| decode(kind, job).unwrap().status.finished;
        for (state, success) in [(PlayedState::Succeeded, true), (PlayedState::Failed, false)] {
            let mut job = stored(kind);
            play(kind, &mut job, PlayedState::Ready);
            assert!(decode(kind, &job).unwrap().status.pods_ready && finished(&job).is_none());
            if kind.can_finish(success) {
                play(kind, &mut job, state);
                assert_eq!(finished(&job).map(|end| end.success), Some(success), "{}", kind.name);
            }
        }
    }
}

#[test]
fn edit_of_pending_job_survives_stop() {
    for kind in suspended() {
        let mut job = with_template(kind, &plain_template());
        let stored = made_pod_sets(kind, &job).unwrap();
        match first_template(kind, &job) {
            Some(pointer) => {
                job.pointer_mut(&pointer).unwrap()["spec"]["nodeSelector"] = json!({ "zone": "a" });
            }
            None if kind.fields.roles.is_decided_at_start() => job["spec"]["trainer"]["numNodes"] = json!(5),
            None => job["spec"]["driver"]["nodeSelector"] = json!({ "zone": "a" }),
        }
        let edited = job.clone();
        stop_job(kind, &mut job, &stored);
        assert_eq!(job, edited);
    }
}

#[test]
fn workload_names_job_and_deduplicates_env() {
    for kind in suspended() {
        let job = with_template(kind, &plain_template());
        let view = decode(kind, &job).unwrap();
        let priority = Priority::default();
        let keys = ["team".to_owned(), "absent".to_owned()];
        let request = WorkloadRequest {
            name: "w",
            queue_name: Some("main"),
            label_keys_to_copy: &keys,
            priority: &priority,
            slice: None,
        };
        let workload =
            workload_body(kind, &job, &view, made_pod_sets(kind, &job).unwrap(), &request).unwrap();
        assert_eq!(
            workload["metadata"]["labels"],
            json!({ "team": "a", "kueue.x-k8s.io/job-uid": &*view.uid })
        );
        assert_eq!(workload["metadata"]["annotations"], json!({ "provreq.kueue.x-k8s.io/x": "1" }));
        assert_eq!(workload["metadata"]["ownerReferences"][0]["uid"], json!(&*view.uid));
        let set = &workload["spec"]["podSets"][0];
        assert_eq!(set["count"], json!(view.pod_sets[0].count));
        assert_eq!(set["minCount"], json!(view.pod_sets[0].min_count));
        // A kind that describes its pods by other fields has none.
        if !kind.template_pointers(&job).is_empty() {
            let env = &set["template"]["spec"]["containers"][0]["env"];
            assert_eq!(env, &json!([{ "name": "A", "value": "2" }, { "name": "B", "value": "$(A)" }]));
        }
        if kind.fields.roles.is_listed() {
            continue;
        }
        // The index of a pod is its rank on any flavor with a topology.
        assert_eq!(set["topologyRequest"]["podIndexLabel"], json!(kind.pods.rank.index_label));
    }
}
