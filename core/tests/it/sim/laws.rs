//! Invariants of every history, with and without faults.

use super::world::{Faults, World, condition};
use crate::fixtures::leading_core::JOB;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_core::cache::Kind;
use sluice_core::reconciler::{CoreSettings, WriteLimits};
use sluice_core::simulate::fake_api_server::key_of;
use std::collections::BTreeMap;

const TOTAL_CPU: i64 = 4;

/// Two queues of 1 CPU each under a cohort that owns 2 more.
pub(super) fn cluster(seed: u64, settings: &CoreSettings) -> World {
    let mut world = World::new(seed, settings);
    world.create(Kind::Namespace, json!({"metadata": {"name": "ns", "labels": {"a": "b"}}}));
    world.create(
        Kind::ResourceFlavor,
        json!({"metadata": {"name": "f"}, "spec": {"nodeLabels": {"pool": "f"}}}),
    );
    let group = |cpu: &str| {
        json!([{"coveredResources": ["cpu"], "flavors": [
            {"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}]}])
    };
    world.create(Kind::Cohort, json!({"metadata": {"name": "root"}, "spec": {"resourceGroups": group("2")}}));
    for name in ["a", "b"] {
        let spec = json!({"cohortName": "root", "namespaceSelector": {}, "resourceGroups": group("1")});
        world.create(Kind::ClusterQueue, json!({"metadata": {"name": name}, "spec": spec}));
        let spec = json!({"clusterQueue": name});
        world.create(Kind::LocalQueue, json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec}));
    }
    world
}

pub(super) fn job(name: &str, queue: &str, pods: u32) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"parallelism": pods, "completions": pods, "suspend": true, "template": {"metadata": {}, "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}}},
    })
}

/// Reserved CPU, computed from the objects alone. A slice of an elastic Job that has shrunk holds less than it was granted.
pub(super) fn reserved_cpu(world: &World) -> i64 {
    let usage = |w: &Value| {
        let sets = w
            .pointer("/status/admission/podSetAssignments")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        sets.iter()
            .map(|s| {
                let granted = s["resourceUsage"]["cpu"].as_str().unwrap_or("0").parse::<i64>().unwrap();
                let (count, asked) =
                    (s["count"].as_i64().unwrap(), w["spec"]["podSets"][0]["count"].as_i64().unwrap());
                if asked < count { granted * asked / count } else { granted }
            })
            .sum::<i64>()
    };
    let counts = |w: &&Value| {
        condition(w, "QuotaReserved") == Some("True") && condition(w, "Finished") != Some("True")
    };
    world.harness.server.all(Kind::Workload).filter(counts).map(usage).sum()
}

/// Pods that run or are terminating.
fn active_pods(world: &World) -> i64 {
    world
        .harness
        .server
        .all(JOB)
        .map(|j| j.pointer("/status/active").and_then(Value::as_i64).unwrap_or(0))
        .sum()
}

/// I14: each version of a Workload is a legal successor of the previous version.
pub(super) fn check_transitions(history: &[Value]) -> Result<(), String> {
    let mut last: BTreeMap<(String, String), &Value> = BTreeMap::new();
    for object in history {
        let id = (key_of(object).to_string(), object["metadata"]["uid"].to_string());
        if let Some(before) = last.insert(id, object) {
            for kind in ["QuotaReserved", "Admitted", "Evicted", "Requeued", "Finished"] {
                if condition(before, kind).is_some() && condition(object, kind).is_none() {
                    return Err(format!("{kind} disappeared: {before} -> {object}"));
                }
            }
            let was = |kind| condition(before, kind) == Some("True");
            let is = |kind| condition(object, kind) == Some("True");
            if was("Finished")
                && (!is("Finished") || before["status"]["admission"] != object["status"]["admission"])
            {
                return Err(format!("changed after it finished: {before} -> {object}"));
            }
            if was("Evicted") && !is("Evicted") && (was("QuotaReserved") || !is("QuotaReserved")) {
                return Err(format!("Evicted cleared without a new reservation: {before} -> {object}"));
            }
        }
    }
    Ok(())
}

pub(super) fn check_capacity(world: &World, seed: u64) {
    assert!(
        reserved_cpu(world) <= TOTAL_CPU,
        "seed {seed}: {} CPU reserved of {TOTAL_CPU} (I2)",
        reserved_cpu(world)
    );
    assert!(
        active_pods(world) <= TOTAL_CPU,
        "seed {seed}: {} pods on {TOTAL_CPU} CPU (I22)",
        active_pods(world)
    );
}

/// The same settings, but for every other seed with at most one or two in-flight status writes.
pub(super) fn with_write_limit(seed: u64, settings: CoreSettings) -> CoreSettings {
    let status_writes_at_once =
        [None, Some(1), None, Some(2)].into_iter().cycle().nth(usize::try_from(seed % 4).unwrap());
    CoreSettings {
        writes: WriteLimits {
            max_in_flight_status_writes: status_writes_at_once.flatten(),
            ..settings.writes
        },
        ..settings
    }
}

/// Creates a Job of one to three pods in one of the queues.
fn create_random_job(world: &mut World, n: u32) {
    let queue = if world.random_below(2) == 0 { "a" } else { "b" };
    let size = 1 + world.random_below(3);
    world.create(JOB, job(&format!("j{n}"), queue, size));
}

fn run_history(seed: u64, faults: Faults, churn: bool) {
    let mut world = cluster(seed, &with_write_limit(seed, CoreSettings::default()));
    world.faults = faults;
    for n in 0..12_u32 {
        create_random_job(&mut world, n);
        for _ in 0..world.random_below(60) {
            world.step();
            check_capacity(&world, seed);
        }
        if churn {
            apply_user_action(&mut world, n);
        }
    }
    for _ in 0..600 {
        world.step();
        check_capacity(&world, seed);
    }
    if churn {
        undo_user_actions(&mut world);
    }
    let finished = world.run_until_finished(60_000);
    let mut unfinished: Vec<String> = world
        .harness
        .server
        .all(Kind::Workload)
        .filter(|w| condition(w, "Finished") != Some("True"))
        .map(|w| format!("{} {}", w["metadata"]["name"], w["status"]))
        .collect();
    let jobs = world.harness.server.all(JOB).filter(|j| condition(j, "Complete") != Some("True"));
    unfinished
        .extend(jobs.map(|j| format!("{} suspend {} {}", j["metadata"], j["spec"]["suspend"], j["status"])));
    assert!(finished, "seed {seed}: did not finish: {unfinished:#?}");
    assert_eq!(reserved_cpu(&world), 0, "seed {seed}: quota not released (I1)");
    world.record_undelivered_versions();
    check_transitions(&world.history).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

/// One action of a user or of another controller.
fn apply_user_action(world: &mut World, n: u32) {
    let keys: Vec<_> = world.harness.server.all(Kind::Workload).map(key_of).collect();
    let count = u32::try_from(keys.len()).unwrap();
    if count == 0 {
        return;
    }
    let key = keys[usize::try_from(world.random_below(count)).unwrap()].clone();
    let now = world.now;
    match n % 5 {
        0 => world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(false)),
        1 => {
            let jobs: Vec<_> = world.harness.server.all(JOB).map(key_of).collect();
            let job = jobs[usize::try_from(world.random_below(u32::try_from(jobs.len()).unwrap())).unwrap()]
                .clone();
            world.harness.server.delete(JOB, &job, now);
        }
        2 => world.harness.server.edit(Kind::ClusterQueue, &sluice_core::api::ObjectKey::cluster("a"), |q| {
            q["spec"]["stopPolicy"] = json!("HoldAndDrain");
        }),
        3 => world.harness.server.delete(Kind::Workload, &key, now),
        _ => world.harness.server.edit(Kind::ClusterQueue, &sluice_core::api::ObjectKey::cluster("a"), |q| {
            q["spec"]["stopPolicy"] = json!("None");
        }),
    }
}

fn undo_user_actions(world: &mut World) {
    world.harness.server.edit(Kind::ClusterQueue, &sluice_core::api::ObjectKey::cluster("a"), |q| {
        q["spec"]["stopPolicy"] = json!("None");
    });
    let keys: Vec<_> = world.harness.server.all(Kind::Workload).map(key_of).collect();
    for key in keys {
        world.harness.server.edit(Kind::Workload, &key, |w| w["spec"]["active"] = json!(true));
    }
}

/// The given seeds, or the one that `SLUICE_SEED` names.
#[expect(clippy::disallowed_methods, reason = "a developer replays a seed")]
pub(super) fn seeds(all: std::ops::Range<u64>) -> Vec<u64> {
    std::env::var("SLUICE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .map_or_else(|| all.collect(), |seed| vec![seed])
}

#[test]
fn every_job_runs_and_releases_quota() {
    for seed in 0..20 {
        run_history(seed, Faults::default(), false);
    }
}

#[test]
fn quota_is_conserved_under_faults() {
    for seed in seeds(0..30) {
        run_history(
            seed,
            Faults { lost_responses: 80, dropped_writes: 80, manager_kills: 4, concurrent_writes: 40 },
            false,
        );
    }
}

#[test]
fn quota_is_conserved_under_faults_and_user_actions() {
    for seed in seeds(100..130) {
        run_history(
            seed,
            Faults { lost_responses: 60, dropped_writes: 60, manager_kills: 3, concurrent_writes: 30 },
            true,
        );
    }
}

/// I8 for the whole core, after faults and user actions: once the cluster is idle, no head fits and waits.
#[test]
fn no_head_waits_in_idle_cluster() {
    let mut pending = 0;
    for seed in seeds(200..220) {
        let mut world = cluster(seed, &with_write_limit(seed, CoreSettings::default()));
        world.jobs_never_end = true;
        world.faults =
            Faults { lost_responses: 60, dropped_writes: 60, manager_kills: 3, concurrent_writes: 30 };
        for n in 0..12_u32 {
            create_random_job(&mut world, n);
            for _ in 0..world.random_below(60) {
                world.step();
            }
            apply_user_action(&mut world, n);
        }
        undo_user_actions(&mut world);
        world.faults = Faults::default();
        assert!(world.run_until_idle(60_000), "seed {seed}");
        // Each backoff ends, and all heads are checked twice.
        let end = world.now.checked_add(SignedDuration::from_secs(125)).unwrap();
        while world.now < end {
            world.step();
        }
        let snapshot = world.harness.core.snapshot();
        for (name, queue) in &snapshot.queues.cluster_queues {
            assert_eq!(queue.waiting_head, None, "seed {seed}: {name}");
            pending += queue.pending.total();
        }
    }
    assert!(pending > 20, "only {pending} workloads wait");
}

/// Writes to the Workload and the Job over the life of a Job that waits once, queue status aside.
#[test]
fn writes_per_job_stay_bounded() {
    let mut world = cluster(7, &CoreSettings::default());
    for name in ["first", "second"] {
        world.create(JOB, job(name, "a", 3));
    }
    assert!(world.run_until_finished(20_000));
    for _ in 0..200 {
        world.step();
    }
    let per_job = |name: &str| -> u32 {
        world.writes.iter().filter(|(key, _)| key.contains(name)).map(|(_, count)| count).sum()
    };
    assert!(per_job("first") <= 7 && per_job("second") <= 7, "{:#?}", world.writes);
    assert!(world.events.len() <= 12, "{:#?}", world.events);
}

/// Pending reasons are written within the rate limit and for every workload in bounded time; starts never wait for the limit.
#[test]
fn pending_status_writes_respect_rate_limit() {
    let settings = CoreSettings {
        writes: WriteLimits { status_writes_per_second: Some(2), ..WriteLimits::default() },
        ..CoreSettings::default()
    };
    let mut world = cluster(9, &settings);
    world.jobs_never_end = true;
    for n in 0..40 {
        world.create(JOB, job(&format!("j{n}"), "a", 4));
    }
    let start = world.now;
    let reported = |world: &World| {
        world
            .harness
            .server
            .all(Kind::Workload)
            .filter(|w| condition(w, "QuotaReserved") == Some("False"))
            .count()
    };
    let runs = |world: &World| active_pods(world) == 4;
    while !runs(&world) {
        world.step();
        assert!(world.now.duration_since(start).as_secs() < 30, "the start was delayed");
    }
    for _ in 0..40_000 {
        let seconds = usize::try_from(world.now.duration_since(start).as_secs()).unwrap();
        // The burst of one second, and one write whose slot was already granted.
        assert!(
            reported(&world) <= 2 * seconds + 5,
            "{} pending reasons within {seconds} s",
            reported(&world)
        );
        if reported(&world) == 39 {
            return;
        }
        world.step();
    }
    panic!("only {} of 39 pending reasons were written", reported(&world));
}

/// A Job that should have got the default queue, but was created while the webhook was unavailable, runs on and gets one event.
#[test]
fn job_unseen_by_webhook_keeps_running() {
    let mut world = cluster(3, &CoreSettings::default());
    let spec = json!({"clusterQueue": "a"});
    world.create(Kind::LocalQueue, json!({"metadata": {"name": "default", "namespace": "ns"}, "spec": spec}));
    for _ in 0..200 {
        world.step();
    }
    let mut passed_by = job("passed-by", "a", 1);
    passed_by["metadata"]["labels"] = json!({});
    passed_by["spec"]["suspend"] = json!(false);
    world.create(JOB, passed_by);
    assert!(world.run_until_finished(20_000));
    let events =
        world.events.iter().filter(|(key, reason)| &*key.name == "passed-by" && reason == "NotQueued");
    assert_eq!(events.count(), 1, "{:?}", world.events);
    assert_eq!(world.harness.server.all(Kind::Workload).count(), 0);
}
