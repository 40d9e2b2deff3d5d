//! Tables on a terminal of 80 columns: with the longest names no line is wider, rows stay apart, and the reason is there.

use crate::people::texts::{amount, look, read, row};
use serde_json::{Value, json};
use sluice::people::description;
use sluice::people::job_tree::{JobParts, Part, job_tree};
use sluice::people::server_table::ServerTable;
use sluice::people::views::{self, FlavorResource, Forest, Look};
use sluice::simulate::Comparison;
use sluice::visibility::views::{
    Answer, ClusterQueueView, CohortView, Finding, FlavorView, LocalQueueView, PreemptionReport,
    QueueCapacityView, UsageReport, Verdict, WorkloadView,
};

/// Columns of the terminal.
const WIDTH: usize = 80;
/// An amount of bytes, which is the widest number of a quota.
const BYTES: i64 = 1_099_511_627_776;

fn narrow() -> Look {
    Look { width: Some(WIDTH), ..look() }
}

/// A name of 253 characters that differs from others only at its end.
fn name(end: &str) -> String {
    format!("{}-{end}", "n".repeat(252 - end.len()))
}

/// A name of a namespace of 63 characters.
fn namespace(end: &str) -> String {
    format!("{}-{end}", "s".repeat(62 - end.len()))
}

fn resource() -> String {
    format!("{}.example/{}", "r".repeat(100), "g".repeat(63))
}

/// Checks the lines of a table. `texts` are in it, across the lines of a wrapped text; a sentence, which is no row, ends with a full stop.
fn check(what: &str, table: &str, texts: &[&str]) {
    for line in table.lines().filter(|line| !line.ends_with('.')) {
        assert!(line.chars().count() <= WIDTH, "{what}: {} columns: {line}", line.chars().count());
    }
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in texts {
        assert!(words.contains(text), "{what}: {text:?} is missing:\n{table}");
    }
}

/// Checks that the rows of a table, without its heading, differ.
fn check_rows(what: &str, table: &str, count: usize) {
    let mut rows: Vec<&str> = table.lines().skip(1).take(count).collect();
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows.len(), count, "{what}: rows read alike:\n{table}");
}

#[test]
fn lists_of_workloads_keep_the_reason() {
    let mut rows: Vec<WorkloadView> = read(json!([
        row(&name("0c1f2"), "2026-11-25T08:01:13Z", [1, 200, 16], "WaitingForPreemptedWorkloads"),
        row(&name("4b1d9"), "2026-11-26T13:02:46Z", [38_123, 1_000_000_000, 64], "WaitingForQuota"),
    ]));
    let texts = ["WaitingForPreemptedWorkloads", "WaitingForQuota"];
    for all in [false, true] {
        for row in &mut rows {
            row.metadata.namespace = namespace("train");
        }
        let table = views::workloads(&rows, all, narrow());
        check("list workload", &table, &texts);
        check_rows("list workload", &table, 2);
        // Without a terminal, and with all columns, names are whole.
        for look in [look(), Look { wide: true, ..narrow() }] {
            let look = Look { width: look.width.filter(|_| look.wide), ..look };
            assert!(views::workloads(&rows, all, look).contains(&name("0c1f2")));
        }
    }
}

fn quota(numbers: i64) -> Value {
    json!({"flavor": name("h100"), "resource": resource(), "nominal": amount(numbers), "used": amount(numbers), "borrowed": amount(numbers),
        "lent": amount(numbers), "borrowingLimit": amount(numbers), "limit": amount(numbers), "available": amount(numbers)})
}

fn queues(active: bool) -> Vec<ClusterQueueView> {
    let queue = |end: &str, active: bool| {
        json!({"metadata": {"name": name(end)}, "cohort": name(&format!("of-{end}")), "active": active, "reason": "",
            "pending": {"total": 100_000, "active": 9, "inadmissible": 0}, "reserving": 8, "admitted": 100_000,
            "share": {"value": 1000, "weight": "1", "dominantResource": format!("{} {}", name("h100"), resource()), "next": 2, "strategies": []},
            "queueingStrategy": "BestEffortFIFO", "quota": [quota(BYTES)]})
    };
    read(json!([queue("nlp", true), queue("vision", active)]))
}

#[test]
fn quotas_of_queues_and_cohorts_keep_their_numbers() {
    let shown = FlavorResource { flavor: name("h100"), resource: resource() };
    let number = BYTES.to_string();
    for active in [true, false] {
        let queues = queues(active);
        let table = views::cluster_queues(&queues, Some(&shown), narrow());
        check("list clusterqueue", &table, &["[████████████████│██████████████]", "100000"]);
        check_rows("list clusterqueue", &table, 2);
        let cohorts: Vec<CohortView> = read(
            json!([{"metadata": {"name": name("ai")}, "parent": "", "cohorts": [],
            "clusterQueues": queues.iter().map(|queue| &queue.metadata.name).collect::<Vec<_>>(), "pending": 9, "reserving": 0,
            "admitted": 0, "quota": [quota(BYTES)], "share": queues[0].share}]),
        );
        let forest = Forest { cohorts: &cohorts, queues: &queues };
        let tree = views::cohort_tree(None, forest, Some(&shown), None, narrow());
        // The first line names the flavor-resource.
        let (_, tree) = tree.split_once('\n').unwrap();
        check("tree cohort", tree, &["NOMINAL", "USED", "BORROWED", "PENDING", &number]);
        check_rows("tree cohort", tree, 3);
        let share = views::share(None, forest, Some(&shown), narrow());
        let (_, share) = share.split_once("\nNAME").unwrap();
        check("share", &format!("NAME{share}"), &["DOMINANT RESOURCE", "SHARE", "NEXT"]);
    }
    let local: Vec<LocalQueueView> = read(json!([{
        "metadata": {"namespace": namespace("train"), "name": name("a")}, "clusterQueue": name("nlp"), "active": false,
        "pending": {"total": 100_000, "active": 30, "inadmissible": 7}, "reserving": 2, "admitted": 100_000,
        "byPastUsage": true, "quota": [{"flavor": name("h100"), "resource": resource(), "used": amount(BYTES), "available": amount(8)}],
    }]));
    check("list localqueue", &views::local_queues(&local, true, narrow()), &["False", "100000", &number]);
    check("share localqueue", &views::local_shares(&local, narrow()), &["PAST USAGE", "100000"]);
    check("describe", &views::quota_table(&[read(quota(BYTES))], narrow()), &["AVAILABLE", &number]);
    check("describe", &views::local_quota_table(&local[0].quota, narrow()), &["AVAILABLE", &number]);
}

#[test]
fn capacity_says_what_is_free() {
    let numbers = json!({"resource": resource(), "schedulable": amount(BYTES), "quota": amount(BYTES), "slack": amount(-BYTES),
        "charged": amount(BYTES), "others": amount(BYTES), "free": amount(44)});
    let levels = json!([{"level": name("host"), "domains": 5000, "mostFree": amount(BYTES), "where": name("h1"), "more": 1, "largestGang": 100_000,
        "limitedBy": resource()}]);
    let mut flavor: FlavorView = read(json!({"metadata": {"name": name("h100")}, "topology": "gpu",
        "nodes": {"total": 5000, "schedulable": 5000}, "resources": [numbers], "pod": [], "levels": levels}));
    let table = views::capacity(std::slice::from_ref(&flavor), narrow());
    check("capacity", &table, &["FREE", " 44 ", "LARGEST GANG", "100000 pods"]);
    flavor.levels.clear();
    flavor.job = Some(read(
        json!({"workload": name("w"), "copies": 2, "limitedBy": "nodes", "podSets": [{"name": name("set"), "count": 3,
        "pod": [{"resource": resource(), "amount": amount(BYTES)}]}]}),
    ));
    let table = views::capacity(std::slice::from_ref(&flavor), narrow());
    check("capacity --for", &table, &["POD SET", "A POD ASKS FOR"]);
    let own: QueueCapacityView = read(
        json!({"metadata": {"name": "train"}, "clusterQueue": name("nlp"), "active": true, "flavors": [
        {"flavor": name("h100"), "quota": [{"flavor": name("h100"), "resource": resource(), "used": amount(BYTES), "available": amount(BYTES)}],
            "levels": levels}]}),
    );
    check(
        "capacity -q",
        &views::queue_capacity(&own, narrow()),
        &["AVAILABLE", &BYTES.to_string(), "100000 pods"],
    );
}

#[test]
fn history_says_how_much_and_why() {
    let hours = json!({"unitMilliseconds": "1", "hours": 1.0, "text": "123456789.5"});
    let usage_row = |group: &str, resource: &str| {
        json!({"group": group, "resource": resource, "jobs": 100_000, "used": hours, "borrowed": hours,
        "lost": hours, "waitP50Seconds": 39_900, "waitP99Seconds": 39_900})
    };
    for resources in [vec![resource()], vec![resource(), "cpu".to_owned()]] {
        let items: Vec<Value> = resources
            .iter()
            .flat_map(|resource| [usage_row(&name("a"), resource), usage_row(&name("b"), resource)])
            .collect();
        let report: UsageReport = read(json!({"by": "namespace", "items": items, "sums": [],
            "recorded": {"from": "2026-11-25T14:05:12Z", "until": "2026-11-26T14:05:12Z", "replica": "m", "complete": true, "drift": 0}}));
        let table = views::usage(&report, "2026-11-25T14:05:12Z".parse().unwrap(), narrow());
        check("usage", &table, &["HOURS", "123,456,789.5", "100,000"]);
        check_rows("usage", &table, items.len());
    }
    let preemption = |end: &str, time: &str| {
        json!({"metadata": {"namespace": namespace("train"), "name": name(end)}, "time": time,
        "victim": {"namespace": namespace("train"), "name": name(end), "uid": end, "clusterQueue": name("q"), "priority": 100},
        "preemptor": {"namespace": namespace("rank"), "name": name("by"), "clusterQueue": name("q"), "priority": 1_000_000_000},
        "reason": "InCohortReclamation", "amounts": [{"flavor": name("f"), "resource": resource(), "amount": amount(BYTES)}], "ranSeconds": 2640})
    };
    let time = "2026-11-25T14:04:59Z";
    let report: PreemptionReport = read(
        json!({"metadata": {}, "items": [preemption("one", time), preemption("two", time)], "sums": [], "pairs": [],
        "recorded": {"replica": "m", "complete": true, "drift": 0}}),
    );
    for all in [false, true] {
        let table = views::preemptions(&report, all, narrow());
        check("list preemption", &table, &["Wed 14:04:59Z", "InCohortReclamation"]);
        check_rows("list preemption", &table, 2);
    }
}

#[test]
fn findings_are_whole() {
    let finding = |end: &str, message: &str| {
        json!({"metadata": {"name": end}, "check": "clusterqueue-unreachable", "severity": "warning",
        "object": {"kind": "LocalQueue", "namespace": namespace("train"), "name": name(end)}, "message": message, "evidence": {}, "correction": ""})
    };
    let texts = [
        "1 workload: a pod asks for 9 nvidia.com/gpu, the largest node of h100 has 8",
        "1 workload: a pod asks for 16 nvidia.com/gpu, the largest node of h100 has 8",
    ];
    let findings: Vec<Finding> = read(json!([finding("a", texts[0]), finding("b", texts[1])]));
    let table = views::audit(&findings, narrow());
    check("audit", &table, &["warning", "clusterqueue-unreachable"]);
    // The lines of a finding are below each other, so that its words are those of the last column.
    let column = table.lines().next().unwrap().find("FINDING").unwrap();
    let last: Vec<String> = table.lines().skip(1).map(|line| line.chars().skip(column).collect()).collect();
    for text in texts {
        assert!(last.join(" ").contains(text), "{text}: {table}");
    }
}

fn verdict(more: &Value) -> Answer<Verdict> {
    let mut verdict = row(&name("w"), "2026-11-26T13:02:46Z", [3, 100, 64], "WaitingForQuota");
    verdict["source"] = json!({"kind": "manager", "replica": "m-0", "stateVersion": 1});
    verdict.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    read(verdict)
}

/// Returns the table of an answer: the part after the sentences.
fn table_of(answer: &Answer<Verdict>) -> String {
    let text = views::why(answer, false, narrow());
    text.split("\n\n").nth(1).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn a_verdict_says_what_is_missing() {
    let blocker = |kind: &str, set: &str| {
        json!({"kind": kind, "podSet": name(set), "flavor": name("h100"), "resource": resource(),
        "node": format!("ClusterQueue/{}", name("nlp")), "requested": amount(BYTES), "available": amount(BYTES), "limit": amount(BYTES),
        "missing": amount(BYTES)})
    };
    let mismatch = "flavor h100 takes only pods with a topology: add the annotation to the pod template";
    let blockers = json!([blocker("inUse", "a"), blocker("neverFits", "b"), {"kind": "mismatch", "podSet": name("a"), "flavor": name("a100"),
        "text": mismatch}]);
    let table = table_of(&verdict(&json!({"blockers": blockers})));
    check("why", &table, &["in use", "never fits", "MISSING", &BYTES.to_string()]);
    let column = table.lines().nth(3).unwrap().find("flavor h100").unwrap_or_else(|| panic!("{table}"));
    let start = table.lines().nth(3).unwrap()[..column].chars().count();
    let rest: Vec<String> = table.lines().skip(3).map(|line| line.chars().skip(start).collect()).collect();
    assert!(rest.join(" ").contains(mismatch), "{table}");
    let admitted = json!({"state": "Admitted", "reason": "", "position": null, "admission": {"podSets": [{"name": name("a"), "count": 4,
        "resources": [{"resource": resource(), "amount": amount(BYTES), "flavor": name("h100")}], "domains": {"b1/r4": 1, "b2/r3": 3}}]}});
    check("why", &table_of(&verdict(&admitted)), &["AMOUNT", &BYTES.to_string(), "b1/r4 (1), b2/r3 (3)"]);
    let before = json!({"before": {"workload": format!("{}/{}", namespace("a"), name("w")), "other": format!("{}/{}", namespace("b"), name("v")),
        "otherIsBefore": true, "because": "its priority is higher", "scope": "queue", "factors": [
            {"name": "LocalQueue usage", "workload": "off", "other": "off", "note": "admission fair sharing"},
            {"name": "Priority", "workload": "100", "other": "200", "decides": true},
            {"name": "class", "workload": name("research"), "other": name("eval"), "part": true}]}});
    check("why --before", &table_of(&verdict(&before)), &["LocalQueue usage", "<- decides"]);
}

#[test]
fn a_change_is_shown_with_its_cause() {
    let comparison: Comparison = read(json!({
        "without": {"seconds": 7200.0, "admitted": 4, "preempted": 0, "finished": 6, "endless": 0, "pending": 1},
        "with": {"seconds": 7200.0, "admitted": 4, "preempted": 1, "finished": 6, "endless": 0, "pending": 1},
        "flavors": [{"flavor": name("h100"), "resource": resource(), "nodesWithout": "48", "nodesWith": "64", "quotaWithout": "64",
            "quotaWith": "64", "remark": "adding nodes adds no quota: --quota raises it"}],
        "workloads": [
            {"workload": name("a"), "job": format!("{}/{}", namespace("train"), name("a")), "effect": "evicted", "without": {"state": "admitted"},
                "with": {"state": "pending", "evictedAt": 6959.658, "evictedFor": "ClusterQueueStopped",
                    "blockedBy": format!("ClusterQueue {}: 0 of 8 {}", name("nlp"), resource())}},
            {"workload": name("b"), "job": format!("{}/{}", namespace("train"), name("b")), "effect": "evicted",
                "without": {"state": "admitted", "preemptedAt": 6959.658, "preemptedBy": name("x"), "admittedAt": 7100.25},
                "with": {"state": "admitted", "preemptedAt": 6959.658, "preemptedBy": name("y"), "admittedAt": 7100.25}}],
    }));
    let table = views::what_if(&comparison, narrow());
    check(
        "what-if",
        &table,
        &["(ClusterQueueStopped)", "adding nodes adds no quota: --quota raises it", "48 -> 64"],
    );
    check("what-if", &table, &["admitted in 2h 4 4", "finished in 2h 6 6"]);
}

#[test]
fn objects_and_trees_fit() {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "lastTransitionTime": "2026-11-26T13:00:00Z", "reason": name("reason"),
        "message": name("message")})
    };
    let workload = json!({"metadata": {"name": name("w"), "uid": "u"}, "spec": {"queueName": name("q"), "podSets": [{"name": name("set"), "count": 4}]},
        "status": {"admission": {"clusterQueue": name("nlp"), "podSetAssignments": []}, "conditions": [condition("QuotaReserved"), condition("Admitted")]}});
    let parts = JobParts {
        name: format!("Job {}", name("job")),
        job: None,
        workloads: vec![workload.clone()],
        provisioning: Part::Read(Vec::new()),
        pods: Part::Read(vec![json!({"spec": {"nodeName": name("h1")}, "status": {"phase": "Running"}})]),
        nodes: [(name("h1"), "cordoned")].into(),
        domains: std::collections::BTreeMap::new(),
    };
    check("tree job", &job_tree(&parts, false, narrow()), &["Workload nn", "Admitted", "Running, not ready"]);
    check("describe", &description::conditions(&workload, narrow()), &["QuotaReserved", "True"]);
    let event = json!({"type": "Warning", "reason": name("reason"), "message": name("message"), "lastTimestamp": "2026-11-26T13:30:00Z"});
    check("describe", &description::events(Some(&[event]), narrow()), &["Warning"]);
    let mut pods = ServerTable::new(false, true);
    pods.push(json!({"columnDefinitions": [{"name": "Name", "priority": 0}, {"name": "Ready", "priority": 0}, {"name": "Age", "priority": 0}],
        "rows": [{"cells": [name("pod"), "1/1", "5m"], "object": {"metadata": {"namespace": namespace("train")}}}]}));
    check("list pods", &pods.text(Some(WIDTH)).unwrap(), &["1/1", "5m"]);
    assert!(pods.text(None).unwrap().contains(&name("pod")));
}
