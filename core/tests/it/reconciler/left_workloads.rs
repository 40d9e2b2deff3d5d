//! Workloads of groups whose objects are deleted, in each way in which a client can delete them: none holds quota for what is gone.

use crate::fixtures::job_server::{JobServer, kind, pod};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;

const LWS: &str = "leaderworkerset.x-k8s.io/leaderworkerset";

/// How an object is deleted.
#[derive(Clone, Copy, Debug)]
enum Deletion {
    /// Without its dependents: the garbage collector removes the reference to it before it goes.
    Orphaning,
    /// The same, and the watch of Workloads is faster than that of the object.
    OrphaningSeenLate,
    /// The same, while no manager runs.
    OrphaningUnseen,
    /// It goes before its dependents.
    Background,
    /// It goes after its dependents.
    Foreground,
}

const DELETIONS: [Deletion; 5] = [
    Deletion::Orphaning,
    Deletion::OrphaningSeenLate,
    Deletion::OrphaningUnseen,
    Deletion::Background,
    Deletion::Foreground,
];

fn settings() -> CoreSettings {
    CoreSettings {
        frameworks: ["pod", "statefulset", LWS].map(str::to_owned).into(),
        ..CoreSettings::default()
    }
}

fn server() -> JobServer {
    JobServer::new(&["pod", "statefulset", LWS], "2")
}

/// A set of two pods, which has made none of them yet.
fn set(kind: &str) -> Value {
    let template = |parent: &str| {
        json!({
            "metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": parent}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
        })
    };
    let spec = if kind == "StatefulSet" {
        json!({"replicas": 2, "template": template("statefulset")})
    } else {
        json!({"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template(LWS)}})
    };
    json!({
        "metadata": {"name": "l", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": spec,
    })
}

/// Names of the Workloads that hold quota.
fn holding(server: &JobServer) -> Vec<String> {
    let is = |workload: &Value, kind: &str| {
        let conditions = workload["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
    };
    let all = server.all(Kind::Workload);
    let holding = all.iter().filter(|workload| is(workload, "QuotaReserved") && !is(workload, "Finished"));
    holding.map(|workload| workload["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn without_owner(workload: &mut Value) {
    workload["metadata"]["ownerReferences"] = json!([]);
}

fn delete(server: &mut JobServer, set: Kind, how: Deletion) {
    let workload = server.workload_name();
    let goes = |finalizer: &'static str| {
        move |set: &mut Value| {
            set["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
            set["metadata"]["finalizers"] = json!([finalizer]);
        }
    };
    let gone = |set: &mut Value| set["metadata"]["finalizers"] = json!([]);
    match how {
        Deletion::Orphaning => {
            server.edit(set, "l", goes("orphan"));
            server.edit(Kind::Workload, &workload, without_owner);
            server.edit(set, "l", gone);
        }
        Deletion::OrphaningSeenLate => {
            server.edit(Kind::Workload, &workload, without_owner);
            server.delete(set, "l");
        }
        Deletion::OrphaningUnseen => {
            server.edit_unseen(Kind::Workload, &workload, without_owner);
            server.restart_after_deletion(settings(), set, "l");
        }
        Deletion::Background => server.delete(set, "l"),
        Deletion::Foreground => {
            server.edit(set, "l", goes("foregroundDeletion"));
            server.delete(Kind::Workload, &workload);
            server.edit(set, "l", gone);
        }
    }
}

/// The set has no pods that could own its Workload. The same one that is created at once gets the quota.
#[test]
fn sets_without_pods_leave_no_quota_behind() {
    for (group, name) in [("apps", "StatefulSet"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")] {
        for how in DELETIONS {
            let mut server = server();
            server.create(kind(group, name), set(name));
            let before = holding(&server);
            assert_eq!(before.len(), 1, "{name} {how:?}");
            delete(&mut server, kind(group, name), how);
            assert_eq!(holding(&server), Vec::<String>::new(), "{name} {how:?}");
            for left in server.all(Kind::Workload) {
                let conditions = left["status"]["conditions"].as_array().unwrap();
                let finished = conditions.iter().find(|condition| condition["type"] == "Finished");
                assert_eq!(finished.unwrap()["reason"], "OwnerNotFound", "{name} {how:?}: {left}");
            }
            server.create(kind(group, name), set(name));
            let after = holding(&server);
            assert!(after.len() == 1 && after != before, "{name} {how:?}: {after:?}");
        }
    }
}

/// A Workload that has lost its owner while the set exists is owned again, and keeps its quota.
#[test]
fn set_takes_its_workload_back() {
    for (group, name) in [("apps", "StatefulSet"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")] {
        let mut server = server();
        server.create(kind(group, name), set(name));
        let workload = server.workload_name();
        server.edit(Kind::Workload, &workload, without_owner);
        let stored = server.get(Kind::Workload, &workload).unwrap();
        assert_eq!(stored["metadata"]["ownerReferences"][0]["kind"], name);
        assert_eq!(holding(&server), [workload], "{name}");
    }
}

/// A pod group whose pods are gone, and that no pod owns: new pods of its name get another Workload of that name.
#[test]
fn group_that_has_lost_its_pods_makes_room_for_the_next_one() {
    let mut server = server();
    server.create(Kind::Pod, pod("a", Some(("g", 1))));
    server.run_pod("a");
    assert_eq!(holding(&server), ["g"]);
    server.edit_unseen(Kind::Workload, "g", without_owner);
    server.edit_unseen(Kind::Pod, "a", |pod| pod["metadata"]["finalizers"] = json!([]));
    server.restart_after_deletion(settings(), Kind::Pod, "a");
    assert_eq!(server.condition("Finished"), Some(("True".to_owned(), "OwnerNotFound".to_owned())));
    server.create(Kind::Pod, pod("b", Some(("g", 1))));
    server.advance(SignedDuration::from_mins(1));
    assert_eq!(holding(&server), ["g"]);
    let started = server.get(Kind::Pod, "b").unwrap();
    assert!(started["spec"]["schedulingGates"].as_array().is_none_or(Vec::is_empty), "{started}");
}

/// A Workload that a user has written for pods that do not exist yet waits for them.
#[test]
fn workload_of_pods_that_are_not_there_yet_stays() {
    let mut server = server();
    let template = json!({"spec": {"containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}});
    server.create(
        Kind::Workload,
        json!({"metadata": {"name": "w", "namespace": "ns",
            "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}},
            "spec": {"active": true, "queueName": "lq", "priority": 0,
                "podSets": [{"name": "role", "count": 1, "template": template}]}}),
    );
    server.advance(SignedDuration::from_hours(1));
    assert!(server.condition("Finished").is_none() && !server.holds_quota());
}
