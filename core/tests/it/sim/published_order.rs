//! The published order of pending workloads: what the objects say, on the leader after any history, and on a follower.

use super::laws::{cluster, job};
use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, Delta, Reconciler};
use sluice_core::snapshot::Snapshot;
use std::cmp::Reverse;

/// Names of the Workloads that count as pending, in order, from the objects alone.
fn expected(world: &World, queue: &str) -> Vec<String> {
    let waits = |w: &&Value| {
        let is_true = |kind: &str| condition(w, kind) == Some("True");
        w["spec"]["queueName"] == queue
            && w["spec"]["active"] != json!(false)
            && !is_true("QuotaReserved")
            && !is_true("Finished")
    };
    let mut pending: Vec<&Value> = world.harness.server.all(Kind::Workload).filter(waits).collect();
    let text = |w: &Value, field: &str| w["metadata"][field].as_str().unwrap().to_owned();
    pending.sort_by_key(|w| {
        (Reverse(w["spec"]["priority"].as_i64()), text(w, "creationTimestamp"), text(w, "uid"))
    });
    pending.into_iter().map(|w| text(w, "name")).collect()
}

fn listed(snapshot: &Snapshot, queue: &str) -> Vec<String> {
    let rows = snapshot.pending.from_position(queue, 0).enumerate().map(|(index, row)| {
        assert_eq!((row.in_cluster_queue, row.in_local_queue), (index, index));
        row.workload.key.name.to_string()
    });
    let rows: Vec<String> = rows.collect();
    let local: Vec<String> = snapshot
        .pending
        .local_from_position(queue, &ObjectKey::new("ns", queue), 0)
        .map(|row| row.workload.key.name.to_string())
        .collect();
    assert_eq!(rows, local, "the ClusterQueue has one LocalQueue");
    rows
}

/// A replica that does not lead and has read what is stored.
fn follower(world: &World) -> Snapshot {
    let mut core = Reconciler::new(CoreSettings::default());
    let kinds = core.kinds().to_vec();
    let lists: Vec<Delta> = world.harness.server.list(kinds);
    assert!(!core.snapshot().synced);
    core.apply_all(lists, world.now);
    core.snapshot()
}

#[test]
fn order_is_that_of_the_objects_after_any_history() {
    let mut most = 0;
    for seed in 0..12 {
        let mut world = cluster(seed, &CoreSettings::default());
        world.jobs_never_end = true;
        (world.faults.manager_kills, world.faults.concurrent_writes) = (2, 5);
        for number in 0..14 {
            let queue = if world.random_below(3) == 0 { "b" } else { "a" };
            let pods = 1 + world.random_below(3);
            world.create(JOB, job(&format!("j{number}"), queue, pods));
            for _ in 0..world.random_below(60) {
                world.step();
            }
            if world.random_below(4) == 0 {
                let gone = ObjectKey::new("ns", &format!("j{}", world.random_below(number + 1)));
                world.harness.server.delete(JOB, &gone, world.now);
            }
        }
        (world.faults.manager_kills, world.faults.concurrent_writes) = (0, 0);
        assert!(world.run_until_idle(40_000), "seed {seed}");
        let (leader, follower) = (world.harness.core.snapshot(), follower(&world));
        assert!(leader.synced && follower.synced && !follower.leading);
        for queue in ["a", "b"] {
            let names = expected(&world, queue);
            assert_eq!(listed(&leader, queue), names, "seed {seed}, queue {queue}");
            assert_eq!(listed(&follower, queue), names, "seed {seed}, queue {queue}, follower");
            let key = ObjectKey::new("", queue);
            let status =
                world.harness.server.get(Kind::ClusterQueue, &key).unwrap()["status"]["pendingWorkloads"]
                    .clone();
            assert_eq!(status, json!(names.len()), "seed {seed}, queue {queue}");
            most = most.max(names.len());
        }
    }
    assert!(most >= 4, "at most {most} workloads waited");
}

/// A Workload that waits for its backoff is listed, and its owners are those of the object.
#[test]
fn workloads_in_backoff_are_listed_with_their_owners() {
    let mut world = World::with_queue(&CoreSettings::default(), 1);
    world.jobs_never_end = true;
    for name in ["runs", "waits"] {
        world.create(JOB, job(name, "a", 1));
        assert!(world.run_until_idle(20_000));
        world.now = world.now.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
    }
    let waiting = expected(&world, "a").pop().unwrap();
    let key = ObjectKey::new("ns", &waiting);
    let at = world.now.checked_add(jiff::SignedDuration::from_hours(1)).unwrap();
    let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    world.harness.server.edit(Kind::Workload, &key, |w| {
        w["status"]["requeueState"] = json!({"count": 1, "requeueAt": time});
        let owners = w["metadata"]["ownerReferences"].as_array_mut().unwrap();
        owners.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"}));
    });
    for _ in 0..400 {
        world.step();
    }
    let snapshot = world.harness.core.snapshot();
    assert_eq!(listed(&snapshot, "a"), [waiting]);
    let counts = &world.harness.core.list_queues(10).cluster_queues[0];
    assert_eq!(
        (counts.pending.total, counts.inadmissible.total, counts.waiting),
        (0, 0, 1),
        "it is not nominated"
    );
    let row = snapshot.pending.from_position("a", 0).next().unwrap();
    let owners: Vec<_> =
        row.workload.listed.owners().map(|o| (o.kind.to_string(), o.name.to_string())).collect();
    assert_eq!(
        owners,
        [("Job".to_owned(), "waits".to_owned()), ("ConfigMap".to_owned(), "other".to_owned())]
    );
}
