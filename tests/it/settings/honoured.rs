//! Settings and fields that are honoured: what they change in a life, and not that they are read.

use crate::fixtures::leading_core::{Core, JOB, condition, job, reserving_workload, writes};
use crate::fixtures::simulate_command::{QUEUES, TestFolder, run_simulate};
use serde_json::{Value, json};
use sluice::api::config;
use sluice::cache::Kind;
use sluice::cli::manager::config_mapping;
use sluice::frameworks::known_frameworks;
use sluice::reconciler::{CoreSettings, Effect, Write};

/// Settings of a manager whose configuration has these sections.
fn settings(sections: &str) -> CoreSettings {
    let text = format!("apiVersion: {}\nkind: Configuration\n{sections}\n", config::API_VERSION);
    let loaded = config::parse(&text, &known_frameworks()).unwrap();
    config_mapping::core_settings(&loaded.configuration, "sluice-system")
}

fn admitted() -> [Value; 2] {
    ["QuotaReserved", "Admitted"].map(|kind| condition(kind, "True", "x"))
}

fn written_condition(effects: &[Effect], kind: &str) -> Option<Value> {
    let conditions = |write: Write| write.body["status"]["conditions"].clone();
    let all = writes(effects, Kind::Workload).into_iter().map(conditions);
    let mut all = all.flat_map(|list| list.as_array().cloned().unwrap_or_default());
    all.find(|condition| condition["type"] == kind)
}

/// A Workload that was ready and has lost a pod is evicted when the time to recover is over, and not before.
#[test]
fn recovery_timeout_evicts_what_does_not_recover() {
    let sections = |recovery| format!("waitForPodsReady: {{timeout: 1h, recoveryTimeout: {recovery}}}");
    for (recovery, evicted) in [("2m", true), ("10m", false), ("0s", false)] {
        let mut core = Core::new(settings(&sections(recovery)));
        let mut running = job("j");
        running["spec"]["suspend"] = json!(false);
        running["status"] = json!({"active": 1, "ready": 0});
        core.put(JOB, running);
        let [reserved, admitted] = admitted();
        let lost = condition("PodsReady", "False", "WaitForRecovery");
        core.put(Kind::Workload, reserving_workload("j", &[reserved, admitted, lost]));
        let early = core.advance_seconds(60);
        assert_eq!(written_condition(&early, "Evicted"), None, "{recovery}");
        let late = core.advance_seconds(120);
        let reason = written_condition(&late, "Evicted").map(|condition| condition["reason"].clone());
        assert_eq!(reason, evicted.then(|| json!("PodsReadyTimeout")), "{recovery}");
        let causes: Vec<Value> = writes(&late, Kind::Workload)
            .iter()
            .filter_map(|write| {
                write.body.pointer("/status/schedulingStats/evictions/0/underlyingCause").cloned()
            })
            .collect();
        assert_eq!(causes, evicted.then(|| json!("WaitForRecovery")).into_iter().collect::<Vec<_>>());
    }
}

/// A Workload that a timeout evicted goes behind the one that was created after it, or before it.
#[test]
fn requeuing_timestamp_decides_the_place_after_a_timeout() {
    let job = |name: &str, annotations: Value| {
        let mut job = job(name);
        job["apiVersion"] = json!("batch/v1");
        job["kind"] = json!("Job");
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("q");
        job["metadata"]["annotations"] = annotations;
        job
    };
    // The first one is never ready, the second one runs until the back-off of the first is over.
    let jobs = [
        job("evicted", json!({"sluice.dev/ready-after": "5h"})),
        job("between", json!({"sluice.dev/arrives-after": "1m", "sluice.dev/run-for": "30m"})),
        job("later", json!({"sluice.dev/arrives-after": "2m", "sluice.dev/run-for": "30m"})),
    ];
    let folder = TestFolder::new("requeuing-timestamp");
    let objects =
        folder.write("jobs.json", json!({"apiVersion": "v1", "kind": "List", "items": jobs}).to_string());
    for (timestamp, expected) in [("Eviction", "ns/later"), ("Creation", "ns/evicted")] {
        let config = format!(
            "apiVersion: {}\nkind: Configuration\nwaitForPodsReady: {{timeout: 5m, requeuingStrategy: {{timestamp: {timestamp}}}}}",
            config::API_VERSION
        );
        let config = folder.write(&format!("{timestamp}.yaml"), config);
        let (_, report, errors) =
            run_simulate(&["-", &objects, "--config", &config, "-n", "ns", "--until=40m", "-o=json"], QUEUES);
        let report: Value = serde_json::from_str(&report).expect(&errors);
        let admitted =
            report["timeline"].as_array().unwrap().iter().filter(|event| event["event"] == "admitted");
        let order: Vec<&str> = admitted.filter_map(|event| event["job"].as_str()).collect();
        assert_eq!(order[..3], ["ns/evicted", "ns/between", expected], "{timestamp}");
    }
}

/// A check of some flavors is asked for a Workload on one of them, and for no other.
#[test]
fn checks_of_flavors_are_asked_on_them_alone() {
    for (flavor, states) in [("f", 1), ("g", 0)] {
        let mut core = Core::new(settings(""));
        core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "g"}, "spec": {}}));
        core.put(
            Kind::AdmissionCheck,
            json!({"metadata": {"name": "check"}, "spec": {"controllerName": "example.com/check"},
                "status": {"conditions": [condition("Active", "True", "Active")]}}),
        );
        let groups = json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]},
            {"name": "g", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
        core.put(
            Kind::ClusterQueue,
            json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups,
                "admissionChecksStrategy": {"admissionChecks": [{"name": "check", "onFlavors": ["f"]}]}}}),
        );
        let mut reserving = reserving_workload("j", &[condition("QuotaReserved", "True", "x")]);
        reserving["status"]["admission"]["podSetAssignments"][0]["flavors"]["cpu"] = json!(flavor);
        core.put(JOB, job("j"));
        let written = writes(&core.put(Kind::Workload, reserving), Kind::Workload);
        let asked =
            written.iter().find_map(|write| write.body["status"]["admissionChecks"].as_array().map(Vec::len));
        assert_eq!(asked.unwrap_or_default(), states, "{flavor}: {written:?}");
    }
}
