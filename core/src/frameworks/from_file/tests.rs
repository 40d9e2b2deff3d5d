//! A file becomes a row that reads, starts, stops and plays jobs as the built-in ones; a wrong file is refused with each fault.

use super::super::{JobPatch, NothingRelated, PlayedState, pod_set_infos};
use super::*;
use jiff::Timestamp;
use serde_json::json;

const SAMPLE: &str = include_str!("../../../../config/samples/framework-file/framework.yaml");
const JOB: &str = include_str!("../../../../config/samples/framework-file/render.yaml");
const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn sample() -> Framework {
    framework_from_file(SAMPLE).unwrap()
}

fn suspended_job() -> Value {
    let mut job: Value = serde_saphyr::from_str(JOB).unwrap();
    job["metadata"] = json!({"namespace": "ns", "name": "film", "uid": "u", "resourceVersion": "7"});
    job["spec"]["suspend"] = json!(true);
    // A stop leaves the empty metadata that a start needs.
    let labels = json!({"labels": {"app": "film"}});
    for place in ["/spec/director/template", "/spec/crews/0/template", "/spec/crews/1/template"] {
        job.pointer_mut(place).unwrap()["metadata"] = labels.clone();
    }
    job
}

fn apply(job: &mut Value, patches: &[JobPatch]) {
    for patch in patches {
        let operations: json_patch::Patch = serde_json::from_value(patch.at_version("7")).unwrap();
        json_patch::patch(job, &operations).unwrap();
    }
}

#[test]
fn job_starts_and_stops_as_its_file_says() {
    let row = sample();
    assert_eq!(
        (row.name, row.webhook_path(true)),
        ("example.com/render", "/mutate-example-com-v1-render".to_owned())
    );
    let before = suspended_job();
    let mut job = before.clone();
    let view = row.decode(&job).unwrap();
    let sets: Vec<(&str, i32)> = view.pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
    assert_eq!((sets, view.suspended), (vec![("director", 1), ("light", 2), ("shadow", 3)], true));
    let originals = pod_set_infos(&row.pod_sets(&job).unwrap()).unwrap();
    let mut grants = pod_set_infos(&row.pod_sets(&job).unwrap()).unwrap();
    for grant in &mut grants {
        let mut template = (*grant.template).clone();
        template.node_selector.insert("zone".to_owned(), "z".to_owned());
        grant.template = std::sync::Arc::new(template);
    }
    let start = row.run_patch(&view, &grants).unwrap();
    apply(&mut job, &start);
    assert_eq!(job["spec"]["suspend"], json!(false));
    assert_eq!(job["spec"]["director"]["template"]["spec"]["nodeSelector"], json!({"zone": "z"}));
    assert_eq!(job["spec"]["crews"][1]["template"]["spec"]["nodeSelector"], json!({"zone": "z"}));
    let stop = row.stop_patches(&row.decode(&job).unwrap(), &originals);
    apply(&mut job, &stop);
    let stopped = row.decode(&job).unwrap();
    assert!(stopped.suspended && row.stop_patches(&stopped, &originals).is_empty());
    assert_eq!(row.pod_sets(&job).unwrap(), row.pod_sets(&before).unwrap());
}

/// A number that the controller keeps between two others, and a switch for all pods of a role. A start that was undone by another
/// client is put back in a list as in those of the built-in kinds.
#[test]
fn counts_follow_from_several_fields() {
    let count = "count:
      unless:
        field: /closed
        count: {between: {field: /size, min: /least, max: /most}}";
    let text = SAMPLE.replace("count:\n      field: /size", count);
    assert_ne!(text, SAMPLE);
    let row = framework_from_file(&text).unwrap();
    let counts = |fields: Value| {
        let mut job = suspended_job();
        job["spec"]["crews"][0].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        row.decode(&job).unwrap().pod_sets[1].count
    };
    assert_eq!(counts(json!({})), 2);
    assert_eq!(counts(json!({"least": 4})), 4);
    assert_eq!(counts(json!({"least": 4, "most": 3})), 4);
    assert_eq!(counts(json!({"size": null, "least": 1})), 1);
    assert_eq!(counts(json!({"most": 1})), 1);
    assert_eq!(counts(json!({"least": 4, "closed": true})), 0);
    let fault = framework_from_file(&text.replace("min: /least", "min: least")).unwrap_err().to_string();
    assert!(fault.contains("podSets[1].list.count.unless.count.between.min"), "{fault}");
}

#[test]
fn marks_in_lists_are_put_back() {
    let row = sample();
    let mut job = suspended_job();
    let own = job["spec"]["crews"].clone();
    let mut grants = pod_set_infos(&row.pod_sets(&job).unwrap()).unwrap();
    for grant in &mut grants {
        let mut template = (*grant.template).clone();
        template.node_selector.insert("zone".to_owned(), "z".to_owned());
        grant.template = std::sync::Arc::new(template);
    }
    let start = row.run_patch(&row.decode(&job).unwrap(), &grants).unwrap();
    apply(&mut job, &start);
    let started = job.clone();
    assert_eq!(row.marks_patch(&row.decode(&job).unwrap(), &grants, false), None);
    job["spec"]["crews"] = own;
    let patch = row.marks_patch(&row.decode(&job).unwrap(), &grants, false).unwrap();
    apply(&mut job, &[patch]);
    assert_eq!(job, started);
}

#[test]
fn status_is_read_as_the_file_says() {
    let row = sample();
    let mut job = suspended_job();
    let played = |job: &mut Value, state: PlayedState| {
        row.play(job, &NothingRelated, state, NOW).unwrap();
        row.played_job(job, &NothingRelated).unwrap()
    };
    let started = played(&mut job, PlayedState::Started);
    assert!(started.active && !started.ready && !started.finished);
    assert!(played(&mut job, PlayedState::Ready).ready);
    let mut failed = job.clone();
    failed["status"]["message"] = json!("no light");
    failed["status"]["phase"] = json!("Aborted");
    let finished = row.decode(&failed).unwrap().status.finished.unwrap();
    assert_eq!((finished.success, finished.message.as_str()), (false, "no light"));
    assert!(
        played(&mut job, PlayedState::Succeeded).finished
            && !row.played_job(&job, &NothingRelated).unwrap().active
    );
    assert!(row.decode(&job).unwrap().status.finished.unwrap().success);
}

/// Pods are found by labels with the name of their job; a file that names no labels says nothing of them.
#[test]
fn pods_are_found_by_the_labels_of_the_file() {
    let job = suspended_job();
    assert_eq!(sample().pod_selector(&job).as_deref(), Some("example.com/render=film"));
    let mut document: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    document["podLabels"] = json!([
        {"label": "example.com/run", "value": {"field": "/status/run"}},
        {"label": "app", "value": {"text": "render"}},
    ]);
    let row = framework_from_file(&document.to_string()).unwrap();
    assert_eq!(row.pod_selector(&job), None, "its status does not say it yet");
    let mut started = job.clone();
    started["status"]["run"] = json!("film-1");
    assert_eq!(row.pod_selector(&started).as_deref(), Some("example.com/run=film-1,app=render"));
    document.as_object_mut().unwrap().shift_remove("podLabels");
    assert_eq!(framework_from_file(&document.to_string()).unwrap().pod_selector(&started), None);
}

#[test]
fn malformed_job_is_refused_with_its_field() {
    let row = sample();
    let template = |spec: Value| json!({"metadata": {}, "spec": spec});
    for (pointer, value, path) in [
        (
            "/spec/crews/0/template",
            template(json!({"nodeSelector": {"a.b/c": "d", "e": 7}})),
            "spec.crews[0].template.spec.nodeSelector[e]: must be a string",
        ),
        (
            "/spec/crews/0/template",
            template(json!({"tolerations": [{}, {"key": 7}]})),
            "spec.crews[0].template.spec.tolerations[1]: key: ",
        ),
        (
            "/spec/crews/0/template",
            template(json!({"schedulingGates": [{}]})),
            "spec.crews[0].template.spec.schedulingGates[0]: needs a name",
        ),
        (
            "/spec/crews/0/template",
            json!({"metadata": {"annotations": {"a": []}}, "spec": {}}),
            "spec.crews[0].template.metadata.annotations[a]: must be a string",
        ),
        ("/spec/crews", json!("many"), "spec.crews: must be a list"),
        ("/spec/crews", json!([{"size": 1, "template": {}}]), "spec.crews[0].name"),
        ("/spec/crews/0/size", json!("two"), "spec.crews[0].size"),
        ("/spec/crews/0/size", json!(-1), "spec.crews[0].size"),
        ("/spec/director", json!({}), "spec.director.template"),
        ("/spec/suspend", json!("yes"), "spec.suspend"),
    ] {
        let mut job = suspended_job();
        *job.pointer_mut(pointer).unwrap() = value.clone();
        let refused = row.decode(&job).and_then(|_| row.pod_sets(&job)).map(drop).unwrap_err().to_string();
        assert!(refused.contains(path), "{pointer} {value}: {refused}");
    }
}

/// Returns the sample with a field set to another value, or without it.
fn changed(pointer: &str, value: Value) -> String {
    let mut document: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    super::super::played_status::set_at(&mut document, pointer, value);
    document.to_string()
}

#[test]
fn wrong_files_are_refused_with_their_fields() {
    let nested = (0..20).fold(json!({"condition": "Ready"}), |test, _| json!({"not": test}));
    let table = [
        ("/apiVersion", json!("v1"), "apiVersion: \"v1\" is not supported"),
        ("/kind", json!("Render"), "kind: \"Render\" is not supported"),
        ("/suspended", json!("/spec/suspend"), "unknown field `suspended`"),
        ("/suspend", Value::Null, "suspend: invalid type"),
        ("/suspend", json!("spec.suspend"), "suspend: \"spec.suspend\" must be a JSON pointer below /spec"),
        (
            "/suspend",
            json!("/status/suspend"),
            "suspend: \"/status/suspend\" must be a JSON pointer below /spec",
        ),
        ("/suspend", json!("/spec"), "suspend: \"/spec\" must be a JSON pointer below /spec"),
        ("/suspend", json!("/spec//a"), "suspend: \"/spec//a\" must name fields"),
        ("/suspend", json!("/spec/a~1b"), "suspend: \"/spec/a~1b\" must name fields"),
        ("/suspend", json!("/spec/a/0"), "suspend: \"/spec/a/0\" must not name an item"),
        ("/resource/group", json!("batch"), "resource.group: \"batch\" must be the group"),
        ("/resource/group", json!("example.com\n- op"), "resource.group"),
        ("/resource/group", json!("kueue.x-k8s.io"), "resource.group: \"kueue.x-k8s.io\" is a group of"),
        ("/resource/version", json!("V1"), "resource.version: \"V1\" must consist of"),
        ("/resource/plural", json!("a.b"), "resource.plural: \"a.b\" must consist of"),
        ("/resource/kind", json!("render"), "resource.kind: \"render\" must consist of"),
        ("/resource/kind", json!("Ren der"), "resource.kind: \"Ren der\" must consist of"),
        ("/podSets", json!([]), "podSets: must have 1 to 18 entries"),
        ("/podSets/0/fixed/name", json!("Director"), "podSets[0].fixed.name: \"Director\""),
        ("/podSets/0/fixed/count", json!(1), "podSets[0].fixed.count"),
        (
            "/podSets/0/fixed/count",
            json!({"field": "/status/n"}),
            "podSets[0].fixed.count.field: \"/status/n\"",
        ),
        (
            "/podSets/1",
            json!({"map": {"map": "/spec/roles", "keys": [], "template": "/t", "count": "one"}}),
            "podSets[1].map.keys: must name the roles",
        ),
        (
            "/podSets/1",
            json!({"map": {"map": "/spec/roles", "keys": ["A", "a"], "template": "/t", "count": "one"}}),
            "podSets: the name \"a\" occurs twice",
        ),
        (
            "/podSets/1",
            json!({"fixed": {"name": "b", "template": "/spec/director/template", "count": "one"}}),
            "podSets: \"/spec/director/template\" occurs twice",
        ),
        ("/podSets/1", json!({"both": {}}), "podSets[1]"),
        ("/podLabels", json!([]), "podLabels: must have a label whose value is a field"),
        ("/podLabels/0/label", json!("a/b/c"), "podLabels[0].label: "),
        (
            "/podLabels/0/value",
            json!({"text": "render"}),
            "podLabels: must have a label whose value is a field",
        ),
        ("/podLabels/0/value", json!({"text": "a b"}), "podLabels[0].value.text: "),
        (
            "/podLabels/0/value",
            json!({"field": "/kind"}),
            "podLabels[0].value.field: \"/kind\" must be a JSON pointer below /metadata, /spec or /status",
        ),
        ("/podLabels/0/value", json!("/metadata/name"), "podLabels[0].value"),
        ("/rank/indexLabel", json!("a/b/c"), "rank.indexLabel"),
        ("/creates", json!([]), "creates: must name the kinds"),
        ("/creates/0/kind", json!("pods"), "creates[0].kind"),
        ("/finished/0/when", json!({"all": []}), "finished[0].when.all: must not be empty"),
        ("/finished/0/when", json!({"condition": ""}), "finished[0].when.condition: must name a condition"),
        ("/finished/0/result", json!("done"), "finished[0].result"),
        ("/finished/1/message", json!("/spec/message"), "finished[1].message"),
        ("/active", json!({"counts": []}), "active.counts: must not be empty"),
        ("/active", json!({}), "active"),
        ("/ready", json!("Ready"), "ready"),
        ("/ready", nested, "must have at most 8 levels"),
        ("/managedBy/controller", json!(""), "managedBy.controller: must not be empty"),
    ];
    for (pointer, value, expected) in table {
        let refused =
            framework_from_file(&changed(pointer, value.clone())).map(drop).unwrap_err().to_string();
        assert!(refused.contains(expected), "{pointer} = {value}: {refused}");
    }
    let not_yaml = framework_from_file("a: [").map(drop).unwrap_err().to_string();
    assert!(not_yaml.starts_with("not YAML: "), "{not_yaml}");
    for text in ["", "[]", "1", "null"] {
        assert!(framework_from_file(text).is_err(), "{text:?}");
    }
}

#[test]
fn all_faults_are_told_at_once() {
    let mut document: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    document["suspend"] = json!("/suspend");
    document["resource"]["kind"] = json!("render");
    let refused = framework_from_file(&document.to_string()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("resource.kind: ") && refused.contains("; suspend: "), "{refused}");
}

/// Each form of a file that the sample does not show.
#[test]
fn other_forms_are_read() {
    let mut document: Value = serde_saphyr::from_str(SAMPLE).unwrap();
    document["podSets"] = json!([
        {"map": {"map": "/spec/roles", "keys": ["Lead", "Crew"], "template": "/template", "count": {"product": [
            {"field": "/replicas"},
            {"job": {"parallelism": "/template/parallelism", "completions": "/template/completions"}},
        ]}}},
    ]);
    document["rank"]["groups"] = json!({"label": "example.com/crew", "count": "/replicas"});
    document["active"] = json!({"sum": {"over": "/status/roles", "field": "/active"}});
    document["ready"] = json!({"all": [
        {"not": {"notTrue": "Ready"}}, {"any": [{"condition": "Ready"}, {"text": {"field": "/status/phase", "values": ["Up"]}}]},
    ]});
    let row = framework_from_file(&document.to_string()).unwrap();
    let template = json!({"parallelism": 3, "completions": 2, "spec": {"containers": []}});
    let mut job = suspended_job();
    job["spec"] = json!({"suspend": true, "roles": {
        "Crew": {"replicas": 4, "template": template}, "Lead": {"template": template},
    }});
    let view = row.decode(&job).unwrap();
    let sets: Vec<(&str, i32)> = view.pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
    assert_eq!(sets, [("lead", 2), ("crew", 8)]);
    job["status"] = json!({"phase": "Up", "roles": {"Crew": {"active": 2}, "Lead": {"active": 1}}});
    let status = row.decode(&job).unwrap().status;
    assert!(status.pods_ready && status.active_pods == 3);
}
