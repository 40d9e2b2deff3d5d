//! Answers of a small history, for readers of the cluster and of a namespace.

use super::*;
use crate::api::ObjectKey;
use crate::cache::WorkloadObject;
use crate::cache::interned_templates::InternedTemplates;
use crate::cache::records::WorkloadRecord;
use crate::history::{Ring, SeenWorkload};
use crate::visibility::access::TenantDetail;
use serde_json::{Value, json};

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str, at: i64) -> Value {
    json!({"type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": time(at)})
}

fn record(key: &ObjectKey, evictions: u32, conditions: &[Value]) -> WorkloadRecord {
    let object = json!({
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": format!("uid-{}", key.name),
            "creationTimestamp": time(0), "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job",
            "name": format!("{}-job", key.name), "uid": format!("u-{}", key.name), "controller": true}]},
        "spec": {"queueName": "lq", "priority": 5, "priorityClassRef": {"name": "high", "kind": "PriorityClass",
            "group": "scheduling.k8s.io"}, "podSets": []},
        "status": {"conditions": conditions,
            "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": evictions}]}},
    });
    let object = WorkloadObject::from_value(object).unwrap();
    WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap()
}

/// `a/victim` has 6 GPUs of the queue `nlp` (nominal 4) for an hour; then `b/big` of the queue `rank` preempts it, and it is released a
/// minute later.
fn history() -> HistoryView {
    let mut ring = Ring::new(24 << 20);
    ring.set_time(time(0));
    ring.begin();
    let gpu = FlavorResource::new("h100", "nvidia.com/gpu");
    ring.set_nominal(&Arc::from("nlp"), [(gpu.clone(), 4)]);
    let mut see = |now: i64, key: &ObjectKey, queue: &str, (record, gpus): (&WorkloadRecord, Option<i64>)| {
        ring.set_time(time(now));
        let charge = gpus.map(|gpus| BTreeMap::from([(gpu.clone(), Amount::new(gpus))]));
        assert_eq!(record.meta.key, *key);
        ring.observe(&SeenWorkload { record, cluster_queue: Arc::from(queue), charge });
    };
    let (victim, big) = (ObjectKey::new("a", "victim"), ObjectKey::new("b", "big"));
    see(10, &victim, "nlp", (&record(&victim, 0, &[]), None));
    let reserved = condition("QuotaReserved", true, "QuotaReserved", "m", 100);
    see(100, &victim, "nlp", (&record(&victim, 0, std::slice::from_ref(&reserved)), Some(6)));
    see(3_000, &big, "rank", (&record(&big, 0, &[]), None));
    let message = "Preempted to accommodate a workload (UID: uid-big, JobUID: j) due to reclamation";
    let evicted = [
        condition("Evicted", true, "Preempted", message, 3_700),
        condition("Preempted", true, "InCohortReclamation", message, 3_700),
    ];
    let held = [evicted[0].clone(), evicted[1].clone(), reserved];
    see(3_700, &victim, "nlp", (&record(&victim, 1, &held), Some(6)));
    let released = [
        evicted[0].clone(),
        evicted[1].clone(),
        condition("QuotaReserved", false, "PendingEvaluation", message, 3_760),
        condition("Requeued", true, "Preempted", message, 3_760),
    ];
    see(3_760, &victim, "nlp", (&record(&victim, 1, &released), None));
    ring.view()
}

fn query<'a>(
    by: UsageGroup,
    namespace: Option<&'a str>,
    cohorts: &'a BTreeMap<Arc<str>, Arc<str>>,
) -> UsageQuery<'a> {
    UsageQuery { by, from: time(-3_600), until: time(7_200), resource: None, namespace, cohorts }
}

fn source(history: &HistoryView) -> HistorySource<'_> {
    HistorySource { history, replica: "m-0", now: time(7_200) }
}

#[test]
fn a_preemption_has_its_numbers() {
    let history = history();
    let report = source(&history).preemptions(&PreemptionQuery::default(), 0, &Access::everything());
    let gpus =
        json!([{"flavor": "h100", "resource": "nvidia.com/gpu", "amount": {"value": "6", "number": 6}}]);
    let lost =
        json!([{"resource": "nvidia.com/gpu", "hours": {"unitMilliseconds": "21600000", "hours": 6.0}}]);
    let expected = json!({
        "items": [{
            "metadata": {"namespace": "a", "name": "victim.0", "uid": "uid-victim"}, "time": time(3_700),
            "victim": {"namespace": "a", "name": "victim", "job": {"kind": "Job", "name": "victim-job"},
                "clusterQueue": "nlp", "priority": 5},
            "preemptor": {"namespace": "b", "name": "big", "clusterQueue": "rank", "priority": 5},
            "reason": "InCohortReclamation", "amounts": gpus, "ranSeconds": 3_600, "releasedSeconds": 60,
            "borrowed": true,
        }],
        "total": 1,
        "byReason": [{"reason": "InCohortReclamation", "count": 1, "lost": lost}],
        "matrix": [{"preemptorClusterQueue": "rank", "victimClusterQueue": "nlp", "count": 1, "lost": lost}],
        "recorded": {"from": time(0), "until": time(7_200), "replica": "m-0", "complete": false, "drift": 0},
    });
    assert_eq!(json!(report), expected);
    let read: PreemptionReport = serde_json::from_value(expected).unwrap();
    assert_eq!(read, report);
    let text = csv::preemptions(&report);
    let row = "2027-01-15T09:01:40Z,a,victim,nlp,5,b,big,rank,5,InCohortReclamation,h100,nvidia.com/gpu,6,3600,60,true";
    assert_eq!(text.lines().nth(1), Some(row));
}

#[test]
fn a_tenant_sees_own_victims_and_of_others_the_queue_alone() {
    let history = history();
    let tenant = |namespace| Access::to_namespace(namespace, TenantDetail::Sums);
    let of_victim = source(&history).preemptions(&PreemptionQuery::default(), 0, &tenant("a"));
    assert_eq!(json!(of_victim.items[0].preemptor), json!({"clusterQueue": "rank"}));
    let text = json!(of_victim).to_string() + &csv::preemptions(&of_victim);
    assert!(!text.contains("big"), "{text}");
    let of_preemptor = source(&history).preemptions(&PreemptionQuery::default(), 0, &tenant("b"));
    assert_eq!((of_preemptor.items.len(), of_preemptor.total, of_preemptor.matrix.len()), (0, 0, 0));
    let none = BTreeMap::new();
    for by in UsageGroup::ALL {
        assert!(source(&history).usage(&query(by, None, &none), &tenant("a")).is_err(), "{by:?}");
        assert!(source(&history).usage(&query(by, Some("b"), &none), &tenant("a")).is_err(), "{by:?}");
        let own = source(&history).usage(&query(by, Some("b"), &none), &tenant("b")).unwrap();
        assert!(own.items.is_empty(), "{own:?}");
    }
    let sums = Access::to_namespace("a", TenantDetail::None);
    let own = source(&history).usage(&query(UsageGroup::Namespace, Some("a"), &none), &sums).unwrap();
    assert_eq!((own.items[0].borrowed.unit_milliseconds.as_str(), own.items[0].used.hours > 6.0), ("", true));
    assert!(lines(&source(&history), Some("nlp"), 10, &sums).is_empty());
    assert!(lines(&source(&history), None, 10, &tenant("a")).is_empty());
}

#[test]
fn queries_choose_preemptions() {
    let history = history();
    let number = |query: &PreemptionQuery<'_>| {
        let report = source(&history).preemptions(query, 0, &Access::everything());
        (report.items.len(), report.recorded.complete)
    };
    let all = PreemptionQuery::default();
    for (query, found) in [
        (PreemptionQuery { since: Some(time(3_700)), ..all.clone() }, 1),
        (PreemptionQuery { since: Some(time(3_701)), ..all.clone() }, 0),
        (PreemptionQuery { victim: Some("victim"), ..all.clone() }, 1),
        (PreemptionQuery { victim: Some("victim-job"), ..all.clone() }, 1),
        (PreemptionQuery { victim: Some("big"), ..all.clone() }, 0),
        (PreemptionQuery { preemptor: Some("big"), ..all.clone() }, 1),
        (PreemptionQuery { cluster_queue: Some("rank"), ..all.clone() }, 1),
        (PreemptionQuery { cluster_queue: Some("nlp"), namespace: Some("a"), ..all.clone() }, 1),
        (PreemptionQuery { cluster_queue: Some("nl"), ..all.clone() }, 0),
        (PreemptionQuery { namespace: Some("b"), ..all.clone() }, 0),
    ] {
        assert_eq!(number(&query), (found, query.since.is_some()), "{query:?}");
    }
    let offset = source(&history).preemptions(&all, 1, &Access::everything());
    assert_eq!((offset.items.len(), offset.total), (0, 1));
}

#[test]
fn hours_by_queue_and_by_namespace_agree() {
    let history = history();
    let cohorts = BTreeMap::from([(Arc::from("nlp"), Arc::from("research"))]);
    let groups = [
        (UsageGroup::Queue, "nlp"),
        (UsageGroup::Cohort, "research"),
        (UsageGroup::Namespace, "a"),
        (UsageGroup::LocalQueue, "a/lq"),
        (UsageGroup::PriorityClass, "high"),
        (UsageGroup::Flavor, "h100"),
    ];
    for (by, group) in groups {
        let report = source(&history).usage(&query(by, None, &cohorts), &Access::everything()).unwrap();
        let row = &report.items[0];
        assert_eq!((report.items.len(), row.group.as_str(), row.jobs), (1, group, 1), "{report:?}");
        // 6 GPUs for 3,660 seconds; 2 of them borrowed.
        let times = [&row.used, &row.borrowed, &row.lost]
            .map(|hours| hours.unit_milliseconds.parse::<i64>().unwrap());
        let tolerance =
            if matches!(by, UsageGroup::Queue | UsageGroup::Cohort | UsageGroup::Flavor) { 0 } else { 50 };
        assert!((times[1] - 2 * 3_660_000).abs() <= tolerance, "{by:?} {times:?}");
        assert_eq!((times[0], times[2]), (6 * 3_660_000, 6 * 3_660_000), "{by:?}");
        assert!((row.used.hours - 6.1).abs() < 1e-9);
        let waits = (by != UsageGroup::Flavor).then_some(100);
        assert_eq!((row.wait_p50_seconds, row.wait_p99_seconds), (waits, waits), "{by:?}");
        assert_eq!(report.sums.len(), 1);
        assert_eq!(report.sums[0].used, row.used);
        assert!(!report.recorded.complete && report.recorded.from == Some(time(0)));
        let text = csv::usage(&report);
        assert!(
            text.lines().nth(1).unwrap().starts_with(&format!("{group},nvidia.com/gpu,1,21960000,6.100,")),
            "{text}"
        );
    }
}

#[test]
fn a_period_cuts_runs() {
    let history = history();
    let none = BTreeMap::new();
    for by in [UsageGroup::Queue, UsageGroup::Namespace] {
        let cut = UsageQuery { from: time(160), until: time(220), ..query(by, None, &none) };
        let report = source(&history).usage(&cut, &Access::everything()).unwrap();
        assert_eq!(report.items[0].used.unit_milliseconds, (6 * 60_000).to_string(), "{by:?}");
        assert_eq!(
            (report.items[0].lost.unit_milliseconds.as_str(), report.items[0].wait_p50_seconds),
            ("0", None)
        );
        assert!(report.recorded.complete);
        let other = UsageQuery { resource: Some("cpu"), ..cut };
        assert!(source(&history).usage(&other, &Access::everything()).unwrap().items.is_empty());
    }
}

#[test]
fn nothing_is_recorded_without_a_ring() {
    let history = Ring::new(0).view();
    let none = BTreeMap::new();
    let report =
        source(&history).usage(&query(UsageGroup::Queue, None, &none), &Access::everything()).unwrap();
    assert_eq!((report.items.len(), report.recorded.from, report.recorded.complete), (0, None, false));
    let report = source(&history).preemptions(&PreemptionQuery::default(), 0, &Access::everything());
    assert_eq!((report.total, report.recorded.from), (0, None));
    assert!(lines(&source(&history), None, 10, &Access::everything()).is_empty());
}

#[test]
fn lines_are_means_and_sums() {
    let history = history();
    let all = lines(&source(&history), Some("nlp"), 2, &Access::everything());
    let line = |measure: &str| all.iter().find(|line| line.measure == measure).unwrap();
    assert_eq!(line("usage").values.len(), 2);
    let total: f64 = line("usage").values.iter().sum::<f64>() * 3_600.0;
    assert!((total - 6.0 * 3_660.0).abs() < 10.0, "{total}");
    assert_eq!((line("usage").flavor.as_str(), line("usage").resource.as_str()), ("h100", "nvidia.com/gpu"));
    let values = |measure: &str| format!("{:?}", line(measure).values);
    assert_eq!(
        (values("admissions"), values("evictions")),
        ("[1.0, 0.0]".to_owned(), "[0.0, 1.0]".to_owned())
    );
    assert_eq!(values("waitP50"), "[120.0, 0.0]");
    assert!(all.iter().any(|line| line.measure == "pending" && line.reason == "PendingEvaluation"));
    assert!(lines(&source(&history), Some("unknown"), 2, &Access::everything()).is_empty());
    let sums = lines(&source(&history), None, 2, &Access::everything());
    assert!(!sums.iter().any(|line| line.measure == "waitP50"));
}
