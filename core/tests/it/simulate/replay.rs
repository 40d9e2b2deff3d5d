//! Replay of recorded scenarios, through the same code as `sluice simulate --jsonl`.

use serde_json::{Value, json};
use sluice_core::simulate::{Scenario, replay};

const KUEUE_API_VERSION: &str = "kueue.x-k8s.io/v1beta2";

fn queue(name: &str, cpu: &str, strategy: &str) -> Value {
    json!({"apiVersion": KUEUE_API_VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
        "namespaceSelector": {}, "queueingStrategy": strategy,
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "plain", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]}})
}

fn local(name: &str, cluster_queue: &str) -> Value {
    json!({"apiVersion": KUEUE_API_VERSION, "kind": "LocalQueue", "metadata": {"namespace": "team", "name": name},
        "spec": {"clusterQueue": cluster_queue}})
}

fn workload(name: &str, queue: &str, cpu: &str, status: &Value) -> Value {
    json!({"apiVersion": KUEUE_API_VERSION, "kind": "Workload", "metadata": {"namespace": "team", "name": name},
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 2, "template": {"spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}}]},
        "status": status})
}

fn reserving_status(queue: &str, cpu: &str) -> Value {
    json!({"admission": {"clusterQueue": queue, "podSetAssignments": [
            {"name": "main", "count": 2, "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": cpu}}]},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "ByTest", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]})
}

/// Replays the objects, with a namespace and a flavor added. Returns the outcome, which must not differ between two runs.
fn replay_outcome(cycles: u32, config: &Value, mut objects: Vec<Value>) -> Value {
    objects.insert(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}));
    objects.insert(
        1,
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "plain"}}),
    );
    let line = json!({"suite": "own", "name": "own", "now": "2026-01-01T00:00:00Z", "cycles": cycles,
        "config": config, "objects": objects});
    let scenario = Scenario::parse(line.to_string().as_bytes()).unwrap();
    let first = serde_json::to_string(&replay(&scenario).unwrap()).unwrap();
    assert_eq!(first, serde_json::to_string(&replay(&scenario).unwrap()).unwrap());
    serde_json::from_str(&first).unwrap()
}

#[test]
fn cycle_takes_one_head_per_queue() {
    let none = json!({});
    let objects = vec![
        queue("a", "4", "BestEffortFIFO"),
        queue("b", "3", "StrictFIFO"),
        local("to-a", "a"),
        local("to-b", "b"),
        workload("first", "to-a", "1", &none),
        workload("second", "to-a", "500m", &none),
        workload("blocked", "to-b", "1", &none),
        workload("running", "to-b", "1", &reserving_status("b", "2")),
    ];
    let outcome = replay_outcome(1, &json!({}), objects.clone());
    let admissions = json!({"team/first": {"clusterQueue": "a", "podSets": [
        {"name": "main", "count": 2, "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": "2"}}]}});
    let blocked =
        json!({"QuotaReserved": ["False", "WaitingForQuota"], "Admitted": ["False", "NoReservation"]});
    let admitted = json!({"QuotaReserved": ["True", "QuotaReserved"], "Admitted": ["True", "Admitted"]});
    assert_eq!(outcome["admitted"], admissions);
    assert_eq!(outcome["preempted"], json!({}));
    assert_eq!(outcome["pending"], json!({"a": ["team/second"], "b": ["team/blocked"]}));
    assert_eq!(outcome["inadmissible"], json!({}));
    let conditions = json!({"team/first": admitted, "team/second": {}, "team/blocked": blocked,
        "team/running": {"QuotaReserved": ["True", "ByTest"]}});
    assert_eq!(outcome["conditions"], conditions);
    let later = replay_outcome(2, &json!({}), objects);
    assert_eq!(later["admitted"].as_object().unwrap().len(), 2, "{later}");
    assert_eq!(later["pending"], json!({"b": ["team/blocked"]}));
}

/// What a cluster does after a cycle is no part of its outcome: a later step adds the condition Admitted for checks that came
/// with the reservation, the reason of a head that lost its place in the cycle, and the end of a victim's pods.
#[test]
fn outcome_ends_with_its_cycle() {
    let none = json!({});
    let in_cohort = |name: &str, cpu: &str| {
        let mut queue = queue(name, cpu, "BestEffortFIFO");
        queue["spec"]["cohortName"] = json!("shared");
        queue
    };
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let check = json!({"apiVersion": KUEUE_API_VERSION, "kind": "AdmissionCheck", "metadata": {"name": "check"},
        "spec": {"controllerName": "example.com/other"}, "status": {"conditions": [active]}});
    let mut checked = queue("checked", "4", "BestEffortFIFO");
    checked["spec"]["admissionChecksStrategy"] = json!({"admissionChecks": [{"name": "check"}]});
    let mut preempting = queue("preempting", "2", "BestEffortFIFO");
    preempting["spec"]["preemption"] = json!({"withinClusterQueue": "LowerPriority"});
    let mut preemptor = workload("preemptor", "to-preempting", "1", &none);
    preemptor["spec"]["priority"] = json!(9);
    let queues = ["checked", "preempting", "a", "b"];
    let mut objects =
        vec![check, checked, preempting, in_cohort("a", "0"), in_cohort("b", "0"), in_cohort("idle", "2")];
    objects.extend(queues.map(|name| local(&format!("to-{name}"), name)));
    objects.extend([
        workload("checked", "to-checked", "1", &none),
        workload("victim", "to-preempting", "1", &reserving_status("preempting", "2")),
        preemptor,
        workload("first", "to-a", "1", &none),
        workload("second", "to-b", "1", &none),
    ]);
    for cycles in [1, 2] {
        let outcome = replay_outcome(cycles, &json!({}), objects.clone());
        let conditions = &outcome["conditions"];
        assert_eq!(conditions["team/checked"], json!({"QuotaReserved": ["True", "QuotaReserved"]}));
        assert_eq!(outcome["admitted"].as_object().unwrap().len(), 2, "checked and first: {outcome}");
        let waits = ["False", "WaitingForQuota"];
        assert_eq!(conditions["team/second"]["QuotaReserved"], json!(waits), "{outcome}");
        assert_eq!(outcome["preempted"], json!({"team/victim": "InClusterQueue"}));
        assert_eq!(conditions["team/victim"]["QuotaReserved"], json!(["True", "ByTest"]), "its pods run");
        assert_eq!(conditions["team/preemptor"]["QuotaReserved"][0], "False");
    }
}

#[test]
fn idle_cycles_take_no_time() {
    let objects = vec![
        queue("a", "4", "BestEffortFIFO"),
        local("to-a", "a"),
        workload("first", "to-a", "1", &json!({})),
        workload("second", "to-a", "2", &json!({})),
    ];
    assert_eq!(replay_outcome(3, &json!({}), objects.clone()), replay_outcome(u32::MAX, &json!({}), objects));
}

#[test]
fn infeasible_best_effort_workload_is_parked() {
    let objects = vec![
        queue("a", "3", "BestEffortFIFO"),
        local("to-a", "a"),
        workload("large", "to-a", "2", &json!({})),
        workload("small", "to-a", "1", &json!({})),
    ];
    let outcome = replay_outcome(1, &json!({}), objects);
    assert_eq!(outcome["inadmissible"], json!({"a": ["team/large"]}));
    assert_eq!(outcome["conditions"]["team/large"]["QuotaReserved"], json!(["False", "ExceedsMaxQuota"]));
    assert_eq!(outcome["pending"], json!({"a": ["team/small"]}));
}

#[test]
fn unreadable_object_does_not_affect_others() {
    let mut broken = workload("broken", "to-a", "1", &json!({}));
    broken["spec"]["podSets"] = json!("none");
    let objects = vec![
        queue("a", "3", "BestEffortFIFO"),
        local("to-a", "a"),
        broken,
        workload("ok", "to-a", "1", &json!({})),
    ];
    let outcome = replay_outcome(1, &json!({}), objects);
    assert!(outcome["admitted"]["team/ok"].is_object(), "{outcome}");
    assert!(outcome["unreadable"]["team/broken"].as_str().unwrap().contains("cannot be read"), "{outcome}");
}

#[test]
fn invalid_lines_are_refused_with_reason() {
    let table = [
        ("{", "EOF"),
        (r#"{"objects": []}"#, "missing field `now`"),
        (r#"{"now": "yesterday", "objects": []}"#, "column 19"),
    ];
    for (line, reason) in table {
        let error = Scenario::parse(line.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(reason), "{line}: {error}");
    }
    let config = json!({"fairSharing": true, "fairStrategies": ["Fairest"]});
    let line = json!({"now": "2026-01-01T00:00:00Z", "config": config, "objects": []});
    let error = replay(&Scenario::parse(line.to_string().as_bytes()).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "fairStrategies: \"Fairest\" is unknown");
}
