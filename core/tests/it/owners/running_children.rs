//! Jobs below one that must stop. An operator that has not seen yet that its object is suspended would resume a child that the manager
//! suspends, and an extra pod would start. So children are left to their operator for a time, and then nothing runs unseen.

use crate::fixtures::every_job_kind::{sample, server_of_all_kinds};
use crate::fixtures::job_server::{JobServer, kind};
use crate::fixtures::leading_core::{Core, JOB, started, writes};
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::frameworks::{Framework, JobKind, Role, frameworks};
use sluice_core::reconciler::{CoreSettings, Delta, Effect, Verb, WriteOutcome, WriteResult};

const JOB_SET: (&str, &str) = ("jobset.x-k8s.io", "JobSet");
/// Time within which an operator acts.
const OPERATOR_TIME: SignedDuration = SignedDuration::from_secs(5);

fn template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}})
}

fn job_set(generation: i64, suspend: bool, active: i64) -> Value {
    json!({
        "metadata": {"name": "s", "namespace": "ns", "generation": generation,
            "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": suspend, "replicatedJobs": [{"name": "a", "replicas": 1, "template": {"spec": {
            "parallelism": 1, "completions": 1, "template": template()}}}]},
        "status": {"replicatedJobsStatus": [{"name": "a", "ready": 0, "succeeded": 0, "failed": 0,
            "active": active, "suspended": 0}]},
    })
}

fn child(owner: &Value, suspend: bool, active: i64) -> Value {
    json!({
        "metadata": {"name": "s-a-0", "namespace": "ns", "ownerReferences": [owner]},
        "spec": {"parallelism": 1, "completions": 1, "suspend": suspend, "template": template()},
        "status": {"active": active},
    })
}

fn suspends(effects: &[Effect]) -> bool {
    writes(effects, JOB).iter().any(|write| write.body["spec"]["suspend"] == json!(true))
}

/// A running JobSet and its child, that the manager stops. Returns what it did since.
fn evicted(core: &mut Core, owner: &Value) -> Vec<Effect> {
    let sets = kind(JOB_SET.0, JOB_SET.1);
    let mut workload = Value::Null;
    let effects = core.put(sets, job_set(1, true, 0));
    let effects = core.land(&effects, &mut workload);
    let effects = core.land(&effects, &mut workload);
    let mut seen = Vec::new();
    let [start] = &writes(&effects, sets)[..] else { panic!("{effects:?}") };
    let mut running = started(job_set(1, true, 0), start);
    running["metadata"]["generation"] = json!(2);
    answer(core, &effects, sets, running.clone(), &mut seen);
    core.put(JOB, child(owner, false, 1));
    running["status"] = job_set(2, false, 1)["status"].clone();
    core.put(sets, running);
    seen.clear();
    workload["spec"]["active"] = json!(false);
    workload["metadata"]["generation"] = json!(2);
    let effects = core.put(Kind::Workload, workload.clone());
    seen.extend(effects.iter().cloned());
    let effects = core.land(&effects, &mut workload);
    seen.extend(effects.iter().cloned());
    answer(core, &effects, sets, job_set(3, true, 1), &mut seen);
    seen
}

/// Answers the only write of an object.
fn answer(core: &mut Core, effects: &[Effect], kind: Kind, object: Value, seen: &mut Vec<Effect>) {
    let [write] = &writes(effects, kind)[..] else { panic!("{effects:?}") };
    assert_ne!(write.verb, Verb::Create);
    let (id, key) = (write.id, write.key.clone());
    let object = core.with_server_metadata(kind, object);
    let outcome = WriteOutcome::Done(object);
    seen.extend(core.feed(Delta::Written(WriteResult { id, kind, key, outcome })));
}

fn core_with_job_sets() -> (Core, Value) {
    let frameworks = ["batch/job", "jobset.x-k8s.io/jobset"].map(str::to_owned).into();
    let core = Core::new(CoreSettings { frameworks, ..CoreSettings::default() });
    let owner = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "s",
        "uid": "jobsets-s", "controller": true});
    (core, owner)
}

#[test]
fn child_of_an_evicted_job_is_left_to_its_operator() {
    let (mut core, owner) = core_with_job_sets();
    let mut seen = evicted(&mut core, &owner);
    // The child changes while the operator has not seen the suspension yet.
    seen.extend(core.put(JOB, child(&owner, false, 1)));
    seen.extend(core.advance_seconds(1));
    assert!(!suspends(&seen), "{seen:?}");
    // The operator suspends it.
    seen.extend(core.put(JOB, child(&owner, true, 0)));
    seen.extend(core.advance_seconds(60));
    assert!(writes(&seen, JOB).is_empty(), "{seen:?}");
    // Long after that, a child that runs is stopped at once.
    let effects = core.put(JOB, child(&owner, false, 1));
    assert!(suspends(&effects), "{effects:?}");
}

#[test]
fn child_is_suspended_if_its_operator_does_not_act() {
    let (mut core, owner) = core_with_job_sets();
    let seen = evicted(&mut core, &owner);
    assert!(!suspends(&seen), "{seen:?}");
    let early = core.advance_seconds(4);
    assert!(!suspends(&early), "{early:?}");
    let late = core.advance_seconds(1);
    assert!(suspends(&late), "{late:?}");
}

/// Creates a child with an owner of a kind, after the owner was admitted or while it waits. Returns the server.
fn server_with_child(row: &'static Framework, admitted: bool) -> JobServer {
    let mut server = server_of_all_kinds(|_, _| {});
    if !admitted {
        server.edit_queue("0");
    }
    server.submit(row, sample(row, "lq")).unwrap();
    assert_eq!(server.holds_quota(), admitted, "{}", row.name);
    let name = row.gvk.kind.to_lowercase();
    let object = server.get(Kind::of_job(JobKind::new(row)), &name).unwrap();
    let owner = json!({"apiVersion": row.gvk.api_version(), "kind": row.gvk.kind, "name": name,
        "uid": object["metadata"]["uid"], "controller": true});
    let before = server.now();
    server.create(JOB, child(&owner, false, 1));
    assert_eq!(server.now(), before, "{}: nothing waits", row.name);
    server
}

fn is_suspended(server: &JobServer) -> bool {
    server.get(JOB, "s-a-0").unwrap()["spec"]["suspend"] == true
}

/// Kinds that make Jobs. Where they do not resume them, an evicted one's children are suspended at once.
#[test]
fn children_of_every_kind() {
    for row in frameworks().filter(|row| row.role == Role::Suspended && row.name != "batch/job") {
        // It was never admitted, so that no operator has a reason to resume its child.
        assert!(is_suspended(&server_with_child(row, false)), "{}", row.name);
        let mut server = server_with_child(row, true);
        assert!(!is_suspended(&server), "{}", row.name);
        let before = server.now();
        server.deactivate();
        assert!(is_suspended(&server), "{}", row.name);
        let waited = server.now().duration_since(before);
        let resumes = row.flags.resumes_children;
        assert_eq!(waited >= OPERATOR_TIME, resumes, "{}: {waited}", row.name);
    }
}
