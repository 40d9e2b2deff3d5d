//! Answers of a small history, for readers of the cluster and of a namespace.

use super::*;
use crate::api::ObjectKey;
use crate::api::reason::PendingReason;
use crate::cache::WorkloadObject;
use crate::cache::interned_templates::InternedTemplates;
use crate::cache::records::WorkloadRecord;
use crate::history::{OpenWait, RecordEvent, RecordKind, Ring, SeenWorkload};
use crate::resources::Amount;
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
    let mut record = WorkloadRecord::decode(&object, &mut InternedTemplates::default()).unwrap();
    record.annotations.submitter = Some(Arc::from(if &*key.name == "victim" { "ann" } else { "bob" }));
    record
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
        let cluster_queue = Arc::from(queue);
        ring.observe(&SeenWorkload { record, cluster_queue, charge, last_charge: None });
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
    let report = source(&history)
        .preemptions(&PreemptionQuery::default(), &PageQuery::default(), &Access::everything())
        .unwrap();
    let gpus =
        json!([{"flavor": "h100", "resource": "nvidia.com/gpu", "amount": {"value": "6", "number": 6}}]);
    let lost = json!([{"resource": "nvidia.com/gpu", "hours": {"unitMilliseconds": "21600000", "hours": 6.0, "text": "6.0"}}]);
    let expected = json!({
        "metadata": {}, "items": [{
            "metadata": {"namespace": "a", "name": "victim.0"}, "time": time(3_700),
            "victim": {"namespace": "a", "name": "victim", "uid": "uid-victim", "job": {"kind": "Job", "name": "victim-job"},
                "clusterQueue": "nlp", "priority": 5},
            "preemptor": {"namespace": "b", "name": "big", "clusterQueue": "rank", "priority": 5},
            "reason": "InCohortReclamation", "amounts": gpus, "ranSeconds": 3_600, "releasedSeconds": 60,
            "borrowed": true,
        }],
        "total": 1, "lost": lost,
        "byReason": [{"reason": "InCohortReclamation", "count": 1, "lost": lost}],
        "byPreemptor": [{"preemptorClusterQueue": "rank", "count": 1, "lost": lost}],
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

/// Victim and preemptor may have got other priorities since: what the first lists say is that of now.
#[test]
fn a_preemption_before_the_recording_has_no_priorities() {
    let mut ring = Ring::new(24 << 20);
    ring.set_time(time(4_000));
    let message = "Preempted to accommodate a workload (UID: uid-big, JobUID: j) due to reclamation";
    let evicted = [
        condition("QuotaReserved", false, "WaitingForQuota", message, 3_760),
        condition("Evicted", true, "Preempted", message, 3_700),
        condition("Preempted", true, "InClusterQueue", message, 3_700),
        condition("Requeued", true, "Preempted", message, 3_760),
    ];
    let workloads = [("victim", "nlp", 1, &evicted[..]), ("big", "rank", 0, &evicted[..0])];
    for (name, queue, evictions, conditions) in workloads {
        let record = &record(&ObjectKey::new("a", name), evictions, conditions);
        ring.observe(&SeenWorkload { record, cluster_queue: queue.into(), charge: None, last_charge: None });
    }
    ring.begin();
    let history = ring.view();
    let (query, page) = (PreemptionQuery::default(), PageQuery::default());
    let report = source(&history).preemptions(&query, &page, &Access::everything()).unwrap();
    let [item] = &report.items[..] else { panic!("{report:?}") };
    let preemptor = item.preemptor.as_ref().unwrap();
    assert_eq!((&*item.victim.name, &*preemptor.name, item.seeded), ("victim", "big", true));
    assert_eq!((item.victim.priority, preemptor.priority), (None, None));
    let text = csv::preemptions(&report);
    assert!(text.lines().nth(1).unwrap().contains(",a,victim,nlp,,a,big,rank,,InClusterQueue,"), "{text}");
}

#[test]
fn hours_have_the_digits_that_are_of_use() {
    for (resource, hours, expected) in [
        ("nvidia.com/gpu", 9_744.4, "9744"),
        ("nvidia.com/gpu", 0.0, "0"),
        ("cpu", 3.05, "3.0"),
        ("cpu", 99.96, "100.0"),
        ("cpu", 0.25, "0.250"),
        ("cpu", -1_234.0, "-1234"),
        ("memory", 2_147_483_648.0, "2.0Gi"),
        ("hugepages-2Mi", 0.0, "0Gi"),
    ] {
        assert_eq!(hours_text(resource, hours), expected, "{resource} {hours}");
    }
}

#[test]
fn a_tenant_sees_own_victims_and_of_others_the_queue_alone() {
    let history = history();
    let tenant = |namespace| Access::to_namespace(namespace, TenantDetail::Sums);
    let of_victim = source(&history)
        .preemptions(&PreemptionQuery::default(), &PageQuery::default(), &tenant("a"))
        .unwrap();
    assert_eq!(json!(of_victim.items[0].preemptor), json!({"clusterQueue": "rank"}));
    let text = json!(of_victim).to_string() + &csv::preemptions(&of_victim);
    assert!(!text.contains("big"), "{text}");
    let of_preemptor = source(&history)
        .preemptions(&PreemptionQuery::default(), &PageQuery::default(), &tenant("b"))
        .unwrap();
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
    assert_eq!(own.items[0].flavors[0].borrowed, HoursView::default(), "what is hidden is hidden by flavor");
    assert!(lines(&source(&history), Some("nlp"), 10, &sums).is_empty());
    assert!(lines(&source(&history), None, 10, &tenant("a")).is_empty());
}

#[test]
fn a_timeline_has_the_evictions_that_conditions_no_longer_have() {
    let history = history();
    let entry = |seconds: i64, event: &str, text: &str| crate::visibility::views::HistoryEntry {
        time: time(seconds),
        event: event.to_owned(),
        reason: String::new(),
        text: text.to_owned(),
        by: None,
    };
    let conditions = [
        entry(3_700, "Evicted", ""),
        entry(3_700, "Preempted", "preempted by a workload of ClusterQueue rank"),
        entry(9_000, "QuotaReserved", ""),
    ];
    let timeline = |conditions: &[_], access: &Access| {
        let mut entries = conditions.to_vec();
        add_evictions(&mut entries, &history, "uid-victim", access);
        entries
            .iter()
            .map(|entry| format!("{} {} {}", entry.event, entry.reason, entry.text))
            .collect::<Vec<_>>()
    };
    let preemptor = |conditions: &[_], access: &Access| {
        let mut entries = conditions.to_vec();
        add_evictions(&mut entries, &history, "uid-victim", access);
        entries.into_iter().find_map(|entry| entry.by).map(|by| (by.namespace, by.name))
    };
    let tenant = Access::to_namespace("a", TenantDetail::Sums);
    for conditions in [&conditions[..], &conditions[2..]] {
        let own = timeline(conditions, &tenant);
        assert_eq!(
            own,
            ["Preempted InCohortReclamation preempted by a workload of ClusterQueue rank", "QuotaReserved  "]
        );
        let all = timeline(conditions, &Access::everything());
        assert_eq!(all[0], "Preempted InCohortReclamation preempted by b/big");
        assert_eq!(preemptor(conditions, &tenant), None, "of another tenant");
        assert_eq!(preemptor(conditions, &Access::everything()).unwrap(), ("b".to_owned(), "big".to_owned()));
    }
    let mut other = conditions.to_vec();
    add_evictions(&mut other, &history, "uid-big", &tenant);
    assert_eq!(other, conditions, "of another workload there is nothing");
}

#[test]
fn a_timeline_has_waits_with_their_reasons() {
    let history = history();
    let entry = |seconds: i64, event: &str, reason: &str| crate::visibility::views::HistoryEntry {
        time: time(seconds),
        event: event.to_owned(),
        reason: reason.to_owned(),
        text: String::new(),
        by: None,
    };
    let timeline = |of_object: &[_], uid: &str, open: Option<&OpenWait>| {
        let mut entries = of_object.to_vec();
        add_waits(&mut entries, &history, uid, open);
        let line = |entry: &crate::visibility::views::HistoryEntry| {
            let at = entry.time.as_second() - time(0).as_second();
            format!("{at} {} {} {}", entry.event, entry.reason, entry.text).trim_end().to_owned()
        };
        entries.iter().map(line).collect::<Vec<_>>()
    };
    let waits = [entry(0, "Created", ""), entry(3_760, "Pending", "TopologyPlacementFailed")];
    let earlier = [
        "0 Created",
        "0 Pending PendingEvaluation",
        "100 QuotaReserved  after 100s",
        "3760 QuotaReleased",
        "3760 Pending TopologyPlacementFailed",
    ];
    assert_eq!(timeline(&waits, "uid-victim", None), earlier);
    let open = OpenWait {
        since: time(3_760).as_millisecond(),
        reason: PendingReason::TopologyPlacementFailed,
        reason_since: time(4_000).as_millisecond(),
        earlier: [(PendingReason::PendingEvaluation, 1_000), (PendingReason::WaitingForQuota, 239_000)]
            .into(),
    };
    let mut found = timeline(&waits, "uid-victim", Some(&open));
    assert_eq!(found.pop().unwrap(), "4000 Pending TopologyPlacementFailed now");
    assert_eq!(found.pop().unwrap(), "3760 Pending  PendingEvaluation 1s, WaitingForQuota 3m59s");
    assert_eq!(found, earlier[..4]);
    let reserved = [entry(100, "QuotaReserved", "QuotaReserved")];
    let found = timeline(&reserved, "uid-victim", None);
    assert_eq!(found[1], "100 QuotaReserved QuotaReserved after 100s", "the condition's event occurs once");
    assert_eq!(timeline(&waits, "uid-none", None), [earlier[0], earlier[4]]);
}

#[test]
fn pages_continue_after_a_row_that_every_replica_has() {
    let mut history = history();
    let first =
        Arc::clone(history.records.iter().find(|record| record.key.kind == RecordKind::Eviction).unwrap());
    for (number, at) in [(1_i64, 3_700), (2, 3_800), (3, 3_800), (4, 3_600)] {
        let mut record = (*first).clone();
        record.key.uid = Arc::from(format!("uid-{number}"));
        record.workload.key = ObjectKey::new("a", &format!("w{number}"));
        let RecordEvent::Eviction(eviction) = &mut record.event else { panic!() };
        eviction.at = time(at).as_millisecond();
        history.records.push(Arc::new(record));
    }
    let page = |history: &HistoryView, token: &str| {
        let page = PageQuery { limit: 2, continue_token: token.to_owned() };
        let report = source(history).preemptions(&PreemptionQuery::default(), &page, &Access::everything());
        let report = report.unwrap();
        let names: Vec<String> = report.items.iter().map(|item| item.victim.name.clone()).collect();
        (names.join(" "), report.metadata)
    };
    let (names, first) = page(&history, "");
    assert_eq!((names.as_str(), first.remaining_item_count), ("w2 w3", Some(3)));
    // Another replica has the rows in another order, and no longer has the last row.
    history.records.reverse();
    history.records.retain(|record| *record.key.uid != *"uid-3");
    let (names, second) = page(&history, &first.continue_token);
    assert_eq!((names.as_str(), second.remaining_item_count), ("w1 victim", Some(1)));
    let (names, third) = page(&history, &second.continue_token);
    assert_eq!((names.as_str(), third), ("w4", ListMetadata::default()));
    let wrong = PageQuery { limit: 2, continue_token: "x".to_owned() };
    let refused = source(&history).preemptions(&PreemptionQuery::default(), &wrong, &Access::everything());
    assert!(matches!(refused, Err(ModelError::Invalid(_))), "{refused:?}");
}

#[test]
fn users_get_the_history_of_what_they_submitted() {
    let history = history();
    let own = |user: &str, access: &Access| {
        let topic = OwnTopic { submitter: user.to_owned(), since: time(-3_600) };
        source(&history).own(&topic, access)
    };
    let found = own("ann", &Access::everything());
    let used: Vec<(&str, &str)> = found
        .used
        .iter()
        .map(|used| (used.resource.as_str(), used.hours.unit_milliseconds.as_str()))
        .collect();
    // Six GPUs from 100 s to 3,760 s.
    assert_eq!((found.jobs, used, found.preemption_count), (1, vec![("nvidia.com/gpu", "21960000")], 1));
    assert_eq!(found.preemptions[0].preemptor.as_ref().unwrap().name, "big");
    let tenant = |namespace| Access::to_namespace(namespace, TenantDetail::Sums);
    let found = own("ann", &tenant("a"));
    let preemptor = found.preemptions[0].preemptor.as_ref().unwrap();
    assert_eq!((found.jobs, preemptor.name.as_str(), preemptor.cluster_queue.as_str()), (1, "", "rank"));
    for (user, access) in [("ann", tenant("b")), ("bob", Access::everything()), ("eve", Access::everything())]
    {
        let found = own(user, &access);
        assert_eq!((found.jobs, found.used.len(), found.preemption_count), (0, 0, 0), "{user}");
    }
}

#[test]
fn queries_choose_preemptions() {
    let history = history();
    let number = |query: &PreemptionQuery<'_>| {
        let report =
            source(&history).preemptions(query, &PageQuery::default(), &Access::everything()).unwrap();
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
        (PreemptionQuery { preemptor_queue: Some("rank"), victim_queue: Some("nlp"), ..all.clone() }, 1),
        (PreemptionQuery { preemptor_queue: Some("nlp"), ..all.clone() }, 0),
        (PreemptionQuery { victim_queue: Some("rank"), ..all.clone() }, 0),
        (PreemptionQuery { cluster_queue: Some("nl"), ..all.clone() }, 0),
        (PreemptionQuery { namespace: Some("b"), ..all.clone() }, 0),
    ] {
        assert_eq!(number(&query), (found, query.since.is_some()), "{query:?}");
    }
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
        let [flavor] = &row.flavors[..] else { panic!("{row:?}") };
        assert_eq!(flavor.flavor, "h100", "{by:?}");
        assert_eq!(
            (&flavor.used, &flavor.borrowed, &flavor.lost),
            (&row.used, &row.borrowed, &row.lost),
            "{by:?}"
        );
        assert!(!report.recorded.complete && report.recorded.from == Some(time(0)));
        let text = csv::usage(&report);
        assert!(
            text.lines().nth(1).unwrap().starts_with(&format!("{group},nvidia.com/gpu,1,21960000,6.1,")),
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
    let report = source(&history)
        .preemptions(&PreemptionQuery::default(), &PageQuery::default(), &Access::everything())
        .unwrap();
    assert_eq!((report.total, report.recorded.from), (0, None));
    assert!(lines(&source(&history), None, 10, &Access::everything()).is_empty());
}

#[test]
fn a_day_has_its_waits_and_evictions() {
    let history = history();
    let day = super::lines::day(&source(&history), &Access::everything());
    let expected = json!({
        "from": time(0), "waitP50Seconds": 100, "waitP99Seconds": 100, "evictions": 1,
        "evictionsByReason": [{"reason": "Preempted", "count": 1}],
    });
    assert_eq!(json!(day), expected);
    let later = HistorySource { now: time(90_200), ..source(&history) };
    let day = super::lines::day(&later, &Access::everything()).unwrap();
    assert_eq!((day.from, day.evictions, day.wait_p50_seconds), (Some(time(3_800)), 0, None), "a day later");
    let tenant = Access::to_namespace("a", TenantDetail::Sums);
    assert_eq!(super::lines::day(&source(&history), &tenant), None, "sums of the cluster");
    assert_eq!(super::lines::day(&source(&Ring::new(0).view()), &Access::everything()), None);
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

/// Records in memory name the workloads of all tenants: only the recorder asks for them, as a reader of the cluster.
#[test]
fn records_in_memory_are_for_readers_of_the_cluster() {
    let history = history();
    let topic = |after| RecordTopic { since: time(3_700), after };
    let tenant = Access::to_namespace("a", TenantDetail::Sums);
    assert!(matches!(source(&history).records(&topic(None), &tenant), Err(ModelError::Invalid(_))));
    let page = source(&history).records(&topic(None), &Access::everything()).unwrap();
    // The quota of the victim was released later than it was evicted.
    let names: Vec<&str> = page.records.iter().map(|record| &*record.workload.key.name).collect();
    assert_eq!((names, page.more), (vec!["victim"], false));
    let next = page.records.last().map(|record| record.key.clone());
    assert!(source(&history).records(&topic(next), &Access::everything()).unwrap().records.is_empty());
}
