//! Lives of Deployments.
//!
//! Compared: at each step the labels and annotations of the pod template after the webhook; for new Deployments each pod
//! that follows from the template, its Workload, and what the start adds. The test does what the ReplicaSet controller and
//! the API server do. Whether a Workload is admitted is read from the recording.

use super::pod_groups::{
    members, request, rules, set_fields, shown, sources, store_pod, summary_of, unit, wanted,
};
use super::{apply_act, flavors, granted, plain, scenarios, text};
use serde_json::{Value, json};
use sluice_core::api::validation::Gates;
use sluice_core::frameworks::{ActionWrite, Priority, framework, hold_pod};

/// Lets the webhook default a Deployment.
fn mark(deployment: &mut Value) {
    if deployment["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_string() {
        let changes =
            framework("apps", "Deployment").expect("a row").mark_templates(deployment, &Gates::default());
        set_fields(deployment, &changes);
    }
}

/// Returns a new pod of a Deployment.
fn new_pod(deployment: &Value) -> Value {
    let mut pod = deployment["spec"]["template"].clone();
    pod["metadata"]["name"] = json!(format!("{}-*", text(&deployment["metadata"]["name"])));
    pod["metadata"]["namespace"] = json!("ns");
    pod["spec"]["restartPolicy"] = json!("Always");
    let mut pod = store_pod(pod, 0);
    let managed = pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true";
    if managed {
        let changes = hold_pod(&pod, &Gates::default()).unwrap();
        set_fields(&mut pod, &changes);
    }
    pod
}

/// Objects of a kind in a recorded state, by name.
fn all<'a>(state: &'a Value, kind: &str) -> Vec<(&'a str, &'a Value)> {
    let named =
        |(name, shape): (&'a String, &'a Value)| Some((name.strip_prefix(kind)?.strip_prefix(' ')?, shape));
    state.as_object().unwrap().iter().filter_map(named).collect()
}

/// Starts a pod with what a recorded Workload was granted, after comparing the Workload.
fn start(pod: &mut Value, name: &str, recorded: &Value, note: &str) {
    let before = [pod.clone()];
    let list = members(&before);
    let summary = summary_of(&list);
    let unit = unit(&list, &summary);
    let (keys, priority) = (["example.com/team".to_owned()], Priority::default());
    let view = rules().view(&unit).unwrap();
    let request = request("w", view.queue_name.as_deref(), &keys, &priority);
    let composed = rules().compose(&unit, sources(), &request).unwrap();
    assert!(composed.removals.is_empty(), "{note}");
    let workload = plain(&composed.workload);
    assert_eq!(workload["spec"]["podSets"], plain(&recorded["spec"]["podSets"]), "{note}");
    assert_eq!(workload["spec"]["queueName"], recorded["spec"]["queueName"], "{note}");
    assert_eq!(workload["metadata"]["labels"], recorded["labels"], "{note}");
    let owner = &workload["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["name"], &owner["controller"]),
        (&recorded["owners"][0]["name"], &json!(true)),
        "{note}"
    );
    if recorded["admission"].is_null() {
        return;
    }
    // Two Workloads of one masked name are told apart by a number.
    let name = name.split(" (").next().unwrap();
    let actions = rules().start(&unit, &granted(name, recorded, &flavors())).unwrap();
    let [action] = actions.as_slice() else { panic!("one write: {actions:?}") };
    let ActionWrite::Patch(patch) = &action.write else { panic!("a patch: {action:?}") };
    let operations: json_patch::Patch = serde_json::from_value(patch.at_version("1")).unwrap();
    json_patch::patch(pod, &operations).unwrap();
}

fn compare_pods(deployment: &Value, step: &Value, note: &str) {
    let state = &step["expect"]["state"];
    let workloads = all(state, "Workload");
    let mut theirs: Vec<String> = all(state, "Pod").iter().map(|(_, shape)| sorted(&wanted(shape))).collect();
    let mut mine = Vec::new();
    for number in 0..theirs.len() {
        let mut pod = new_pod(deployment);
        if let Some((name, workload)) = workloads.get(number) {
            start(&mut pod, name, workload, note);
        }
        mine.push(sorted(&shown(&pod)));
    }
    theirs.sort();
    mine.sort();
    assert_eq!(mine, theirs, "{note}");
}

/// Text of a value with sorted keys.
fn sorted(value: &Value) -> String {
    let mut value = value.clone();
    value.sort_all_objects();
    value.to_string()
}

#[test]
fn deployments_live_as_recorded() {
    let scenarios = scenarios("deployment");
    let mut steps = 0;
    for scenario in &scenarios {
        let mut deployment = Value::Null;
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            let note = format!("{} step {number}: {}", text(&scenario["name"]), text(&step["note"]));
            for (act, code) in
                step["acts"].as_array().unwrap().iter().zip(step["expect"]["codes"].as_array().unwrap())
            {
                if code.as_u64() >= Some(300) || !text(&act["path"]).contains("/deployments") {
                    continue;
                }
                match text(&act["do"]) {
                    "create" => deployment = act["body"].clone(),
                    "patch" => apply_act(&mut deployment, act),
                    _ => deployment = Value::Null,
                }
                if deployment.is_object() {
                    mark(&mut deployment);
                }
            }
            let recorded = all(&step["expect"]["state"], "Deployment");
            assert_eq!(recorded.len(), usize::from(deployment.is_object()), "{note}");
            if let Some((_, shape)) = recorded.first() {
                let metadata = |deployment: &Value| plain(&deployment["spec"]["template"]["metadata"]);
                assert_eq!(metadata(&deployment), metadata(shape), "{note}");
                steps += 1;
            }
            if number == 0 {
                compare_pods(&deployment, step, &note);
            }
        }
    }
    println!("deployment: {} scenarios, {steps} steps", scenarios.len());
}
