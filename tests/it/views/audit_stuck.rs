//! What the audit says of workloads that time does not admit, and what the readers of a namespace are told.

use crate::fixtures::leading_core::{Core, condition};
use crate::views::audit::{assert_found, core, node, published, queue, quota, workload};
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::dashboard::AuditQuery;
use sluice::dashboard::build::audit_page;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::findings::{Form, audit, audit_for_all};
use sluice::visibility::page::PageQuery;
use sluice::visibility::queue_views::local_queues;
use sluice::visibility::views::{Finding, Source};

/// What a reader of a namespace is told: `check object: message`.
fn told(core: &mut Core, namespace: &str) -> Vec<Finding> {
    let snapshot = published(core);
    let facts = core.state.audit_facts();
    let access = Access::to_namespace(namespace, TenantDetail::None);
    audit((&snapshot, Some(&facts)), &access, (Some(namespace), core.now)).unwrap()
}

fn lines(found: &[Finding]) -> Vec<String> {
    let line = |one: &Finding| {
        format!("{} {}/{}: {}", one.check.as_str(), one.object.kind, one.object.name, one.message)
    };
    found.iter().map(line).collect()
}

/// A topology of two hosts of 2 CPUs in one rack, and a queue of its flavor.
fn topology(core: &mut Core) {
    let levels = json!([{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]);
    core.put(Kind::Topology, json!({"metadata": {"name": "t"}, "spec": {"levels": levels}}));
    for name in ["n1", "n2"] {
        node(core, name, &json!({"pool": "tree", "rack": "r", "kubernetes.io/hostname": name}), &[]);
    }
    let spec = json!({"nodeLabels": {"pool": "tree"}, "topologyName": "t"});
    core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "tree"}, "spec": spec}));
    queue(core, "placed", &json!({"resourceGroups": quota("tree", "4")}));
}

fn placed(core: &mut Core, name: &str, pods: u32, more: &Value) {
    let mut spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    core.put(
        Kind::Workload,
        json!({"metadata": {"name": name, "namespace": "ns"}, "spec": {"queueName": "to-placed", "podSets": [{"name": "main", "count": pods,
            "topologyRequest": {"required": "kubernetes.io/hostname"}, "template": {"spec": spec}}]}}),
    );
}

#[test]
fn workloads_that_no_place_or_flavor_takes_are_found_with_their_classes() {
    let mut core = core();
    topology(&mut core);
    placed(&mut core, "many-a", 3, &json!({}));
    placed(&mut core, "many-b", 3, &json!({}));
    placed(&mut core, "typo", 1, &json!({"nodeSelector": {"pool": "treee"}}));
    placed(&mut core, "fits", 2, &json!({}));
    let snapshot = published(&mut core);
    let facts = core.state.audit_facts();
    let all = audit((&snapshot, Some(&facts)), &Access::everything(), (None, core.now)).unwrap();
    let never: Vec<&Finding> = all.iter().filter(|one| one.check.as_str() == "workload-never-fits").collect();
    let messages: Vec<&str> = never.iter().map(|one| &*one.message).collect();
    assert_eq!(
        messages,
        [
            "2 workloads: 3 pods within one kubernetes.io/hostname of tree; the largest takes 2. Within one rack it fits",
            "1 workload: no flavor of placed has pool=treee; tree?",
        ]
    );
    let classes: Vec<(&str, u64)> =
        never.iter().flat_map(|one| one.workloads.iter().map(|class| (&*class.first, class.count))).collect();
    assert_eq!(classes, [("many-a", 2), ("typo", 1)]);
    assert!(
        never[0].correction.contains("fewer pods") && never[1].correction.contains("pod template"),
        "{never:?}"
    );
    assert!(all.iter().all(|one| !one.consequence.contains("can be admitted")), "{all:?}");
}

#[test]
fn pods_that_no_node_or_no_quota_takes_are_found() {
    assert_found(
        "a pod larger than every node",
        |core| {
            queue(core, "wide", &json!({"resourceGroups": quota("f", "62")}));
            workload(core, ("a", "to-wide"), &json!({"cpu": "9"}), &[]);
        },
        &[
            "quota-exceeds-capacity ResourceFlavor/f: 64 cpu of quota, 2 on schedulable nodes",
            "request-exceeds-node ClusterQueue/wide: 1 workload: 9 cpu, nodes have 2",
        ],
    );
    assert_found(
        "a resource without quota",
        |core| workload(core, ("a", "lq"), &json!({"memory": "9Gi"}), &[]),
        &["workload-never-fits ClusterQueue/cq: 1 workload: ClusterQueue cq has no quota of memory"],
    );
}

#[test]
fn workloads_behind_one_that_never_fits_are_found() {
    assert_found(
        "a head that never fits",
        |core| {
            queue(
                core,
                "strict",
                &json!({"queueingStrategy": "StrictFIFO", "resourceGroups": quota("f", "0")}),
            );
            workload(core, ("a", "to-strict"), &json!({"cpu": "1"}), &[]);
            workload(core, ("b", "to-strict"), &json!({"cpu": "0"}), &[]);
        },
        &[
            "workload-never-fits ClusterQueue/strict: 1 workload requests 1 cpu, at most 0",
            "workload-never-fits ClusterQueue/strict: 1 workload: Behind ns/a, the head of the StrictFIFO ClusterQueue strict, which can never be admitted: it requests 1 cpu in f, and ClusterQueue strict can have at most 0; all behind it wait without end",
        ],
    );
}

/// Queues that cannot work, one of them of another namespace too, and workloads that never fit.
fn broken_queues() -> Core {
    let mut core = core();
    core.put(Kind::Namespace, json!({"metadata": {"name": "secret"}}));
    queue(&mut core, "broken", &json!({"resourceGroups": quota("hidden-flavor", "1")}));
    queue(&mut core, "stopped", &json!({"stopPolicy": "Hold", "resourceGroups": quota("f", "0")}));
    let check = json!({"metadata": {"name": "hidden-check"}, "spec": {"controllerName": "example.com/x"}});
    core.put(Kind::AdmissionCheck, check);
    queue(
        &mut core,
        "checked",
        &json!({"resourceGroups": quota("f", "0"), "admissionChecksStrategy": {"admissionChecks": [{"name": "hidden-check"}]}}),
    );
    queue(&mut core, "wide", &json!({"resourceGroups": quota("f", "62")}));
    core.put(
        Kind::LocalQueue,
        json!({"metadata": {"name": "theirs", "namespace": "secret"}, "spec": {"clusterQueue": "broken"}}),
    );
    workload(&mut core, ("waits", "to-broken"), &json!({"cpu": "1"}), &[]);
    workload(&mut core, ("large", "to-wide"), &json!({"cpu": "9"}), &[]);
    workload(&mut core, ("huge", "lq"), &json!({"cpu": "3"}), &[]);
    core
}

/// The page of findings with a namespace, for a reader of the cluster: what hits it, with names, causes and amounts.
#[test]
fn a_reader_of_the_cluster_reads_what_hits_a_namespace_in_full() {
    let mut core = broken_queues();
    let snapshot = published(&mut core);
    let (facts, access) = (core.state.audit_facts(), Access::everything());
    let query = AuditQuery { namespace: "ns".to_owned(), ..AuditQuery::default() };
    let found = audit_for_all((&snapshot, &facts), query.form(&access), core.now).unwrap();
    let page = audit_page(&snapshot, &access, (&query, Source::default()), (core.now, &found)).unwrap();
    assert_eq!(
        lines(&page.items),
        [
            "workload-never-fits LocalQueue/lq: 1 workload requests 3 cpu, at most 2",
            "clusterqueue-inactive LocalQueue/to-stopped: its ClusterQueue stopped is stopped",
            "flavor-missing LocalQueue/to-broken: its ClusterQueue broken is inactive: references missing ResourceFlavor(s): hidden-flavor",
            "check-unanswered LocalQueue/to-checked: its ClusterQueue checked is inactive: references inactive AdmissionCheck(s): hidden-check",
            "request-exceeds-node Namespace/ns: 1 workload: 9 cpu, nodes have 2",
            "workload-kept-out LocalQueue/to-broken: 1 workload is in a queue that is stopped or inactive",
        ]
    );
    assert_eq!(
        page.items[1].correction,
        "kubectl describe clusterqueue stopped; start the queue, or correct what it names"
    );
    let own = audit((&snapshot, Some(&facts)), &access, (Some("ns"), core.now)).unwrap();
    assert_eq!(lines(&own), lines(&page.items));
    // Without a namespace the same is said of the objects of the cluster.
    let found = audit_for_all((&snapshot, &facts), Form::of(&access, None), core.now).unwrap();
    assert!(
        found
            .iter()
            .any(|one| one.object.kind == "ClusterQueue" && one.check.as_str() == "workload-never-fits")
    );
}

/// A tenant's page is the form for namespaces, with what is said of the namespace itself.
#[test]
fn the_page_of_a_tenant_has_what_hits_the_namespace() {
    let mut core = broken_queues();
    let snapshot = published(&mut core);
    let (facts, access) = (core.state.audit_facts(), Access::to_namespace("ns", TenantDetail::None));
    let query = AuditQuery { namespace: "ns".to_owned(), ..AuditQuery::default() };
    let found = audit_for_all((&snapshot, &facts), query.form(&access), core.now).unwrap();
    let page = audit_page(&snapshot, &access, (&query, Source::default()), (core.now, &found)).unwrap();
    assert_eq!(lines(&page.items), lines(&told(&mut core, "ns")));
}

/// A check that does not answer, as the readers of a namespace and of the cluster are told.
#[test]
fn a_check_that_is_late_is_said_to_the_namespace_that_it_keeps() {
    let mut core = core();
    let since = "2026-01-01T00:00:00Z";
    let mut held = json!({"metadata": {"name": "held", "namespace": "ns"}, "spec": {"queueName": "lq", "podSets": [
        {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}]}});
    held["status"] = json!({"conditions": [condition("QuotaReserved", "True", "QuotaReserved")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}]},
        "admissionChecks": [{"name": "slow", "state": "Pending", "lastTransitionTime": since, "message": ""}]});
    core.put(Kind::Workload, held);
    let late = |found: Vec<Finding>| -> Vec<(String, String)> {
        let of_check = found.into_iter().filter(|one| one.check.as_str() == "check-unanswered");
        of_check.map(|one| (one.message, one.correction)).collect()
    };
    let said = |correction: &str| {
        vec![(
            "AdmissionCheck slow has been pending for more than an hour on 1 workload".to_owned(),
            correction.to_owned(),
        )]
    };
    assert_eq!(late(told(&mut core, "ns")), said("ask an administrator of the cluster"));
    assert_eq!(late(told(&mut core, "other")), []);
    let snapshot = published(&mut core);
    let facts = core.state.audit_facts();
    let full = audit((&snapshot, Some(&facts)), &Access::everything(), (Some("ns"), core.now)).unwrap();
    assert_eq!(late(full), said("kubectl describe admissioncheck slow"));
}

#[test]
fn a_namespace_hears_of_what_hits_it_without_names_of_others() {
    let mut core = broken_queues();
    let found = told(&mut core, "ns");
    assert_eq!(
        lines(&found),
        [
            "workload-never-fits LocalQueue/lq: 1 workload requests 3 cpu in f: more than the queue can have",
            "clusterqueue-inactive LocalQueue/to-stopped: its ClusterQueue stopped is stopped",
            "flavor-missing LocalQueue/to-broken: its ClusterQueue broken is inactive, because a flavor is missing",
            "check-unanswered LocalQueue/to-checked: its ClusterQueue checked is inactive, because an AdmissionCheck is not ready",
            "request-exceeds-node Namespace/ns: 1 workload: 9 cpu, nodes have 2",
            "workload-kept-out LocalQueue/to-broken: 1 workload is in a queue that is stopped or inactive",
        ]
    );
    let text = json!(found).to_string();
    for hidden in ["secret", "theirs", "hidden-flavor", "hidden-check"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    assert_eq!(
        lines(&told(&mut core, "secret")),
        [
            "flavor-missing LocalQueue/theirs: its ClusterQueue broken is inactive, because a flavor is missing"
        ]
    );
}

#[test]
fn a_local_queue_says_why_it_is_not_active_and_counts_what_waits() {
    let mut core = core();
    queue(&mut core, "stopped", &json!({"stopPolicy": "Hold", "resourceGroups": quota("f", "0")}));
    core.put(
        Kind::LocalQueue,
        json!({"metadata": {"name": "lost", "namespace": "ns"}, "spec": {"clusterQueue": "gone"}}),
    );
    core.put(Kind::LocalQueue, json!({"metadata": {"name": "own", "namespace": "ns"}, "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}}));
    workload(&mut core, ("a", "lost"), &json!({"cpu": "1"}), &[]);
    workload(&mut core, ("b", "to-stopped"), &json!({"cpu": "1"}), &[]);
    let snapshot = published(&mut core);
    let access = Access::to_namespace("ns", TenantDetail::Sums);
    let (rows, _) = local_queues(&snapshot, &access, (Some("ns"), &PageQuery::default())).unwrap();
    let said: Vec<(&str, &str, u64)> =
        rows.iter().map(|row| (&*row.metadata.name, &*row.reason, row.pending.total)).collect();
    assert_eq!(
        said,
        [
            ("lost", "ClusterQueueDoesNotExist", 1),
            ("lq", "", 0),
            ("own", "Stopped", 0),
            ("to-stopped", "ClusterQueueStopped", 1),
        ]
    );
    let found = lines(&told(&mut core, "ns"));
    for queue in
        ["localqueue-stopped LocalQueue/own: it is stopped", "clusterqueue-inactive LocalQueue/to-stopped"]
    {
        assert!(found.iter().any(|line| line.starts_with(queue)), "{queue}: {found:?}");
    }
}
