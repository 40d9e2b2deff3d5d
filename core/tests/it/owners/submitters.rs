//! Recorded submitters of objects below others, from the request to the Workload.

use crate::fixtures::job_server::{JobServer, kind};
use serde_json::{Value, json};
use sluice_core::admission::{AdmissionSettings, SubmitterSettings};
use sluice_core::api::names::SUBMITTER_ANNOTATION;
use sluice_core::cache::Kind;
use sluice_core::frameworks::framework;
use sluice_core::reconciler::CoreSettings;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

/// A manager that records submitters. The requests of `JobServer` are those of an account without a name.
fn server(frameworks: &[&str]) -> JobServer {
    let frameworks = frameworks.iter().map(|name| (*name).to_owned()).collect();
    let mut core = CoreSettings { frameworks, ..CoreSettings::default() };
    core.copied.submitter = Some(SUBMITTER_ANNOTATION.to_owned());
    let submitter = Some(SubmitterSettings::default());
    JobServer::with_settings(core, AdmissionSettings { submitter, ..AdmissionSettings::default() }, "9")
}

fn template(metadata: &Value) -> Value {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    json!({"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}})
}

fn submitter(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][SUBMITTER_ANNOTATION].as_str()
}

fn workload_of(server: &JobServer, owner: &str) -> Value {
    let of_owner = |workload: &Value| workload["metadata"]["ownerReferences"][0]["name"] == owner;
    let found = server.all(Kind::Workload).into_iter().find(of_owner);
    found.unwrap_or_else(|| panic!("no Workload of {owner}"))
}

/// The pods of a Deployment have the name that is stored in it now.
#[test]
fn pods_of_a_deployment_count_as_submitted_by_it() {
    let mut server = server(&["pod", "deployment"]);
    server.load(
        kind("apps", "Deployment"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns", "uid": "d",
            "labels": {QUEUE: "lq"}, "annotations": {SUBMITTER_ANNOTATION: "ann"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template(&json!({"labels": {"app": "d"}}))}}),
    );
    let above =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d", "controller": true});
    server.load(
        Kind::ReplicaSet,
        json!({"metadata": {"name": "d-1", "namespace": "ns", "uid": "d-1", "labels": {"pod-template-hash": "1"},
            "ownerReferences": [above]}}),
    );
    let pod = |name: &str, replica_set: &str, uid: &str| {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set, "uid": uid, "controller": true});
        let mut pod = template(&json!({"name": name, "namespace": "ns", "ownerReferences": [owner],
            "labels": {QUEUE: "lq", "app": "d", "pod-template-hash": "1", "kueue.x-k8s.io/managed": "true"},
            "annotations": {PARENT: "deployment", SUBMITTER_ANNOTATION: "bob"}}));
        pod["status"] = json!({"phase": "Pending"});
        pod
    };
    let row = framework("", "Pod").unwrap();
    for (name, recorded) in [("first", "ann"), ("second", "carol")] {
        server.edit(kind("apps", "Deployment"), "d", |deployment| {
            deployment["metadata"]["annotations"][SUBMITTER_ANNOTATION] = json!(recorded);
        });
        let held = server.admit(row, pod(name, "d-1", "d-1"), None).unwrap();
        assert_eq!(submitter(&held), Some(recorded), "{held}");
        server.create(Kind::Pod, held);
        assert_eq!(submitter(&workload_of(&server, name)), Some(recorded));
    }
    let other = server.admit(row, pod("other", "d-1", "d-2"), None).unwrap();
    assert_eq!(submitter(&other), Some(""), "another ReplicaSet of the name");
    let early = server.admit(row, pod("early", "d-2", "d-2"), None).unwrap();
    assert_eq!(submitter(&early), Some(""), "a ReplicaSet that is not known");
}

/// A queued Job below a JobSet that is in no queue has a Workload of its own, and nothing says which account made the JobSet.
#[test]
fn job_below_an_object_in_no_queue_counts_as_submitted_by_no_account() {
    let mut server = server(&["batch/job", "jobset.x-k8s.io/jobset"]);
    let job = json!({"spec": {"parallelism": 1, "completions": 1, "template": template(&json!({}))}});
    server.load(
        kind("jobset.x-k8s.io", "JobSet"),
        json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "set", "namespace": "ns", "uid": "set", "annotations": {SUBMITTER_ANNOTATION: "bob"}},
            "spec": {"replicatedJobs": [{"name": "r", "replicas": 1, "template": job}]}}),
    );
    let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "set", "controller": true});
    let mut below = job.clone();
    below["spec"]["suspend"] = json!(true);
    below["metadata"] = json!({"name": "job", "namespace": "ns", "labels": {QUEUE: "lq"}, "ownerReferences": [owner],
        "annotations": {SUBMITTER_ANNOTATION: "bob"}});
    server.submit(framework("batch", "Job").unwrap(), below).unwrap();
    assert_eq!(submitter(server.get(kind("batch", "Job"), "job").unwrap()), Some(""));
    assert_eq!(submitter(&workload_of(&server, "job")), None);
}
