//! LocalQueues that admit nothing new although they and their ClusterQueues are active: audit, rows, capacity and the verdict on a move
//! say so before a workload waits in them, and name no workload of another tenant.

use crate::fixtures::audit_commands::assert_runs_as_it_stands;
use crate::fixtures::leading_core::{Core, put_job_and_workload};
use crate::views::audit::{core, published, queue, quota};
use crate::views::obstacles::LOOK;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::cache::Kind;
use sluice::people::views::queue_capacity as queue_capacity_text;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::findings::audit;
use sluice::visibility::flavors::{question, queue_capacity};
use sluice::visibility::offline::capacity;
use sluice::visibility::page::PageQuery;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::queue_views::local_queues;
use sluice::visibility::verdict::verdict;
use sluice::visibility::views::{Finding, Verdict};

const BLOCKED: &str = "Behind a workload of another namespace, the head of the StrictFIFO ClusterQueue strict, which can never be admitted; all behind it wait without end";

fn put(core: &mut Core, (namespace, name, queue): (&str, &str, &str), cpu: &str, priority: i32) {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    put_job_and_workload(core, (namespace, name, queue), (1, priority), &template, &[]);
}

/// Two LocalQueues of `ns` without workloads: of `picky`, which takes workloads of `secret` alone, and of `strict`, whose head of that
/// namespace and of this priority can never be admitted.
fn cluster(priority: i32) -> Core {
    let mut core = core();
    let labels = json!({"team": "secret"});
    core.put(Kind::Namespace, json!({"metadata": {"name": "secret", "labels": labels}}));
    let selector = json!({"matchLabels": labels});
    queue(&mut core, "picky", &json!({"namespaceSelector": selector, "resourceGroups": quota("f", "1")}));
    let strict = json!({"queueingStrategy": "StrictFIFO", "resourceGroups": quota("f", "1")});
    queue(&mut core, "strict", &strict);
    for name in ["picky", "strict"] {
        let metadata = json!({"name": format!("theirs-{name}"), "namespace": "secret"});
        core.put(Kind::LocalQueue, json!({"metadata": metadata, "spec": {"clusterQueue": name}}));
    }
    put(&mut core, ("secret", "hidden-head", "theirs-strict"), "9", priority);
    core
}

fn lines(core: &mut Core, access: &Access, namespace: Option<&str>) -> Vec<String> {
    let snapshot = published(core);
    let facts = core.state.audit_facts();
    let found = audit((&snapshot, Some(&facts)), access, (namespace, core.now)).unwrap();
    found.iter().for_each(assert_runs_as_it_stands);
    let is_meant = |one: &&Finding| one.check.as_str().starts_with("localqueue-");
    let line = |one: &Finding| {
        format!("{} {}: {} ({})", one.check.as_str(), one.object.name, one.message, one.correction)
    };
    found.iter().filter(is_meant).map(line).collect()
}

#[test]
fn the_audit_finds_them_without_a_workload() {
    let mut core = cluster(5);
    let excluded = "localqueue-excluded to-picky: the namespaceSelector of its ClusterQueue picky does not match namespace ns";
    let blocked = "localqueue-blocked to-strict: a new workload of priority 0 would be stuck: ";
    let ask = "ask an administrator of the cluster";
    let tenant = Access::to_namespace("ns", TenantDetail::None);
    let own = [format!("{excluded} ({ask})"), format!("{blocked}{BLOCKED} ({ask})")];
    assert_eq!(lines(&mut core, &tenant, Some("ns")), own);
    let edit =
        "kubectl edit clusterqueue picky; change spec.namespaceSelector, or the labels of namespace ns";
    let list = "sluice list workload -A -c strict --reason stuck; correct or delete the one before";
    let behind = "Behind secret/hidden-head, the head of the StrictFIFO ClusterQueue strict, which can never be admitted: it requests 9 cpu in f, and ClusterQueue strict can have at most 1; all behind it wait without end";
    let full = [format!("{excluded} ({edit})"), format!("{blocked}{behind} ({list})")];
    assert_eq!(lines(&mut core, &Access::everything(), Some("ns")), full);
    // The workload before all others is a finding of its ClusterQueue, and of the namespace that has it.
    assert_eq!(lines(&mut core, &Access::everything(), None), full[..1]);
    let theirs = Access::to_namespace("secret", TenantDetail::None);
    assert_eq!(lines(&mut core, &theirs, Some("secret")), [""; 0]);
    core.put(Kind::Namespace, json!({"metadata": {"name": "ns", "labels": {"team": "secret"}}}));
    assert_eq!(lines(&mut core, &tenant, Some("ns")), own[1..]);
    assert_eq!(lines(&mut cluster(-1), &tenant, Some("ns")), own[..1], "new ones are before it");
}

/// Of a ClusterQueue that selects nothing, the cluster gets one finding, and each namespace one about its queue.
#[test]
fn a_selector_that_matches_nothing_is_one_finding_of_the_cluster() {
    let mut core = core();
    for (name, selector) in [("none", Value::Null), ("typo", json!({"matchLabels": {"team": "x"}}))] {
        queue(&mut core, name, &json!({"namespaceSelector": selector, "resourceGroups": quota("f", "0")}));
    }
    assert_eq!(lines(&mut core, &Access::everything(), None), [""; 0]);
    let found = lines(&mut core, &Access::to_namespace("ns", TenantDetail::None), None);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|line| line.starts_with("localqueue-excluded to-")), "{found:?}");
}

#[test]
fn rows_and_capacity_say_that_they_are_not_active() {
    let mut core = cluster(5);
    let snapshot = published(&mut core);
    let access = Access::to_namespace("ns", TenantDetail::Sums);
    let (rows, _) = local_queues(&snapshot, &access, (Some("ns"), &PageQuery::default())).unwrap();
    let states: Vec<(&str, bool, &str)> =
        rows.iter().map(|row| (&*row.metadata.name, row.active, &*row.reason)).collect();
    assert_eq!(
        states,
        [
            ("lq", true, ""),
            ("to-picky", false, "NamespaceNotSelected"),
            ("to-strict", false, "BlockedByWorkload"),
        ]
    );
    let asked = question(None, "cpu=1", "").unwrap();
    let report = capacity(&mut core.state, &asked, &mut || true);
    for (name, limit, words) in [
        ("to-picky", "NamespaceNotSelected", "its ClusterQueue does not select this namespace"),
        ("to-strict", "BlockedByWorkload", "behind a workload that can never be admitted"),
    ] {
        let found = queue_capacity(&snapshot, &access, (&ObjectKey::new("ns", name), Some(&report))).unwrap();
        let levels = found.flavors.iter().flat_map(|flavor| &flavor.levels);
        let levels: Vec<(u64, &str)> = levels.map(|level| (level.largest_gang, &*level.limited_by)).collect();
        assert_eq!((levels, found.active), (vec![(0, limit)], false), "{name}");
        let text = queue_capacity_text(&found, LOOK);
        let state = format!("LocalQueue {name} is not active: {words}.\n");
        assert!(text.ends_with(&state), "{text}");
    }
    let own = queue_capacity(&snapshot, &access, (&ObjectKey::new("ns", "lq"), Some(&report))).unwrap();
    assert!(own.active && own.flavors[0].levels[0].largest_gang > 0, "{own:?}");
}

/// Asks for the verdict on a workload of `ns` in another place.
fn ask(core: &mut Core, name: &str, queue: Option<&str>, priority: Option<i64>) -> Verdict {
    let snapshot = published(core);
    let asked = VerdictQuestion {
        access: Access::to_namespace("ns", TenantDetail::None),
        workload: WorkloadName::parse(name, "ns"),
        before: None,
        queue: queue.map(str::to_owned),
        priority,
    };
    let supposed = asked.supposition(&snapshot).unwrap();
    let explanation = core.state.engine_mut().explain(&asked.workload.key(), &supposed, &mut || true);
    verdict(&snapshot, &asked, explanation.as_ref()).unwrap()
}

/// What `move --dry-run` and `reprioritize --dry-run` show.
#[test]
fn a_verdict_on_another_place_says_what_keeps_the_workload_there() {
    let mut core = cluster(5);
    let local = json!({"metadata": {"name": "held", "namespace": "ns"}, "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"}});
    core.put(Kind::LocalQueue, local);
    queue(&mut core, "stopped", &json!({"stopPolicy": "Hold", "resourceGroups": quota("f", "0")}));
    put(&mut core, ("ns", "own", "lq"), "1", 0);
    let check = |core: &mut Core, name: &str, queue: Option<&str>, priority: Option<i64>, expected: &str| {
        let found = ask(core, name, queue, priority);
        let case = format!("{name} {queue:?} {priority:?}");
        assert_eq!((&*found.obstacle, found.workload.stuck), (expected, !expected.is_empty()), "{case}");
        assert!(!json!(found).to_string().contains("hidden-head"), "{case}");
    };
    let selector = "Workload namespace doesn't match ClusterQueue selector";
    let stopped = "ClusterQueue stopped is inactive: Can't admit new workloads: is stopped.";
    for (queue, priority, expected) in [
        ("to-picky", None, selector),
        ("to-strict", None, BLOCKED),
        ("to-strict", Some(7), ""),
        ("held", None, "LocalQueue held is stopped"),
        ("to-stopped", None, stopped),
        ("lq", None, ""),
    ] {
        check(&mut core, "own", Some(queue), priority, expected);
    }
    // The head itself, where it would be after another one.
    put(&mut core, ("ns", "first", "to-strict"), "1", 9);
    check(&mut core, "first", None, Some(1), BLOCKED);
    check(&mut core, "first", None, Some(8), "");
}
