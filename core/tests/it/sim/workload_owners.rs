//! Edits of what ties a Workload to its Job: owner references, the label with the Job's UID, and the label by which a Job
//! names a prebuilt Workload. No Job waits for ever, and no Workload holds quota without pods.

use super::laws::{reserved_cpu, seeds};
use super::user_edits::{cluster, holds, job, key, set};
use super::world::{World, condition, pods_of};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::simulate::fake_api_server::key_of;

const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

fn only_workload(world: &World) -> Value {
    let mut all = world.harness.server.all(Kind::Workload);
    let first = all.next().cloned().unwrap();
    assert!(all.next().is_none(), "{first:#}");
    first
}

fn workload_writes(world: &World) -> u32 {
    world.writes.iter().filter(|(name, _)| name.starts_with("Workload ")).map(|(_, count)| count).sum()
}

/// What a user may do to the owner references and the label of a Workload.
type Edit = fn(&mut Value);

const EDITS: [(&str, Edit); 5] = [
    ("no owner", |w| w["metadata"]["ownerReferences"] = json!([])),
    ("no owner, no label", |w| {
        w["metadata"]["ownerReferences"] = json!([]);
        set(w, &["metadata", "labels", JOB_UID], Value::Null);
    }),
    ("no owner, another label", |w| {
        w["metadata"]["ownerReferences"] = json!([]);
        w["metadata"]["labels"][JOB_UID] = json!("other");
    }),
    ("an owner of another kind", |w| {
        let other = json!({"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "o"});
        w["metadata"]["ownerReferences"] = json!([other]);
    }),
    ("an owner of another kind, no label, no finalizer", |w| {
        let other = json!({"apiVersion": "example.com/v1", "kind": "Other", "name": "o", "uid": "o",
            "controller": true});
        w["metadata"]["ownerReferences"] = json!([other]);
        w["metadata"]["finalizers"] = json!([]);
        set(w, &["metadata", "labels", JOB_UID], Value::Null);
    }),
];

/// A Workload that loses its owner, pending or admitted, is owned again after one write; a running Job is not stopped.
#[test]
fn workload_gets_its_owner_back() {
    for (case, edit) in EDITS {
        for (state, pods) in [("running", 2), ("pending", 9)] {
            let mut world = cluster(1);
            world.keeps_orphans = true;
            world.create(JOB, super::laws::job("edited", "a", pods));
            assert!(world.run_until_idle(20_000));
            let before = only_workload(&world);
            let uid = before["metadata"]["uid"].clone();
            let written = workload_writes(&world);
            world.harness.server.edit(Kind::Workload, &key_of(&before), edit);
            for _ in 0..2_000 {
                world.step();
                let runs = job(&world)["spec"]["suspend"] == json!(false);
                assert_eq!(runs, state == "running", "{case}, {state}: {:#}", job(&world));
            }
            let after = only_workload(&world);
            assert_eq!(after["metadata"]["uid"], uid, "{case}, {state}: the Workload was replaced");
            assert_eq!(workload_writes(&world), written + 1, "{case}, {state}: {:?}", world.writes);
            for field in ["ownerReferences", "labels", "finalizers"] {
                assert_eq!(after["metadata"][field], before["metadata"][field], "{case}, {state}");
            }
            assert_eq!(after["status"], before["status"], "{case}, {state}");
        }
    }
}

/// A Workload that was finished because it had no owner, by an earlier version or another client, is replaced.
#[test]
fn orphaned_workload_is_replaced() {
    for pods in [2, 9] {
        for owned in [true, false] {
            let mut world = cluster(1);
            world.create(JOB, super::laws::job("edited", "a", pods));
            assert!(world.run_until_idle(20_000));
            let before = only_workload(&world);
            let finished = json!({"type": "Finished", "status": "True", "reason": "OwnerNotFound", "message": "m",
                "lastTransitionTime": world.timestamp_text()});
            world.harness.server.edit(Kind::Workload, &key_of(&before), |w| {
                w["status"]["conditions"].as_array_mut().unwrap().push(finished);
                if !owned {
                    w["metadata"]["ownerReferences"] = json!([]);
                    w["metadata"]["finalizers"] = json!([]);
                }
            });
            assert!(world.run_until_idle(20_000));
            let after = only_workload(&world);
            assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"], "{pods} pods: {after:#}");
            let runs = job(&world)["spec"]["suspend"] == json!(false);
            assert_eq!(runs, pods == 2, "{pods} pods: {:#}", job(&world));
        }
    }
}

fn prebuilt_workload(name: &str, pods: u32) -> Value {
    let template = super::laws::job("edited", "a", pods)["spec"]["template"].clone();
    let pod_sets = json!([{"name": "main", "count": pods, "template": template}]);
    let spec = json!({"queueName": "a", "active": true, "podSets": pod_sets});
    json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec})
}

/// Quota of Workloads that a Job owns is held for its pods alone, and the Job runs if its Workload is admitted.
fn check_prebuilt(world: &World, seed: u64) {
    let job = job(world);
    let uid = &job["metadata"]["uid"];
    let owned = |w: &&Value| w.pointer("/metadata/ownerReferences/0/uid") == Some(uid);
    let holding = |w: &&Value| holds(w, "QuotaReserved") && !holds(w, "Finished");
    let all: Vec<&Value> = world.harness.server.all(Kind::Workload).filter(owned).collect();
    let holders = all.iter().filter(|w| holding(w)).count();
    let runs = job["spec"]["suspend"] == json!(false);
    assert_eq!(holders, usize::from(runs), "seed {seed}: {job:#} {all:#?}");
    if runs {
        assert_eq!(job["status"]["active"], json!(pods_of(&job)), "seed {seed}: {job:#}");
    } else {
        let template = &job["spec"]["template"];
        assert_eq!(template["metadata"]["labels"].get("kueue.x-k8s.io/podset"), None, "seed {seed}: {job:#}");
    }
    match job["metadata"]["labels"].get(PREBUILT) {
        None => assert!(runs, "seed {seed}: {job:#} waits: {all:#?}"),
        Some(name) => {
            let named = all.iter().find(|w| w["metadata"]["name"] == *name);
            let usable = named.is_some_and(|w| condition(w, "Finished") != Some("True"));
            assert_eq!(runs, usable, "seed {seed}: {job:#} {all:#?}");
        }
    }
}

/// A Job whose label names another prebuilt Workload, in whatever state, an absent one, or none, stops, and the Workload on
/// which it ran releases its quota when the pods are gone, not before.
#[test]
fn former_prebuilt_workload_releases_its_quota() {
    for seed in seeds(0..60) {
        let mut world = cluster(seed);
        let mut job = super::laws::job("edited", "a", 2);
        if seed % 4 > 0 {
            set(&mut job, &["metadata", "labels", PREBUILT], json!("mine"));
        }
        world.create(Kind::Workload, prebuilt_workload("mine", 2));
        world.create(JOB, job);
        for _ in 0..2 + world.random_below(4) {
            for _ in 0..world.random_below(400) {
                world.step();
                let pods = self::job(&world)["status"]["active"].as_i64().unwrap_or(0);
                assert!(
                    pods <= reserved_cpu(&world),
                    "seed {seed}: pods without quota: {:#}",
                    self::job(&world)
                );
            }
            let pick = world.random_below(5);
            if pick == 0 {
                world.create(Kind::Workload, prebuilt_workload("other", 2));
            }
            let names = [json!("other"), json!("absent"), json!("mine"), Value::Null];
            let name = names[usize::try_from(world.random_below(4)).unwrap()].clone();
            world.harness.server.edit(JOB, &key(), |j| set(j, &["metadata", "labels", PREBUILT], name));
            if pick == 1 {
                world.harness.server.edit(Kind::Workload, &ObjectKey::new("ns", "mine"), |w| {
                    w["metadata"]["ownerReferences"] = json!([]);
                });
            }
        }
        assert!(world.run_until_idle(40_000), "seed {seed}: {:#?}", world.writes);
        check_prebuilt(&world, seed);
    }
}

/// The garbage collector removes only the reference to the Job if the Workload has another owner, which any client may add.
#[test]
fn other_owner_does_not_keep_quota_of_deleted_job() {
    for (case, controls) in [("an owner", false), ("a controller", true)] {
        for (state, pods) in [("running", 2), ("pending", 9)] {
            for (seed, deletes) in (1..9).flat_map(|seed| [(seed, true), (seed, false)]) {
                let mut world = cluster(seed);
                world.keeps_orphans = true;
                world.create(JOB, super::laws::job("edited", "a", pods));
                assert!(world.run_until_idle(20_000));
                let workload = key_of(&only_workload(&world));
                let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"});
                world.harness.server.edit(Kind::Workload, &workload, |w| {
                    w["metadata"]["ownerReferences"].as_array_mut().unwrap().push(other.clone());
                });
                assert!(world.run_until_idle(20_000));
                let now = world.now;
                world.harness.server.delete(JOB, &key(), now);
                // The manager may write the reference again before it sees that the Job is gone.
                for _ in 0..2 {
                    world.harness.server.edit(Kind::Workload, &workload, |w| {
                        w["metadata"]["ownerReferences"] = json!([other]);
                        w["metadata"]["ownerReferences"][0]["controller"] = json!(controls);
                    });
                    assert!(world.run_until_idle(20_000));
                }
                assert_eq!(
                    reserved_cpu(&world),
                    0,
                    "{case}, {state}: {:#}",
                    only_workload(&world)["metadata"]
                );
                if deletes {
                    let now = world.now;
                    world.harness.server.delete(Kind::Workload, &workload, now);
                    assert!(world.run_until_idle(20_000));
                    assert!(
                        world.harness.server.get(Kind::Workload, &workload).is_none(),
                        "{case}, {state}: it stays"
                    );
                }
            }
        }
    }
}
