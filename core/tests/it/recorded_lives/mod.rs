//! Recorded lives of jobs. The files here play them as far as the rows of frameworks decide them: what a recording says of the
//! Workload's admission is an input; what it says of pod sets, templates, gates and results is compared. `reconciled` plays
//! them through the reconciler.

mod deployments;
mod pod_groups;
mod reconciled;
mod suspended_jobs;

use serde_json::{Map, Value, json};
use sluice_core::frameworks::{PodSetInfo, TemplateInfo};
use sluice_core::resources::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Recordings of Kubeflow's kinds, with the kind.
const KUBEFLOW_KINDS: [(&str, &str); 6] = [
    ("pytorchjob", "PyTorchJob"),
    ("tfjob", "TFJob"),
    ("xgboostjob", "XGBoostJob"),
    ("paddlejob", "PaddleJob"),
    ("jaxjob", "JAXJob"),
    ("mpijob", "MPIJob"),
];

/// Returns the scenarios of a kind.
fn scenarios(kind: &str) -> Vec<Value> {
    let path = sluice_recorded::find(&format!("jobs/{kind}.jsonl.gz")).expect("recorded lives of a kind");
    sluice_recorded::documents(&path).unwrap()
}

/// Returns the requests that create what all scenarios share.
fn context() -> Vec<Value> {
    let path = sluice_recorded::find("jobs/context.json").expect("the objects of the recording");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the scenarios that are played. Prints the reason for each one that is not: by a part of its name.
fn playable<'a>(scenarios: &'a [Value], not_played: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Value> {
    scenarios.iter().filter(move |scenario| {
        let name = text(&scenario["name"]);
        let reason = not_played.iter().find(|(part, _)| name.contains(part));
        if let Some((_, reason)) = reason {
            println!("{name}: not played: {reason}");
        }
        reason.is_none()
    })
}

/// Node labels and tolerations of the flavors that all scenarios share, by name.
fn flavors() -> BTreeMap<String, TemplateInfo> {
    let objects = context();
    let flavors =
        objects.iter().map(|object| &object["body"]).filter(|body| body["kind"] == "ResourceFlavor");
    flavors
        .map(|flavor| {
            let spec = &flavor["spec"];
            let template =
                json!({"spec": {"nodeSelector": spec["nodeLabels"], "tolerations": spec["tolerations"]}});
            (text(&flavor["metadata"]["name"]).to_owned(), TemplateInfo::read(Some(&template)).unwrap())
        })
        .collect()
}

/// Returns what the admission of a recorded Workload adds to each pod set; the manager's labels are on.
fn granted(name: &str, workload: &Value, flavors: &BTreeMap<String, TemplateInfo>) -> Vec<PodSetInfo> {
    let admission = &workload["admission"];
    let assignments = admission["podSetAssignments"].as_array().unwrap();
    let info = |assignment: &Value| {
        let pod_set = text(&assignment["name"]);
        let labels = [
            ("kueue.x-k8s.io/podset", pod_set),
            ("kueue.x-k8s.io/cluster-queue-name", text(&admission["clusterQueue"])),
            ("kueue.x-k8s.io/local-queue-name", text(&workload["spec"]["queueName"])),
        ];
        let mut template = TemplateInfo {
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            annotations: [("kueue.x-k8s.io/workload".to_owned(), name.to_owned())].into(),
            ..TemplateInfo::default()
        };
        let mut names: Vec<&str> =
            assignment["flavors"].as_object().into_iter().flatten().map(|(_, name)| text(name)).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            template.merge(&flavors[name]).unwrap();
        }
        let count = assignment["count"].as_i64().map_or(0, |count| i32::try_from(count).unwrap());
        PodSetInfo { name: Arc::from(pod_set), count, template: Arc::new(template) }
    };
    assignments.iter().map(info).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The name and the shape of the only recorded object of a kind.
fn recorded<'a>(step: &'a Value, kind: &str) -> Option<(&'a str, &'a Value)> {
    let objects = step["expect"]["state"].as_object().unwrap();
    objects.iter().find_map(|(name, shape)| Some((name.strip_prefix(kind)?.strip_prefix(' ')?, shape)))
}

/// Fields that the API server alone defaults in pod templates; they are not recorded.
const DEFAULTED: [&str; 12] = [
    "creationTimestamp",
    "dnsPolicy",
    "enableServiceLinks",
    "imagePullPolicy",
    "preemptionPolicy",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

/// Returns a value as recordings show it: without nulls, empty collections and defaulted fields, quantities as fractions.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut kept = Map::new();
            let defaulted = |name: &str, value: &Value| {
                DEFAULTED.contains(&name) || (name == "protocol" && *value == "TCP")
            };
            for (name, value) in fields.iter().filter(|(name, value)| !defaulted(name, value)) {
                let quantities = ["requests", "limits", "overhead", "resourceUsage"].contains(&name.as_str());
                let value = match value {
                    Value::String(text) if AMOUNTS.contains(&name.as_str()) => fraction(text),
                    value if quantities => fractions(value),
                    value => plain(value),
                };
                let empty = value.is_null()
                    || value.as_object().is_some_and(Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty);
                if !empty {
                    kept.insert(name.clone(), value);
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

/// Amounts of SparkApplications, which recordings show as fractions where they read like quantities.
const AMOUNTS: [&str; 5] = ["coreRequest", "coreLimit", "memory", "memoryLimit", "memoryOverhead"];

fn fraction(text: &str) -> Value {
    let Ok(quantity) = Quantity::parse(text) else { return json!(text) };
    let (milli, mut a, mut b) = (quantity.milli(), quantity.milli(), 1000);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    let (above, below) = (milli / a, 1000 / a);
    json!(if below == 1 { above.to_string() } else { format!("{above}/{below}") })
}

fn fractions(quantities: &Value) -> Value {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let pairs = quantities.as_object().into_iter().flatten();
    Value::Object(pairs.map(|(name, value)| (name.clone(), fraction(&text(value)))).collect())
}

/// Applies a request of a scenario to an object, as a server does.
fn apply_act(object: &mut Value, act: &Value) {
    let kind = act["type"].as_str().unwrap_or("application/merge-patch+json");
    if kind == "application/json-patch+json" {
        let patch: json_patch::Patch = serde_json::from_value(act["body"].clone()).unwrap();
        json_patch::patch(object, &patch).unwrap();
    } else {
        json_patch::merge(object, &act["body"]);
    }
}
