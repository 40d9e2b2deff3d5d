//! Pods whose controller is a pod, as a Spark driver is that of its executors: they run on its quota if it is in a queue, and are
//! queued by themselves if no object above them is.

use crate::fixtures::job_server::{JobServer, kind, pod};
use crate::fixtures::leading_core;
use serde_json::{Value, json};
use sluice_core::admission::AdmissionSettings;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;
use sluice_core::reconciler::CoreSettings;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A pod as its user writes it.
fn plain(name: &str, queue: &str) -> Value {
    let mut pod = pod(name, None);
    pod["metadata"] = json!({"name": name, "namespace": "ns", "labels": {"app": "x"}});
    if !queue.is_empty() {
        pod["metadata"]["labels"][QUEUE] = json!(queue);
    }
    pod["spec"].as_object_mut().unwrap().remove("schedulingGates");
    pod
}

fn below(mut pod: Value, kind: (&str, &str), owner: &Value) -> Value {
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": kind.0, "kind": kind.1, "controller": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]);
    pod
}

fn server(manages_all: bool) -> JobServer {
    let frameworks = ["batch/job", "pod"].map(str::to_owned).into();
    let core =
        CoreSettings { frameworks, manage_jobs_without_queue_name: manages_all, ..CoreSettings::default() };
    let admission = AdmissionSettings {
        frameworks: core.frameworks.clone(),
        manage_jobs_without_queue_name: manages_all,
        ..AdmissionSettings::default()
    };
    JobServer::with_settings(core, admission, "10")
}

/// Creates a pod below another one; returns whether it waits for admission by itself.
fn is_held(server: &JobServer, queue: &str, parent: &str) -> bool {
    let owner = server.get(Kind::Pod, parent).unwrap();
    let child = below(plain("child", queue), ("v1", "Pod"), owner);
    let admitted = server.admit(framework("", "Pod").unwrap(), child, None).expect("it is let in");
    admitted["metadata"]["labels"]["kueue.x-k8s.io/managed"] == json!("true")
}

#[test]
fn pod_below_a_pod_runs_on_its_quota_or_waits_by_itself() {
    for (of_parent, of_child, held) in
        [("", "", false), ("", "lq", true), ("lq", "", false), ("lq", "lq", false)]
    {
        let mut server = server(false);
        server.submit(framework("", "Pod").unwrap(), plain("parent", of_parent)).unwrap();
        assert_eq!(is_held(&server, of_child, "parent"), held, "{of_child:?} below {of_parent:?}");
    }
}

/// The search goes on above a pod that is in no queue.
#[test]
fn pod_below_a_pod_of_a_job_runs_on_the_quota_of_the_job() {
    for (of_job, held) in [("lq", false), ("", true)] {
        let mut server = server(false);
        let row = framework("batch", "Job").unwrap();
        let mut job = leading_core::job("job");
        job["metadata"]["labels"] = json!({});
        if !of_job.is_empty() {
            job["metadata"]["labels"][QUEUE] = json!(of_job);
        }
        server.submit(row, job).unwrap();
        let owner = server.get(kind("batch", "Job"), "job").unwrap();
        let parent = below(plain("parent", ""), ("batch/v1", "Job"), owner);
        server.submit(framework("", "Pod").unwrap(), parent).unwrap();
        assert_eq!(is_held(&server, "lq", "parent"), held, "below a Job in {of_job:?}");
    }
}

/// Where jobs without a queue are managed, a pod below one of them runs with it.
#[test]
fn pod_below_a_pod_without_queue_runs_with_it_where_all_are_managed() {
    let mut server = server(true);
    server.submit(framework("", "Pod").unwrap(), plain("parent", "")).unwrap();
    assert!(!is_held(&server, "", "parent"));
}

/// A parent that is gone, or another pod of its name, leads to no queue.
#[test]
fn pod_below_a_pod_that_is_gone_waits_by_itself() {
    let mut server = server(false);
    server.submit(framework("", "Pod").unwrap(), plain("parent", "lq")).unwrap();
    let mut other = server.get(Kind::Pod, "parent").unwrap().clone();
    other["metadata"]["uid"] = json!("another");
    let child = below(plain("child", "lq"), ("v1", "Pod"), &other);
    let admitted = server.admit(framework("", "Pod").unwrap(), child, None).unwrap();
    assert_eq!(admitted["metadata"]["labels"]["kueue.x-k8s.io/managed"], json!("true"));
}
