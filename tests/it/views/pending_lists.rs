//! Lists of pending workloads over all queues, in each of their orders, and the largest workloads with quota.

use crate::fixtures::leading_core::{Core, START, condition, put_job_and_workload};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::dashboard::PendingQuery;
use sluice::dashboard::build::pending_page;
use sluice::reconciler::{CoreSettings, Delta};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::page::{ModelError, PageQuery};
use sluice::visibility::pending_list::{ListOrder, pending_workloads};
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::{Source, WorkloadView};
use sluice::visibility::workloads::{WorkloadQuery, largest};

/// LocalQueues with their namespaces; the last one names no ClusterQueue that there is, and there is none of the name `missing`.
const QUEUES: [(&str, &str, &str); 5] = [
    ("ns", "lq", "cq"),
    ("ns", "b", "b"),
    ("other", "lq", "cq"),
    ("other", "b", "b"),
    ("ns", "lost", "gone"),
];

fn core() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    core.put(Kind::Namespace, json!({"metadata": {"name": "other"}}));
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    core.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "b"}, "spec": {"namespaceSelector": {}, "resourceGroups": quota}}),
    );
    for (namespace, name, queue) in QUEUES.into_iter().skip(1) {
        let spec = json!({"clusterQueue": queue});
        core.put(Kind::LocalQueue, json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec}));
    }
    core
}

/// Puts a Workload that asks for more than there is: for more CPU, the longer its name is.
fn put(core: &mut Core, (namespace, name, queue): (&str, &str, &str), priority: i32) {
    let cpu = (2 + name.len()).to_string();
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let reason = if queue == "missing" || queue == "lost" { "Misconfigured" } else { "WaitingForQuota" };
    core.put(
        Kind::Workload,
        json!({
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": core.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()},
            "spec": {"queueName": queue, "priority": priority, "podSets": [{"name": "main", "count": 1, "template": template}]},
            "status": {"conditions": [condition("QuotaReserved", "False", reason)]},
        }),
    );
}

/// All rows in pages of this size, and the number of rows that each page says are left.
fn all_rows(
    core: &mut Core,
    access: &Access,
    (namespace, selector): (Option<&str>, &str),
    (order, limit): (ListOrder, usize),
) -> (Vec<WorkloadView>, Vec<Option<u64>>) {
    let (mut rows, mut left, mut page) =
        (Vec::new(), Vec::new(), PageQuery { limit, ..PageQuery::default() });
    loop {
        let query = WorkloadQuery {
            namespace: namespace.map(str::to_owned),
            selector: WorkloadSelector::parse(&format!("status=pending,{selector}")).unwrap(),
            page: page.clone(),
        };
        let snapshot = core.state.snapshot();
        let (found, metadata) = pending_workloads(&snapshot, access, &query, order).unwrap();
        assert!(found.len() <= limit);
        rows.extend(found);
        left.push(metadata.remaining_item_count);
        page.continue_token = metadata.continue_token;
        if page.continue_token.is_empty() {
            return (rows, left);
        }
    }
}

fn name(row: &WorkloadView) -> String {
    format!("{}/{}", row.metadata.namespace, row.metadata.name)
}

fn names(rows: &[WorkloadView]) -> Vec<String> {
    rows.iter().map(name).collect()
}

/// The rows in an order as a reader would sort them.
fn sorted(mut rows: Vec<WorkloadView>, order: ListOrder) -> Vec<WorkloadView> {
    let in_queue = |row: &WorkloadView| row.position.map(|position| position.cluster_queue);
    rows.sort_by_cached_key(|row| {
        let (without, since) = (in_queue(row).is_none(), row.since.unwrap());
        let uid = if without { String::new() } else { row.metadata.uid.clone() };
        let key = (row.metadata.namespace.clone(), row.metadata.name.clone());
        match order {
            // What is in no queue is in the order of its wait.
            ListOrder::Position | ListOrder::Priority if without => {
                (true, String::new(), 0, 0, since, String::new(), key)
            }
            ListOrder::Position => {
                let at = in_queue(row).unwrap_or_default();
                (false, row.cluster_queue.clone(), at, 0, START_TIME, String::new(), key)
            }
            ListOrder::Priority => (false, String::new(), 0, -row.priority, since, uid, key),
            ListOrder::Wait => (false, String::new(), 0, 0, since, String::new(), key),
            ListOrder::Size => {
                let cpu = row.needs[0].amount.value.parse::<i64>().unwrap();
                (false, String::new(), 0, -cpu, START_TIME, String::new(), key)
            }
        }
    });
    rows
}

const START_TIME: Timestamp = Timestamp::UNIX_EPOCH;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Pages of any size, each from another replica, hold each row once in the order that was asked for, whatever selects.
    #[test]
    fn pages_hold_each_row_once_in_each_order(
        all in prop::collection::btree_map("[a-f]{1,3}", (0_usize..6, -1_i32..2, 0_i64..3), 0..30),
        limit in 1_usize..9,
    ) {
        let mut core = core();
        for (name, (queue, priority, later)) in &all {
            let (namespace, queue, _) = QUEUES.get(*queue).copied().unwrap_or(("other", "missing", ""));
            core.now = Timestamp::from_second(START + *later).unwrap();
            put(&mut core, (namespace, name, queue), *priority);
        }
        core.now = Timestamp::from_second(START + 120).unwrap();
        core.feed(Delta::Tick);
        let everything = Access::everything();
        for order in ListOrder::ALL {
            let (rows, left) = all_rows(&mut core, &everything, (None, ""), (order, limit));
            prop_assert_eq!(rows.len(), all.len());
            prop_assert_eq!(names(&rows), names(&sorted(rows.clone(), order)), "{:?}", order);
            if matches!(order, ListOrder::Position | ListOrder::Size) {
                for (page, left) in left.iter().enumerate() {
                    let expected = all.len().saturating_sub((page + 1) * limit);
                    prop_assert!(left.is_none_or(|left| left == u64::try_from(expected).unwrap()), "{left:?}");
                }
            }
            for (namespace, selector) in [
                (Some("ns"), ""), (Some("other"), "clusterQueue=cq"), (None, "clusterQueue=b"), (Some("ns"), "localQueue=lq"),
                (None, "reason=Misconfigured"),
            ] {
                let (part, _) = all_rows(&mut core, &everything, (namespace, selector), (order, limit));
                let value = selector.split_once('=').map_or("", |(_, value)| value);
                let is_meant = |row: &&WorkloadView| {
                    namespace.is_none_or(|namespace| row.metadata.namespace == namespace)
                        && match selector.split_once('=').map(|(field, _)| field) {
                            Some("clusterQueue") => row.cluster_queue == value,
                            Some("localQueue") => row.local_queue == value,
                            Some("reason") => row.reason == value,
                            _ => true,
                        }
                };
                let expected: Vec<String> = rows.iter().filter(is_meant).map(name).collect();
                prop_assert_eq!(names(&part), expected, "{:?} {:?} {}", order, namespace, selector);
            }
            let tenant = Access::to_namespace("ns", TenantDetail::Sums);
            let (own, _) = all_rows(&mut core, &tenant, (None, ""), (order, limit));
            let expected: Vec<String> = rows.iter().filter(|row| row.metadata.namespace == "ns").map(name).collect();
            prop_assert_eq!(names(&own), expected, "{:?} of a tenant", order);
        }
    }

    /// A page goes on after a row that is gone, also if its queue is.
    #[test]
    fn a_page_goes_on_after_a_row_that_is_gone(last in 1_usize..6, order in 0_usize..4) {
        let order = ListOrder::ALL[order];
        let mut core = core();
        for (index, name) in ["a", "b", "c", "d", "e", "f"].into_iter().enumerate() {
            let (namespace, queue, _) = QUEUES[index % 3];
            core.now = Timestamp::from_second(START + i64::try_from(index % 2).unwrap()).unwrap();
            put(&mut core, (namespace, name, queue), i32::try_from(index % 2).unwrap());
        }
        let everything = Access::everything();
        let (before, _) = all_rows(&mut core, &everything, (None, ""), (order, 500));
        let mut query = WorkloadQuery {
            selector: WorkloadSelector::parse("status=pending").unwrap(),
            page: PageQuery { limit: last, ..PageQuery::default() },
            ..WorkloadQuery::default()
        };
        let (_, metadata) = pending_workloads(&core.state.snapshot(), &everything, &query, order).unwrap();
        let gone = &before[last - 1].metadata;
        let key = ObjectKey::new(&gone.namespace, &gone.name);
        core.feed(Delta::Deleted { kind: Kind::Workload, key, uid: gone.uid.as_str().into() });
        query.page = PageQuery { limit: 500, continue_token: metadata.continue_token };
        let (rest, _) = pending_workloads(&core.state.snapshot(), &everything, &query, order).unwrap();
        prop_assert_eq!(names(&rest), names(&before[last..]));
        let other = if order == ListOrder::Wait { ListOrder::Position } else { ListOrder::Wait };
        prop_assert!(pending_workloads(&core.state.snapshot(), &everything, &query, other).is_err(), "a token of another order");
    }
}

/// In each order a cohort selects what its ClusterQueues have, and the counts are those of the rows. Users of a namespace do not
/// learn whether there is such a cohort.
#[test]
fn a_cohort_selects_the_workloads_of_its_cluster_queues() {
    let mut core = core();
    let spec = json!({"namespaceSelector": {}, "cohortName": "below"});
    core.put(Kind::ClusterQueue, json!({"metadata": {"name": "b"}, "spec": spec}));
    core.put(Kind::Cohort, json!({"metadata": {"name": "below"}, "spec": {"parentName": "above"}}));
    for (namespace, name, queue) in
        [("ns", "a", "lq"), ("ns", "bb", "b"), ("other", "ccc", "b"), ("ns", "d", "missing")]
    {
        put(&mut core, (namespace, name, queue), 0);
    }
    core.advance_seconds(60);
    let snapshot = core.state.snapshot();
    let page = |access: &Access, cohort: &str, namespace: &str, sort: &str| {
        let query = PendingQuery {
            cohort: cohort.to_owned(),
            namespace: namespace.to_owned(),
            sort: sort.to_owned(),
            ..PendingQuery::default()
        };
        pending_page(&snapshot, access, (&query, Source::default()))
    };
    let everything = Access::everything();
    for order in ListOrder::ALL {
        for (cohort, namespace, expected) in [
            ("below", "", &["ns/bb", "other/ccc"][..]),
            ("above", "", &["ns/bb", "other/ccc"]),
            ("below", "ns", &["ns/bb"]),
        ] {
            let page = page(&everything, cohort, namespace, order.as_str()).unwrap();
            let mut rows = names(&page.items);
            rows.sort();
            assert_eq!(rows, expected, "{cohort} {namespace} {}", order.as_str());
            assert_eq!(page.total, Some(u64::try_from(expected.len()).unwrap()), "{cohort} {namespace}");
        }
    }
    assert_eq!(page(&everything, "none", "", ""), Err(ModelError::NotFound));
    let tenant = Access::to_namespace("ns", TenantDetail::Sums);
    for cohort in ["below", "none"] {
        assert_eq!(page(&tenant, cohort, "ns", ""), Err(ModelError::NotFound));
    }
    let own = page(&tenant, "", "ns", "").unwrap();
    assert_eq!((own.local_queues, own.cohorts), (vec!["b".to_owned(), "lost".into(), "lq".into()], vec![]));
}

#[test]
fn reasons_have_their_oldest_workload() {
    let mut core = core();
    for (later, name, queue) in [(5, "a", "lq"), (2, "b", "b"), (3, "c", "missing")] {
        core.now = Timestamp::from_second(START + later).unwrap();
        put(&mut core, ("ns", name, queue), 0);
    }
    let oldest = |core: &mut Core| -> Vec<(String, i64)> {
        let page = sluice::dashboard::build::overview(
            &core.state.snapshot(),
            &Access::everything(),
            (&sluice::dashboard::OverviewQuery::default(), sluice::visibility::views::Source::default()),
            &[],
        );
        let oldest = page.unwrap().numbers.oldest;
        oldest.into_iter().map(|(reason, time)| (reason, time.as_second() - START)).collect()
    };
    let at = |reason: &str, later: i64| (reason.to_owned(), later);
    assert_eq!(oldest(&mut core), [at("Misconfigured", 3), at("WaitingForQuota", 2)]);
    let key = ObjectKey::new("ns", "b");
    let uid = core.state.snapshot();
    let (rows, _) = pending_workloads(
        &uid,
        &Access::everything(),
        &WorkloadQuery {
            selector: WorkloadSelector::parse("status=pending,metadata.name=b").unwrap(),
            ..WorkloadQuery::default()
        },
        ListOrder::Wait,
    )
    .unwrap();
    let uid = rows[0].metadata.uid.as_str().into();
    core.feed(Delta::Deleted { kind: Kind::Workload, key, uid });
    assert_eq!(oldest(&mut core), [at("Misconfigured", 3), at("WaitingForQuota", 5)]);
}

#[test]
fn the_largest_workloads_with_quota_come_first() {
    let mut core = core();
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    let reserved = [condition("QuotaReserved", "True", "QuotaReserved")];
    for (namespace, name, pods) in [("ns", "a", 1), ("other", "b", 3), ("ns", "c", 2), ("ns", "d", 1)] {
        put_job_and_workload(&mut core, (namespace, name, "lq"), (pods, 0), &template, &reserved);
    }
    put(&mut core, ("ns", "waits", "lq"), 0);
    core.now = Timestamp::from_second(START + 120).unwrap();
    core.feed(Delta::Tick);
    let shown = |core: &mut Core, access: &Access| names(&largest(&core.state.snapshot(), access, "cq", 3));
    assert_eq!(shown(&mut core, &Access::everything()), ["other/b", "ns/c", "ns/a"]);
    assert_eq!(shown(&mut core, &Access::to_namespace("other", TenantDetail::Sums)), ["other/b"]);
    let finished =
        [condition("QuotaReserved", "True", "QuotaReserved"), condition("Finished", "True", "Succeeded")];
    put_job_and_workload(&mut core, ("other", "b", "lq"), (3, 0), &template, &finished);
    assert_eq!(shown(&mut core, &Access::everything()), ["ns/c", "ns/a", "ns/d"]);
    assert!(largest(&core.state.snapshot(), &Access::everything(), "b", 3).is_empty());
}

#[test]
fn orders_are_read_by_their_words() {
    for order in ListOrder::ALL {
        assert_eq!(ListOrder::parse(order.as_str()), Ok(order));
    }
    assert_eq!(ListOrder::parse(""), Ok(ListOrder::Position));
    assert_eq!(
        ListOrder::parse("name").unwrap_err(),
        "unknown order \"name\": use one of position, priority, wait, size"
    );
}
