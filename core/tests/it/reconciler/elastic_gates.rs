//! Gates of elastic jobs while their size is being written: what a write in flight may change is not decided upon.

use crate::fixtures::leading_core::{Core, JOB, job, writes};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Write, WriteOutcome, WriteResult};

const GATE: &str = "kueue.x-k8s.io/elastic-job";

fn elastic_job(pods: i32, workload: Option<&Value>) -> Value {
    let mut job = job("a");
    job["metadata"]["generation"] = json!(if workload.is_some() { pods + 2 } else { 1 });
    job["metadata"]["annotations"][GATE] = json!("true");
    job["spec"]["parallelism"] = json!(pods);
    job["spec"]["completions"] = Value::Null;
    job["spec"]["suspend"] = json!(workload.is_none());
    job["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": GATE}]);
    if let Some(workload) = workload {
        job["spec"]["template"]["metadata"] = marks(workload);
    }
    job
}

/// What a start adds to the template.
fn marks(workload: &Value) -> Value {
    let name = &workload["metadata"]["name"];
    json!({"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {
        "kueue.x-k8s.io/workload": name, "kueue.x-k8s.io/workload-slice-name": name}})
}

fn pod(name: &str, workload: &Value) -> Value {
    let mut pod = json!({"metadata": marks(workload), "spec": {"schedulingGates": [{"name": GATE}],
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    pod["metadata"]["name"] = json!(name);
    pod["metadata"]["namespace"] = json!("ns");
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "jobs-a", "controller": true}]);
    pod
}

/// A Job that runs, with its only slice.
fn running(pods: i32) -> (Core, Value) {
    let mut core = Core::new(CoreSettings::default());
    let mut workload = Value::Null;
    let effects = core.put(JOB, elastic_job(pods, None));
    let effects = core.land(&effects, &mut workload);
    let effects = core.land(&effects, &mut workload);
    let [start] = &writes(&effects, JOB)[..] else { panic!("{effects:?}") };
    let started = core.with_server_metadata(JOB, elastic_job(pods, Some(&workload)));
    let (id, kind, key) = (start.id, JOB, start.key.clone());
    core.feed(Delta::Written(WriteResult { id, kind, key, outcome: WriteOutcome::Done(started) }));
    (core, workload)
}

fn of_workloads(effects: &[Effect]) -> Vec<Write> {
    writes(effects, Kind::Workload)
}

/// Without it, the slice would shrink to less than runs when both writes have landed.
#[test]
fn pod_that_is_being_ungated_keeps_its_quota() {
    let (mut core, workload) = running(2);
    let effects = core.put(Kind::Pod, pod("a-0", &workload));
    assert_eq!(writes(&effects, Kind::Pod).len(), 1);
    let effects = core.put(JOB, elastic_job(0, Some(&workload)));
    assert!(of_workloads(&effects).is_empty(), "{effects:?}");
}

/// The slice that is being written has fewer pods than the one before.
#[test]
fn nothing_is_ungated_while_a_slice_shrinks() {
    let (mut core, workload) = running(2);
    let effects = core.put(JOB, elastic_job(1, Some(&workload)));
    let [shrunk] = &of_workloads(&effects)[..] else { panic!("{effects:?}") };
    assert!(shrunk.body.as_array().unwrap().iter().any(|op| op["value"] == 1), "{shrunk:?}");
    let effects = core.put(Kind::Pod, pod("a-0", &workload));
    assert!(writes(&effects, Kind::Pod).is_empty(), "{effects:?}");
}

/// A slice took over and its pods run, but the end of the one before could not be written: that one has quota for fewer pods, so that the
/// Job is stopped and the evicted slice keeps its quota until then.
#[test]
fn evicted_slice_keeps_its_quota_beside_the_one_it_replaced() {
    let (mut core, first) = running(1);
    let ungated = |name: &str| {
        let mut pod = pod(name, &first);
        pod["spec"]["schedulingGates"] = Value::Null;
        pod
    };
    core.put(Kind::Pod, ungated("a-0"));
    let mut second = Value::Null;
    let effects = core.put(JOB, elastic_job(2, Some(&first)));
    let effects = core.land(&effects, &mut second);
    let effects = core.land(&effects, &mut second);
    let [end] = &of_workloads(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(*end.key.name, *first["metadata"]["name"].as_str().unwrap());
    let outcome = WriteOutcome::Unavailable { message: "down".to_owned() };
    let (id, kind, key) = (end.id, Kind::Workload, end.key.clone());
    let effects = core.feed(Delta::Written(WriteResult { id, kind, key, outcome }));
    assert!(of_workloads(&effects).is_empty(), "{effects:?}");
    let effects = core.put(Kind::Pod, pod("a-1", &first));
    assert_eq!(writes(&effects, Kind::Pod).len(), 1);
    core.put(Kind::Pod, ungated("a-1"));
    second["spec"]["active"] = json!(false);
    second["metadata"]["generation"] = json!(2);
    let effects = core.put(Kind::Workload, second.clone());
    let effects = core.land(&effects, &mut second);
    assert!(of_workloads(&effects).is_empty(), "{effects:?}");
    let [stop] = &writes(&effects, JOB)[..] else { panic!("{effects:?}") };
    assert_eq!(stop.body["spec"]["suspend"], true);
}

/// Slices that were created in the same second are in the order in which they replace each other, whatever their names are.
#[test]
fn pod_of_grown_job_is_ungated_beside_a_slice_of_the_same_second() {
    for generation in 4..20 {
        let (mut core, first) = running(1);
        let mut running_pod = pod("a-0", &first);
        running_pod["spec"]["schedulingGates"] = Value::Null;
        core.put(Kind::Pod, running_pod);
        let (mut second, mut grown) = (Value::Null, elastic_job(2, Some(&first)));
        grown["metadata"]["generation"] = json!(generation);
        let effects = core.put(JOB, grown);
        let effects = core.land(&effects, &mut second);
        let effects = core.land(&effects, &mut second);
        let [end] = &of_workloads(&effects)[..] else { panic!("{effects:?}") };
        let outcome = WriteOutcome::Unavailable { message: "down".to_owned() };
        let (id, kind, key) = (end.id, Kind::Workload, end.key.clone());
        core.feed(Delta::Written(WriteResult { id, kind, key, outcome }));
        let effects = core.put(Kind::Pod, pod("a-1", &first));
        let ungated = writes(&effects, Kind::Pod).len();
        let names = (&first["metadata"]["name"], &second["metadata"]["name"]);
        assert_eq!(ungated, 1, "generation {generation}: {names:?}");
    }
}

/// A user who deactivates the slice that waits keeps the job at its size; the slice is neither deleted nor made again.
#[test]
fn deactivated_slice_that_waits_stays() {
    let (mut core, first) = running(1);
    let mut second = Value::Null;
    let effects = core.put(JOB, elastic_job(3, Some(&first)));
    let effects = core.land(&effects, &mut second);
    core.land(&effects, &mut second);
    second["spec"]["active"] = json!(false);
    second["metadata"]["generation"] = json!(2);
    let effects = core.put(Kind::Workload, second.clone());
    let effects = core.land(&effects, &mut second);
    let evicted = second["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Evicted");
    assert_eq!(evicted.unwrap()["reason"], "Deactivated", "{second}");
    assert!(of_workloads(&effects).is_empty(), "{effects:?}");
    core.put(JOB, elastic_job(3, Some(&first)));
    for _ in 0..3 {
        let effects = core.advance_seconds(60);
        assert!(of_workloads(&effects).is_empty(), "{effects:?}");
    }
    // Active again, it waits for quota again.
    second["spec"]["active"] = json!(true);
    second["metadata"]["generation"] = json!(3);
    let effects = core.put(Kind::Workload, second.clone());
    let [requeued] = &of_workloads(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(*requeued.key.name, *second["metadata"]["name"].as_str().unwrap());
    assert!(requeued.body["status"]["conditions"].is_array(), "{requeued:?}");
}
