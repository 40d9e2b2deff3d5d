//! What comes late: answers and reads that are older than what is known already.

use super::world::World;
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice::api::ObjectKey;
use sluice::state::{Delta, Effect, Kind, Settings, State};

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
