//! Every way in which a running Job or its Workload can go: the Job stops, and quota is not given to another Job while its pods
//! run, if any object says that they do, or their Workload was removed while the manager looked.

use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;
use sluice_core::simulate::fake_api_server::key_of;

const QUOTA: i64 = 4;

fn job(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "a"}},
        "spec": {"parallelism": QUOTA, "completions": QUOTA, "suspend": true, "template": {
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
    })
}

fn old_workload(world: &World) -> Option<Value> {
    let owner = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == "old";
    world.harness.server.all(Kind::Workload).find(owner).cloned()
}

fn running_pods(world: &World) -> i64 {
    world.harness.server.all(JOB).map(|j| j["status"]["active"].as_i64().unwrap_or(0)).sum()
}

/// A way to go.
struct Ending {
    name: &'static str,
    /// Whether the pods keep their quota: an object says that they run, or the manager has seen what their Workload had.
    keeps_quota: bool,
    act: fn(&mut World),
}

fn edit_workload(world: &mut World, change: impl FnOnce(&mut Value)) {
    if let Some(workload) = old_workload(world) {
        world.harness.server.edit(Kind::Workload, &key_of(&workload), change);
    }
}

fn delete_job(world: &mut World, finalizer: &str, deletes_workload: bool) {
    let key = ObjectKey::new("ns", "old");
    let now = world.now;
    world.harness.server.edit(JOB, &key, |j| j["metadata"]["finalizers"] = json!([finalizer]));
    if deletes_workload {
        world.harness.server.delete(JOB, &key, now);
    } else {
        let stamp = world.timestamp_text();
        world.harness.server.edit(JOB, &key, |j| j["metadata"]["deletionTimestamp"] = json!(stamp));
    }
}

fn delete_workload(world: &mut World) {
    if let Some(workload) = old_workload(world) {
        let now = world.now;
        world.harness.server.delete(Kind::Workload, &key_of(&workload), now);
    }
}

fn remove_owner(w: &mut Value) {
    w["metadata"].as_object_mut().unwrap().shift_remove("ownerReferences");
}

const ENDINGS: [Ending; 14] = [
    Ending {
        name: "the Job is deleted in the foreground",
        keeps_quota: true,
        act: |world| delete_job(world, "foregroundDeletion", true),
    },
    Ending {
        name: "the Job is deleted and another finalizer holds it",
        keeps_quota: true,
        act: |world| delete_job(world, "example.com/report", false),
    },
    Ending {
        name: "both are deleted and another finalizer holds the Job",
        keeps_quota: true,
        act: |world| delete_job(world, "example.com/report", true),
    },
    Ending {
        name: "the Workload is deleted",
        keeps_quota: true,
        act: |world| {
            delete_workload(world);
        },
    },
    Ending {
        name: "the Workload is deactivated",
        keeps_quota: true,
        act: |world| edit_workload(world, |w| w["spec"]["active"] = json!(false)),
    },
    Ending {
        name: "the owner is removed",
        keeps_quota: true,
        act: |world| edit_workload(world, remove_owner),
    },
    Ending {
        name: "the owner is removed after the finalizer",
        keeps_quota: true,
        act: |world| {
            edit_workload(world, |w| w["metadata"]["finalizers"] = json!([]));
            edit_workload(world, remove_owner);
        },
    },
    Ending {
        name: "the owner and the label with its UID are removed",
        keeps_quota: true,
        act: |world| {
            edit_workload(world, |w| {
                remove_owner(w);
                w["metadata"]["labels"] = json!({});
            });
        },
    },
    Ending {
        name: "the owner is changed",
        keeps_quota: false,
        act: |world| edit_workload(world, |w| w["metadata"]["ownerReferences"][0]["uid"] = json!("another")),
    },
    Ending {
        name: "the Workload is deleted after its finalizer",
        keeps_quota: true,
        act: |world| {
            edit_workload(world, |w| w["metadata"]["finalizers"] = json!([]));
            delete_workload(world);
        },
    },
    Ending {
        name: "the Workload is deleted before its finalizer",
        keeps_quota: true,
        act: |world| {
            delete_workload(world);
            for _ in 0..world.random_below(60) {
                world.step();
            }
            edit_workload(world, |w| w["metadata"]["finalizers"] = json!([]));
        },
    },
    Ending {
        name: "the status is cleared",
        keeps_quota: false,
        act: |world| edit_workload(world, |w| w["status"] = json!({})),
    },
    Ending {
        name: "the admission is cleared",
        keeps_quota: false,
        act: |world| {
            edit_workload(world, |w| {
                w["status"].as_object_mut().unwrap().shift_remove("admission");
            });
        },
    },
    Ending {
        name: "Finished is written",
        keeps_quota: false,
        act: |world| {
            let stamp = world.timestamp_text();
            edit_workload(world, |w| {
                if let Some(list) = w["status"]["conditions"].as_array_mut() {
                    list.push(
                        json!({"type": "Finished", "status": "True", "reason": "ByHand", "message": "",
                        "lastTransitionTime": stamp}),
                    );
                }
            });
        },
    },
];

/// Returns a running Job whose Workload does not admit it.
fn running_without_admission(world: &World) -> Option<Value> {
    let admits = |job: &Value| {
        world.harness.server.all(Kind::Workload).any(|w| {
            w["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
                && condition(w, "Admitted") == Some("True")
                && condition(w, "Finished") != Some("True")
        })
    };
    let runs = |job: &&Value| {
        job["spec"]["suspend"] == json!(false)
            && condition(job, "Complete") != Some("True")
            && job["metadata"]["deletionTimestamp"].is_null()
    };
    world.harness.server.all(JOB).filter(runs).find(|job| !admits(job)).cloned()
}

#[test]
fn i15_quota_is_kept_until_pods_are_gone_however_they_go() {
    for ending in &ENDINGS {
        for seed in 0..10 {
            let mut world = World::with_queue(&CoreSettings::default(), QUOTA);
            world.reseed(seed);
            world.create(JOB, job("old"));
            for _ in 0..20 + world.random_below(300) {
                world.step();
            }
            world.create(JOB, job("new"));
            for _ in 0..world.random_below(100) {
                world.step();
            }
            (ending.act)(&mut world);
            for step in 0..4_000 {
                world.step();
                let pods = running_pods(&world);
                assert!(
                    pods <= QUOTA || !ending.keeps_quota,
                    "{}, seed {seed}: {pods} pods in a quota of {QUOTA} after {step} steps",
                    ending.name
                );
            }
            assert!(world.run_until_idle(20_000), "{}, seed {seed}: no rest", ending.name);
            let job = running_without_admission(&world);
            assert!(job.is_none(), "{}, seed {seed}: runs without admission: {job:#?}", ending.name);
            let new = world.harness.server.get(JOB, &ObjectKey::new("ns", "new")).cloned().unwrap();
            let ended = condition(&new, "Complete") == Some("True") || new["spec"]["suspend"] == json!(false);
            // The old Workload keeps its quota: it is its own, or its Job waits for its finalizer, or for its garbage collector.
            let may_hold = ["label with its UID", "owner is changed", "finalizer holds"];
            let may_hold = may_hold.iter().any(|name| ending.name.contains(name));
            assert!(ended || may_hold, "{}, seed {seed}: the other Job never ran: {new:#?}", ending.name);
        }
    }
}

/// Deletes the Workload of a running Job, as the deletion of a namespace does, and returns whether the Job stops and whether
/// it gets a new Workload.
fn loses_workload(namespace_deleting: bool, seed: u64) -> (bool, bool) {
    let mut world = World::with_queue(&CoreSettings::default(), QUOTA);
    world.reseed(seed);
    world.jobs_never_end = true;
    world.create(JOB, job("old"));
    assert!(world.run_until_idle(4_000));
    let uid = old_workload(&world).map(|w| w["metadata"]["uid"].clone());
    if namespace_deleting {
        let stamp = world.timestamp_text();
        let namespace = ObjectKey::cluster("ns");
        world.harness.server.edit(Kind::Namespace, &namespace, |n| {
            n["metadata"]["finalizers"] = json!(["example.com/content"]);
            n["metadata"]["deletionTimestamp"] = json!(stamp);
        });
        assert!(world.run_until_idle(4_000));
    }
    delete_workload(&mut world);
    assert!(world.run_until_idle(4_000));
    let stopped = world.harness.server.all(JOB).all(|j| j["spec"]["suspend"] == json!(true));
    (stopped, old_workload(&world).is_some_and(|w| Some(&w["metadata"]["uid"]) != uid.as_ref()))
}

/// A server refuses each new object there, and each refusal was a warning in the log, an event and a retry.
#[test]
fn no_workload_is_created_in_namespace_that_is_being_deleted() {
    for seed in 0..10 {
        assert_eq!(loses_workload(true, seed), (true, false), "seed {seed}");
        assert_eq!(
            loses_workload(false, seed),
            (false, true),
            "seed {seed}, without deletion of the namespace"
        );
    }
}
