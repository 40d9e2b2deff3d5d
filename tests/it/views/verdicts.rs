//! Verdicts for users, from a core that decides: what is missing, what would change it, and what other tenants' names never get into.

use crate::fixtures::leading_core::{Core, condition, put_job_and_workload};
use serde_json::{Value, json};
use sluice::cache::Kind;
use sluice::reconciler::{CoreSettings, Delta};
use sluice::scheduler::Supposition;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::offline::OfflineState;
use sluice::visibility::page::ModelError;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::queue_views::cluster_queue;
use sluice::visibility::verdict::verdict;
use sluice::visibility::views::{BlockerKindView, ChangeKind, Position, SourceKind, Verdict};

/// A Workload of pods with one CPU each.
fn put(core: &mut Core, (namespace, name): (&str, &str), (pods, priority): (i32, i32), conditions: &[Value]) {
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    put_job_and_workload(core, (namespace, name, "lq"), (pods, priority), &template, conditions);
}

fn core() -> Core {
    let mut core = Core::new(CoreSettings::default());
    core.feed(Delta::Leading(false));
    core.put(Kind::Namespace, json!({"metadata": {"name": "other"}}));
    core.put(
        Kind::LocalQueue,
        json!({"metadata": {"name": "lq", "namespace": "other"}, "spec": {"clusterQueue": "cq"}}),
    );
    core
}

fn question(access: Access, name: &str, before: Option<&str>) -> VerdictQuestion {
    VerdictQuestion {
        access,
        workload: WorkloadName::parse(name, "ns"),
        before: before.map(|before| WorkloadName::parse(before, "ns")),
        queue: None,
        priority: None,
    }
}

/// The verdict with the engine's answer, as a leader makes it.
fn ask(core: &mut Core, question: &VerdictQuestion) -> Result<Verdict, ModelError> {
    core.advance_seconds(60);
    let supposed = Supposition::default();
    let explanation = core.state.engine_mut().explain(&question.workload.key(), &supposed, &mut || true);
    verdict(&core.state.snapshot(), question, explanation.as_ref())
}

#[test]
fn a_verdict_has_the_missing_amount_and_what_would_change_it() {
    let mut core = core();
    let reserved =
        [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")];
    put(&mut core, ("other", "runs"), (1, 0), &reserved);
    put(&mut core, ("ns", "first"), (1, 9), &[]);
    put(&mut core, ("ns", "big"), (2, 5), &[]);
    let found = ask(&mut core, &question(Access::everything(), "big", None)).unwrap();
    let amount = |value: &str, number: i64| json!({"value": value, "number": number});
    assert_eq!(
        json!(found.blockers),
        json!([{
            "kind": "inUse", "podSet": "main", "flavor": "f", "resource": "cpu", "node": "Cohort/org",
            "requested": amount("2", 2), "available": amount("1", 1), "limit": amount("2", 2), "missing": amount("1", 1),
            "text": "insufficient unused quota for cpu in flavor f, request 2, limit 2 at Cohort org",
        }])
    );
    assert_eq!((found.never_fits, &*found.workload.reason), (false, "WaitingForQuota"));
    let ahead = found.ahead.unwrap();
    assert_eq!((ahead.count, &*ahead.first[0].name, ahead.hidden), (1, "first", 0));
    let details: Vec<(ChangeKind, &str)> =
        found.options.iter().map(|option| (option.kind, &*option.detail)).collect();
    assert_eq!(
        details,
        [
            (ChangeKind::Wait, "2 cpu of org must be released, 1 of it for the 1 ahead; 1 workload uses 1"),
            (ChangeKind::Preempt, "ClusterQueue cq does not preempt"),
            (
                ChangeKind::Smaller,
                "1 of 2 pods would be admitted now; set kueue.x-k8s.io/job-min-parallelism to allow it"
            ),
            (
                ChangeKind::Quota,
                "1 would be enough for it alone; the 1 ahead takes 1 first: a nominal quota of 2 at Cohort org would be enough"
            ),
        ]
    );
    // With exactly the missing amount it fits.
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "3"}]}]}]);
    core.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "cohortName": "team", "resourceGroups": groups}}),
    );
    let found = ask(&mut core, &question(Access::everything(), "big", None)).unwrap();
    assert_eq!(found.blockers, []);
}

/// Quota alone does not admit pods whose nodes are full.
#[test]
fn quota_of_a_flavor_with_a_topology_needs_nodes_too() {
    let mut core = core();
    let levels = json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]});
    core.put(Kind::Topology, json!({"metadata": {"name": "hosts"}, "spec": levels}));
    let flavor = json!({"nodeLabels": {"pool": "f"}, "topologyName": "hosts"});
    core.put(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": flavor}));
    let labels = json!({"pool": "f", "kubernetes.io/hostname": "n"});
    let status = json!({"allocatable": {"cpu": "8", "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]});
    core.put(Kind::Node, json!({"metadata": {"name": "n", "labels": labels}, "status": status}));
    let reserved =
        [condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted")];
    put(&mut core, ("other", "runs"), (1, 0), &reserved);
    put(&mut core, ("ns", "big"), (2, 5), &[]);
    let found = ask(&mut core, &question(Access::everything(), "big", None)).unwrap();
    let quota = found.options.iter().find(|option| option.kind == ChangeKind::Quota).unwrap();
    assert_eq!(
        quota.detail, "a nominal quota of 1 at Cohort org would be enough, if nodes of f have room",
        "{:?}",
        found.blockers
    );
}

#[test]
fn another_queue_says_what_would_block_there() {
    let mut core = core();
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]);
    core.put(
        Kind::ClusterQueue,
        json!({"metadata": {"name": "night"}, "spec": {"namespaceSelector": {}, "resourceGroups": groups}}),
    );
    core.put(
        Kind::LocalQueue,
        json!({"metadata": {"name": "night", "namespace": "ns"}, "spec": {"clusterQueue": "night"}}),
    );
    put(&mut core, ("ns", "a"), (2, 0), &[]);
    core.advance_seconds(60);
    let mut asked = question(Access::to_namespace("ns", TenantDetail::Sums), "a", None);
    asked.queue = Some("night".to_owned());
    let supposed = asked.supposition(&core.state.snapshot()).unwrap();
    let explanation = core.state.engine_mut().explain(&asked.workload.key(), &supposed, &mut || true);
    let found = verdict(&core.state.snapshot(), &asked, explanation.as_ref()).unwrap();
    assert_eq!((found.never_fits, &*found.workload.cluster_queue), (true, "night"));
    let first = Position { cluster_queue: 1, local_queue: 1, of: 1, of_local_queue: 1 };
    assert_eq!((&*found.workload.local_queue, found.workload.position), ("night", Some(first)));
    // With a lower priority it stands behind another one of its queue, where it makes room for itself.
    put(&mut core, ("ns", "b"), (1, 5), &[]);
    core.advance_seconds(60);
    let position = |core: &Core, priority: Option<i64>| {
        let asked = VerdictQuestion { priority, ..question(Access::everything(), "b", None) };
        verdict(&core.state.snapshot(), &asked, None).unwrap().workload.position
    };
    let now = position(&core, None).unwrap();
    assert_eq!((now.cluster_queue, now.of), (1, 2));
    let later = position(&core, Some(-5)).unwrap();
    assert_eq!((later.cluster_queue, later.of, later.local_queue), (2, 2, 2));
    assert_eq!(position(&core, Some(7)), Some(now));
    assert_eq!(&*found.blockers[0].node, "ClusterQueue/night");
    asked.queue = Some("nigth".to_owned());
    let unknown = ModelError::Invalid("queue: localqueue \"nigth\" not found in namespace ns".to_owned());
    assert_eq!(asked.target(&core.state.snapshot()), Err(unknown));
}

#[test]
fn a_tenant_never_reads_names_of_others() {
    let mut core = core();
    put(&mut core, ("other", "secret-first"), (2, 9), &[]);
    put(&mut core, ("ns", "own"), (3, 0), &[]);
    let tenant = Access::to_namespace("ns", TenantDetail::Sums);
    let found = ask(&mut core, &question(tenant.clone(), "own", None)).unwrap();
    let text = json!(found).to_string();
    assert!(!text.contains("secret") && !text.contains("other"), "{text}");
    let ahead = found.ahead.unwrap();
    assert_eq!((ahead.count, ahead.first.len(), ahead.hidden), (1, 0, 1));
    assert!(found.never_fits && found.blockers[0].kind == BlockerKindView::NeverFits, "{text}");
    assert_eq!(found.blockers[0].limit.as_ref().unwrap().value, "2");
    let none = Access::to_namespace("ns", TenantDetail::None);
    let found = ask(&mut core, &question(none, "own", None)).unwrap();
    assert_eq!(found.blockers[0].limit, None);
    for name in ["other/secret-first", "other/nothing"] {
        assert_eq!(ask(&mut core, &question(tenant.clone(), name, None)), Err(ModelError::NotFound));
        let compared = ask(&mut core, &question(tenant.clone(), "own", Some(name)));
        assert_eq!(compared, Err(ModelError::Invalid(format!("before: workload {name:?} not found"))));
    }
}

#[test]
fn a_comparison_marks_what_decides() {
    let mut core = core();
    put(&mut core, ("ns", "a"), (1, 1), &[]);
    put(&mut core, ("ns", "b"), (1, 2), &[]);
    put(&mut core, ("ns", "c"), (1, 1), &[]);
    let everything = Access::everything;
    let compare = |core: &mut Core, name: &str, other: &str| {
        ask(core, &question(everything(), name, Some(other))).unwrap().before.unwrap()
    };
    let found = compare(&mut core, "a", "b");
    assert_eq!((found.other_is_before, &*found.because), (true, "its priority is higher"));
    let decides: Vec<&str> = found.factors.iter().filter(|f| f.decides).map(|f| &*f.name).collect();
    assert_eq!(decides, ["Priority"]);
    assert!(!compare(&mut core, "b", "a").other_is_before);
    // What the engine says of the order.
    let found = compare(&mut core, "c", "a");
    assert_eq!((found.other_is_before, &*found.because), (true, "its UID is lower"));
    let missing = ask(&mut core, &question(everything(), "a", Some("nothing")));
    assert_eq!(missing, Err(ModelError::Invalid("before: workload \"ns/nothing\" not found".to_owned())));
}

#[test]
fn other_states_have_what_they_have() {
    let mut core = core();
    let mut preempted = condition("Preempted", "True", "InCohortReclamation");
    preempted["message"] = json!(
        "Preempted to accommodate a workload (UID: u, JobUID: j) due to reclamation within the cohort; preemptor path: /ai/ranking; preemptee path: /ai/cq"
    );
    let reserved = || condition("QuotaReserved", "True", "QuotaReserved");
    put(
        &mut core,
        ("ns", "runs"),
        (1, 0),
        &[reserved(), condition("Admitted", "True", "Admitted"), preempted],
    );
    let found = ask(&mut core, &question(Access::everything(), "runs", None)).unwrap();
    let set = &found.admission.as_ref().unwrap().pod_sets[0];
    assert_eq!((&*set.name, set.count, &*set.resources[0].flavor), ("main", 1, "f"));
    let shown = found.history.iter().filter(|entry| !entry.is_of_queue() && !entry.text.is_empty());
    let texts: Vec<&str> = shown.map(|entry| &*entry.text).collect();
    assert_eq!(texts, ["preempted by a workload of ClusterQueue ranking"]);
    // Without the engine the verdict is that of the condition.
    let mut pending = condition("QuotaReserved", "False", "WaitingForQuota");
    pending["message"] = json!(
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor f, request 2, limit 2 at ClusterQueue cq"
    );
    put(&mut core, ("ns", "waits"), (2, 0), &[pending]);
    core.advance_seconds(60);
    let asked = question(Access::everything(), "waits", None);
    let found = verdict(&core.state.snapshot(), &asked, None).unwrap();
    assert_eq!(found.blockers[0].missing.as_ref().unwrap().value, "1");
}

#[test]
fn objects_of_a_dump_answer_the_same() {
    let meta = |name: &str, namespace: &str| {
        json!({"name": name, "namespace": namespace, "uid": format!("u-{name}"), "resourceVersion": "1", "generation": 1,
            "creationTimestamp": "2027-01-15T08:00:00Z"})
    };
    let object = |kind: &str, name: &str, namespace: &str, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": meta(name, namespace), "spec": spec});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}]}]);
    let container = json!({"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}});
    let pods = json!([{"name": "main", "count": 3, "template": {"spec": {"containers": [container]}}}]);
    let objects = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("ns", "")}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("s", "ns")}),
        object("ResourceFlavor", "f", "", json!({})),
        object("ClusterQueue", "cq", "", json!({"namespaceSelector": {}, "resourceGroups": groups})),
        object("LocalQueue", "lq", "ns", json!({"clusterQueue": "cq"})),
        object("Workload", "w", "ns", json!({"queueName": "lq", "podSets": pods})),
    ];
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let mut state = OfflineState::load(CoreSettings::default(), objects, (SourceKind::File, now));
    assert_eq!(state.ignored, [("Secret".to_owned(), 1)].into());
    let found = state.verdict(&question(Access::everything(), "w", None)).unwrap();
    assert!(found.never_fits, "{found:?}");
    assert_eq!((found.workload.position.unwrap().of, &*found.workload.cluster_queue), (1, "cq"));
    let queue = cluster_queue(state.snapshot(), &Access::everything(), "cq").unwrap();
    assert_eq!((queue.pending.total, &*queue.quota[0].nominal.value), (1, "2"));
    assert_eq!((state.source().kind, state.source().time), (SourceKind::File, Some(now)));
}
