//! TrainJobs whose runtime changes or goes: a queued one follows its runtime, one that runs was decided when it started.

use crate::fixtures::job_samples::{related, submitted};
use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;
use sluice_core::reconciler::CoreSettings;

const NAME: &str = "train";

fn settings() -> CoreSettings {
    let frameworks = ["trainer.kubeflow.org/trainjob".to_owned()].into();
    CoreSettings { frameworks, ..CoreSettings::default() }
}

fn train_jobs() -> Kind {
    kind("trainer.kubeflow.org", "TrainJob")
}

/// A manager with a queue of as many CPUs, the runtime of the samples, and a TrainJob that asks for 3 CPUs by it.
fn server(cpus: &str) -> (JobServer, Kind) {
    let mut server = JobServer::with_settings(settings(), AdmissionSettings::default(), cpus);
    let mut runtimes = related().into_iter().filter(|(_, object)| object["kind"] == "ClusterTrainingRuntime");
    let (runtimes, runtime) = runtimes.next().expect("the runtime of the samples");
    server.create(runtimes, runtime);
    let row = framework("trainer.kubeflow.org", "TrainJob").unwrap();
    let mut job = submitted(row);
    job["metadata"] = json!({"name": NAME, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    server.submit(row, job).unwrap();
    (server, runtimes)
}

fn suspended(server: &JobServer) -> bool {
    server.get(train_jobs(), NAME).unwrap()["spec"]["suspend"] == true
}

/// Returns what the first container of the first pod set of the Workload requests.
fn requested(server: &JobServer) -> Value {
    let workload = server.get(Kind::Workload, &server.workload_name()).unwrap();
    workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        .clone()
}

/// Changes what the first job of the runtime requests.
fn edit_runtime(server: &mut JobServer, runtimes: Kind, cpu: &str) {
    server.edit_cluster_object(runtimes, "sample-runtime", |runtime| {
        let jobs = &mut runtime["spec"]["template"]["spec"]["replicatedJobs"];
        jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
            json!(cpu);
    });
}

#[test]
fn queued_job_follows_its_runtime() {
    let (mut server, runtimes) = server("2");
    assert!(suspended(&server) && !server.holds_quota());
    edit_runtime(&mut server, runtimes, "7");
    assert_eq!(requested(&server), "7");
    server.edit_queue("9");
    assert!(!suspended(&server) && server.holds_quota());
}

#[test]
fn running_job_goes_on_whatever_becomes_of_its_runtime() {
    let (mut server, runtimes) = server("3");
    assert!(!suspended(&server) && server.holds_quota());
    server
        .edit(train_jobs(), NAME, |job| job["status"]["jobsStatus"] = json!([{"name": "node", "active": 1}]));
    for restart in [false, true] {
        edit_runtime(&mut server, runtimes, "7");
        if restart {
            server.restart(settings());
        }
        assert!(!suspended(&server) && server.holds_quota(), "restarted: {restart}");
        assert_eq!(requested(&server), "1");
    }
    server.delete_cluster_object(runtimes, "sample-runtime");
    server.restart(settings());
    assert!(!suspended(&server) && server.holds_quota());

    // Its end needs no runtime.
    server.deactivate();
    assert!(suspended(&server) && server.holds_quota(), "its pods end");
    server
        .edit(train_jobs(), NAME, |job| job["status"]["jobsStatus"] = json!([{"name": "node", "active": 0}]));
    assert!(!server.holds_quota());
    let entry = &server.get(train_jobs(), NAME).unwrap()["spec"]["runtimePatches"][0];
    assert_eq!(entry["trainingRuntimeSpec"]["template"]["spec"], json!({}), "its start is undone");
}

/// A TrainJob that a user changes while it is stopped starts only as it is charged.
#[test]
fn stopped_job_that_was_changed_is_queued_again() {
    let (mut server, _) = server("3");
    server.edit(train_jobs(), NAME, |job| {
        job["spec"]["suspend"] = json!(true);
        job["spec"]["trainer"]["numNodes"] = json!(40);
    });
    server.edit(train_jobs(), NAME, |job| job["spec"]["suspend"] = json!(false));
    assert!(suspended(&server) && !server.holds_quota(), "{:?}", server.get(train_jobs(), NAME));
}

/// Nothing else waits for a runtime that does not exist.
#[test]
fn absent_runtime_is_named_by_an_event() {
    let (mut server, runtimes) = server("3");
    server.delete_cluster_object(runtimes, "sample-runtime");
    let row = framework("trainer.kubeflow.org", "TrainJob").unwrap();
    let mut other = submitted(row);
    other["metadata"] =
        json!({"name": "other", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
    let refused = server.admit(row, other.clone(), None).unwrap_err();
    assert!(
        refused.contains("spec.runtimeRef") && refused.contains("sample-runtime does not exist"),
        "{refused}"
    );
    // No webhook has answered.
    server.create(train_jobs(), other);
    let notes: Vec<&str> = server.events.iter().map(|event| event.note.as_str()).collect();
    assert!(notes.contains(&"ClusterTrainingRuntime sample-runtime does not exist"), "{notes:?}");
    let (_, runtime) = related().into_iter().find(|(kind, _)| *kind == runtimes).unwrap();
    server.create(runtimes, runtime);
    assert_eq!(server.all(Kind::Workload).len(), 2);
}

/// A job that waits and whose runtime is gone takes no quota: it could not start. It says so, and goes on when the runtime is back.
#[test]
fn waiting_job_without_its_runtime_holds_no_quota() {
    let (mut server, runtimes) = server("2");
    let runtime = server.get_cluster_object(runtimes, "sample-runtime").unwrap().clone();
    server.delete_cluster_object(runtimes, "sample-runtime");
    server.edit_queue("9");
    assert!(suspended(&server) && !server.holds_quota());
    let note = |reason: &str| {
        let event = server.events.iter().find(|event| event.reason == reason);
        event.map(|event| event.note.clone()).unwrap_or_default()
    };
    assert!(note("ErrWorkloadCompose").contains("sample-runtime"), "{:?}", server.events);
    server.create(runtimes, runtime);
    assert!(!suspended(&server) && server.holds_quota());
}

/// What its start has written is taken away while no manager runs: the next one puts it back.
#[test]
fn patches_that_were_emptied_while_no_manager_ran_are_put_back() {
    for empty in [json!([]), Value::Null] {
        let (mut server, _) = server("3");
        let label = "kueue.x-k8s.io/podset";
        let patches = |server: &JobServer| {
            server.get(train_jobs(), NAME).unwrap()["spec"]["runtimePatches"].to_string()
        };
        assert!(patches(&server).contains(label));
        server.edit(train_jobs(), NAME, |job| {
            job["status"]["jobsStatus"] = json!([{"name": "node", "active": 1}]);
        });
        server.restart_after_edit(settings(), (train_jobs(), NAME), |job| {
            job["spec"]["runtimePatches"] = empty.clone();
        });
        assert!(!suspended(&server) && server.holds_quota(), "{empty}: {:?}", server.events);
        assert!(patches(&server).contains(label), "{empty}: {}", patches(&server));
    }
}
