//! Jobs that have no Workload: `why` says the cause, and `simulate` the same.

use crate::fixtures::people_server::PeopleServer;
use crate::fixtures::simulate_cluster::{
    bare_workload, empty_simulation, flavor, job, manifests, queue, report,
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A file that is removed with the test.
struct Dump(PathBuf);

impl Drop for Dump {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn dump(name: &str, objects: &[Value]) -> Dump {
    let configuration = json!({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"frameworks": ["batch/job", "pod", "deployment"]},
        "managedJobsNamespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["aside", "kube-system", "kueue-system"]}]}});
    let header = json!({"apiVersion": "sluice.dev/v1", "kind": "Dump", "time": "2026-11-26T14:00:00Z", "version": "test", "configuration": configuration});
    let text: Vec<String> = std::iter::once(&header).chain(objects).map(ToString::to_string).collect();
    let path = std::env::temp_dir().join(format!("sluice-none-{}-{name}.yaml", std::process::id()));
    std::fs::write(&path, text.join("\n---\n")).unwrap();
    Dump(path)
}

fn label(job: &mut Value, key: &str, value: &str) {
    job["metadata"]["labels"][format!("kueue.x-k8s.io/{key}")] = json!(value);
}

/// What keeps the job `x` from having a Workload, its reason and the cause.
type Case = (&'static str, fn(&mut Value), &'static str, &'static str);

const CASES: [Case; 8] = [
    (
        "class",
        |job| label(job, "priority-class", "does-not-exist"),
        "WorkloadPriorityClassNotFound",
        "WorkloadPriorityClass \"does-not-exist\" not found",
    ),
    (
        "pod class",
        |job| job["spec"]["template"]["spec"]["priorityClassName"] = json!("nosuch"),
        "ErrWorkloadCompose",
        "PriorityClass nosuch not found",
    ),
    (
        "prebuilt",
        |job| label(job, "prebuilt-workload-name", "nosuch"),
        "PrebuiltWorkloadNotFound",
        "Workload team/nosuch doesn't exist",
    ),
    (
        "taken",
        |job| label(job, "prebuilt-workload-name", "taken"),
        "WorkloadNameConflict",
        "Workload team/taken belongs to another object",
    ),
    (
        "managed by",
        |job| job["spec"]["managedBy"] = json!("example.com/other"),
        "ManagedByOtherController",
        "spec.managedBy names another controller, example.com/other",
    ),
    (
        "namespace",
        |job| job["metadata"]["namespace"] = json!("aside"),
        "NamespaceNotSelected",
        "managedJobsNamespaceSelector does not select namespace aside",
    ),
    (
        "no queue",
        |job| job["metadata"]["labels"] = json!({}),
        "NoQueueName",
        "it has no label kueue.x-k8s.io/queue-name",
    ),
    (
        "finished",
        |job| {
            job["status"] = json!({"succeeded": 1, "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-26T13:00:00Z"}]});
        },
        "Finished",
        "it has finished",
    ),
];

fn objects(change: fn(&mut Value)) -> Vec<Value> {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}});
    let mut objects = vec![namespace("team"), namespace("aside"), flavor()];
    objects.extend(queue("q", "1", &json!({})));
    let mut above = job("above", "q", 1, &json!({}));
    above["metadata"]["uid"] = json!("above");
    let mut taken = bare_workload("taken", "q", &json!({}));
    taken["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "other", "uid": "other", "controller": true}]);
    let mut x = job("x", "q", 1, &json!({}));
    x["metadata"]["uid"] = json!("uid-x");
    x["spec"]["suspend"] = json!(true);
    change(&mut x);
    objects.extend([above, taken, x]);
    for object in &mut objects {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.entry("creationTimestamp").or_insert_with(|| json!("2026-11-26T13:00:00Z"));
    }
    objects
}

#[test]
fn why_says_the_cause_of_a_job_without_workload() {
    let server = PeopleServer::start();
    // Templates are not kept: of a class of pods the warning of a manager says it alone.
    for (name, change, reason, cause) in CASES.into_iter().filter(|(name, ..)| *name != "pod class") {
        let objects = objects(change);
        let file = dump(name.split(' ').next_back().unwrap(), &objects);
        let namespace = if name == "namespace" { "aside" } else { "team" };
        let line = format!("-n {namespace} --source {}", file.0.display());
        let outcome = server.run("sluice", &format!("why job/x {line}"));
        assert_eq!(
            (outcome.code, outcome.out.trim_end()),
            (0, format!("job/x has no Workload: {cause}").as_str()),
            "{name}: {outcome:?}"
        );
        let outcome = server.run("sluice", &format!("why job/x --fail-pending -o json {line}"));
        let answer: Value = serde_json::from_str(&outcome.out).unwrap();
        assert_eq!(outcome.code, 4, "{name}");
        assert_eq!(answer["withoutWorkload"], json!({"reason": reason, "message": cause}), "{name}");
        // Verbs that act cannot.
        let outcome = server.run("sluice", &format!("describe job x {line}"));
        assert!((outcome.out + &outcome.err).contains(cause), "{name}");
    }
}

/// What `simulate` says of such a job, if it lists it.
#[test]
fn simulate_gives_the_same_reason() {
    for (name, change, reason, cause) in CASES {
        let mut simulation = empty_simulation();
        simulation.apply_all(manifests(&objects(change)));
        simulation.run_until_stable();
        let end = report(&mut simulation);
        let row = end["pending"].as_array().unwrap().iter().find(|row| row["job"] == "team/x");
        match row {
            Some(row) => {
                assert_eq!((&row["reason"], &row["message"]), (&json!(reason), &json!(cause)), "{name}");
            }
            None if name == "managed by" => {
                assert_eq!(end["notManaged"], json!([format!("Job team/x: {cause}")]), "{name}");
            }
            None => assert!(["namespace", "no queue", "finished"].contains(&name), "{name}: {end}"),
        }
    }
}
