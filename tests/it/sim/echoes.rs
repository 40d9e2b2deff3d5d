//! What comes late: answers and reads that are older than what is known already.

use super::world::World;
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::state::{Delta, Effect, Kind, Settings, State, Write, WriteOutcome, WriteResult};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn workload(version: &str) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!({
        "metadata": {"name": "w", "namespace": "ns", "uid": "u1", "resourceVersion": version, "generation": 1,
            "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
        "spec": {"queueName": "a", "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
        "status": {"conditions": [condition("QuotaReserved"), condition("Admitted")], "admission": {
            "clusterQueue": "a", "podSetAssignments": [
                {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}]}},
    })
}

/// A state that leads a cluster with one queue, `a`.
fn state() -> State {
    let group = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}]);
    let mut world = World::new(1, &Settings::default());
    world.create(Kind::Namespace, json!({"metadata": {"name": "ns"}}));
    world.create(Kind::ResourceFlavor, json!({"metadata": {"name": "f"}, "spec": {}}));
    let spec = json!({"namespaceSelector": {}, "resourceGroups": group});
    world.create(Kind::ClusterQueue, json!({"metadata": {"name": "a"}, "spec": spec}));
    let spec = json!({"clusterQueue": "a"});
    world.create(Kind::LocalQueue, json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec}));
    let mut state = State::new(Settings::default());
    for delta in world.server.list() {
        state.apply(delta, at(0));
    }
    state.apply(Delta::Leading(true), at(0));
    state
}

fn reserving(state: &mut State, second: i64) -> usize {
    state.apply(Delta::Tick, at(second));
    state.snapshot().queues.cluster_queues["a"].reserving
}

fn applied(version: &str) -> Delta {
    Delta::Applied { kind: Kind::Workload, object: workload(version) }
}

#[test]
fn an_object_that_went_does_not_come_back_with_a_late_answer() {
    let mut state = state();
    state.apply(applied("100"), at(1));
    assert_eq!(reserving(&mut state, 2), 1);
    let key = ObjectKey::new("ns", "w");
    state.apply(Delta::Deleted { kind: Kind::Workload, key, uid: "u1".to_owned() }, at(3));
    state.apply(applied("101"), at(4));
    assert_eq!(reserving(&mut state, 5), 0);
}

#[test]
fn an_older_version_changes_nothing() {
    let mut state = state();
    state.apply(applied("100"), at(1));
    let mut older = workload("99");
    older["status"] = json!({});
    state.apply(Delta::Applied { kind: Kind::Workload, object: older }, at(2));
    assert_eq!(reserving(&mut state, 3), 1);
}

#[test]
fn a_deleted_object_without_finalizers_is_gone() {
    let mut state = state();
    state.apply(applied("100"), at(1));
    let mut last = workload("101");
    last["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    last["metadata"]["finalizers"] = json!([]);
    state.apply(Delta::Applied { kind: Kind::Workload, object: last }, at(2));
    assert_eq!(reserving(&mut state, 3), 0);
}

#[test]
fn an_object_that_could_not_be_read_is_taken_in_when_it_can() {
    let mut state = state();
    let mut broken = workload("100");
    broken["spec"]["podSets"] = json!("nonsense");
    let effects = state.apply(Delta::Applied { kind: Kind::Workload, object: broken.clone() }, at(1));
    let warns = |effects: &[Effect]| effects.iter().any(|e| matches!(e, Effect::Event(e) if e.warning));
    assert!(warns(&effects), "{effects:?}");
    broken["metadata"]["resourceVersion"] = json!("101");
    let again = state.apply(Delta::Applied { kind: Kind::Workload, object: broken }, at(1));
    assert!(!warns(&again), "it is said once: {again:?}");
    state.apply(applied("102"), at(2));
    assert_eq!(reserving(&mut state, 3), 1);
}

fn job(version: &str, suspended: bool) -> Delta {
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let object = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "j1", "resourceVersion": version,
            "labels": {"kueue.x-k8s.io/queue-name": "a"}},
        "spec": {"suspend": suspended, "parallelism": 1, "completions": 1, "template": pod},
        "status": {"active": i32::from(!suspended)},
    });
    Delta::Applied { kind: Kind::Job(0), object }
}

fn write_of(effects: &[Effect], kind: Kind) -> Option<Write> {
    effects.iter().find_map(|effect| match effect {
        Effect::Write(write) if write.kind == kind => Some(write.clone()),
        _ => None,
    })
}

#[test]
fn quota_returns_though_the_watch_overtook_the_answer_of_the_stop() {
    let mut state = state();
    let mut evicted = workload("100");
    evicted["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j1", "controller": true}]);
    evicted["status"]["conditions"].as_array_mut().unwrap().push(json!({
        "type": "Evicted", "status": "True", "reason": "Deactivated", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let stop = write_of(&state.apply(job("101", false), at(1)), Kind::Job(0)).unwrap();
    state.apply(Delta::Applied { kind: Kind::Workload, object: evicted }, at(1));
    // The job has stopped at 103; the answer is of 102, and late.
    assert!(write_of(&state.apply(job("103", true), at(2)), Kind::Workload).is_none());
    let Delta::Applied { object, .. } = job("102", true) else { unreachable!() };
    let Write { id, kind, key, .. } = stop;
    let answer = WriteResult { id, kind, key, outcome: WriteOutcome::Done(object) };
    let release = write_of(&state.apply(Delta::Written(answer), at(3)), Kind::Workload).unwrap();
    let mut conditions = release.body["status"]["conditions"].as_array().unwrap().iter();
    assert!(conditions.any(|c| c["type"] == "QuotaReserved" && c["status"] == "False"), "{}", release.body);
}
