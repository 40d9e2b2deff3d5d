//! What views cost with many workloads: `cargo test --locked --test it views::costs -- --ignored --nocapture` prints the figures of
//! BENCHMARKS.md. In every run: what a page has in bytes.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use crate::fixtures::leading_core::{Core, condition};
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::dashboard::build::namespace_page;
use sluice::people::views::{self, Look};
use sluice::reconciler::{CoreSettings, Delta};
use sluice::scheduler::Supposition;
use sluice::snapshot::Snapshot;
use sluice::visibility::access::Access;
use sluice::visibility::findings::{audit, examined};
use sluice::visibility::page::PageQuery;
use sluice::visibility::pending_list::{ListOrder, pending_workloads};
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::queue_views::cluster_queues;
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::verdict::verdict;
use sluice::visibility::views::{Source, WorkloadView};
use sluice::visibility::workloads::{WorkloadQuery, workloads};
use std::time::{Duration, Instant};

/// A follower with this many pending Workloads in this many queues.
fn core_with(count: usize, queues: usize) -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    let mut deltas = Vec::new();
    for number in 0..queues {
        let name = format!("q{number}");
        let spec = json!({"namespaceSelector": {}, "resourceGroups": quota});
        deltas
            .push(core.applied_delta(Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": spec})));
        let local = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": name}});
        deltas.push(core.applied_delta(Kind::LocalQueue, local));
    }
    core.feed_all(deltas);
    let mut waits = condition("QuotaReserved", "False", "WaitingForQuota");
    waits["message"] = json!(
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, request 3, limit 2 at ClusterQueue q1"
    );
    let template = json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}]}});
    let mut made = 0;
    while made < count {
        let deltas: Vec<Delta> = (made..count.min(made + 1_000))
            .map(|number| {
                core.applied_delta(
                    Kind::Workload,
                    json!({
                        "metadata": {"name": format!("job-train-{number:06}-1a2b3"), "namespace": "ns"},
                        "spec": {"queueName": format!("q{}", number % queues), "priority": number % 7, "podSets": [{"name": "main", "count": 1, "template": template}]},
                        "status": {"conditions": [waits]},
                    }),
                )
            })
            .collect();
        core.feed_all(deltas);
        made += 1_000;
    }
    core.advance_seconds(120);
    core
}

/// The fastest of some runs, and what the last one made.
fn fastest<T>(mut act: impl FnMut() -> T) -> (Duration, T) {
    let mut best: Option<(Duration, T)> = None;
    for _ in 0..5 {
        let began = Instant::now();
        let made = act();
        let took = began.elapsed();
        let least = best.as_ref().map_or(took, |(least, _)| took.min(*least));
        best = Some((least, made));
    }
    best.unwrap()
}

fn page(snapshot: &Snapshot, selector: &str) -> Value {
    let query = WorkloadQuery {
        selector: WorkloadSelector::parse(selector).unwrap(),
        page: PageQuery::default(),
        ..WorkloadQuery::default()
    };
    json!(workloads(snapshot, &Access::everything(), &query).unwrap().0)
}

fn question(number: usize) -> VerdictQuestion {
    VerdictQuestion {
        access: Access::everything(),
        workload: WorkloadName::parse(&format!("job-train-{number:06}-1a2b3"), "ns"),
        before: None,
        queue: None,
        priority: None,
    }
}

/// Time of a page by name, of a page of a queue, and of a verdict with the answer of the engine.
fn figures(count: usize, queues: usize) -> [Duration; 3] {
    let mut core = core_with(count, queues);
    let snapshot = core.state.snapshot();
    let (by_name, rows) = fastest(|| page(&snapshot, ""));
    let bytes = rows.to_string().len();
    let (of_queue, of_one) = fastest(|| page(&snapshot, "clusterQueue=q1,status=pending"));
    assert_eq!(
        (rows.as_array().unwrap().len(), of_one.as_array().unwrap().len()),
        (500, (count / queues).min(500))
    );
    let key = ObjectKey::new("ns", &format!("job-train-{:06}-1a2b3", count / 2));
    let (why, explained) = fastest(|| {
        let explanation = core.state.engine_mut().explain(&key, &Supposition::default(), &mut || true);
        verdict(&snapshot, &question(count / 2), explanation.as_ref()).unwrap()
    });
    assert!(!explained.blockers.is_empty());
    let (lists, _) =
        fastest(|| cluster_queues(&snapshot, &Access::everything(), &PageQuery::default()).unwrap());
    let began = Instant::now();
    let facts = core.state.audit_facts();
    let in_core = began.elapsed();
    let (audited, findings) =
        fastest(|| audit((&snapshot, Some(&facts)), &Access::everything(), (None, core.now)).unwrap());
    println!(
        "{count} workloads, {queues} queues: page of 500 {by_name:?} ({bytes} B), of a queue {of_queue:?}, why {why:?}, \
         500 queues {lists:?}, audit {audited:?} ({in_core:?} of it in the core, {} findings)",
        findings.len()
    );
    lists_in_order(&snapshot, (count, queues));
    [by_name, of_queue, why]
}

/// Pages of pending workloads over all queues in each order, from the middle of the list where that is possible.
fn lists_in_order(snapshot: &Snapshot, (count, queues): (usize, usize)) {
    for order in ListOrder::ALL {
        let mut query = WorkloadQuery {
            selector: WorkloadSelector::parse("status=pending").unwrap(),
            page: PageQuery { limit: 50, ..PageQuery::default() },
            ..WorkloadQuery::default()
        };
        for page in ["first", "second"] {
            let (took, (rows, metadata)) =
                fastest(|| pending_workloads(snapshot, &Access::everything(), &query, order).unwrap());
            assert_eq!(rows.len(), 50);
            println!("{count} workloads, {queues} queues: {page} page of 50 by {}: {took:?}", order.as_str());
            query.page.continue_token = metadata.continue_token;
        }
    }
}

#[test]
#[ignore = "takes minutes: figures for BENCHMARKS.md"]
fn with_a_hundred_thousand_workloads() {
    let few = figures(1_000, 10);
    let many = figures(100_000, 1_000);
    for (what, few, many) in
        [("page by name", few[0], many[0]), ("page of a queue", few[1], many[1]), ("why", few[2], many[2])]
    {
        println!("{what}: {:.1} times as long", many.as_secs_f64() / few.as_secs_f64());
    }
}

/// An audit costs the groups of workloads that decisions treat alike, not the workloads: twice as many are as many groups.
#[test]
fn an_audit_examines_one_workload_of_each_group() {
    let seen = |count: usize| {
        let core = core_with(count, 5);
        let snapshot = core.state.snapshot();
        assert_eq!(snapshot.workloads.len(), count);
        let found = audit((&snapshot, None), &Access::everything(), (None, core.now)).unwrap();
        let stuck = found.iter().flat_map(|finding| &finding.workloads).map(|class| class.count);
        assert_eq!(stuck.sum::<u64>(), u64::try_from(count).unwrap(), "each is counted: {found:?}");
        examined(&snapshot)
    };
    let (few, many) = (seen(200), seen(400));
    println!("an audit examines {few} of 200 workloads, {many} of 400");
    assert_eq!((few, many), (5, 5));
}

/// A list of queues has more rows than a page of the API; what its rows share is made once for all of them.
#[test]
fn pages_have_all_queues() {
    // The fixture has a queue of each kind of its own.
    let core = core_with(1, 501);
    let (snapshot, access) = (core.state.snapshot(), Access::everything());
    let page = namespace_page(&snapshot, &access, ("ns", Source::default())).unwrap();
    assert_eq!((page.local_queues.len(), page.pending), (502, 1));
    let (queues, metadata) = cluster_queues(&snapshot, &access, &PageQuery::default()).unwrap();
    assert_eq!((queues.len(), metadata.continue_token.is_empty()), (500, false));
    let (whole, metadata) = cluster_queues(&snapshot, &access, &PageQuery::whole()).unwrap();
    assert_eq!((whole.len(), metadata.continue_token.is_empty()), (502, true));
    assert_eq!(&whole[..500], &queues[..]);
}

/// A page as `sluice list workload` reads it has the text of the whole rows, in less than half of their bytes.
#[test]
fn a_page_of_500_rows_is_small() {
    let core = core_with(500, 5);
    let snapshot = core.state.snapshot();
    let (rows, _) = workloads(&snapshot, &Access::everything(), &WorkloadQuery::default()).unwrap();
    assert_eq!(rows.len(), 500);
    let brief: Vec<WorkloadView> = rows.iter().cloned().map(WorkloadView::brief).collect();
    let bytes = |rows: &[WorkloadView]| json!(rows).to_string().len();
    let (few, all) = (bytes(&brief), bytes(&rows));
    println!("500 rows: {few} bytes, whole {all}");
    assert!(few <= 200_000 && few * 2 < all && all <= 420_000, "{few} of {all} bytes");
    let look = Look {
        utf8: true,
        color: false,
        width: Some(80),
        headings: true,
        wide: false,
        labels: false,
        csv: false,
        now: core.now,
        offset: jiff::tz::Offset::UTC,
    };
    assert_eq!(views::workloads(&brief, true, look), views::workloads(&rows, true, look));
}
