//! Jobs of every kind that cannot be run: each row of the table is tried, by its sample with one fault.
//!
//! Each fault is tried twice: as a new object, which the webhooks may refuse by its field, and as an object that was stored while no
//! webhook answered. Such an object runs, or says why it does not, by the condition of its Workload or by an event; it costs few
//! writes, no other job waits for it, and nothing is left of it when it is deleted.

use crate::fixtures::every_job_kind::{sample, server_of_all_kinds};
use crate::fixtures::job_samples::{RelatedSamples, submitted};
use crate::fixtures::job_server::JobServer;
use serde_json::{Map, Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{
    Beside, Framework, JobKind, PodGrouping, PodSets, Role, framework, frameworks,
};

/// Maximum number of writes that an object costs.
const MAX_WRITES: usize = 60;

/// What becomes of a faulty object.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// Its Workload is admitted, or its pods are to be held one by one.
    Runs,
    /// Its Workload says why it waits, or has ended.
    Condition(String),
    /// An event on it says why it has no Workload.
    Event(String),
    /// It has no Workload, and nothing is said.
    Silent,
}

fn kind_of(row: &'static Framework) -> Kind {
    Kind::of_job(JobKind::new(row))
}

fn condition(workload: &Value, name: &str) -> Option<(String, String)> {
    let conditions = workload["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|condition| condition["type"] == name)?;
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), format!("{}: {}", text("reason"), text("message"))))
}

/// Returns what became of the object with this name.
fn outcome(server: &JobServer, row: &'static Framework, name: &str) -> Outcome {
    let Some(object) = server.get(kind_of(row), name) else { panic!("{} {name} is gone", row.name) };
    let uid = object["metadata"]["uid"].clone();
    let owned = server.all(Kind::Workload).into_iter().find(|workload| {
        workload["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|all| all.iter().any(|owner| owner["uid"] == uid))
    });
    let event = server
        .events
        .iter()
        .rev()
        .find(|event| event.is_warning() && event.kind == kind_of(row) && &*event.key.name == name);
    if let Some(event) = event {
        return Outcome::Event(format!("{}: {}", event.reason, event.note));
    }
    match owned {
        Some(workload) if workload["status"]["admission"].is_object() => Outcome::Runs,
        Some(workload) => {
            let said = ["Finished", "QuotaReserved"].into_iter().find_map(|name| condition(&workload, name));
            said.map_or(Outcome::Silent, |(_, text)| Outcome::Condition(text))
        }
        None if row.role == Role::PassThrough => Outcome::Runs,
        None => Outcome::Silent,
    }
}

/// A job that must run, whatever the object before it says.
fn runs_another_job(server: &mut JobServer, case: &str) {
    let row = framework("batch", "Job").unwrap();
    let mut good = sample(row, "lq");
    good["metadata"]["name"] = json!("good");
    server.submit(row, good).unwrap();
    let good = server.get(kind_of(row), "good").unwrap();
    assert_eq!(good["spec"]["suspend"], false, "{case}: another job waits: {good}");
}

/// Returns whether a text names a field, or what the field says.
fn names_field(text: &str) -> bool {
    ["spec", "metadata", "role", "unknown", "pod set"].iter().any(|field| text.contains(field))
}

/// Tries a faulty object, with webhooks and without. Returns what became of it without them.
fn try_object(row: &'static Framework, case: &str, object: &Value) -> Outcome {
    let case = format!("{}: {case}", row.name);
    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
    let mut server = server_of_all_kinds(|_, _| ());
    if let Err(message) = server.submit(row, object.clone()) {
        assert!(names_field(&message), "{case}: the answer names no field: {message}");
    }
    runs_another_job(&mut server, &case);
    let mut server = server_of_all_kinds(|_, _| ());
    let before = server.writes;
    // A pod that no webhook has held is not managed.
    let held = row.is_pod().then(|| server.admit(row, object.clone(), None).ok()).flatten();
    server.create(kind_of(row), held.unwrap_or_else(|| object.clone()));
    let writes = server.writes - before;
    assert!(writes <= MAX_WRITES, "{case}: {writes} writes");
    let outcome = outcome(&server, row, &name);
    if let Outcome::Event(text) | Outcome::Condition(text) = &outcome {
        assert!(names_field(text), "{case}: the text names no field: {text}");
    }
    runs_another_job(&mut server, &case);
    server.delete(kind_of(row), &name);
    let left = server.all(Kind::Workload);
    let of_object =
        |workload: &Value| !workload["metadata"]["ownerReferences"].to_string().contains("\"good\"");
    assert!(!left.iter().any(of_object), "{case}: {left:?}");
    assert!(server.get(kind_of(row), &name).is_none(), "{case}: it cannot be deleted");
    outcome
}

/// Tries a fault in the objects of all kinds, wherever it can be made. Returns what became of each. None is left without a word but
/// one that has no pods.
fn try_all(
    case: &str,
    fault: impl Fn(&'static Framework, Value) -> Vec<Value>,
) -> Vec<(&'static Framework, usize, Outcome)> {
    let mut tried = Vec::new();
    for row in frameworks() {
        for (number, object) in fault(row, sample(row, "lq")).into_iter().enumerate() {
            let outcome = try_object(row, &format!("{case} {number}"), &object);
            let without_pods = row.role == Role::PodsOfOwner && object["spec"].to_string().contains(":0");
            assert!(outcome != Outcome::Silent || without_pods, "{} {case} {number}: {object}", row.name);
            tried.push((row, number, outcome));
        }
    }
    tried
}

/// Returns pointers to all fields of an object below a pointer for which the predicate holds.
fn fields(object: &Value, below: &str, wanted: &impl Fn(&Value) -> bool) -> Vec<String> {
    let Some(value) = object.pointer(below) else { return Vec::new() };
    let mut found: Vec<String> = wanted(value).then(|| below.to_owned()).into_iter().collect();
    let children: Vec<String> = match value {
        Value::Object(map) => map.keys().map(|key| key.replace('~', "~0").replace('/', "~1")).collect(),
        Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
        _ => Vec::new(),
    };
    for child in children {
        found.extend(fields(object, &format!("{below}/{child}"), wanted));
    }
    found
}

fn with(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

fn without(object: &Value, pointer: &str) -> Value {
    let mut object = object.clone();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap().as_object_mut().unwrap().shift_remove(field);
    object
}

/// Returns pointers to the pod templates of an object, wherever they are.
fn templates(object: &Value) -> Vec<String> {
    fields(object, "/spec", &|value| value["spec"]["containers"].is_array())
}

/// Returns pointers to the lists of roles of an object: their items have templates.
fn role_lists(object: &Value) -> Vec<String> {
    let has_template = |item: &Value| !templates(&json!({ "spec": item })).is_empty();
    fields(object, "/spec", &|value| value.as_array().is_some_and(|items| items.iter().any(has_template)))
}

/// Templates, roles and specs that are missing, empty or null.
#[test]
fn parts_are_missing() {
    try_all("part", |row, object| {
        let mut parts: Vec<String> = if row.is_pod() { Vec::new() } else { vec!["/spec".to_owned()] };
        for template in templates(&object) {
            // Everything above a template, to the spec.
            let mut part = template.as_str();
            while part != "/spec" {
                parts.push(part.to_owned());
                part = part.rsplit_once('/').unwrap().0;
            }
            parts.push(format!("{template}/spec"));
            parts.push(format!("{template}/spec/containers"));
        }
        parts.sort();
        parts.dedup();
        let mut faulty = Vec::new();
        for part in &parts {
            let empty = if object.pointer(part).unwrap().is_array() { json!([]) } else { json!({}) };
            faulty.push(with(&object, part, empty));
            faulty.push(with(&object, part, Value::Null));
            let in_list = part.rsplit_once('/').is_some_and(|(_, name)| name.parse::<usize>().is_ok());
            if !in_list {
                faulty.push(without(&object, part));
            }
        }
        faulty
    });
}

/// Counts that are zero, negative, or larger than any cluster.
#[test]
fn counts_are_odd() {
    let numbers = [0, -1, 1_000_001, i64::from(i32::MAX), i64::from(i32::MAX) + 1, i64::MAX];
    try_all("count", |_, object| {
        let counts = fields(&object, "/spec", &Value::is_i64);
        let odd = |count: &String| numbers.map(|number| with(&object, count, json!(number)));
        counts.iter().flat_map(odd).collect()
    });
}

/// Twenty roles, and two of one name.
#[test]
fn too_many_roles_and_duplicate_ones() {
    try_all("roles", |_, object| {
        let mut faulty = Vec::new();
        for list in role_lists(&object) {
            let items = object.pointer(&list).unwrap().as_array().unwrap().clone();
            let many = (0..20).map(|number| {
                let mut item = items[0].clone();
                for field in ["name", "groupName"] {
                    if let Some(name) = item.get_mut(field) {
                        *name = json!(format!("role-{number}"));
                    }
                }
                item
            });
            faulty.push(with(&object, &list, many.collect()));
            faulty.push(with(&object, &list, json!([items[0], items[0]])));
        }
        faulty
    });
}

/// Quantities, labels and other fields that no pod may have. Only kinds whose schemas leave them open store them.
#[test]
fn templates_are_malformed() {
    let cpu = |amount: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]}});
    let mut faults = ["lots", "-1", "99999999999999999999Ei", ""].map(|amount| cpu(json!(amount))).to_vec();
    faults.extend([
        cpu(json!({})),
        json!({"spec": {"containers": [{"name": "c", "resources": "none"}]}}),
        json!({"spec": {"containers": {"name": "c"}}}),
        json!({"spec": {"containers": [{"name": "c"}], "tolerations": "all"}}),
        json!({"metadata": {"labels": {"a": 1}}, "spec": {"containers": [{"name": "c"}]}}),
        json!({"metadata": "none", "spec": {"containers": [{"name": "c"}]}}),
    ]);
    try_all("template", |row, object| {
        let places = if row.is_pod() { Vec::new() } else { templates(&object) };
        let faulty = |place: &String| {
            faults.iter().map(|fault| with(&object, place, fault.clone())).collect::<Vec<_>>()
        };
        places.iter().flat_map(faulty).collect()
    });
}

/// Names as long as a server allows, priority classes that do not exist, and templates as large as a server allows.
#[test]
fn long_names_unknown_classes_and_large_objects() {
    let tried = try_all("metadata", |_, object| {
        let mut long = object.clone();
        long["metadata"]["name"] = json!("a".repeat(253));
        let mut class = object.clone();
        class["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("unknown");
        let mut large = object.clone();
        large["metadata"]["annotations"] = json!({"note": "x".repeat(1_000_000)});
        vec![long, class, large]
    });
    for (row, number, outcome) in tried {
        let said = match &outcome {
            Outcome::Event(text) => text.as_str(),
            _ => "",
        };
        let expected = match number {
            0 if row.flags.pod_grouping != PodGrouping::Together => "metadata.name: must have at most 63",
            0 if row.fields.roles.is_listed() => "more than 63 characters in its name",
            1 if row.role != Role::PassThrough => "\"unknown\" not found",
            _ => {
                assert_eq!(outcome, Outcome::Runs, "{} {number}", row.name);
                continue;
            }
        };
        assert!(said.contains(expected), "{} {number}: {outcome:?}", row.name);
    }
    let large = try_all("large template", |row, object| {
        let note = json!({"note": "x".repeat(1_000_000)});
        let first = if row.is_pod() { None } else { templates(&object).into_iter().next() };
        let large = |place: String| {
            let mut object = object.clone();
            let template = object.pointer_mut(&place).unwrap().as_object_mut().unwrap();
            let metadata = template.entry("metadata").or_insert(json!(Map::new()));
            metadata["annotations"] = note.clone();
            object
        };
        first.map(large).into_iter().collect()
    });
    for (row, _, outcome) in large {
        assert_eq!(outcome, Outcome::Runs, "{}", row.name);
    }
}

/// A job that names the Workload of another one does not get it, and the other runs on.
#[test]
fn workload_of_another_job_is_named() {
    for row in frameworks().filter(|row| row.flags.prebuilt && row.role != Role::PassThrough) {
        let mut server = server_of_all_kinds(|_, _| ());
        runs_another_job(&mut server, row.name);
        let before = server.all(Kind::Workload);
        let [workload] = &before[..] else { panic!("{before:?}") };
        let mut thief = sample(row, "lq");
        thief["metadata"]["name"] = json!("thief");
        let annotations = json!({"kueue.x-k8s.io/prebuilt-workload-name": workload["metadata"]["name"]});
        thief["metadata"]["annotations"] = annotations;
        if let Err(message) = server.submit(row, thief) {
            assert!(message.contains("prebuilt-workload-name"), "{}: {message}", row.name);
            continue;
        }
        let outcome = outcome(&server, row, "thief");
        let name = workload["metadata"]["name"].as_str().unwrap();
        assert!(matches!(&outcome, Outcome::Event(text) if text.contains(name)), "{}: {outcome:?}", row.name);
        let after = server.all(Kind::Workload);
        let kept = |workload: &Value| {
            [&workload["spec"], &workload["metadata"]["ownerReferences"], &workload["status"]["admission"]]
                .map(Value::clone)
        };
        assert_eq!(after.iter().map(kept).collect::<Vec<_>>(), [kept(workload)], "{}", row.name);
        server.delete(kind_of(row), "thief");
        assert_eq!(server.all(Kind::Workload).len(), 1, "{}", row.name);
        let good = server.get(kind_of(framework("batch", "Job").unwrap()), "good").unwrap();
        assert_eq!(good["spec"]["suspend"], false, "{}", row.name);
    }
}

/// The templates and roles of a running job change: it is stopped, and runs again with what it asks for now.
#[test]
fn templates_and_roles_change_while_the_job_runs() {
    for row in frameworks().filter(|row| row.role == Role::Suspended) {
        let name = row.gvk.kind.to_lowercase();
        let original = sample(row, "lq");
        let requests = fields(&original, "/spec", &|value| value["requests"]["cpu"].is_string());
        let mut changes: Vec<Value> = requests
            .iter()
            .map(|place| with(&original, &format!("{place}/requests/cpu"), json!("3")))
            .collect();
        for list in role_lists(&original) {
            let roles = original.pointer(&list).unwrap().as_array().unwrap();
            let mut added = roles[0].clone();
            for field in ["name", "groupName"] {
                if let Some(name) = added.get_mut(field) {
                    *name = json!("added");
                }
            }
            changes.push(with(&original, &list, roles.iter().cloned().chain([added]).collect()));
            changes.push(with(&original, &list, roles[1..].iter().cloned().collect()));
        }
        for role in
            fields(&original, "/spec", &|value| value["template"].is_object() && value["replicas"].is_i64())
        {
            if !role.rsplit('/').next().unwrap().starts_with(char::is_numeric) {
                changes.push(without(&original, &role));
            }
        }
        for (number, change) in changes.into_iter().enumerate() {
            let case = format!("{} {number}", row.name);
            let mut server = server_of_all_kinds(|_, _| ());
            server.submit(row, original.clone()).unwrap();
            assert_eq!(outcome(&server, row, &name), Outcome::Runs, "{case}");
            let before = server.writes;
            server.edit(kind_of(row), &name, |job| {
                let suspended = row.fields.suspend.map(|suspend| (suspend, job.pointer(suspend).cloned()));
                job["spec"] = change["spec"].clone();
                if let Some((suspend, Some(value))) = suspended {
                    *job.pointer_mut(suspend).unwrap() = value;
                }
            });
            assert!(server.writes - before <= MAX_WRITES, "{case}: {} writes", server.writes - before);
            let job = server.get(kind_of(row), &name).unwrap().clone();
            let wanted = row.pod_sets_with(&job, Beside::of(&RelatedSamples));
            match (wanted, outcome(&server, row, &name)) {
                (Ok(PodSets::Known(wanted)), Outcome::Runs) => {
                    let workload = server.get(Kind::Workload, &server.workload_name()).unwrap();
                    let shape = |sets: &[Value]| -> Vec<(String, Value)> {
                        sets.iter().map(|set| (set["name"].to_string(), set["count"].clone())).collect()
                    };
                    let has = workload["spec"]["podSets"].as_array().unwrap();
                    assert_eq!(shape(has), shape(&wanted), "{case}");
                }
                (_, Outcome::Event(text)) => assert!(names_field(&text), "{case}: {text}"),
                other => panic!("{case}: {other:?}"),
            }
            runs_another_job(&mut server, &case);
        }
    }
}

/// A wrong annotation is named by the place at which the job has it.
#[test]
fn wrong_topology_annotation_is_named_by_its_whole_path() {
    for (group, kind, metadata) in [
        ("kubeflow.org", "TFJob", "/spec/tfReplicaSpecs/Worker/template/metadata"),
        ("jobset.x-k8s.io", "JobSet", "/spec/replicatedJobs/0/template/spec/template/metadata"),
        ("workload.codeflare.dev", "AppWrapper", "/spec/components/0/template/spec/template/metadata"),
        ("sparkoperator.k8s.io", "SparkApplication", "/spec/executor"),
    ] {
        let row = framework(group, kind).unwrap();
        let mut job = submitted(row);
        job["metadata"] = json!({"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"});
        let (parent, field) = metadata.rsplit_once('/').unwrap();
        let parent = job.pointer_mut(parent).unwrap();
        parent[field]["annotations"] = json!({"kueue.x-k8s.io/podset-unconstrained-topology": "yes"});
        let error = row.decode_after(&job, None, Beside::of(&RelatedSamples)).unwrap_err().to_string();
        let place = metadata.trim_start_matches('/').replace("/0", "[0]").replace('/', ".");
        let wanted =
            format!("{place}.annotations[kueue.x-k8s.io/podset-unconstrained-topology]: must be a boolean");
        assert_eq!(error, wanted, "{kind}");
    }
}
