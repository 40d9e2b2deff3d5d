//! Workloads whose LocalQueue or ClusterQueue does not exist: they wait, and every page counts them.

use crate::fixtures::leading_core::{Core, condition, put_job_and_workload};
use serde_json::json;
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::dashboard::PendingQuery;
use sluice::dashboard::build::{namespace_page, pending_page};
use sluice::reconciler::{CoreSettings, Delta};
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::views::Source;
use sluice::visibility::workloads::workload;

fn put(core: &mut Core, name: &str, queue: &str) {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let reason = if queue == "lq" { "WaitingForQuota" } else { "Misconfigured" };
    let waits = [condition("QuotaReserved", "False", reason)];
    put_job_and_workload(core, ("ns", name, queue), (1, 0), &template, &waits);
}

/// Number of pending workloads, of those that need a change, and of rows: of all lists, of the namespace, and of its page.
fn counts(core: &mut Core) -> [(u64, u64, usize); 3] {
    core.advance_seconds(60);
    let (snapshot, source) = (core.state.snapshot(), Source::default);
    let page = |namespace: &str, access: &Access| {
        let query = PendingQuery { namespace: namespace.to_owned(), ..PendingQuery::default() };
        let page = pending_page(&snapshot, access, (&query, source())).unwrap();
        (page.total.unwrap(), page.needs_change, page.items.len())
    };
    let tenant = Access::to_namespace("ns", TenantDetail::Sums);
    let view = namespace_page(&snapshot, &tenant, ("ns", source())).unwrap();
    let rows = view.workloads.len();
    [page("", &Access::everything()), page("ns", &tenant), (view.pending, view.needs_change, rows)]
}

#[test]
fn workloads_without_a_queue_are_counted_where_they_are_listed() {
    let mut core = Core::new(CoreSettings::default());
    // A follower: nothing is decided, so that the numbers are those of the lists.
    core.feed(Delta::Leading(false));
    let dangling =
        json!({"metadata": {"name": "dangling", "namespace": "ns"}, "spec": {"clusterQueue": "gone"}});
    core.put(Kind::LocalQueue, dangling);
    put(&mut core, "a", "missing");
    put(&mut core, "b", "dangling");
    assert_eq!(counts(&mut core), [(2, 2, 2); 3]);
    // Another tenant's are not among them.
    core.put(Kind::Namespace, json!({"metadata": {"name": "other"}}));
    let other = Access::to_namespace("other", TenantDetail::Sums);
    let view = namespace_page(&core.state.snapshot(), &other, ("other", Source::default())).unwrap();
    assert_eq!((view.pending, view.needs_change), (0, 0));
    // With a queue they are in it, and counted once.
    let created =
        json!({"metadata": {"name": "missing", "namespace": "ns"}, "spec": {"clusterQueue": "gone"}});
    core.put(Kind::LocalQueue, created);
    assert_eq!(counts(&mut core), [(2, 2, 2); 3]);
    put(&mut core, "c", "lq");
    let rows = counts(&mut core).map(|(pending, _, rows)| (pending, rows));
    assert!(rows.iter().all(|(pending, rows)| usize::try_from(*pending) == Ok(*rows)), "{rows:?}");
}

/// No limit of a queue says which of its requests is the scarcest.
#[test]
fn a_job_of_a_queue_that_does_not_exist_needs_its_devices_first() {
    let mut core = Core::new(CoreSettings::default());
    let requests = json!({"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"});
    let container = json!({"name": "c", "image": "x", "resources": {"requests": requests}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    put_job_and_workload(&mut core, ("ns", "a", "missing"), (1, 0), &template, &[]);
    core.advance_seconds(60);
    let row = workload(&core.state.snapshot(), &Access::everything(), &ObjectKey::new("ns", "a")).unwrap();
    let needs: Vec<&str> = row.needs.iter().map(|need| need.resource.as_str()).collect();
    assert_eq!(needs, ["example.com/gpu", "cpu", "memory"]);
}
