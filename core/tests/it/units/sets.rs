//! Objects with a Workload for their pods: what a StatefulSet makes of its Workload and its pods.

use crate::fixtures::leading_core::{Core, writes};
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{JobKind, framework};
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Verb, Write, WriteOutcome, WriteResult};
use std::collections::BTreeMap;

const LWS: &str = "leaderworkerset.x-k8s.io/leaderworkerset";

fn set_kind() -> Kind {
    Kind::Job(JobKind::new(framework("apps", "StatefulSet").expect("a row")))
}

fn core() -> Core {
    let frameworks = ["batch/job", "statefulset", LWS].map(str::to_owned).into();
    Core::new(CoreSettings { frameworks, ..CoreSettings::default() })
}

fn set(replicas: i64) -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "ns", "generation": replicas,
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "template": {
            "metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"}},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]}}},
    })
}

fn pod(name: &str, uid: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"apps.kubernetes.io/pod-index": "0"},
            "annotations": {"kueue.x-k8s.io/pod-suspending-parent": "statefulset"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": uid,
                "controller": true}]},
        "spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}], "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    })
}

/// The Workload is made from the set; its pods become members of the group when it exists, and not before.
#[test]
fn pods_of_a_set_become_members_of_its_workload() {
    let mut core = core();
    let effects = core.put(set_kind(), set(3));
    let [created] = &writes(&effects, Kind::Workload)[..] else { panic!("{effects:?}") };
    assert_eq!((created.verb, &created.body["spec"]["podSets"][0]["count"]), (Verb::Create, &json!(3)));
    let uid = &created.body["metadata"]["ownerReferences"][0]["uid"];
    let effects = core.put(Kind::Pod, pod("s-0", uid));
    assert_eq!(writes(&effects, Kind::Pod).len(), 0, "the Workload does not exist yet");
    let effects = core.put(Kind::Workload, created.body.clone());
    let [marked] = &writes(&effects, Kind::Pod)[..] else { panic!("{effects:?}") };
    let metadata = &marked.body["metadata"];
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-name"], json!(&*created.key.name));
    assert_eq!(metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"], "3");
    assert_eq!(metadata["labels"]["kueue.x-k8s.io/queue-name"], "lq");
    let effects = core.put(Kind::Pod, pod("other-0", &json!("another set of this name")));
    assert_eq!(writes(&effects, Kind::Pod).len(), 0, "the pod of a set that is gone");
}

/// While a set has no pods, the count of its Workload is that of the last time; a set that grows again asks for what it needs.
#[test]
fn count_follows_a_set_that_was_scaled_to_zero() {
    let (mut core, mut workload) = (core(), Value::Null);
    let effects = core.put(set_kind(), set(3));
    let effects = core.land(&effects, &mut workload);
    core.land(&effects, &mut workload);
    assert!(workload["status"]["admission"].is_object(), "{workload}");
    let effects = core.put(set_kind(), set(0));
    core.land(&effects, &mut workload);
    let conditions = workload["status"]["conditions"].as_array().unwrap();
    let reserved = conditions.iter().find(|condition| condition["type"] == "QuotaReserved").unwrap();
    assert_eq!((&reserved["status"], &reserved["reason"]), (&json!("False"), &json!("OnHold")));
    assert!(workload["status"].get("admission").is_none(), "its quota is free");
    let effects = core.put(set_kind(), set(5));
    let resized = writes(&effects, Kind::Workload);
    let spec = resized.iter().find(|write| write.body["spec"].is_object()).expect("a write of the spec");
    assert_eq!(spec.body["spec"]["podSets"][0]["count"], 5);
}

/// A pod of an old revision waits for the admission as the others, and an event says why the roll-out does not go on.
#[test]
fn rollout_waits_while_the_workload_is_pending() {
    let (mut core, mut workload) = (core(), Value::Null);
    let mut rolling = set(3);
    rolling["status"] = json!({"currentRevision": "old", "updateRevision": "new"});
    let effects = core.put(set_kind(), rolling.clone());
    let uid = &writes(&effects, Kind::Workload)[0].body["metadata"]["ownerReferences"][0]["uid"];
    let mut old = pod("s-0", uid);
    old["metadata"]["labels"]["controller-revision-hash"] = json!("old");
    let effects = core.land(&effects, &mut workload);
    workload["spec"]["active"] = json!(false);
    workload["status"] = json!({});
    drop(effects);
    core.put(Kind::Workload, workload.clone());
    let effects = core.put(Kind::Pod, old);
    let gates = |effects: &[Effect]| {
        writes(effects, Kind::Pod).iter().filter(|write| write.body["spec"].is_object()).count()
    };
    assert_eq!(gates(&effects), 0, "nothing is ungated: {effects:?}");
    let is_said = |effect: &Effect| matches!(effect, Effect::Event(event) if event.reason == "RolloutWaits");
    assert_eq!(effects.iter().filter(|effect| is_said(effect)).count(), 1, "{effects:?}");
    let effects = core.put(set_kind(), rolling);
    assert!(!effects.iter().any(is_said), "it is said once");
}

fn replicas_kind() -> Kind {
    Kind::Job(JobKind::new(framework("leaderworkerset.x-k8s.io", "LeaderWorkerSet").expect("a row")))
}

fn leader_worker_set(replicas: i64) -> Value {
    let template = json!({
        "metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": LWS}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1m"}}}]},
    });
    json!({
        "metadata": {"name": "l", "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {
            "size": 3, "leaderTemplate": template, "workerTemplate": template}},
    })
}

/// A pod of the first replica, whose controlling StatefulSet nothing in the cache knows.
fn replica_pod(name: &str, leader: Option<&str>) -> Value {
    let mut pod = pod(name, &json!("a set that is not known"));
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] = json!(LWS);
    pod["metadata"]["labels"] =
        json!({"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "0"});
    if let Some(leader) = leader {
        pod["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/leader-name"] = json!(leader);
    }
    pod
}

/// Answers all writes of Workloads, and returns them.
fn land_all(
    core: &mut Core,
    mut effects: Vec<Effect>,
    workloads: &mut BTreeMap<String, Value>,
) -> Vec<Write> {
    let mut landed = Vec::new();
    while let Some(write) = writes(&effects, Kind::Workload).into_iter().next() {
        effects.retain(|effect| !matches!(effect, Effect::Write(other) if other.id == write.id));
        let workload = workloads.entry(write.key.name.to_string()).or_default();
        match write.verb {
            Verb::Create => *workload = write.body.clone(),
            Verb::Delete => workload["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            _ => json_patch::merge(workload, &write.body),
        }
        let object = core.with_server_metadata(Kind::Workload, workload.clone());
        let (id, kind, key) = (write.id, Kind::Workload, write.key.clone());
        landed.push(write);
        effects.extend(core.feed(Delta::Written(WriteResult {
            id,
            kind,
            key,
            outcome: WriteOutcome::Done(object),
        })));
    }
    landed
}

/// Each replica has a Workload with its leader and its workers; those of removed replicas are deleted.
#[test]
fn each_replica_has_a_workload() {
    let (mut core, mut workloads) = (core(), BTreeMap::new());
    let effects = core.put(replicas_kind(), leader_worker_set(2));
    let landed = land_all(&mut core, effects, &mut workloads);
    let created: Vec<&Write> = landed.iter().filter(|write| write.verb == Verb::Create).collect();
    let sets: Vec<_> = created
        .iter()
        .map(|write| {
            let index = &write.body["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"];
            let sets = write.body["spec"]["podSets"].as_array().unwrap().iter();
            (index.clone(), sets.map(|set| (set["name"].clone(), set["count"].clone())).collect::<Vec<_>>())
        })
        .collect();
    let counts = vec![(json!("leader"), json!(1)), (json!("worker"), json!(2))];
    assert_eq!(sets, [(json!("0"), counts.clone()), (json!("1"), counts)]);
    assert!(workloads.values().all(|workload| workload["status"]["admission"].is_object()), "{workloads:?}");
    let effects = core.put(replicas_kind(), leader_worker_set(1));
    let deleted = land_all(&mut core, effects, &mut workloads).into_iter();
    let deleted: Vec<_> = deleted.filter(|write| write.verb == Verb::Delete).map(|write| write.key).collect();
    assert_eq!(deleted, [created[1].key.clone()], "the Workload of the removed replica");
}

/// A pod whose controlling set is not known waits for the admission of its replica, as the others; only then its gate goes.
#[test]
fn pods_of_a_replica_start_by_its_admission_alone() {
    let mut core = core();
    let effects = core.put(replicas_kind(), leader_worker_set(1));
    let [created] = &writes(&effects, Kind::Workload)[..] else { panic!("{effects:?}") };
    let before = writes(&core.put(Kind::Pod, replica_pod("l-0-1", Some("l-0"))), Kind::Pod);
    assert_eq!(before.len(), 0, "its Workload does not exist yet");
    core.put(Kind::Workload, created.body.clone());
    let mut unlabelled = replica_pod("l-0", None);
    unlabelled["metadata"]["labels"] = json!({"leaderworkerset.sigs.k8s.io/name": "l"});
    assert_eq!(writes(&core.put(Kind::Pod, unlabelled), Kind::Pod).len(), 0, "its replica is not known yet");
    let marked = writes(&core.put(Kind::Pod, replica_pod("l-0", None)), Kind::Pod);
    let [leader] = &marked[..] else { panic!("{marked:?}") };
    let annotations = &leader.body["metadata"]["annotations"];
    assert_eq!(annotations["kueue.x-k8s.io/role-hash"], "leader");
    assert_eq!(annotations["kueue.x-k8s.io/pod-group-total-count"], "3");
    assert_eq!(annotations["kueue.x-k8s.io/pod-group-name"], json!(&*created.key.name));
    assert!(annotations["kueue.x-k8s.io/pod-group-fast-admission"].is_null());
}

/// While a roll-out exceeds the number of replicas, each of those beyond it has a Workload, whether their number is given as such or
/// as a percentage. A pod of one that the set does not ask for waits, and an event says so.
#[test]
fn replicas_that_surge_have_workloads() {
    let surging = |surge: Value| {
        let mut set = leader_worker_set(2);
        set["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {"maxSurge": surge}});
        set["status"] = json!({"replicas": 3, "updatedReplicas": 1});
        set
    };
    for (surge, replicas) in [
        (json!(1), 3),
        (json!("50%"), 3),
        (json!("1%"), 3),
        (json!("150%"), 3),
        (json!(0), 2),
        (json!("0%"), 2),
        (json!("abc%"), 2),
        (json!(-1), 2),
        (Value::Null, 2),
    ] {
        let (mut core, mut workloads) = (core(), BTreeMap::new());
        let effects = core.put(replicas_kind(), surging(surge.clone()));
        land_all(&mut core, effects, &mut workloads);
        assert_eq!(workloads.len(), replicas, "{surge}");
        let mut third = replica_pod("l-2", None);
        third["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"] = json!("2");
        let said = |effects: &[Effect]| {
            let is_said =
                |effect: &&Effect| matches!(effect, Effect::Event(event) if event.reason == "ReplicaWaits");
            effects.iter().filter(is_said).count()
        };
        let mut effects = core.put(Kind::Pod, third.clone());
        for _ in 0..3 {
            effects.extend(core.advance_seconds(10));
        }
        assert_eq!(said(&effects), usize::from(replicas == 2), "{surge}: {effects:?}");
        let mut deleted = third;
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(said(&core.put(Kind::Pod, deleted)), 0, "{surge}");
    }
}

/// Any pod can name the Workload of a set as its group.
#[test]
fn pods_of_others_do_not_replace_the_workload_of_a_set() {
    let frameworks = ["pod", "statefulset"].map(str::to_owned).into();
    let settings =
        CoreSettings { frameworks, added_job_kinds: [JobKind::POD].into(), ..CoreSettings::default() };
    let (mut core, mut workload) = (Core::new(settings), Value::Null);
    let effects = core.put(set_kind(), set(1));
    let effects = core.land(&effects, &mut workload);
    core.land(&effects, &mut workload);
    let uid = workload["metadata"]["ownerReferences"][0]["uid"].clone();
    core.put(Kind::Workload, workload.clone());
    let mut effects = Vec::new();
    for name in ["alien-0", "alien-1"] {
        let mut alien = pod(name, &uid);
        alien["metadata"] = json!({"name": name, "namespace": "ns",
            "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {"kueue.x-k8s.io/pod-group-name": workload["metadata"]["name"],
                "kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/role-hash": "0123abcd"}});
        effects.extend(core.put(Kind::Pod, alien));
    }
    assert!(writes(&effects, Kind::Workload).iter().all(|write| write.verb != Verb::Delete), "{effects:?}");
    let is_said =
        |effect: &Effect| matches!(effect, Effect::Event(event) if event.reason == "WorkloadNameConflict");
    assert!(effects.iter().any(is_said), "{effects:?}");
}
