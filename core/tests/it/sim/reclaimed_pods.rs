//! A Job that is evicted after some of its pods have finished asks only for those that can still run.

use super::topology::run_until;
use super::world::{World, condition};
use crate::fixtures::leading_core::JOB;
use serde_json::{Value, json};
use sluice_core::api::ObjectKey;
use sluice_core::cache::Kind;
use sluice_core::reconciler::CoreSettings;
use sluice_core::simulate::fake_api_server::key_of;

fn job(name: &str, pods: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": "a"}},
        "spec": {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "suspend": true, "template": {
            "spec": {"restartPolicy": "Never", "containers": [
                {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
    })
}

fn workload(world: &World, job: &str) -> Value {
    let owner = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == job;
    world.harness.server.all(Kind::Workload).find(owner).cloned().unwrap_or_default()
}

fn set_active(world: &mut World, active: bool) {
    let key = key_of(&workload(world, "r"));
    world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(active));
}

fn set_quota(world: &mut World, cpu: i64) {
    world.harness.server.edit(Kind::ClusterQueue, &ObjectKey::cluster("a"), |queue| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!(cpu);
    });
}

#[test]
fn evicted_job_asks_only_for_pods_that_can_run() {
    for seed in 1..8 {
        let mut world = World::with_queue(&CoreSettings::default(), 4);
        world.reseed(seed);
        world.jobs_never_end = true;
        world.create(JOB, job("r", 4));
        let key = ObjectKey::new("ns", "r");
        run_until(&mut world, "it runs", |world| {
            world.harness.server.get(JOB, &key).is_some_and(|job| job["status"]["active"] == json!(4))
        });
        world.harness.server.edit(JOB, &key, |job| {
            let stamp = job["status"]["startTime"].clone();
            job["status"] = json!({"active": 2, "ready": 2, "succeeded": 2, "completedIndexes": "0-1",
                "startTime": stamp});
        });
        let reclaimed = json!([{"name": "main", "count": 2}]);
        run_until(&mut world, "two are reclaimable", |world| {
            workload(world, "r")["status"]["reclaimablePods"] == reclaimed
        });
        set_active(&mut world, false);
        run_until(&mut world, "it is evicted", |world| {
            condition(&workload(world, "r"), "QuotaReserved") == Some("False")
        });
        assert!(world.run_until_idle(20_000), "seed {seed}");
        assert_eq!(workload(&world, "r")["status"]["reclaimablePods"], reclaimed, "seed {seed}");
        world.create(JOB, job("other", 2));
        run_until(&mut world, "the other one runs", |world| {
            condition(&workload(world, "other"), "Admitted") == Some("True")
        });
        set_quota(&mut world, 2);
        set_active(&mut world, true);
        run_until(&mut world, "it asks for two pods", |world| {
            let requests = &workload(world, "r")["status"]["resourceRequests"];
            requests[0]["resources"]["cpu"] == json!("2")
        });
        set_quota(&mut world, 4);
        run_until(&mut world, "both fit", |world| {
            condition(&workload(world, "r"), "Admitted") == Some("True")
        });
        assert!(world.run_until_idle(20_000), "seed {seed}");
        let w = workload(&world, "r");
        let assignment = &w["status"]["admission"]["podSetAssignments"][0];
        assert_eq!(
            (&assignment["count"], &assignment["resourceUsage"]["cpu"]),
            (&json!(2), &json!("2")),
            "{w}"
        );
        assert_eq!(condition(&w, "Admitted"), Some("True"), "seed {seed}: {w}");
        let running = world.harness.server.get(JOB, &key).unwrap();
        assert_eq!(
            (&running["spec"]["suspend"], &running["spec"]["parallelism"]),
            (&json!(false), &json!(4))
        );
        let usage = &world.harness.core.snapshot().queues.cluster_queues["a"].usage_by_flavor_resource;
        assert_eq!(usage.values().map(|node| node.usage.get()).sum::<i64>(), 4_000, "seed {seed}");
    }
}

#[test]
fn resized_job_is_charged_for_all_pods_that_can_run() {
    for seed in 1..8 {
        let mut world = World::with_queue(&CoreSettings::default(), 4);
        world.reseed(seed);
        world.jobs_never_end = true;
        let mut resized = job("r", 4);
        resized["spec"]["completions"] = json!(6);
        resized["spec"]["completionMode"] = json!("NonIndexed");
        world.create(JOB, resized);
        let key = ObjectKey::new("ns", "r");
        run_until(&mut world, "it runs", |world| {
            world.harness.server.get(JOB, &key).is_some_and(|job| job["status"]["active"] == json!(4))
        });
        world.harness.server.edit(JOB, &key, |job| {
            let stamp = job["status"]["startTime"].clone();
            job["status"] = json!({"active": 2, "ready": 2, "succeeded": 4, "startTime": stamp});
        });
        run_until(&mut world, "two are reclaimable", |world| {
            workload(world, "r")["status"]["reclaimablePods"] == json!([{"name": "main", "count": 2}])
        });
        set_active(&mut world, false);
        run_until(&mut world, "it is evicted", |world| {
            condition(&workload(world, "r"), "QuotaReserved") == Some("False")
        });
        world.create(JOB, job("other", 3));
        run_until(&mut world, "the other one runs", |world| {
            condition(&workload(world, "other"), "Admitted") == Some("True")
        });
        set_active(&mut world, true);
        assert!(world.run_until_idle(20_000), "seed {seed}");
        // With a parallelism of 2, both of its last pods can run beside each other: none is reclaimable.
        for parallelism in [1, 4, 2] {
            world.harness.server.edit(JOB, &key, |job| job["spec"]["parallelism"] = json!(parallelism));
            for _ in 0..400 {
                world.step();
                let w = workload(&world, "r");
                let count = w["spec"]["podSets"][0]["count"].as_i64();
                let reclaimable = w["status"]["reclaimablePods"][0]["count"].as_i64().unwrap_or(0);
                // While the Workload of a running Job is replaced, there is none.
                assert!(
                    count.is_none_or(|count| reclaimable <= count),
                    "seed {seed}: the webhook refuses it: {w}"
                );
            }
            let w = workload(&world, "r");
            assert_eq!(w["spec"]["podSets"][0]["count"], json!(parallelism), "seed {seed}: {w}");
            if parallelism == 1 {
                assert_eq!(condition(&w, "QuotaReserved"), Some("True"), "seed {seed}: {w}");
            }
        }
        let w = workload(&world, "r");
        assert_ne!(condition(&w, "QuotaReserved"), Some("True"), "seed {seed}: 2 of 1 free CPU: {w}");
        assert_eq!(w["status"]["reclaimablePods"], Value::Null, "seed {seed}: {w}");
        set_quota(&mut world, 5);
        run_until(&mut world, "both fit", |world| {
            condition(&workload(world, "r"), "Admitted") == Some("True")
        });
        assert!(world.run_until_idle(20_000), "seed {seed}");
        let usage = &world.harness.core.snapshot().queues.cluster_queues["a"].usage_by_flavor_resource;
        assert_eq!(usage.values().map(|node| node.usage.get()).sum::<i64>(), 5_000, "seed {seed}");
    }
}
