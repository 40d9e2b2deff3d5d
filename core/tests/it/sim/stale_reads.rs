//! Responses and reads that arrive late and are older than what is already known.

use super::world::World;
use crate::fixtures::leading_core::JOB;
use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{
    CoreSettings, Delta, Effect, Observation, Reconciler, Write, WriteLimits, WriteOutcome, WriteResult,
};

pub(super) fn time_at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

pub(super) fn workload(version: &str) -> Value {
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

/// [`workload`], owned by Job `j`.
fn workload_of_job(version: &str) -> Value {
    let mut object = workload(version);
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j1", "controller": true}]);
    object
}

/// A leading state of a cluster with one queue, `a`.
pub(super) fn leading_state() -> Reconciler {
    leading_state_with(CoreSettings::default())
}

fn leading_state_with(settings: CoreSettings) -> Reconciler {
    let world = World::with_queue(&CoreSettings::default(), 1);
    let mut state = Reconciler::new(settings);
    for delta in world.harness.server.list(Kind::all()) {
        state.apply(delta, time_at(0));
    }
    state.apply(Delta::Leading(true), time_at(0));
    state
}

fn reserving_workloads(state: &mut Reconciler, second: i64) -> usize {
    state.apply(Delta::Tick, time_at(second));
    state.snapshot().queues.cluster_queues["a"].reserving
}

fn workload_applied(version: &str) -> Delta {
    Delta::Applied { kind: Kind::Workload, object: workload(version) }
}

#[test]
fn late_response_does_not_revive_deleted_object() {
    let mut state = leading_state();
    state.apply(workload_applied("100"), time_at(1));
    assert_eq!(reserving_workloads(&mut state, 2), 1);
    let key = ObjectKey::new("ns", "w");
    state.apply(Delta::Deleted { kind: Kind::Workload, key, uid: "u1".to_owned() }, time_at(3));
    state.apply(workload_applied("101"), time_at(4));
    assert_eq!(reserving_workloads(&mut state, 5), 0);
}

#[test]
fn older_version_is_ignored() {
    let mut state = leading_state();
    state.apply(workload_applied("100"), time_at(1));
    let mut older = workload("99");
    older["status"] = json!({});
    state.apply(Delta::Applied { kind: Kind::Workload, object: older }, time_at(2));
    assert_eq!(reserving_workloads(&mut state, 3), 1);
}

#[test]
fn deleting_object_without_finalizers_is_removed() {
    let mut state = leading_state();
    state.apply(workload_applied("100"), time_at(1));
    let mut last = workload("101");
    last["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    last["metadata"]["finalizers"] = json!([]);
    state.apply(Delta::Applied { kind: Kind::Workload, object: last }, time_at(2));
    assert_eq!(reserving_workloads(&mut state, 3), 0);
}

#[test]
fn unreadable_object_is_ingested_when_fixed() {
    let mut state = leading_state();
    let mut broken = workload("100");
    broken["spec"]["podSets"] = json!("nonsense");
    let effects = state.apply(Delta::Applied { kind: Kind::Workload, object: broken.clone() }, time_at(1));
    let warns = |effects: &[Effect]| effects.iter().any(|e| matches!(e, Effect::Event(e) if e.is_warning()));
    assert!(warns(&effects), "{effects:?}");
    broken["metadata"]["resourceVersion"] = json!("101");
    let repeated = state.apply(Delta::Applied { kind: Kind::Workload, object: broken }, time_at(1));
    assert!(!warns(&repeated), "the event is emitted once: {repeated:?}");
    state.apply(workload_applied("102"), time_at(2));
    assert_eq!(reserving_workloads(&mut state, 3), 1);
}

/// The admitted Workload of Job `j` in version 100, and a later version with a state of a check that cannot be read. Its name
/// is the one that the reconciler gives it.
fn workload_with_unreadable_state(state: &mut Reconciler) -> (Value, Value) {
    let create = write_of(&state.apply(job("90", true), time_at(1)), Kind::Workload).unwrap();
    let mut known = workload_of_job("100");
    known["metadata"]["name"] = json!(&*create.key.name);
    let mut unknown = known.clone();
    unknown["metadata"]["resourceVersion"] = json!("102");
    unknown["status"]["admissionChecks"] = json!([{"name": "c", "state": 7, "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    (known, unknown)
}

fn writes(effects: &[Effect]) -> usize {
    effects.iter().filter(|effect| matches!(effect, Effect::Write(_))).count()
}

#[test]
fn running_workload_keeps_quota_while_unreadable() {
    let (known, unknown) = workload_with_unreadable_state(&mut leading_state());
    let mut state = leading_state();
    let applied = |object: &Value| Delta::Applied { kind: Kind::Workload, object: object.clone() };
    state.apply(applied(&known), time_at(1));
    state.apply(job("101", false), time_at(1));
    let effects = state.apply(applied(&unknown), time_at(2));
    assert_eq!(writes(&effects), 0, "{effects:?}");
    assert_eq!(reserving_workloads(&mut state, 3), 1);
    // What happens around it changes nothing.
    assert_eq!(writes(&state.apply(job("103", false), time_at(60))), 0);
    assert_eq!(reserving_workloads(&mut state, 120), 1);

    let mut fixed = known;
    fixed["metadata"]["resourceVersion"] = json!("104");
    fixed["metadata"]["generation"] = json!(2);
    fixed["spec"]["active"] = json!(false);
    let effects = state.apply(applied(&fixed), time_at(121));
    assert!(write_of(&effects, Kind::Workload).is_some(), "it is not evicted: {effects:?}");
}

#[test]
fn running_job_is_not_stopped_for_unreadable_workload() {
    let (_, unknown) = workload_with_unreadable_state(&mut leading_state());
    let mut state = leading_state();
    let key = ObjectKey::new("ns", unknown["metadata"]["name"].as_str().unwrap());
    state.apply(Delta::Applied { kind: Kind::Workload, object: unknown }, time_at(1));
    let effects = state.apply(job("103", false), time_at(2));
    assert_eq!(writes(&effects), 0, "{effects:?}");
    // Without its Workload it is stopped.
    let deleted = Delta::Deleted { kind: Kind::Workload, key, uid: "u1".to_owned() };
    state.apply(deleted, time_at(3));
    let absent = answer(&state.apply(Delta::Tick, time_at(20)), None);
    let effects = state.apply(absent, time_at(20));
    assert!(write_of(&effects, JOB).is_some(), "{effects:?}");
}

/// The server drops a field that the definition does not have: the write succeeds and changes nothing.
#[test]
fn write_without_effect_is_not_repeated_at_once() {
    let mut state = leading_state();
    let Delta::Applied { kind, object: mut suspended } = job("90", true) else { panic!("not applied") };
    suspended["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("missing");
    let applied = |object: &Value| Delta::Applied { kind, object: object.clone() };
    let create = write_of(&state.apply(applied(&suspended), time_at(1)), Kind::Workload).unwrap();
    let mut object = create.body.clone();
    let mut version = 100;
    object["metadata"]["uid"] = json!("u1");
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    let result = |id, outcome| {
        Delta::Written(WriteResult { id, kind: Kind::Workload, key: create.key.clone(), outcome })
    };
    let mut effects = state.apply(result(create.id, WriteOutcome::Done(object.clone())), time_at(1));
    suspended["metadata"]["resourceVersion"] = json!("101");
    suspended["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("60");
    effects.extend(state.apply(applied(&suspended), time_at(2)));
    let mut without_effect = 0;
    for second in 2..62 {
        while let Some(write) = write_of(&effects, Kind::Workload) {
            if write.subresource == Some("status") {
                version += 1;
                object["status"] = write.body["status"].clone();
                object["metadata"]["resourceVersion"] = json!(version.to_string());
            } else {
                without_effect += 1;
                assert!(without_effect < 16, "a write without effect is repeated");
            }
            effects = state.apply(result(write.id, WriteOutcome::Done(object.clone())), time_at(second));
        }
        effects = state.apply(Delta::Tick, time_at(second));
    }
    assert!(without_effect > 2, "{without_effect} writes: the label is not written");
}

/// The answer to the read of a Workload among the effects.
fn answer(effects: &[Effect], object: Option<Value>) -> Delta {
    let read = effects.iter().find_map(|effect| match effect {
        Effect::Refetch { kind: Kind::Workload, key } => Some(key.clone()),
        _ => None,
    });
    let key = read.unwrap_or_else(|| panic!("no Workload is read: {effects:?}"));
    Delta::Read { kind: Kind::Workload, key, object }
}

/// After a start on a stale API server the events of a Job may arrive before those of its Workload.
#[test]
fn job_follows_workload_as_read_after_stale_lists() {
    let own_name = |mut object: Value| {
        object["metadata"]["name"] = json!("job-j-7098d");
        object["spec"]["podSets"][0]["template"] = job_template();
        object
    };
    let admitted = own_name(workload_of_job("102"));
    let mut pending = own_name(workload_of_job("99"));
    pending["status"] = json!({});
    let mut evicted = own_name(workload_of_job("99"));
    evicted["status"]["conditions"][1]["status"] = json!("False");
    let finished = |workload: &Value| {
        let mut object = workload.clone();
        object["metadata"]["resourceVersion"] = json!("103");
        object["status"]["conditions"].as_array_mut().unwrap().push(json!({
            "type": "Finished", "status": "True", "reason": "OutOfSync", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}));
        object
    };
    let table = [
        ("pending in the list, admitted now", Some(&pending), false, Some(&admitted), 0),
        ("not in the list, admitted now", None, false, Some(&admitted), 0),
        ("lost its admission in the list, admitted now", Some(&evicted), false, Some(&admitted), 0),
        ("pending in the list and now", Some(&pending), false, Some(&pending), 1),
        ("in neither", None, false, None, 1),
        ("deleted since the list", Some(&pending), false, None, 1),
        ("admitted in the list, finished now", Some(&admitted), true, Some(&finished(&admitted)), 0),
        ("admitted in the list and now", Some(&admitted), true, Some(&admitted), 1),
    ];
    for (case, listed, suspended, newest, expected) in table {
        let mut state = leading_state();
        let mut effects = Vec::new();
        if let Some(object) = listed {
            let kind = Kind::Workload;
            effects.extend(state.apply(Delta::Applied { kind, object: object.clone() }, time_at(1)));
        }
        effects.extend(state.apply(job("101", suspended), time_at(1)));
        assert!(write_of(&effects, JOB).is_none(), "{case}: {effects:?}");
        // An answer that is lost is asked for again.
        let effects = state.apply(Delta::Tick, time_at(3));
        let effects = state.apply(answer(&effects, newest.cloned()), time_at(3));
        let sent = effects.iter().filter(|e| matches!(e, Effect::Write(w) if w.kind == JOB)).count();
        assert_eq!(sent, expected, "{case}: {effects:?}");
    }
}

fn job_template() -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn job(version: &str, suspended: bool) -> Delta {
    let object = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "j1", "resourceVersion": version,
            "labels": {"kueue.x-k8s.io/queue-name": "a"}},
        "spec": {"suspend": suspended, "parallelism": 1, "completions": 1, "template": job_template()},
        "status": {"active": i32::from(!suspended)},
    });
    Delta::Applied { kind: JOB, object }
}

fn write_of(effects: &[Effect], kind: Kind) -> Option<Write> {
    effects.iter().find_map(|effect| match effect {
        Effect::Write(write) if write.kind == kind => {
            Some(Write { body: serde_json::to_value(write.payload()).unwrap(), ..write.clone() })
        }
        _ => None,
    })
}

#[test]
fn quota_is_released_when_watch_precedes_stop_response() {
    let mut state = leading_state();
    let mut evicted = workload_of_job("100");
    evicted["status"]["conditions"].as_array_mut().unwrap().push(json!({
        "type": "Evicted", "status": "True", "reason": "Deactivated", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }));
    let absent = answer(&state.apply(job("101", false), time_at(1)), None);
    let stop = write_of(&state.apply(absent, time_at(1)), JOB).unwrap();
    state.apply(Delta::Applied { kind: Kind::Workload, object: evicted }, time_at(1));
    // The job was stopped at version 103; the response of version 102 is late.
    assert!(write_of(&state.apply(job("103", true), time_at(2)), Kind::Workload).is_none());
    let Delta::Applied { object, .. } = job("102", true) else { unreachable!() };
    let Write { id, kind, key, .. } = stop;
    let response = WriteResult { id, kind, key, outcome: WriteOutcome::Done(object) };
    let release = write_of(&state.apply(Delta::Written(response), time_at(3)), Kind::Workload).unwrap();
    let mut conditions = release.body["status"]["conditions"].as_array().unwrap().iter();
    assert!(conditions.any(|c| c["type"] == "QuotaReserved" && c["status"] == "False"), "{}", release.body);
}

/// The watch delivers the end before the manager learns that its own write succeeded: the finish is counted nevertheless.
#[test]
fn finish_is_counted_when_write_response_is_lost() {
    let mut state = leading_state();
    let mut running = workload_of_job("100");
    state.apply(Delta::Applied { kind: Kind::Workload, object: running.clone() }, time_at(1));
    let Delta::Applied { kind, object: mut finished } = job("101", false) else { unreachable!() };
    finished["status"] = json!({"conditions": [{"type": "Complete", "status": "True", "message": "done"}]});
    let finish_write =
        write_of(&state.apply(Delta::Applied { kind, object: finished }, time_at(2)), Kind::Workload)
            .unwrap();
    running["metadata"]["resourceVersion"] = json!("102");
    running["status"] = finish_write.body["status"].clone();
    let counts = |effects: &[Effect]| {
        effects.iter().filter(|e| matches!(e, Effect::Observe(Observation::Finished(..)))).count()
    };
    let on_watch = state.apply(Delta::Applied { kind: Kind::Workload, object: running }, time_at(3));
    assert_eq!(counts(&on_watch), 0, "the author of the write is not known yet");
    let outcome = WriteOutcome::Unavailable { message: "timeout".to_owned() };
    let Write { id, kind, key, .. } = finish_write;
    let on_response = state.apply(Delta::Written(WriteResult { id, kind, key, outcome }), time_at(4));
    assert_eq!(counts(&on_response), 1, "{on_response:?}");
}

fn pending_workload(name: &str, version: &str) -> Delta {
    let mut object = workload(version);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
    let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]);
    object["spec"]["podSets"][0]["template"]["spec"]["containers"] = containers;
    object["status"] = json!({});
    Delta::Applied { kind: Kind::Workload, object }
}

/// A user removes the Finished condition: the data that was dropped at the end is read again.
#[test]
fn workload_is_rescheduled_when_finished_condition_is_removed() {
    let mut state = leading_state();
    let Delta::Applied { kind, object: pending } = pending_workload("w", "102") else { unreachable!() };
    let mut finished = pending.clone();
    finished["metadata"]["resourceVersion"] = json!("101");
    finished["metadata"]["finalizers"] = json!([]);
    finished["status"]["conditions"] = json!([{"type": "Finished", "status": "True", "reason": "Succeeded",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    assert!(
        write_of(&state.apply(Delta::Applied { kind, object: finished }, time_at(1)), Kind::Workload)
            .is_none()
    );
    let effects = state.apply(Delta::Applied { kind, object: pending }, time_at(2));
    let admission = write_of(&effects, Kind::Workload).unwrap();
    let granted = &admission.body["status"]["admission"]["podSetAssignments"][0]["resourceUsage"];
    assert_eq!(granted, &json!({"cpu": "500m"}), "{}", admission.body);
}

/// A write that waits for an in-flight slot is computed when the slot is granted, from the newest object.
#[test]
fn queued_write_uses_newest_object_version() {
    let mut state = leading_state_with(CoreSettings {
        writes: WriteLimits { max_in_flight_status_writes: Some(1), ..WriteLimits::default() },
        ..CoreSettings::default()
    });
    let first = state.apply(pending_workload("first", "100"), time_at(1));
    let first = write_of(&first, Kind::Workload).unwrap();
    assert!(
        write_of(&state.apply(pending_workload("second", "101"), time_at(1)), Kind::Workload).is_none(),
        "no free write slot"
    );
    assert!(
        write_of(&state.apply(pending_workload("second", "102"), time_at(1)), Kind::Workload).is_none(),
        "no free write slot"
    );
    let outcome = WriteOutcome::Done(json!({}));
    let done = WriteResult { id: first.id, kind: Kind::Workload, key: first.key, outcome };
    let effects = state.apply(Delta::Written(done), time_at(1));
    let writes = || {
        effects.iter().filter_map(|effect| match effect {
            Effect::Write(write) if write.kind == Kind::Workload => Some(write),
            _ => None,
        })
    };
    assert_eq!(writes().next().unwrap().key.name.as_ref(), "second");
    assert_eq!(writes().next().unwrap().body["metadata"]["resourceVersion"], "102");
    assert_eq!(writes().count(), 1);
}

/// The watch repeats the response to a write: nothing is decided or written again.
#[test]
fn echo_of_known_version_is_ignored() {
    let mut state = leading_state();
    state.apply(workload_applied("100"), time_at(1));
    let Delta::Applied { kind, mut object } = workload_applied("100") else { unreachable!() };
    object["status"] = json!({});
    state.apply(Delta::Applied { kind, object: object.clone() }, time_at(2));
    assert_eq!(reserving_workloads(&mut state, 2), 1, "the same version is not applied again");
    object["metadata"]["resourceVersion"] = json!("101");
    state.apply(Delta::Applied { kind, object }, time_at(3));
    assert_eq!(reserving_workloads(&mut state, 4), 0);
}

/// The same for queues.
#[test]
fn echo_of_known_queue_version_is_ignored() {
    let world = World::with_queue(&CoreSettings::default(), 0);
    let objects = world.harness.server.list(Kind::all()).into_iter().filter_map(|delta| match delta {
        Delta::Applied { kind: kind @ (Kind::ClusterQueue | Kind::LocalQueue), object } => {
            Some((kind, object))
        }
        _ => None,
    });
    let mut state = leading_state();
    let mut repeated = 0;
    for (kind, object) in objects {
        assert_ne!(object["metadata"]["resourceVersion"], Value::Null);
        state.apply(Delta::Applied { kind, object }, time_at(1));
        repeated += 1;
    }
    assert_eq!(repeated, 2);
    assert!(write_of(&state.apply(pending_workload("w", "100"), time_at(2)), Kind::Workload).unwrap().body["status"]["admission"]
        .is_object(), "the known version provides the quota");
}

fn admission_write(state: &mut Reconciler, status: Value) -> Write {
    let Delta::Applied { kind, mut object } = pending_workload("w", "100") else { unreachable!() };
    object["status"] = status;
    write_of(&state.apply(Delta::Applied { kind, object }, time_at(1)), Kind::Workload).unwrap()
}

/// A response without spec and status.
fn metadata_only_response(write: Write, version: &str) -> Delta {
    let Delta::Applied { mut object, .. } = pending_workload("w", version) else { unreachable!() };
    let Write { id, kind, key, .. } = write;
    let object = json!({"metadata": object["metadata"].take()});
    Delta::Written(WriteResult { id, kind, key, outcome: WriteOutcome::Done(object) })
}

/// What an apply omits remains if another manager owns it too: then the response must carry the whole object.
#[test]
fn response_is_metadata_only_when_apply_is_complete() {
    let foreign = json!({"type": "e2e.example/Seen", "status": "True", "reason": "Told", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let pending = json!({"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    for (status, metadata_only) in [
        (json!({}), true),
        (json!({"conditions": [pending]}), true),
        (
            json!({"schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}}),
            true,
        ),
        (json!({"conditions": [foreign]}), false),
        (json!({"requeueState": {"count": 1, "requeueAt": "2026-01-01T00:00:00Z"}}), false),
    ] {
        let mut state = leading_state();
        let write = admission_write(&mut state, status.clone());
        assert_eq!(write.response_metadata_only, metadata_only, "{status}: {}", write.body);
        if metadata_only {
            state.apply(metadata_only_response(write, "101"), time_at(2));
            assert_eq!(reserving_workloads(&mut state, 3), 1);
        }
    }
}

/// A metadata-only response cannot complete an object whose newer version was unreadable.
#[test]
fn metadata_only_response_is_ignored_for_unreadable_object() {
    let mut state = leading_state();
    let write = admission_write(&mut state, json!({}));
    let Delta::Applied { kind, object: good } = pending_workload("w", "103") else { unreachable!() };
    let mut broken = good.clone();
    broken["metadata"]["resourceVersion"] = json!("101");
    broken["metadata"]["generation"] = json!(2);
    broken["spec"]["podSets"] = json!("nonsense");
    state.apply(Delta::Applied { kind, object: broken }, time_at(2));
    let effects = state.apply(metadata_only_response(write, "102"), time_at(3));
    assert!(!effects.iter().any(|e| matches!(e, Effect::Event(e) if e.is_warning())), "{effects:?}");
    assert_eq!(reserving_workloads(&mut state, 4), 0);
    assert!(
        write_of(&state.apply(Delta::Applied { kind, object: good }, time_at(5)), Kind::Workload).is_some()
    );
}
