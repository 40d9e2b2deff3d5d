//! Gates whose effect `sluice simulate` shows: files of cases, each played with the gate on and off.
//!
//! The first document of a file has objects of all cases. Short forms of objects: `flavor`, `queue` (a ClusterQueue and a LocalQueue
//! of one name), `job` and `node`; any other object is taken as it is. An outcome is a list of lines: what happened, what runs at
//! the end, what was refused. Each text of `enabled` is in a line with the gate on and in no line with it off; those of `disabled`
//! the other way round.

use crate::fixtures::simulate_command::{TestFolder, run_simulate};
use serde_json::{Map, Value, json};

const FILES: [(&str, &str); 4] = [
    ("admission", include_str!("admission.yaml")),
    ("fair", include_str!("fair.yaml")),
    ("reviews", include_str!("reviews.yaml")),
    ("topology", include_str!("topology.yaml")),
];
const API: &str = "kueue.x-k8s.io/v1beta2";

/// Names of the gates of all cases.
pub(super) fn gates() -> Vec<String> {
    let gates = |text| cases(text).into_iter().map(|case| case["gate"].as_str().unwrap().to_owned());
    FILES.iter().flat_map(|(_, text)| gates(text)).collect()
}

/// The cases of a file, each with the objects that all of them have.
fn cases(text: &str) -> Vec<Value> {
    let mut documents = text.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    let common = documents.next().unwrap()["common"].as_array().unwrap().clone();
    let with_common = |mut case: Value| {
        let own = case["objects"].as_array().unwrap().clone();
        case["objects"] = common.iter().cloned().chain(own).collect();
        case
    };
    documents.map(with_common).collect()
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (name, value) in more {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

fn queue(short: &Map<String, Value>) -> [Value; 2] {
    let name = &short["queue"];
    // A number is that of CPUs.
    let amounts = |quota: &Value| if quota.is_object() { quota.clone() } else { json!({"cpu": quota}) };
    let mut covered = Value::Null;
    let mut flavors = Vec::new();
    for (flavor, quota) in short["flavors"].as_object().unwrap() {
        let amounts = amounts(quota);
        let amounts = amounts.as_object().unwrap();
        covered = amounts.keys().cloned().collect();
        let quota = |(name, amount)| json!({"name": name, "nominalQuota": amount});
        flavors.push(json!({"name": flavor, "resources": amounts.iter().map(quota).collect::<Value>()}));
    }
    let mut spec = json!({"namespaceSelector": {}, "resourceGroups": [{"coveredResources": covered, "flavors": flavors}]});
    merge(&mut spec, short.get("spec").unwrap_or(&json!({})));
    [
        json!({"apiVersion": API, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}),
        json!({"apiVersion": API, "kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": name}}),
    ]
}

fn job(short: &Map<String, Value>) -> Value {
    let or = |name: &str, value: Value| short.get(name).cloned().unwrap_or(value);
    let (pods, requests) = (or("pods", json!(1)), or("requests", json!({"cpu": or("cpu", json!(1))})));
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": short["job"], "labels": {"kueue.x-k8s.io/queue-name": short["queue"]},
            "annotations": {"sluice.dev/arrives-after": or("at", json!("0s"))}},
        "spec": {"parallelism": pods, "completions": pods, "template": {
            "metadata": {"annotations": or("pod annotations", json!({}))},
            "spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}]}}}});
    for field in ["labels", "annotations"] {
        merge(&mut job["metadata"][field], &or(field, json!({})));
    }
    merge(&mut job, &or("more", json!({})));
    job
}

fn node(short: &Map<String, Value>) -> Value {
    let or = |name: &str, value: Value| short.get(name).cloned().unwrap_or(value);
    let mut labels = json!({"pool": "a", "rack": short["rack"], "kubernetes.io/hostname": short["node"]});
    merge(&mut labels, &or("labels", json!({})));
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": short["node"], "labels": labels},
        "spec": or("spec", json!({})),
        "status": {"allocatable": {"cpu": short["cpu"], "pods": "20"}, "conditions": [
            {"type": "Ready", "status": or("ready", json!("True")), "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// The manifests of a list of objects and short forms.
fn manifests(objects: &Value) -> String {
    let mut all = Vec::new();
    for object in objects.as_array().unwrap() {
        let short = object.as_object().unwrap();
        if short.contains_key("flavor") {
            let spec = short.get("spec").cloned().unwrap_or(json!({}));
            all.push(json!({"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": short["flavor"]}, "spec": spec}));
        } else if short.contains_key("job") {
            all.push(job(short));
        } else if short.contains_key("queue") {
            all.extend(queue(short));
        } else if short.contains_key("node") {
            all.push(node(short));
        } else {
            all.push(object.clone());
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string()
}

/// Plays a case, and returns the lines of its outcome.
fn play(folder: &TestFolder, case: &Value, enabled: bool) -> Vec<String> {
    let gate = case["gate"].as_str().unwrap();
    let others = case["gates"].as_object().into_iter().flatten();
    let mut gates = vec![format!("{gate}={enabled}")];
    gates.extend(others.map(|(name, value)| format!("{name}={value}")));
    let objects = folder.write(&format!("{gate}.yaml"), manifests(&case["objects"]));
    let mut arguments = vec![objects, "--now=2026-01-01T00:00:00Z".into(), "-o=json".into()];
    arguments.push(format!("--feature-gates={}", gates.join(",")));
    if case["then"].is_array() {
        arguments
            .push(format!("--then={}", folder.write(&format!("{gate}-then.yaml"), manifests(&case["then"]))));
    }
    if case["config"].is_object() {
        let mut config = json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"});
        merge(&mut config, &case["config"]);
        let file = folder.write(&format!("{gate}-config.yaml"), config.to_string());
        arguments.push(format!("--config={file}"));
    }
    arguments.extend(texts(&case["arguments"]).map(str::to_owned));
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (_, output, errors) = run_simulate(&arguments, "");
    let Ok(report) = serde_json::from_str::<Value>(&output) else { return vec![errors] };
    let job_of = |row: &Value| {
        let name = [&row["job"], &row["workload"]].into_iter().find_map(Value::as_str).unwrap_or_default();
        name.trim_start_matches("default/").to_owned()
    };
    let rows = |list: &str| report[list].as_array().unwrap().clone();
    let mut lines = Vec::new();
    for event in rows("timeline") {
        let [what, reason, detail] =
            ["event", "reason", "detail"].map(|field| event[field].as_str().unwrap_or_default());
        let (seconds, job) = (event["seconds"].to_string(), job_of(&event));
        let seconds = seconds.trim_end_matches(".0");
        let parts = [seconds, what, &job, reason, detail];
        lines.push(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "));
    }
    lines.extend(rows("admitted").iter().map(|row| format!("runs {} {}", job_of(row), row["podSets"])));
    for problem in rows("problems") {
        let subject = problem["subject"].as_str().unwrap().replace("default/", "");
        lines.push(format!("refused {subject}: {}", problem["reason"].as_str().unwrap()));
    }
    lines
}

#[test]
fn outcomes_differ_as_stated() {
    for (name, text) in FILES {
        let folder = TestFolder::new(&format!("gates-{name}"));
        for case in cases(text) {
            let outcomes = [true, false].map(|enabled| play(&folder, &case, enabled));
            let has = |lines: &[String], text: &str| lines.iter().any(|line| line.contains(text));
            let [on, off] = &outcomes;
            for (side, lines, others) in [("enabled", on, off), ("disabled", off, on)] {
                for text in texts(&case[side]) {
                    assert!(has(lines, text), "{} {side}: {text} is not in {outcomes:#?}", case["gate"]);
                    assert!(
                        !has(others, text),
                        "{} {side}: {text} is in both of {outcomes:#?}",
                        case["gate"]
                    );
                }
            }
            assert!(texts(&case["enabled"]).count() > 0, "{} states no outcome", case["gate"]);
        }
    }
}
