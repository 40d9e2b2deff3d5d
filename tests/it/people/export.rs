//! `sluice usage export` against a server of pages: what it prints, files that are gone on with, and what it refuses.

use crate::fixtures::people_server::{Outcome, PeopleServer};
use serde_json::{Value, json};
use std::path::PathBuf;

const VIEWS: &str = "/apis/visibility.sluice.dev/v1alpha1";
const SINCE: &str = "2026-01-01T00:00:00Z";

fn hours(unit_milliseconds: &str, hours: f64) -> Value {
    json!({"unitMilliseconds": unit_milliseconds, "hours": hours, "text": "x"})
}

fn run_row(name: &str, result: &str) -> Value {
    json!({
        "apiVersion": "visibility.sluice.dev/v1alpha1", "kind": "ClusterUsageRecord",
        "metadata": {"namespace": "nlp", "name": format!("{name}.0.0")},
        "start": "2026-01-02T10:00:00Z", "end": "2026-01-02T11:30:00Z",
        "namespace": "nlp", "localQueue": "train", "clusterQueue": "ai", "priorityClass": "high",
        "flavor": "h100", "resource": "cpu", "used": hours("8100000000", 2.25),
        "run": {"uid": format!("uid-{name}"), "name": name, "job": {"kind": "Job", "name": "j"}, "priority": 7,
            "attempt": 0, "part": 1, "until": "2026-01-02T11:30:00Z", "result": result,
            "amount": {"value": "1500m", "number": 1.5}, "units": "1500"},
    })
}

fn sums_row() -> Value {
    json!({
        "metadata": {"namespace": "nlp", "name": "ai"},
        "start": "2026-01-02T10:00:00Z", "end": "2026-01-02T11:00:00Z",
        "namespace": "nlp", "localQueue": "train", "clusterQueue": "ai", "priorityClass": "",
        "flavor": "", "resource": "", "used": hours("0", 0.0),
        "sums": {"borrowed": hours("0", 0.0), "lost": hours("0", 0.0), "ended": 3, "evicted": 1,
            "waits": [{"upToSeconds": 60, "count": 2}]},
    })
}

fn page(items: &[Value], next: &str, complete: bool) -> Value {
    let recorded = json!({"from": SINCE, "until": "2026-01-03T00:00:00Z", "replica": "recorder", "complete": complete, "drift": 0});
    json!({"metadata": {"continue": next}, "items": items, "recorded": recorded, "source": {"kind": "manager", "replica": "m"}})
}

fn put(server: &PeopleServer, resource: &str, pages: &[Value]) {
    for (number, page) in pages.iter().enumerate() {
        let place = if number == 0 { String::new() } else { format!("?continue=page{number}") };
        server.put(&format!("{VIEWS}/{resource}{place}"), page.clone());
    }
}

/// Two pages of the whole cluster, and one of the namespace `default`.
fn server(complete: bool) -> PeopleServer {
    let server = PeopleServer::start();
    let pages = [
        page(&[run_row("a", "Finished"), run_row("b", "evicted:A,B")], "page1", complete),
        page(&[run_row("c", "")], "", complete),
    ];
    put(&server, "clusterusagerecords", &pages);
    put(&server, "namespaces/default/usagerecords", &[page(&[run_row("own", "")], "", complete)]);
    server
}

fn export(server: &PeopleServer, flags: &str) -> Outcome {
    server.run("sluice", &format!("usage export --since {SINCE} {flags}"))
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-people-export-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> String {
        self.0.join("x.out").display().to_string()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn rows_come_as_lines_of_json() {
    let server = server(true);
    let outcome = export(&server, "");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let lines: Vec<&str> = outcome.out.lines().collect();
    assert_eq!(lines.len(), 3, "{outcome:?}");
    let mut first = run_row("a", "Finished");
    for name in ["apiVersion", "kind", "metadata"] {
        first.as_object_mut().unwrap().shift_remove(name);
    }
    assert_eq!(serde_json::from_str::<Value>(lines[0]).unwrap(), first);
    assert_eq!(outcome.err, "Recorded 2d of 2d (complete).\n");
    let asked: Vec<String> = server.requests().into_iter().map(|(_, path)| path).collect();
    assert_eq!(
        asked,
        [
            format!("{VIEWS}/clusterusagerecords?limit=500&since=2026-01-01T00%3A00%3A00Z"),
            format!("{VIEWS}/clusterusagerecords?limit=500&since=2026-01-01T00%3A00%3A00Z&continue=page1"),
        ]
    );
}

#[test]
fn rows_come_as_comma_separated_values() {
    let outcome = export(&server(true), "--format csv");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let row = |name: &str, result: &str| {
        format!(
            "uid-{name},nlp,{name},Job,j,train,ai,high,7,0,1,2026-01-02T10:00:00Z,2026-01-02T11:30:00Z,2026-01-02T11:30:00Z,{result},h100,cpu,1500,1500m,8100000000,2.25,false\r\n"
        )
    };
    let header = "workload_uid,namespace,workload,job_kind,job,local_queue,cluster_queue,priority_class,priority,attempt,part,start,end,until,result,flavor,resource,units,amount,used_unit_milliseconds,used_hours,filled\r\n";
    let expected = [header, &row("a", "Finished"), &row("b", "\"evicted:A,B\""), &row("c", "")].concat();
    assert_eq!(outcome.out, expected);
    let server = PeopleServer::start();
    put(&server, "namespaces/nlp/usagerecords", &[page(&[sums_row()], "", true)]);
    let outcome = export(&server, "-n nlp --rollup hour --format csv");
    let expected = "start,end,namespace,local_queue,cluster_queue,priority_class,flavor,resource,used_unit_milliseconds,used_hours,borrowed_unit_milliseconds,borrowed_hours,lost_unit_milliseconds,lost_hours,ended,evicted,waits\r\n\
        2026-01-02T10:00:00Z,2026-01-02T11:00:00Z,nlp,train,ai,,,,0,0,0,0,0,0,3,1,60:2\r\n";
    assert_eq!((outcome.code, outcome.out.as_str()), (0, expected), "{outcome:?}");
    assert!(server.requests()[0].1.ends_with("&rollup=hour"));
}

#[test]
fn what_is_not_recorded_as_a_whole_ends_with_3() {
    let outcome = export(&server(false), "");
    assert_eq!((outcome.code, outcome.out.lines().count()), (3, 3), "{outcome:?}");
    assert!(outcome.err.starts_with("Recorded 2d of 2d."), "{outcome:?}");
}

#[test]
fn a_file_that_was_cut_is_gone_on_with() {
    let (server, folder) = (server(true), Folder::new("cut"));
    let file = folder.file();
    let second = format!("{VIEWS}/clusterusagerecords?continue=page1");
    let page = server.state.lock().unwrap().objects.remove(&second).unwrap();
    let cut = export(&server, &format!("-f {file}"));
    assert_eq!((cut.code, cut.out.as_str()), (1, ""), "{cut:?}");
    assert!(cut.err.contains("x.out.part has 2 rows; the same command goes on with it"), "{cut:?}");
    assert_eq!(folder.names(), ["x.out.part", "x.out.part.state"]);
    // It was killed while it wrote the next page.
    let part = folder.0.join("x.out.part");
    let half = std::fs::read_to_string(&part).unwrap() + "{\"start\":";
    std::fs::write(&part, half).unwrap();
    let other = export(&server, &format!("--format csv -f {file}"));
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.err.contains("was begun with --format jsonl, not with --format csv"), "{other:?}");
    server.put(&second, page);
    server.requests();
    let rest = export(&server, &format!("-f {file}"));
    assert_eq!((rest.code, rest.out.as_str()), (0, ""), "{rest:?}");
    assert!(rest.err.starts_with(&format!("note: going on after 2 rows\n3 rows in {file}\n")), "{rest:?}");
    assert_eq!(server.requests().len(), 1, "the first page is not read again");
    assert_eq!(folder.names(), ["x.out"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), export(&server, "").out);
    let again = export(&server, &format!("-f {file}"));
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.err.contains("x.out exists: name another file"), "{again:?}");
}

#[test]
fn wrong_flags_and_missing_things_are_named() {
    let (server, folder) = (server(true), Folder::new("wrong"));
    for (line, code, named) in [
        ("usage export", 2, "--since"),
        ("usage export --since yesterday", 2, "\"yesterday\""),
        ("usage export --since 1d --format xml", 2, "[possible values: jsonl, csv]"),
        ("usage export --since 1d --rollup week", 2, "unknown roll-up \"week\": use hour or day"),
        ("usage export --since 1d --until 2d", 2, "--until: the end of the period is not after its start"),
        ("usage export --since 1d -A -n a", 2, "-A and -n"),
        ("usage export --since 1d -o json", 2, "-o: export has --format"),
        ("usage --by queue export --since 1d", 2, "--by: is a flag of the report"),
        ("usage --prices p.yaml export --since 1d", 2, "--prices: is a flag of the report"),
        ("usage --since 2d export --since 1d", 2, "--since before export"),
        ("usage export --since 1d --source cluster", 2, "--source: the durable record"),
        ("usage export --since 1d -f /nonexistent/x.out", 1, "there is no folder /nonexistent"),
    ] {
        let outcome = server.run("sluice", line);
        assert_eq!((outcome.code, outcome.out.as_str()), (code, ""), "{line}: {outcome:?}");
        assert!(outcome.err.contains(named), "{line}: {outcome:?}");
    }
    assert_eq!(server.requests(), Vec::new());
    // Nothing is left of what did not begin.
    let outcome = export(&server, &format!("-n nowhere -f {}", folder.file()));
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert_eq!(folder.names(), Vec::<String>::new());
}

/// A period that is not recorded as a whole is a failure if it was asked for.
#[test]
fn the_default_period_may_be_partial() {
    let server = PeopleServer::start();
    let recorded = json!({"from": SINCE, "replica": "m", "complete": false, "drift": 0});
    let source = json!({"kind": "manager", "replica": "m"});
    let usage = json!({"by": "namespace", "items": [], "sums": [], "recorded": recorded, "source": source});
    server.put(&format!("{VIEWS}/clusterusagereports"), usage);
    let preemptions =
        json!({"metadata": {}, "items": [], "sums": [], "pairs": [], "recorded": recorded, "source": source});
    server.put(&format!("{VIEWS}/preemptions"), preemptions);
    for (line, status) in [
        ("usage", 0),
        ("usage --since 24h", 3),
        ("list preemption -A", 0),
        ("list preemption -A --since 24h", 3),
    ] {
        let outcome = server.run("sluice", line);
        assert_eq!(outcome.code, status, "{line}: {outcome:?}");
    }
}

/// The history does not count what is left: a list that goes on says so, and JSON has its token and no number.
#[test]
fn preemptions_that_go_on_say_so() {
    let server = PeopleServer::start();
    let file = format!("{}/tests/dashboard/preemptions.json", env!("CARGO_MANIFEST_DIR"));
    let mut list: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    list["metadata"] = json!({"continue": "t"});
    list["recorded"]["complete"] = json!(true);
    let read = list["items"].as_array().unwrap().len();
    server.put(&format!("{VIEWS}/preemptions"), list);
    for form in ["", " -o json", " -o csv"] {
        let outcome = server.run("sluice", &format!("list preemption -A --limit {read}{form}"));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        assert!(outcome.err.lines().any(|line| line == "more: --limit 0 lists all"), "{form}: {outcome:?}");
        if form == " -o json" {
            let printed: Value = serde_json::from_str(&outcome.out).unwrap();
            assert_eq!(printed["metadata"]["continue"], "t", "{printed}");
            assert_eq!(printed["metadata"].get("remainingItemCount"), None, "{printed}");
        }
    }
}

/// The report is as it was.
#[test]
fn the_report_takes_its_flags() {
    let server = PeopleServer::start();
    let report = json!({"by": "namespace", "items": [], "sums": [], "recorded": {"replica": "m", "complete": true, "drift": 0}, "source": {"kind": "manager", "replica": "m"}});
    server.put(&format!("{VIEWS}/clusterusagereports"), report);
    for line in ["usage", "usage --by namespace --since 7d --resource cpu"] {
        assert_eq!(server.run("sluice", line).code, 0, "{line}");
    }
    let asked = server.requests();
    assert!(asked[1].1.ends_with("&by=namespace&resource=cpu"), "{asked:?}");
    let help = server.run("sluice", "usage export --help").out;
    for flag in
        ["--since <TIME>", "--rollup <PERIOD>", "--file <FILE>", "--format <FORMAT>", "--all-namespaces"]
    {
        assert!(help.contains(flag), "{flag}: {help}");
    }
}

/// Prices by flavor ask for hours by flavor, others ask for what the report has anyway.
#[test]
fn prices_add_the_cost_of_each_row() {
    let server = PeopleServer::start();
    let hour = |used: &str| hours(used, 1.0);
    let of = |flavor: &str, used: &str| json!({"flavor": flavor, "used": hour(used), "borrowed": hour("0"), "lost": hour("0")});
    let row = |group: &str, resource: &str, used: &str| json!({"group": group, "resource": resource, "jobs": 1, "used": hour(used), "borrowed": hour("0"), "lost": hour("0")});
    let mut gpus = row("nlp", "nvidia.com/gpu", "10800000");
    gpus["flavors"] = json!([of("h100", "7200000"), of("l4", "3600000")]);
    let report = json!({
        "by": "namespace", "items": [gpus, row("nlp", "pods", "3600000")],
        "sums": [row("sum", "nvidia.com/gpu", "10800000"), row("sum", "pods", "3600000")],
        "recorded": {"replica": "m", "complete": true, "drift": 0}, "source": {"kind": "manager", "replica": "m"},
    });
    server.put(&format!("{VIEWS}/clusterusagereports"), report);
    let folder = Folder::new("prices");
    let path = folder.file();
    let text = "currency: EUR\nprices:\n- {resource: nvidia.com/gpu, perHour: 2.5}\n";
    std::fs::write(&path, format!("{text}- {{resource: nvidia.com/gpu, flavor: h100, perHour: 4.1}}\n"))
        .unwrap();
    let outcome = server.run("sluice", &format!("usage --by namespace --prices {path}"));
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let asked = server.requests();
    assert!(asked.iter().any(|(_, path)| path.ends_with("&by=namespace&flavors=true")), "{asked:?}");
    // 2 × 4.1 + 1 × 2.5
    for part in ["COST EUR", "10.70", "Cost 10.70 EUR, by ", "Without a price: pods.\n"] {
        assert!(outcome.out.contains(part), "{part}: {outcome:?}");
    }
    let json = server.run("sluice", &format!("usage --prices {path} -o json"));
    let printed: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (&printed["items"][0]["cost"], &printed["sums"][0]["cost"]),
        (&json!("10.70"), &json!("10.70"))
    );
    assert_eq!((printed["items"][1].get("cost"), &printed["prices"]["total"]), (None, &json!("10.70")));
    let csv = server.run("sluice", &format!("usage --prices {path} -o csv")).out;
    let sha256 = printed["prices"]["sha256"].as_str().unwrap();
    assert!(csv.lines().next().unwrap().ends_with(",cost,currency,prices_sha256"), "{csv}");
    assert!(csv.lines().nth(1).unwrap().ends_with(&format!(",10.70,EUR,{sha256}")), "{csv}");
    assert!(csv.lines().nth(2).unwrap().ends_with(&format!(",,EUR,{sha256}")), "{csv}");
    server.requests();
    std::fs::write(&path, text).unwrap();
    assert_eq!(server.run("sluice", &format!("usage --prices {path}")).code, 0);
    let asked = server.requests();
    assert!(!asked.iter().any(|(_, path)| path.contains("flavors")), "{asked:?}");
    let given = server.run_with("sluice", "usage --prices -", text, &[]);
    assert!(given.code == 0 && given.out.contains("Cost "), "{given:?}");
    server.requests();
    let wrong = server.run_with("sluice", "usage --prices -", &text.replace("2.5", "-2.5"), &[]);
    assert!(wrong.code == 2 && wrong.err.contains("--prices standard input:3: "), "{wrong:?}");
    // A file that cannot be read is refused before any request.
    for (text, part) in [
        (text.replace("2.5", "-2.5"), ":3: perHour: nvidia.com/gpu: -2.5 is negative"),
        (
            format!("{text}- {{resource: nvidia.com/gpu, perHour: 3}}\n"),
            ":4: resource: nvidia.com/gpu has a price already",
        ),
        ("#".repeat((1 << 20) + 1), "the file is larger than 1048576 bytes"),
    ] {
        std::fs::write(&path, text).unwrap();
        let outcome = server.run("sluice", &format!("usage --prices {path}"));
        assert_eq!(outcome.code, 2, "{part}: {outcome:?}");
        assert!(outcome.err.contains(part), "{part}: {outcome:?}");
    }
    let outcome = server.run("sluice", "usage --prices /nonexistent/p.yaml");
    assert!(outcome.code == 1 && outcome.err.contains("--prices /nonexistent/p.yaml"), "{outcome:?}");
    assert_eq!(server.requests(), Vec::new());
}
