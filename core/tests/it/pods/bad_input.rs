//! Pods, pod groups and sets that cannot be run: each is reported on the object, costs few writes, and no other pod waits for it.

use crate::fixtures::job_server::{JobServer, kind, pod};
use crate::fixtures::leading_core;
use serde_json::{Value, json};
use sluice_core::cache::Kind;

const LWS: &str = "leaderworkerset.x-k8s.io/leaderworkerset";
/// Maximum number of writes that an object costs, beside those of the pod that runs after it.
const MAX_WRITES: usize = 40;

/// What becomes of bad objects.
enum Expected {
    /// A warning with this reason, whose text has this.
    Warning(&'static str, &'static str),
    /// It runs, and nothing is said.
    Runs,
    /// It runs, and a warning names the second pod and has this text.
    Disagrees(&'static str),
    /// It waits, without a Workload.
    NoWorkload,
}

use Expected::{Disagrees, NoWorkload, Runs, Warning};

fn server() -> JobServer {
    JobServer::new(&["batch/job", "pod", "statefulset", LWS], "100")
}

fn has_gate(server: &JobServer, name: &str) -> bool {
    server.get(Kind::Pod, name).is_some_and(|pod| pod["spec"]["schedulingGates"].is_array())
}

type Objects = Vec<(Kind, Value)>;

/// Creates the objects, and then a pod that must run whatever they say.
fn check(case: &str, objects: Objects, expected: &Expected) {
    let mut server = server();
    let first = objects[0].1["metadata"]["name"].as_str().unwrap().to_owned();
    for (kind, object) in objects {
        server.create(kind, object);
    }
    let writes = server.writes;
    assert!(writes <= MAX_WRITES, "{case}: {writes} writes");
    let said: Vec<(&str, &str)> =
        server.events.iter().map(|event| (event.reason.as_str(), event.note.as_str())).collect();
    match expected {
        Warning(reason, part) => {
            let warnings = said.iter().filter(|(is, note)| is == reason && note.contains(part));
            assert_eq!(warnings.count(), 1, "{case}: {said:?}");
            assert_eq!(
                server.all(Kind::Workload).iter().filter(|w| w["status"]["admission"].is_object()).count(),
                0,
                "{case}"
            );
        }
        Runs => {
            assert!(!has_gate(&server, &first), "{case}: {said:?}");
            assert!(!said.iter().any(|(reason, _)| *reason == "MembersDisagree"), "{case}: {said:?}");
        }
        Disagrees(part) => {
            assert!(!has_gate(&server, &first), "{case}: {said:?}");
            let warnings: Vec<_> = said.iter().filter(|(reason, _)| *reason == "MembersDisagree").collect();
            let [(_, note)] = &warnings[..] else { panic!("{case}: {said:?}") };
            let named = note.starts_with("pod a-1: metadata.") && note.ends_with("in pod a-0 of the group");
            assert!(named && note.contains(part), "{case}: {note}");
        }
        NoWorkload => assert_eq!(server.all(Kind::Workload).len(), 0, "{case}: {said:?}"),
    }
    server.create(Kind::Pod, pod("good", None));
    assert!(!has_gate(&server, "good"), "{case}: another pod waits");
}

fn group(change: impl FnOnce(&mut Value)) -> Objects {
    let (first, mut second) = (pod("a-0", Some(("group", 2))), pod("a-1", Some(("group", 2))));
    change(&mut second);
    vec![(Kind::Pod, first), (Kind::Pod, second)]
}

fn annotated(key: &'static str, value: &'static str) -> impl FnOnce(&mut Value) {
    move |pod| pod["metadata"]["annotations"][format!("kueue.x-k8s.io/{key}")] = json!(value)
}

/// Members that disagree in what all of a group share: the group is refused where its charge would depend on it; in the rest the
/// first by name decides, and a warning names the pod, the field and both values.
#[test]
fn members_that_disagree() {
    let label = |key: &'static str, value: &'static str| {
        move |pod: &mut Value| pod["metadata"]["labels"][format!("kueue.x-k8s.io/{key}")] = json!(value)
    };
    let cases: Vec<(&str, Objects, Expected)> = vec![
        ("queue", group(label("queue-name", "other")), Warning("ErrWorkloadCompose", "queue")),
        ("total", group(annotated("pod-group-total-count", "3")), Warning("ErrWorkloadCompose", "total")),
        ("no total", group(annotated("pod-group-total-count", "")), Warning("Unreadable", "total count")),
        ("zero", group(annotated("pod-group-total-count", "0")), Warning("Unreadable", "total count")),
        ("negative", group(annotated("pod-group-total-count", "-1")), Warning("Unreadable", "total count")),
        ("words", group(annotated("pod-group-total-count", "two")), Warning("Unreadable", "total count")),
        (
            "serving",
            group(annotated("pod-group-serving", "true")),
            Disagrees("annotations[kueue.x-k8s.io/pod-group-serving] is \"true\", and \"false\""),
        ),
        (
            "fast admission",
            group(annotated("pod-group-fast-admission", "true")),
            Disagrees("annotations[kueue.x-k8s.io/pod-group-fast-admission] is \"true\", and \"false\""),
        ),
        (
            "retriable",
            group(annotated("retriable-in-group", "false")),
            Disagrees("annotations[kueue.x-k8s.io/retriable-in-group] is \"false\", and \"true\""),
        ),
        ("gates", group(annotated("admission-gated-by", "example.com/gate")), Runs),
        ("role", group(annotated("role-hash", "other")), Runs),
        (
            "priority class",
            group(label("priority-class", "unknown")),
            Disagrees("labels[kueue.x-k8s.io/priority-class] is \"unknown\", and \"\""),
        ),
        (
            "execution time",
            group(label("max-exec-time-seconds", "5")),
            Disagrees("labels[kueue.x-k8s.io/max-exec-time-seconds] is \"5\", and \"\""),
        ),
        ("default in words", group(annotated("retriable-in-group", "true")), Runs),
    ];
    for (case, objects, expected) in cases {
        check(case, objects, &expected);
    }
}

/// Groups that cannot be composed whatever their members agree on.
#[test]
fn groups_that_cannot_be_composed() {
    let roles = (0..19)
        .map(|number| {
            let mut member = pod(&format!("a-{number:02}"), Some(("group", 19)));
            member["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"] =
                json!(format!("role-{number:02}"));
            (Kind::Pod, member)
        })
        .collect();
    check("nineteen roles", roles, &Warning("ErrWorkloadCompose", "too many roles"));
    let mut ranked = group(|_| ());
    ranked[0].1["metadata"]["labels"]["kueue.x-k8s.io/pod-group-pod-index"] = json!("2");
    check("rank above the total", ranked, &Warning("ErrWorkloadCompose", "index"));
    check(
        "too few",
        vec![(Kind::Pod, pod("a-0", Some(("group", 2))))],
        &Warning("ErrWorkloadCompose", "fewer"),
    );
    let mut large = pod("a-0", None);
    large["metadata"]["annotations"]["note"] = json!("x".repeat(1_000_000));
    check("one megabyte", vec![(Kind::Pod, large)], &Runs);
}

/// A group of the name of a Workload that another job has neither takes it nor ends it.
#[test]
fn group_with_the_name_of_another_workload() {
    let mut server = server();
    server.create(Kind::Job(sluice_core::frameworks::JobKind::BATCH_JOB), leading_core::job("j"));
    let name = server.workload_name();
    for member in ["a-0", "a-1"] {
        server.create(Kind::Pod, pod(member, Some((&name, 2))));
    }
    let conflicts = server.events.iter().filter(|event| event.reason == "WorkloadNameConflict").count();
    assert_eq!(conflicts, 1, "{:?}", server.events);
    assert!(server.holds_quota() && server.condition("Finished").is_none());
    let owners = &server.get(Kind::Workload, &name).unwrap()["metadata"]["ownerReferences"];
    assert_eq!(owners.as_array().map(Vec::len), Some(1), "{owners}");
    assert!(has_gate(&server, "a-0") && has_gate(&server, "a-1"));
}

/// The Workload of a running group is deleted: its pods are stopped, and none keeps its finalizer.
#[test]
fn workload_of_a_running_group_is_deleted() {
    let mut server = server();
    for (kind, member) in group(|_| ()) {
        server.create(kind, member);
    }
    server.run_pod("a-0");
    server.delete(Kind::Workload, "group");
    for pod in server.all(Kind::Pod) {
        assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
        let finalizers = pod["metadata"]["finalizers"].to_string();
        assert!(!finalizers.contains("kueue.x-k8s.io"), "{pod}");
    }
}

fn set(replicas: &Value, template: &Value) -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "template": template},
    })
}

fn leader_worker_set(replicas: i64, size: i64, template: &Value) -> Value {
    json!({
        "metadata": {"name": "l", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}},
    })
}

/// Sets with counts and templates that no schema may have refused.
#[test]
fn sets_that_cannot_be_run() {
    let (sets, replicas) = (kind("apps", "StatefulSet"), kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet"));
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    let words = json!("x".repeat(1_000_000));
    let mut large = template.clone();
    large["metadata"] = json!({"annotations": {"note": words}});
    for (case, kind, object, expected) in [
        ("no replicas", sets, set(&json!(0), &template), NoWorkload),
        ("negative replicas", sets, set(&json!(-1), &template), Warning("Unreadable", "spec.replicas")),
        ("replicas in words", sets, set(&json!("two"), &template), Warning("Unreadable", "spec.replicas")),
        ("no template", sets, set(&json!(1), &Value::Null), Warning("Unreadable", "spec.template")),
        ("no replicas", replicas, leader_worker_set(0, 2, &template), NoWorkload),
        (
            "negative replicas",
            replicas,
            leader_worker_set(-1, 2, &template),
            Warning("Unreadable", "spec.replicas"),
        ),
        ("no size", replicas, leader_worker_set(1, 0, &template), NoWorkload),
        ("negative size", replicas, leader_worker_set(1, -3, &template), Warning("Unreadable", "size")),
        (
            "no template",
            replicas,
            leader_worker_set(1, 2, &Value::Null),
            Warning("Unreadable", "workerTemplate"),
        ),
    ] {
        check(case, vec![(kind, object)], &expected);
    }
    let mut server = server();
    server.create(sets, set(&json!(1), &large));
    assert!(server.holds_quota(), "one megabyte");
}

/// The template of a set changes while its Workload has quota: the Workload keeps its charge, and little is written.
#[test]
fn template_of_a_set_changes_while_it_runs() {
    let sets = kind("apps", "StatefulSet");
    let template = |cpu: &str| json!({"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]}});
    let mut server = server();
    server.create(sets, set(&json!(1), &template("1")));
    let before =
        (server.writes, server.get(Kind::Workload, &server.workload_name()).unwrap()["spec"].clone());
    for cpu in ["2", "3", "4"] {
        server.edit(sets, "s", |set| set["spec"]["template"] = template(cpu));
    }
    let after = (server.writes, server.get(Kind::Workload, &server.workload_name()).unwrap()["spec"].clone());
    assert_eq!(before, after);
    assert!(server.holds_quota());
}

/// A pod that joins a group later, and disagrees, is named as well: once.
#[test]
fn late_member_that_disagrees() {
    let mut server = server();
    let member = |name: &str| {
        let mut member = pod(name, Some(("group", 2)));
        member["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = json!("true");
        member
    };
    server.create(Kind::Pod, member("a-0"));
    assert!(!has_gate(&server, "a-0"), "{:?}", server.events);
    let mut late = member("a-1");
    annotated("pod-group-serving", "true")(&mut late);
    server.create(Kind::Pod, late);
    server.run_pod("a-0");
    server.run_pod("a-1");
    let warnings: Vec<_> = server
        .events
        .iter()
        .filter(|event| event.reason == "MembersDisagree")
        .map(|event| &event.note)
        .collect();
    let [note] = &warnings[..] else { panic!("{:?}", server.events) };
    assert!(note.contains("pod a-1") && note.contains("pod-group-serving"), "{note}");
}
