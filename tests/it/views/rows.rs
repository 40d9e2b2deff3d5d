//! Views of users, from what a core publishes: rows of workloads with positions and blockers, pages in both orders, and queues.

use crate::fixtures::leading_core;
use crate::fixtures::leading_core::{Core, condition, put_job_and_workload};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::reconciler::{CoreSettings, Delta};
use sluice::scheduler::FairStrategy;
use sluice::snapshot::Snapshot;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::page::{ModelError, PageQuery};
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::queue_views;
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::views::{BlockerKindView, WorkloadState, WorkloadView};
use sluice::visibility::workloads::{WorkloadQuery, with_rows_left, workload, workloads};

/// A follower, so that nothing is decided, with LocalQueues of two namespaces and one ClusterQueue.
fn core() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    core.put(Kind::Namespace, json!({"metadata": {"name": "other"}}));
    for (namespace, name) in [("ns", "second"), ("other", "lq")] {
        let queue =
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": "cq"}});
        core.put(Kind::LocalQueue, queue);
    }
    // The view of the queues is published at intervals.
    core.advance_seconds(60);
    core
}

fn put(core: &mut Core, (namespace, name, queue): (&str, &str, &str), priority: i32, conditions: &[Value]) {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1500m"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    put_job_and_workload(core, (namespace, name, queue), (2, priority), &template, conditions);
}

fn query(namespace: Option<&str>, selector: &str, page: PageQuery) -> WorkloadQuery {
    let selector = WorkloadSelector::parse(selector).unwrap();
    WorkloadQuery { namespace: namespace.map(str::to_owned), selector, page }
}

/// All rows, in pages of this size; each page by another replica.
fn all_rows(
    core: &mut Core,
    access: &Access,
    (namespace, selector): (Option<&str>, &str),
    limit: usize,
) -> Vec<WorkloadView> {
    let (mut rows, mut token) = (Vec::new(), String::new());
    loop {
        let page = PageQuery { limit, continue_token: token };
        let snapshot = core.state.snapshot();
        let (found, metadata) = workloads(&snapshot, access, &query(namespace, selector, page)).unwrap();
        assert!(found.len() <= limit);
        rows.extend(found);
        token = metadata.continue_token;
        if token.is_empty() {
            return rows;
        }
    }
}

fn names(rows: &[WorkloadView]) -> Vec<String> {
    rows.iter().map(|row| format!("{}/{}", row.metadata.namespace, row.metadata.name)).collect()
}

#[test]
fn a_row_says_what_a_workload_waits_for() {
    let mut core = core();
    let mut pending = condition("QuotaReserved", "False", "WaitingForQuota");
    pending["message"] = json!(
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, request 3, limit 2 at ClusterQueue cq"
    );
    put(&mut core, ("ns", "a", "lq"), 7, &[pending]);
    put(&mut core, ("other", "b", "lq"), 9, &[]);
    let snapshot = core.state.snapshot();
    let row = workload(&snapshot, &Access::everything(), &ObjectKey::new("ns", "a")).unwrap();
    let amount = |value: &str, number: Value| json!({"value": value, "number": number});
    assert_eq!(
        json!(row),
        json!({
            "metadata": {"namespace": "ns", "name": "a", "uid": "workloads-a", "creationTimestamp": "2027-01-15T07:59:57Z"},
            "job": {"apiVersion": "batch/v1", "kind": "Job", "name": "j-a", "uid": "jobs-j-a"},
            "state": "Pending", "localQueue": "lq", "clusterQueue": "cq", "priority": 7, "boost": 0,
            "since": "2027-01-15T07:59:57Z",
            "position": {"clusterQueue": 2, "localQueue": 1, "of": 2, "ofLocalQueue": 1},
            "needs": [{"resource": "cpu", "amount": amount("3", json!(3))}],
            "reason": "WaitingForQuota", "message": row.message,
            "firstBlocker": {
                "kind": "inUse", "flavor": "f", "resource": "cpu", "node": "ClusterQueue/cq",
                "requested": amount("3", json!(3)), "available": amount("2", json!(2)),
                "limit": amount("2", json!(2)), "missing": amount("1", json!(1)),
                "text": "insufficient unused quota for cpu in flavor f, request 3, limit 2 at ClusterQueue cq",
            },
        })
    );
    // Without a condition it was not evaluated yet.
    let row = workload(&snapshot, &Access::everything(), &ObjectKey::new("other", "b")).unwrap();
    assert_eq!((&*row.reason, row.first_blocker), ("PendingEvaluation", None));
    // A tenant without sums is not shown the limit of the queue.
    let tenant = Access::to_namespace("ns", TenantDetail::None);
    let blocker = workload(&snapshot, &tenant, &ObjectKey::new("ns", "a")).unwrap().first_blocker.unwrap();
    assert_eq!((blocker.kind, blocker.limit), (BlockerKindView::InUse, None));
    assert_eq!(workload(&snapshot, &tenant, &ObjectKey::new("other", "b")), Err(ModelError::NotFound));
}

#[test]
fn states_follow_the_conditions() {
    let mut core = core();
    let reserved = || condition("QuotaReserved", "True", "QuotaReserved");
    let admitted = || condition("Admitted", "True", "Admitted");
    let finished = condition("Finished", "True", "Succeeded");
    put(&mut core, ("ns", "reserved", "lq"), 0, &[reserved()]);
    put(&mut core, ("ns", "admitted", "lq"), 0, &[reserved(), admitted()]);
    put(
        &mut core,
        ("ns", "evicted", "lq"),
        0,
        &[reserved(), admitted(), condition("Evicted", "True", "Preempted")],
    );
    put(&mut core, ("ns", "finished", "lq"), 0, &[reserved(), admitted(), finished]);
    put(&mut core, ("ns", "lost", "nothing"), 0, &[]);
    let rows = all_rows(&mut core, &Access::everything(), (Some("ns"), "status=all"), 2);
    let states: Vec<(&str, WorkloadState, &str)> =
        rows.iter().map(|row| (&*row.metadata.name, row.state, &*row.reason)).collect();
    assert_eq!(
        states,
        [
            ("admitted", WorkloadState::Admitted, "Admitted"),
            ("evicted", WorkloadState::Evicted, "Preempted"),
            ("finished", WorkloadState::Finished, "Succeeded"),
            ("lost", WorkloadState::Pending, "PendingEvaluation"),
            ("reserved", WorkloadState::QuotaReserved, "QuotaReserved"),
        ]
    );
    let unfinished = all_rows(&mut core, &Access::everything(), (None, ""), 500);
    assert_eq!(unfinished.len(), 4);
    let lost = unfinished.iter().find(|row| row.metadata.name == "lost").unwrap();
    assert_eq!((&*lost.cluster_queue, lost.position), ("", None));
}

#[test]
fn nothing_is_answered_before_the_lists() {
    let snapshot = Snapshot::default();
    let everything = Access::everything();
    let key = ObjectKey::new("a", "b");
    assert_eq!(workload(&snapshot, &everything, &key), Err(ModelError::NotSynced));
    assert_eq!(workloads(&snapshot, &everything, &WorkloadQuery::default()), Err(ModelError::NotSynced));
    let page = PageQuery::default();
    assert_eq!(queue_views::cluster_queues(&snapshot, &everything, &page), Err(ModelError::NotSynced));
    assert_eq!(queue_views::local_queue(&snapshot, &everything, &key), Err(ModelError::NotSynced));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Pages of any size hold each row once, in the order of the queue or of names, and positions count it.
    #[test]
    fn pages_hold_each_row_once(
        all in prop::collection::btree_map("[a-f]{1,3}", (0_usize..3, -1_i32..2), 0..30),
        limit in 1_usize..9,
    ) {
        let mut core = core();
        let queues = [("ns", "lq"), ("ns", "second"), ("other", "lq")];
        for (name, (queue, priority)) in &all {
            let (namespace, queue) = queues[*queue];
            put(&mut core, (namespace, name, queue), *priority, &[]);
        }
        let everything = Access::everything();
        let rows = all_rows(&mut core, &everything, (None, "clusterQueue=cq,status=pending"), limit);
        let positions: Vec<u64> = rows.iter().map(|row| row.position.unwrap().cluster_queue).collect();
        prop_assert_eq!(positions, (1..=u64::try_from(all.len()).unwrap()).collect::<Vec<_>>());
        for (namespace, queue) in queues {
            let selector = format!("localQueue={queue},status=pending");
            let of_queue = all_rows(&mut core, &everything, (Some(namespace), &selector), limit);
            let expected: Vec<&WorkloadView> = rows
                .iter()
                .filter(|row| row.metadata.namespace == namespace && row.local_queue == queue)
                .collect();
            prop_assert_eq!(of_queue.iter().collect::<Vec<_>>(), expected);
            let local: Vec<u64> = of_queue.iter().map(|row| row.position.unwrap().local_queue).collect();
            prop_assert_eq!(local, (1..=u64::try_from(of_queue.len()).unwrap()).collect::<Vec<_>>());
        }
        let tenant = Access::to_namespace("ns", TenantDetail::Sums);
        let of_tenant = all_rows(&mut core, &tenant, (Some("ns"), "clusterQueue=cq,status=pending"), limit);
        let expected: Vec<WorkloadView> =
            rows.iter().filter(|row| row.metadata.namespace == "ns").cloned().collect();
        prop_assert_eq!(&of_tenant, &expected);
        let by_name = names(&all_rows(&mut core, &everything, (None, ""), limit));
        let mut sorted = names(&rows);
        sorted.sort();
        prop_assert_eq!(by_name, sorted);
        prop_assert_eq!(all_rows(&mut core, &tenant, (None, ""), limit).len(), of_tenant.len());
        // Counted, the rows behind a page are the ones that the next pages have, whatever the order.
        for (access, namespace, selector) in [
            (&everything, None, ""),
            (&everything, None, "priority=1"),
            (&everything, None, "clusterQueue=cq,status=pending,priority=1"),
            (&everything, Some("ns"), "localQueue=second,status=pending"),
            (&tenant, None, ""),
            (&tenant, Some("ns"), "clusterQueue=cq,status=pending"),
        ] {
            let whole = all_rows(&mut core, access, (namespace, selector), limit).len();
            let asked = query(namespace, selector, PageQuery { limit, ..PageQuery::default() });
            let snapshot = core.state.snapshot();
            let (first, metadata) = workloads(&snapshot, access, &asked).unwrap();
            let counted = with_rows_left(&snapshot, access, &asked, metadata);
            let left = u64::try_from(whole - first.len()).unwrap();
            prop_assert_eq!(counted.remaining_item_count.unwrap_or_default(), left, "{}", selector);
        }
    }

    /// A page goes on after a row that is gone, and no other row is lost.
    #[test]
    fn a_page_goes_on_after_a_row_that_is_gone(
        names in prop::collection::btree_set("[a-f]{1,3}", 6..20),
        removed in 0_usize..6,
        in_order in any::<bool>(),
    ) {
        let mut core = core();
        for (index, name) in names.iter().enumerate() {
            put(&mut core, ("ns", name, "lq"), i32::try_from(index % 3).unwrap(), &[]);
        }
        let everything = Access::everything();
        let selector = if in_order { "clusterQueue=cq,status=pending" } else { "" };
        let before: Vec<WorkloadView> = all_rows(&mut core, &everything, (None, selector), 500);
        let page = PageQuery { limit: 3, ..PageQuery::default() };
        let (first, metadata) = workloads(&core.state.snapshot(), &everything, &query(None, selector, page)).unwrap();
        let remaining = in_order.then(|| u64::try_from(names.len() - 3).unwrap());
        prop_assert_eq!(metadata.remaining_item_count, remaining);
        let gone = &before[removed].metadata;
        let key = ObjectKey::new("ns", &gone.name);
        core.feed(Delta::Deleted { kind: Kind::Workload, key, uid: gone.uid.as_str().into() });
        let page = PageQuery { limit: 500, continue_token: metadata.continue_token };
        let (rest, _) = workloads(&core.state.snapshot(), &everything, &query(None, selector, page)).unwrap();
        let mut seen: Vec<String> = first.iter().chain(&rest).map(|row| row.metadata.name.clone()).collect();
        let expected: Vec<String> = before
            .iter()
            .map(|row| row.metadata.name.clone())
            .filter(|name| removed < 3 || *name != gone.name)
            .collect();
        prop_assert_eq!(&seen, &expected);
        seen.dedup();
        prop_assert_eq!(seen.len(), expected.len());
    }
}

#[test]
fn queues_have_quota_counts_and_reasons() {
    let mut core = core();
    put(&mut core, ("ns", "a", "lq"), 0, &[condition("QuotaReserved", "False", "WaitingForQuota")]);
    core.put(Kind::Cohort, json!({"metadata": {"name": "org"}, "spec": {}}));
    core.now = Timestamp::from_second(leading_core::START + 120).unwrap();
    core.feed(Delta::Leading(true));
    core.feed(Delta::Tick);
    let (snapshot, everything) = (core.state.snapshot(), Access::everything());
    let queue = queue_views::cluster_queue(&snapshot, &everything, "cq").unwrap();
    let amount = |value: &str, number: i64| json!({"value": value, "number": number});
    let quota = json!([{
        "flavor": "f", "resource": "cpu", "nominal": amount("2", 2), "used": amount("0", 0), "borrowed": amount("0", 0),
        "lent": amount("0", 0), "limit": amount("2", 2), "available": amount("2", 2),
    }]);
    assert_eq!(json!(queue.quota), quota);
    assert_eq!((&*queue.metadata.uid, &*queue.cohort, queue.active), ("clusterqueues-cq", "team", true));
    assert_eq!((queue.pending.total, &*queue.queueing_strategy), (1, "BestEffortFIFO"));
    let (cohorts, _) = queue_views::cohorts(&snapshot, &everything, &PageQuery::default()).unwrap();
    let shown: Vec<Value> = cohorts
        .iter()
        .map(|c| json!([c.metadata.name, c.parent, c.cohorts, c.cluster_queues, c.pending, c.cycle]))
        .collect();
    assert_eq!(
        shown,
        [json!(["org", "", ["team"], [], 1, false]), json!(["team", "org", [], ["cq"], 1, false])]
    );
    // A tenant sees no queue of the cluster, and of its own what it may use.
    let tenant = |detail| Access::to_namespace("ns", detail);
    let sums = tenant(TenantDetail::Sums);
    assert_eq!(queue_views::cluster_queue(&snapshot, &sums, "cq"), Err(ModelError::NotFound));
    assert_eq!(queue_views::cohorts(&snapshot, &sums, &PageQuery::default()), Err(ModelError::NotFound));
    let key = ObjectKey::new("ns", "lq");
    let local = queue_views::local_queue(&snapshot, &sums, &key).unwrap();
    assert_eq!(json!(local.quota[0].shared), quota[0]);
    let local = queue_views::local_queue(&snapshot, &tenant(TenantDetail::None), &key).unwrap();
    let own =
        json!([{"flavor": "f", "resource": "cpu", "used": amount("0", 0), "available": amount("2", 2)}]);
    assert_eq!((json!(local.quota), local.pending.total), (own, 1));
    let all = queue_views::local_queues(&snapshot, &sums, (None, &PageQuery::default())).unwrap();
    let named = queue_views::local_queues_of(&snapshot, &sums, &["ns", "none"]).unwrap();
    assert_eq!(json!(named), json!(all.0));
    let names: Vec<&str> = all.0.iter().map(|queue| &*queue.metadata.name).collect();
    assert_eq!(names, ["lq", "second"]);
    let page = PageQuery { limit: 1, continue_token: String::new() };
    let (first, metadata) = queue_views::local_queues(&snapshot, &sums, (Some("ns"), &page)).unwrap();
    let page = PageQuery { limit: 1, continue_token: metadata.continue_token };
    let (second, metadata) = queue_views::local_queues(&snapshot, &sums, (Some("ns"), &page)).unwrap();
    assert_eq!((&*first[0].metadata.name, &*second[0].metadata.name), ("lq", "second"));
    assert_eq!(metadata.continue_token, "");
}

#[test]
fn a_cycle_of_cohorts_ends_the_answer() {
    let mut core = core();
    core.put(Kind::Cohort, json!({"metadata": {"name": "org"}, "spec": {"parentName": "team"}}));
    core.now = Timestamp::from_second(leading_core::START + 120).unwrap();
    core.feed(Delta::Tick);
    let (snapshot, everything) = (core.state.snapshot(), Access::everything());
    let cohort = queue_views::cohort(&snapshot, &everything, "org").unwrap();
    assert!(cohort.cycle);
    let queue = queue_views::cluster_queue(&snapshot, &everything, "cq").unwrap();
    assert!(!queue.active && !queue.message.is_empty(), "{queue:?}");
    assert_eq!(queue.quota[0].available.value, "0");
}

/// Siblings have places among those that have heads, the smallest share first; and an admitted workload says who may preempt it.
#[test]
fn heads_have_places_by_share() {
    let mut settings = CoreSettings::default();
    settings.engine.fair_sharing = Some(vec![FairStrategy::LessThanOrEqualToFinalShare]);
    let mut core = Core::new(settings);
    core.feed(Delta::Leading(false));
    let quota = |cpu: &str| json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]);
    let queue = |core: &mut Core, name: &str, cpu: &str, preemption: Value| {
        core.put(
            Kind::ClusterQueue,
            json!({"metadata": {"name": name}, "spec": {"namespaceSelector": {}, "cohortName": "team",
            "preemption": preemption, "resourceGroups": quota(cpu)}}),
        );
        core.put(Kind::LocalQueue, json!({"metadata": {"name": format!("to-{name}"), "namespace": "ns"}, "spec": {"clusterQueue": name}}));
    };
    queue(&mut core, "owner", "6", json!({"reclaimWithinCohort": "Any"}));
    queue(
        &mut core,
        "lower",
        "0",
        json!({"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5}}),
    );
    queue(&mut core, "idle", "0", json!({}));
    // The queue of the fixture uses 4 of its 2 CPUs.
    for name in ["a", "b", "c", "d"] {
        let reserved =
            [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")];
        put_job_and_workload(&mut core, ("ns", name, "lq"), (1, 7), &template(), &reserved);
    }
    for (name, queue) in [("e", "lq"), ("f", "to-owner"), ("g", "to-lower")] {
        put_job_and_workload(
            &mut core,
            ("ns", name, queue),
            (1, if name == "g" { 3 } else { 0 }),
            &template(),
            &[],
        );
    }
    core.advance_seconds(120);
    let (snapshot, everything) = (core.state.snapshot(), Access::everything());
    let place =
        |name: &str| queue_views::cluster_queue(&snapshot, &everything, name).unwrap().share.unwrap().next;
    // Of equal shares the head with the higher priority is first.
    assert_eq!(
        [place("lower"), place("owner"), place("cq"), place("idle")],
        [Some(1), Some(2), Some(3), None]
    );
    assert_eq!(
        preemptible_by(&snapshot, &everything, "a"),
        [
            "a workload of ClusterQueue owner",
            "a workload of ClusterQueue lower with a priority above 7",
            "under fair sharing, only to reclaim its nominal quota, or of a ClusterQueue or cohort with a smaller share",
        ]
    );
    let tenant = preemptible_by(&snapshot, &Access::to_namespace("ns", TenantDetail::Sums), "a");
    assert_eq!(tenant[0], "a workload of another ClusterQueue");
    assert!(!tenant.concat().contains("owner") && !tenant.concat().contains("lower with"), "{tenant:?}");
}

/// Returns what the verdict on a workload says of its preemptors.
fn preemptible_by(snapshot: &Snapshot, access: &Access, name: &str) -> Vec<String> {
    let question = VerdictQuestion {
        access: access.clone(),
        workload: WorkloadName::parse(name, "ns"),
        before: None,
        queue: None,
        priority: None,
    };
    let found = sluice::visibility::verdict::verdict(snapshot, &question, None).unwrap();
    found.admission.unwrap().preemptible_by
}

/// Without fair sharing a sentence says for which quota a ClusterQueue preempts; one that can have none of it by preemption has no
/// sentence.
#[test]
fn preemptors_are_named_with_their_quota() {
    let mut core = core();
    core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "g"}, "spec": {}}));
    let groups = |flavor: &str, cpu: &str| json!([{"coveredResources": ["cpu"], "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}]);
    let cohort = json!({"metadata": {"name": "unit"}, "spec": {"parentName": "team", "resourceGroups": groups("f", "3")}});
    core.put(Kind::Cohort, cohort);
    let any = json!({"reclaimWithinCohort": "Any"});
    let borrows = |most: i32| json!({"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": most}});
    let within = json!({"withinClusterQueue": "LowerOrNewerEqualPriority"});
    for (name, cohort, groups, preemption) in [
        ("cq", "team", groups("f", "2"), &within),
        ("guest", "team", groups("f", "0"), &any),
        ("deep", "unit", groups("f", "0"), &any),
        ("elsewhere", "org", groups("g", "4"), &any),
        ("low", "team", groups("f", "0"), &borrows(6)),
        ("lower", "team", groups("f", "0"), &borrows(7)),
        ("owner", "team", groups("f", "1"), &any),
        ("other", "team", groups("f", "1"), &borrows(0)),
        ("stopped", "team", groups("f", "1"), &any),
    ] {
        let stop = if name == "stopped" { "Hold" } else { "None" };
        core.put(
            Kind::ClusterQueue,
            json!({"metadata": {"name": name}, "spec": {"namespaceSelector": {}, "cohortName": cohort, "stopPolicy": stop,
            "preemption": preemption, "resourceGroups": groups}}),
        );
    }
    for name in ["a", "b", "c", "d"] {
        let reserved =
            [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")];
        put_job_and_workload(&mut core, ("ns", name, "lq"), (1, 7), &template(), &reserved);
    }
    core.advance_seconds(120);
    assert_eq!(
        preemptible_by(&core.state.snapshot(), &Access::everything(), "a"),
        [
            "a workload of ClusterQueue cq with a priority above 7, or of the same and older",
            "a workload of ClusterQueue owner that reclaims its nominal quota",
            "a workload of ClusterQueue other with a priority above 7 that reclaims its nominal quota",
            "a workload of ClusterQueue deep that reclaims quota of its cohort",
            "a workload of ClusterQueue lower with a priority above 7, also to borrow",
        ]
    );
    // One that is deactivated is evicted in any case.
    core.put(
        Kind::Workload,
        json!({
            "metadata": {"name": "ends", "namespace": "ns"},
            "spec": {"active": false, "queueName": "lq", "priority": 0, "podSets": [
                {"name": "main", "count": 1, "template": template()}]},
            "status": {
                "conditions": [condition("QuotaReserved", "True", "QuotaReserved")],
                "admission": {"clusterQueue": "cq", "podSetAssignments": [
                    {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}]},
            },
        }),
    );
    assert_eq!(preemptible_by(&core.state.snapshot(), &Access::everything(), "ends"), [""; 0]);
}

fn template() -> Value {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    json!({"spec": {"restartPolicy": "Never", "containers": [container]}})
}
