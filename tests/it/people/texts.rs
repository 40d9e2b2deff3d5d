//! The texts of views, compared with golden files: at 100 columns, in UTF-8 and ASCII, with and without colour.
//! `make expected` writes the files.

use crate::fixtures::written_files::{Written, check_or_write};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sluice::people::description;
use sluice::people::views::{self, FlavorResource, Forest, Look};
use sluice::visibility::views::{
    ClusterQueueView, CohortView, Finding, FlavorView, LocalQueueView, ManagerView, PastUsage,
    QueueCapacityView, WorkloadView,
};
use std::path::Path;

pub(crate) fn look() -> Look {
    let now: Timestamp = "2026-11-26T14:05:12Z".parse().unwrap();
    Look {
        utf8: true,
        color: false,
        width: Some(100),
        headings: true,
        wide: false,
        labels: false,
        csv: false,
        now,
        offset: jiff::tz::Offset::UTC,
    }
}

pub(crate) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn amount(value: i64) -> Value {
    json!({"value": value.to_string(), "number": value})
}

/// Compares a text in all its looks with its file.
pub(crate) fn check(name: &str, text: impl Fn(Look) -> String) {
    let plain = look();
    let looks = [
        ("", plain),
        ("ASCII", Look { utf8: false, ..plain }),
        ("wide, without headings", Look { wide: true, headings: false, width: None, ..plain }),
        ("60 columns", Look { width: Some(60), ..plain }),
        ("20 columns", Look { width: Some(20), ..plain }),
        ("colour", Look { color: true, ..plain }),
        ("csv, with labels", Look { csv: true, labels: true, wide: true, ..plain }),
    ];
    let codes = regex::Regex::new("\u{1b}\\[[0-9]+m").unwrap();
    let mut all = String::new();
    for (title, look) in looks {
        let shown = text(look);
        assert!(shown.is_empty() || shown.ends_with('\n'), "{name}");
        let escaped = shown.replace('\u{1b}', "\\e");
        if title.is_empty() || !all.contains(&escaped) {
            if !title.is_empty() {
                all.push_str("\n--- ");
                all.push_str(title);
                all.push('\n');
            }
            all.push_str(&escaped);
        }
        if look.color {
            assert_eq!(codes.replace_all(&shown, ""), text(plain), "{name}: colour changes no text");
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/it/golden/{name}.txt"));
    check_or_write(Written::Expected, [(file, all)]);
}

/// A pending Workload, with position, priority and number of GPUs.
pub(crate) fn row(name: &str, since: &str, [position, priority, gpus]: [i64; 3], reason: &str) -> Value {
    json!({
        "metadata": {"namespace": "nlp-train", "name": name, "uid": name, "creationTimestamp": "2026-11-25T08:00:00Z"},
        "job": {"apiVersion": "batch/v1", "kind": "Job", "name": name}, "state": "Pending", "localQueue": "train", "clusterQueue": "nlp",
        "priority": priority, "since": since, "position": {"clusterQueue": position, "localQueue": 1, "of": 412, "ofLocalQueue": 37},
        "needs": [{"resource": "nvidia.com/gpu", "amount": amount(gpus)}, {"resource": "cpu", "amount": amount(768)}], "reason": reason,
        "firstBlocker": {"kind": "inUse", "flavor": "h100-80g", "resource": "nvidia.com/gpu", "node": "ClusterQueue/nlp", "missing": amount(56)},
    })
}

#[test]
fn expected_lists_of_workloads() {
    let rows: Vec<WorkloadView> = read(json!([
        row("job-mt-eval-0c1f2", "2026-11-25T08:01:13Z", [1, 200, 16], "WaitingForQuota"),
        row("job-llama-ft-7c2-4b1d9", "2026-11-26T13:02:46Z", [3, 100, 64], "WaitingForQuota"),
        row("job-rag-index-51f00", "2026-11-26T13:17:00Z", [4, 100, 8], "TopologyPlacementFailed"),
    ]));
    check("list-workload", |look| views::workloads(&rows, true, look));
    let mixed: Vec<WorkloadView> = read(json!([
        row("a", "2026-11-26T14:05:00Z", [1, 0, 1], "WaitingForQuota"),
        {"metadata": {"namespace": "x", "name": "running"}, "state": "Admitted", "priority": -3, "since": "2026-11-26T13:05:00Z",
         "needs": [{"resource": "nvidia.com/gpu", "amount": amount(4), "flavor": "h100"}, {"resource": "amd.com/gpu", "amount": amount(1)}]},
        {"metadata": {"namespace": "x", "name": "odd\u{1b}[31m\nname"}, "state": "Evicted", "priority": 0},
    ]));
    check("list-workload-mixed", |look| views::workloads(&mixed, false, look));
}

/// A quota, with nominal amount, usage, what is borrowed, and the limit.
fn quota(
    [nominal, used, borrowed, limit]: [i64; 4],
    lent: Option<i64>,
    borrowing_limit: Option<i64>,
) -> Value {
    let mut quota = json!({
        "flavor": "h100-80g", "resource": "nvidia.com/gpu", "nominal": amount(nominal), "used": amount(used), "borrowed": amount(borrowed),
        "limit": amount(limit), "available": amount(0),
    });
    for (field, value) in [("lent", lent), ("borrowingLimit", borrowing_limit)] {
        if let Some(value) = value {
            quota[field] = amount(value);
        }
    }
    quota
}

fn queues() -> Vec<ClusterQueueView> {
    let queue = |name: &str, cohort: &str, pending: u64, share: Value, quota: Option<Value>| {
        json!({"metadata": {"name": name}, "cohort": cohort, "active": name != "speech", "reason": if name == "speech" { "FlavorNotFound" } else { "" },
            "pending": {"total": pending, "active": pending, "inadmissible": 0}, "reserving": 8, "admitted": 8, "share": share,
            "queueingStrategy": "BestEffortFIFO", "quota": quota.into_iter().collect::<Vec<_>>()})
    };
    let share = |value: i64, next: u64| {
        json!({"value": value, "weight": "1", "dominantResource": if value > 0 { json!("h100-80g nvidia.com/gpu") } else { Value::Null },
            "next": next, "strategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]})
    };
    read(json!([
        queue("interns", "research", 187, share(27, 2), Some(quota([0, 8, 8, 16], Some(0), Some(16)))),
        queue("nlp", "research", 412, share(189, 3), Some(quota([128, 184, 56, 192], Some(0), Some(64)))),
        queue("vision", "research", 38, share(0, 1), Some(quota([64, 16, 0, 320], Some(48), None))),
        queue("speech", "reserach", 0, Value::Null, None),
    ]))
}

fn cohorts() -> Vec<CohortView> {
    let cohort = |name: &str,
                  parent: &str,
                  cohorts: Value,
                  queues: Value,
                  pending: u64,
                  quota: Value,
                  share: Value| {
        json!({"metadata": {"name": name}, "parent": parent, "cohorts": cohorts, "clusterQueues": queues, "pending": pending,
            "reserving": 0, "admitted": 0, "quota": [quota], "share": share})
    };
    read(json!([
        cohort(
            "ai",
            "",
            json!(["research"]),
            json!([]),
            637,
            quota([320, 264, 0, 320], None, None),
            Value::Null
        ),
        cohort(
            "research",
            "ai",
            json!([]),
            json!(["interns", "nlp", "vision"]),
            637,
            quota([192, 208, 16, 320], Some(0), None),
            json!({"value": 54, "weight": "1", "dominantResource": "h100-80g nvidia.com/gpu"})
        ),
    ]))
}

#[test]
fn expected_queues_and_cohorts() {
    let (queues, cohorts) = (queues(), cohorts());
    let forest = Forest { cohorts: &cohorts, queues: &queues };
    let shown = views::default_flavor_resource(queues.iter().flat_map(|queue| &queue.quota)).unwrap();
    assert_eq!(shown, FlavorResource { flavor: "h100-80g".into(), resource: "nvidia.com/gpu".into() });
    check("list-clusterqueue", |look| views::cluster_queues(&queues, Some(&shown), look));
    check("list-clusterqueue-none", |look| views::cluster_queues(&[], None, look));
    let second = FlavorResource { flavor: "a100-40g".into(), resource: "cpu".into() };
    let both = [shown.clone(), second];
    check("list-clusterqueue-all", |look| views::cluster_queue_tables(&queues, &both, look));
    check("tree-cohort", |look| views::cohort_tree(Some("ai"), forest, Some(&shown), None, look));
    check("tree-cohort-all", |look| views::cohort_trees(Some("ai"), forest, &both, None, look).0);
    check("share", |look| views::share(Some("research"), forest, Some(&shown), look));
    let without: Vec<ClusterQueueView> =
        queues.iter().cloned().map(|queue| ClusterQueueView { share: None, ..queue }).collect();
    let plain: Vec<CohortView> =
        cohorts.iter().cloned().map(|cohort| CohortView { share: None, ..cohort }).collect();
    let unshared = Forest { cohorts: &plain, queues: &without };
    check("share-off", |look| views::share(Some("research"), unshared, Some(&shown), look));
    check("share-none", |look| views::share(None, Forest { cohorts: &[], queues: &[] }, None, look));
    let local: Vec<LocalQueueView> = read(json!([{
        "metadata": {"namespace": "nlp-train", "name": "train"}, "clusterQueue": "nlp", "active": true,
        "pending": {"total": 37, "active": 30, "inadmissible": 7}, "reserving": 2, "admitted": 2,
        "quota": [{"flavor": "h100-80g", "resource": "nvidia.com/gpu", "used": amount(24), "available": amount(8)},
            {"flavor": "h100-80g", "resource": "cpu", "used": amount(0), "available": amount(800)}],
    }]));
    check("list-localqueue", |look| views::local_queues(&local, true, look));
    check("share-localqueue-off", |look| views::local_shares(&local, look));
    let used: Vec<LocalQueueView> = [0.5, 12.25]
        .into_iter()
        .zip(["night", "train"])
        .map(|(usage, name)| {
            let mut queue = local[0].clone();
            (queue.past_usage, queue.metadata.name) = (Some(PastUsage::new(usage)), name.to_owned());
            queue
        })
        .collect();
    check("share-localqueue", |look| views::local_shares(&used, look));
}

#[test]
fn expected_capacity_audit_and_status() {
    let flavor: FlavorView = read(json!({
        "metadata": {"name": "h100-80g"}, "topology": "gpu", "nodes": {"total": 40, "schedulable": 39},
        "resources": [{"resource": "nvidia.com/gpu", "schedulable": amount(312), "quota": amount(320), "slack": amount(-8), "charged": amount(264), "others": amount(4), "free": amount(44)}],
        "pod": [{"resource": "nvidia.com/gpu", "amount": amount(8)}, {"resource": "cpu", "amount": amount(96)}],
        "levels": [
            {"level": "host", "domains": 39, "mostFree": amount(8), "where": "b1/r3/h1", "more": 1, "largestGang": 1, "limitedBy": "nvidia.com/gpu"},
            {"level": "", "domains": 1, "mostFree": amount(44), "largestGang": 2, "limitedBy": "nvidia.com/gpu"}],
    }));
    let plain: FlavorView =
        read(json!({"metadata": {"name": "cpu"}, "nodes": {"total": 2, "schedulable": 2}}));
    check("capacity", |look| views::capacity(std::slice::from_ref(&flavor), look));
    let mut job = flavor.clone();
    job.levels.clear();
    job.job = Some(read(
        json!({"workload": "nlp-train/job-llama", "copies": 2, "limitedBy": "pod set workers: topology \"gpu\" allows to fit only 1 out of 3 pod(s)",
        "podSets": [{"name": "leader", "count": 1, "pod": [{"resource": "cpu", "amount": amount(1)}]}, {"name": "workers", "count": 3, "pod": [{"resource": "nvidia.com/gpu", "amount": amount(8)}]}]}),
    ));
    check("capacity-job", |look| views::capacity(std::slice::from_ref(&job), look));
    check("capacity-all", |look| views::capacity(&[flavor.clone(), plain.clone()], look));
    let own: QueueCapacityView = read(
        json!({"metadata": {"name": "train"}, "clusterQueue": "nlp", "active": true, "flavors": [
        {"flavor": "h100-80g", "quota": [{"flavor": "h100-80g", "resource": "nvidia.com/gpu", "used": amount(16), "available": amount(8)}],
         "levels": [{"level": "rack", "largestGang": 1, "limitedBy": "quota"}, {"largestGang": 1, "limitedBy": "quota"}]}]}),
    );
    let mut approximate = flavor.clone();
    approximate.metadata.name = "a100".to_owned();
    approximate.approximate = true;
    let alike = views::capacity_of_each(&[flavor.clone(), flavor.clone()], look());
    assert_eq!(alike.matches("A pod asks for nvidia.com/gpu=8, cpu=96.").count(), 1, "{alike}");
    let each = views::capacity_of_each(&[flavor.clone(), approximate.clone(), approximate, plain], look());
    assert!(
        each.ends_with(
            "h100-80g: A pod asks for nvidia.com/gpu=8, cpu=96.\n\
             a100, a100: A pod asks for nvidia.com/gpu=8, cpu=96. Counted by node, without a topology: approximate.\n\
             Checked: requests, taints, node selectors. Not checked: inter-pod affinity, host ports, volumes.\n"
        ),
        "{each}"
    );
    assert_eq!(each.matches("A pod asks for").count(), 2, "{each}");
    check("capacity-queue", |look| views::queue_capacity(&own, look));
    let findings: Vec<Finding> = read(json!([
        {"metadata": {"name": "a"}, "check": "workload-never-fits", "severity": "error", "object": {"kind": "ClusterQueue", "name": "interns"},
         "message": "27 workloads request 24 to 32 gpu, at most 16", "evidence": {"workloads": 27, "limit": amount(16)},
         "consequence": "They wait forever", "correction": "sluice create clusterqueue ..."},
        {"metadata": {"name": "b"}, "check": "localqueue-idle", "severity": "note", "object": {"kind": "LocalQueue", "namespace": "serve", "name": "old"}, "message": "no workload for 30 days"},
    ]));
    check("audit", |look| views::audit(&findings, look));
    check("audit-none", |look| views::audit(&[], look));
    check("audit-check", |look| views::findings_in_full(&findings[..1], look));
    let lends = |name: &str| {
        json!({"metadata": {"name": name}, "check": "lending-useless", "severity": "note", "object": {"kind": "ClusterQueue", "name": name},
            "message": "it has a lending limit of cpu and no cohort", "evidence": {"limit": amount(4)},
            "correction": format!("kubectl edit clusterqueue {name}; remove the lending limit")})
    };
    let alike: Vec<Finding> = read(json!(["interns", "night", "ranking"].map(lends)));
    check("audit-alike", |look| {
        format!("{}\n{}", views::audit(&alike, look), views::findings_in_full(&alike, look))
    });
    let manager: ManagerView = read(json!({
        "metadata": {"name": "m-0"}, "version": "0.1.0", "leads": true,
        "leader": {"name": "kueue-controller-manager-7d9c4", "since": "2026-11-23T14:05:12Z", "readyReplicas": 2, "replicas": 2},
        "decisions": {"last": "2026-11-26T14:05:11Z", "admissionsPerMinute": 12.4, "evictionsPerMinute": 1.1, "cycleP99Seconds": 0.00021},
        "writes": {"waiting": 0, "inFlight": 3, "failed": 0, "assumedAdmissions": 1}, "watches": {"total": 22, "current": 22, "oldestSeconds": 41},
        "ledgerDrift": 0, "findings": {"errors": 4, "warnings": 3, "notes": 0},
        "history": {"since": "2026-11-26T09:12:00Z", "usedBytes": 2_202_009, "limitBytes": 25_165_824, "durable": false}, "conditions": [],
    }));
    check("status", |look| views::status(&manager, look));
    let follower: ManagerView = read(
        json!({"metadata": {"name": "m-1"}, "version": "0.1.0", "leads": false, "conditions": ["KueueNoLeader", "KueueWatchStale"]}),
    );
    check("status-bad", |look| views::status(&follower, look));
}

#[test]
fn expected_descriptions() {
    let workload = json!({
        "kind": "Workload", "metadata": {"name": "job-train-1", "namespace": "ml", "creationTimestamp": "2026-11-26T13:00:00Z",
            "ownerReferences": [{"kind": "Job", "name": "train"}]},
        "spec": {"queueName": "main", "priority": 100, "priorityClassRef": {"name": "research"}, "active": false, "podSets": [
            {"name": "main", "count": 3, "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "nvidia.com/gpu": 4}}}]}}}]},
        "status": {"conditions": [
            {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": "insufficient unused quota", "lastTransitionTime": "2026-11-26T14:00:00Z"},
            {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted to accommodate a workload", "lastTransitionTime": "2026-11-26T13:30:00Z"}]},
    });
    let queue = json!({
        "kind": "ClusterQueue", "metadata": {"name": "nlp"},
        "spec": {"cohortName": "research", "queueingStrategy": "BestEffortFIFO", "namespaceSelector": {}, "stopPolicy": "None",
            "preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Never"}}},
    });
    let events = [
        json!({"type": "Normal", "reason": "Preempted", "message": "Preempted to accommodate a workload", "lastTimestamp": "2026-11-26T13:30:00Z", "count": 3}),
        json!({"type": "Warning", "reason": "Pending", "message": "couldn't assign flavors\nand more", "eventTime": "2026-11-26T13:00:00.000001Z"}),
    ];
    check("describe-workload", |look| {
        [
            description::fields_text(&workload),
            description::conditions(&workload, look),
            description::events(Some(&events), look),
        ]
        .join("\n")
    });
    check("describe-queue", |look| {
        let quota = [read(quota([128, 184, 56, 192], Some(0), Some(64)))];
        let local =
            json!({"flavor": "h100-80g", "resource": "cpu", "used": amount(3), "available": amount(5)});
        [
            description::fields_text(&queue),
            views::quota_table(&quota, look),
            views::local_quota_table(&[read(local)], look),
            description::events(Some(&[]), look),
            description::events(None, look),
        ]
        .join("\n")
    });
}
