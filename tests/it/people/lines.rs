//! Command lines that are wrong, and their errors; cycles of cohorts; names of what tables show; zones of times; what is free for a job
//! without a flavor.

use crate::fixtures::people_server::{Outcome, PeopleServer};
use serde_json::{Value, json};
use std::path::PathBuf;

#[test]
fn a_wrong_command_line_ends_with_status_2_and_says_what_is_expected() {
    let server = PeopleServer::start();
    for (line, says) in [
        (
            "list workload --status zzz",
            "unknown status \"zzz\": use pending, quotareserved, admitted, evicted, finished or all",
        ),
        ("list workload --status pending,admitted", "one value expected; the flag may be repeated"),
        ("list workload --reason zzz", "unknown reason \"zzz\": use waiting, stuck, or one of"),
        ("list workload --for job/", "TYPE[.GROUP]/NAME expected"),
        ("list workload --for train", "TYPE[.GROUP]/NAME expected"),
        ("list pods --for job/", "TYPE[.GROUP]/NAME expected"),
        ("capacity --for job/", "NAME or TYPE[.GROUP]/NAME expected"),
        ("capacity --pod cpu", "--pod: \"cpu\": RESOURCE=QUANTITY expected"),
        ("capacity --pod cpu=one", "--pod: cpu: invalid quantity \"one\""),
        ("usage --since 1h --until 2h", "--until: the end of the period is not after its start"),
        ("why train -o csv", "-o csv is a format of list, usage and audit"),
        ("why train -o jsonn", "jsonn"),
        ("list pods --for job/train -w", "-w: pods are objects of the cluster"),
        ("list preemption --source cluster", "--source: the history is known to the manager alone"),
        ("list cohort --as-group admins", "--as-group, --as-uid and --as-user-extra require --as"),
        ("list cq nlp", "tip: a list takes no name: describe clusterqueue nlp shows one"),
        ("list lq main -n a", "tip: a list takes no name: describe localqueue main shows one"),
        ("list wl train", "tip: a list takes no name: describe workload train and why train show one"),
        ("list cohort ai", "tip: a list takes no name: describe cohort ai shows one"),
        ("list preemption train", "tip: name it by a flag: list preemption --victim train"),
    ] {
        let outcome = server.run("sluice", line);
        assert_eq!((outcome.code, outcome.out.as_str()), (2, ""), "{line}: {outcome:?}");
        assert!(outcome.err.contains(says), "{line}: {outcome:?}");
        assert!(outcome.err.starts_with("error: "), "{line}: {outcome:?}");
    }
    assert_eq!(server.requests(), [], "no server is asked");
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let metadata =
        json!({"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-11-26T13:00:00Z"});
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec})
}

fn queue(name: &str, flavors: &[&str]) -> Value {
    let resources = json!([{"name": "cpu", "nominalQuota": "8"}]);
    let flavors: Vec<Value> =
        flavors.iter().map(|name| json!({"name": name, "resources": resources})).collect();
    let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
    object(
        "ClusterQueue",
        name,
        &json!({"cohortName": "a", "namespaceSelector": {}, "resourceGroups": groups}),
    )
}

/// Runs the program on a dump of these objects.
fn run_on(objects: &[Value], name: &str, line: &str) -> Outcome {
    run_in(objects, name, line, &[("LC_ALL", "C")])
}

/// Runs the program on a dump of these objects, with variables of the environment.
fn run_in(objects: &[Value], name: &str, line: &str, variables: &[(&str, &str)]) -> Outcome {
    let header = json!({"apiVersion": "sluice.dev/v1", "kind": "Dump", "time": "2026-11-26T14:05:12Z", "version": "test"});
    let documents: Vec<String> = std::iter::once(&header).chain(objects).map(ToString::to_string).collect();
    let path = std::env::temp_dir().join(format!("sluice-lines-{}-{name}.yaml", std::process::id()));
    std::fs::write(&path, documents.join("\n---\n")).unwrap();
    let line = format!("{line} --source {}", PathBuf::from(&path).display());
    let outcome = PeopleServer::start().run_with("sluice", &line, "", variables);
    std::fs::remove_file(path).unwrap();
    outcome
}

#[test]
fn share_names_a_cycle_of_cohorts_as_tree_does() {
    let objects = [
        object("ResourceFlavor", "any", &json!({})),
        object("Cohort", "a", &json!({"parentName": "b"})),
        object("Cohort", "b", &json!({"parentName": "a"})),
        queue("nlp", &["any"]),
    ];
    for line in ["tree cohort", "tree cohort a", "share", "share nlp", "share a"] {
        let outcome = run_on(&objects, "cycle", line);
        assert_eq!(outcome.code, 3, "{line}: {outcome:?}");
        assert!(outcome.err.lines().any(|line| line == "! cycle: a -> b -> a"), "{line}: {outcome:?}");
    }
}

#[test]
fn tables_name_the_flavor_resource_that_they_show() {
    let objects = [
        object("ResourceFlavor", "any", &json!({})),
        object("ResourceFlavor", "spot", &json!({})),
        object("Cohort", "a", &json!({})),
        queue("nlp", &["any", "spot"]),
    ];
    for (line, shown, hidden) in [
        ("tree cohort --flavor any", &["cpu in any\nNODE "][..], &["spot"][..]),
        ("tree cohort --all", &["cpu in any\nNODE ", "\n\ncpu in spot\nNODE "], &[]),
        ("tree cohort --all --flavor spot", &["cpu in spot\nNODE "], &["any"]),
        ("tree cohort --no-headers", &["`- nlp "], &["cpu in "]),
        ("share --flavor spot", &["\n\ncpu in spot\nNAME "], &["any"]),
        ("list cohort", &["cpu in "], &[]),
        ("list cq --flavor any", &["cpu any "], &["cpu spot"]),
        ("list cq --all", &["cpu any ", "\n\nNAME ", "cpu spot "], &[]),
        ("list cq --all -o csv", &["cpu any,", "cpu spot,"], &["\n\n"]),
    ] {
        let outcome = run_on(&objects, "shown", line);
        assert_eq!((outcome.code, outcome.err.as_str()), (0, ""), "{line}: {outcome:?}");
        for text in shown {
            assert!(outcome.out.contains(text), "{line}: {text:?}: {outcome:?}");
        }
        for text in hidden {
            assert!(!outcome.out.contains(text), "{line}: {text:?}: {outcome:?}");
        }
    }
    let outcome = run_on(&objects, "not-shown", "list cq --all --resource memory");
    assert_eq!((outcome.code, outcome.err.as_str()), (1, "error: no quota for memory\n"), "{outcome:?}");
}

#[test]
fn times_have_a_zone_which_may_be_the_local_one() {
    let containers = json!([{"name": "c", "image": "x", "resources": {"requests": {"cpu": "4"}}}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    let pod_sets = json!([{"name": "main", "count": 1, "template": template}]);
    let mut workload =
        object("Workload", "w", &json!({"queueName": "main", "active": true, "podSets": pod_sets}));
    let mut local = object("LocalQueue", "main", &json!({"clusterQueue": "nlp"}));
    for object in [&mut workload, &mut local] {
        object["metadata"]["namespace"] = json!("default");
    }
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}),
        object("ResourceFlavor", "any", &json!({})),
        queue("nlp", &["any"]),
        local,
        workload,
    ];
    for (line, says) in
        [("why w", "State of 14:05:12Z, computed"), ("why w --local", "State of 16:05:12+02:00, computed")]
    {
        let outcome = run_in(&objects, "zone", line, &[("LC_ALL", "C"), ("TZ", "XYZ-2")]);
        assert!(outcome.code == 0 && outcome.out.contains(says), "{line}: {outcome:?}");
    }
}

#[test]
fn capacity_for_a_job_asks_about_the_flavors_of_its_queue() {
    let mut workload = object(
        "Workload",
        "job-train-1",
        &json!({"queueName": "main", "active": true, "podSets": [
        {"name": "main", "count": 1, "template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "4"}}}]}}}]}),
    );
    workload["metadata"]["namespace"] = json!("default");
    workload["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": true}]);
    let mut local = object("LocalQueue", "main", &json!({"clusterQueue": "nlp"}));
    local["metadata"]["namespace"] = json!("default");
    let labels = |name: &str| json!({"nodeLabels": {"pool": name}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": true, "parallelism": 1, "template": template},
        "metadata": {"name": "train", "namespace": "default", "uid": "uid-train", "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "creationTimestamp": "2026-11-26T13:00:00Z"}});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"pool": "spot"}},
        "status": {"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}});
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}),
        object("ResourceFlavor", "reserved", &labels("reserved")),
        object("ResourceFlavor", "spot", &labels("spot")),
        object("ResourceFlavor", "unused", &labels("unused")),
        queue("nlp", &["spot", "reserved"]),
        local,
        job,
        workload,
        node,
    ];
    let outcome = run_on(&objects, "capacity", "capacity --for job/train");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let place = |text: &str| outcome.out.find(text).unwrap_or_else(|| panic!("{text}: {outcome:?}"));
    assert!(place("\nspot ") < place("\nreserved "), "in the order of the queue: {outcome:?}");
    assert!(!outcome.out.contains("unused"), "{outcome:?}");
    assert_eq!(outcome.out.matches("POD SET").count(), 2, "{outcome:?}");
    let outcome = run_on(&objects, "capacity-fail", "capacity --pod cpu=16 --fail");
    assert_eq!(outcome.code, 4, "{outcome:?}");
    let mut finished = objects.clone();
    finished[7]["status"] = json!({"conditions": [{"type": "Finished", "status": "True", "reason": "Succeeded",
        "message": "", "lastTransitionTime": "2026-11-26T13:30:00Z"}]});
    let outcome = run_on(&finished, "capacity-finished", "capacity --for job/train");
    assert_eq!(
        (outcome.code, outcome.err.lines().last()),
        (1, Some("error: job/train has finished: its pods request nothing"))
    );
    let outcome = run_on(&objects, "capacity-queue", "capacity -c nlpx");
    assert_eq!(
        (outcome.code, outcome.err.as_str()),
        (1, "error: clusterqueue \"nlpx\" not found; similar: nlp\n")
    );
}
