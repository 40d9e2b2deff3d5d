//! The true obstacle of a pending Workload, as `why` and a page say it: from objects as a cluster has them.

use crate::fixtures::offline_objects::{kueue, meta, queues, workload};
use serde_json::{Value, json};
use sluice::people::views::{Look, why as why_text, workloads as workload_list};
use sluice::reconciler::CoreSettings;
use sluice::visibility::access::{Access, TenantDetail};
use sluice::visibility::findings::audit;
use sluice::visibility::offline::OfflineState;
use sluice::visibility::page::PageQuery;
use sluice::visibility::questions::{VerdictQuestion, WorkloadName};
use sluice::visibility::selector::WorkloadSelector;
use sluice::visibility::table::TableRow as _;
use sluice::visibility::view_tables::blocked_by;
use sluice::visibility::views::{Answer, ChangeKind, Source, SourceKind, Verdict, WorkloadView};
use sluice::visibility::workloads::{WorkloadQuery, workloads};
use std::collections::BTreeMap;

pub(crate) const LOOK: Look = Look {
    utf8: true,
    color: false,
    width: None,
    headings: true,
    wide: false,
    labels: false,
    csv: false,
    now: jiff::Timestamp::UNIX_EPOCH,
    offset: jiff::tz::Offset::UTC,
};

fn why_as(access: Access, objects: &[Value], name: &str) -> Verdict {
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let workload = WorkloadName::parse(name, "ns");
    let question = VerdictQuestion { access, workload, before: None, queue: None, priority: None };
    let mut state = OfflineState::load(CoreSettings::default(), objects.to_vec(), (SourceKind::File, now));
    state.verdict(&question).unwrap()
}

pub(crate) fn why(objects: &[Value], name: &str) -> Verdict {
    why_as(Access::everything(), objects, name)
}

/// The rows of pending Workloads that a selector has, by name.
fn rows_as(access: &Access, objects: &[Value], selected: &str) -> BTreeMap<String, WorkloadView> {
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let state = OfflineState::load(CoreSettings::default(), objects.to_vec(), (SourceKind::File, now));
    let selector = WorkloadSelector::parse(&format!("status=pending,{selected}")).unwrap();
    let query = WorkloadQuery { namespace: None, selector, page: PageQuery::default() };
    let (rows, _) = workloads(state.snapshot(), access, &query).unwrap();
    rows.into_iter().map(|row| (row.metadata.name.clone(), row)).collect()
}

pub(crate) fn rows(objects: &[Value], selected: &str) -> BTreeMap<String, WorkloadView> {
    rows_as(&Access::everything(), objects, selected)
}

/// What the findings of a check ask for.
pub(crate) fn audited(objects: &[Value], check: &str) -> Vec<String> {
    audited_as(&Access::everything(), None, objects, check)
}

/// The same for a reader, of a namespace if one is given.
pub(crate) fn audited_as(
    access: &Access,
    namespace: Option<&str>,
    objects: &[Value],
    check: &str,
) -> Vec<String> {
    let now = "2027-01-15T09:00:00Z".parse().unwrap();
    let mut state = OfflineState::load(CoreSettings::default(), objects.to_vec(), (SourceKind::File, now));
    let (facts, snapshot) = (state.audit_facts(), state.snapshot().clone());
    let found = audit((&snapshot, Some(&facts)), access, (namespace, now)).unwrap();
    let of_check = found.into_iter().filter(|one| one.check.as_str() == check);
    of_check.map(|one| one.correction).collect()
}

fn blocked(row: &WorkloadView) -> String {
    row.first_blocker.as_ref().map(blocked_by).unwrap_or_default()
}

/// The condition that a Workload has since its own evaluation.
fn evaluated(mut workload: Value, reason: &str, message: &str) -> Value {
    workload["status"] = json!({"conditions": [{"type": "QuotaReserved", "status": "False", "reason": reason,
        "message": message, "lastTransitionTime": "2027-01-15T08:30:00Z"}]});
    workload
}

fn text(verdict: &Verdict) -> String {
    let answer = Answer { view: verdict.clone(), source: Source::default(), partial: false };
    why_text(&answer, false, LOOK)
}

fn option(verdict: &Verdict, kind: ChangeKind) -> Option<&str> {
    verdict.options.iter().find(|option| option.kind == kind).map(|option| option.detail.as_str())
}

fn with_priority(mut workload: Value, priority: i32) -> Value {
    workload["spec"]["priority"] = json!(priority);
    workload
}

/// A StrictFIFO queue of 4 CPUs, of which 2 are used.
fn strict() -> Vec<Value> {
    let mut objects = queues(&[("q", 4, json!({"queueingStrategy": "StrictFIFO", "cohortName": null}))]);
    objects.push(workload("runs", "q", &[2], true));
    objects
}

#[test]
fn behind_a_strict_head_its_name_and_what_it_lacks_are_said() {
    let mut objects = strict();
    objects.push(with_priority(workload("head", "q", &[4], false), 9));
    objects.push(with_priority(workload("small", "q", &[3], false), 1));
    let found = why(&objects, "small");
    assert_eq!(
        found.obstacle,
        "Behind ns/head, the head of the StrictFIFO ClusterQueue q, which lacks 2 cpu in f"
    );
    assert!(!found.workload.stuck && !found.never_fits);
    let said = text(&found);
    assert!(said.contains("Behind ns/head") && !said.contains("It needs"), "{said}");
    // 4 for the head, 3 for itself, beside the 2 that run.
    let quota = option(&found, ChangeKind::Quota).unwrap();
    assert!(
        quota.ends_with("the 1 ahead takes 4 first: a nominal quota of 9 at ClusterQueue q would be enough"),
        "{quota}"
    );
    let wait = option(&found, ChangeKind::Wait).unwrap();
    assert_eq!(wait, "5 cpu of q must be released, 4 of it for the 1 ahead; 1 workload uses 2");
    let own = why(&objects, "head");
    assert_eq!(
        option(&own, ChangeKind::Quota),
        Some("a nominal quota of 6 at ClusterQueue q would be enough")
    );
}

#[test]
fn behind_a_head_the_quota_that_only_the_head_requests_is_named() {
    let mut objects = strict();
    objects.push(with_priority(workload("head", "q", &[4], false), 9));
    let mut small = with_priority(workload("small", "q", &[1], false), 1);
    small["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] = json!({});
    objects.push(small);
    let found = why(&objects, "small");
    let quota = option(&found, ChangeKind::Quota).unwrap();
    assert_eq!(quota, "the 1 ahead takes 4 first: a nominal quota of 6 at ClusterQueue q would be enough");
    let wait = option(&found, ChangeKind::Wait).unwrap();
    assert_eq!(wait, "2 cpu of q must be released, 2 of it for the 1 ahead; 1 workload uses 2");
}

#[test]
fn all_behind_a_head_that_can_never_be_admitted_are_stuck() {
    let mut objects = strict();
    objects.push(with_priority(workload("head", "q", &[5], false), 9));
    objects.push(with_priority(workload("small", "q", &[1], false), 1));
    let found = why(&objects, "small");
    assert!(found.workload.stuck && !found.never_fits);
    assert!(
        found.obstacle.contains("ns/head") && found.obstacle.contains("can never be admitted"),
        "{}",
        found.obstacle
    );
    assert!(found.obstacle.ends_with("all behind it wait without end"), "{}", found.obstacle);
    assert!(why(&objects, "head").workload.stuck);
}

#[test]
fn a_tenant_reads_no_name_of_the_head() {
    let mut objects = strict();
    let mut head = with_priority(workload("secret", "q", &[5], false), 9);
    head["metadata"]["namespace"] = json!("other");
    objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("other", "")}));
    objects.push(kueue("LocalQueue", "q", "other", &json!({"clusterQueue": "q"})));
    objects.push(head);
    objects.push(workload("small", "q", &[1], false));
    let found = why_as(Access::to_namespace("ns", TenantDetail::Sums), &objects, "small");
    let all = json!(found).to_string();
    assert!(found.obstacle.starts_with("Behind a workload of another namespace"), "{}", found.obstacle);
    assert!(!all.contains("secret") && !all.contains("other/"), "{all}");
    assert!(found.workload.stuck);
}

#[test]
fn what_those_ahead_take_counts() {
    let mut objects = queues(&[("q", 4, json!({"cohortName": null}))]);
    objects.push(workload("runs", "q", &[4], true));
    for name in ["ahead-1", "ahead-2", "mine"] {
        objects.push(workload(name, "q", &[2], false));
    }
    let found = why(&objects, "mine");
    let quota = option(&found, ChangeKind::Quota).unwrap();
    assert_eq!(
        quota,
        "6 would be enough for it alone; the 2 ahead take 4 first: a nominal quota of 10 at ClusterQueue q would be enough"
    );
    let wait = option(&found, ChangeKind::Wait).unwrap();
    assert_eq!(wait, "6 cpu of q must be released, 4 of it for the 2 ahead; 1 workload uses 4");
    assert_eq!(
        option(&why(&objects, "ahead-1"), ChangeKind::Quota),
        Some("a nominal quota of 6 at ClusterQueue q would be enough")
    );
}

/// Two nodes of 4 CPUs in one rack, full, and a queue of their flavor.
pub(crate) fn nodes() -> Vec<Value> {
    let mut objects = queues(&[("q", 8, json!({"cohortName": null}))]);
    objects[1]["spec"] = json!({"nodeLabels": {"pool": "f"}, "topologyName": "t"});
    let levels = json!({"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]});
    objects.push(kueue("Topology", "t", "", &levels));
    for name in ["n1", "n2"] {
        let mut node = meta(name, "");
        node["labels"] = json!({"pool": "f", "rack": "r1", "kubernetes.io/hostname": name});
        let status = json!({"allocatable": {"cpu": "4", "pods": "20"}, "conditions": [{"type": "Ready", "status": "True"}]});
        objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": node, "status": status}));
    }
    objects
}

pub(crate) fn one_host(name: &str, pods: u32, cpu: &str) -> Value {
    let mut workload = workload(name, "q", &[pods], false);
    let set = &mut workload["spec"]["podSets"][0];
    set["topologyRequest"] = json!({"required": "kubernetes.io/hostname"});
    set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    workload
}

#[test]
fn what_empty_nodes_do_not_take_never_fits() {
    let mut objects = nodes();
    objects.push(workload("runs", "q", &[8], true));
    objects.extend([one_host("many", 5, "1"), one_host("large", 1, "5"), one_host("fits", 2, "1")]);
    let many = why(&objects, "many");
    assert_eq!(
        many.obstacle,
        "It can never be admitted: 5 pods within one kubernetes.io/hostname of f; the largest takes 4. Within one rack it fits"
    );
    let large = why(&objects, "large");
    assert_eq!(large.obstacle, "It can never be admitted: a pod asks for 5 cpu, the largest node of f has 4");
    for found in [&many, &large] {
        assert!(
            found.never_fits && found.workload.stuck && found.workload.reason == "TopologyPlacementFailed",
            "{found:?}"
        );
        assert_eq!((option(found, ChangeKind::Wait), option(found, ChangeKind::Quota)), (None, None));
        let said = text(found);
        assert!(
            said.contains("can never be admitted: ")
                && !said.contains("It needs")
                && !said.contains("missing"),
            "{said}"
        );
    }
    assert!(!why(&objects, "fits").workload.stuck);
}

/// No quota is asked for, so that no flavor, and with it no nodes, is chosen: nothing that others release helps.
#[test]
fn pods_with_a_topology_that_request_nothing_never_fit() {
    let mut objects = nodes();
    let mut idle = one_host("idle", 2, "1");
    idle["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = json!({});
    objects.push(idle);
    let found = why(&objects, "idle");
    assert_eq!(
        found.obstacle,
        "It can never be admitted as it is: the pods of set-0 request a topology, and nothing of which q has quota, so that no flavor is chosen for them"
    );
    assert!(found.never_fits && found.workload.stuck);
    assert_eq!(
        audited(&objects, "workload-never-fits"),
        ["let the pods of set-0 request a resource of q, or no topology"]
    );
}

/// Of two pod sets the first lacks quota that others use, the second fits no node.
#[test]
fn a_pod_set_that_never_fits_counts_behind_one_that_waits() {
    let mut objects = nodes();
    objects.push(workload("runs", "q", &[8], true));
    let mut both = one_host("both", 2, "1");
    let second = one_host("x", 1, "5")["spec"]["podSets"][0].clone();
    both["spec"]["podSets"].as_array_mut().unwrap().push(second);
    both["spec"]["podSets"][1]["name"] = json!("set-1");
    objects.push(both);
    let found = why(&objects, "both");
    assert!(found.never_fits && found.obstacle.contains("a pod asks for 5 cpu"), "{found:?}");
}

#[test]
fn the_flavor_that_was_meant_is_named_with_the_remedy() {
    let mut objects = queues(&[(
        "q",
        8,
        json!({"cohortName": null, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": "a100", "resources": [{"name": "cpu", "nominalQuota": "8"}]},
        {"name": "h100", "resources": [{"name": "cpu", "nominalQuota": "8"}]}]}]}),
    )]);
    objects.push(kueue("Topology", "t", "", &json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})));
    objects.push(kueue("ResourceFlavor", "a100", "", &json!({"nodeLabels": {"gpu": "a100"}})));
    objects.push(kueue(
        "ResourceFlavor",
        "h100",
        "",
        &json!({"nodeLabels": {"gpu": "h100"}, "topologyName": "t"}),
    ));
    let selecting = |name: &str, gpu: &str| {
        let mut workload = workload(name, "q", &[1], false);
        workload["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = json!({"gpu": gpu});
        workload
    };
    objects.extend([selecting("plain", "h100"), selecting("typo", "h200")]);
    let plain = why(&objects, "plain");
    assert_eq!(
        plain.obstacle,
        "It can never be admitted as it is: h100 takes only pods with a topology: add kueue.x-k8s.io/podset-unconstrained-topology: \"true\" to the annotations of the pod template"
    );
    assert!(plain.never_fits && plain.workload.stuck);
    let typo = why(&objects, "typo");
    assert_eq!(typo.obstacle, "It can never be admitted as it is: no flavor of q has gpu=h200; h100?");
    // The ClusterQueue is right where the pods lack an annotation, and a tenant cannot edit it.
    let add = "add the annotation kueue.x-k8s.io/podset-unconstrained-topology to the pod template";
    let edit = "kubectl edit clusterqueue q; correct its flavors, or the pod template";
    assert_eq!(audited(&objects, "workload-never-fits"), [add, edit]);
    let tenant = Access::to_namespace("ns", TenantDetail::None);
    let told = audited_as(&tenant, Some("ns"), &objects, "workload-never-fits");
    assert_eq!(told, [add, "correct the pod template"]);
}

/// A queue of two flavors: which of its quotas is meant is said.
#[test]
fn a_quota_that_would_be_enough_names_its_flavor() {
    let flavor =
        |name: &str, quota: u32| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [flavor("small", 1), flavor("f", 4)]}]);
    let mut objects = queues(&[("q", 4, json!({"cohortName": null, "resourceGroups": groups}))]);
    objects.push(kueue("ResourceFlavor", "small", "", &json!({})));
    objects.push(workload("runs", "q", &[4], true));
    objects.push(workload("mine", "q", &[2], false));
    assert_eq!(
        option(&why(&objects, "mine"), ChangeKind::Quota),
        Some("a nominal quota of 6 of cpu in f at ClusterQueue q would be enough")
    );
}

/// All pod sets of a workload get their quota together: what is missing is the sum over all that need the same quota.
#[test]
fn what_is_missing_is_the_sum_over_the_pod_sets_of_a_flavor() {
    let flavor =
        |name: &str, quota: u32| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": quota}]});
    let one = || json!([{"coveredResources": ["cpu"], "flavors": [flavor("f", 4)]}]);
    let two = || json!([{"coveredResources": ["cpu"], "flavors": [flavor("small", 1), flavor("f", 4)]}]);
    let in_use = |set: &str, request: u32| {
        format!(
            "couldn't assign flavors to pod set {set}: insufficient unused quota for cpu in flavor f, request {request}, limit 4 at ClusterQueue q"
        )
    };
    // Flavors, CPUs in use, pods of the pod sets, what the first shortage of the condition says, needed, available, missing.
    let cases = [
        ("one pod set", one(), 4, &[3][..], ("set-0", 3), [3, 0, 3]),
        ("two pod sets of one flavor", one(), 4, &[1, 3][..], ("set-0", 1), [4, 0, 4]),
        ("three pod sets of one flavor", one(), 3, &[2, 1, 1][..], ("set-0", 2), [4, 1, 3]),
        ("the first pod set fits alone", one(), 2, &[1, 3][..], ("set-1", 4), [4, 2, 2]),
        ("each pod set in its flavor", two(), 4, &[1, 3][..], ("set-1", 3), [3, 0, 3]),
    ];
    for (name, groups, used, pods, (set, request), [needed, available, missing]) in cases {
        let mut objects = queues(&[("q", 4, json!({"cohortName": null, "resourceGroups": groups}))]);
        objects.push(kueue("ResourceFlavor", "small", "", &json!({})));
        objects.push(workload("runs", "q", &[used], true));
        let message = in_use(set, request);
        objects.push(evaluated(workload("mine", "q", pods, false), "WaitingForQuota", &message));
        let found = why(&objects, "mine");
        let sentence = format!(
            "It needs {needed} cpu in f. ClusterQueue q may still use {available}: {missing} are missing."
        );
        assert!(text(&found).contains(&sentence), "{name}: {}", text(&found));
        let listed = rows(&objects, "reason=WaitingForQuota");
        let row = &listed["mine"];
        assert_eq!(blocked(row), format!("{missing} cpu missing at ClusterQueue q"), "{name}");
        assert_eq!(row.message, message, "{name}: the condition stays as it is");
    }
}

#[test]
fn behind_a_head_of_several_pod_sets_what_all_of_them_lack_is_said() {
    let mut objects = strict();
    objects.push(with_priority(workload("head", "q", &[3, 1], false), 9));
    objects.push(workload("small", "q", &[1], false));
    let behind = "ehind ns/head, the head of the StrictFIFO ClusterQueue q, which lacks 2 cpu in f";
    assert_eq!(why(&objects, "small").obstacle, format!("B{behind}"));
    assert_eq!(blocked(&rows(&objects, "")["small"]), format!("b{behind}"));
}

/// Both were heads once, and have the message of that time.
#[test]
fn rows_behind_a_head_name_it_whatever_their_conditions_say() {
    let mut objects = strict();
    objects.push(with_priority(workload("head", "q", &[4], false), 9));
    let own = "couldn't assign flavors to pod set set-0: insufficient unused quota for cpu in flavor f, request 3, limit 4 at ClusterQueue q";
    let small = with_priority(workload("small", "q", &[3], false), 1);
    objects.push(evaluated(small, "WaitingForQuota", own));
    let never = "couldn't assign flavors to pod set set-0: insufficient quota for cpu in flavor f, request (4) > maximum capacity (3) at ClusterQueue q";
    let last = with_priority(workload("last", "q", &[4], false), 1);
    objects.push(evaluated(last, "ExceedsMaxQuota", never));
    objects.push(workload("huge", "q", &[5], false));
    let found = rows(&objects, "");
    let behind = "behind ns/head, the head of the StrictFIFO ClusterQueue q, which lacks 2 cpu in f";
    for name in ["small", "last"] {
        let row = &found[name];
        assert_eq!(
            (blocked(row).as_str(), &*row.reason, row.stuck),
            (behind, "WaitingForQuota", false),
            "{name}"
        );
        assert_eq!(why(&objects, name).workload.reason, row.reason);
    }
    assert_eq!(blocked(&found["huge"]), "1 cpu missing at ClusterQueue q", "its own, that stays");
    assert!(found["huge"].stuck && found["huge"].reason == "ExceedsMaxQuota");
    let selected = |selector: &str| rows(&objects, selector).into_keys().collect::<Vec<_>>();
    assert_eq!(selected("reason=stuck"), ["huge"]);
    assert_eq!(selected("reason=waiting"), ["head", "last", "small"]);
    assert_eq!(selected("reason=ExceedsMaxQuota"), ["huge"]);
}

#[test]
fn rows_behind_a_head_that_never_fits_say_so_and_are_stuck() {
    let mut objects = strict();
    objects.push(with_priority(workload("head", "q", &[5], false), 9));
    objects.push(workload("small", "q", &[1], false));
    let mut other = workload("other", "q", &[1], false);
    other["metadata"]["namespace"] = json!("other");
    objects.push(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": meta("other", "")}));
    objects.push(kueue("LocalQueue", "q", "other", &json!({"clusterQueue": "q"})));
    objects.push(other);
    let found = rows(&objects, "reason=stuck");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["head", "other", "small"]);
    assert_eq!(
        blocked(&found["small"]),
        "behind ns/head, the head of the StrictFIFO ClusterQueue q, which can never be admitted: it requests 5 cpu in f, and ClusterQueue q can have at most 4; all behind it wait without end"
    );
    let tenant = rows_as(&Access::to_namespace("other", TenantDetail::None), &objects, "reason=stuck");
    assert_eq!(
        blocked(&tenant["other"]),
        "behind a workload of another namespace, the head of the StrictFIFO ClusterQueue q, which can never be admitted; all behind it wait without end"
    );
}

#[test]
fn rows_of_what_never_fits_say_what_stays() {
    let mut objects = nodes();
    objects.push(workload("runs", "q", &[8], true));
    objects.extend([one_host("many", 5, "1"), one_host("fits", 2, "1")]);
    let found = rows(&objects, "reason=stuck");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["many"]);
    assert_eq!(
        blocked(&found["many"]),
        "it can never be admitted: 5 pods within one kubernetes.io/hostname of f; the largest takes 4. Within one rack it fits"
    );
    assert_eq!(found["many"].reason, "TopologyPlacementFailed");
}

/// Whatever the workload asks for: its queue does not work, and no condition says so yet. Lists say what they say on a page.
#[test]
fn rows_of_a_queue_that_is_inactive_are_stuck() {
    let mut objects = queues(&[
        ("q", 4, json!({"stopPolicy": "Hold"})),
        ("r", 4, json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})),
    ]);
    objects.extend([workload("held", "q", &[1], false), workload("kept-out", "r", &[1], false)]);
    let own = "couldn't assign flavors to pod set set-0: insufficient unused quota for cpu in flavor f, request 3, limit 4 at ClusterQueue q";
    objects.push(evaluated(workload("late", "q", &[3], false), "WaitingForQuota", own));
    let found = rows(&objects, "reason=stuck");
    assert_eq!(found.keys().collect::<Vec<_>>(), ["held", "kept-out", "late"]);
    assert_eq!((&*found["held"].reason, &*found["kept-out"].reason), ("Suspended", "Misconfigured"));
    let wide = Look { wide: true, ..LOOK };
    for (name, cause) in [
        ("held", "ClusterQueue q is inactive: Can't admit new workloads: is stopped."),
        ("kept-out", "Workload namespace doesn't match ClusterQueue selector"),
        ("late", "ClusterQueue q is inactive: Can't admit new workloads: is stopped."),
    ] {
        let row = &found[name];
        assert_eq!((row.first_blocker.as_ref(), &*row.message), (None, cause), "{name}");
        let list = workload_list(std::slice::from_ref(row), false, wide);
        assert!(list.contains("BLOCKED BY") && list.contains(cause), "{list}");
        assert!(row.cells(jiff::Timestamp::UNIX_EPOCH).contains(&json!(cause)), "{name}");
    }
}
