//! Slices of elastic Jobs that users deactivate, and that wait in a queue that admits nothing.

use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;

/// A queue of 8 CPUs with an elastic Job of pods of one CPU, which runs.
fn running(pods: i32) -> JobServer {
    let mut server = JobServer::new(&["batch/job"], "8");
    let job = json!({
        "metadata": {"name": "a", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"kueue.x-k8s.io/elastic-job": "true"}},
        "spec": {"parallelism": pods, "suspend": false, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}}});
    server.submit(framework("batch", "Job").unwrap(), job).unwrap();
    assert!(!is_suspended(&server));
    server
}

fn resize(server: &mut JobServer, pods: i32) {
    server.edit(kind("batch", "Job"), "a", |job| job["spec"]["parallelism"] = json!(pods));
}

fn is_suspended(server: &JobServer) -> bool {
    server.get(kind("batch", "Job"), "a").unwrap()["spec"]["suspend"] == true
}

fn is_true(workload: &Value, name: &str) -> bool {
    let conditions = workload["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == name && c["status"] == "True"))
}

fn unfinished(server: &JobServer) -> Vec<Value> {
    server.all(Kind::Workload).into_iter().filter(|workload| !is_true(workload, "Finished")).collect()
}

/// Returns the number of pods of each slice that has not finished, and whether it holds quota.
fn slices(server: &JobServer) -> Vec<(i64, bool)> {
    let slice = |workload: &Value| {
        (workload["spec"]["podSets"][0]["count"].as_i64().unwrap(), is_true(workload, "QuotaReserved"))
    };
    let mut slices: Vec<_> = unfinished(server).iter().map(slice).collect();
    slices.sort_unstable();
    slices
}

fn set_active(server: &mut JobServer, name: &str, active: bool) {
    server.edit(Kind::Workload, name, |workload| workload["spec"]["active"] = json!(active));
}

/// The slice that waited for more quota does not start the job.
#[test]
fn job_whose_slice_is_deactivated_stays_stopped_until_it_is_activated() {
    let mut server = running(3);
    let used = server.workload_name();
    resize(&mut server, 12);
    assert_eq!(slices(&server), [(3, true), (12, false)]);
    set_active(&mut server, &used, false);
    assert!(is_suspended(&server));
    server.edit_queue("20");
    assert!(is_suspended(&server), "there is quota for the larger slice");
    resize(&mut server, 4);
    assert!(is_suspended(&server), "its size fits");
    let left = unfinished(&server);
    let names: Vec<&Value> = left.iter().map(|workload| &workload["metadata"]["name"]).collect();
    assert_eq!(names, [&json!(used)]);
    set_active(&mut server, &used, true);
    assert!(!is_suspended(&server));
    assert_eq!(slices(&server), [(4, true)]);
}

/// The quota that comes free with the slice in use does not admit the one that waits.
#[test]
fn larger_slice_does_not_start_a_job_whose_slice_is_deactivated_while_it_fits() {
    let mut server = running(3);
    let used = server.workload_name();
    // It waits because its queue is on hold.
    hold(&mut server, "Hold");
    resize(&mut server, 6);
    assert_eq!(slices(&server), [(3, true), (6, false)]);
    set_active(&mut server, &used, false);
    hold(&mut server, "None");
    assert!(is_suspended(&server));
    assert_eq!(slices(&server), [(6, false)], "it says what the job asks for");
}

fn hold(server: &mut JobServer, policy: &str) {
    server.edit_any(Kind::ClusterQueue, &ObjectKey::new("", "cq"), |queue| {
        queue["spec"]["stopPolicy"] = json!(policy);
    });
}

/// A slice that is to shrink needs no admission, also if a larger one waits.
#[test]
fn job_that_shrinks_while_a_larger_slice_waits_is_charged_its_pods() {
    for pods in [5, 3] {
        let mut server = running(5);
        let used = server.workload_name();
        hold(&mut server, "Hold");
        resize(&mut server, 6);
        assert_eq!(slices(&server), [(5, true), (6, false)]);
        resize(&mut server, pods);
        assert_eq!(slices(&server), [(i64::from(pods), true)]);
        assert_eq!(unfinished(&server)[0]["metadata"]["name"], used, "the slice in use has shrunk");
        assert!(!is_suspended(&server));
        resize(&mut server, 7);
        assert_eq!(slices(&server), [(i64::from(pods), true), (7, false)]);
        hold(&mut server, "None");
        assert_eq!(slices(&server), [(7, true)]);
    }
}
