//! Amounts in reports of `sluice simulate`: in the unit in which the quota is written. Objects and replays are canonical.

use crate::fixtures::simulate_cluster::empty_simulation;
use serde_json::{Value, json};
use sluice_core::simulate::{Manifests, Report, Scenario, replay};

const KUEUE_API_VERSION: &str = "kueue.x-k8s.io/v1beta2";

/// A flavor and a LocalQueue of a ClusterQueue in a Cohort without own quota, with one other ClusterQueue.
fn queues(resource: &str, quota: &Value) -> Vec<Value> {
    let cluster_queue = |name: &str, quota: &Value| {
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
            "namespaceSelector": {}, "cohortName": "c", "resourceGroups": [{"coveredResources": [resource],
                "flavors": [{"name": "f", "resources": [{"name": resource, "nominalQuota": quota}]}]}]}})
    };
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "ResourceFlavor", "metadata": {"name": "f"}}),
        cluster_queue("q", quota),
        cluster_queue("borrower", &json!("0")),
        json!({"apiVersion": KUEUE_API_VERSION, "kind": "LocalQueue", "metadata": {"namespace": "team", "name": "q"},
            "spec": {"clusterQueue": "q"}}),
    ]
}

fn workload(name: &str, resource: &str, amount: &str) -> Value {
    json!({"apiVersion": KUEUE_API_VERSION, "kind": "Workload", "metadata": {"namespace": "team", "name": name},
        "spec": {"queueName": "q", "podSets": [{"name": "main", "count": 1, "template": {"spec": {
            "restartPolicy": "Never", "containers": [
                {"name": "c", "image": "x", "resources": {"requests": {resource: amount}}}]}}}]}})
}

fn simulate(objects: &[Value]) -> Report {
    let mut manifests = Manifests::default();
    let text: Vec<String> = objects.iter().map(ToString::to_string).collect();
    manifests.parse("test", &text.join("\n---\n"), "team");
    let mut simulation = empty_simulation();
    simulation.apply_all(manifests);
    simulation.run_until_stable();
    simulation.report()
}

/// Quota, request of the admitted and of the pending workload, and how the report shows them, with what is available.
#[test]
fn amounts_keep_unit_of_quota() {
    let cases = [
        ("memory", json!("36G"), ("9G", "30G"), ["36G", "9G", "30G", "27G"]),
        ("memory", json!("36G"), ("1500M", "35G"), ["36G", "1500M", "35G", "34500M"]),
        ("memory", json!("36G"), ("512Mi", "36G"), ["36G", "512Mi", "36G", "34631962Ki"]),
        ("memory", json!("36Gi"), ("9Gi", "30Gi"), ["36Gi", "9Gi", "30Gi", "27Gi"]),
        ("memory", json!("2048Mi"), ("1Gi", "1536Mi"), ["2048Mi", "1024Mi", "1536Mi", "1024Mi"]),
        ("cpu", json!("2"), ("500m", "2"), ["2", "500m", "2", "1500m"]),
        ("cpu", json!(2), ("1", "2"), ["2", "1", "2", "1"]),
        ("cpu", json!("500m"), ("200m", "400m"), ["500m", "200m", "400m", "300m"]),
        ("cpu", json!("4000m"), ("3", "2"), ["4000m", "3000m", "2000m", "1000m"]),
    ];
    for (resource, quota, (first, second), [nominal, used, requested, available]) in cases {
        let mut objects = queues(resource, &quota);
        objects.extend([workload("first", resource, first), workload("second", resource, second)]);
        let report = simulate(&objects);
        let tables = report.tables(100);
        let report = serde_json::to_value(report).unwrap();

        let usage = |name: &str| {
            let rows = report["queues"].as_array().unwrap().iter();
            rows.filter(|row| row["name"] == name).map(|row| row["usage"][0].clone()).collect::<Vec<_>>()
        };
        let own =
            json!({"flavor": "f", "resource": resource, "nominal": nominal, "used": used, "borrowed": "0"});
        assert_eq!(usage("q"), [own]);
        assert_eq!(usage("c")[0]["used"], used, "a Cohort without own quota, quota {quota}");
        assert_eq!(usage("borrower")[0]["nominal"], "0");
        let granted = &report["admitted"][0]["podSets"][0]["resourceUsage"];
        assert_eq!(*granted, json!({resource: used}), "quota {quota}");
        let blocker = &report["pending"][0]["blockers"][0];
        let shown = [&blocker["requested"], &blocker["available"], &blocker["limit"]];
        assert_eq!(shown, [requested, available, nominal], "quota {quota}");
        for shown in [
            format!("1 main: {used} {resource} of f\n"),
            format!("(free now: {available} {resource} of f)"),
            format!("f {resource}: {used} / {nominal}\n"),
        ] {
            assert!(tables.contains(&shown), "{shown:?} in {tables}");
        }
    }
}

/// Conditions and outcomes of replays do not depend on the unit of the quota.
#[test]
fn conditions_and_replays_are_canonical() {
    let mut objects = queues("memory", &json!("36G"));
    objects.extend([workload("first", "memory", "1024M"), workload("second", "memory", "36G")]);
    let line = json!({"now": "2026-01-01T00:00:00Z", "cycles": 2, "objects": objects});
    let outcome = replay(&Scenario::parse(line.to_string().as_bytes()).unwrap()).unwrap();
    assert_eq!(outcome.admitted["team/first"].pod_sets[0].resource_usage["memory"], "1000000Ki");
    let report = serde_json::to_value(simulate(&objects)).unwrap();
    let row = &report["pending"][0];
    let message = "couldn't assign flavors to pod set main: insufficient unused quota for memory in flavor f, request \
                   35156250Ki, limit 35156250Ki at Cohort c";
    assert_eq!(row["conditions"]["QuotaReserved"]["message"], message);
    assert_eq!(row["message"], message);
}

/// Finer quotas than the precision of the server are shown as it counts them.
#[test]
fn quota_finer_than_amounts_is_rounded_up() {
    for quota in ["100u", "3n", "1e-20", "1m"] {
        let report = simulate(&queues("cpu", &json!(quota)));
        let usage = &report.queues.iter().find(|row| row.name == "q").unwrap().usage[0];
        assert_eq!(usage.nominal, "1m", "{quota}");
    }
}

/// A request beyond the range of amounts is a number, not unlimited.
#[test]
fn largest_request_is_a_number() {
    let mut objects = queues("memory", &json!("1Gi"));
    let mut large = workload("large", "memory", "7E");
    large["spec"]["podSets"][0]["count"] = json!(2_147_483_647);
    objects.push(large);
    let report = simulate(&objects);
    let row = &report.pending[0];
    assert!(
        row.message.contains("request (9223372036854775807) > maximum capacity (1Gi)"),
        "{}",
        row.message
    );
    assert_eq!(
        (row.blockers[0].requested.as_str(), row.blockers[0].limit.as_str()),
        ("9223372036854775807", "1Gi")
    );
}

#[test]
fn pods_without_requests_have_no_flavor() {
    let mut objects = queues("cpu", &json!("1"));
    let mut idle = workload("idle", "cpu", "1");
    idle["spec"]["podSets"][0]["count"] = json!(50);
    idle["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = json!({});
    objects.push(idle);
    let tables = simulate(&objects).tables(10);
    assert!(tables.contains("  50 pods\n") && tables.contains("  50 main\n"), "{tables}");
}

/// An amount beyond a double is not a number of YAML, but a text, as for kubectl: it is shown as written where it is refused, and
/// as the largest amount where it is used.
#[test]
fn amounts_beyond_a_double_are_texts() {
    let report = |quota: &str, request: &str| {
        let mut objects = queues("cpu", &json!("QUOTA"));
        objects.push(workload("w", "cpu", "REQUEST"));
        let text: Vec<String> = objects
            .iter()
            .map(|object| serde_saphyr::to_string(object).unwrap())
            .map(|text| text.replace("QUOTA", quota).replace("REQUEST", request))
            .collect();
        let mut manifests = Manifests::default();
        manifests.parse("test", &text.join("---\n"), "team");
        let mut simulation = empty_simulation();
        simulation.apply_all(manifests);
        simulation.run_until_stable();
        let report = simulation.report();
        let shown = report.tables(100) + &serde_json::to_string(&report).unwrap();
        assert!(!shown.to_lowercase().contains("inf\""), "{shown}");
        report
    };
    for (plain, quoted) in [("1e1000", "'1e1000'"), ("1E400", "'1E400'"), ("+1e309", "'+1e309'")] {
        let (number, text) = (report(plain, plain), report(quoted, quoted));
        assert_eq!(serde_json::to_value(&number).unwrap(), serde_json::to_value(text).unwrap());
        assert_eq!(number.problems, vec![]);
        let granted = &serde_json::to_value(&number).unwrap()["admitted"][0]["podSets"][0]["resourceUsage"];
        assert_eq!(*granted, json!({"cpu": "9223372036854775807m"}), "{plain}");
        let pending = report("2", plain);
        let requested = &pending.pending[0].blockers[0].requested;
        assert_eq!(*requested, "9223372036854775807m", "{}", pending.pending[0].message);
    }
    for (plain, shown) in [("-1e1000", "-10e999"), ("-1e309", "-1e309")] {
        let problems: Vec<String> = report(plain, "1").problems.iter().map(ToString::to_string).collect();
        assert!(
            problems.iter().any(|problem| problem.contains(&format!("Invalid value: {shown:?}"))),
            "{problems:?}"
        );
    }
}

/// A workload is admitted as a whole, so what its later pod sets need of the same quota is missing, too.
#[test]
fn amounts_are_those_of_all_pod_sets() {
    let mut objects = queues("cpu", &json!("4"));
    objects[2]["spec"]["queueingStrategy"] = json!("StrictFIFO");
    let with_priority = |name: &str, cpu: &str, priority: i32| {
        let mut workload = workload(name, "cpu", cpu);
        workload["spec"]["priority"] = json!(priority);
        workload
    };
    let mut head = with_priority("head", "3", 9);
    let mut second = head["spec"]["podSets"][0].clone();
    second["name"] = json!("second");
    second["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    head["spec"]["podSets"].as_array_mut().unwrap().push(second);
    objects.extend([with_priority("runs", "2", 100), head, with_priority("small", "1", 1)]);
    let report = simulate(&objects);
    let rows = serde_json::to_value(&report).unwrap()["pending"].clone();
    let row = |name: &str| {
        let mut all = rows.as_array().unwrap().iter();
        all.find(|row| row["workload"] == format!("team/{name}")).unwrap_or_else(|| panic!("{rows}")).clone()
    };
    let waits = row("head");
    assert_eq!(
        ["requested", "requestedByAll", "available"].map(|field| waits["blockers"][0][field].clone()),
        ["3", "4", "2"].map(Value::from)
    );
    assert_eq!(
        row("small")["obstacle"],
        "Behind team/head, the head of the StrictFIFO ClusterQueue q, which lacks 2 cpu in f"
    );
    let tables = report.tables(100);
    assert!(tables.contains("(free now: 2 cpu of f; all pod sets request 4)"), "{tables}");
}
