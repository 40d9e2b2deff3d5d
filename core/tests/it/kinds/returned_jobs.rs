//! Jobs whose status says that they run after it said that they had finished: each run has its quota.

use crate::fixtures::job_server::{JobServer, kind};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, framework};

/// A kind with two states of its status, in which it has ended and in which it runs.
struct Case {
    group: &'static str,
    kind: &'static str,
    name: &'static str,
    spec: Value,
    ended: Value,
    runs: Value,
}

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn cases() -> Vec<Case> {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "r", "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let cluster = json!({"headGroupSpec": {"template": template()}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "w"},
        "spec": {"template": template()}});
    vec![
        Case {
            group: "sparkoperator.k8s.io",
            kind: "SparkApplication",
            name: "sparkoperator.k8s.io/sparkapplication",
            spec: json!({"type": "Scala", "mode": "cluster", "sparkVersion": "4.0.0",
                "mainApplicationFile": "local:///a.jar", "driver": {"coreRequest": "1"},
                "executor": {"instances": 1, "coreRequest": "1"}}),
            ended: json!({"driverInfo": {}, "applicationState": {"state": "COMPLETED", "errorMessage": ""}}),
            runs: json!({"driverInfo": {}, "applicationState": {"state": "PENDING_RERUN", "errorMessage": ""}}),
        },
        Case {
            group: "ray.io",
            kind: "RayJob",
            name: "ray.io/rayjob",
            spec: json!({"shutdownAfterJobFinishes": true, "submissionMode": "HTTPMode", "rayClusterSpec": cluster}),
            ended: json!({"jobDeploymentStatus": "Failed", "message": "x"}),
            runs: json!({"jobDeploymentStatus": "Suspended"}),
        },
        Case {
            group: "workload.codeflare.dev",
            kind: "AppWrapper",
            name: "workload.codeflare.dev/appwrapper",
            spec: json!({"components": [{"template": job}]}),
            ended: json!({"phase": "Succeeded"}),
            runs: json!({"phase": "Resuming"}),
        },
        Case {
            group: "kubeflow.org",
            kind: "PyTorchJob",
            name: "kubeflow.org/pytorchjob",
            spec: json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template()}}}),
            ended: json!({"conditions": [condition("Failed", "True")], "replicaStatuses": {}}),
            runs: json!({"conditions": [condition("Failed", "False")], "replicaStatuses": {}}),
        },
    ]
}

fn server(case: &Case) -> (JobServer, &'static Framework, Kind) {
    limited_server(case, None)
}

/// The job has a maximum execution time, if any.
fn limited_server(case: &Case, seconds: Option<&str>) -> (JobServer, &'static Framework, Kind) {
    let mut server = JobServer::new(&[case.name], "4");
    let row = framework(case.group, case.kind).unwrap();
    let mut metadata = json!({"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    if let Some(seconds) = seconds {
        metadata["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!(seconds);
    }
    server.submit(row, json!({"metadata": metadata, "spec": case.spec})).unwrap();
    assert!(server.holds_quota(), "{}", case.kind);
    (server, row, kind(case.group, case.kind))
}

fn finished(server: &JobServer) -> bool {
    server.condition("Finished").is_some_and(|(status, _)| status == "True")
}

fn suspended(server: &JobServer, row: &Framework, kind: Kind) -> bool {
    server.get(kind, "j").unwrap().pointer(row.fields.suspend.unwrap()) == Some(&json!(true))
}

#[test]
fn a_job_that_comes_back_is_queued_again() {
    for case in cases() {
        let (mut server, row, kind) = server(&case);
        let first = server.all(Kind::Workload)[0]["metadata"]["uid"].clone();
        server.edit(kind, "j", |job| job["status"] = case.ended.clone());
        assert!(finished(&server), "{}", case.kind);
        server.events.clear();
        server.edit(kind, "j", |job| job["status"] = case.runs.clone());
        let stopped = server.events.iter().find(|event| event.reason == "Stopped");
        let note = stopped.map(|event| event.note.clone()).unwrap_or_default();
        assert!(note.contains("runs again after it has finished"), "{}: {:?}", case.kind, server.events);
        let workloads = server.all(Kind::Workload);
        assert!(workloads.len() == 1 && workloads[0]["metadata"]["uid"] != first, "{}", case.kind);
        assert!(!finished(&server) && server.holds_quota(), "{}", case.kind);
        assert!(!suspended(&server, row, kind), "{}: it runs on the quota of its next Workload", case.kind);
    }
}

/// What has no quota for its next run waits for it.
#[test]
fn a_job_that_comes_back_waits_for_quota() {
    for case in cases() {
        let (mut server, row, kind) = server(&case);
        server.edit(kind, "j", |job| job["status"] = case.ended.clone());
        server.edit_queue("0");
        server.edit(kind, "j", |job| job["status"] = case.runs.clone());
        assert!(
            suspended(&server, row, kind) && !server.holds_quota() && !finished(&server),
            "{}",
            case.kind
        );
        server.edit_queue("4");
        assert!(!suspended(&server, row, kind) && server.holds_quota(), "{}", case.kind);
    }
}

/// Lets an operator, or two of them, change its mind each second for five minutes. Returns the number of writes.
fn writes_of_a_flip(server: &mut JobServer, case: &Case, kind: Kind) -> usize {
    let before = server.writes;
    for second in 0..300 {
        let status = if second % 2 == 0 { &case.ended } else { &case.runs };
        server.edit(kind, "j", |job| job["status"] = status.clone());
        server.advance(SignedDuration::from_secs(1));
    }
    server.writes.saturating_sub(before)
}

#[test]
fn a_status_that_flips_costs_few_writes() {
    for case in cases() {
        for seconds in [None, Some("3600")] {
            let (mut server, _, kind) = limited_server(&case, seconds);
            let writes = writes_of_a_flip(&mut server, &case, kind);
            // With a limit each run has a Workload beside the former one, whose time it takes over.
            let most = if seconds.is_some() { 250 } else { 200 };
            assert!(writes <= most, "{}, limit {seconds:?}: {writes} writes for 300 changes", case.kind);
            server.edit(kind, "j", |job| job["status"] = case.runs.clone());
            server.advance(SignedDuration::from_secs(120));
            assert!(server.holds_quota() && !finished(&server), "{}, limit {seconds:?}", case.kind);
        }
    }
}

/// What has used up its time is not begun again by each flip.
#[test]
fn a_status_that_flips_past_the_execution_time_costs_few_writes() {
    for case in cases() {
        let (mut server, _, kind) = limited_server(&case, Some("10"));
        let writes = writes_of_a_flip(&mut server, &case, kind);
        assert!(writes <= 300, "{}: {writes} writes for 300 changes", case.kind);
        server.edit(kind, "j", |job| job["status"] = case.runs.clone());
        server.advance(SignedDuration::from_secs(120));
        let workloads = server.all(Kind::Workload);
        assert!(workloads.len() == 1 && !server.holds_quota(), "{}: {workloads:?}", case.kind);
        assert_eq!(workloads[0]["spec"]["active"], json!(false), "{}", case.kind);
    }
}

/// The operator submits again by itself, or writes that the application has failed.
#[test]
fn a_failed_submission_is_no_end() {
    let case = cases().remove(0);
    let (mut server, row, kind) = server(&case);
    let state = |state: &str| json!({"driverInfo": {}, "submissionAttempts": 1, "applicationState": {"state": state, "errorMessage": "x"}});
    for (said, holds) in [
        ("SUBMISSION_FAILED", true),
        ("SUBMITTED", true),
        ("RUNNING", true),
        ("SUBMISSION_FAILED", true),
        ("FAILED", false),
    ] {
        server.edit(kind, "j", |job| job["status"] = state(said));
        assert_eq!(finished(&server), !holds, "{said}");
        assert!(server.holds_quota() || !holds, "{said}");
        assert!(!suspended(&server, row, kind), "{said}");
    }
}

/// Its runs have one execution limit, and the Workload of the former run goes.
#[test]
fn a_job_that_comes_back_has_run_before() {
    for case in cases() {
        let (mut server, _, kind) = limited_server(&case, Some("60"));
        for _ in 0..3 {
            server.advance(SignedDuration::from_secs(13));
            server.edit(kind, "j", |job| job["status"] = case.ended.clone());
            assert!(finished(&server), "{}", case.kind);
            server.advance(SignedDuration::from_secs(600));
            server.edit(kind, "j", |job| job["status"] = case.runs.clone());
            assert!(server.holds_quota() && !finished(&server), "{}", case.kind);
        }
        server.advance(SignedDuration::from_secs(26));
        assert_eq!(server.all(Kind::Workload)[0]["spec"]["active"], json!(false), "{}", case.kind);
    }
}

/// The Workload that it names was made for the run that has ended: the job waits, and says for what, until it names another one.
#[test]
fn a_job_that_comes_back_does_not_run_on_a_prebuilt_workload_that_has_ended() {
    for case in cases() {
        let (mut server, row, kind) = server(&case);
        let pod_sets = server.all(Kind::Workload)[0]["spec"]["podSets"].clone();
        server.delete(kind, "j");
        let prebuilt = |server: &mut JobServer, name: &str| {
            server.create(
                Kind::Workload,
                json!({"metadata": {"name": name, "namespace": "ns"},
                    "spec": {"queueName": "lq", "active": true, "podSets": pod_sets}}),
            );
        };
        prebuilt(&mut server, "first");
        let metadata = json!({"name": "j", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq",
            "kueue.x-k8s.io/prebuilt-workload-name": "first"}});
        if let Err(refused) = server.submit(row, json!({"metadata": metadata, "spec": case.spec})) {
            assert!(refused.contains("Is not supported"), "{}: {refused}", case.kind);
            continue;
        }
        assert!(server.holds_quota() && !suspended(&server, row, kind), "{}", case.kind);
        server.edit(kind, "j", |job| job["status"] = case.ended.clone());
        assert!(finished(&server), "{}", case.kind);
        server.edit(kind, "j", |job| job["status"] = case.runs.clone());
        server.advance(SignedDuration::from_secs(60));
        assert!(suspended(&server, row, kind), "{}: {:?}", case.kind, server.events);
        assert!(
            finished(&server) && server.workload_name() == "first",
            "{}: it is not the manager's",
            case.kind
        );
        let writes = server.writes;
        server.advance(SignedDuration::from_secs(600));
        assert_eq!(server.writes, writes, "{}: nothing is left to do", case.kind);
    }
}

/// A running job that is changed so that it cannot be read keeps its quota as long as it runs.
#[test]
fn a_running_job_that_cannot_be_read_keeps_its_quota() {
    let case = cases().remove(0);
    for value in ["True", "true", "TRUE"] {
        let (mut server, row, kind) = server(&case);
        let state =
            |state: &str| json!({"driverInfo": {}, "applicationState": {"state": state, "errorMessage": ""}});
        server.edit(kind, "j", |job| job["status"] = state("RUNNING"));
        server.edit(kind, "j", |job| {
            job["spec"]["sparkConf"] = json!({"spark.dynamicAllocation.enabled": value});
        });
        server.advance(SignedDuration::from_secs(600));
        assert!(server.holds_quota() && !suspended(&server, row, kind), "{value}: {:?}", server.events);
        assert!(
            server.events.iter().any(|event| event.reason == "Unreadable"),
            "{value}: {:?}",
            server.events
        );
        server.edit(kind, "j", |job| job["status"] = state("COMPLETED"));
        server.edit(kind, "j", |job| job["spec"]["sparkConf"] = json!({}));
        assert!(finished(&server), "{value}");
    }
}
