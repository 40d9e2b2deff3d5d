//! `sluice why --when`: from a dump, from a cluster with a manager, and without the rights that it needs.

use crate::fixtures::estimated_cluster::Cluster;
use crate::fixtures::people_server::{Outcome, PeopleServer};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A file that is removed with the test.
pub(super) struct Dump(PathBuf);

impl Dump {
    pub(super) fn write(name: &str, cluster: &Cluster, more: &Value) -> Self {
        let mut header = json!({"apiVersion": "sluice.dev/v1", "kind": "Dump", "time": "2026-11-26T14:00:00Z", "version": "test"});
        header.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let documents = std::iter::once(&header).chain(&cluster.objects);
        let text: Vec<String> = documents.map(ToString::to_string).collect();
        let path = std::env::temp_dir().join(format!("sluice-when-{}-{name}.yaml", std::process::id()));
        std::fs::write(&path, text.join("\n---\n")).unwrap();
        Self(path)
    }
}

impl Drop for Dump {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(super) fn configured() -> Value {
    json!({"configuration": {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}})
}

/// A run of a queue with earlier runs, one of a queue without, and what waits for them.
pub(super) fn cluster() -> Cluster {
    let mut cluster = Cluster::new(3, "BestEffortFIFO", "known unknown");
    cluster.history("known", (1..=20).map(|step| 5 * step));
    cluster.running("first", "known", 2, 20);
    cluster.running("second", "unknown", 1, 20)["spec"]["maximumExecutionTimeSeconds"] = json!(18 * 3600);
    cluster.pending("waits", "known", 2, 5);
    cluster.pending("huge", "known", 9, 5);
    cluster
}

pub(super) fn run(server: &PeopleServer, dump: &Dump, line: &str) -> Outcome {
    let line = format!("{line} -n team --source {}", dump.0.display());
    server.run_with("sluice", &line, "", &[("LC_ALL", "C")])
}

/// The lines with one of these labels, with single spaces.
fn lines(outcome: &Outcome) -> Vec<String> {
    let labels = ["Estimate", "Likely", "Early", "Late", "Assumes", "Known", "Guessed"];
    let plain = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_wanted = |line: &String| labels.iter().any(|label| line.starts_with(label));
    outcome.out.lines().map(plain).filter(is_wanted).collect()
}

#[test]
fn a_dump_says_when() {
    let (server, dump) = (PeopleServer::start(), Dump::write("range", &cluster(), &configured()));
    let outcome = run(&server, &dump, "why job/waits --when");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let range = [
        "Likely between 14:05 UTC today and 15:10 UTC today",
        "Early runs end as the quickest quarter of earlier runs did",
        "Late runs end as 9 of 10 earlier runs did, or at their maximum execution time",
        "Assumes nothing new arrives in the cohort of q; quotas and nodes stay",
        "Assumes 1 running workload has a maximum execution time and may end at any time before it: fewer than 20 earlier runs, or none that was as long",
        "Known 1 of 2 running workloads declare a maximum execution time",
        "Guessed 1 from 20 earlier runs of their LocalQueues and shapes in the last 33h",
    ];
    assert_eq!(lines(&outcome), range, "{outcome:?}");
    assert!(outcome.out.contains("It needs 2 cpu in f."), "the rest is said as always: {outcome:?}");
    // A workload by its type, as `list -o name` prints it.
    for name in ["workload/waits", "workload.kueue.x-k8s.io/waits"] {
        let other = run(&server, &dump, &format!("why {name} --when"));
        assert_eq!((other.code, lines(&other)), (0, lines(&outcome)), "{name}: {other:?}");
    }
    let outcome = run(&server, &dump, "why waits --when -o json");
    let answer: Value = serde_json::from_str(&outcome.out).unwrap();
    let estimate = &answer["estimate"];
    assert_eq!(
        (&estimate["earliest"], &estimate["latest"]),
        (&json!("2026-11-26T14:05:00Z"), &json!("2026-11-26T15:10:00Z"))
    );
    let counts = ["declared", "expected", "fromHistory", "unknown", "earlierRuns"];
    let counts = counts.map(|field| estimate[field].clone());
    assert_eq!(counts, [json!(1), json!(0), json!(1), json!(0), json!(20)]);
    assert_eq!(estimate["assumptions"].as_array().unwrap().len(), 2);
    assert_eq!(server.requests(), [], "no server is asked");
    // Without the flag nothing is simulated.
    let outcome = run(&server, &dump, "why waits -o json");
    assert!(!outcome.out.contains("estimate"), "{outcome:?}");
}

#[test]
fn a_dump_says_why_it_does_not_know() {
    let server = PeopleServer::start();
    let dump = Dump::write("refused", &cluster(), &configured());
    for (line, expected) in [
        ("why huge --when", "Estimate no estimate: it can never be admitted"),
        ("why job/first --when", "Estimate no estimate: it is not pending (Admitted)"),
        ("why known-3 --when", "Estimate no estimate: it has finished"),
    ] {
        let outcome = run(&server, &dump, line);
        assert_eq!((outcome.code, lines(&outcome)), (0, vec![expected.to_owned()]), "{line}");
    }
    let mut leaving = cluster();
    leaving.pending("off", "known", 2, 5)["spec"]["active"] = json!(false);
    leaving.pending("going", "known", 2, 5)["metadata"]["deletionTimestamp"] = json!("2026-11-26T13:59:00Z");
    let gone = Dump::write("leaving", &leaving, &configured());
    for (line, expected) in [
        (
            "why off --when",
            "Estimate no estimate: it is deactivated: sluice resume workload lets it wait again",
        ),
        ("why going --when", "Estimate no estimate: it has been deleted"),
    ] {
        let outcome = run(&server, &gone, line);
        assert_eq!((outcome.code, lines(&outcome)), (0, vec![expected.to_owned()]), "{line}: {outcome:?}");
    }
    let outcome = run(&server, &gone, "why nothing --when");
    assert!(outcome.code == 1 && outcome.out.is_empty(), "{outcome:?}");
    assert!(outcome.err.contains("\"nothing\" not found"), "{outcome:?}");
    let outcome = run(&server, &dump, "why waits --when --fail-pending");
    assert_eq!(outcome.code, 4);
    let outcome = run(&server, &dump, "why huge --when -o jsonpath={.estimate.refused}");
    assert_eq!(outcome.out, "it can never be admitted");
    for (line, other) in
        [("why waits --when --before huge", "--before"), ("why waits --when --watch", "--watch")]
    {
        let outcome = run(&server, &dump, line);
        assert_eq!((outcome.code, outcome.out.as_str()), (2, ""), "{line}");
        assert!(outcome.err.contains("cannot be used with") && outcome.err.contains(other), "{outcome:?}");
    }
    let mut without = cluster();
    without.objects.retain(|object| !object["metadata"]["name"].as_str().unwrap().starts_with("known-"));
    let dump = Dump::write("no-history", &without, &configured());
    let outcome = run(&server, &dump, "why waits --when");
    let expected = "Estimate no estimate: 1 of 2 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape";
    assert_eq!((outcome.code, lines(&outcome)), (0, vec![expected.to_owned()]));
    let text = &outcome.out;
    assert!(
        text.contains("Unknown    team/first\n") && text.contains("stops the job after that time"),
        "{text}"
    );
    // Kinds of jobs are not needed, others are.
    let skipped = json!([{"resource": "jobs", "reason": "jobs is forbidden"}, {"resource": "nodes", "reason": "nodes is forbidden"}]);
    let mut with_skipped = configured();
    with_skipped["skipped"] = skipped;
    let dump = Dump::write("skipped", &cluster(), &with_skipped);
    let outcome = run(&server, &dump, "why waits --when");
    let expected = "Estimate no estimate: cannot list in the whole cluster: nodes (nodes is forbidden)";
    assert_eq!((outcome.code, lines(&outcome)), (3, vec![expected.to_owned()]), "{outcome:?}");
}

/// Puts the objects to a server.
pub(crate) fn server_of(cluster: &Cluster) -> PeopleServer {
    let server = PeopleServer::start();
    for object in &cluster.objects {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let plural = format!("{}s", kind.to_lowercase());
        let group = match kind {
            "Namespace" => "/api/v1".to_owned(),
            _ => format!("/apis/{}", object["apiVersion"].as_str().unwrap()),
        };
        let place = object["metadata"]["namespace"].as_str().map(|name| format!("/namespaces/{name}"));
        server.put(&format!("{group}{}/{plural}/{name}", place.unwrap_or_default()), object.clone());
    }
    server
}

/// Puts the objects to a server, with the verdict of its manager on `waits`.
fn serve(cluster: &Cluster, position: u64) -> PeopleServer {
    let server = server_of(cluster);
    let views = "/apis/visibility.sluice.dev/v1alpha1/namespaces/team/workloadviews/waits";
    let row = json!({"metadata": {"namespace": "team", "name": "waits"}, "state": "Pending", "priority": 0, "clusterQueue": "q", "localQueue": "known",
        "reason": "WaitingForQuota", "position": {"clusterQueue": position, "localQueue": 1, "of": 20_000, "ofLocalQueue": 1},
        "source": {"kind": "manager", "replica": "m-0", "role": "leader", "stateVersion": 1, "time": "2026-11-26T14:00:00Z"}});
    server.put(
        "/apis/visibility.sluice.dev/v1alpha1",
        json!({"resources": [{"name": "workloadviews/verdict"}]}),
    );
    server.put(views, row.clone());
    server.put(&format!("{views}/verdict"), row);
    server
}

#[test]
fn a_manager_is_not_asked_to_simulate() {
    let mut cluster = cluster();
    for workload in cluster.objects.iter_mut().filter(|object| object["metadata"]["name"] == "first") {
        workload["spec"]["maximumExecutionTimeSeconds"] = json!(i32::MAX);
    }
    let server = serve(&cluster, 1);
    let outcome = server.run("sluice", "why waits -n team --when -o json");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let answer: Value = serde_json::from_str(&outcome.out).unwrap();
    let estimate = &answer["estimate"];
    // The clock is the reader's: by now, it has outlived all earlier runs, and only its maximum bounds it.
    assert!(estimate.get("earliest").is_none() && estimate["latest"].is_string(), "{outcome:?}");
    let assumptions = estimate["assumptions"].to_string();
    assert!(assumptions.contains("the manager has its built-in configuration"), "{assumptions}");
    assert_eq!(answer["source"]["kind"], "manager");

    let server = serve(&cluster, 12_401);
    let outcome = server.run("sluice", "why waits -n team --when");
    let refused = vec!["Estimate no estimate: 12,400 workloads are ahead (limit 2,000)".to_owned()];
    assert_eq!((outcome.code, lines(&outcome)), (0, refused));
    let lists = server.requests().into_iter().filter(|(_, path)| path.contains("limit=500"));
    assert_eq!(lists.count(), 0, "nothing is listed for it");
}

#[test]
fn a_missing_right_is_named() {
    let server = serve(&cluster(), 1);
    server.state.lock().unwrap().forbidden = Some("clusterqueues");
    let outcome = server.run("sluice", "why waits -n team --when");
    assert_eq!(outcome.code, 3, "{outcome:?}");
    let expected = "Estimate no estimate: cannot list in the whole cluster: clusterqueues (clusterqueues is forbidden: User \"u\" cannot list resource \"clusterqueues\")";
    assert_eq!(lines(&outcome), [expected]);
    assert!(outcome.out.contains("has been pending"), "the rest is said as always: {outcome:?}");
}

#[test]
fn a_durable_record_is_read_where_stored_workloads_do_not_say_enough() {
    let mut cluster = cluster();
    cluster.objects.retain(|object| !object["metadata"]["name"].as_str().unwrap().starts_with("known-"));
    let server = serve(&cluster, 1);
    let records = "/apis/visibility.sluice.dev/v1alpha1/clusterusagerecords";
    let outcome = server.run("sluice", "why waits -n team --when");
    let refused = "Estimate no estimate: 1 of 2 running workloads has neither a maximum or expected run time nor 20 earlier runs of the same shape";
    assert_eq!((outcome.code, lines(&outcome)), (0, vec![refused.to_owned()]), "{outcome:?}");
    let row = |number: u32| {
        let end = format!("2026-11-25T10:{number:02}:00Z");
        json!({"namespace": "team", "localQueue": "known", "flavor": "f", "resource": "cpu", "start": "2026-11-25T10:00:00Z", "end": end,
            "run": {"uid": format!("gone-{number}"), "attempt": 0, "part": 0, "result": "Finished", "units": "2000"}})
    };
    let rows: Vec<Value> = (1..=20).map(row).collect();
    server.put(records, json!({"metadata": {}, "items": rows, "recorded": {}}));
    let outcome = server.run("sluice", "why waits -n team --when");
    let outlived = "Estimate no latest: 1 of 2 running workloads has run longer than all 20 earlier runs";
    assert_eq!(lines(&outcome), [outlived], "{outcome:?}");
    let asked = server.requests().into_iter().filter(|(_, path)| path.contains("clusterusagerecords"));
    assert!(asked.count() >= 3, "of a day, a week and a month");
}
