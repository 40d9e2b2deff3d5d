//! Lives of pods and pod groups.
//!
//! Compared at each step: the labels, annotations, finalizers and gates of new pods after the webhook; the Workload that
//! the pods make up, its owners and pod sets; labels, annotations, node selectors, tolerations and gates after the start;
//! which pods are removed or replaced; whether replacements are awaited; readiness, result and reclaimable pods; the pods
//! that a stop deletes and its reason. The test does what the API server does: it adds tolerations and a priority to new
//! pods. When the Workload is admitted or evicted is read from the recording.

use super::{apply_act, flavors, granted, plain, playable, recorded, scenarios, text};
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::api::validation::Gates;
use sluice_core::frameworks::{
    Action, ActionWrite, Beside, Change, Component, FieldChange, JobKind, PatchBody, PodMember, PodSetCount,
    Priority, Readiness, Sources, Stop, StopScope, Target, Unit, UnitRules, UnitSummary, WorkloadRequest,
    hold_pod,
};
use std::sync::Arc;

/// Scenarios whose course is decided by more than the rules of pods: by name, with the reason.
const NOT_PLAYED: &[(&str, &str)] = &[
    ("-topology", "the topology gate is added by the reconciler"),
    ("-check", "the update of an admission check is merged by the reconciler"),
    ("-name-taken", "the Workload is made by the user"),
    ("-owned", "the Workload belongs to a Job"),
    ("-prebuilt", "the Workload is made by the user"),
];

/// The pods of a scenario, and its Workload.
struct Group {
    rules: &'static dyn UnitRules,
    pods: Vec<Value>,
    workload: Option<Value>,
    name: String,
}

/// Sets fields as the webhook does.
pub(super) fn set_fields(object: &mut Value, changes: &[FieldChange]) {
    for change in changes {
        let mut at = &mut *object;
        for name in &change.path {
            at = &mut at[name.as_str()];
        }
        *at = change.value.clone();
    }
}

/// Stores a new pod as a server does.
pub(super) fn store_pod(mut pod: Value, number: usize) -> Value {
    let name = text(&pod["metadata"]["name"]).to_owned();
    pod["metadata"]["uid"] = json!(format!("uid(Pod/{name})"));
    pod["metadata"]["resourceVersion"] = json!("1");
    pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{number:02}Z"));
    pod["status"]["phase"] = json!("Pending");
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            for port in container["ports"].as_array_mut().into_iter().flatten() {
                port["protocol"] = json!("TCP");
            }
            for (resource, limit) in
                container["resources"]["limits"].clone().as_object().into_iter().flatten()
            {
                let request = &mut container["resources"]["requests"][resource.as_str()];
                if request.is_null() {
                    *request = limit.clone();
                }
            }
        }
    }
    if pod["spec"]["priority"].is_null() {
        let class = text(&pod["spec"]["priorityClassName"]);
        let classes = [("jobs-pods", 700), ("jobs-pods-2", 50)];
        let value = classes.iter().find(|(name, _)| *name == class).map_or(0, |(_, value)| *value);
        pod["spec"]["priority"] = json!(value);
    }
    if pod["spec"]["tolerations"].is_null() {
        pod["spec"]["tolerations"] = json!([]);
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let toleration =
            json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
        pod["spec"]["tolerations"].as_array_mut().unwrap().push(toleration);
    }
    pod
}

/// Returns a pod as recordings show it.
pub(super) fn shown(pod: &Value) -> Value {
    let spec = &pod["spec"];
    let tolerations = spec["tolerations"].as_array().into_iter().flatten();
    let own = tolerations.filter(|t| !text(&t["key"]).starts_with("node.kubernetes.io/"));
    plain(&json!({
        "labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"],
        "finalizers": pod["metadata"]["finalizers"], "phase": pod["status"]["phase"],
        "deleting": pod["metadata"].get("deletionTimestamp").map(|_| true),
        "spec": {
            "nodeSelector": spec["nodeSelector"], "schedulingGates": spec["schedulingGates"],
            "priorityClassName": spec["priorityClassName"], "tolerations": own.collect::<Vec<_>>(),
        },
    }))
}

/// Returns what the recording says of a pod, without fields that other controllers own.
pub(super) fn wanted(shape: &Value) -> Value {
    let mut shape = shape.clone();
    shape.as_object_mut().unwrap().shift_remove("terminationTarget");
    plain(&shape)
}

pub(super) fn rules() -> &'static dyn UnitRules {
    JobKind::POD.unit_rules().expect("pods have Workloads")
}

/// Returns the unit of these pods.
pub(super) fn unit<'a>(members: &'a [Arc<PodMember>], summary: &'a UnitSummary) -> Unit<'a> {
    Unit { kind: JobKind::POD, component: Component::PodGroup, owner: None, members, summary }
}

/// Returns the sources of pods, which are made of themselves.
pub(super) fn sources() -> Sources<'static> {
    Sources { owner: None, beside: Beside::NOTHING }
}

pub(super) fn summary_of(members: &[Arc<PodMember>]) -> UnitSummary {
    UnitSummary::of(members.iter().map(|member| &**member))
}

pub(super) fn members(pods: &[Value]) -> Vec<Arc<PodMember>> {
    let read = |pod: &Value| PodMember::read(Arc::new(pod.clone())).unwrap();
    pods.iter().filter_map(read).map(Arc::new).collect()
}

pub(super) fn request<'a>(
    name: &'a str,
    queue: Option<&'a str>,
    keys: &'a [String],
    priority: &'a Priority,
) -> WorkloadRequest<'a> {
    WorkloadRequest { name, queue_name: queue, label_keys_to_copy: keys, priority, slice: None }
}

impl Group {
    fn act(&mut self, actions: &[Action]) {
        for action in actions {
            let Target::Member(member) = &action.target else { panic!("pods have no owner here") };
            match &action.write {
                ActionWrite::Patch(patch) => {
                    let pod = self.pod(member);
                    let PatchBody::Json(_) = patch.body() else { panic!("pods have arrays") };
                    let operations: json_patch::Patch =
                        serde_json::from_value(patch.at_version("1")).unwrap();
                    json_patch::patch(pod, &operations).unwrap();
                }
                ActionWrite::Delete { condition } => {
                    let pod = self.pod(member);
                    // A pod that is not bound has no grace period.
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
                    if let Some(condition) = condition {
                        pod["target"] = json!([condition["reason"]]);
                    }
                }
            }
        }
        let gone = |pod: &Value| pod["metadata"].get("deletionTimestamp").is_some();
        self.pods.retain(|pod| {
            !gone(pod) || !plain(&pod["metadata"]["finalizers"]).as_array().is_none_or(Vec::is_empty)
        });
    }

    fn pod(&mut self, key: &ObjectKey) -> &mut Value {
        self.pods.iter_mut().find(|pod| pod["metadata"]["name"] == *key.name).expect("a pod")
    }

    /// Makes the Workload if the pods allow it, and keeps the pods in line with it. `settled` compares whether
    /// replacements are awaited.
    fn reconcile(&mut self, step: &Value, settled: bool) {
        let pods = self.pods.clone();
        let list = members(&pods);
        let summary = summary_of(&list);
        let unit = unit(&list, &summary);
        if list.is_empty() {
            return;
        }
        if self.workload.is_none() {
            let (keys, priority) = (["example.com/team".to_owned()], Priority::default());
            let name = self.rules.workload_name(&unit).unwrap();
            let view = self.rules.view(&unit).unwrap();
            let request = request(&name, view.queue_name.as_deref(), &keys, &priority);
            let Ok(composed) = self.rules.compose(&unit, sources(), &request) else { return };
            self.act(&composed.removals);
            self.workload = Some(composed.workload);
        }
        // The Workload follows the queue of its pods.
        let queue = self.rules.view(&unit).unwrap().queue_name;
        self.workload.as_mut().unwrap()["spec"]["queueName"] = json!(queue);
        let recorded = recorded(step, "Workload").map_or(&Value::Null, |(_, workload)| workload);
        let workload = self.workload.clone().unwrap();
        let sets = counts(&workload);
        let finished = recorded["conditions"]["Finished"][0] == "True";
        let membership = self.rules.membership(&unit, &sets, finished);
        let waiting = recorded["conditions"]["WaitingForReplacementPods"][0] == "True";
        assert!(membership.matches || list.iter().all(|member| member.state.deleting), "{}", self.name);
        if settled && !finished {
            assert_eq!(membership.absent > 0, waiting, "{}", self.name);
        }
        let mut actions = Vec::new();
        for member in &list {
            if membership.excess.contains(&member.key) {
                actions.extend(self.rules.remove(member));
            } else if finished || membership.replaced.contains(&member.key) {
                actions.extend(self.rules.release(member));
            }
        }
        let owners = self.workload.as_mut().unwrap()["metadata"]["ownerReferences"].as_array_mut().unwrap();
        for member in list.iter().filter(|member| !membership.excess.contains(&member.key)) {
            let reference = self.rules.owner_reference(&unit, member).unwrap();
            if !owners.contains(&reference) {
                owners.push(reference);
            }
        }
        self.act(&actions);
    }

    /// Starts or stops the pods if the recorded Workload is admitted or evicted.
    fn run(&mut self, step: &Value) {
        let Some((name, workload)) = recorded(step, "Workload") else { return };
        let pods = self.pods.clone();
        let list = members(&pods);
        let summary = summary_of(&list);
        let unit = unit(&list, &summary);
        let evicted = &workload["conditions"]["Evicted"];
        if evicted[0] == "True" {
            let reason = format!("WorkloadEvictedDueTo{}", text(&evicted[1]));
            let stop = Stop {
                reason: &reason,
                message: "m",
                scope: StopScope::Running,
                originals: &[],
                now: "2026-01-01T00:00:30Z",
            };
            let actions = self.rules.stop(&unit, &stop);
            self.act(&actions);
        } else if workload["admission"].is_object() && workload["conditions"]["Finished"].is_null() {
            let actions = self.rules.start(&unit, &granted(name, workload, &flavors())).unwrap();
            self.act(&actions);
            let pods = self.pods.clone();
            let list = members(&pods);
            let summary = summary_of(&list);
            assert!(self.rules.start(&self::unit(&list, &summary), &[]).unwrap().is_empty());
        }
    }

    fn compare(&self, step: &Value) {
        let name = &self.name;
        let state = step["expect"]["state"].as_object().unwrap();
        let pods: Vec<&str> = state.keys().filter_map(|key| key.strip_prefix("Pod ")).collect();
        let mine: Vec<&str> = self.pods.iter().map(|pod| text(&pod["metadata"]["name"])).collect();
        assert_eq!(mine, pods, "{name}");
        for pod in &self.pods {
            let shape = &state[&format!("Pod {}", text(&pod["metadata"]["name"]))];
            assert_eq!(shown(pod), wanted(shape), "{name}");
            if pod["target"].is_array() && shape["terminationTarget"].is_array() {
                assert_eq!(pod["target"], shape["terminationTarget"], "{name}");
            }
        }
        if self.pods.is_empty() {
            // The Workload is deleted with its last owner.
            return;
        }
        let Some((_, recorded)) = recorded(step, "Workload") else {
            assert!(self.workload.is_none(), "{name}: made although it should wait");
            return;
        };
        let workload = plain(self.workload.as_ref().expect(name));
        for field in ["labels", "annotations"] {
            assert_eq!(workload["metadata"][field], recorded[field], "{name} {field}");
        }
        assert_eq!(workload["spec"]["podSets"], plain(&recorded["spec"]["podSets"]), "{name}");
        for field in ["queueName", "maximumExecutionTimeSeconds"] {
            assert_eq!(workload["spec"][field], recorded["spec"][field], "{name} {field}");
        }
        let owners = workload["metadata"]["ownerReferences"].as_array().unwrap();
        let owners: Vec<(&Value, &Value)> =
            owners.iter().map(|owner| (&owner["name"], &owner["controller"])).collect();
        let theirs = recorded["owners"].as_array().unwrap();
        assert_eq!(
            owners,
            theirs.iter().map(|o| (&o["name"], &o["controller"])).collect::<Vec<_>>(),
            "{name}"
        );
        self.compare_status(recorded);
    }

    fn compare_status(&self, recorded: &Value) {
        let list = members(&self.pods);
        let now: Timestamp = "2026-01-01T00:02:00Z".parse().unwrap();
        let status = self.rules.status(&unit(&list, &summary_of(&list)), now);
        let finished = &recorded["conditions"]["Finished"];
        assert_eq!(status.finished.is_some(), finished[0] == "True", "{}", self.name);
        if let Some(result) = &status.finished {
            assert_eq!(finished[1], if result.success { "Succeeded" } else { "Failed" }, "{}", self.name);
        } else if recorded["admission"].is_object() {
            let counts =
                status.reclaimable_pods.iter().map(|(name, count)| json!({"count": count, "name": &**name}));
            let counts = plain(&json!({"p": counts.collect::<Vec<_>>()}));
            assert_eq!(counts["p"], recorded["reclaimablePods"], "{}", self.name);
            let ready = status.readiness == Readiness::Ready;
            assert_eq!(ready, recorded["conditions"]["PodsReady"][0] == "True", "{}", self.name);
        }
    }
}

fn deletion(member: ObjectKey) -> Action {
    Action {
        target: Target::Member(member),
        write: ActionWrite::Delete { condition: None },
        change: Change::Stop,
    }
}

fn counts(workload: &Value) -> Vec<PodSetCount<'_>> {
    let sets = workload["spec"]["podSets"].as_array().unwrap();
    sets.iter()
        .map(|set| PodSetCount {
            name: text(&set["name"]),
            count: i32::try_from(set["count"].as_i64().unwrap()).unwrap(),
            requests: None,
        })
        .collect()
}

/// Plays a scenario until its Workload is deleted. Returns the number of steps that were compared.
fn play(scenario: &Value) -> usize {
    let mut group = Group { rules: rules(), pods: Vec::new(), workload: None, name: String::new() };
    let mut compared = 0;
    for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
        group.name = format!("{} step {number}: {}", text(&scenario["name"]), text(&step["note"]));
        for (act, code) in
            step["acts"].as_array().unwrap().iter().zip(step["expect"]["codes"].as_array().unwrap())
        {
            let path = text(&act["path"]);
            if code.as_u64() >= Some(300) || !path.contains("/pods") {
                if act["do"] == "delete" {
                    // The Workload is deleted.
                    return compared;
                }
                continue;
            }
            match text(&act["do"]) {
                "create" => {
                    // The hash of a role contains what the server's admission plugins added before.
                    let mut pod = store_pod(act["body"].clone(), group.pods.len());
                    if pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_string() {
                        let changes = hold_pod(&pod, &Gates::default()).unwrap();
                        set_fields(&mut pod, &changes);
                    }
                    group.pods.push(pod);
                }
                "delete" => {
                    let member = ObjectKey::new("", path.split("/pods/").nth(1).unwrap());
                    group.act(&[deletion(member)]);
                }
                _ => {
                    let name = path.split("/pods/").nth(1).unwrap().trim_end_matches("/status");
                    let pod = group.pods.iter_mut().find(|pod| pod["metadata"]["name"] == name).unwrap();
                    apply_act(pod, act);
                }
            }
        }
        let deleted = group.pods.iter().all(|pod| pod["metadata"].get("deletionTimestamp").is_some());
        if group.workload.is_some() && recorded(step, "Workload").is_none() && !deleted {
            // Why the pods were stopped went with the Workload.
            return compared;
        }
        group.reconcile(step, false);
        group.run(step);
        group.reconcile(step, true);
        group.compare(step);
        compared += 1;
    }
    compared
}

fn play_all(recording: &str) {
    let scenarios = scenarios(recording);
    let (mut played, mut steps) = (0, 0);
    for scenario in playable(&scenarios, NOT_PLAYED) {
        let compared = play(scenario);
        println!(
            "{}: {compared} of {} steps",
            text(&scenario["name"]),
            scenario["steps"].as_array().unwrap().len()
        );
        steps += compared;
        played += 1;
    }
    println!("{recording}: {played} of {} scenarios, {steps} steps", scenarios.len());
    assert!(played > 5);
}

#[test]
fn pod_groups_live_as_recorded() {
    play_all("pod-group");
}

#[test]
fn pods_live_as_recorded() {
    play_all("pod");
}
