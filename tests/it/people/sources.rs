//! `--source`: answers that are computed from a dump, or from the objects of a cluster without the group of views.

use crate::fixtures::people_server::{Outcome, PeopleServer};
use serde_json::{Value, json};
use std::path::PathBuf;

const GROUP: &str = "/apis/kueue.x-k8s.io/v1beta2";

fn kueue(kind: &str, name: &str, namespace: Option<&str>, spec: &Value) -> Value {
    let mut metadata =
        json!({"name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-11-26T13:00:00Z"});
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec})
}

fn queue(name: &str, nominal: u64) -> Value {
    let resources = json!([{"name": "cpu", "nominalQuota": nominal.to_string()}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": resources}]}]);
    let spec = json!({"cohortName": "ai", "namespaceSelector": {}, "resourceGroups": groups});
    let mut queue = kueue("ClusterQueue", name, None, &spec);
    queue["status"] = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-11-26T13:00:00Z"}]});
    queue
}

fn workload(name: &str, job: &str, queue: &str, cpu: u64) -> Value {
    let requests = json!({"requests": {"cpu": cpu.to_string()}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": requests}]}});
    let pod_sets = json!([{"name": "main", "count": 1, "template": template}]);
    let spec = json!({"queueName": queue, "active": true, "priority": 0, "podSets": pod_sets});
    let mut workload = kueue("Workload", name, Some("default"), &spec);
    workload["metadata"]["labels"] = json!({"kueue.x-k8s.io/job-uid": format!("uid-{job}")});
    workload["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": format!("uid-{job}"), "controller": true}]);
    workload
}

/// A cohort with two queues: all of its 8 CPU are in use, and a job that needs 4 waits.
fn objects() -> Vec<Value> {
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": reason, "lastTransitionTime": "2026-11-26T13:05:12Z"});
    let mut admitted = workload("job-first-1", "first", "main", 8);
    let assignment =
        json!([{"name": "main", "count": 1, "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "8"}}]);
    admitted["status"] = json!({
        "admission": {"clusterQueue": "nlp", "podSetAssignments": assignment},
        "conditions": [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")],
    });
    let mut waits = workload("job-second-2", "second", "main", 4);
    waits["status"] = json!({"conditions": [condition("QuotaReserved", "False", "WaitingForQuota")]});
    let job = |name: &str| {
        let labels = json!({"kueue.x-k8s.io/queue-name": "main"});
        let metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"), "labels": labels, "creationTimestamp": "2026-11-26T13:00:00Z"});
        let template =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"suspend": name == "second", "parallelism": 1, "template": template}})
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}}});
    vec![
        namespace,
        kueue("ResourceFlavor", "any", None, &json!({})),
        kueue("Cohort", "ai", None, &json!({})),
        queue("nlp", 6),
        queue("vision", 2),
        kueue("LocalQueue", "main", Some("default"), &json!({"clusterQueue": "nlp"})),
        job("first"),
        job("second"),
        admitted,
        waits,
    ]
}

/// The first document of a dump.
fn header() -> Value {
    json!({"apiVersion": "sluice.dev/v1", "kind": "Dump", "time": "2026-11-26T14:05:12Z", "version": "test"})
}

/// A dump of these objects.
struct DumpFile(PathBuf);

impl DumpFile {
    fn write(name: &str, header: &Value) -> Self {
        Self::with(name, header, objects())
    }

    fn with(name: &str, header: &Value, objects: Vec<Value>) -> Self {
        let documents = std::iter::once(header.clone()).chain(objects);
        let text: Vec<String> = documents.map(|document| document.to_string()).collect();
        let path = std::env::temp_dir().join(format!("sluice-source-{}-{name}.yaml", std::process::id()));
        std::fs::write(&path, text.join("\n---\n")).unwrap();
        Self(path)
    }

    fn of_cluster(name: &str) -> Self {
        Self::write(name, &header())
    }
}

impl Drop for DumpFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(server: &PeopleServer, dump: &DumpFile, line: &str) -> Outcome {
    server.run_with("sluice", &format!("{line} --source {}", dump.0.display()), "", &[("LC_ALL", "C")])
}

/// Asserts that a text has lines; spaces count as one.
fn assert_lines(outcome: &Outcome, wanted: &[&str]) {
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = outcome.out.lines().map(plain).collect();
    for line in wanted {
        assert!(lines.iter().any(|found| found == line), "{line:?} is not in {outcome:?}");
    }
}

#[test]
fn a_dump_answers_every_verb_that_looks() {
    let (server, dump) = (PeopleServer::start(), DumpFile::of_cluster("verbs"));
    let cases: [(&str, u8, &[&str]); 17] = [
        (
            "list workload",
            0,
            &["job-first-1 Admitted 60m - 0 8 cpu -", "job-second-2 Pending 65m 1 0 4 cpu WaitingForQuota"],
        ),
        (
            "list workload --status pending -o csv --no-headers",
            0,
            &["job-second-2,Pending,65m,1,0,4 cpu,WaitingForQuota,job/second,main,nlp,-,65m,WaitingForQuota"],
        ),
        (
            "list clusterqueue",
            0,
            &[
                "nlp ai True 1 1 [################|##############] 2",
                "vision ai True 0 0 [================|..............] 0",
            ],
        ),
        ("list localqueue -A", 0, &["default main nlp True 1 1 8 cpu any"]),
        ("list cohort", 0, &["ai 8 8 - - 8 - 1"]),
        (
            "why job/second",
            0,
            &[
                "default/job-second-2 has been pending for 65m: WaitingForQuota",
                "It needs 4 cpu in any. Cohort ai may still use 0: 4 are missing.",
            ],
        ),
        ("why second --fail-pending", 4, &["Position 1 of 1 in nlp, 1 of 1 in LocalQueue main; priority 0"]),
        ("why job/first", 0, &["default/job-first-1 has been admitted in ClusterQueue nlp for 60m"]),
        ("tree cohort ai", 0, &["|- nlp 6 8 2 0 8 - 1", "`- vision 2 0 0 2 8 - 0"]),
        (
            "tree job job/first",
            0,
            &["Job first running", "`- Workload job-first-1 Admitted ClusterQueue nlp, 60m"],
        ),
        ("share", 0, &["fair sharing: off; workloads are ordered by borrowing, priority and time"]),
        ("audit", 0, &["warning clusterqueue-unreachable cq/vision no LocalQueue names it"]),
        (
            "audit -o csv",
            0,
            &[
                "SEVERITY,CHECK,OBJECT,FINDING",
                "warning,clusterqueue-unreachable,cq/vision,no LocalQueue names it",
            ],
        ),
        ("capacity", 0, &["FLAVOR NODES SCHEDULABLE QUOTA SLACK CHARGED OTHERS FREE RESOURCE"]),
        ("capacity any --for job/second --fail", 4, &[]),
        ("describe cq nlp", 0, &["any cpu 6 8 2 0 8 0"]),
        ("describe job/second", 0, &["Pod set main: 1 pod, each 4 cpu", "Events: none"]),
    ];
    for (line, code, wanted) in cases {
        let outcome = run(&server, &dump, line);
        assert_eq!(outcome.code, i32::from(code), "{line}: {outcome:?}");
        assert_lines(&outcome, wanted);
    }
    assert_eq!(server.requests(), [], "no server is asked");
    let outcome = run(&server, &dump, "why job/second -o jsonpath={.source.kind}-{.source.time}-{.state}");
    assert_eq!(outcome.out, "file-2026-11-26T14:05:12Z-Pending");
    assert!(
        run(&server, &dump, "why job/second")
            .out
            .ends_with(&format!("sluice what-if --source {}\n", dump.0.display()))
    );
}

/// Pods of a kind that a file describes are found by the labels that the file names.
#[test]
fn pods_of_a_kind_from_a_file_are_in_its_tree() {
    let metadata = json!({"name": "film", "namespace": "default", "uid": "uid-film", "creationTimestamp": "2026-11-26T13:00:00Z",
        "labels": {"kueue.x-k8s.io/queue-name": "main"}});
    let template = json!({"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}});
    let spec = json!({"suspend": true, "director": {"template": template}});
    let render =
        json!({"apiVersion": "example.com/v1", "kind": "Render", "metadata": metadata, "spec": spec});
    let mut waits = workload("render-film-1", "film", "main", 1);
    let owner = &mut waits["metadata"]["ownerReferences"][0];
    (owner["apiVersion"], owner["kind"]) = (json!("example.com/v1"), json!("Render"));
    let pod = |name: &str, label: &str| {
        let metadata = json!({"name": name, "namespace": "default", "uid": format!("uid-{name}"),
            "labels": {"example.com/render": label}, "creationTimestamp": "2026-11-26T13:00:00Z"});
        let spec = json!({"nodeName": "h1", "containers": [{"name": "c", "image": "x"}]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    };
    let objects = [objects(), vec![render, waits, pod("film-0", "film"), pod("other-0", "other")]].concat();
    let (server, dump) = (PeopleServer::start(), DumpFile::with("file-kind", &header(), objects));
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/samples/framework-file/framework.yaml");
    let line = "tree job render/film -o jsonpath={.items[*].metadata.name}";
    let outcome = run(&server, &dump, &format!("{line} --framework-file {}", file.display()));
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "film render-film-1 film-0"), "{outcome:?}");
    let without = run(&server, &dump, line);
    assert!(without.code != 0 && without.err.contains("the server has no kind \"render\""), "{without:?}");
}

#[test]
fn a_cut_list_says_how_many_rows_it_leaves_out() {
    let (server, dump) = (PeopleServer::start(), DumpFile::of_cluster("limits"));
    for line in ["list workload --limit 1", "list workload -A --limit 1", "list clusterqueue --limit 1"] {
        let outcome = run(&server, &dump, line);
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        let left = outcome.err.lines().any(|line| line == "1 more: --limit 0 lists all");
        assert!(left, "{line}: {outcome:?}");
    }
}

#[test]
fn what_a_dump_does_not_answer_is_an_error() {
    let (server, dump) = (PeopleServer::start(), DumpFile::of_cluster("errors"));
    for (line, status, error) in [
        ("status", 2, "error: --source: the state of the manager is known to the manager alone\n"),
        ("list pods --for job/first", 2, "error: --source: pods are read from the cluster\n"),
        ("why nosuch", 1, "error: workload \"nosuch\" not found in namespace default\n"),
        ("why job/nosuch", 1, "error: job/nosuch not found in namespace default\n"),
        ("why foo/first", 1, "error: the server has no kind \"foo\"\n"),
        ("list workload -c nlpx", 1, "error: clusterqueue \"nlpx\" not found; similar: nlp\n"),
        (
            "list workload -o csv,json",
            2,
            "error: -o csv,json: unknown format; formats: table, wide, csv (list, usage and audit), json, yaml, name, jsonpath=..., jsonpath-as-json=..., jsonpath-file=...\n",
        ),
        ("why job/first -o csv", 2, "error: -o csv is a format of list, usage and audit\n"),
        ("tree cohort aii", 1, "error: cohort \"aii\" not found; similar: ai\n"),
        ("capacity anny", 1, "error: resourceflavor \"anny\" not found; similar: any\n"),
        ("capacity any --pod cpu", 2, "error: --pod: \"cpu\": RESOURCE=QUANTITY expected\n"),
        ("list preemption", 2, "error: --source: the history is known to the manager alone\n"),
        ("describe cq nosuch", 1, "error: clusterqueue \"nosuch\" not found\n"),
    ] {
        let outcome = run(&server, &dump, line);
        assert_eq!((outcome.code, outcome.err.as_str(), outcome.out.as_str()), (status, error, ""), "{line}");
    }
    for (line, error) in [
        (
            "list workload --source /nonexistent",
            "error: --source: /nonexistent: No such file or directory (os error 2)\n",
        ),
        ("list workload --source /dev/null", "error: --source /dev/null: no file of sluice dump\n"),
    ] {
        let outcome = server.run("sluice", line);
        assert_eq!((outcome.code, outcome.err.as_str()), (1, error), "{line}");
    }
    let skipped = json!({"apiVersion": "sluice.dev/v1", "kind": "Dump", "time": "2026-11-26T14:05:12Z", "version": "test", "skipped": [{"resource": "nodes", "reason": "nodes is forbidden"}]});
    let dump = DumpFile::write("skipped", &skipped);
    let outcome = run(&server, &dump, "list workload");
    assert_eq!(outcome.code, 3, "a part is missing: {outcome:?}");
    let notes = format!(
        "note: {}:1: nodes: not in the dump: nodes is forbidden\nnote: a part of the answer is missing or may differ from the leader's\n",
        dump.0.display()
    );
    assert_eq!(outcome.err, notes);
}

/// A cluster that does not serve the group, as one that Kueue runs: `auto` reads its objects.
#[test]
fn the_objects_of_a_cluster_answer_without_the_group() {
    let server = PeopleServer::start();
    for object in objects() {
        let text =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        let plural = format!("{}s", kind.to_lowercase());
        let path = match kind.as_str() {
            "Namespace" => format!("/api/v1/{plural}/{name}"),
            "Job" => format!("/apis/batch/v1/namespaces/default/{plural}/{name}"),
            "Workload" | "LocalQueue" => format!("{GROUP}/namespaces/default/{plural}/{name}"),
            _ => format!("{GROUP}/{plural}/{name}"),
        };
        server.put(&path, object);
    }
    let missing = "note: the cluster does not serve visibility.sluice.dev: answers are computed here from the cluster's objects";
    for line in ["why job/second", "why job/second --source cluster"] {
        let outcome = server.run("sluice", line);
        assert_lines(&outcome, &["It needs 4 cpu in any. Cohort ai may still use 0: 4 are missing."]);
        assert!(outcome.out.contains("computed here from the cluster's objects"), "{outcome:?}");
        assert_eq!(outcome.err.contains(missing), !line.contains("--source"), "{outcome:?}");
    }
    let outcome = server.run("sluice", "why job/second --source manager");
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("the cluster does not serve visibility.sluice.dev"), "{outcome:?}");
    // A manager that is there and hangs is no reason to wait for it, and not the API server's fault.
    server.state.lock().unwrap().silent = Some("/apis/visibility.sluice.dev");
    let outcome = server.run("sluice", "why job/second --request-timeout 1s");
    assert_lines(&outcome, &["It needs 4 cpu in any. Cohort ai may still use 0: 4 are missing."]);
    assert!(outcome.err.contains("note: the visibility API does not answer: answers are"), "{outcome:?}");
    let outcome = server.run("sluice", "list cohort --source manager --request-timeout 1s");
    let advice = "error: the visibility API does not answer within 1s; try --source cluster\n";
    assert_eq!((outcome.code, &*outcome.err), (1, advice));
    let writes: Vec<_> = server.requests().into_iter().filter(|(method, _)| method != "GET").collect();
    assert_eq!(writes, [], "nothing is written");
}
